"""The sandbox's processes and its directory, which go when the sandbox goes, however it goes."""

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ranking_evaluate.sandbox import leash

LOOPBACK: Final = "127.0.0.1"
LOG_TAIL_LINES: Final = 12


class SandboxError(Exception):
    """The sandbox did not come up or broke down; the text says why."""


class MissingError(SandboxError):
    """Something that must be installed first is missing; the text names it."""


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_port_free(port: int) -> bool:
    """Return whether a server could listen on `port` of the loopback interface now."""
    with socket.socket() as probe:
        # Servers set this option too: a port whose last connections are still closing counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


class Processes:
    """Processes that end with their parent, each with a log file in a common temporary directory.

    Every process leads a session of its own, so that an interrupt at the terminal reaches the parent alone, which
    then ends them in order. A leash (see `leash.py`) ends them when the parent is killed.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ranking-evaluate-sandbox-"))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._leash = subprocess.Popen(  # noqa: S603 - this package's own file
            [sys.executable, "-I", "-S", leash.__file__, str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `command` with exactly the given environment variables, and return its process.

        Nothing of this process's own environment is passed on: a sandbox must not depend on the shell it starts from.

        Args:
            name: What messages call it; its output goes to `<name>.log`.
            command: The program, by full path, and its arguments.
            environment: All the environment variables of the new process but HOME.
        """
        with self.log_path(name).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - programs that the sandbox names itself
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={"HOME": str(self.directory), **(environment or {})},
                start_new_session=True,
            )
        self._running[name] = process
        self._tell_leash(f"watch {process.pid}")
        return process

    def log_path(self, name: str) -> Path:
        """Return the file that holds what the process `name` wrote."""
        return self.directory / f"{name}.log"

    def check(self) -> None:
        """Raise a SandboxError that quotes the log when a process has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                tail = self.log_path(name).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
                said = "\n".join(tail) or "(it wrote nothing)"
                raise SandboxError(f"The {name} process ended with exit code {process.returncode}:\n{said}")

    def end(self, name: str, *, kill: bool = False) -> None:
        """End the process `name`, if it runs: with SIGTERM and some patience, or at once with SIGKILL."""
        process = self._running.pop(name, None)
        if process is None:
            return
        if not kill:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(leash.PATIENCE_SECONDS)
        process.kill()
        process.wait()
        self._tell_leash(f"forget {process.pid}")

    def stop(self) -> None:
        """End every process, the newest first, and remove the directory. Stopping twice is harmless."""
        for name in reversed(list(self._running)):
            self.end(name)
        if self._leash.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._leash.stdin.close()
        self._leash.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _tell_leash(self, order: str) -> None:
        # Without a leash nothing is lost but the tidying after a killed parent.
        if self._leash.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._leash.stdin.write(f"{order}\n".encode())
                self._leash.stdin.flush()
