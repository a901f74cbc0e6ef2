# pragma version 0.4.3
"""
@title Sandbox dollar: a six-decimal EIP-20 token with EIP-3009 transfers
@notice For local chains only: anybody may mint. It refuses in the words of USDC, because the x402 SDK tells the
    reasons apart by those words. Vyper has no overloading, so `transferWithAuthorization` exists in its (v, r, s) form
    alone: the form that externally owned accounts need.
"""

event Transfer:
    sender: indexed(address)
    receiver: indexed(address)
    amount: uint256

event AuthorizationUsed:
    authorizer: indexed(address)
    nonce: indexed(bytes32)

event AuthorizationCanceled:
    authorizer: indexed(address)
    nonce: indexed(bytes32)

name: public(constant(String[14])) = "Sandbox Dollar"
symbol: public(constant(String[4])) = "SBXD"
version: public(constant(String[1])) = "1"
decimals: public(constant(uint8)) = 6

totalSupply: public(uint256)
balanceOf: public(HashMap[address, uint256])
authorizationState: public(HashMap[address, HashMap[bytes32, bool]])

DOMAIN_TYPEHASH: constant(bytes32) = keccak256(
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
TRANSFER_WITH_AUTHORIZATION_TYPEHASH: public(constant(bytes32)) = keccak256(
    "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)
CANCEL_AUTHORIZATION_TYPEHASH: public(constant(bytes32)) = keccak256(
    "CancelAuthorization(address authorizer,bytes32 nonce)"
)
# Half the order of secp256k1: of the two valid `s` of a signature, only the lower one counts.
HIGHEST_S: constant(uint256) = 57896044618658097711785492504343953926418782139537452191302581570759080747168


@external
def mint(to: address, amount: uint256):
    self.totalSupply += amount
    self.balanceOf[to] += amount
    log Transfer(sender=empty(address), receiver=to, amount=amount)


@external
def transfer(to: address, amount: uint256) -> bool:
    self._move(msg.sender, to, amount)
    return True


@external
def transferWithAuthorization(
    authorizer: address,
    to: address,
    amount: uint256,
    valid_after: uint256,
    valid_before: uint256,
    nonce: bytes32,
    v: uint8,
    r: bytes32,
    s: bytes32,
):
    assert block.timestamp > valid_after, "FiatTokenV2: authorization is not yet valid"
    assert block.timestamp < valid_before, "FiatTokenV2: authorization is expired"
    self._spend(
        authorizer,
        nonce,
        keccak256(
            abi_encode(
                TRANSFER_WITH_AUTHORIZATION_TYPEHASH, authorizer, to, amount, valid_after, valid_before, nonce
            )
        ),
        v,
        r,
        s,
    )
    log AuthorizationUsed(authorizer=authorizer, nonce=nonce)
    self._move(authorizer, to, amount)


@external
def cancelAuthorization(authorizer: address, nonce: bytes32, v: uint8, r: bytes32, s: bytes32):
    self._spend(authorizer, nonce, keccak256(abi_encode(CANCEL_AUTHORIZATION_TYPEHASH, authorizer, nonce)), v, r, s)
    log AuthorizationCanceled(authorizer=authorizer, nonce=nonce)


@external
@view
def DOMAIN_SEPARATOR() -> bytes32:
    return self._domain_separator()


@internal
@view
def _domain_separator() -> bytes32:
    return keccak256(abi_encode(DOMAIN_TYPEHASH, keccak256(name), keccak256(version), chain.id, self))


@internal
def _spend(authorizer: address, nonce: bytes32, struct_hash: bytes32, v: uint8, r: bytes32, s: bytes32):
    assert not self.authorizationState[authorizer][nonce], "FiatTokenV2: authorization is used or canceled"
    assert convert(s, uint256) <= HIGHEST_S, "ECRecover: invalid signature 's' value"
    signer: address = ecrecover(keccak256(concat(b"\x19\x01", self._domain_separator(), struct_hash)), v, r, s)
    assert signer != empty(address) and signer == authorizer, "FiatTokenV2: invalid signature"
    self.authorizationState[authorizer][nonce] = True


@internal
def _move(sender: address, to: address, amount: uint256):
    assert to != empty(address), "ERC20: transfer to the zero address"
    assert self.balanceOf[sender] >= amount, "ERC20: transfer amount exceeds balance"
    self.balanceOf[sender] -= amount
    self.balanceOf[to] += amount
    log Transfer(sender=sender, receiver=to, amount=amount)
