"""Every kind of Tempo wallet through the whole service, on a real chain: what pays, and what is a definite 402.

The official client pays with each kind in `tests/judges/test_wallets.py`; here are those that cheat, err or are poor.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
import rlp  # type: ignore[import-untyped]
from mpp import Challenge

from ranking_evaluate.sandbox.tempo import CHAIN_ID, PATH_USD
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.faults.served import Served, served
from tests.faults.tempo_proxy import Fault, Tempo, running_tempo
from tests.faults.told import REJECTED, SOLD, UNKNOWN
from tests.payments import mpp_buyer as buyer
from tests.payments import tempo_wallet as tempo
from tests.payments.mpp_shopper import PRICE, Shopper, slug, told
from tests.payments.tempo_wallet import KINDS, P256_ORDER, Key, TempoWallet

RICH: Final = 1_000_000
SECOND: Final = "0x20c0000000000000000000000000000000000001"
DUPLICATE: Final = (409, "DUPLICATE_PROOF")
SECP256K1_ORDER: Final = 2 * buyer.HALF_ORDER + 1


@dataclass
class Stage:
    service: Served
    tempo: Tempo

    @property
    def recipient(self) -> str:
        return self.service.mpp.recipient

    @property
    def moved(self) -> int:
        """Payments that reached the service, ever."""
        return self.tempo.chain.balance(self.recipient) // PRICE

    def shopper(self) -> Shopper:
        return Shopper(self.service.client, new_wallet())

    def account(self, kind: str = "secp256k1", held: int = RICH) -> Key:
        """Return a new account that holds this much."""
        key = Key(kind)
        if held:
            self.tempo.chain.fund(key.account, held)
        return key

    def wallet(self, kind: str = "secp256k1", access: str = "p256", **authorization: Any) -> TempoWallet:
        """Return a rich wallet whose access key the chain knows, within these bounds."""
        wallet = TempoWallet(self.account(kind), Key(access))
        limits = {"limit": RICH, **authorization}
        # A transfer to oneself, past the service, carries the authorization.
        data = f"0xa9059cbb{wallet.account.account[2:].rjust(64, '0')}{1:064x}"
        fields = tempo.call(PATH_USD, data, wallet.authorization(**limits))
        tempo.send(TempoWallet(wallet.account).sign(fields), self.tempo.proxy.url)
        return wallet

    @contextlib.contextmanager
    def moving(self, payments: int, sends: int | None = None) -> Iterator[None]:
        """Hold the block to the payments that it makes, and to the transactions that it sends."""
        before, sent = self.moved, self.tempo.proxy.sends
        yield
        sends = payments if sends is None else sends
        assert (self.moved - before, self.tempo.proxy.sends - sent) == (payments, sends)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running_tempo() as chain:
        environment = {
            "MPP_RECIPIENT": new_wallet().address,
            "MPP_CHAIN_ID": str(CHAIN_ID),
            "MPP_RPC_URL": chain.proxy.url,
            "MPP_CURRENCY": PATH_USD,
            "MPP_SECRET_KEY": secrets.token_urlsafe(48),
            "VERIFY_TIMEOUT": "10",
            "SETTLE_TIMEOUT": "15",
        }
        with served(tmp_path_factory.mktemp("wallets") / "attempts.db", environment) as service:
            yield Stage(service, chain)


@pytest.fixture
def stage(opened: Stage) -> Iterator[Stage]:
    opened.tempo.proxy.reset()
    yield opened
    opened.tempo.proxy.reset()


def refused(stage: Stage, shopper: Shopper, credential: str) -> httpx.Response:
    """Return the 402 of a credential that must move nothing and leave nothing behind."""
    with stage.moving(0):
        answer = shopper.post(credential)
    assert told(answer) == REJECTED, answer.text
    assert shopper.state() is None
    return answer


def reason(answer: httpx.Response) -> str:
    return str(answer.json()["detail"])


# What pays


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_of_every_kind_pays_and_is_replayed(stage: Stage, kind: str) -> None:
    shopper = stage.shopper()
    credential = TempoWallet(stage.account(kind)).pay(shopper.challenge())
    with stage.moving(1):
        first, again = shopper.post(credential), shopper.post(credential)
    assert told(first) == told(again) == SOLD
    assert again.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("bounds", ["none", "expiry", "limit", "scope", "all"])
def test_a_first_payment_within_its_bounds_pays_and_the_next_one_too(stage: Stage, bounds: str) -> None:
    every = {"expiry": buyer.in_seconds(600), "limit": RICH, "scopes": tempo.transfers_to(stage.recipient)}
    named = {"expiry": ["expiry"], "limit": ["limit"], "scope": ["scopes"], "all": list(every), "none": []}[bounds]
    wallet = TempoWallet(stage.account("passkey"), Key("webcrypto"))
    authorized = wallet.authorization(**{name: every[name] for name in named})
    first, next_one = stage.shopper(), stage.shopper()
    with stage.moving(2):
        assert told(first.post(wallet.pay(first.challenge(), authorized, gas_limit=4_000_000))) == SOLD
        assert told(next_one.post(wallet.pay(next_one.challenge()))) == SOLD


# Signatures


def parts(header: str) -> tuple[Challenge, list[Any], bytes]:
    """Return the challenge, the fields and the signature of a credential."""
    from mpp import Credential

    signed = Credential.from_authorization(header)
    fields = rlp.decode(bytes.fromhex(signed.payload["signature"][4:]))
    return signed.challenge, fields[:-1], fields[-1]  # type: ignore[return-value]


def resigned(challenge: str, header: str, signature: bytes) -> str:
    issued = Challenge.from_www_authenticate(challenge)
    raw = tempo.envelope(parts(header)[1], signature)
    return buyer.present(issued, {"type": "transaction", "signature": raw})


@pytest.fixture(scope="module")
def known(opened: Stage) -> dict[str, TempoWallet]:
    """Wallets that pay: each kind of account alone, and each kind of access key."""
    alone = {kind: TempoWallet(opened.account(kind)) for kind in KINDS}
    return {**alone, **{f"{kind} for another": opened.wallet(access=kind) for kind in KINDS}}


EVERY: Final = (*KINDS, *(f"{kind} for another" for kind in KINDS))


@pytest.mark.parametrize("name", EVERY)
def test_a_flipped_bit_anywhere_in_a_signature_is_refused(
    stage: Stage, known: dict[str, TempoWallet], name: str
) -> None:
    shopper = stage.shopper()
    challenge = shopper.challenge()
    good = known[name].pay(challenge)
    signature = parts(good)[2]
    for place in {*range(0, len(signature), max(1, len(signature) // 8)), len(signature) - 1}:
        flipped = signature[:place] + bytes([signature[place] ^ 4]) + signature[place + 1 :]
        refused(stage, shopper, resigned(challenge, good, flipped))
    with stage.moving(1):
        assert told(shopper.post(good)) == SOLD


@pytest.mark.parametrize("name", EVERY)
def test_the_higher_s_is_refused(stage: Stage, known: dict[str, TempoWallet], name: str) -> None:
    shopper = stage.shopper()
    challenge = shopper.challenge()
    good = known[name].pay(challenge)
    signature = parts(good)[2]
    is_secp = name.startswith("secp256k1")
    at = len(signature) - (33 if is_secp else 96 if name.startswith("passkey") else 97)
    order = SECP256K1_ORDER if is_secp else P256_ORDER
    high = (order - int.from_bytes(signature[at : at + 32], "big")).to_bytes(32, "big")
    mirrored = signature[:at] + high + signature[at + 32 :]
    if is_secp:
        mirrored = mirrored[:-1] + bytes([55 - signature[-1]])
    answer = refused(stage, shopper, resigned(challenge, good, mirrored))
    assert slug(answer) == "malformed-credential"


@pytest.mark.parametrize("name", ["p256", "webcrypto", "p256 for another", "webcrypto for another"])
def test_the_byte_of_the_hash_of_the_hash_is_0_or_1(stage: Stage, known: dict[str, TempoWallet], name: str) -> None:
    shopper = stage.shopper()
    challenge = shopper.challenge()
    good = known[name].pay(challenge)
    signature = parts(good)[2]
    for byte in range(2, 256):
        answer = shopper.post(resigned(challenge, good, signature[:-1] + bytes([byte])))
        assert (told(answer), slug(answer)) == (REJECTED, "malformed-credential"), byte
    assert shopper.state() is None


def test_older_and_unknown_kinds_of_signatures_are_refused(stage: Stage, known: dict[str, TempoWallet]) -> None:
    shopper = stage.shopper()
    challenge = shopper.challenge()
    good = known["secp256k1 for another"].pay(challenge)
    signature = parts(good)[2]
    for kind, words in ((3, "sign with version 2"), (5, "of no kind that is taken")):
        answer = refused(stage, shopper, resigned(challenge, good, bytes([kind]) + signature[1:]))
        assert words in reason(answer)


# Access keys that the chain knows


def test_a_rich_account_that_is_named_by_an_unknown_key_pays_nothing(stage: Stage) -> None:
    for account, access in (("secp256k1", "p256"), ("passkey", "secp256k1")):
        shopper = stage.shopper()
        stranger = TempoWallet(stage.account(account), Key(access))
        answer = refused(stage, shopper, stranger.pay(shopper.challenge()))
        assert "has not authorized this access key" in reason(answer)


def test_a_key_that_was_revoked_after_it_signed_pays_nothing(stage: Stage) -> None:
    wallet, shopper = stage.wallet(), stage.shopper()
    credential = wallet.pay(shopper.challenge())
    assert wallet.access is not None
    revoke = f"0x5ae7ab32{wallet.access.account[2:].rjust(64, '0')}"
    tempo.call_keychain(wallet.account, revoke, stage.tempo.proxy.url)
    stage.tempo.proxy.reset()
    assert "has revoked this access key" in reason(refused(stage, shopper, credential))
    # And nothing makes it new again.
    fresh = stage.shopper()
    again = wallet.pay(fresh.challenge(), wallet.authorization(limit=RICH))
    assert "knows the access key already" in reason(refused(stage, fresh, again))


def test_a_key_that_ends_too_early_pays_nothing(stage: Stage) -> None:
    wallet, shopper = stage.wallet(expiry=buyer.in_seconds(12)), stage.shopper()
    challenge = shopper.challenge()
    # It may pay as long as the transaction ends before it.
    answer = refused(stage, shopper, wallet.pay(challenge))
    assert "the access key ends before the transaction does" in reason(answer)
    with stage.moving(1):
        assert told(shopper.post(wallet.pay(challenge, valid_before=buyer.in_seconds(8)))) == SOLD
    time.sleep(10)
    late = stage.shopper()
    assert "ends before" in reason(refused(stage, late, wallet.pay(late.challenge(), valid_before=buyer.in_seconds(8))))


def test_a_limit_must_hold_the_price_and_the_gas(stage: Stage) -> None:
    # A million gas at 20 gwei may cost 20,000 base units.
    needed = PRICE + 20_000
    for limit in (0, PRICE, needed - 1):
        shopper = stage.shopper()
        answer = refused(stage, shopper, stage.wallet(limit=limit).pay(shopper.challenge()))
        assert (slug(answer), "may not spend" in reason(answer)) == ("payment-insufficient", True), limit
    shopper, wallet = stage.shopper(), stage.wallet(limit=needed)
    with stage.moving(1):
        assert told(shopper.post(wallet.pay(shopper.challenge()))) == SOLD


def test_a_key_pays_what_it_was_scoped_for_and_nothing_else(stage: Stage) -> None:
    ours = stage.wallet(scopes=tempo.transfers_to(stage.recipient))
    good = stage.shopper()
    with stage.moving(1):
        assert told(good.post(ours.pay(good.challenge()))) == SOLD
    for scope in UNFIT:
        shopper = stage.shopper()
        wallet = stage.wallet(scopes=[*tempo.transfers_to(new_wallet().address, "a9059cbb"), *scope(stage.recipient)])
        assert "may not call transferWithMemo" in reason(refused(stage, shopper, wallet.pay(shopper.challenge())))


UNFIT: Final[tuple[Callable[[str], list[Any]], ...]] = (
    lambda recipient: [],
    lambda recipient: tempo.transfers_to(recipient, token=SECOND),
)


# New keys


def with_end(inner: list[Any]) -> list[Any]:
    """Return the fields of an authorization filled up to its limits."""
    return [*inner, *[b""] * (5 - len(inner))]


ALLOWED: Final = bytes.fromhex(PATH_USD[2:])

UNUSABLE: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a limit below the price": ({"limit": PRICE - 1}, "may not spend the price and the gas"),
    "a limit below the price and the gas": ({"limit": PRICE + 1}, "may not spend the price and the gas"),
    "no limit for this token": (
        {"inner": lambda inner: [*inner, b"", [[bytes(19) + b"\1", b"\xff\xff\xff"]]]},
        "may not spend the price and the gas",
    ),
    "limits that allow nothing": ({"inner": lambda inner: [*inner, b"", []]}, "may not spend the price and the gas"),
    "another chain": ({"chain_id": 4217}, "it is for another chain"),
    "any chain": ({"chain_id": 0}, "it is for another chain"),
    "an end before the transaction's": ({"expiry": 5}, "ends before the transaction does"),
    "another function": ({"scopes": tempo.transfers_to("0x" + "11" * 20, "a9059cbb")}, "may not call transferWithMemo"),
    "another recipient": ({"scopes": tempo.transfers_to("0x" + "11" * 20)}, "may not call transferWithMemo"),
    "no call at all": ({"scopes": []}, "may not call transferWithMemo"),
    "an empty field at its end": ({"inner": lambda inner: [*inner, b""]}, "not in its canonical form"),
    "two empty fields at its end": ({"inner": lambda inner: [*inner, b"", b""]}, "not in its canonical form"),
    "a kind of one zero byte": ({"inner": lambda inner: [inner[0], b"\0", *inner[2:]]}, "not an integer"),
    "a chain with a leading zero": ({"inner": lambda inner: [b"\0" + inner[0], *inner[1:]]}, "not an integer"),
    "a period of zero": (
        {"inner": lambda inner: [*inner, b"", [[ALLOWED, b"\xff\xff\xff", b""]]]},
        "not in its canonical form",
    ),
    "a token that is limited twice": (
        {"inner": lambda inner: [*inner, b"", [[ALLOWED, b"\xff\xff\xff"]] * 2]},
        "limits a token twice",
    ),
    "an unknown kind of key": ({"inner": lambda inner: [inner[0], b"\3", *inner[2:]]}, "malformed-credential"),
    "a witness": ({"inner": lambda inner: [*with_end(inner), b"", b"\1" * 32]}, "a witness"),
    "the mark of an admin key": ({"inner": lambda inner: [*with_end(inner), b"", b"", b"\1"]}, "an admin key"),
    "a bound account": ({"inner": lambda inner: [*with_end(inner), b"", b"", b"", bytes(20)]}, "a bound account"),
    "more than is known": ({"inner": lambda inner: [*with_end(inner), *[b"\1"] * 5]}, "a witness"),
    "too few fields": ({"inner": lambda inner: inner[:2]}, "not whole"),
    "a recovery id of 0 or 1": ({"sign": lambda made: made[:-1] + bytes([made[-1] - 27])}, "27 or 28"),
    "the higher s": ({"sign": buyer.mirrored}, "canonical"),
    "no signature": ({"sign": lambda made: b""}, "malformed-credential"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_authorization_that_cannot_be_used_is_refused(stage: Stage, case: str) -> None:
    changes, words = UNUSABLE[case]
    wallet, shopper = TempoWallet(stage.account(), Key("secp256k1")), stage.shopper()
    given = {**changes, "expiry": buyer.in_seconds(changes["expiry"])} if "expiry" in changes else changes
    credential = wallet.pay(shopper.challenge(), wallet.authorization(**given))
    assert words in reason(refused(stage, shopper, credential))


def test_an_authorization_must_be_the_accounts_for_the_very_key_that_signs(stage: Stage) -> None:
    account, stranger = stage.account(), stage.account()
    for kind in KINDS:
        wallet, shopper = TempoWallet(account, Key(kind)), stage.shopper()
        assert wallet.access is not None
        challenge = shopper.challenge()
        of_another = tempo.authorization(account, Key(kind))
        by_another = tempo.authorization(stranger, wallet.access)
        by_itself = tempo.authorization(wallet.access, wallet.access)
        assert "another key than the one that signed" in reason(
            refused(stage, shopper, wallet.pay(challenge, of_another))
        )
        for one in (by_another, by_itself):
            assert "not signed by the account's own key" in reason(refused(stage, shopper, wallet.pay(challenge, one)))
        # The account's own key needs no authorization, and carries none for another key.
        alone = TempoWallet(account).pay(challenge, wallet.authorization())
        assert "another key than the one that signed" in reason(refused(stage, shopper, alone))
    # The kind belongs to the key: P-256 and a passkey have the same address for the same point.
    point = Key("p256")
    as_passkey = TempoWallet(account, Key("passkey", point.secret))
    shopper = stage.shopper()
    mixed = as_passkey.pay(shopper.challenge(), tempo.authorization(account, point))
    assert "another key than the one that signed" in reason(refused(stage, shopper, mixed))


@pytest.mark.parametrize("field", [b"", [], [b""], [[], b"", b""], [b"", b""]], ids=str)
def test_what_is_no_authorization_is_malformed(stage: Stage, field: Any) -> None:
    wallet, shopper = TempoWallet(stage.account(), Key("p256")), stage.shopper()
    answer = refused(stage, shopper, wallet.pay(shopper.challenge(), field))
    assert slug(answer) == "malformed-credential"


def test_an_access_key_pays_and_does_nothing_beside(stage: Stage) -> None:
    wallet, shopper = stage.wallet(), stage.shopper()
    issued = Challenge.from_www_authenticate(challenge := shopper.challenge())
    fields = tempo.payment(issued)
    fields[4] = [fields[4][0], fields[4][0]]
    credential = buyer.present(issued, {"type": "transaction", "signature": wallet.sign(fields)})
    assert "must hold the payment alone" in reason(refused(stage, shopper, credential))
    with stage.moving(1):
        assert told(shopper.post(wallet.pay(challenge))) == SOLD


def test_of_two_first_payments_with_one_authorization_one_is_paid_and_the_other_told_so(stage: Stage) -> None:
    wallet = TempoWallet(stage.account("passkey"), Key("webcrypto"))
    authorized = wallet.authorization(limit=RICH)
    first, second = stage.shopper(), stage.shopper()
    signed = {shopper.key: wallet.pay(shopper.challenge(), authorized) for shopper in (first, second)}
    stage.tempo.proxy.fault = Fault.SEND_HELD
    with stage.moving(1), ThreadPoolExecutor(1) as thread:
        paying = thread.submit(first.post, signed[first.key])
        assert stage.tempo.proxy.held.wait(5)
        for _ in range(2):
            answer = second.post(signed[second.key])
            assert (told(answer), answer.json()["cause"]) == (DUPLICATE, "key-authorization")
        assert second.state() is None
        stage.tempo.proxy.fault = Fault.NONE
        stage.tempo.proxy.release()
        assert told(paying.result(20)) == SOLD
    assert told(second.post(signed[second.key])) == DUPLICATE
    with stage.moving(1):
        assert told(second.post(wallet.pay(second.challenge()))) == SOLD


def test_twenty_first_payments_at_once_move_money_once(stage: Stage) -> None:
    wallet = TempoWallet(stage.account(), Key("p256"))
    authorized = wallet.authorization(limit=RICH)
    shoppers = [stage.shopper() for _ in range(20)]
    signed = [wallet.pay(shopper.challenge(), authorized) for shopper in shoppers]
    together = threading.Barrier(20)

    def buy(shopper: Shopper, credential: str) -> tuple[int, str | None]:
        together.wait(20)
        return told(shopper.post(credential))

    with stage.moving(1), ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(buy, shoppers, signed))
    assert sorted(answers, key=str) == sorted([SOLD, *[DUPLICATE] * 19], key=str)


def test_what_comes_to_nothing_gives_the_authorization_back(stage: Stage) -> None:
    """The node is asked for its word about a first payment, and has none: the authorization is as new as before."""
    wallet = TempoWallet(stage.account(), Key("p256"))
    authorized = wallet.authorization(limit=RICH)
    first, second = stage.shopper(), stage.shopper()
    credential = wallet.pay(first.challenge(), authorized)
    stage.tempo.proxy.fault = Fault.DOWN
    assert told(first.post(credential)) == (503, "PAYMENT_UNAVAILABLE")
    stage.tempo.proxy.fault = Fault.NONE
    with stage.moving(1):
        assert told(second.post(wallet.pay(second.challenge(), authorized))) == SOLD
        assert told(first.post(credential)) == DUPLICATE


# Clients that are older, and those that hold another token


def test_a_client_that_repeats_the_opaque_data_as_an_object_pays(stage: Stage) -> None:
    """So do mppx before 0.6.4 and the clients that bundle it."""
    shopper = stage.shopper()
    credential = TempoWallet(stage.account()).pay(shopper.challenge())
    document = json.loads(base64.urlsafe_b64decode(credential.split()[1] + "=="))
    opaque = json.loads(base64.urlsafe_b64decode(document["challenge"]["opaque"] + "=="))
    assert opaque["idempotencyKey"] == shopper.key

    def older(said: object) -> str:
        changed = {**document, "challenge": {**document["challenge"], "opaque": said}}
        return "Payment " + base64.urlsafe_b64encode(json.dumps(changed).encode()).decode()

    assert slug(refused(stage, shopper, older({**opaque, "more": "x"}))) == "invalid-challenge"
    assert slug(refused(stage, shopper, older({**opaque, "more": 1}))) == "malformed-credential"
    assert slug(refused(stage, shopper, older([opaque]))) == "malformed-credential"
    with stage.moving(1):
        first = shopper.post(older(dict(reversed(opaque.items()))))
        again = shopper.post(credential)
    assert told(first) == told(again) == SOLD
    assert again.headers["idempotent-replayed"] == "true"


# Poor wallets, and what decides nothing


@pytest.mark.parametrize("fee_token", [PATH_USD, None], ids=["fee token", "no fee token"])
@pytest.mark.parametrize("held", [0, PRICE - 1, PRICE, PRICE + 19_000])
def test_a_wallet_that_holds_too_little_is_told_so(stage: Stage, held: int, fee_token: str | None) -> None:
    for wallet in (TempoWallet(stage.account("p256", held)), TempoWallet(stage.account("passkey", held))):
        shopper = stage.shopper()
        refused(stage, shopper, wallet.pay(shopper.challenge(), fee_token=fee_token))


def test_a_transaction_for_too_long_is_told_so(stage: Stage) -> None:
    wallet, shopper = TempoWallet(stage.account()), stage.shopper()
    credential = wallet.pay(shopper.challenge(), valid_before=buyer.in_seconds(120))
    assert "valid for so long" in reason(refused(stage, shopper, credential))


def test_a_self_made_transaction_with_our_memo_that_pays_its_sender_makes_no_row(stage: Stage) -> None:
    """It was enough to be sent, and its row could be ended by force alone."""
    account = stage.account()
    shopper = stage.shopper()
    issued = Challenge.from_www_authenticate(shopper.challenge())
    raw = TempoWallet(account).sign(tempo.payment(issued, recipient=account.account))
    tempo.send(raw, stage.tempo.chain.chain.rpc)
    calls = len(stage.tempo.proxy.calls)
    answer = refused(stage, shopper, buyer.present(issued, {"type": "transaction", "signature": raw}))
    assert "does not make the payment that is asked" in reason(answer)
    assert len(stage.tempo.proxy.calls) == calls


def test_a_payment_that_was_sent_past_us_is_uncertain_and_the_chain_decides(stage: Stage) -> None:
    wallet, shopper = TempoWallet(stage.account("passkey")), stage.shopper()
    issued = Challenge.from_www_authenticate(challenge := shopper.challenge())
    raw = wallet.sign(tempo.payment(issued))
    assert challenge
    tempo.send(raw, stage.tempo.chain.chain.rpc)
    with stage.moving(0, sends=0):
        assert told(shopper.post(buyer.present(issued, {"type": "transaction", "signature": raw}))) == UNKNOWN
