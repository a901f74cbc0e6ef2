"""A real Prometheus with our alarms for one step: what fired, and after how many seconds."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
import yaml  # type: ignore[import-untyped]

from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port

RULES: Final = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
START_SECONDS: Final = 30.0
SCRAPES: Final = 3
"""Scrapes of each target before a step begins, so that a first event is an increase."""
TIMES_SHORTER: Final = 10
"""How much shorter the drill makes the time for which an alarm's condition must hold."""


def rules(*, shortened: bool) -> dict[str, Any]:
    """Return our alarms as they are, or with a tenth of each `for:`."""
    document: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in document["groups"]:
        for rule in group["rules"]:
            if shortened and "for" in rule:
                number, unit = re.fullmatch(r"(\d+)([sm])", rule["for"]).groups()  # type: ignore[union-attr]
                rule["for"] = f"{int(number) * (60 if unit == 'm' else 1) // TIMES_SHORTER}s"
    return document


@contextlib.contextmanager
def proxy_probe(origin: str) -> Iterator[int]:
    """Yield the port of what stands in for a blackbox exporter: it asks /readyz of the proxy, at each scrape."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                is_ready = httpx.get(f"{origin}/readyz", trust_env=False, timeout=5).status_code == 200
            except httpx.TransportError:
                is_ready = False
            body = f"probe_success {int(is_ready)}\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class Watch:
    """A context manager: Prometheus scrapes every second, and what fires is noted with its second since `mark`.

    Each step has one of its own: an alarm about the last ten minutes would still be firing in the next step.
    """

    def __init__(
        self, processes: Processes, name: str, replicas: Sequence[int], probe: int, *, shortened: bool
    ) -> None:
        self._processes = processes
        self._name = name
        self._targets = len(replicas) + 1
        self._port = free_port()
        self._began = time.monotonic()
        self._fired: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._folder = processes.directory / name
        self._folder.mkdir()
        (self._folder / "alerts.yml").write_text(yaml.safe_dump(rules(shortened=shortened)), encoding="utf-8")
        jobs = {"ranking-evaluate": ("/metrics", replicas), "ranking-evaluate-proxy": ("/probe", [probe])}
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [
                {
                    "job_name": job,
                    "metrics_path": path,
                    "static_configs": [{"targets": [f"{LOOPBACK}:{port}" for port in ports]}],
                }
                for job, (path, ports) in jobs.items()
            ],
        }
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")

    def __enter__(self) -> Watch:
        program = shutil.which("prometheus")
        assert program, "the drill needs Debian's package prometheus"
        command = [
            program,
            f"--config.file={self._folder}/prometheus.yml",
            f"--storage.tsdb.path={self._folder}/data",
            f"--web.listen-address={LOOPBACK}:{self._port}",
            "--log.level=warn",
        ]
        self._processes.start(self._name, command)
        deadline = time.monotonic() + START_SECONDS
        while self._scraped() < self._targets:
            self._processes.check()
            assert time.monotonic() < deadline, self._processes.log_path(self._name).read_text()
            time.sleep(0.1)
        self._thread.start()
        self.mark()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._processes.end(self._name, kill=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def mark(self) -> None:
        """Count seconds from now on."""
        self._began = time.monotonic()

    @property
    def fired(self) -> dict[str, float]:
        """The alarms that fired, each with the second at which it was first seen to."""
        return dict(self._fired)

    def wait_for(self, alarms: Collection[str], seconds: float) -> None:
        """Wait until all of these alarms have fired, or this long."""
        until = time.monotonic() + seconds
        while not set(alarms) <= self._fired.keys() and time.monotonic() < until:
            time.sleep(0.1)

    def _get(self, path: str, **params: str) -> Any:
        with contextlib.suppress(httpx.TransportError, ValueError):
            answer = httpx.get(f"http://{LOOPBACK}:{self._port}{path}", params=params, trust_env=False, timeout=5)
            return answer.json().get("data")
        return None

    def _scraped(self) -> int:
        query = f"count_over_time((up == 1)[1m:1s]) >= {SCRAPES}"
        data = self._get("/api/v1/query", query=query)
        return len(data["result"]) if data else 0

    def _look(self) -> None:
        while not self._over.wait(0.25):
            for alert in (self._get("/api/v1/alerts") or {"alerts": []})["alerts"]:
                if alert["state"] == "firing":
                    self._fired.setdefault(alert["labels"]["alertname"], time.monotonic() - self._began)
