"""How long the service takes to start, and what an idle one holds in memory."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from bench.paid_servers import LOOPBACK, NETWORK, PAYEE, free_port


def start() -> tuple[float, int]:
    """Return the seconds from the command to the first answer of /healthz, and the resident bytes after it."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory, (Path(directory) / "log").open("w") as log:
        settings = {
            "DATABASE_URL": f"sqlite:///{directory}/attempts.db",
            "X402_PAY_TO": PAYEE,
            "X402_NETWORK": NETWORK,
            "X402_FACILITATOR_URL": f"http://{LOOPBACK}:1",
        }
        environment = {f"RANKING_EVALUATE_{name}": text for name, text in settings.items()}
        program = str(Path(sysconfig.get_path("scripts")) / "ranking-evaluate")
        started = time.perf_counter()
        process = subprocess.Popen(
            [program, "serve", "--port", str(port)], env={**os.environ, **environment}, stdout=log, stderr=log
        )
        try:
            while not _alive(port):
                if process.poll() is not None or time.perf_counter() - started > 60:
                    raise RuntimeError("the service did not start")
                time.sleep(0.005)
            seconds = time.perf_counter() - started
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.terminate()
            process.wait(20)
    [resident] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return seconds, int(resident.split()[1]) * 1024


def _alive(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
