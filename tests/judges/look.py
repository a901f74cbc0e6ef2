"""Looks at the home page and at reports in a real browser, light and dark, phone and desk: `scripts/look [FOLDER]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from ranking_evaluate.sandbox.sandbox import Sandbox
from tests.judges import browser, example_reports

AXE: Final = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
"""An automated judge of accessibility, from npm."""

SCHEMES: Final = ("light", "dark")
SCREENS: Final = {"phone": (390, 844), "desktop": (1280, 900)}

README_SIZE: Final = (960, 1280)
"""Of the picture in the README, in pixels."""

LEAST_CONTRAST: Final = 4.5
"""WCAG AA, for text of ordinary size."""

# Each text's contrast with what is behind it; the texts that stick out; the targets that are hard to hit with a thumb.
MEASURE: Final = """(() => {
  const parse = (color) => color.match(/[0-9.]+/g).map(Number)
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor)
      if (color.length === 3 || color[3] > 0) return color
    }
    return [255, 255, 255]
  }
  // What may be longer than the screen: what scrolls by itself, and names that are cut with an ellipsis.
  const kept = (element) => element.closest('.scroll') || getComputedStyle(element).textOverflow === 'ellipsis' ||
    getComputedStyle(element.parentElement).textOverflow === 'ellipsis'
  document.querySelectorAll('details').forEach((one) => { one.open = true })
  const texts = [...document.querySelectorAll('main *')].filter((element) =>
    [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  const pale = texts.map((element) => {
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))]
    return [element.textContent.slice(0, 40), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]
  }).filter(([, contrast]) => contrast < %LEAST%)
  const wide = texts.filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5 && !kept(element))
    .map((element) => element.textContent.slice(0, 40))
  return { pale, wide, overflows: document.documentElement.scrollWidth > innerWidth, title: document.title,
    ground: getComputedStyle(document.body).backgroundColor }
})()""".replace("%LEAST%", str(LEAST_CONTRAST))


# Which of its rules the page breaks, and where first.
JUDGE: Final = """axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
  violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 120)}`))"""


class Look(NamedTuple):
    """What one look found: faults in words, the colour of the ground, and the picture."""

    name: str
    faults: list[str]
    ground: str
    picture: bytes


def look(tab: browser.Browser, url: str) -> list[Look]:
    """Return a look at the page for every screen and colour scheme."""
    looks = []
    for screen, (width, height) in SCREENS.items():
        for scheme in SCHEMES:
            tab.open(url, width=width, height=height, scheme=scheme)
            picture = tab.screenshot()
            found: dict[str, Any] = tab.evaluate(MEASURE)
            faults = [f"low contrast: {text!r} {contrast:.2f}" for text, contrast in found["pale"]]
            faults += [f"sticks out: {text!r}" for text in found["wide"]]
            if found["overflows"]:
                faults.append("the page scrolls sideways")
            tab.evaluate(AXE.read_text(encoding="utf-8"))
            faults += [f"inaccessible: {broken}" for broken in tab.evaluate(JUDGE)]
            faults += _complaints(tab.events)
            faults += [f"loads {extra}" for extra in _requests(tab.events) if extra != url]
            looks.append(Look(f"{screen}-{scheme}", faults, found["ground"], picture))
    return looks


def _complaints(events: list[dict[str, Any]]) -> list[str]:
    """Return what the browser complains about, a refused style or image among others."""
    entries = [event["params"]["entry"] for event in events if event.get("method") == "Log.entryAdded"]
    return [f"{entry['source']}: {entry['text']}" for entry in entries if entry["level"] in {"error", "warning"}]


def _requests(events: list[dict[str, Any]]) -> list[str]:
    sent = [event["params"]["request"]["url"] for event in events if event.get("method") == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith("data:")]


def main() -> int:
    program = browser.find()
    if program is None:
        print(f"look: {browser.NOT_FOUND}", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="look-"))
    folder.mkdir(parents=True, exist_ok=True)
    good = True
    with Sandbox() as sandbox, browser.Browser(program) as tab:
        urls = {"home": f"{sandbox.origin}/"}
        for name, example in example_reports.examples().items():
            file = folder / f"{name}.html"
            file.write_text(example_reports.page(name, example), encoding="utf-8")
            urls[name] = file.resolve().as_uri()
        urls["collection"] = example_reports.collection_page(folder).resolve().as_uri()
        # Such pictures stand in the README and in docs/measure.md, as docs/report.png and docs/measure.png.
        tab.open(urls["demo"], width=README_SIZE[0], height=900, scheme="light")
        (folder / "readme.png").write_bytes(tab.screenshot(height=README_SIZE[1]))
        tab.open(urls["collection"], width=README_SIZE[0], height=900, scheme="light")
        (folder / "measure.png").write_bytes(tab.screenshot(height=README_SIZE[1]))
        for name, url in urls.items():
            for one in look(tab, url):
                picture = folder / f"{name}-{one.name}.png"
                picture.write_bytes(one.picture)
                print(f"{picture}: {'; '.join(one.faults) or 'good'}")
                good = good and not one.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
