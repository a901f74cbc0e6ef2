"""A worker process: it evaluates the inputs that arrive on its socket, one after another, until that is closed.

It imports the operations and what they need, so it is small, starts quickly and knows no secret. `processes.py` starts
it and speaks to it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
import traceback
from collections.abc import Sequence
from io import BufferedRWPair
from typing import Any, Final

import orjson

from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import Operation

LENGTH_BYTES: Final = 4


def send(stream: BufferedRWPair, parts: Sequence[bytes]) -> None:
    """Write one message, which is a list of byte strings.

    Raises:
        OSError: Nobody reads at the other end, or the socket's timeout is over.
    """
    stream.write(len(parts).to_bytes(LENGTH_BYTES, "big"))
    for part in parts:
        stream.write(len(part).to_bytes(LENGTH_BYTES, "big"))
        stream.write(part)
    stream.flush()


def receive(stream: BufferedRWPair) -> list[bytes]:
    """Return the next message.

    Raises:
        EOFError: The other end is closed.
        OSError: The other end broke off, or the socket's timeout is over.
    """
    return [_exactly(stream, _number(stream)) for _ in range(_number(stream))]


def _number(stream: BufferedRWPair) -> int:
    return int.from_bytes(_exactly(stream, LENGTH_BYTES), "big")


def _exactly(stream: BufferedRWPair, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def main() -> None:
    """Serve standard input, which is a socket."""
    # Whoever ends the service by a signal to all its processes still gets the answers that are under way. The socket's
    # end is what ends a worker.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for operation in registry.OPERATIONS:
        # What an operation makes ready at its first input is made ready before the first caller waits for it.
        operation.run(orjson.dumps(operation.example_input))
    stream = socket.socket(fileno=0).makefile("rwb")
    with contextlib.suppress(EOFError, OSError):
        while True:
            operation_id, *bodies = receive(stream)
            operation = registry.find(operation_id.decode())
            send(stream, [part for body in bodies for part in _reply(operation, body)])


def _reply(operation: Operation[Any], body: bytes) -> tuple[bytes, bytes]:
    """Return the head of a reply, which `processes.py` reads, and the result, which is empty without one."""
    started = time.process_time()
    result = b""
    head: dict[str, object]
    try:
        evaluation = operation.run(body)
    except OperationError as error:
        refusal = {"code": error.code, "detail": error.detail, "pointer": error.pointer}
        head = {"refusal": {**refusal, "violations": [list(violation) for violation in error.violations]}}
    except Exception as error:  # noqa: BLE001 - a bug is the caller's 500 and this process's next input all the same.
        # Without the error's text, which may quote the input.
        head = {"bug": type(error).__name__, "frames": "".join(traceback.format_tb(error.__traceback__))}
    else:
        result = evaluation.result
        head = {"inputSha256": evaluation.input_sha256}
    return orjson.dumps({**head, "seconds": time.process_time() - started}), result


if __name__ == "__main__":
    main()
