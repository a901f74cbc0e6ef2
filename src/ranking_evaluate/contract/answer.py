"""The answer to one input: the result in its envelope, with the release and the digests that tie them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ranking_evaluate.core import canonical
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.release import VERSION


@dataclass(frozen=True)
class Answer:
    """The bytes of a successful response, and the digests that they state."""

    body: bytes
    input_sha256: str
    output_sha256: str


def answer(operation: Operation[Any], body: bytes) -> Answer:
    """Return the operation's answer to a request body; what it refuses, it refuses with OperationError."""
    evaluation = operation.run(body)
    provenance = {
        "inputSha256": evaluation.input_sha256,
        "outputSha256": evaluation.result_sha256,
        "deterministic": True,
        "externalRequests": 0,
    }
    envelope = (
        canonical.dump({"operation": operation.id, "version": VERSION})[:-1],
        b',"result":',
        # The very bytes that were hashed.
        evaluation.result,
        b',"provenance":',
        canonical.dump(provenance),
        b"}",
    )
    return Answer(b"".join(envelope), evaluation.input_sha256, evaluation.result_sha256)
