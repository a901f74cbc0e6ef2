from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from ranking_evaluate import OperationError, evaluate
from tests.oracles.answer_keys import BODIES, CONTRACT, METRICS


def _named(rows: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(row, id=f"{row['id']}: {row['why']}") for row in rows]


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_the_contracts_example_is_answered_byte_for_byte() -> None:
    answered = evaluate("ranking-evaluate", _compact(CONTRACT["exampleInput"]))
    assert answered == _compact(CONTRACT["exampleResponse"])


def test_the_example_answers_output_digest_is_that_of_the_result_bytes_within() -> None:
    answered = evaluate("ranking-evaluate", _compact(CONTRACT["exampleInput"]))
    result = answered[answered.index(b'{"profile"') : answered.index(b',"provenance"')]
    assert hashlib.sha256(result).hexdigest() == CONTRACT["exampleResponse"]["provenance"]["outputSha256"]


@pytest.mark.parametrize("row", _named(METRICS))
def test_a_case_from_another_tools_bug_report_gets_the_right_figures(row: dict[str, Any]) -> None:
    expected = row["expect"]
    if "code" in expected:
        with pytest.raises(OperationError) as refused:
            evaluate("ranking-evaluate", row["body"])
        assert (refused.value.status, refused.value.code) == (expected["status"], expected["code"])
        return
    answered = json.loads(evaluate("ranking-evaluate", row["body"]))
    result = answered["result"]
    for query, figures in zip(result["queries"], expected["queries"], strict=True):
        assert {name: query[name] for name in figures} == figures
    for name in ("macro", "definedQueryCounts"):
        assert result[name] == expected.get(name, result[name])
    assert answered["provenance"]["inputSha256"] == expected["inputSha256"]
    assert answered["provenance"]["outputSha256"] == expected["outputSha256"]


@pytest.mark.parametrize("row", _named(BODIES))
def test_a_hostile_body_gets_its_status_and_code(row: dict[str, Any]) -> None:
    if row["status"] == 200:
        assert json.loads(evaluate("ranking-evaluate", row["body"]))["operation"] == "ranking-evaluate"
        return
    with pytest.raises(OperationError) as refused:
        evaluate("ranking-evaluate", row["body"])
    assert refused.value.status == row["status"]
    assert refused.value.code in row["codes"]
