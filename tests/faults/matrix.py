"""The fault matrix: for each way in which a provider can fail, what a purchase and every resend of it are answered.

`test_matrix.py` and `test_matrix_mpp.py` try each cell; `docs/faults.md` is written from the same cells:

    python -m tests.faults.matrix
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.facilitator import Fault
from tests.faults.real_matrix import REAL, SDKS
from tests.faults.tempo_proxy import Fault as TempoFault
from tests.faults.told import (
    CONFLICT,
    IN_PROGRESS,
    MALFORMED,
    REJECTED,
    REQUIRED,
    SOLD,
    UNAVAILABLE,
    UNKNOWN,
    Told,
)

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "faults.md"


@dataclass(frozen=True, slots=True)
class Row:
    """What a purchase is answered under a fault, and then, the fault being gone, each further request under its key.

    Attributes:
        first: The answer of the purchase itself.
        state: What its key is in afterwards; None when nothing is recorded.
        identical: The answer of the identical resend.
        fresh: That of the same request with another good credential.
        none: That of the same request without a credential.
        malformed: That of the same request with a credential that cannot be read.
        calls: Settle calls of the first request that reach the provider.
        moves: Payments that it makes.
    """

    first: Told
    state: str | None
    identical: Told
    fresh: Told
    none: Told
    malformed: Told
    calls: int
    moves: int

    @property
    def columns(self) -> dict[str, Told]:
        """The further requests, each with its answer."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS: Final = ("identical", "fresh", "none", "malformed")


def _x402(fault: Fault) -> Row:
    if fault in {Fault.NONE, Fault.LATE}:
        return Row(SOLD, "settled", SOLD, CONFLICT, CONFLICT, MALFORMED, 1, 1)
    if fault in {Fault.REFUSED, Fault.REFUSED_400, Fault.REFUSED_BARE}:
        return Row(REJECTED, "failed", REJECTED, SOLD, REQUIRED, MALFORMED, 1, 0)
    if fault is Fault.VERIFY_REFUSED:
        return Row(REJECTED, None, SOLD, SOLD, REQUIRED, MALFORMED, 0, 0)
    if fault is Fault.VERIFY_NONCE_USED:
        return Row(UNKNOWN, "uncertain", UNKNOWN, UNKNOWN, UNKNOWN, MALFORMED, 0, 0)
    if fault.at_verify or fault is Fault.GONE:
        return Row(UNAVAILABLE, None, SOLD, SOLD, REQUIRED, MALFORMED, 0, 0)
    return Row(UNKNOWN, "uncertain", UNKNOWN, UNKNOWN, UNKNOWN, MALFORMED, 1, int(fault.moves))


X402: Final = {fault: _x402(fault) for fault in Fault}

_PAID: Final = Row(SOLD, "settled", SOLD, CONFLICT, CONFLICT, CONFLICT, 1, 1)
_NOT_PAID: Final = Row(UNAVAILABLE, None, SOLD, SOLD, REQUIRED, REJECTED, 0, 0)
_HIDDEN: Final = Row(UNKNOWN, "uncertain", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 1, 1)
_DROPPED: Final = Row(UNKNOWN, "uncertain", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 1, 0)

MPP_PAYERS: Final = ("an account's own key", "an access key for the first time, with its authorization")

MPP: Final[dict[TempoFault, tuple[str, Row]]] = {
    TempoFault.NONE: ("executes and says so", _PAID),
    TempoFault.REPLY_LOST: ("executes, then breaks the connection; the receipt can be found", _PAID),
    TempoFault.REPLY_LATE: ("executes, answers late and then not at all; the receipt can be found", _PAID),
    TempoFault.ERROR_AFTER: ("executes, then reports an internal error; the receipt can be found", _PAID),
    TempoFault.ALREADY_KNOWN: ("executes, then says that it knew the transaction; the receipt can be found", _PAID),
    TempoFault.RECEIPT_HIDDEN: ("executes and says so, and finds no receipt when it is asked again", _PAID),
    TempoFault.NOT_JSON: ("executes, then a gateway answers with a page", _HIDDEN),
    TempoFault.REPLY_LOST_RECEIPT_HIDDEN: ("executes, then breaks the connection, and finds no receipt", _HIDDEN),
    TempoFault.REPLY_LATE_RECEIPT_HIDDEN: ("executes, answers later than anybody waits, and finds no receipt", _HIDDEN),
    TempoFault.ERROR_AFTER_RECEIPT_HIDDEN: ("executes, then reports an internal error, and finds no receipt", _HIDDEN),
    TempoFault.OTHER_RECEIPT: ("executes, then answers with the receipt of another transaction", _HIDDEN),
    TempoFault.REVERTED: ("executes and says so, and calls it reverted when it is asked again", _PAID),
    TempoFault.SENT_REVERTED: ("executes, then says that the transaction was reverted", _HIDDEN),
    TempoFault.REFUSED_BY_NODE: ("does not execute, and refuses for a reason that proves nothing", _DROPPED),
    TempoFault.DROPPED: ("does not execute, and breaks the connection", _DROPPED),
    TempoFault.GONE: ("accepts no connection once it has verified", _NOT_PAID),
    TempoFault.DOWN: ("answers nothing at all", _NOT_PAID),
    TempoFault.BUSY: ("refuses every question for now", _NOT_PAID),
    TempoFault.STRANGE: ("answers every question with what it cannot mean", _NOT_PAID),
    TempoFault.OTHER_CHAIN: ("executes, and names another chain when it is asked which one it is", _PAID),
}
"""What holds for whoever pays, of `MPP_PAYERS`.

VERIFY_HELD and SEND_HELD are no faults but instruments: `test_mpp_faults.py` holds a purchase with them."""

IN_FLIGHT: Final = {
    Fault.VERIFY_HANG: Row(UNAVAILABLE, "reserved", IN_PROGRESS, CONFLICT, IN_PROGRESS, MALFORMED, 0, 0),
    Fault.HANG_BEFORE: Row(UNKNOWN, "settling", IN_PROGRESS, CONFLICT, IN_PROGRESS, MALFORMED, 1, 0),
    Fault.HANG_AFTER: Row(UNKNOWN, "settling", IN_PROGRESS, CONFLICT, IN_PROGRESS, MALFORMED, 1, 1),
    Fault.SLOW_DRIP: Row(UNKNOWN, "settling", IN_PROGRESS, CONFLICT, IN_PROGRESS, MALFORMED, 1, 1),
}
"""What further requests are answered while the first one waits for an x402 facilitator; `state` is its state then.

MPP has the same table in `test_mpp_faults.py`, for each state and every kind of credential.
"""

HEAD: Final = """\
# What every fault costs: nothing twice, nothing lost

Each row is one way in which a payment provider fails, each cell a test. A purchase is made while the fault is there;
then the fault is gone, and one further request is sent under the same key, each kind under a key of its own:

- **identical**: the same body and credential again, as a client does that lost its answer;
- **fresh**: the same body with another good credential, as a client does that signs again;
- **none**: the same body without a credential;
- **malformed**: the same body with a credential that cannot be read.

*Calls* counts the settle calls (x402) or transactions (MPP) of the first request that reach the provider, *payments*
the ones that it makes. Whatever is sent afterwards, no key is paid for twice: where the first request paid or may have
paid, the further ones pay nothing, and where it did not, the one that is answered 200 pays once. `409
PAYMENT_UNCERTAIN` stays until an operator has looked at the chain (`ranking-evaluate attempts`); it never becomes a 402
by itself, since automatic clients sign again at a 402.

This page is written by `python -m tests.faults.matrix` from the cells that `tests/faults/test_matrix.py` (x402, against
a facilitator that does each of these things), `tests/judges/test_facilitators.py` (x402, real facilitators) and
`tests/faults/test_matrix_mpp.py` (MPP, a real Tempo chain behind a proxy that does them) try one by one; a test fails
when it is stale.
"""

REAL_HEAD: Final = f"""
## x402: real facilitators on a real chain, when ...

The same service against two facilitators that nobody here wrote, on a local chain: one out of the
{SDKS["python"]}, and one out of the
{SDKS["typescript"]}. The answers are the same with both; their reasons are
not. The further requests are sent under the same key, one after the other: first without a credential, then the
identical one, then one with another good credential. *Payments* counts the ones that reached us before those.

"""

TAIL: Final = """\
## Crashes, replicas and operators

`scripts/trials` sells over x402 and kills the service with SIGKILL while such faults are at work: at random moments, at
every named point of the walk (before and after RESERVE, the verification, SUBMIT, the settle call and the record,
before and within the answer, before and after each COMMIT of the embedded store), and from the provider's side once the
settle call has arrived or the money has moved. It starts the service again and holds every answer, every settle call,
every movement of money and the database's own journal of its rows against the invariants in
`tests/faults/invariants.py`. The provider of the trials moves money as often as it is told to, so that nothing but the
service stands between a caller and a second payment. With `--store postgres` two replicas share a database that loses
its power now and then. Over MPP `tests/faults/test_crash_points.py` kills the service at each of these points of a
purchase on a real Tempo chain.

`tests/faults/sabotage.py` lists broken builds, each of which must be caught:

"""


def page(sabotages: tuple[str, ...]) -> str:
    """Return the text of docs/faults.md."""
    text = HEAD + "\n## x402: the facilitator ...\n\n" + _table({f.value: row for f, row in X402.items()})
    text += "\nWhile the first request still waits:\n\n" + _table({f.value: row for f, row in IN_FLIGHT.items()})
    text += REAL_HEAD + _real_table()
    for payer in MPP_PAYERS:
        text += f"\n## MPP, paid by {payer}: the node ...\n\n" + _table(dict(MPP.values()))
    return text + "\n" + TAIL + "".join(f"- {name}\n" for name in sabotages)


def _table(rows: dict[str, Row]) -> str:
    heads = ("fault", "answer", "state", *COLUMNS, "calls", "payments")
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, row in rows.items():
        answers = [_words(told) for told in (row.first, *row.columns.values())]
        cells = [name, answers[0], row.state or "none", *answers[1:], str(row.calls), str(row.moves)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _real_table() -> str:
    heads = ("fault", "Python", "TypeScript", "answer", "state", "none", "identical", "fresh", "payments")
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for fault, row in REAL.items():
        reasons = [f"`{row.codes[sdk]}`" if row.codes[sdk] else "-" for sdk in SDKS]
        further = [_words(told) for told in (row.none, row.identical, row.fresh)]
        cells = [fault.value, *reasons, _words(row.first), row.state or "none", *further, str(row.moves)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _words(told: Told) -> str:
    status, code = told
    return f"{status} {code}" if code else str(status)


def main() -> None:
    """Write the page."""
    from tests.faults.sabotage import SABOTAGES

    PAGE.write_text(page(tuple(SABOTAGES)), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
