"""Files into a report, in the form that is asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import orjson

from ranking_evaluate.interchange.report import overview, page, tables, whole
from ranking_evaluate.interchange.report.model import Head
from ranking_evaluate.interchange.report.read import Inputs, Named, State, checked, parts
from ranking_evaluate.interchange.report.sections import section, sections_together
from ranking_evaluate.operations.ranking_evaluate import OPERATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ranking_evaluate.interchange.report.model import Section
    from ranking_evaluate.interchange.report.overview import Collection
    from ranking_evaluate.interchange.report.read import Checked

# Of the responses of a file with more queries than these, only the best and the worst queries are shown.
SHOWN_QUERIES: Final = 200


class Form(StrEnum):
    """In which form a report is written."""

    HTML = "html"
    MARKDOWN = "markdown"
    CSV = "csv"


def render(responses: Sequence[Named], inputs: Sequence[Named], form: Form, *, raw_ids: bool = False) -> str:
    """Return the report of saved responses and of whole collections, the same text for the same files.

    Args:
        responses: Files with one response, or with one in each line, or what `measure --json` or `merge` wrote.
        inputs: Files with an input, or with one in each line, to hold the responses against; in any order.
        form: What to write.
        raw_ids: Whether CSV has ids as they are, also those that a spreadsheet would take for formulas.

    Raises:
        ReportError: A file cannot be used; the text says which, and why.
    """
    known = Inputs(inputs)
    sections: list[Section] = []
    for file in responses:
        sections += _sections(len(sections) + 1, file, known)
    return written(sections, form, raw_ids=raw_ids)


def written(sections: Sequence[Section], form: Form, *, raw_ids: bool = False) -> str:
    """Return sections in a form."""
    match form:
        case Form.HTML:
            return page.render(sections)
        case Form.MARKDOWN:
            return tables.markdown(sections)
        case Form.CSV:
            return tables.csv_rows(sections, raw_ids=raw_ids)


def collection_section(number: int, title: str, collection: Collection) -> Section:
    """Return the section of a collection, of which no response states a digest."""
    head = Head(f"r{number}", title, "measure", collection.source, collection.release, ())
    return overview.section(head, collection)


def _sections(number: int, file: Named, known: Inputs) -> Iterator[Section]:
    document = _document(file.content)
    if document is not None and "runs" in document:
        yield collection_section(number, "Whole collection", whole.of_measured(file.name, document))
    elif document is not None and "macro" in document:
        yield collection_section(number, "Whole collection", whole.of_merged(file.name, document))
    else:
        yield from _responses(number, file, [checked(part, known) for part in parts(file)])


def _document(content: bytes) -> dict[str, object] | None:
    """Return a JSON object that is no response, or None."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) and "operation" not in document else None


def _responses(number: int, file: Named, found: Sequence[Checked]) -> Iterator[Section]:
    """Yield the sections of the responses in a file; of several that belong together their averages first."""
    together = None
    if len(found) > 1 and all(one.response.operation.id == OPERATION.id for one in found):
        together = _together(number, file, found)
    if together is None:
        yield from (section(number + at, one) for at, one in enumerate(found))
        return
    overall, each = together
    yield overall
    if sum(len(one.queries) for one in each) <= SHOWN_QUERIES:
        yield from each


def _together(number: int, file: Named, found: Sequence[Checked]) -> tuple[Section, list[Section]] | None:
    """Return the section of all responses together, and one for each of them; None when they cannot be joined."""
    each = sections_together(number + 1, found)
    queries = {query.id: query for one in each for query in one.queries}
    results = [one.response.result for one in found]
    collection = whole.of_lines(file.name, file.content.split(b"\n"), results)
    if collection is None:
        return None
    if len(queries) > SHOWN_QUERIES:
        collection = collection._replace(shown=queries, shown_metrics=each[0].metrics, legend=each[0].legend)
    collection = collection._replace(remarks=[*collection.remarks, *_seals(found)])
    return collection_section(number, "All responses together", collection), each


def _seals(found: Sequence[Checked]) -> Iterator[str]:
    """Yield what is known of the digests of all responses."""
    for place, name in enumerate(("input", "output")):
        states = [one.seals[place].state for one in found]
        broken = [one.name for one in found if one.seals[place].state is State.BROKEN]
        text = f"{states.count(State.HOLDS):,} of {len(states):,} {name} digests hold"
        yield f"{text}; broken: {', '.join(broken[:10])}." if broken else f"{text}."
