"""The answer to one input: the result in its envelope, with the release and the digests that tie them together."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ranking_evaluate.core import canonical
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.release import VERSION


class Answer(NamedTuple):
    """The bytes of a successful response, and the digests that they state."""

    body: bytes
    input_sha256: str
    output_sha256: str

    @property
    def sha256(self) -> str:
        """The digest of the whole body, which a replay is held against."""
        return canonical.sha256(self.body)


def answer(operation: Operation[Any], body: bytes) -> Answer:
    """Return the operation's answer to a request body; what it refuses, it refuses with OperationError."""
    input_sha256, result, output_sha256 = operation.run(body)
    provenance = (
        f'"provenance":{{"inputSha256":"{input_sha256}","outputSha256":"{output_sha256}",'
        '"deterministic":true,"externalRequests":0}}'
    )
    # The very bytes that were hashed.
    envelope = b"".join((_head(operation), result, b",", provenance.encode()))
    return Answer(envelope, input_sha256, output_sha256)


@cache
def _head(operation: Operation[Any]) -> bytes:
    """Return the envelope up to the result."""
    return canonical.dump({"operation": operation.id, "version": VERSION})[:-1] + b',"result":'
