"""Whoever does exactly what the service advises pays once at most, gets what can be had, and comes to an end.

The agent is `tests/obedient.py`, the service is the application over the real store, with scripted payments: every row
of the error table, every cell of the decision table, and what may be true behind a cell.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ranking_evaluate import order
from ranking_evaluate.attempts.attempt import State
from ranking_evaluate.attempts.events import OperatorRelease, OperatorSettle
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract import answer as answering
from ranking_evaluate.contract.errors import RateLimited, RequestMalformed, RequestTimeout, Unavailable
from ranking_evaluate.contract.problems import CAUSES, HEALING_WORDS, PROBLEMS, rows_of
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.http import app, attempts, documents, routes
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.payments.protocol import Offer, Readiness, Rejected, Settled, Unreachable
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates
from tests.fakes import ScriptedProtocol, Signed
from tests.obedient import PHRASES, Agent, Letter, sentences
from tests.test_purchase import BODY, KEY, OTHER_BODY, OTHER_KEY, TABLE, OtherProtocol, Shop

pytestmark = pytest.mark.anyio

PATH: Final = "/v1/scripted/ranking-evaluate"
OTHER_PATH: Final = "/v1/other/ranking-evaluate"
BAD_BODY: Final = b'{"queries":[]}'
BOTH: Final = frozenset({"scripted", "other"})


NO_CHAINS: Final = Chains(())


class Market(Shop):
    """The shop with its routes, a wallet that sees what was paid, and an operator, if there is one who reconciles."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.other = OtherProtocol()
        self.other.settler = self.settle
        self.paid: list[str] = []
        self.operator = True
        self.chains = NO_CHAINS
        self.mends: Callable[[], None] = lambda: None

    def new_purchases(self, payment_rate: str | None = None, **named: Any) -> Purchases:
        # A machine that is busy for seconds must not look like one that slept.
        return super().new_purchases(payment_rate, **{"boot_clock": lambda: 0.0, **named})

    def settle(self, signed: Signed, offer: Offer) -> Any:
        outcome = super().settle(signed, offer)
        # A chain makes a payment once.
        if isinstance(outcome, Settled) and signed.proof not in self.paid:
            self.paid.append(signed.proof)
        return outcome

    def moved(self, signed: Signed) -> bool:
        return signed.proof in self.paid

    def mend(self) -> None:
        self.mends()

    async def reconcile(self, key: str) -> None:
        row = (await SqliteStore.read(self.store, key)).standing
        if not self.operator or row is None or row.state_at(self.clock.now()) is not State.UNCERTAIN:
            return
        if row.payment_id in self.paid:
            await self.store.move(row.claim, OperatorSettle("reconciled receipt", "0x1", "operator", "the chain"))
        else:
            await self.store.move(row.claim, OperatorRelease("operator", "the chain"))

    def client(self, taken: frozenset[str] = BOTH, **purchases_of: str) -> httpx.AsyncClient:
        """Return a way to the service, which takes these protocols and is of this release and payment rate."""
        protocols: tuple[ScriptedProtocol, ...] = (self.protocol, self.other)
        own = purchases_of or self.chains is not NO_CHAINS
        purchases = self.new_purchases(chains=self.chains, **purchases_of) if own else self.purchases
        served = app.build_app(
            Parts(
                chains=self.chains,
                store=self.store,
                wires=tuple(protocol.wire for protocol in protocols),
                protocols=tuple(protocol for protocol in protocols if protocol.wire.name in taken),
                purchases=purchases,
                rates=Rates("memory://", None, None),
                evaluations=Evaluations(1, None),
                public_origin="https://rank.example",
                max_in_flight=256,
                cors_origins=("*",),
            )
        )
        transport = httpx.ASGITransport(served, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="https://rank.example")

    def agent(self, client: httpx.AsyncClient, *saved: Signed, key: str | None = KEY) -> Agent:
        return Agent(client, self, PATH, BODY, key, *saved)


_DOCUMENTS: Final[dict[frozenset[str], Any]] = {}


@pytest.fixture(autouse=True)
def documents_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making them takes far longer than a purchase, and they depend on what is taken alone."""
    make = documents.documents

    def made_once(routes: Any, origin: str, wires: Any, protocols: Any, contact: Any) -> Any:
        taken = frozenset(protocol.wire.name for protocol in protocols)
        if taken not in _DOCUMENTS:
            _DOCUMENTS[taken] = make(routes, origin, wires, protocols, contact)
        return _DOCUMENTS[taken]

    monkeypatch.setattr(app, "documents", made_once)


@pytest.fixture
async def market(tmp_path: Path) -> AsyncIterator[Market]:
    made = Market(tmp_path / "attempts.db")
    await made.store.open()
    yield made
    await made.purchases.drain()
    await made.store.close()


# The decision table.

OPEN: Final = frozenset({"settling", "settling, lease over", "uncertain"})
"""The states behind which a payment may have landed of which the service did not hear."""

BEHIND: Final = [
    pytest.param(state, landed, id=f"{state}{', landed' if landed else ''}")
    for state in TABLE
    for landed in (False, True)
    if state in OPEN or not landed
]

COLUMNS: Final[dict[str, Callable[[Signed, Signed], Letter]]] = {
    "other body": lambda first, second: Letter(PATH, OTHER_BODY, KEY, first),
    "none": lambda first, second: Letter(PATH, BODY, KEY),
    "unreadable": lambda first, second: Letter(PATH, BODY, KEY, "{"),
    "same credential": lambda first, second: Letter(PATH, BODY, KEY, first),
    "another credential": lambda first, second: Letter(PATH, BODY, KEY, second),
    "same proof, other credential": lambda first, second: Letter(PATH, BODY, KEY, replace(first, dressing=1)),
    "other path": lambda first, second: Letter(OTHER_PATH, BODY, KEY),
    "other key": lambda first, second: Letter(PATH, BODY, OTHER_KEY, replace(first, key=OTHER_KEY)),
    "asks first": lambda first, second: Letter("/v1/attempts", b"", KEY, method="GET"),
    "looks at the terms": lambda first, second: Letter(PATH, b"", None, method="GET"),
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize(("state", "landed"), BEHIND)
async def test_every_cell_leads_to_the_answer_and_to_one_payment(
    market: Market, state: str, column: str, landed: bool
) -> None:
    """The agent has kept what it signed, and there is an operator."""
    first, second = market.signed(seconds=3 * 24 * 3600), market.signed("second", seconds=3 * 24 * 3600)
    await market.put(state, first)
    if landed:
        market.paid.append(first.proof)
    async with market.client() as client:
        saved = [first, second] if column == "another credential" else [first]
        end = await market.agent(client, *saved).buy(COLUMNS[column](first, second))
    is_over = state == "settled, 24 h over"
    assert (end == "answered") is not is_over
    assert len(market.paid) == 1
    assert (market.paid == ["first"]) or not (landed or state.startswith("settled"))


@pytest.mark.parametrize("operator", [True, False], ids=["operator", "nobody"])
@pytest.mark.parametrize("column", ["other body", "none", "unreadable", "asks first", "looks at the terms"])
@pytest.mark.parametrize(("state", "landed"), BEHIND)
async def test_who_has_lost_what_it_signed_pays_no_second_time(
    market: Market, state: str, column: str, landed: bool, operator: bool
) -> None:
    first = market.signed(seconds=3 * 24 * 3600)
    await market.put(state, first)
    if landed:
        market.paid.append(first.proof)
    market.operator = operator
    paid_before = len(market.paid)
    async with market.client() as client:
        await market.agent(client).buy(replace(COLUMNS[column](first, first), credential=None))
    assert len(market.paid) <= 1
    assert paid_before == 0 or market.paid == ["first"]


CHANGES: Final = {"release": BOTH, "results": BOTH, "other protocol": frozenset({"other"}), "no protocol": frozenset()}
"""What may be changed in between, and which protocols are taken then."""


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "lost"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("state", "landed"), BEHIND)
async def test_no_upgrade_in_between_makes_it_pay_twice(
    market: Market,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    change: str,
    keeps: bool,
    landed: bool,
) -> None:
    """Another release, other results of the same release, or a protocol that is taken no longer."""
    first = market.signed(seconds=3 * 24 * 3600)
    await market.put(state, first)
    if landed:
        market.paid.append(first.proof)
    paid_before = len(market.paid)
    if change == "results":
        monkeypatch.setattr(order, "published_sha256", lambda operation: "ab" * 32)
    release = {"release": "0.30.0"} if change == "release" else {}
    async with market.client(CHANGES[change], **release) as client:
        agent = market.agent(client, *([first] if keeps else []))
        await agent.buy()
    assert len(market.paid) <= 1
    assert paid_before == 0 or market.paid == ["first"]
    stands = not state.endswith("over") or state == "settling, lease over"
    if "protocol" not in change and state != "none" and stands:
        assert agent.heard[0] == ("IDEMPOTENCY_CONFLICT", "release")


async def test_a_payment_that_somebody_else_submitted_is_seen_in_the_wallet(market: Market) -> None:
    """A third party used its authorization, which then ran out: a 402 follows a payment, and nothing more is signed."""
    first = market.signed(seconds=5)
    market.paid.append(first.proof)
    async with market.client() as client:
        agent = market.agent(client, first)
        assert await agent.buy() == "stopped: asked the operator about the payment that shows"
    assert (agent.heard, market.paid) == ([("PAYMENT_REJECTED", None), ("ATTEMPT_UNKNOWN", None)], ["first"])


async def test_a_payment_that_is_refused_whatever_is_mended_comes_to_an_end(market: Market) -> None:
    market.protocol.verifier = lambda signed: Rejected("the wallet is empty")
    async with market.client() as client:
        agent = market.agent(client)
        assert await agent.buy() == "stopped: refused again"
    assert (len(agent.signed), market.paid) == (2, [])


async def test_a_payment_that_was_mended_buys_the_answer(market: Market) -> None:
    market.protocol.verifier = lambda signed: Rejected("the wallet is empty")

    def fill_the_wallet() -> None:
        market.protocol.verifier = ScriptedProtocol().verifier

    market.mends = fill_the_wallet
    async with market.client() as client:
        assert await market.agent(client).buy() == "answered"
    assert len(market.paid) == 1


# The error table.


@dataclass
class Trouble:
    """What makes the service answer with a code: `times` once, or as often as it is asked."""

    market: Market
    patch: pytest.MonkeyPatch
    times: float

    def due(self) -> bool:
        self.times -= 1
        return self.times >= 0

    def raising(self, owner: Any, name: str, error: Exception) -> None:
        """Let an asynchronous function raise while the trouble lasts."""
        whole = getattr(owner, name)

        async def troubled(*given: Any, **named: Any) -> Any:
            if self.due():
                raise error
            return await whole(*given, **named)

        self.patch.setattr(owner, name, troubled)


def _unready(trouble: Trouble) -> None:
    readiness = trouble.market.protocol.ready
    trouble.patch.setattr(
        trouble.market.protocol, "ready", lambda: Readiness(False, "asleep") if trouble.due() else readiness()
    )


def _unreachable(trouble: Trouble) -> None:
    trouble.market.protocol.verifier = lambda signed: (
        Unreachable("asleep") if trouble.due() else ScriptedProtocol().verifier(signed)
    )


TROUBLES: Final[dict[str, Callable[[Trouble], None]]] = {
    "REQUEST_TIMEOUT": lambda trouble: trouble.raising(
        routes, "read_body", RequestTimeout("REQUEST_TIMEOUT", "Too slow.")
    ),
    "RATE_LIMITED": lambda trouble: trouble.raising(
        Rates, "count_request", RateLimited("RATE_LIMITED", "Too many.", retry_after=7)
    ),
    "INTERNAL": lambda trouble: trouble.raising(routes, "admission", ZeroDivisionError()),
    "OVERLOADED": lambda trouble: trouble.raising(
        routes, "admission", Unavailable("OVERLOADED", "Too many requests at once.", retry_after=1)
    ),
    "PAYMENT_UNAVAILABLE": _unready,
    "STATE_UNAVAILABLE": lambda trouble: trouble.raising(trouble.market.store, "read", StoreUnavailable("full")),
}


@pytest.mark.parametrize("lasts", [1, 3, float("inf")], ids=["once", "thrice", "for ever"])
@pytest.mark.parametrize("history", ["nothing yet", "signed", "paid, answer lost"])
@pytest.mark.parametrize("code", TROUBLES)
async def test_trouble_of_the_service_ends_in_the_answer_or_in_a_stop(
    market: Market, monkeypatch: pytest.MonkeyPatch, code: str, history: str, lasts: float
) -> None:
    first = market.signed(seconds=3600)
    if history == "paid, answer lost":
        await market.put("settled", first)
    async with market.client() as client:
        agent = market.agent(client, *([] if history == "nothing yet" else [first]))
        TROUBLES[code](Trouble(market, monkeypatch, lasts))
        end = await agent.buy()
    is_needed = not (code == "PAYMENT_UNAVAILABLE" and history == "paid, answer lost")
    assert ((code, None) in agent.heard) is is_needed
    gets_it = lasts == 1 or (lasts == 3 and code != "INTERNAL") or not is_needed
    assert (end == "answered") is gets_it
    assert len(market.paid) == (1 if gets_it or history == "paid, answer lost" else 0)
    assert len(agent.signed) == 1 - (not gets_it and history == "nothing yet")


async def test_a_provider_that_is_away_is_waited_for_with_the_same_credential(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    _unreachable(Trouble(market, monkeypatch, 3))
    async with market.client() as client:
        agent = market.agent(client)
        assert await agent.buy() == "answered"
    assert [code for code, _ in agent.heard] == ["PAYMENT_REQUIRED", *["PAYMENT_UNAVAILABLE"] * 3]
    assert (len(agent.signed), len(market.paid)) == (1, 1)


MISTAKES: Final[dict[str, Callable[[Letter], Letter]]] = {
    "MALFORMED_JSON": lambda right: replace(right, body=b"{"),
    "HEADER_INVALID": lambda right: replace(right, more=(("Idempotency-Key", OTHER_KEY),)),
    "IDEMPOTENCY_KEY_REQUIRED": lambda right: replace(right, key=None),
    "IDEMPOTENCY_KEY_INVALID": lambda right: replace(right, key=f'"{right.key}"'),
    "PAYMENT_PROTOCOL_MISMATCH": lambda right: replace(
        right, path=OTHER_PATH, credential=None, more=(("X-Scripted-Payment", "of the other route"),)
    ),
    "NOT_FOUND": lambda right: replace(right, path=f"{PATH}s"),
    "METHOD_NOT_ALLOWED": lambda right: replace(right, method="PUT"),
    "INPUT_LIMIT": lambda right: replace(right, body=b" " * 140_000),
    "UNSUPPORTED_MEDIA_TYPE": lambda right: replace(right, content_type="text/plain"),
    "UNSUPPORTED_ENCODING": lambda right: replace(right, more=(("Content-Encoding", "gzip"),)),
    **dict.fromkeys(
        [code.value for code in ErrorCode if code not in {ErrorCode.MALFORMED_JSON, ErrorCode.INPUT_LIMIT}],
        lambda right: replace(right, body=BAD_BODY),
    ),
}
"""What a caller may get wrong in a request that is right but for that."""


@contextmanager
def refusing(code: str) -> Iterator[None]:
    """Let the operation refuse `BAD_BODY` with this code."""
    whole = answering.answer

    def answer(operation: Any, body: bytes) -> Any:
        if body == BAD_BODY:
            raise OperationError(ErrorCode(code), "The test refuses it.")
        return whole(operation, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ranking_evaluate.evaluations.evaluations.answer", answer)
        yield


@pytest.mark.parametrize("history", ["nothing yet", "signed", "paid, answer lost"])
@pytest.mark.parametrize("code", MISTAKES)
async def test_a_mistake_is_corrected_and_costs_nothing(market: Market, code: str, history: str) -> None:
    first = market.signed(seconds=3600)
    if history == "paid, answer lost":
        await market.put("settled", first)
    async with market.client() as client:
        agent = market.agent(client, *([] if history == "nothing yet" else [first]))
        with ExitStack() as stack:
            if MISTAKES[code](agent.right()).body == BAD_BODY:
                stack.enter_context(refusing(code))
            assert await agent.buy(MISTAKES[code](agent.right())) == "answered"
    assert agent.heard[0] == (code, None)
    assert len(market.paid) == len(agent.signed) == 1


async def test_who_has_no_key_yet_makes_one(market: Market) -> None:
    async with market.client() as client:
        agent = market.agent(client, key=None)
        assert await agent.buy() == "answered"
    assert agent.heard == [("IDEMPOTENCY_KEY_REQUIRED", None), ("PAYMENT_REQUIRED", None)]
    assert len(market.paid) == 1


async def test_a_key_that_never_was_one_is_replaced(market: Market) -> None:
    async with market.client() as client:
        agent = market.agent(client, key="short")
        assert await agent.buy() == "answered"
    assert agent.heard[0] == ("IDEMPOTENCY_KEY_INVALID", None)
    assert len(market.paid) == 1


@pytest.mark.parametrize("state", ["none", "settled", "uncertain", "settled, 24 h over"])
async def test_a_credential_under_another_key_goes_back_to_its_own(market: Market, state: str) -> None:
    first = market.signed(seconds=3 * 24 * 3600)
    await market.put(state, first)
    async with market.client() as client:
        agent = market.agent(client, first)
        await agent.buy(Letter(PATH, BODY, OTHER_KEY, first))
    assert agent.heard[:1] == [("PAYMENT_IDENTIFIER_MISMATCH", None)]
    assert len(market.paid) == 1


async def test_a_client_that_leaves_out_what_names_the_purchase_signs_once_more_and_stops(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless(headers: Any, offer: Offer) -> Any:
        if "x-scripted-payment" in headers:
            raise RequestMalformed("PAYMENT_IDENTIFIER_MISMATCH", "It names no purchase.", cause="missing")

    monkeypatch.setattr(market.protocol, "read_credential", nameless)
    async with market.client() as client:
        agent = market.agent(client)
        assert await agent.buy() == "stopped: the client does not return the extensions"
    assert (len(agent.signed), market.paid) == (2, [])


@pytest.mark.parametrize("state", ["none", "settled", "uncertain", "failed"])
@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "lost"])
async def test_a_credential_that_cannot_be_read_leads_to_no_second_payment(
    market: Market, monkeypatch: pytest.MonkeyPatch, state: str, keeps: bool
) -> None:
    whole = market.protocol.read_credential

    def strict(headers: Any, offer: Offer) -> Any:
        if headers.get("x-scripted-payment") == "{":
            raise RequestMalformed("PAYMENT_MALFORMED", "It cannot be read.")
        return whole(headers, offer)

    monkeypatch.setattr(market.protocol, "read_credential", strict)
    first = market.signed(seconds=3600)
    await market.put(state, first)
    async with market.client() as client:
        agent = market.agent(client, *([first] if keeps else []))
        await agent.buy(Letter(PATH, BODY, KEY, "{"))
    assert agent.heard[0] == ("PAYMENT_MALFORMED", None)
    assert len(market.paid) == (0 if state == "uncertain" and not keeps else 1)


async def test_the_published_key_is_left_for_one_of_its_own(market: Market) -> None:
    key = "discovery_example_never_pay_0001"
    async with market.client() as client:
        agent = market.agent(client, key=key)
        assert await agent.buy() == "answered"
    assert [code for code, _ in agent.heard] == ["PAYMENT_REQUIRED", "DISCOVERY_KEY", "PAYMENT_REQUIRED"]
    assert (len(agent.signed), len(market.paid)) == (2, 1)


async def test_who_looks_at_the_terms_then_asks_for_its_own(market: Market) -> None:
    async with market.client() as client:
        agent = market.agent(client, key=None)
        assert await agent.buy(Letter(PATH, b"", None, method="GET")) == "answered"
    assert agent.heard == [("PAYMENT_REQUIRED", "terms"), ("PAYMENT_REQUIRED", None)]
    assert len(market.paid) == 1


async def test_a_credential_that_never_arrives_is_not_signed_again(market: Market) -> None:
    async with market.client() as client:

        async def without(request: httpx.Request) -> None:
            request.headers.pop("x-scripted-payment", None)

        client.event_hooks = {"request": [without]}
        agent = market.agent(client)
        assert await agent.buy() == "stopped: something removes the credential"
    assert (len(agent.signed), market.paid) == (1, [])


async def test_an_outdated_client_is_told_and_signs_nothing_more_with_it(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = replace(market.protocol.wire, outdated_header="X-PAYMENT", outdated_words="X-PAYMENT is of version 1.")
    monkeypatch.setattr(market.protocol, "wire", wire)
    async with market.client() as client:
        agent = market.agent(client)
        assert await agent.buy(replace(agent.right(), more=(("X-PAYMENT", "e30="),))) == "answered"
    assert agent.heard == [("PAYMENT_REQUIRED", "version"), ("PAYMENT_REQUIRED", None)]
    assert len(market.paid) == 1


async def test_what_is_not_sold_here_is_bought_over_the_other_protocol(market: Market) -> None:
    async with market.client(frozenset({"other"})) as client:
        agent = market.agent(client)
        assert await agent.buy() == "answered"
    assert agent.heard == [("PAYMENT_UNAVAILABLE", "unconfigured"), ("PAYMENT_REQUIRED", None)]
    assert len(market.paid) == 1


async def test_where_sales_have_ended_nothing_is_signed(market: Market) -> None:
    async with market.client(payment_rate="0/day") as client:
        agent = market.agent(client)
        assert await agent.buy() == "stopped: over"
    assert agent.heard == [("PAYMENT_UNAVAILABLE", "ended")]
    assert (agent.signed, market.paid) == ([], [])


@pytest.mark.parametrize("state", ["settling", "settled", "uncertain"])
async def test_a_second_payment_with_one_key_authorization_is_signed_without_it(market: Market, state: str) -> None:
    """The wallet has sent its first payment somewhere else in this shop, and signs each purchase once."""
    elsewhere = replace(market.signed(seconds=3600), new_key="of the wallet")
    await market.put(state, elsewhere)
    async with market.client() as client:
        first = replace(elsewhere, key=OTHER_KEY, proof="here")
        agent = market.agent(client, first, key=OTHER_KEY)
        assert await agent.buy() == "answered"
    assert agent.heard == [("DUPLICATE_PROOF", "key-authorization"), ("PAYMENT_REQUIRED", None)]
    assert market.paid[-1] == agent.signed[-1].proof != first.proof
    assert not market.moved(first)


@pytest.mark.parametrize("moved", [True, False])
async def test_an_uncertain_payment_that_the_chain_decides_is_waited_for(
    market: Market, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    monkeypatch.setattr(market.protocol, "has_node", lambda network: True)
    market.chains = Chains((market.protocol,))
    first = market.signed(seconds=3600)
    await market.put("uncertain", first)
    if not moved:
        market.paid.clear()
    async with market.client() as client:
        agent = market.agent(client, first)
        assert await agent.buy() == "answered"
    assert agent.heard[0] == ("PAYMENT_UNCERTAIN", "chain")
    assert len(market.paid) == 1


# Nothing is left out.


def test_the_agent_can_read_every_sentence_and_no_other() -> None:
    said = [problem.next_step for code in PROBLEMS for _, problem in rows_of(code)]
    said += [*attempts.NEXT_STEP.values(), *attempts.RELEASED.values(), attempts.EXPIRED]
    said += [HEALING_WORDS.format(time="TIME")]
    assert {sentence for text in said for sentence in sentences(text)} == set(PHRASES)


HEARD_IN_THE_TABLE: Final = frozenset(
    {
        ("PAYMENT_REQUIRED", None),
        ("PAYMENT_REJECTED", None),
        ("ATTEMPT_UNKNOWN", None),
        ("DUPLICATE_PROOF", None),
        ("PAYMENT_IN_PROGRESS", None),
        ("PAYMENT_UNCERTAIN", None),
        *(("IDEMPOTENCY_CONFLICT", cause) for cause in CAUSES["IDEMPOTENCY_CONFLICT"]),
    }
)
HEARD_ALONE: Final = frozenset(
    {
        ("PAYMENT_IDENTIFIER_MISMATCH", None),
        ("PAYMENT_MALFORMED", None),
        ("DISCOVERY_KEY", None),
        ("PAYMENT_REQUIRED", "terms"),
        ("PAYMENT_REQUIRED", "version"),
        ("PAYMENT_UNAVAILABLE", "unconfigured"),
        ("PAYMENT_UNAVAILABLE", "ended"),
        ("DUPLICATE_PROOF", "key-authorization"),
        ("PAYMENT_UNCERTAIN", "chain"),
    }
)
NEVER_HEARD: Final = frozenset({("IDEMPOTENCY_CONFLICT", None)})
"""A conflict always has a cause; what holds for all of them is for readers of the error table."""


def test_every_row_of_the_error_table_is_met_above() -> None:
    rows = {(code, cause) for code in PROBLEMS for cause, _ in rows_of(code)}
    met = HEARD_IN_THE_TABLE | HEARD_ALONE | {(code, None) for code in (*TROUBLES, *MISTAKES)}
    assert rows - met == NEVER_HEARD
    assert met <= rows


# The agent itself would tell.


async def test_an_advice_to_take_a_fresh_key_after_an_upgrade_is_caught(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release 0.29.0 gave it, and whoever followed it paid twice."""
    monkeypatch.setitem(PHRASES, "Keep the key, the body and the credential.", Agent.make_a_key_and_begin)
    monkeypatch.setitem(
        PHRASES, "If not, the operator can have it answered by the release that the detail names.", Agent.nothing
    )
    monkeypatch.setitem(PHRASES, "Do not pay again under any key for this purchase.", Agent.nothing)
    first = market.signed(seconds=3600)
    await market.put("settled", first)
    async with market.client(release="0.30.0") as client:
        assert await market.agent(client, first).buy() == "answered"
    assert len(market.paid) == 2


async def test_an_advice_to_wait_without_an_end_is_caught(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(agent: Agent) -> None:
        agent.next = agent.sent

    sentence = "Wait as long as Retry-After says, then send the identical request again, for ten minutes at most."
    monkeypatch.setitem(PHRASES, sentence, wait)
    market.protocol.readiness = Readiness(False, "asleep")
    async with market.client() as client:
        with pytest.raises(AssertionError, match="goes on for ever"):
            await market.agent(client).buy()
