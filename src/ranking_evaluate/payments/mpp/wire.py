"""MPP as callers see it."""

from __future__ import annotations

from typing import Final

from ranking_evaluate.contract.wire import Wire, shipped, shipped_clients
from ranking_evaluate.payments.protocol import AMOUNT_DECIMALS

METHOD: Final = "tempo"
INTENT: Final = "charge"

WIRE: Final = Wire(
    name="mpp",
    title="MPP",
    credential_header="Authorization",
    challenge_header="WWW-Authenticate",
    receipt_header="Payment-Receipt",
    # mppx sets it on every request.
    client_headers=("Accept-Payment",),
    scheme="Payment",
    leading_facts=(("supported", True),),
    facts=(("method", METHOD), ("intent", INTENT), ("sdk", "mppx"), ("tokenDecimals", AMOUNT_DECIMALS)),
    guide=shipped(__package__, "guide.md"),
    clients=shipped_clients(__package__, "pay_mpp.py", "pay_mpp.mjs"),
)
