"""An agent that does exactly what every `nextStep` says: it knows nothing of the service but these sentences.

`PHRASES` is all that it can read. A sentence that is not in it stops the test that meets it, so that whoever changes
what the service advises says here what an agent makes of it, and learns whether that is safe.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import httpx

from tests.fakes import VALID_SECONDS, FixedClock, Signed

STEPS: Final = 700
"""More requests than any advice may lead to: ten minutes of waiting take 300, and two kinds may follow each other."""

PATIENCE: Final = 600.0
TRIES: Final = 10
A_FEW_SECONDS: Final = 5.0
KEY_FORM: Final = re.compile(r"[A-Za-z0-9_-]{16,128}")
SHOWS_A_PAYMENT: Final = frozenset({"reserved", "settling", "uncertain", "settled"})


class World(Protocol):
    """What an agent meets besides the service: time, its wallet, the operator, and what was wrong with its payment."""

    clock: FixedClock

    def moved(self, signed: Signed) -> bool:
        """Return whether the wallet shows that this payment was made."""

    async def reconcile(self, key: str) -> None:
        """Decide about an uncertain payment, if there is an operator who does."""

    def mend(self) -> None:
        """Mend what the detail of a refused payment names."""


@dataclass(frozen=True)
class Letter:
    """One request, as the agent means to send it; `credential` is what it signed, or a header's text."""

    path: str
    body: bytes
    key: str | None
    credential: Signed | str | None = None
    method: str = "POST"
    more: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"


class Agent:
    """Wants one answer, and pays for it at most once unless somebody talks it into paying again.

    Args:
        client: The way to the service.
        world: What there is besides.
        path: Where the answer is sold.
        body: The right input.
        key: The key of the purchase, None for an agent that has made none yet.
        saved: What it signed before, the first one first.
    """

    def __init__(
        self, client: httpx.AsyncClient, world: World, path: str, body: bytes, key: str | None, *saved: Signed
    ) -> None:
        self.client = client
        self.world = world
        self.path = path
        self.body = body
        self.key = key
        self.signed = list(saved)
        self.heard: list[tuple[str, str | None]] = []
        self._first_sent = {one.proof: Letter(path, body, one.key, one) for one in saved}
        self._refused: set[Signed | str | None] = set()
        self._tried: set[Signed | str | None] = set()
        self._waiting_since: float | None = None
        self._tries = 0
        self._signed_again = False
        self._failed_before = False
        self._named_before = False
        self._keys = 0

    # What it does, letter by letter.

    async def buy(self, letter: Letter | None = None) -> str:
        """Send a letter, the right one by default, and do what the answers say; return how it ended."""
        letter = letter or self.right()
        for _ in range(STEPS):
            self.sent, self.answer = letter, await self.send(letter)
            if self.answer.status_code == 200 and letter.path != "/v1/attempts":
                return "answered"
            self.next: Letter | None = None
            self.end: str | None = None
            self.shown = False
            said = self.answer.json()
            if "code" in said:
                self.heard.append((said["code"], said.get("cause")))
            await self.obey(said["nextStep"])
            if self.end is not None:
                return self.end
            assert self.next is not None, f"nothing to do after {said}"
            letter = self.next
        raise AssertionError(f"it goes on for ever: {self.heard[-3:]}")

    async def send(self, letter: Letter) -> httpx.Response:
        if isinstance(letter.credential, Signed):
            self._first_sent.setdefault(letter.credential.proof, letter)
        lines = [*letter.more, ("Content-Type", letter.content_type)]
        if letter.key is not None:
            lines.append(("Idempotency-Key", letter.key))
        if letter.credential is not None:
            lines.append((header_of(letter.path), text_of(letter.credential)))
        return await self.client.request(letter.method, letter.path, content=letter.body, headers=lines)

    async def obey(self, next_step: str) -> None:
        """Do what each sentence says, in the order in which they stand, until one says what to send, or to stop."""
        before = len(self.signed)
        forbidden = False
        for sentence in sentences(TIME.sub("TIME", next_step)):
            assert sentence in PHRASES, f"the agent cannot read: {sentence!r}"
            if self.end is None:
                forbidden |= sentence in FORBIDS
                await PHRASES[sentence](self)
        assert not (forbidden and len(self.signed) > before), f"it was told not to sign, and to sign: {next_step}"

    # What it knows.

    def right(self) -> Letter:
        """Return the purchase as it should be, with the first credential that is of any use."""
        useful = [one for one in self.signed if one.key == self.key and one not in self._refused]
        return Letter(self.path, self.body, self.key, useful[0] if useful else None)

    def fresh_key(self) -> str:
        self._keys += 1
        return f"fresh-key-of-the-agent-{self._keys}"

    def sign(self) -> None:
        """Let the SDK answer the challenge in hand, which is for the key that was sent."""
        assert self.answer.status_code == 402
        assert self.sent.key is not None
        self.key = self.sent.key
        new = Signed(self.key, f"signature {len(self.signed) + 1} of the agent", self.world.clock.now() + VALID_SECONDS)
        self.signed.append(new)
        self.next = Letter(self.path, self.body, self.key, new)

    async def look(self) -> str | None:
        """Return the state that GET /v1/attempts shows, None for an unknown key."""
        self.standing = await self.send(Letter("/v1/attempts", b"", self.sent.key, method="GET"))
        said = self.standing.json()
        if self.standing.status_code == 404:
            self.heard.append((said["code"], None))
            return None
        state: str = said["state"]
        return state

    # What the sentences mean to it.

    async def nothing(self) -> None:
        """A fact, or a warning that `FORBIDS` holds it to."""

    async def send_the_right_one(self) -> None:
        self.next = self.right()

    async def keep_the_key(self) -> None:
        assert self.next is not None
        assert self.next.key == (self.sent.key or self.key)

    async def send_its_own_key(self) -> None:
        if self.key is not None:
            self.next = replace(self.sent, key=self.key)

    async def make_a_key_if_none_will_do(self) -> None:
        if self.next is None:
            self.key = self.fresh_key()
            self.next = replace(self.sent, key=self.key)

    async def write_the_key_as_it_should_be(self) -> None:
        key = (self.sent.key or "").strip('"')
        if KEY_FORM.fullmatch(key):
            self.key = key
            self.next = replace(self.sent, key=key)

    async def make_a_key_and_begin(self) -> None:
        self.key = self.fresh_key()
        self.next = Letter(self.path, self.body, self.key)

    async def send_under_the_key_that_was_signed(self) -> None:
        if isinstance(self.sent.credential, Signed) and self.sent.credential.key not in {"", self.sent.key}:
            self.key = self.sent.credential.key
            self.next = replace(self.sent, key=self.key)

    async def begin_once_with_this_key(self) -> None:
        if self.next is None and self._named_before:
            self.end = "stopped: the client does not return the extensions"
        elif self.next is None:
            self._named_before = True
            self.next = replace(self.sent, credential=None)

    async def send_as_the_sdk_wrote_it(self) -> None:
        if isinstance(self.sent.credential, Signed):
            self.end = "stopped: what the SDK wrote is refused"
        elif self.right().credential is not None:
            self.next = self.right()

    async def sign_if_nothing_was_charged(self) -> None:
        if self.next is None and await self.look() in {None, "failed", "released"}:
            self.next = replace(self.right(), credential=None)
        elif self.next is None:
            self.end = "stopped: the key shows a payment"

    async def stop_if_a_credential_was_sent(self) -> None:
        if self.sent.credential is not None:
            self.end = "stopped: something removes the credential"

    async def answer_the_challenge(self) -> None:
        self.sign()

    async def send_what_was_signed(self) -> None:
        assert self.next is not None
        assert (self.next.body, self.next.key) == (self.body, self.sent.key)

    async def look_before_signing(self) -> None:
        self._refused.add(self.sent.credential)
        state = await self.look()
        self.shown = state in SHOWS_A_PAYMENT or any(self.world.moved(one) for one in self.signed)

    async def stop_if_a_payment_shows(self) -> None:
        if self.shown:
            self.end = "stopped: asked the operator about the payment that shows"

    async def sign_again_once(self) -> None:
        if self._signed_again:
            self.end = "stopped: refused again"
            return
        self._signed_again = True
        self.world.mend()
        self.sign()

    async def begin_here(self) -> None:
        self.key = self.key or self.fresh_key()
        self.next = Letter(self.path, self.body, self.key)

    async def take_version_2(self) -> None:
        self.next = replace(self.sent, more=())

    async def read_the_routes(self) -> None:
        assert self.path in (await self.client.get("/llms.txt")).text.replace("/v1/x402/", "/v1/scripted/")
        self.next = self.right()

    async def use_an_allowed_method(self) -> None:
        allowed = self.answer.headers["allow"].split(", ")
        self.next = replace(self.sent, method="POST" if "POST" in allowed else allowed[0])

    async def send_again_a_few_times(self) -> None:
        self._tries += 1
        self.next = self.sent
        self.world.clock.advance(float(self.answer.headers.get("retry-after", 0)))
        if self._tries > TRIES:
            self.end = "stopped: ten times refused"

    async def send_again_for_a_while(self) -> None:
        self.wait(float(self.answer.headers["retry-after"]))

    async def send_again_in_a_few_seconds(self) -> None:
        self.wait(A_FEW_SECONDS)

    def wait(self, seconds: float) -> None:
        since = self._waiting_since = self._waiting_since or self.world.clock.now()
        self.next = self.sent
        self.world.clock.advance(seconds)
        if self.world.clock.now() - since > PATIENCE:
            self.end = "stopped: ten minutes are over"

    async def ask_whether_it_is_ready(self) -> None:
        assert (await self.client.get("/readyz")).status_code in {200, 503}

    async def send_again_once(self) -> None:
        self.next = self.sent
        if self._failed_before:
            self.end = f"gave the operator {self.answer.json()['requestId']}"
        self._failed_before = True

    async def take_the_other_path(self) -> None:
        rails = (await self.client.get("/readyz")).json()["rails"]
        here = self.path.split("/")[2]
        sold = [name for name, rail in rails.items() if rail["configured"] and rail["ready"] and name != here]
        if not sold:
            self.end = "stopped: nothing is sold"
            return
        self.path = self.path.replace(f"/{here}/", f"/{sold[0]}/")
        await self.make_a_key_and_begin()

    async def send_what_the_key_was_first_used_with(self) -> None:
        if self.sent == self.right():
            self.end = "stopped: the key is another's"
        else:
            self.next = self.right()

    async def send_the_first_credential(self) -> None:
        if self.signed and self.sent.credential != self.signed[0]:
            self.next = replace(self.right(), credential=self.signed[0])

    async def send_the_credential_that_paid(self) -> None:
        self._tried.add(self.sent.credential)
        untried = [one for one in self.signed if one.key == self.sent.key and one not in self._tried]
        if untried:
            self.next = Letter(self.path, self.body, self.sent.key, untried[0])

    async def ask_the_operator_if_that_was_it(self) -> None:
        if self.next is None:
            self.end = "stopped: the credential that paid is gone, or the operator has to look"

    async def send_the_proof_as_it_was_first_sent(self) -> None:
        assert isinstance(self.sent.credential, Signed)
        original = next((one for one in self.signed if one.proof == self.sent.credential.proof), None)
        first = self._first_sent.get(self.sent.credential.proof)
        if original is not None and self.sent.credential != original:
            self.key = original.key
            self.next = Letter(self.path, self.body, original.key, original)
        elif first is not None and first != self.sent:
            self.key = first.key
            self.next = first

    async def send_it_no_more(self) -> None:
        if self.next is None:
            self._refused.add(self.sent.credential)

    async def begin_once_without_the_authorization(self) -> None:
        assert isinstance(self.sent.credential, Signed)
        assert self.sent.credential.new_key
        self._refused.add(self.sent.credential)
        self.next = replace(self.right(), credential=None)
        if self._signed_again:
            self.end = "stopped: refused again"
        self._signed_again = True

    async def see_where_the_purchase_stands(self) -> None:
        if self.next is None:
            await self.look()
            await self.obey(self.standing.json()["nextStep"])

    async def ask_the_operator_to_reconcile(self) -> None:
        assert self.sent.key is not None
        await self.world.reconcile(self.sent.key)

    async def send_again_when_it_is_decided(self) -> None:
        if await self.look() == "uncertain":
            self.end = "waits for the operator"
        else:
            self.next = self.right() if self.sent.path == "/v1/attempts" else self.sent

    async def send_it_where_the_detail_says(self) -> None:
        if "://" in self.answer.json()["detail"]:
            self.end = "sent it to the older release"

    async def send_again_when_it_is_settled(self) -> None:
        state = await self.look()
        if state == "uncertain":
            self.end = "waits for the chain"
        elif state == "settled":
            self.next = self.right() if self.sent.path == "/v1/attempts" else self.sent

    async def do_what_the_attempt_says(self) -> None:
        if self.next is None and self.end is None:
            self.answer = self.standing
            await self.obey(self.standing.json()["nextStep"])

    async def ask_for_the_older_release(self) -> None:
        self.end = self.end or "asked the operator for the older release"

    async def stop(self) -> None:
        self.end = "stopped: over"

    async def fetch_what_is_paid(self) -> None:
        await self.send_the_credential_that_paid()
        if self.next is None:
            self.end = "stopped: the credential that paid is lost"

    async def send_what_was_not_refused(self) -> None:
        self.next = self.right()

    async def begin_again(self) -> None:
        if self.answer.status_code == 409:
            await self.make_a_key_and_begin()
        else:
            self.next = replace(self.right(), credential=None)


Deed = Callable[[Agent], Awaitable[None]]

PHRASES: Final[dict[str, Deed]] = {
    "Correct the input and send it again.": Agent.send_the_right_one,
    "Correct the headers and send the request again.": Agent.send_the_right_one,
    "Keep the Idempotency-Key: this request was not charged.": Agent.keep_the_key,
    "Send the Idempotency-Key of the purchase.": Agent.send_its_own_key,
    (
        "A new purchase takes a fresh random one of 16 to 128 characters A-Z a-z 0-9 _ -, kept for every resend."
    ): Agent.make_a_key_if_none_will_do,
    (
        "Send the key on one line of 16 to 128 characters A-Z a-z 0-9 _ -, without quotes."
    ): Agent.write_the_key_as_it_should_be,
    "A key of another form was never taken: make a fresh random one.": Agent.make_a_key_if_none_will_do,
    (
        "If the credential names another Idempotency-Key, send it with that key and the body of that purchase."
    ): Agent.send_under_the_key_that_was_signed,
    (
        "If it names none, or this is a new purchase, send the request with this key and without a credential, and "
        "sign the terms of that answer, once: they name the key, and a client has to return the extensions that it is "
        "given."
    ): Agent.begin_once_with_this_key,
    "Send exactly one credential, to the route of its own protocol.": Agent.send_the_right_one,
    "It was not used.": Agent.nothing,
    (
        "Send the credential exactly as the protocol's official SDK wrote it; if that is refused again, stop."
    ): Agent.send_as_the_sdk_wrote_it,
    (
        "Before you sign another, look at GET /v1/attempts with the key: sign only if it says that nothing was charged."
    ): Agent.sign_if_nothing_was_charged,
    ("Choose a fresh random Idempotency-Key of your own, and begin without a credential."): Agent.make_a_key_and_begin,
    "This one was not used.": Agent.nothing,
    # 402
    (
        "If this request had a credential, it did not arrive: sign nothing, and find out what removed it."
    ): Agent.stop_if_a_credential_was_sent,
    (
        "Otherwise let the protocol's official SDK answer the challenge, once, and save the credential before you send "
        "it."
    ): Agent.answer_the_challenge,
    "Then send the identical body and Idempotency-Key with the credential.": Agent.send_what_was_signed,
    (
        "POST the input to this path without a credential, under the Idempotency-Key of the purchase, which for a new "
        "one is fresh and random."
    ): Agent.begin_here,
    "Answer the challenge that then comes back, not this one.": Agent.nothing,
    (
        "Pay with an SDK of x402 version 2, which sends PAYMENT-SIGNATURE; sign nothing more with version 1."
    ): Agent.take_version_2,
    "What X-PAYMENT held was not used.": Agent.nothing,
    "Before you sign again, look at GET /v1/attempts with the key and at your wallet.": Agent.look_before_signing,
    "If either shows a payment, stop and ask the operator.": Agent.stop_if_a_payment_shows,
    (
        "If neither does, mend what the detail names and answer the new challenge, once; if that is refused too, stop."
    ): Agent.sign_again_once,
    # 404, 405, 408
    "Read /llms.txt for the routes.": Agent.read_the_routes,
    "Nothing was charged here under this key.": Agent.nothing,
    (
        "A credential for it that was not refused may be sent again; without one, a challenge under this key may be "
        "answered."
    ): Agent.send_what_was_not_refused,
    "Use a method of the Allow header.": Agent.use_an_allowed_method,
    "It was not processed: send the identical request again, ten times at most.": Agent.send_again_a_few_times,
    # 409
    "Do not pay again under any key for this purchase.": Agent.nothing,
    "GET /v1/attempts with the key tells where the purchase stands.": Agent.see_where_the_purchase_stands,
    (
        "Send exactly the body, path and credential that this key was first used with; if that is what you sent, stop."
    ): Agent.send_what_the_key_was_first_used_with,
    "Do not pay again for that purchase.": Agent.nothing,
    "Keep the key, the body and the credential.": Agent.nothing,
    "If the detail names an address, send the identical request there.": Agent.send_it_where_the_detail_says,
    (
        "If not, the operator can have it answered by the release that the detail names."
    ): Agent.ask_for_the_older_release,
    (
        "Send the credential that was first sent under this key, and do not sign another."
    ): Agent.send_the_first_credential,
    (
        "Send the saved credential that paid, with the identical body: without it the answer that you bought is lost."
    ): Agent.send_the_credential_that_paid,
    "Do not pay again; if this was that credential, ask the operator.": Agent.ask_the_operator_if_that_was_it,
    "Stop: the answer is no longer delivered, and nothing more comes under this key.": Agent.stop,
    (
        "Send this payment only with the key, the body and the credential that it was first sent with."
    ): Agent.send_the_proof_as_it_was_first_sent,
    "If that is what you sent, do not send it again.": Agent.send_it_no_more,
    "Nothing was charged for this payment.": Agent.nothing,
    (
        "When the first payment with this key authorization is settled, send the request without a credential, and "
        "answer the challenge that comes back by a transaction without the authorization, once."
    ): Agent.begin_once_without_the_authorization,
    (
        "Wait as long as Retry-After says, then send the identical request again, for ten minutes at most."
    ): Agent.send_again_for_a_while,
    "Do not sign another credential.": Agent.nothing,
    (
        "Keep the key, the body and the credential, and ask the operator to reconcile the payment."
    ): Agent.ask_the_operator_to_reconcile,
    (
        "GET /v1/attempts with the key tells when that is done; then send the identical request again."
    ): Agent.send_again_when_it_is_decided,
    "The service asks the chain by itself, and will know by TIME at the latest.": Agent.nothing,
    (
        "Keep the key, the body and the credential, and ask GET /v1/attempts with the key once a minute."
    ): Agent.ask_the_operator_to_reconcile,
    "When it says settled, send the identical request again: it gets the answer.": Agent.send_again_when_it_is_settled,
    "When it says anything else, do what it says next.": Agent.do_what_the_attempt_says,
    # 413, 415, 422
    "Send less per call.": Agent.send_the_right_one,
    "Send Content-Type: application/json.": Agent.send_the_right_one,
    "Send the body uncompressed.": Agent.send_the_right_one,
    'Judge the document, or say "unjudged": "nonrelevant" if that is meant.': Agent.send_the_right_one,
    "Supply every document that documentIds names, or stop naming it.": Agent.send_the_right_one,
    "Stop naming the document, or restore the access; nothing was searched.": Agent.send_the_right_one,
    "Supply the pinned texts and dates.": Agent.send_the_right_one,
    "If the change is meant, send the pin as null: the answer states the new one.": Agent.nothing,
    "Figures over the two corpora are not comparable.": Agent.nothing,
    (
        "Supply the reference of the version that the workflow names, or name the version that you mean."
    ): Agent.send_the_right_one,
    (
        "Give every query the arrays hits and usable; an empty usable says that nothing is usable, an absent one is "
        "unknown."
    ): Agent.send_the_right_one,
    "Send at most 10 queries of at most 10 hits.": Agent.send_the_right_one,
    # 429, 500, 503
    (
        "Wait as long as Retry-After says, then send the identical request again, ten times at most."
    ): Agent.send_again_a_few_times,
    "Keep the key and the credential, and do not sign another.": Agent.nothing,
    (
        "Send the identical request again, once; if that fails too, give the operator the requestId."
    ): Agent.send_again_once,
    (
        "Do not sign another credential before GET /v1/attempts with the key says that nothing was charged."
    ): Agent.nothing,
    "GET /readyz says whether the service is ready.": Agent.ask_whether_it_is_ready,
    "GET /readyz names what is sold here; use the other path with a new key.": Agent.take_the_other_path,
    "Nothing is sold here any more: stop.": Agent.stop,
    ("This request was not charged, and what was bought is still delivered to the identical request."): Agent.nothing,
    # GET /v1/attempts
    "The payment is being settled.": Agent.nothing,
    ("Send the identical request again in a few seconds, for ten minutes at most."): Agent.send_again_in_a_few_seconds,
    "Paid: do not pay again.": Agent.nothing,
    (
        "Send the identical body, key and credential to fetch the answer until expiresAt; without that credential it "
        "is lost."
    ): Agent.fetch_what_is_paid,
    "Nothing was charged.": Agent.nothing,
    "The chain shows, or an operator found, that nothing was charged.": Agent.nothing,
    (
        "A new challenge may be answered under this key, or under a fresh one where this key is refused with a "
        "conflict."
    ): Agent.begin_again,
    "An operator released this payment on their own word.": Agent.nothing,
    "If your wallet shows it, stop and ask the operator.": Agent.stop_if_a_payment_shows,
    (
        "If it does not: a new challenge may be answered under this key, or under a fresh one where this key is "
        "refused with a conflict."
    ): Agent.begin_again,
    "You were charged: the chain shows this payment in the transaction that stands here.": Agent.nothing,
    "An operator released it all the same.": Agent.nothing,
    "Stop, and ask the operator to pay it back.": Agent.stop,
    "Paid, and the replay window is over.": Agent.nothing,
    "Stop: the answer is no longer delivered.": Agent.stop,
}
"""Every sentence that a `nextStep` is made of, and what the agent does then."""

TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

FORBIDS: Final = frozenset(
    sentence
    for sentence in PHRASES
    if re.search(r"do not (?:pay again|sign another)|sign nothing more", sentence, re.IGNORECASE)
)
"""The sentences after which nothing may be signed in this step."""


def sentences(text: str) -> list[str]:
    """Return the sentences of an advice."""
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def header_of(path: str) -> str:
    """Return the header in which a path takes credentials."""
    return "X-Other-Payment" if "/other/" in path else "X-Scripted-Payment"


def text_of(credential: Signed | str) -> str:
    """Return a credential as its header carries it."""
    if isinstance(credential, str):
        return credential
    (text,) = credential.header().values()
    return text
