"""The MPP protocol: validate, then broadcast, a Tempo charge through the official SDK's parts.

Not through its route handlers: those settle before the endpoint has run, and answer 402 after the money moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import httpx
from mpp import Challenge as IssuedChallenge
from mpp import Receipt
from mpp.errors import CredentialReplayedError, InternalPaymentError, PaymentError
from mpp.methods import Method
from mpp.methods.tempo import server as tempo
from mpp.methods.tempo.schemas import ChargeInput, ChargePayload
from mpp.server.http import PaymentRequired, Request
from mpp.server.mpp import Mpp
from mpp.store import MemoryStore
from pydantic import model_serializer

from ranking_evaluate.deadline import within
from ranking_evaluate.payments.clock import ClockWatch, Limits, ahead_of_chain
from ranking_evaluate.payments.config import TESTNETS, MppConfig
from ranking_evaluate.payments.connecting import Connecting, Obstacle
from ranking_evaluate.payments.json_rpc import MISREAD, JsonRpc, NodeError
from ranking_evaluate.payments.mpp import credential as credentials
from ranking_evaluate.payments.mpp import terms
from ranking_evaluate.payments.mpp.evidence import evidence_of
from ranking_evaluate.payments.mpp.rpc import Node
from ranking_evaluate.payments.mpp.settlement import PROBLEMS, classify, reason_of
from ranking_evaluate.payments.mpp.trial import Price, objection
from ranking_evaluate.payments.mpp.wire import INTENT, METHOD, WIRE
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import (
    AMOUNT_DECIMALS,
    Announcement,
    Challenge,
    Credential,
    Evidence,
    Offer,
    PaymentFacts,
    Readiness,
    Refused,
    Rejected,
    Settlement,
    Spent,
    Terms,
    Unknown,
    Unreachable,
    Unreadable,
    Verification,
    Verified,
)

CHALLENGE_HEADER: Final = WIRE.challenge_header.lower()

MIN_SECRET_BYTES: Final = 32

MARGIN_OF_SETTLE_TIMEOUT: Final = 0.1
"""The part of the settle deadline that the SDK does not get: it is to give up by itself and say how."""


CLOCK_SECONDS: Final = 20.0
"""How far off our clock may be: wallets sign for 25 s, of which `terms.MIN_SECONDS_LEFT` must be left by it.

A clock that is behind as much gives challenges out that have expired for their payers, where they last for 20 s.
"""


class _PullCharge(ChargeInput):
    """The SDK's charge, which says on the wire that only signed transactions are taken."""

    @model_serializer
    def _wire(self) -> dict[str, Any]:
        wire = super()._wire()
        details = {**wire.get("methodDetails", {}), "supportedModes": list(terms.SUPPORTED_MODES)}
        return {**wire, "methodDetails": details}


_CHARGE: Final = Method(name=METHOD, intent=INTENT, request_model=_PullCharge, payload_model=ChargePayload)


class MppProtocol:
    """Payments over MPP."""

    wire = WIRE

    def __init__(self, config: MppConfig) -> None:
        secrets = [secret for secret in (config.secret_key, config.previous_secret_key) if secret is not None]
        if any(len(secret.encode()) < MIN_SECRET_BYTES for secret in secrets):
            raise ValueError(f"a secret key of fewer than {MIN_SECRET_BYTES} bytes can be guessed")
        self._config = config
        self._node = Node(config.rpc_url, config.verify_timeout)
        transport = self._node.transport(config.verify_timeout)
        self._sdk_client = httpx.AsyncClient(transport=transport, trust_env=False)
        self._servers = {secret: self._open_server(secret, self._sdk_client) for secret in secrets}
        self._connecting = Connecting("the node", self._connect)
        limits = Limits(behind=CLOCK_SECONDS, ahead=CLOCK_SECONDS)
        self.clock = ClockWatch(WIRE.name, limits, {_network(config.chain_id): partial(ahead_of_chain, self._node)})

    async def start(self) -> None:
        """Ask the node for its chain, and go on asking in the background while the answer is not ours."""
        await self._connecting.start()
        self.clock.start()

    async def close(self) -> None:
        """Stop asking and close the connections."""
        await self.clock.stop()
        await self._connecting.stop()
        await self._node.close()
        await self._sdk_client.aclose()

    async def _connect(self) -> Obstacle | None:
        """Ask the node once; return why it cannot be used, or None."""
        try:
            async with within(self._config.verify_timeout):
                chain_id = await self._node.chain_id()
        except TimeoutError:
            return Obstacle("the node does not answer in time", "")
        except NodeError as error:
            return Obstacle("the node gives no usable answer", str(error))
        ours = self._config.chain_id
        return None if chain_id == ours else Obstacle(f"the node is on chain {chain_id}, not on {ours}", "")

    def terms(self) -> tuple[Terms, ...]:
        """Return what is taken: each currency, in the order of the challenges."""
        config, network = self._config, _network(self._config.chain_id)
        return tuple(Terms(network, each, config.recipient, network in TESTNETS) for each in config.currencies)

    def announce(self, amount: int) -> Announcement:
        """Return how documents announce a price; a challenge stands in a header alone, so there is no `accepts`."""
        charges = [{"method": METHOD, "intent": INTENT, "currency": each} for each in self._config.currencies]
        return Announcement(
            accepts=(),
            offers=tuple({**each, "amount": str(amount), "chainId": self._config.chain_id} for each in charges),
            protocols=tuple({WIRE.name: each} for each in charges),
        )

    def ready(self) -> Readiness:
        """Return whether the node has said that it is on our chain."""
        return self._connecting.ready()

    async def challenge(self, offer: Offer, reason: str | None = None) -> Challenge:
        """Return the WWW-Authenticate header, a challenge for each currency in it, and the problem's type.

        Each is bound to body, key, operation and release; the problem names the first.
        """
        expires = (datetime.now(UTC) + timedelta(seconds=self._config.challenge_seconds)).replace(microsecond=0)
        # Credentials of the previous secret's challenges are taken; new challenges are made with the current one only.
        handler = self._servers[self._config.secret_key].charge(
            **_charge_of(offer),
            meta=terms.meta_of(offer),
            body=offer.body,
            # A 402's head has room for it once, and every challenge would repeat it.
            description=offer.description if len(self._config.currencies) == 1 else None,
            expires=expires.isoformat().replace("+00:00", "Z"),
        )
        # The request is without Authorization: here the SDK asks for a payment and never takes one.
        result = await handler(Request("POST", offer.url, body=offer.body))
        if not isinstance(result, PaymentRequired):
            raise TypeError("the SDK took a payment where none was offered")
        challenges = result.challenge.headers.get_list(CHALLENGE_HEADER)
        slug = "payment-required" if reason is None else reason.partition(":")[0]
        problem = PROBLEMS.get(slug, PROBLEMS["verification-failed"])
        members = {
            "type": problem.type,
            "title": problem.title,
            "challengeId": IssuedChallenge.from_www_authenticate(challenges[0]).id,
        }
        return Challenge({CHALLENGE_HEADER: ", ".join(challenges)}, members)

    def read_credential(self, headers: Mapping[str, str], offer: Offer) -> Credential | Unreadable | None:
        """Return the Payment credential of the Authorization header, parsed only."""
        return credentials.read(headers, self._config, offer)

    def check_terms(self, credential: Credential, offer: Offer, now: float) -> str | None:
        """Return why the credential does not meet our terms; the reason begins with its problem type."""
        return terms.check(credentials.content_of(credential), self._config, offer, now)

    def remark(self, reason: str, now: float) -> str | None:
        """Return what helps to mend a refusal for the credential's own times, or its challenge's release."""
        return terms.remark(reason, now)

    async def verify(self, credential: Credential, offer: Offer) -> Verification:
        """Validate the credential and try its transaction on the node; nothing is consumed."""
        content = credentials.content_of(credential)
        secret = terms.secret_of(content.challenge, self._config)
        if content.transaction is None or secret is None:
            return Rejected("invalid-challenge: it was not issued by this service")
        try:
            async with within(self._config.verify_timeout):
                # First of all: whatever else is wrong with it, a transaction that pays us and is known may have paid.
                if await self._node.knows(content.transaction.hash):
                    return Spent("the transaction is on the chain already")
                await self._servers[secret].validate_credential(content.parsed, **_binding(offer))
                price = Price(str(content.challenge.request["currency"]), self._config.recipient, offer.amount)
                reason = await objection(self._node, content.transaction, price)
                return Verified() if reason is None else Rejected(reason)
        except CredentialReplayedError as error:
            return Spent(reason_of(error))
        except InternalPaymentError:
            return Unreachable("the payment cannot be checked at the moment")
        except PaymentError as error:
            return Rejected(reason_of(error))
        except NodeError as error:
            return Unreachable(str(error), retry_after=error.retry_after)
        except TimeoutError:
            return Unreachable("the node does not answer in time")

    async def settle(self, credential: Credential, offer: Offer) -> Settlement:
        """Broadcast the transaction, once, on connections of its own, and say what became of it."""
        content = credentials.content_of(credential)
        transaction, secret = content.transaction, terms.secret_of(content.challenge, self._config)
        if transaction is None or secret is None:
            return Refused("invalid-challenge: it was not issued by this service")
        # Verifying took its time; what could expire on the way to a block is not sent at all.
        now = datetime.now(UTC).timestamp()
        reason = terms.check(content, self._config, offer, now, seconds_left=terms.LAST_SECONDS)
        if reason is not None:
            return Refused(reason)
        transport = self._node.transport(self._config.settle_timeout)
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            # A fresh server has a fresh replay store: our own table of proofs is the authority, and a key that an
            # earlier try left behind would be taken for a payment.
            server = self._open_server(secret, client)
            outcome: Receipt | Exception
            try:
                outcome = await server.broadcast_credential(content.parsed, **_binding(offer))
            except Exception as error:  # noqa: BLE001 - the classifier sorts every kind.
                outcome = error
        return classify(outcome, send_made=transport.send_made, transaction=transaction.hash, key=offer.key)

    def has_node(self, network: str) -> bool:
        """Return whether the payment is on our chain, whose node everybody needs who is paid over MPP."""
        return network == _network(self._config.chain_id)

    async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        """Ask the chain for the receipt of the known transaction, and for a transfer with its memo."""
        node = JsonRpc(self._config.rpc_url, self._config.verify_timeout, pace)
        try:
            async with within(self._config.settle_timeout):
                return await evidence_of(node, facts, self._config.realm)
        except (*MISREAD, TimeoutError) as error:
            return Unknown(str(error) or "the node does not answer in time")
        finally:
            await node.close()

    async def holds(self, facts: PaymentFacts) -> int | None:
        """Return how much of the token the payer holds; None where the node does not tell."""
        if facts.payer is None:
            return None
        try:
            return await self._node.balance(facts.asset, facts.payer)
        except NodeError:
            return None

    async def reconciled_receipt(self, facts: PaymentFacts, transaction: str, key: str) -> str:
        """Return a receipt header like the SDK's, with the key as externalId, marked as reconciled."""
        receipt = Receipt.success(transaction.lower(), method=METHOD, external_id=key)
        return replace(receipt, extra={"reconciled": True, "challengeId": facts.payment_id}).to_payment_receipt()

    def _open_server(self, secret: str, client: httpx.AsyncClient) -> Mpp:
        config = self._config
        methods = tempo.charge(
            recipient=config.recipient,
            chain_id=config.chain_id,
            rpc_url=config.rpc_url,
            currencies=config.currencies,
            decimals=AMOUNT_DECIMALS,
            store=MemoryStore(),
            http_client=client,
            confirmation_timeout=config.settle_timeout * (1 - MARGIN_OF_SETTLE_TIMEOUT),
        )
        methods = [replace(method, method=_CHARGE) for method in methods]
        return Mpp(methods=methods, realm=config.realm, secret_key=secret)


def _network(chain_id: int) -> str:
    return f"eip155:{chain_id}"


def _charge_of(offer: Offer) -> dict[str, Any]:
    whole, rest = divmod(offer.amount, 10**AMOUNT_DECIMALS)
    return {"amount": f"{whole}.{rest:0{AMOUNT_DECIMALS}d}", "external_id": offer.key}


def _binding(offer: Offer) -> dict[str, Any]:
    """Return what a credential must be bound to, as the SDK wants to be told."""
    return {
        "intent": INTENT,
        "request": _charge_of(offer),
        "meta": terms.meta_of(offer),
        "body": offer.body,
    }
