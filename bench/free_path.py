"""The whole free path, bytes in and bytes out with every check and digest, over the parser's own floor."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from bench.jobs import LARGE, Job
from ranking_evaluate import OperationError, evaluate
from ranking_evaluate.core import canonical, intake
from ranking_evaluate.operations.registry import find

WHOLE = "whole"
FLOOR = "floor: orjson.loads(input) + orjson.dumps(result)"


def candidates(job: Job, operation_id: str = "ranking-evaluate") -> dict[str, Callable[[], object]]:
    """Return what is timed on one job: the whole, the floor, and the stages one by one."""
    operation = find(operation_id)
    body = job.body
    value = intake.read(body)
    encoded = canonical.encode(operation.accept(value))
    accepted = operation.accept(value)
    result = operation.evaluate(accepted)
    dumped = canonical.dump(result)
    plain = orjson.loads(dumped)
    return {
        WHOLE: lambda: evaluate(operation_id, body),
        FLOOR: lambda: (orjson.loads(body), orjson.dumps(plain)),
        "intake": lambda: intake.read(body),
        "schema": lambda: operation.accept(value),
        "evaluate": lambda: operation.evaluate(accepted),
        "write the result": lambda: canonical.dump(result),
        "canonical form of the input": lambda: canonical.encode(accepted),
        "two SHA-256": lambda: (canonical.sha256(dumped), canonical.sha256(encoded)),
    }


def _refused(body: bytes) -> Callable[[], object]:
    def refuse() -> object:
        try:
            return evaluate("ranking-evaluate", body)
        except OperationError as error:
            return error

    return refuse


def hostile() -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return refusals, each with the answer to a valid body of the same size beside it."""
    queries = range(50)
    bodies = {
        "over 131,072 bytes": b'{"queries":[' + b" " * 131_072,
        "9,000 values of the wrong type": canonical.dump(
            {"queries": [{"id": f"q{n}", "retrieved": [0] * 100, "judgments": [0] * 90} for n in queries]}
        ),
        "10,000 unknown members": canonical.dump(
            {"queries": [{"id": "q", "retrieved": [], "judgments": []}], **{f"x{n}": 0 for n in range(9_000)}}
        ),
        "nested 50,000 deep": b"[" * 50_000 + b"]" * 50_000,
        "60,000 values": b"[" + b"0," * 60_000 + b"0]",
        "a member twice": LARGE.body.replace(b'"k":', b'"k":1,"k":'),
        "a member twice, far within": LARGE.body.replace(b'"grade":', b'"grade":1,"grade":', 1),
        "a number beyond binary64": LARGE.body.replace(b'"k":100', b'"k":1e999'),
        "a number beyond binary64, far within": LARGE.body.replace(b'"grade":', b'"grade":1e999,"x":', 1),
        "half a surrogate pair, far within": LARGE.body.replace(b'"id":"', b'"id":"\\ud800', 1),
        "a judgment of the wrong type at the end": b'"grade":"x","y":'.join(LARGE.body.rsplit(b'"grade":', 1)),
        "cut off": LARGE.body[:-1],
        "a document ranked twice": _twice(),
    }
    return {name: (_refused(body), _valid(len(body))) for name, body in bodies.items()}


def _twice() -> bytes:
    value = orjson.loads(LARGE.body)
    ranked = value["queries"][-1]["retrieved"]
    ranked[-1] = ranked[0]
    return canonical.dump(value)


def _valid(size: int) -> Callable[[], object]:
    """Return the answer to a valid job of about this size, or to the largest useful one."""
    value = orjson.loads(LARGE.body)
    count = max(1, min(50, round(50 * size / len(LARGE.body))))
    body = canonical.dump({**value, "queries": value["queries"][:count]})
    return lambda: evaluate("ranking-evaluate", body)
