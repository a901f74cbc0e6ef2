"""What a reader is sent to is there: sections of documents, links and paths, wherever the repository names them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(
    not (ROOT / "src").exists(), reason="the code is not beside these tests: a wheel is tried"
)
NOT_WRITTEN_HERE: Final = frozenset({"__pycache__", "node_modules"})
SEARCHED: Final = ("src", "tests", "docs", "bench", "scripts")
WRITTEN: Final = frozenset({".py", ".md", ".sql", ".html", ".css", ".txt", ".mjs", ""})
DOCUMENTS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TOP: Final = frozenset(path.name for path in ROOT.iterdir())
FILES: Final = frozenset(
    "/" + path.relative_to(ROOT).as_posix()
    for place in (*SEARCHED, "deploy", "reference")
    for path in (ROOT / place).rglob("*")
    if NOT_WRITTEN_HERE.isdisjoint(path.parts)
)

SECTION: Final = re.compile(r"(?:([\w/.-]+\.md), )?(?<!\[)\bsections? (\d+(?:(?:, | and | to )\d+)*)", re.IGNORECASE)
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
QUOTED: Final = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")
FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

NOT_OURS: Final = {
    "docs/decisions/modules-that-became-several.md": "its first column is the design's map, not this tree",
    "CHANGELOG.md": "it tells of files that have gone",
}


def sources() -> Iterator[Path]:
    for place in SEARCHED:
        for path in sorted((ROOT / place).rglob("*")):
            if (
                path.is_file()
                and path.suffix in WRITTEN
                and NOT_WRITTEN_HERE.isdisjoint(path.parts)
                and path != Path(__file__)
            ):
                yield path
    yield from ROOT.glob("*.md")


def headings(document: Path) -> list[str]:
    return HEADING.findall(FENCED.sub("", document.read_text(encoding="utf-8")))


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as forges make them."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings(document)}


def citations() -> Iterator[tuple[Path, str | None, str]]:
    """Yield who cites, which document and which number; a citation may be broken over two lines of a comment."""
    for path in sources():
        text = re.sub(r"\s+(?:# |-- )?", " ", path.read_text(encoding="utf-8"))
        for document, numbers in SECTION.findall(text):
            for number in re.findall(r"\d+", numbers):
                yield path, document or None, number


def test_every_cited_section_has_its_heading() -> None:
    found = list(citations())
    for path, document, number in found:
        assert document is not None, f"{path}: section {number} of which document? Write docs/lifecycle.md, section N"
        assert (ROOT / document).is_file(), f"{path} cites {document}"
        assert any(heading.startswith(f"{number}. ") for heading in headings(ROOT / document)), (path, document, number)
    assert len({path for path, _, _ in found}) > 10


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    for link in LINK.findall(FENCED.sub("", document.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith(("/", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_path_in_backticks_is_there(document: Path) -> None:
    if document.relative_to(ROOT).as_posix() in NOT_OURS:
        return
    for path in QUOTED.findall(FENCED.sub("", document.read_text(encoding="utf-8"))):
        if path.split("/")[0] in TOP and "/" in path:
            assert (ROOT / path).exists(), path
        elif path.endswith((".py", ".sql")):
            # Documents leave out folders that go without saying.
            assert any(each.endswith("/" + path) for each in FILES), path
