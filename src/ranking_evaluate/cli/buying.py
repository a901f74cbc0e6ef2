"""One purchase at anybody's server, and never two.

Under one idempotency key one credential is signed. It is saved before it is sent, and sent again instead of signed
again. A second one takes the buyer's word, and then three things: the first can no longer move money, it bought no
answer, and the service itself says that nothing was charged. A status alone is no proof of that: other servers answer
402 after a payment too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from ranking_evaluate.cli import saved_credential
from ranking_evaluate.cli.exchange import (
    PAUSE_SECONDS,
    ExchangeError,
    NotSentError,
    Reply,
    UntrustedServerError,
    exchange,
    read_receipt,
)
from ranking_evaluate.cli.outcome import WORDS_LENGTH, clock, printed, unknown
from ranking_evaluate.cli.payers import PAYERS
from ranking_evaluate.cli.payers.payer import UNCLEAR, Mandate, PayError, Signed
from ranking_evaluate.cli.saved_credential import NOT_SENT, SENDING, Record, SavedCredential
from ranking_evaluate.cli.standing import NO_CHARGE, UNCERTAIN, UNDER_WAY, ask, standing_in
from ranking_evaluate.core.visible import visible

PATIENCE_SECONDS: Final = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to buy."""

    url: str
    protocol: str
    body: bytes = field(repr=False)
    key: str

    @property
    def input_sha256(self) -> str:
        """The digest of the raw input."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def headers(self) -> dict[str, str]:
        """The request headers of every try."""
        return {"Content-Type": "application/json", "Idempotency-Key": self.key}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A delivered answer, its receipt header (None when there was none), and whether it had been delivered before."""

    body: bytes = field(repr=False)
    receipt: str | None
    replayed: bool


def run_pay(
    order: Order,
    mandate: Mandate,
    *,
    state_dir: Path,
    client: httpx.Client,
    say: Callable[[str], None],
    patience: float = PATIENCE_SECONDS,
    sign_again: bool = False,
) -> Answer:
    """Make one purchase and return its answer.

    Args:
        order: What to buy.
        mandate: What may be signed for it.
        state_dir: Where is kept what was signed, sent and answered.
        client: The HTTP client; it must not follow redirects.
        say: Tells the person what happens.
        patience: Seconds for which a credential whose outcome is open is sent again.
        sign_again: Whether a new payment may be signed where the service says that the one before was not charged.

    Raises:
        PayError: There is no answer.
    """
    return _Purchase(order, mandate, state_dir, client, say, patience, sign_again).answer()


@dataclass(frozen=True, slots=True)
class _Purchase:
    order: Order
    mandate: Mandate
    state_dir: Path
    client: httpx.Client
    say: Callable[[str], None]
    patience: float
    sign_again: bool

    def answer(self) -> Answer:
        record = self._record()
        if record is None:
            return self._first()
        standing = self._standing(record)
        if standing == UNCERTAIN:
            raise PayError(
                "It is not known yet whether this purchase was charged. Do not pay again: the chain or the service's "
                "operator decides, and then the same command with the same --key says what came of it.",
                UNCLEAR,
            )
        saved = record.credential
        is_elsewhere = saved.url != self.order.url
        is_dead = saved.is_dead(time.time())
        # What another place says of the key is no reason to sign for it.
        if is_dead and not is_elsewhere:
            is_free = not record.is_answered and (standing is None or standing in NO_CHARGE)
            if is_free and (record.never_sent or (standing in NO_CHARGE and self.sign_again)):
                return self._pay(saved.number + 1)
            if standing in NO_CHARGE:
                raise PayError(
                    f"Nothing was charged: of this key the service says {standing!r}, and the payment signed before "
                    f"({saved.terms}) can no longer be used. A key that was sent is not signed for anew by itself: add "
                    "--sign-again to sign a new payment under it."
                )
        if self.sign_again and not is_elsewhere:
            self.say("Nothing new is signed: the payment signed before was answered, or may still be used or charged.")
        before = f"before for {saved.url}" if is_elsewhere else "before"
        self.say(f"Sending the credential signed {before} again ({saved.terms}); nothing new is signed.")
        # What no chain takes any more can fetch an answer, but need not be waited for.
        is_waited_for = standing in UNDER_WAY or not (is_dead or record.kept_answer() is not None)
        return self._deliver(record, self.patience if is_waited_for else 0.0)

    def _record(self) -> Record | None:
        """Return what is kept under the key, and None when this purchase is new here."""
        try:
            record = saved_credential.latest(self.state_dir, self.order.key)
        except saved_credential.UnreadableFileError as error:
            raise PayError(f"{error} Nothing is signed without knowing what was signed before.", UNCLEAR) from error
        if record is not None:
            saved = record.credential
            is_same = (saved.protocol, saved.input_sha256) == (self.order.protocol, self.order.input_sha256)
            # Who sells may move, or the release that sold it answer elsewhere: what was sent may be sent there too.
            has_moved = httpx.URL(saved.url).raw_path == httpx.URL(self.order.url).raw_path and not record.never_sent
            if not (is_same and (saved.url == self.order.url or has_moved)):
                raise PayError(
                    f"The key {saved.key} was used for another purchase (other URL, protocol or input). Nothing new "
                    "was signed. Give the URL, protocol and input of that purchase, or another --key for a new one."
                )
        return record

    def _first(self) -> Answer:
        """Pay under a key under which nothing was ever signed here."""
        try:
            reply = ask(self.client, self.order.url, self.order.key)
        except ExchangeError as error:
            raise PayError(f"{error}. Nothing was paid.") from error
        standing = standing_in(reply)
        if standing in UNDER_WAY | {UNCERTAIN}:
            raise PayError(
                f"The service has a payment under this key ({standing}), and its credential is not in "
                f"{self.state_dir}. Nothing new is signed. Run this where the first payment was made.",
                UNCLEAR,
            )
        if standing is None and (reply.response.is_server_error or reply.status == httpx.codes.TOO_MANY_REQUESTS):
            raise PayError(f"The service cannot be asked about the key now. {reply.words} Nothing was paid.")
        return self._pay(1)

    def _pay(self, number: int) -> Answer:
        """Sign what a new challenge asks for, as the credential of this number, and send it."""
        try:
            challenge = exchange(self.client, "POST", self.order.url, self.order.headers, self.order.body)
        except ExchangeError as error:
            raise PayError(f"{error}. Nothing was paid.") from error
        if challenge.response.is_success:
            if challenge.body is None:
                raise PayError(f"{challenge.words} The service asked for no payment, and nothing was paid.")
            self.say("The service asked for no payment.")
            return Answer(body=challenge.body, receipt=self._receipt(challenge), replayed=_is_replay(challenge))
        if challenge.status == httpx.codes.CONFLICT:
            # The service knows this key, and what it knows may be a payment that was made elsewhere.
            raise PayError(f"{challenge.words} Nothing new was signed. Do not pay again for this.", UNCLEAR)
        if challenge.status != httpx.codes.PAYMENT_REQUIRED:
            raise PayError(f"{challenge.words} Nothing was paid.")
        record = self._save(challenge, number)
        self.say(f"Paying {record.credential.terms}.")
        return self._deliver(record, self.patience)

    def _save(self, challenge: Reply, number: int) -> Record:
        signed = self._sign(challenge.whole)
        credential = SavedCredential(
            key=self.order.key,
            number=number,
            protocol=self.order.protocol,
            url=self.order.url,
            input_sha256=self.order.input_sha256,
            header=signed.header,
            value=signed.value,
            expires_at=signed.expires_at,
            terms=signed.terms,
        )
        try:
            return saved_credential.save(self.state_dir, credential)
        except saved_credential.AlreadySavedError as error:
            raise PayError("Another run is paying under this key. Run again with the same --key.", UNCLEAR) from error
        except OSError as error:
            raise PayError(f"The credential cannot be kept in {self.state_dir}: {error}. Nothing was paid.") from error

    def _sign(self, challenge: httpx.Response) -> Signed:
        wanted = PAYERS[self.order.protocol]
        offering = [payer.wire for payer in PAYERS.values() if payer.wire.offers(challenge.headers)]
        if offering and wanted.wire not in offering:
            others = " or ".join(f"{wire.title}: --protocol {wire.name}" for wire in offering)
            raise PayError(f"The 402 has no {wanted.wire.title} offer, but one over {others}. Nothing was paid.")
        return wanted.sign(challenge, self.mandate)

    def _deliver(self, record: Record, patience: float) -> Answer:
        """Send the credential, the same one as often as it takes, and return the answer it buys."""
        deadline = time.monotonic() + patience
        while True:
            pause = PAUSE_SECONDS
            try:
                reply = self._send(record)
            except ExchangeError as error:
                trouble = f"{error}."
                if isinstance(error, UntrustedServerError):
                    deadline = 0.0
            else:
                if reply.response.is_success and reply.body is not None:
                    return self._bought(reply.body, reply)
                trouble = self._trouble(reply)
                if not _may_change(reply) and record.kept_answer() is None:
                    raise self._refused(record, reply, trouble)
                pause = reply.pause
            if time.monotonic() + pause > deadline:
                kept = record.kept_answer()
                if kept is not None:
                    self.say(f"{trouble} This key was paid and answered before; here is the answer that was kept then.")
                    return Answer(body=kept, receipt=record.receipt, replayed=True)
                raise unknown(record, trouble)
            self.say(f"{trouble} Sending the same credential again in {pause:.0f} s.")
            time.sleep(pause)

    def _send(self, record: Record) -> Reply:
        """Send the credential once, and return the answer; both are noted."""
        try:
            record.note(SENDING)
        except OSError as error:
            raise unknown(record, f"{record.path} cannot be written ({error}), so nothing is sent.") from error
        saved = record.credential
        headers = {**self.order.headers, saved.header: saved.value}
        try:
            reply = exchange(self.client, "POST", self.order.url, headers, self.order.body)
        except NotSentError as error:
            why = str(error)
            self._note(lambda: record.note(NOT_SENT, why=why))
            raise
        bought = reply.body if reply.response.is_success else None
        self._note(lambda: record.note_answer(reply.status, self._receipt(reply), bought))
        return reply

    def _note(self, note: Callable[[], None]) -> None:
        try:
            note()
        except OSError as error:
            self.say(f"What came of it cannot be written into {self.state_dir}: {error}.")

    def _bought(self, body: bytes, reply: Reply) -> Answer:
        receipt = self._receipt(reply)
        if receipt is None:
            self.say("The answer came without a receipt; the payment that was sent for it may have been taken.")
        return Answer(body=body, receipt=receipt, replayed=_is_replay(reply))

    def _refused(self, record: Record, reply: Reply, trouble: str) -> PayError:
        """Return what to say of an answer that will not become the wanted one by waiting."""
        if reply.status == httpx.codes.CONFLICT:
            return PayError(f"{trouble} Do not pay again for this.", UNCLEAR)
        standing = self._standing(record)
        if standing is not None and standing not in NO_CHARGE:
            trouble += f" Of this key the service says {standing!r}."
        if standing in NO_CHARGE:
            until = clock(record.credential.expires_at)
            return PayError(
                f"{trouble} Nothing was charged: of this key the service says {standing!r}. The same --key sends this "
                f"credential again until {until}; a new one is signed only with --sign-again, when this one can no "
                "longer be used."
            )
        return unknown(record, trouble)

    def _standing(self, record: Record) -> str | None:
        """Return what the service says of the key, and None when it says nothing that can be relied on.

        What its receipts say of a payment, no later word of it takes back.
        """
        if record.is_answered or any(map(self._tells_of_payment, record.receipts)):
            return None
        try:
            return standing_in(ask(self.client, self.order.url, self.order.key))
        except ExchangeError:
            return None

    def _tells_of_payment(self, receipt: str) -> bool:
        facts = PAYERS[self.order.protocol].facts(read_receipt(receipt))
        return facts.success or bool(facts.transaction)

    def _receipt(self, reply: Reply) -> str | None:
        receipt: str | None = reply.response.headers.get(PAYERS[self.order.protocol].wire.receipt_header)
        return receipt

    def _trouble(self, reply: Reply) -> str:
        """Return the server's own words: those of its body, its receipt, and the reason in its challenge."""
        wire = PAYERS[self.order.protocol].wire
        words = reply.words
        receipt = self._receipt(reply)
        if receipt is not None:
            words += f" Its receipt says {printed(receipt)}."
        reason = read_receipt(reply.response.headers.get(wire.challenge_header, "")).get("error")
        if isinstance(reason, str) and reason and "error" not in reply.problem:
            words += f" Its challenge says {visible(reason[:WORDS_LENGTH])!r}."
        return words


def _may_change(reply: Reply) -> bool:
    """Return whether the same request may be answered better a little later."""
    if reply.status == httpx.codes.CONFLICT:
        return bool(reply.problem.get("code") == "PAYMENT_IN_PROGRESS")
    passing = {httpx.codes.TOO_MANY_REQUESTS, httpx.codes.REQUEST_TIMEOUT}
    return reply.response.is_server_error or reply.status in passing or (reply.response.is_success and reply.broken)


def _is_replay(reply: Reply) -> bool:
    return bool(reply.response.headers.get("Idempotent-Replayed") == "true")
