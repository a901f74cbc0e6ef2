"""What serve needs and a laptop lacks: local chains, tokens, a facilitator, funded wallets, and the service on top."""

from ranking_evaluate.sandbox.funded import FundedProtocol, Wallet
from ranking_evaluate.sandbox.processes import MissingError, SandboxError
from ranking_evaluate.sandbox.sandbox import Sandbox

__all__ = ["FundedProtocol", "MissingError", "Sandbox", "SandboxError", "Wallet"]
