"""The drawn tree, the published table and the operations' codes agree; no conflict advises paying again."""

from __future__ import annotations

import re

import pytest

from ranking_evaluate.contract import errors
from ranking_evaluate.contract.errors import (
    AttemptConflict,
    InputRejected,
    PaymentRequired,
    PaymentUncertain,
    ServiceError,
    Unavailable,
    error_classes,
    refusal,
)
from ranking_evaluate.contract.problems import CAUSES, PROBLEMS, problem_of, rows_of
from ranking_evaluate.core.errors import STATUS, ErrorCode, OperationError, Violation

# The published table, with the codes of single operations.
PUBLISHED = {
    400: {
        "MALFORMED_JSON",
        "HEADER_INVALID",
        "IDEMPOTENCY_KEY_REQUIRED",
        "IDEMPOTENCY_KEY_INVALID",
        "PAYMENT_IDENTIFIER_MISMATCH",
        "PAYMENT_PROTOCOL_MISMATCH",
        "PAYMENT_MALFORMED",
        "DISCOVERY_KEY",
    },
    402: {"PAYMENT_REQUIRED", "PAYMENT_REJECTED"},
    404: {"NOT_FOUND", "ATTEMPT_UNKNOWN"},
    405: {"METHOD_NOT_ALLOWED"},
    408: {"REQUEST_TIMEOUT"},
    409: {"IDEMPOTENCY_CONFLICT", "DUPLICATE_PROOF", "PAYMENT_IN_PROGRESS", "PAYMENT_UNCERTAIN"},
    413: {"INPUT_LIMIT", "OUTPUT_LIMIT"},
    415: {"UNSUPPORTED_MEDIA_TYPE", "UNSUPPORTED_ENCODING"},
    422: {
        "INVALID_INPUT",
        "COMPLEXITY_LIMIT",
        "UNSAFE_KEY",
        "INVALID_NUMBER",
        "INVALID_UNICODE",
        "DUPLICATE_FIELD",
        "DUPLICATE_ID",
        "UNJUDGED_DOCUMENT",
        "DOCUMENT_MISSING",
        "ACCESS_REVOKED",
        "CORPUS_CHANGED",
        "REFERENCE_VERSION_MISMATCH",
        "usable-labels",
        "score-bounds",
    },
    429: {"RATE_LIMITED"},
    500: {"INTERNAL"},
    503: {"OVERLOADED", "PAYMENT_UNAVAILABLE", "STATE_UNAVAILABLE"},
}
CODES = sorted(code for codes in PUBLISHED.values() for code in codes)
CLASS_OF_CODE = {code: found for found in error_classes() for code in found.codes}


def drawn_tree() -> set[tuple[str, str, int]]:
    """Return (parent, class, status) as the module's docstring draws them."""
    drawn: set[tuple[str, str, int]] = set()
    above = "ServiceError"
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"(│  )?[├└]─ (\w+) +(\d{3})", line)
        if found:
            nested, name, status = found.groups()
            drawn.add((above if nested else "ServiceError", name, int(status)))
            above = above if nested else name
    return drawn


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    built = {(found.__mro__[1].__name__, found.__name__, found.status) for found in error_classes()}
    assert drawn_tree() == built
    assert len(built) == 13


def test_the_published_table_is_what_the_classes_raise() -> None:
    raised: dict[int, set[str]] = {}
    for found in error_classes():
        raised.setdefault(found.status, set()).update(found.codes)
    assert raised == PUBLISHED


def test_a_code_belongs_to_one_class_and_has_its_problem() -> None:
    assert sorted(code for found in error_classes() for code in found.codes) == CODES
    assert sorted(PROBLEMS) == CODES


@pytest.mark.parametrize("code", ErrorCode)
def test_an_operations_refusal_keeps_its_status_and_place(code: ErrorCode) -> None:
    violations = (Violation("/k", "is not positive"),)
    refused = refusal(OperationError(code, "It is refused.", "/k", violations))
    assert (refused.code, refused.status, refused.pointer) == (code.value, STATUS[code], "/k")
    assert code.value in PUBLISHED[refused.status]
    assert refused.violations == violations


NEVER_SENT = ("DUPLICATE_PROOF", "key-authorization")
"""Said of a payment that was not sent, and only while none is under way or made under the key: test_decide.py."""

MAY_FOLLOW_A_PAYMENT = [
    pytest.param(problem.next_step, id=f"{code} {cause or ''}".strip())
    for code in sorted(PUBLISHED[409] | {"INTERNAL", "STATE_UNAVAILABLE"})
    for cause, problem in rows_of(code)
    if (code, cause) != NEVER_SENT
]


@pytest.mark.parametrize("advice", MAY_FOLLOW_A_PAYMENT)
def test_no_answer_that_may_follow_a_payment_advises_paying_again(advice: str) -> None:
    for clause in re.split(r"[.;:]", advice):
        if re.search(r"pay again|sign another|new payment|new challenge|new credential", clause):
            assert re.search(r"\b(?:not|never|no)\b", clause, re.IGNORECASE), clause
    assert not re.search(r"answer (?:a|the) (?:new )?challenge|fresh|new key", advice)
    assert re.search("GET /v1/attempts|identical request|[Ss]top|ask the operator|The operator can", advice)


def test_a_cause_has_its_own_words_and_any_other_those_of_the_code() -> None:
    for code, causes in CAUSES.items():
        for cause, problem in causes.items():
            assert problem_of(code, cause) is problem
            assert CLASS_OF_CODE[code](code, "It is refused.", cause=cause).problem("r")["nextStep"] == (
                problem.next_step
            )
    assert problem_of("PAYMENT_UNAVAILABLE", "none of these") is PROBLEMS["PAYMENT_UNAVAILABLE"]


def test_on_a_free_route_the_words_about_keys_and_charging_are_left_out() -> None:
    for code, problem in PROBLEMS.items():
        assert CLASS_OF_CODE[code](code, "It is refused.").problem("r", paid=False)["nextStep"] == problem.advice


def test_retryable_speaks_of_the_identical_request_alone() -> None:
    assert {code for code, problem in PROBLEMS.items() if problem.retryable} == {
        "REQUEST_TIMEOUT",
        "PAYMENT_IN_PROGRESS",
        "RATE_LIMITED",
        "OVERLOADED",
        "PAYMENT_UNAVAILABLE",
        "STATE_UNAVAILABLE",
    }


def test_an_uncertain_payment_is_a_conflict_and_never_a_challenge() -> None:
    assert issubclass(PaymentUncertain, AttemptConflict)
    assert not issubclass(PaymentUncertain, PaymentRequired)


def test_a_problem_has_the_published_members_in_their_order() -> None:
    whole = InputRejected(
        "INVALID_INPUT",
        "It breaks the schema.",
        pointer="/queries/0",
        violations=(Violation("/queries/0", "is empty"),),
        cause="schema",
        retry_after=3,
    )
    document = whole.problem("of-this-request")
    assert list(document) == [
        "type",
        "title",
        "status",
        "detail",
        "code",
        "pointer",
        "violations",
        "cause",
        "retryable",
        "retryAfter",
        "nextStep",
        "requestId",
    ]
    assert document["status"] == 422
    assert document["violations"] == [{"pointer": "/queries/0", "detail": "is empty"}]
    assert (document["cause"], document["retryAfter"], document["requestId"]) == ("schema", 3, "of-this-request")


@pytest.mark.parametrize("code", CODES)
def test_what_is_not_known_is_left_out_but_for_the_members_that_always_stand(code: str) -> None:
    document = CLASS_OF_CODE[code](code, "It is refused.").problem("r")
    assert list(document) == [
        "type",
        "title",
        "status",
        "detail",
        "code",
        "retryable",
        "retryAfter",
        "nextStep",
        "requestId",
    ]
    assert document["retryAfter"] is None
    assert code in str(document["type"])


def test_a_challenges_members_stand_beside_the_problems_own() -> None:
    error = PaymentRequired("PAYMENT_REQUIRED", "Pay.", members={"x402Version": 2, "type": "of the protocol"})
    document = error.problem("r")
    assert document["x402Version"] == 2
    assert document["type"] == "of the protocol"
    assert document["code"] == "PAYMENT_REQUIRED"


def test_two_errors_share_no_headers() -> None:
    shared = {"allow": "POST"}
    first, second = (busy(shared) for _ in range(2))
    first.headers["connection"] = "close"
    assert second.headers == shared == {"allow": "POST"}


def busy(headers: dict[str, str]) -> ServiceError:
    return Unavailable("OVERLOADED", "Busy.", headers=headers)
