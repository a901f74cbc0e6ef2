"""The token moves money once per authorization, and refuses in the words that the x402 SDK knows."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest
from eth_account import Account
from web3.exceptions import ContractLogicError

from ranking_evaluate.sandbox.anvil import start_anvil
from ranking_evaluate.sandbox.token import artifact, deploy_token
from ranking_evaluate.sandbox.wallets import new_wallet

if TYPE_CHECKING:
    from ranking_evaluate.sandbox import Wallet
    from ranking_evaluate.sandbox.processes import Processes
    from ranking_evaluate.sandbox.token import Token

HALF_ORDER_PLUS = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
FAR_FUTURE = 2**40


@dataclass(frozen=True)
class Authorization:
    payer: Wallet
    payee: str
    amount: int = 10_000
    valid_after: int = 0
    valid_before: int = FAR_FUTURE
    nonce: bytes = b""

    def message(self) -> dict[str, Any]:
        return {
            "from": self.payer.address,
            "to": self.payee,
            "value": self.amount,
            "validAfter": self.valid_after,
            "validBefore": self.valid_before,
            "nonce": self.nonce,
        }


def sign(token: Token, authorization: Authorization) -> tuple[int, bytes, bytes]:
    fields = {
        "from": "address",
        "to": "address",
        "value": "uint256",
        "validAfter": "uint256",
        "validBefore": "uint256",
        "nonce": "bytes32",
    }
    signed = Account.from_key(authorization.payer.key).sign_typed_data(
        domain_data={
            "name": token.name,
            "version": token.version,
            "chainId": token.chain.chain_id,
            "verifyingContract": token.address,
        },
        message_types={"TransferWithAuthorization": [{"name": n, "type": t} for n, t in fields.items()]},
        message_data=authorization.message(),
    )
    return signed.v, signed.r.to_bytes(32, "big"), signed.s.to_bytes(32, "big")


def submit(token: Token, authorization: Authorization, signature: tuple[int, bytes, bytes]) -> None:
    token.send("transferWithAuthorization", *authorization.message().values(), *signature)


@pytest.fixture(scope="module")
def token(processes: Processes) -> Token:
    return deploy_token(start_anvil(processes))


@pytest.fixture
def authorization(token: Token) -> Authorization:
    payer = new_wallet()
    token.mint(payer.address, 25_000)
    return Authorization(payer, new_wallet().address, nonce=secrets.token_bytes(32))


def test_an_authorization_moves_its_amount_once(token: Token, authorization: Authorization) -> None:
    signature = sign(token, authorization)
    assert not token.is_used(authorization.payer.address, authorization.nonce)
    submit(token, authorization, signature)
    assert token.balance(authorization.payer.address) == 15_000
    assert token.balance(authorization.payee) == 10_000
    assert token.is_used(authorization.payer.address, authorization.nonce)
    with pytest.raises(ContractLogicError, match="FiatTokenV2: authorization is used or canceled"):
        submit(token, authorization, signature)
    assert token.balance(authorization.payee) == 10_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"valid_before": 1}, "FiatTokenV2: authorization is expired"),
        ({"valid_after": FAR_FUTURE - 1}, "FiatTokenV2: authorization is not yet valid"),
        ({"amount": 25_001}, "ERC20: transfer amount exceeds balance"),
        ({"payee": "0x" + "00" * 20}, "ERC20: transfer to the zero address"),
    ],
)
def test_what_cannot_be_moved_is_refused_in_known_words(
    token: Token, authorization: Authorization, changes: dict[str, Any], words: str
) -> None:
    changed = replace(authorization, **changes)
    with pytest.raises(ContractLogicError, match=words):
        submit(token, changed, sign(token, changed))
    assert token.balance(authorization.payer.address) == 25_000
    assert not token.is_used(authorization.payer.address, authorization.nonce)


def test_a_signature_for_other_terms_is_refused(token: Token, authorization: Authorization) -> None:
    signature = sign(token, authorization)
    with pytest.raises(ContractLogicError, match="FiatTokenV2: invalid signature"):
        submit(token, replace(authorization, amount=10_001), signature)


def test_a_signature_that_recovers_to_nobody_is_refused(token: Token, authorization: Authorization) -> None:
    _, r, s = sign(token, authorization)
    with pytest.raises(ContractLogicError, match="FiatTokenV2: invalid signature"):
        submit(token, authorization, (5, r, s))


def test_the_mirrored_form_of_a_good_signature_is_refused(token: Token, authorization: Authorization) -> None:
    v, r, s = sign(token, authorization)
    mirrored = (HALF_ORDER_PLUS - int.from_bytes(s, "big")).to_bytes(32, "big")
    with pytest.raises(ContractLogicError, match="ECRecover: invalid signature 's' value"):
        submit(token, authorization, (27 + 28 - v, r, mirrored))


def test_a_canceled_authorization_moves_nothing(token: Token, authorization: Authorization) -> None:
    domain = {
        "name": token.name,
        "version": token.version,
        "chainId": token.chain.chain_id,
        "verifyingContract": token.address,
    }
    canceled = Account.from_key(authorization.payer.key).sign_typed_data(
        domain_data=domain,
        message_types={
            "CancelAuthorization": [{"name": "authorizer", "type": "address"}, {"name": "nonce", "type": "bytes32"}]
        },
        message_data={"authorizer": authorization.payer.address, "nonce": authorization.nonce},
    )
    r, s = canceled.r.to_bytes(32, "big"), canceled.s.to_bytes(32, "big")
    token.send("cancelAuthorization", authorization.payer.address, authorization.nonce, canceled.v, r, s)
    with pytest.raises(ContractLogicError, match="FiatTokenV2: authorization is used or canceled"):
        submit(token, authorization, sign(token, authorization))


def test_the_compiled_token_is_of_this_source() -> None:
    source = resources.files("ranking_evaluate.sandbox").joinpath("token3009.vy").read_bytes()
    assert artifact()["sourceSha256"] == hashlib.sha256(source).hexdigest()
