"""The x402 protocol: terms, verification and settlement of EIP-3009 authorizations, scheme exact, version 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError
from x402 import ResourceConfig, x402ResourceServer
from x402.http.utils import encode_payment_response_header
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.schemas import (
    AssetAmount,
    PaymentRequirements,
    SettleResponse,
    SupportedResponse,
    VerifyResponse,
)

from ranking_evaluate.contract.wire import X402_VERSION
from ranking_evaluate.payments import cdp
from ranking_evaluate.payments.config import TESTNETS, X402Config
from ranking_evaluate.payments.connecting import Connecting, Obstacle
from ranking_evaluate.payments.evm import AuthorizationLookup
from ranking_evaluate.payments.facilitator import Facilitator, FacilitatorError
from ranking_evaluate.payments.protocol import (
    Announcement,
    Challenge,
    Credential,
    Evidence,
    Offer,
    PaymentFacts,
    Readiness,
    Refused,
    Settled,
    Settlement,
    Terms,
    Unknown,
    Unreadable,
    Verification,
)
from ranking_evaluate.payments.x402.challenge import Challenges
from ranking_evaluate.payments.x402.credential import content_of, objection, read_credential
from ranking_evaluate.payments.x402.wire import SCHEME, WIRE


class X402Protocol:
    """Payments over x402."""

    wire = WIRE

    def __init__(self, config: X402Config) -> None:
        self._config = config
        self._facilitator = Facilitator(
            config.facilitator_url,
            config.facilitator_authorization,
            config.verify_timeout,
            config.settle_timeout,
            None if config.cdp_key is None else cdp.signer(config.cdp_key),
        )
        self._server: x402ResourceServer | None = None
        self._connecting = Connecting("the facilitator", self._connect)
        self._challenges = Challenges()
        self._requirements: dict[int, PaymentRequirements] = {}

    async def start(self) -> None:
        """Ask the facilitator what it supports, and go on asking in the background while it does not answer."""
        await self._connecting.start()

    async def close(self) -> None:
        """Stop asking and close the connections."""
        await self._connecting.stop()
        await self._facilitator.close()

    async def _connect(self) -> Obstacle | None:
        """Ask the facilitator once; return why it cannot be used, or None."""
        try:
            supported = SupportedResponse.model_validate(await self._facilitator.supported())
            _check_kinds(supported, self._config.network)
            scheme: Any = ExactEvmServerScheme()  # type: ignore[no-untyped-call]  # The SDK's scheme is not annotated.
            server = x402ResourceServer(_Supported(supported)).register(self._config.network, scheme)
            server.initialize()
            self._requirements_of(server, amount=1)
        except FacilitatorError as error:
            return Obstacle(error.words, str(error))
        except ValidationError as error:
            return Obstacle("the facilitator's /supported document is not of the x402 form", type(error).__name__)
        except Exception as error:  # noqa: BLE001 - whatever the SDK finds wrong with it, nothing can be taken.
            words = f"the facilitator cannot serve {SCHEME} on {self._config.network}"
            return Obstacle(words, type(error).__name__)
        self._server = server
        return None

    def terms(self) -> Terms:
        """Return what is taken."""
        config = self._config
        return Terms(config.network, config.asset, config.pay_to, config.network in TESTNETS)

    def ready(self) -> Readiness:
        """Return whether the facilitator has said that it serves our network."""
        return self._connecting.ready()

    def announce(self, amount: int) -> Announcement:
        """Return the terms of a price by the settings alone: documents stay up while the facilitator is down."""
        config = self._config
        accepted = {
            "scheme": SCHEME,
            "network": config.network,
            "asset": config.asset,
            "amount": str(amount),
            "payTo": config.pay_to,
            "maxTimeoutSeconds": config.max_timeout,
            "extra": {"name": config.asset_name, "version": config.asset_version},
        }
        return Announcement(
            accepts=(accepted,),
            offer={
                "method": "x402",
                "intent": SCHEME,
                "amount": str(amount),
                "currency": config.asset,
                "network": config.network,
            },
            protocol={"x402": {"scheme": SCHEME, "network": config.network, "asset": config.asset}},
        )

    async def challenge(self, offer: Offer, reason: str | None = None) -> Challenge:
        """Return the PaymentRequired object as header and as members, equal to each other."""
        server = self._ready_server()
        return await self._challenges.make(server, self._required(server, offer.amount), offer, reason)

    def read_credential(self, headers: Mapping[str, str], offer: Offer) -> Credential | Unreadable | None:
        """Return the credential of the PAYMENT-SIGNATURE header, parsed only."""
        found = WIRE.credentials(headers)
        return read_credential(found[0], offer.key) if found else None

    def check_terms(self, credential: Credential, offer: Offer, now: float) -> str | None:
        """Return why the credential does not meet our terms, by its text alone; the signature is left to the chain."""
        required = None if self._server is None else self._required(self._server, offer.amount)
        return objection(content_of(credential), required, self._config, now)

    async def verify(self, credential: Credential, offer: Offer) -> Verification:
        """Ask the facilitator's /verify."""
        return await self._facilitator.verify(self._call(credential, offer), payer=credential.facts.payer or "")

    async def settle(self, credential: Credential, offer: Offer) -> Settlement:
        """Call the facilitator's /settle, once, past the SDK's retrying wrapper."""
        facts = credential.facts
        network, payer = self._config.network, facts.payer or ""
        outcome = await self._facilitator.settle(self._call(credential, offer), network=network, payer=payer)
        match outcome:
            case Settled(transaction=transaction):
                return Settled(_receipt(network, transaction, payer), transaction, payer)
            case Refused(reason=reason, code=code):
                response = SettleResponse(
                    success=False, error_reason=reason, payer=payer, transaction="", network=network
                )
                return Refused(reason, encode_payment_response_header(response), code)
            case _:
                return outcome

    async def inspect(self, facts: PaymentFacts) -> Evidence:
        """Ask the chain for the authorization's state and its AuthorizationUsed log."""
        if self._config.rpc_url is None:
            return Unknown("X402_RPC_URL is not set")
        return await AuthorizationLookup(self._config.rpc_url).look(facts)

    async def reconciled_receipt(self, facts: PaymentFacts, transaction: str, key: str) -> str:
        """Return a receipt header like the facilitator's, marked as reconciled."""
        return _receipt(facts.network, transaction, facts.payer or "", reconciled=True)

    def _ready_server(self) -> x402ResourceServer:
        if self._server is None:
            raise RuntimeError("x402 is asked for terms before it is ready")
        return self._server

    def _required(self, server: x402ResourceServer, amount: int) -> PaymentRequirements:
        """Return the requirements at a price, made once for each and never changed: operations have few prices."""
        if amount not in self._requirements:
            self._requirements[amount] = self._requirements_of(server, amount)
        return self._requirements[amount]

    def _requirements_of(self, server: x402ResourceServer, amount: int) -> PaymentRequirements:
        config = self._config
        domain = {"name": config.asset_name, "version": config.asset_version}
        # Always an AssetAmount: a bare number would be read as dollars.
        price = AssetAmount(amount=str(amount), asset=config.asset, extra=domain)
        [requirements] = server.build_payment_requirements(
            ResourceConfig(
                scheme=SCHEME,
                network=config.network,
                pay_to=config.pay_to,
                price=price,
                max_timeout_seconds=config.max_timeout,
            )
        )
        return requirements

    def _call(self, credential: Credential, offer: Offer) -> bytes:
        """Return the body of a /verify or /settle call: the credential against our own requirements."""
        requirements = self._required(self._ready_server(), offer.amount)
        return orjson.dumps(
            {
                "x402Version": X402_VERSION,
                "paymentPayload": content_of(credential).payload.model_dump(by_alias=True, exclude_none=True),
                "paymentRequirements": requirements.model_dump(by_alias=True, exclude_none=True),
            }
        )


class _Supported:
    """What the facilitator said it supports, in the form in which the SDK asks for it; it settles nothing."""

    def __init__(self, supported: SupportedResponse) -> None:
        self._supported = supported

    def get_supported(self) -> SupportedResponse:
        return self._supported

    async def verify(self, payload: Any, requirements: Any) -> VerifyResponse:  # noqa: ANN401 - the SDK's signature.
        raise NotImplementedError("verification goes through the strict facilitator client")

    async def settle(self, payload: Any, requirements: Any) -> SettleResponse:  # noqa: ANN401 - the SDK's signature.
        raise NotImplementedError("settlement goes through the strict facilitator client")


def _check_kinds(supported: SupportedResponse, network: str) -> None:
    """Raise unless the facilitator serves our payments; the SDK is content with one that does in version 1 alone."""
    served = {kind.network for kind in supported.kinds if (kind.x402_version, kind.scheme) == (X402_VERSION, SCHEME)}
    if served.isdisjoint({network, f"{network.split(':')[0]}:*"}):
        raise FacilitatorError(f"the facilitator does not serve {SCHEME} on {network} in version {X402_VERSION}")


def _receipt(network: str, transaction: str, payer: str, *, reconciled: bool = False) -> str:
    extra = {"reconciled": True} if reconciled else None
    response = SettleResponse(success=True, transaction=transaction, network=network, payer=payer, extra=extra)
    return encode_payment_response_header(response)
