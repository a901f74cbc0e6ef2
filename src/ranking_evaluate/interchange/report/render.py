"""Files into a report, in the form that is asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from ranking_evaluate.interchange.report import page, tables
from ranking_evaluate.interchange.report.read import Named, read
from ranking_evaluate.interchange.report.sections import section

if TYPE_CHECKING:
    from collections.abc import Sequence


class Form(StrEnum):
    """In which form a report is written."""

    HTML = "html"
    MARKDOWN = "markdown"
    CSV = "csv"


def render(responses: Sequence[Named], inputs: Sequence[Named], form: Form) -> str:
    """Return the report of saved responses, the same text for the same files.

    Args:
        responses: Files with one response, or with one in each line.
        inputs: Files with an input, or with one in each line, to hold the responses against; in any order.
        form: What to write.

    Raises:
        ReportError: A file cannot be used; the text says which, and why.
    """
    sections = [section(number, one) for number, one in enumerate(read(responses, inputs), 1)]
    match form:
        case Form.HTML:
            return page.render(sections)
        case Form.MARKDOWN:
            return tables.markdown(sections)
        case Form.CSV:
            return tables.csv_rows(sections)
