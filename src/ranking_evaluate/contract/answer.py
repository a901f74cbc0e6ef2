"""The answer to one input: the result in its envelope, with the release and the digests that tie them together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ranking_evaluate.core import canonical
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.release import VERSION


@dataclass(frozen=True)
class Answer:
    """The answer of an operation to one input.

    The response is put together when it is asked for: most requests are not paid yet, and get no answer.
    """

    operation: str
    input_sha256: str
    result: bytes

    @cached_property
    def output_sha256(self) -> str:
        """The digest of the result, which the response states."""
        return canonical.sha256(self.result)

    @cached_property
    def body(self) -> bytes:
        """The bytes of the successful response; the result in it is the very bytes that were hashed."""
        head = canonical.dump({"operation": self.operation, "version": VERSION})
        provenance = canonical.dump(
            {
                "inputSha256": self.input_sha256,
                "outputSha256": self.output_sha256,
                "deterministic": True,
                "externalRequests": 0,
            }
        )
        return b'%b,"result":%b,"provenance":%b}' % (head[:-1], self.result, provenance)

    @cached_property
    def sha256(self) -> str:
        """The digest of the whole body, which a replay is held against."""
        return canonical.sha256(self.body)


def answer(operation: Operation[Any], body: bytes) -> Answer:
    """Return the operation's answer to a request body; what it refuses, it refuses with OperationError."""
    evaluation = operation.run(body)
    return Answer(operation.id, evaluation.input_sha256, evaluation.result)
