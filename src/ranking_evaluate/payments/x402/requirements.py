"""What is asked for a price: the payment requirements of every network, by the settings alone."""

from __future__ import annotations

from typing import Any

from x402 import ResourceConfig, x402ResourceServer
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.schemas import (
    AssetAmount,
    PaymentRequirements,
    SettleResponse,
    SupportedKind,
    SupportedResponse,
    VerifyResponse,
)

from ranking_evaluate.contract.wire import X402_VERSION
from ranking_evaluate.payments.config import X402Config, X402Network
from ranking_evaluate.payments.x402.wire import SCHEME


class Requirements:
    """The entries of `accepts`, in the order of the networks.

    Attributes:
        server: The SDK's resource server, which makes challenges of them; it calls nobody.
    """

    def __init__(self, config: X402Config) -> None:
        self._config = config
        networks = [network.name for network in config.networks]
        self.server = x402ResourceServer(_Wanted(networks))
        for network in networks:
            scheme: Any = ExactEvmServerScheme()  # type: ignore[no-untyped-call]  # The SDK's scheme is not annotated.
            self.server.register(network, scheme)
        self.server.initialize()
        self._kept: dict[int, tuple[PaymentRequirements, ...]] = {}

    def of(self, amount: int) -> tuple[PaymentRequirements, ...]:
        """Return the requirements at a price, made once for each and never changed: operations have few prices."""
        if amount not in self._kept:
            self._kept[amount] = tuple(self._on(network, amount) for network in self._config.networks)
        return self._kept[amount]

    def accepted(self, amount: int, accepted: PaymentRequirements) -> PaymentRequirements | None:
        """Return the requirements on the network that a payer accepted; None where payments on it are not taken."""
        return next((each for each in self.of(amount) if each.network == accepted.network), None)

    def _on(self, network: X402Network, amount: int) -> PaymentRequirements:
        asset, name, version = network.token
        [requirements] = self.server.build_payment_requirements(
            ResourceConfig(
                scheme=SCHEME,
                network=network.name,
                pay_to=self._config.pay_to,
                # Always an AssetAmount: a bare number would be read as dollars.
                price=AssetAmount(amount=str(amount), asset=asset, extra={"name": name, "version": version}),
                max_timeout_seconds=self._config.max_timeout,
            )
        )
        return requirements


class _Wanted:
    """A facilitator as the SDK's server wants one, which supports what we ask for; the real one is asked elsewhere."""

    def __init__(self, networks: list[str]) -> None:
        self._networks = networks

    def get_supported(self) -> SupportedResponse:
        kinds = [SupportedKind(x402_version=X402_VERSION, scheme=SCHEME, network=network) for network in self._networks]
        return SupportedResponse(kinds=kinds)

    async def verify(self, payload: Any, requirements: Any) -> VerifyResponse:  # noqa: ANN401 - the SDK's signature.
        raise NotImplementedError("verification goes through the strict facilitator client")

    async def settle(self, payload: Any, requirements: Any) -> SettleResponse:  # noqa: ANN401 - the SDK's signature.
        raise NotImplementedError("settlement goes through the strict facilitator client")
