"""The credentials that `pay` has signed, kept in small files so that a second run resends one instead of paying again.

Every credential is a file of its own, `<key>.<n>.json`, written whole before the credential first leaves this machine
and never changed afterwards. Saving is exclusive: a run may save only the number after the one that it has read, so of
two runs that sign under one key at the same moment, one saves and sends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# Clocks differ a little between this machine and the chain.
EXPIRY_MARGIN_SECONDS: Final = 60


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


def latest(directory: Path, key: str) -> SavedCredential | None:
    """Return the newest credential saved under `key`, or None.

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
    return saved


def save(directory: Path, credential: SavedCredential) -> Path:
    """Write a new credential to the disk, readable by its owner alone, and return its file.

    Raises:
        AlreadySavedError: Another run was faster.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = directory / ".gitignore"
    if not ignore.exists():
        ignore.write_text("# Signed payments do not belong into a repository.\n*\n", encoding="utf-8")
    path = directory / f"{credential.key}.{credential.number}.json"
    # mkstemp gives mode 0600.
    handle, name = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(credential), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, path)
        except FileExistsError as error:
            raise AlreadySavedError(str(path)) from error
    finally:
        Path(name).unlink()
    return path
