"""The wallet that signs in the hostile tests; it holds nothing."""

from typing import Final

from ranking_evaluate.sandbox.funded import Wallet
from tests.hostile.service import PAYER

WALLET: Final = Wallet("0x" + "42" * 32, PAYER.address)
