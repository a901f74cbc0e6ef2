"""Signing payments: one module for each protocol, and one line here."""

from __future__ import annotations

from typing import Final

from ranking_evaluate.cli.payers import mpp, x402
from ranking_evaluate.cli.payers.payer import Payer

PAYERS: Final[dict[str, Payer]] = {payer.wire.name: payer for payer in (x402.PAYER, mpp.PAYER)}
"""Who pays over each protocol; `pay` offers these."""
