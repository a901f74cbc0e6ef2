"""What a purchase comes to when facilitators that nobody here wrote meet these faults on a real chain.

`tests/judges/test_facilitators.py` tries each row with a facilitator out of the Python SDK and with one out of the
TypeScript SDK; `docs/faults.md` is written from the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.faults.told import CONFLICT, REJECTED, REQUIRED, SOLD, UNKNOWN, Told

SDKS: Final = {"python": "Python SDK (x402 on PyPI)", "typescript": "TypeScript SDK (@x402/core and @x402/evm on npm)"}


class RealFault(Enum):
    """What happens to a purchase between the payer's signature and the block."""

    NONE = "nothing goes wrong"
    WRONG_SIGNATURE = "the signature is another wallet's"
    WRONG_SIGNATURE_AT_SETTLE = "the signature is altered between verification and settlement"
    POOR = "the wallet holds less than the price"
    DRAINED = "the wallet is emptied between verification and settlement"
    USED_BEFORE = "somebody else submits the authorization before the verification"
    USED_BETWEEN = "somebody else submits the authorization between verification and settlement"
    REVERTED = "the wallet is emptied by a transaction that overtakes the settlement's in the block"
    PENDING = "the block comes after the facilitator has stopped waiting for it"
    SLOW = "the block takes a second"
    TOO_SLOW = "the facilitator's node holds the transaction until our deadline has passed"
    KILLED_BEFORE = "the facilitator is killed before its transaction is sent"
    KILLED_AFTER = "the facilitator is killed after its transaction was sent"
    ANSWER_LOST = "the facilitator's node takes the transaction and breaks the connection"
    GAS_EMPTY = "the facilitator's account has no gas"
    GAS_IN_GETH_S_WORDS = "the facilitator's account has too little gas, in the words of geth"


@dataclass(frozen=True, slots=True)
class RealRow:
    """What the purchase is answered, and then, the fault being gone, three further requests, one after the other.

    Attributes:
        first: The answer of the purchase itself.
        state: What its key is in afterwards; None when nothing is recorded.
        none: The answer of the same request without a credential, sent first.
        identical: That of the identical resend.
        fresh: That of the same request with another good credential, sent last.
        moves: Payments that reach us until then, whoever submits them.
        codes: The reason for which the facilitator refused, for each SDK; None where it settled or did not answer.
    """

    first: Told
    state: str | None
    none: Told
    identical: Told
    fresh: Told
    moves: int
    codes: dict[str, str | None]


def _same(code: str | None) -> dict[str, str | None]:
    return dict.fromkeys(SDKS, code)


def _sold() -> RealRow:
    return RealRow(SOLD, "settled", CONFLICT, SOLD, CONFLICT, 1, _same(None))


def _unknown(moves: int, codes: dict[str, str | None]) -> RealRow:
    return RealRow(UNKNOWN, "uncertain", UNKNOWN, UNKNOWN, UNKNOWN, moves, codes)


_EXACT: Final = "invalid_exact_evm_"
_SIGNATURE: Final[dict[str, str | None]] = {
    "python": f"{_EXACT}payload_signature",
    "typescript": f"{_EXACT}signature",
}
_FAILED: Final[dict[str, str | None]] = {
    "python": "transaction_failed",
    "typescript": f"{_EXACT}transaction_failed",
}
_POOR: Final = _same(f"{_EXACT}insufficient_balance")
_USED: Final = _same(f"{_EXACT}nonce_already_used")

REAL: Final[dict[RealFault, RealRow]] = {
    RealFault.NONE: _sold(),
    RealFault.SLOW: _sold(),
    RealFault.WRONG_SIGNATURE: RealRow(REJECTED, None, REQUIRED, REJECTED, SOLD, 0, _SIGNATURE),
    RealFault.POOR: RealRow(REJECTED, None, REQUIRED, SOLD, CONFLICT, 0, _POOR),
    RealFault.WRONG_SIGNATURE_AT_SETTLE: RealRow(REJECTED, "failed", REQUIRED, REJECTED, SOLD, 0, _SIGNATURE),
    RealFault.DRAINED: _unknown(0, {**_FAILED, "typescript": f"{_EXACT}insufficient_balance"}),
    RealFault.USED_BEFORE: _unknown(1, _USED),
    RealFault.USED_BETWEEN: _unknown(1, {**_FAILED, "typescript": f"{_EXACT}nonce_already_used"}),
    RealFault.REVERTED: _unknown(0, _FAILED),
    RealFault.PENDING: _unknown(1, _same("settlement_pending")),
    RealFault.TOO_SLOW: _unknown(1, _same(None)),
    RealFault.KILLED_BEFORE: _unknown(0, _same(None)),
    RealFault.KILLED_AFTER: _unknown(1, _same(None)),
    RealFault.ANSWER_LOST: _unknown(1, _FAILED),
    RealFault.GAS_EMPTY: _unknown(0, _FAILED),
    RealFault.GAS_IN_GETH_S_WORDS: _unknown(0, {**_FAILED, "typescript": f"{_EXACT}insufficient_balance"}),
}
