"""The real service, started over and over, that dies by SIGKILL where a test wants it to; no product code knows of it.

    python -m tests.faults.crashing_service

imports everything once, and then forks a process for each line on its standard input, a JSON document of `Life`: what
runs there is `ranking-evaluate serve`, from its first line on. It answers with the process's id, and once it is over,
to `{"wait": pid}`, with how it ended. When its input ends, it kills what still runs.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw
import pytest
from fastapi import FastAPI

from ranking_evaluate import bootstrap, keeper
from ranking_evaluate.attempts import postgres, sqlite
from ranking_evaluate.attempts.attempt import Attempt, Draft, Step
from ranking_evaluate.attempts.decide import Request, Snapshot
from ranking_evaluate.attempts.events import Event, RecordSettled, Submit
from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.cli.serve import serve
from ranking_evaluate.payments.clock import ClockWatch
from ranking_evaluate.payments.mpp.protocol import MppProtocol
from ranking_evaluate.payments.protocol import Credential, Offer, Settlement, Verification
from ranking_evaluate.payments.x402.protocol import X402Protocol
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.server import start
from ranking_evaluate.settings import read_settings
from tests.faults import sabotage

T = TypeVar("T")

POINTS: Final = (
    "before RESERVE",
    "after RESERVE",
    "before the verification",
    "after the verification",
    "before SUBMIT",
    "after SUBMIT",
    "before the settle call",
    "after the settle call",
    "before SETTLED",
    "after SETTLED",
    "before the answer",
    "within the answer",
)
"""Where any service can be made to die: between any two steps of the walk."""

COMMIT_POINTS: Final = tuple(
    f"{when} the COMMIT of {what}" for what in ("RESERVE", "SUBMIT", "SETTLED") for when in ("before", "after")
)
"""Where the embedded store can be made to die: with all written and nothing committed, or committed and nobody told."""

ALL_POINTS: Final = (*POINTS, *COMMIT_POINTS)

NAMES: Final[dict[type[Event], str]] = {Submit: "SUBMIT", RecordSettled: "SETTLED"}
"""How a move is called in the names of the points."""

PROVIDER_POINTS: Final = ("the settle call has arrived", "the money has moved")
"""Where the other side kills the service, while it waits for the answer to its settle call."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the service.

    Attributes:
        port: Where it listens.
        environment: Its environment, all of it.
        strings: The file of the `Strings` that it hangs on.
        log: Where its output goes.
        replica: Which of the replicas it is.
        sabotage: What is broken in it, if anything.
    """

    port: int
    environment: Mapping[str, str]
    strings: str
    log: str
    replica: int = 0
    sabotage: str | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


class Strings:
    """What a test moves in services that run already: their clock, and where they die; a file shared in memory."""

    _SHIFT: Final = struct.Struct("d")
    _POINT: Final = struct.Struct("ii")

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    @property
    def shift(self) -> float:
        """Seconds by which the clock is ahead."""
        seconds: float = self._SHIFT.unpack_from(self._shared)[0]
        return seconds

    @shift.setter
    def shift(self, seconds: float) -> None:
        self._SHIFT.pack_into(self._shared, 0, seconds)

    def clock(self, now: float | None = None) -> float:
        """Return the time, or what it makes of another clock's."""
        return (time.time() if now is None else now) + self.shift

    def doom(self, replica: int, point: str | None, times: int = 1) -> None:
        """Let a replica die at a point, the first time that it comes there, or the second, ..."""
        number = 0 if point is None else 1 + ALL_POINTS.index(point)
        self._POINT.pack_into(self._shared, self._place(replica), number, times)

    def pull(self, replica: int, point: str) -> bool:
        """Say that a replica is at a point, and return whether it dies there."""
        number, times = self._POINT.unpack_from(self._shared, self._place(replica))
        if number != 1 + ALL_POINTS.index(point):
            return False
        self._POINT.pack_into(self._shared, self._place(replica), number, times - 1)
        return bool(times == 1)

    def _place(self, replica: int) -> int:
        return self._SHIFT.size + replica * self._POINT.size


@dataclass(frozen=True, slots=True)
class Doom:
    """Kills this process at the point where it shall die."""

    strings: Strings
    replica: int

    def at(self, point: str) -> None:
        """Say that the process is there."""
        if self.strings.pull(self.replica, point):
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        """Return the method with a point before and one after it."""

        async def doomed(*args: Any) -> T:
            self.at(f"before {name}")
            result = await method(*args)
            self.at(f"after {name}")
            return result

        return doomed


def doom_store(patch: pytest.MonkeyPatch, doom: Doom, store: type[SqliteStore] | type[PostgresStore]) -> None:
    """Put points around what a store writes."""
    reserve, move = store.reserve, store.move

    async def doomed_reserve(self: Any, draft: Draft, request: Request, seen: Snapshot) -> Attempt | None:
        return await doom.around("RESERVE", reserve)(self, draft, request, seen)

    async def doomed_move(self: Any, claim: str, event: Event) -> Step:
        name = NAMES.get(type(event))
        return await (move if name is None else doom.around(name, move))(self, claim, event)

    patch.setattr(store, "reserve", doomed_reserve)
    patch.setattr(store, "move", doomed_move)


def doom_commits(patch: pytest.MonkeyPatch, doom: Doom) -> None:
    """Put points around the COMMIT of the embedded store, by what is committed."""

    class Doomed(apsw.Connection):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.writes: set[str] = set()

        def execute(self, statements: str, bindings: Any = None, **named: Any) -> apsw.Cursor:
            if statements != "COMMIT":
                self.note(statements, bindings)
                return super().execute(statements, bindings, **named)
            writes, self.writes = self.writes, set()
            for what in sorted(writes):
                doom.at(f"before the COMMIT of {what}")
            done = super().execute(statements)
            for what in sorted(writes):
                doom.at(f"after the COMMIT of {what}")
            return done

        def note(self, query: str, parameters: Any) -> None:
            if query.startswith("INSERT INTO attempts"):
                self.writes.add("RESERVE")
            elif query.startswith("UPDATE attempts") and parameters:
                self.writes |= {"settling": {"SUBMIT"}, "settled": {"SETTLED"}}.get(parameters[0], set())

    patch.setattr(apsw, "Connection", Doomed)


def doom_protocol(patch: pytest.MonkeyPatch, doom: Doom, protocol: type[X402Protocol] | type[MppProtocol]) -> None:
    """Put points around the calls of a protocol."""
    verify, settle = protocol.verify, protocol.settle

    async def doomed_verify(self: Any, credential: Credential, offer: Offer) -> Verification:
        return await doom.around("the verification", verify)(self, credential, offer)

    async def doomed_settle(self: Any, credential: Credential, offer: Offer) -> Settlement:
        return await doom.around("the settle call", settle)(self, credential, offer)

    patch.setattr(protocol, "verify", doomed_verify)
    patch.setattr(protocol, "settle", doomed_settle)


def doom_answers(app: FastAPI, doom: Doom) -> Callable[..., Awaitable[None]]:
    """Return the application with points before and within the bytes of a 200 to a purchase."""

    async def doomed(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        sold = False

        async def send_doomed(message: Any) -> None:
            nonlocal sold
            if message["type"] == "http.response.start":
                sold = message["status"] == 200
                if sold:
                    doom.at("before the answer")
            elif sold and message["body"]:
                half = len(message["body"]) // 2
                await send({"type": "http.response.body", "body": message["body"][:half], "more_body": True})
                doom.at("within the answer")
                message = {**message, "body": message["body"][half:]}
            await send(message)

        await app(scope, receive, send_doomed)

    return doomed


def live(life: Life) -> None:
    """Be the service, until killed."""
    log = os.open(life.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    os.environ.clear()
    os.environ.update(life.environment)
    strings, patch = Strings(Path(life.strings)), pytest.MonkeyPatch()
    doom, clock = Doom(strings, life.replica), strings.clock
    if life.sabotage is not None:
        sabotage.SABOTAGES[life.sabotage].apply(patch)
    doom_store(patch, doom, SqliteStore)
    doom_store(patch, doom, PostgresStore)
    doom_commits(patch, doom)
    doom_protocol(patch, doom, X402Protocol)
    doom_protocol(patch, doom, MppProtocol)
    patch.setattr(bootstrap, "SqliteStore", functools.partial(sqlite.SqliteStore, clock=clock))
    patch.setattr(postgres, "PostgresStore", functools.partial(PostgresStore, clock=clock))
    patch.setattr(bootstrap, "Purchases", functools.partial(Purchases, clock=clock))
    # Nobody waits for minutes here: the clock is moved, and what is due is to be seen at once.
    patch.setattr(keeper, "LOOK_SECONDS", 0.05)
    patch.setattr(bootstrap, "CALLS_A_SECOND", 2_000)
    # The clocks are off on purpose.
    patch.setattr(ClockWatch, "start", lambda watch: None)
    run = start.run
    patch.setattr(start, "run", lambda app, *args, **named: run(doom_answers(app, doom), *args, **named))
    serve(host="127.0.0.1", port=life.port)


def warm_up() -> None:
    """Do once what every life would do for the first time; nothing is opened by it, and no thread started."""
    bootstrap.build(
        read_settings(
            {
                "RANKING_EVALUATE_X402_PAY_TO": "0x" + "2b" * 20,
                "RANKING_EVALUATE_X402_NETWORK": "eip155:84532",
                "RANKING_EVALUATE_X402_FACILITATOR_URL": "http://127.0.0.1:1",
            }
        )
    )
    for module in ("uvloop", "uvicorn.loops.auto", "uvicorn.lifespan.on", "uvicorn.protocols.http.httptools_impl"):
        importlib.import_module(module)
    gc.freeze()


def main() -> None:
    """Start what the lines on standard input say."""
    warm_up()
    running: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            running.discard(order["wait"])
            said = os.waitstatus_to_exitcode(status)
        else:
            said = os.fork()
            if said == 0:
                try:
                    live(Life(**order))
                finally:
                    os._exit(1)
            running.add(said)
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
