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
from io import BufferedRWPair
from typing import Final

import orjson

from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.operations import registry

LENGTH_BYTES: Final = 4


def send(stream: BufferedRWPair, *parts: bytes) -> None:
    """Write the parts of one message; `receive` returns them one by one.

    Raises:
        OSError: Nobody reads at the other end, or the socket's timeout is over.
    """
    for part in parts:
        stream.write(len(part).to_bytes(LENGTH_BYTES, "big"))
        stream.write(part)
    stream.flush()


def receive(stream: BufferedRWPair) -> bytes:
    """Return the next part of a message.

    Raises:
        EOFError: The other end is closed.
        OSError: The other end broke off, or the socket's timeout is over.
    """
    length = int.from_bytes(_exactly(stream, LENGTH_BYTES), "big")
    return _exactly(stream, length)


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
            operation_id, body = receive(stream).decode(), receive(stream)
            send(stream, *_reply(operation_id, body))


def _reply(operation_id: str, body: bytes) -> tuple[bytes, bytes]:
    """Return the head of a reply, which `processes.py` reads, and the result, which is empty without one."""
    started = time.process_time()
    result = b""
    head: dict[str, object]
    try:
        evaluation = registry.find(operation_id).run(body)
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
