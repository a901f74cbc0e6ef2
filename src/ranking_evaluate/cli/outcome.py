"""What is known of a payment that was signed and whose answer did not come, in words for people."""

from __future__ import annotations

import json
import time
from typing import Final

from ranking_evaluate.cli.exchange import read_receipt
from ranking_evaluate.cli.payers.payer import NOT_CHARGED, UNCLEAR, PayError
from ranking_evaluate.cli.saved_credential import Record
from ranking_evaluate.core.visible import visible

WORDS_LENGTH: Final = 300
"""Characters of each word of a receipt or a challenge that are printed."""


def unknown(record: Record, trouble: str) -> PayError:
    """Return what to say where nobody says whether it was charged: only what never left was not, for certain.

    Args:
        record: The credential, and what became of it.
        trouble: What went wrong at last, in whole sentences.
    """
    if record.never_sent:
        return PayError(f"{trouble} The payment did not leave this machine, so nothing was charged.", NOT_CHARGED)
    saved = record.credential
    known = f"{trouble} Whether it was charged is not known: {saved.terms} was signed"
    if record.is_answered:
        known = f"{trouble} It was answered, so it was probably charged: {saved.terms} was signed"
    if record.sends:
        known += f" and sent {_times(record.sends)}"
    if record.unanswered:
        known += f", {record.unanswered} of them without an answer"
    known += f"; the receipt is {printed(record.receipt)}." if record.receipt else "."
    usable = (
        "It can no longer be used"
        if saved.is_dead(time.time())
        else f"Whoever has it can use it until {clock(saved.expires_at)}"
    )
    return PayError(
        f"{known} {usable}: look at the wallet's transfers before you pay for this again under any key. The same "
        f"command with --key {saved.key} sends the same credential again and cannot pay twice.",
        UNCLEAR,
    )


def printed(receipt: str) -> str:
    """Return a receipt header for people; what a server wrote is made visible and kept short."""
    content = read_receipt(receipt)
    return visible(json.dumps({str(name): value for name, value in content.items() if value}))[: 4 * WORDS_LENGTH]


def clock(at: float) -> str:
    """Return the time of an epoch second on this machine's clock, with its zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
