"""The x402 protocol: terms, verification and settlement of EIP-3009 authorizations, scheme exact, version 2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from pydantic import ValidationError
from x402.http.utils import encode_payment_response_header
from x402.schemas import PaymentRequirements, SettleResponse, SupportedResponse

from ranking_evaluate import telemetry
from ranking_evaluate.contract.wire import X402_VERSION
from ranking_evaluate.payments import cdp
from ranking_evaluate.payments.clock import FACILITATOR, LOOK_SECONDS, ClockWatch, Limits, ahead_of_chain
from ranking_evaluate.payments.config import TESTNETS, X402Config
from ranking_evaluate.payments.connecting import Connecting, Obstacle
from ranking_evaluate.payments.evm import AuthorizationLookup
from ranking_evaluate.payments.facilitator import Facilitator, FacilitatorError
from ranking_evaluate.payments.json_rpc import JsonRpc
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import (
    Announcement,
    Challenge,
    Credential,
    Evidence,
    Offer,
    PaymentFacts,
    Readiness,
    Refused,
    Rejected,
    Settled,
    Settlement,
    Spent,
    Terms,
    Unknown,
    Unreachable,
    Unreadable,
    Verification,
)
from ranking_evaluate.payments.reasons import MAY_FOLLOW_A_PAYMENT
from ranking_evaluate.payments.x402 import call
from ranking_evaluate.payments.x402.challenge import Challenges
from ranking_evaluate.payments.x402.credential import (
    MAX_SECONDS_BEYOND,
    MIN_SECONDS_LEFT,
    clock,
    content_of,
    objection,
    read_credential,
)
from ranking_evaluate.payments.x402.requirements import Requirements
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
            lambda ahead: self.clock.note(FACILITATOR, ahead),
        )
        # What `objection` makes of a payer whose clock is right.
        limits = Limits(behind=MAX_SECONDS_BEYOND, ahead=config.max_timeout - MIN_SECONDS_LEFT)
        chains = {each.name: partial(_ahead_of, each.rpc_url) for each in config.networks if each.rpc_url}
        self.clock = ClockWatch(WIRE.name, limits, {FACILITATOR: self._hear_of_facilitator, **chains})
        self._connecting = Connecting("the facilitator", self._connect)
        self._requirements = Requirements(config)
        self._challenges = Challenges()

    async def start(self) -> None:
        """Ask the facilitator what it supports, and go on asking in the background while it does not answer."""
        unseen = [network.name for network in self._config.networks if network.rpc_url is None]
        if unseen:
            # Whoever operates this should know it before a payment there is uncertain.
            telemetry.logger().warning(
                "X402_RPC_URL names no node of these networks: an operator decides about uncertain payments there",
                networks=unseen,
            )
        await self._connecting.start()
        self.clock.start()

    async def close(self) -> None:
        """Stop asking and close the connections."""
        await self.clock.stop()
        await self._connecting.stop()
        await self._facilitator.close()

    async def _hear_of_facilitator(self) -> None:
        """Have the facilitator answer, which tells its time in passing."""
        await self._facilitator.supported()

    async def _connect(self) -> Obstacle | None:
        """Ask the facilitator once; return why it cannot be used, or None."""
        try:
            supported = SupportedResponse.model_validate(await self._facilitator.supported())
            _check_kinds(supported, [network.name for network in self._config.networks])
        except FacilitatorError as error:
            return Obstacle(error.words, str(error))
        except ValidationError as error:
            return Obstacle("the facilitator's /supported document is not of the x402 form", type(error).__name__)
        return None

    def terms(self) -> tuple[Terms, ...]:
        """Return what is taken, in the order of the networks."""
        config = self._config
        return tuple(
            Terms(network.name, network.token.asset, config.pay_to, network.name in TESTNETS)
            for network in config.networks
        )

    def ready(self) -> Readiness:
        """Return whether the facilitator has said that it serves our network, and answers calls."""
        connected = self._connecting.ready()
        return self._facilitator.ready() if connected.ready else connected

    def announce(self, amount: int) -> Announcement:
        """Return the terms of a price by the settings alone: documents stay up while the facilitator is down."""
        required = self._requirements.of(amount)
        return Announcement(
            accepts=tuple(each.model_dump(by_alias=True, exclude_none=True) for each in required),
            offers=tuple(
                {
                    "method": "x402",
                    "intent": each.scheme,
                    "amount": each.amount,
                    "currency": each.asset,
                    "network": each.network,
                }
                for each in required
            ),
            protocols=tuple(
                {"x402": {"scheme": each.scheme, "network": each.network, "asset": each.asset}} for each in required
            ),
        )

    async def challenge(self, offer: Offer, reason: str | None = None) -> Challenge:
        """Return the PaymentRequired object as header and as members, equal to each other."""
        required = self._requirements.of(offer.amount)
        return await self._challenges.make(self._requirements.server, required, offer, reason)

    def read_credential(self, headers: Mapping[str, str], offer: Offer) -> Credential | Unreadable | None:
        """Return the credential of the PAYMENT-SIGNATURE header, parsed only."""
        found = WIRE.credentials(headers)
        return read_credential(found[0], offer.key) if found else None

    def check_terms(self, credential: Credential, offer: Offer, now: float) -> str | None:
        """Return why the credential does not meet our terms, by its text alone; the signature is left to the chain."""
        content = content_of(credential)
        required = self._requirements.accepted(offer.amount, content.payload.accepted)
        return objection(content, required, self._config, now)

    def remark(self, reason: str, now: float) -> str | None:
        """Return the time by our clock for a credential that was refused for its own times."""
        return clock(reason, self._config.max_timeout, now)

    async def verify(self, credential: Credential, offer: Offer) -> Verification:
        """Ask the facilitator's /verify, and the chain where a payment that was made would explain what it says."""
        body = await self._call(credential, offer)
        said = await self._facilitator.verify(body, payer=credential.facts.payer or "")
        rpc_url = self._rpc_url(self._accepted(credential, offer).network)
        if not isinstance(said, Rejected) or said.code not in MAY_FOLLOW_A_PAYMENT or rpc_url is None:
            return said
        match await AuthorizationLookup(rpc_url).is_used(credential.facts):
            case True:
                return Spent("the chain shows that the authorization was used already", said.code)
            case False:
                return said
            case None:
                words = "the chain cannot be asked whether the payment was made already"
                return Unreachable(f"the facilitator finds that {said.reason}, and {words}")

    async def settle(self, credential: Credential, offer: Offer) -> Settlement:
        """Call the facilitator's /settle, once, past the SDK's retrying wrapper."""
        network, payer = self._accepted(credential, offer).network, credential.facts.payer or ""
        outcome = await self._facilitator.settle(await self._call(credential, offer), network=network, payer=payer)
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

    def has_node(self, network: str) -> bool:
        """Return whether X402_RPC_URL names a node of the network."""
        return self._rpc_url(network) is not None

    async def holds(self, facts: PaymentFacts) -> int | None:
        """Return how much of the token the payer holds; None where no node tells."""
        rpc_url = self._rpc_url(facts.network)
        return None if rpc_url is None else await AuthorizationLookup(rpc_url).holds(facts)

    async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        """Ask the chain for the authorization's state and its AuthorizationUsed log."""
        network = self._config.on(facts.network)
        if network is None:
            return Unknown(f"X402_NETWORK does not name {facts.network}, on which the payment is")
        if network.rpc_url is None:
            return Unknown(f"X402_RPC_URL names no node of {facts.network}")
        return await AuthorizationLookup(network.rpc_url).look(facts, pace)

    async def reconciled_receipt(self, facts: PaymentFacts, transaction: str, key: str) -> str:
        """Return a receipt header like the facilitator's, marked as reconciled."""
        return _receipt(facts.network, transaction, facts.payer or "", reconciled=True)

    def _rpc_url(self, network: str) -> str | None:
        """Return the node of a network; None where none is configured, or payments on it are not taken."""
        configured = self._config.on(network)
        return None if configured is None else configured.rpc_url

    def _accepted(self, credential: Credential, offer: Offer) -> PaymentRequirements:
        """Return the requirements that a credential of ours accepts."""
        required = self._requirements.accepted(offer.amount, content_of(credential).payload.accepted)
        if required is None:
            raise ValueError("a credential that accepts none of our terms is to be paid with")
        return required

    async def _call(self, credential: Credential, offer: Offer) -> bytes:
        """Return the body of a /verify or /settle call: the credential against our own terms, and our own words."""
        challenge = await self.challenge(offer)
        return call.body(content_of(credential), self._accepted(credential, offer), challenge.members)


async def _ahead_of(rpc_url: str) -> float | None:
    """Return by how much our clock is ahead of the chain behind a node."""
    rpc = JsonRpc(rpc_url, LOOK_SECONDS)
    try:
        return await ahead_of_chain(rpc)
    finally:
        await rpc.close()


def _check_kinds(supported: SupportedResponse, networks: Iterable[str]) -> None:
    """Raise unless the facilitator serves our payments on every network; version 1 alone is not enough."""
    served = {kind.network for kind in supported.kinds if (kind.x402_version, kind.scheme) == (X402_VERSION, SCHEME)}
    missing = [network for network in networks if served.isdisjoint({network, f"{network.split(':')[0]}:*"})]
    if missing:
        where = " and ".join(missing)
        raise FacilitatorError(f"the facilitator does not serve {SCHEME} on {where} in version {X402_VERSION}")


def _receipt(network: str, transaction: str, payer: str, *, reconciled: bool = False) -> str:
    extra = {"reconciled": True} if reconciled else None
    response = SettleResponse(success=True, transaction=transaction, network=network, payer=payer, extra=extra)
    return encode_payment_response_header(response)
