"""The lives of the service's replicas: born of one process that has imported everything, and ended by SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from ranking_evaluate.sandbox.processes import free_port
from tests.faults.callers import exchange
from tests.faults.crashing_service import Life, Strings

ROOT: Final = Path(__file__).parent.parent.parent
ALIVE_SECONDS: Final = 20.0

STRINGS: Final = "strings"
"""The file of the strings, in the directory of the services."""


class Nursery:
    """The process that starts the services."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.crashing_service"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, order: dict[str, Any]) -> int:
        """Give an order and return the number that answers it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        """Return itself, which runs already."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it, and what it started."""
        self._process.communicate(timeout=20)


class Replicas:
    """Some processes of one service; `up` is set while all of them can sell.

    Args:
        nursery: Where they are born.
        directory: Where their logs and strings are.
        environment: Their environment.
        count: How many.
        broken: The sabotage in them, if any.
    """

    def __init__(
        self,
        nursery: Nursery,
        directory: Path,
        environment: Mapping[str, str],
        *,
        count: int = 1,
        broken: str | None = None,
    ) -> None:
        self._nursery = nursery
        self._directory = directory
        self._environment = environment
        self._broken = broken
        self.strings = Strings(directory / STRINGS)
        self.ports = [free_port() for _ in range(count)]
        self.pids: list[int | None] = [None] * count
        self.up = asyncio.Event()

    def start(self, replica: int) -> None:
        """Give birth to a replica."""
        life = Life(
            port=self.ports[replica],
            environment=self._environment,
            strings=str(self._directory / STRINGS),
            log=str(self._directory / f"service-{replica}.log"),
            replica=replica,
            sabotage=self._broken,
        )
        self.strings.doom(replica, None)
        self.pids[replica] = self._nursery.ask(life.document())

    async def ready(self) -> None:
        """Wait until every replica can sell."""
        for replica in range(len(self.ports)):
            await self.until(replica, "/readyz")
        self.up.set()

    async def until(self, replica: int, path: str) -> None:
        """Wait until a replica answers 200 to a path."""
        give_up = time.monotonic() + ALIVE_SECONDS
        request = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
        while (reply := await exchange(self.ports[replica], request, None)) is None or reply.status != 200:
            assert time.monotonic() < give_up, self.logs()
            await asyncio.sleep(0.01)

    def logs(self) -> str:
        """Return the ends of the services' logs."""
        return "\n".join(path.read_text()[-2000:] for path in self._directory.glob("service-*.log"))

    def kill(self, replica: int) -> None:
        """Kill a replica, if it lives."""
        pid = self.pids[replica]
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def bury(self, replica: int) -> None:
        """Wait until a replica is dead."""
        pid, self.pids[replica] = self.pids[replica], None
        if pid is not None:
            ended = self._nursery.ask({"wait": pid})
            assert ended == -signal.SIGKILL, f"the service ended by itself, with {ended}: {self.logs()}"

    def is_dead(self, replica: int) -> bool:
        """Whether a replica has died."""
        pid = self.pids[replica]
        if pid is None:
            return True
        with contextlib.suppress(FileNotFoundError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return True

    async def revive(self, dead: list[int]) -> None:
        """Start those again that have died."""
        for replica in dead:
            self.bury(replica)
            self.start(replica)
        await self.ready()

    async def open(self) -> None:
        """Start all of them, one after the other: the first makes the tables."""
        for replica in range(len(self.ports)):
            self.start(replica)
            await self.until(replica, "/healthz")
        await self.ready()

    def close(self) -> None:
        """End all of them."""
        for replica in range(len(self.ports)):
            self.kill(replica)
            self.bury(replica)
