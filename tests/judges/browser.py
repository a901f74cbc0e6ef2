"""A headless Chromium, driven over its DevTools protocol: enough to open a page, measure it and photograph it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
from websockets.sync.client import ClientConnection, connect

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
NOT_FOUND: Final = "no browser found; on Debian: apt install chromium"
START_SECONDS: Final = 30.0


def find() -> str | None:
    """Return the browser of this machine, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab of a fresh browser; within the context it runs."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        flags = (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
        )
        home = Path(self._folder.name)
        self._process = subprocess.Popen(
            [self._program, *flags, "--remote-debugging-port=0", f"--user-data-dir={home}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._socket = self._connect(home / "DevToolsActivePort")
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(timeout=10)
        self._folder.cleanup()

    def _connect(self, port_file: Path) -> ClientConnection:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                port = int(port_file.read_text(encoding="utf-8").splitlines()[0])
                [tab] = [one for one in httpx.get(f"http://127.0.0.1:{port}/json").json() if one["type"] == "page"]
                return connect(tab["webSocketDebuggerUrl"], max_size=None, proxy=None)
            except (OSError, ValueError, IndexError, httpx.TransportError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of one DevTools command; the events that come meanwhile are kept."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=START_SECONDS))
            if message.get("id") == self._last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def open(self, url: str, *, width: int, height: int, scheme: str) -> None:
        """Load a page as a screen of that size shows it, under that colour scheme."""
        self.events.clear()
        self._width = width
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + START_SECONDS
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            if time.monotonic() > deadline:
                raise TimeoutError(url)
            self.call("Runtime.evaluate", expression="1")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)[
            "result"
        ].get("value")

    def screenshot(self, height: int | None = None) -> bytes:
        """Return the page as PNG, below the fold too: all of it, or its first `height` pixels."""
        clip = {} if height is None else {"clip": {"x": 0, "y": 0, "width": self._width, "height": height, "scale": 1}}
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True, **clip)["data"])
