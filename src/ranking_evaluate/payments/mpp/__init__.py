"""Payments over MPP: Tempo charges in pull mode; this package is the service's only importer of the mpp SDK."""

from ranking_evaluate.payments.config import MppConfig
from ranking_evaluate.payments.mpp.protocol import MppProtocol

__all__ = ["MppConfig", "MppProtocol"]
