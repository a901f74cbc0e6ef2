"""The credentials that `pay` has signed, and what became of each, so that a second run never pays a second time.

Every credential has a file of its own, `<key>.<n>.json`, written whole before the credential first leaves this machine
and never changed afterwards. Beside it `<key>.<n>.sends` gets a line before each send and after each answer, and
`<key>.<n>.answer` is the answer that was bought. Saving is exclusive: a run may save only the number after the one that
it has read, so of two runs that sign under one key at the same moment, one saves and sends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

# Clocks differ a little between this machine and the chain.
EXPIRY_MARGIN_SECONDS: Final = 60

SENDING: Final = "sending"
NOT_SENT: Final = "not sent"
ANSWERED: Final = "answered"


class AlreadySavedError(Exception):
    """Another run has saved a credential under this key at the same moment."""


class UnreadableFileError(Exception):
    """A file of the state directory does not hold what this module writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCredential:
    """One signed credential and the purchase it is for.

    Attributes:
        key: The idempotency key.
        number: Counts the credentials under the key, from 1.
        protocol: The payment protocol.
        url: Where it is sent.
        input_sha256: The digest of the raw input that it buys an answer for.
        header: The request header that carries it.
        value: The header's value.
        expires_at: The epoch second from which no chain takes it any more.
        terms: What it pays, for people.
    """

    key: str
    number: int
    protocol: str
    url: str
    input_sha256: str
    header: str
    value: str = field(repr=False)
    expires_at: int
    terms: str

    def is_dead(self, now: float) -> bool:
        """Return whether it can no longer move money, whatever anybody does with it."""
        return now > self.expires_at + EXPIRY_MARGIN_SECONDS


@dataclass(slots=True, kw_only=True)
class Record:
    """A saved credential, its file, and what was noted beside it of its sends and answers, in that order."""

    path: Path
    credential: SavedCredential
    events: list[dict[str, Any]] = field(default_factory=list)

    def note(self, event: str, **facts: object) -> None:
        """Write a line about the credential, and return when it is on the disk; `events` has what others wrote too.

        Raises:
            OSError: It cannot be written.
        """
        line = {"event": event, "at": int(time.time()), **facts}
        # The line break comes first: a line that a crash cut short spoils no other one.
        handle = os.open(self._sends_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, f"\n{json.dumps(line)}".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        _reach_disk(self.path.parent)
        # Another run under this key may have sent it, or been answered, in the meantime.
        self.events = self._noted()

    def note_answer(self, status: int, receipt: str | None, body: bytes | None) -> None:
        """Note an answer, its receipt header and, of the first one that was bought, its bytes.

        Raises:
            OSError: It cannot be written.
        """
        facts: dict[str, object] = {"status": status, "receipt": receipt}
        try:
            if body is not None and self.kept_answer() is None:
                _write_whole(self._answer_path, body)
                facts["kept"] = self._answer_path.name
        finally:
            self.note(ANSWERED, **facts)

    def read_events(self) -> None:
        """Read what was noted.

        Raises:
            UnreadableFileError: It was noted, but cannot be read.
        """
        try:
            self.events = self._noted()
        except FileNotFoundError:
            self.events = []
        except OSError as error:
            raise UnreadableFileError(f"{self._sends_path} cannot be read: {error}") from error

    def _noted(self) -> list[dict[str, Any]]:
        """Return the lines that were noted, but one that a crash cut short.

        Of a cut "sending" nothing had been sent; a cut answer leaves a send without one, which is the careful side.
        """
        events = []
        for line in self._sends_path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    events.append(event)
        return events

    @property
    def never_sent(self) -> bool:
        """Whether no byte of it has left this machine; where nothing is noted, nobody can say that."""
        return bool(self.events) and self._count(SENDING) == self._count(NOT_SENT)

    @property
    def sends(self) -> int:
        """How often it was sent, as far as that was noted."""
        return self._count(SENDING) - self._count(NOT_SENT)

    @property
    def unanswered(self) -> int:
        """How many of these sends ended without an answer."""
        return max(0, self.sends - self._count(ANSWERED))

    @property
    def receipt(self) -> str | None:
        """The receipt header that came with the answer that it bought."""
        receipts = (each.get("receipt") for each in self.events if _is_bought(each))
        return next((each for each in receipts if isinstance(each, str)), None)

    @property
    def receipts(self) -> list[str]:
        """The receipt headers of all its answers, bought or not."""
        return [each["receipt"] for each in self.events if isinstance(each.get("receipt"), str)]

    @property
    def is_answered(self) -> bool:
        """Whether the answer that it buys has come."""
        return any(map(_is_bought, self.events))

    def kept_answer(self) -> bytes | None:
        """Return the bytes of the answer that it bought, or None where they were not kept."""
        if not any("kept" in each for each in self.events):
            return None
        try:
            return self._answer_path.read_bytes()
        except OSError:
            return None

    @property
    def _sends_path(self) -> Path:
        return self.path.with_suffix(".sends")

    @property
    def _answer_path(self) -> Path:
        return self.path.with_suffix(".answer")

    def _count(self, event: str) -> int:
        return sum(each.get("event") == event for each in self.events)


def _is_bought(event: dict[str, Any]) -> bool:
    return event.get("event") == ANSWERED and event.get("status") in range(200, 300)


def latest(directory: Path, key: str) -> Record | None:
    """Return the newest credential saved under `key` and what became of it, or None.

    Raises:
        UnreadableFileError: There is one, but it cannot be read.
    """
    names = (path.name.removeprefix(f"{key}.").removesuffix(".json") for path in directory.glob(f"{key}.*.json"))
    numbers = [int(name) for name in names if name.isdigit()]
    if not numbers:
        return None
    path = directory / f"{key}.{max(numbers)}.json"
    try:
        saved = SavedCredential(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UnreadableFileError(f"{path} cannot be read: {error}") from error
    if saved.key != key:
        raise UnreadableFileError(f"{path} belongs to the key {saved.key}.")
    record = Record(path=path, credential=saved)
    record.read_events()
    return record


def save(directory: Path, credential: SavedCredential) -> Record:
    """Write a new credential to the disk, readable by its owner alone.

    Raises:
        AlreadySavedError: Another run was faster.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = directory / ".gitignore"
    if not ignore.exists():
        ignore.write_text("# Signed payments do not belong into a repository.\n*\n", encoding="utf-8")
    path = directory / f"{credential.key}.{credential.number}.json"
    name = _write_beside(path, json.dumps(dataclasses.asdict(credential), indent=2).encode())
    try:
        os.link(name, path)
        _reach_disk(directory)
    except FileExistsError as error:
        raise AlreadySavedError(str(path)) from error
    finally:
        name.unlink()
    return Record(path=path, credential=credential)


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file that is never seen half written."""
    _write_beside(path, data).replace(path)
    _reach_disk(path.parent)


def _reach_disk(directory: Path) -> None:
    """Return when the names in a folder are on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_beside(path: Path, data: bytes) -> Path:
    """Write a new file into the folder of `path`, and return it once it is on the disk."""
    # mkstemp gives mode 0600.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)
