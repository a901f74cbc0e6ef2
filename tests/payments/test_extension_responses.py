"""What a facilitator says of extensions is logged and counted by status; no sale depends on it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from ranking_evaluate.payments.extension_responses import note
from ranking_evaluate.telemetry.metrics import REGISTRY


def header(document: object) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def counted(extension: str, status: str) -> float:
    labels = {"extension": extension, "status": status}
    return REGISTRY.get_sample_value("ranking_evaluate_extension_responses_total", labels) or 0.0


@pytest.fixture
def told() -> Iterator[list[Any]]:
    """The lines that are logged."""
    with capture_logs() as lines:
        yield lines


@pytest.mark.parametrize("status", ["success", "processing", "rejected"])
def test_each_status_is_counted_and_logged(status: str, told: list[Any]) -> None:
    before = counted("bazaar", status)
    note(header({"bazaar": {"status": status}}), "/settle")
    assert counted("bazaar", status) == before + 1
    [line] = told
    assert (line["event"], line["extension"], line["status"], line["call"]) == (
        "extension response",
        "bazaar",
        status,
        "/settle",
    )
    assert (line["log_level"] == "warning") is (status == "rejected")


def test_why_it_was_rejected_is_logged(told: list[Any]) -> None:
    """https://github.com/x402-foundation/x402/issues/2623"""
    said = {"status": "rejected", "rejectedReason": "description is over 500 characters", "code": "invalid_schema"}
    note(header({"bazaar": said}), "/verify")
    [line] = told
    assert (line["reason"], line["code"]) == ("description is over 500 characters", "invalid_schema")


def test_a_status_of_its_own_is_counted_as_other(told: list[Any]) -> None:
    before = counted("bazaar", "other")
    for status in ("partially landed", 7, None, "x" * 500):
        note(header({"bazaar": {"status": status}}), "/settle")
    assert counted("bazaar", "other") == before + 4
    assert told[0]["status"] == "partially landed"


def test_what_could_be_a_part_of_a_payment_is_not_logged(told: list[Any]) -> None:
    note(header({"bazaar": {"status": "rejected", "reason": "bad signature 0x" + "ab" * 65}}), "/settle")
    assert told[0]["reason"] is None
    assert "abab" not in str(told)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "%%%",
        "näin",
        header([]),
        header("bazaar"),
        header({"bazaar": "success"}),
        header({"other": {"status": "success"}}),
        base64.b64encode(b'{"bazaar":{"status":"success"},"bazaar":{}}').decode(),
        base64.b64encode(b"[" * 9_000).decode(),
        base64.b64encode(b"\xff").decode(),
    ],
)
def test_a_header_that_cannot_be_read_says_nothing(value: str | None, told: list[Any]) -> None:
    note(value, "/settle")
    assert told == []
