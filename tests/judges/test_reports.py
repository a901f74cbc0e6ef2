"""Reports in a real browser: legible, accessible, within every screen, and unmoved by ids that are markup."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judges.browser import Browser
from tests.judges.example_reports import Example, collection_page, examples, page
from tests.judges.look import SCHEMES, SCREENS, look

EXAMPLES = examples()


@pytest.mark.parametrize(("name", "example"), EXAMPLES.items(), ids=EXAMPLES.keys())
def test_a_report_is_legible_and_accessible_on_every_screen(
    tab: Browser, tmp_path: Path, name: str, example: Example
) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(name, example), encoding="utf-8")
    looks = look(tab, file.as_uri())
    assert {one.name: one.faults for one in looks} == {
        f"{screen}-{scheme}": [] for screen in SCREENS for scheme in SCHEMES
    }
    assert len({one.ground for one in looks}) == len(SCHEMES)


def test_the_report_of_a_collection_is_legible_and_accessible_on_every_screen(tab: Browser, tmp_path: Path) -> None:
    looks = look(tab, collection_page(tmp_path).as_uri())
    assert {one.name: one.faults for one in looks} == {
        f"{screen}-{scheme}": [] for screen in SCREENS for scheme in SCHEMES
    }


def test_ids_that_are_markup_stay_text(tab: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page("hostile", EXAMPLES["hostile-ids"]), encoding="utf-8")
    tab.open(file.as_uri(), width=1280, height=900, scheme="light")
    assert tab.evaluate("document.title") == "Ranking report: Supplied ranking evaluation"
    assert tab.evaluate("document.querySelectorAll('script, img, iframe, [onerror]').length") == 0
    shown = tab.evaluate("[...document.querySelectorAll('h4')].map((one) => one.textContent)")
    assert "<script>document.title='broken'</script>" in shown
    assert "⟨202E⟩gnp.exe⟨202D⟩" in shown
    assert "😀" * 80 in shown
