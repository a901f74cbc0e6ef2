"""Worker processes, and the threads of this process that wait for them.

A worker is a fresh interpreter at the other end of a socket. It is started when there is work and none is idle, so one
that died is replaced by the next input.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from ranking_evaluate.contract.answer import Answer
from ranking_evaluate.core.errors import ErrorCode, OperationError, Violation
from ranking_evaluate.evaluations.worker import receive, send
from ranking_evaluate.operations.operation import Operation

_COMMAND: Final = (sys.executable, "-P", "-m", "ranking_evaluate.evaluations.worker")

_KEPT_VARIABLES: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR")
"""What a worker is given of the environment, with whatever is Python's own: no setting, so no secret."""

_CGROUP_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


class WorkerLost(Exception):
    """The worker ended, or took too long and was ended, before it replied: nothing is known of its input."""


class EvaluationBroke(Exception):
    """The operation has a bug; the text is the error's type with the frames that it went through, and nothing else."""


class Evaluated(NamedTuple):
    """What an evaluation came to, a refusal included, and the processor time that it took."""

    outcome: Answer | OperationError
    seconds: float


def cores() -> int:
    """Return how many cores this process may use: of the machine, by its affinity, and by its container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CGROUP_QUOTA.read_text(encoding="ascii").split()
        count = min(count, math.ceil(int(quota) / int(period)))
    return max(1, count)


class Workers:
    """Evaluates in worker processes, as many inputs at once as there may be workers.

    Args:
        count: How many workers there may be.
        seconds: How long one evaluation may take before its worker is ended; None waits for ever.
    """

    def __init__(self, count: int, seconds: float | None = None) -> None:
        self._seconds = seconds
        # A thread only waits for its worker: what it waits for runs in the other process.
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="evaluation")
        self._lock = threading.Lock()
        self._all: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._closed = False

    def submit(self, operation: Operation[Any], bodies: Sequence[bytes]) -> Future[list[Evaluated]]:
        """Return what one worker will make of some inputs: `WorkerLost` or `EvaluationBroke` where that is nothing."""
        return self._threads.submit(self._evaluate, operation.id, bodies)

    def pids(self) -> list[int]:
        """Return the process ids of the workers that run."""
        with self._lock:
            return sorted(worker.pid for worker in self._all)

    def close(self) -> None:
        """End the workers: what is being evaluated is lost, and so is what was submitted and has not begun."""
        with self._lock:
            self._closed = True
            running = list(self._all)
        for worker in running:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._idle:
            worker.end()

    def _evaluate(self, operation_id: str, bodies: Sequence[bytes]) -> list[Evaluated]:
        try:
            worker = self._take()
        except OSError as error:
            raise WorkerLost(f"no worker could be started: {error.strerror}") from error
        try:
            evaluated = worker.evaluate(operation_id, bodies)
        except BaseException as error:
            # A worker that broke a bug off is as good as ever; one that is lost is replaced when it is needed.
            if isinstance(error, EvaluationBroke):
                self._give_back(worker)
            else:
                self._drop(worker)
            raise
        self._give_back(worker)
        return evaluated

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise WorkerLost("the workers were ended")
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive():
                    return worker
                self._all.discard(worker)
                worker.end()
            worker = _Worker(self._seconds)
            self._all.add(worker)
            return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            self._idle.append(worker)

    def _drop(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.end()


class _Worker:
    """One worker process, which one thread at a time speaks to."""

    def __init__(self, seconds: float | None) -> None:
        own, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with a module of ours.
                    _COMMAND, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=_environment()
                )
            except BaseException:
                own.close()
                raise
        own.settimeout(seconds)
        self._socket = own
        self._stream = own.makefile("rwb")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def evaluate(self, operation_id: str, bodies: Sequence[bytes]) -> list[Evaluated]:
        """Return what each input comes to."""
        try:
            send(self._stream, [operation_id.encode(), *bodies])
            reply = receive(self._stream)
        except (OSError, EOFError) as error:
            raise WorkerLost(f"the worker {'took too long' if isinstance(error, TimeoutError) else 'died'}") from error
        return [_evaluated(operation_id, *one) for one in zip(reply[::2], reply[1::2], strict=True)]

    def kill(self) -> None:
        """End the process at once; a thread that waits for it then finds out."""
        self._process.kill()

    def end(self) -> None:
        """End the process, and let go of it."""
        self._process.kill()
        with contextlib.suppress(OSError):
            self._stream.close()
        self._socket.close()
        self._process.wait()


def _evaluated(operation_id: str, head: bytes, result: bytes) -> Evaluated:
    said = orjson.loads(head)
    if "bug" in said:
        raise EvaluationBroke(f"{said['bug']}\n{said['frames']}")
    if "refusal" in said:
        return Evaluated(_refusal(said["refusal"]), said["seconds"])
    return Evaluated(Answer(operation_id, said["inputSha256"], result), said["seconds"])


def _refusal(members: Mapping[str, Any]) -> OperationError:
    violations = tuple(Violation(*violation) for violation in members["violations"])
    return OperationError(ErrorCode(members["code"]), members["detail"], members["pointer"], violations)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith("PYTHON")}
