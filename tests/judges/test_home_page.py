"""The home page in a real browser: light and dark, on a phone and on a desk; `scripts/look` shows the pictures."""

from __future__ import annotations

from ranking_evaluate.sandbox import Sandbox
from tests.judges.browser import Browser
from tests.judges.look import SCHEMES, SCREENS, look


def test_the_page_is_legible_and_fits_every_screen(sandbox: Sandbox, tab: Browser) -> None:
    looks = look(tab, f"{sandbox.origin}/")
    assert {one.name: one.faults for one in looks} == {
        f"{screen}-{scheme}": [] for screen in SCREENS for scheme in SCHEMES
    }
    # The two colour schemes are two.
    assert len({one.ground for one in looks}) == len(SCHEMES)
    assert all(one.picture.startswith(b"\x89PNG") for one in looks)
