"""`ranking-evaluate serve --check`: whether a service with these settings could sell, a line for each thing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ranking_evaluate.http.dependencies import Parts
    from ranking_evaluate.payments.config import X402Network
    from ranking_evaluate.payments.json_rpc import JsonRpc
    from ranking_evaluate.payments.protocol import PaymentProtocol
    from ranking_evaluate.settings import Settings

NODE_SECONDS: Final = 10.0


class Finding(NamedTuple):
    """One thing that a sale needs, and how it stands; `ok` is None where nothing is wrong and nothing is proved."""

    what: str
    ok: bool | None
    words: str

    def line(self) -> str:
        """Return it as a line."""
        return f"{ ({True: 'ok', False: 'FAILS', None: '-'}[self.ok]):<7}{self.what:<13}{self.words}"


async def check(settings: Settings) -> AsyncIterator[Finding]:
    """Yield what is found, as it is found; nothing is made, brought up, sold or sent.

    Raises:
        SettingsError: A setting needs what is not installed.
    """
    from ranking_evaluate.bootstrap import build

    parts: Parts = build(settings).state.parts
    yield await _settings(settings, parts)
    yield await _store(settings.database_url)
    if settings.rate_storage_url != "memory://":
        yield await _rates(parts)
    async for finding in _nodes(settings):
        yield finding
    for protocol in parts.protocols:
        async for finding in _protocol(protocol):
            yield finding
    async for finding in _currencies(settings):
        yield finding


def nothing_sold(parts: Parts) -> str | None:
    """Return why nothing can be sold with these settings, None where it can."""
    if not parts.protocols:
        return "no payment protocol is configured; docs/operate.md names the fewest settings"
    return "sales have ended here: RANKING_EVALUATE_PAYMENT_RATE is 0/day" if parts.rates.sales_ended else None


async def _settings(settings: Settings, parts: Parts) -> Finding:
    from ranking_evaluate.http.heads import HeadTooLong, check_heads

    reason = nothing_sold(parts)
    if reason is not None:
        return Finding("settings", False, reason)
    try:
        await check_heads(parts)
    except HeadTooLong as error:
        return Finding("settings", False, str(error))
    sold = " and ".join(
        f"{protocol.wire.name} on {', '.join(dict.fromkeys(term.network for term in protocol.terms()))}"
        for protocol in parts.protocols
    )
    return Finding("settings", True, f"{settings.public_origin} sells over {sold}")


def _missing(path: str) -> Finding | None:
    """Return what the start would make of a file that is not there; None where it is there."""
    file = Path(path).absolute()
    if file.exists():
        return None
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK | os.X_OK):
        return Finding("store", False, f"{file} cannot be made: {file.parent} is no folder that may be written to")
    return Finding("store", True, f"{file} will be made")


async def _store(url: str) -> Finding:
    from ranking_evaluate.attempts.store import NotMade, StoreUnavailable
    from ranking_evaluate.bootstrap import SQLITE, open_store

    missing = _missing(url.removeprefix(SQLITE)) if url.startswith(SQLITE) else None
    if missing is not None:
        return missing
    store = open_store(url, create=False)
    try:
        await store.open()
        try:
            await store.check_writable()
        finally:
            await store.close()
    except StoreUnavailable as error:
        # The embedded store passes on what its thread met.
        if isinstance(error, NotMade) or isinstance(error.__cause__, NotMade):
            return Finding("store", True, f"{error}: the start brings it up")
        return Finding("store", False, str(error))
    return Finding("store", True, "can be read and written")


async def _rates(parts: Parts) -> Finding:
    from ranking_evaluate.rates import RateStorageUnavailable

    try:
        await parts.rates.open()
    except RateStorageUnavailable as error:
        return Finding("rates", False, str(error))
    finally:
        await parts.rates.close()
    return Finding("rates", True, "Redis answers")


async def _nodes(settings: Settings) -> AsyncIterator[Finding]:
    """Yield how the nodes stand that x402 payments are looked up on; MPP's own is its provider."""
    from ranking_evaluate.payments.json_rpc import JsonRpc, NodeError

    for network in settings.x402.networks if settings.x402 else ():
        if network.rpc_url is None:
            words = f"X402_RPC_URL names none of {network.name}: an uncertain payment there waits for you"
            yield Finding("node", None, words)
            continue
        rpc = JsonRpc(network.rpc_url, NODE_SECONDS)
        try:
            chain = f"eip155:{await rpc.chain_id()}"
        except NodeError as error:
            yield Finding("node", False, f"{network.name}: {error}")
        else:
            is_it = chain == network.name
            yield Finding("node", is_it, f"{network.name}: {'answers' if is_it else f'the node is on {chain}'}")
            if is_it:
                yield await _token(rpc, network)
        finally:
            await rpc.close()


async def _token(rpc: JsonRpc, network: X402Network) -> Finding:
    """Return whether a payer's signature for the configured token is one for the token that is there (EIP-712)."""
    from ranking_evaluate.payments.json_rpc import NodeError
    from ranking_evaluate.payments.x402.domain import has_domain

    asset, name, version = network.token
    try:
        if await rpc.ask("eth_getCode", asset, "latest") == "0x":
            return Finding("token", False, f"{network.name}: there is no contract at {asset} (X402_ASSET)")
        is_it = await has_domain(rpc, network.name, network.token)
    except NodeError as error:
        words = f"{network.name}: {asset} does not tell what its transfers are signed for: {error}"
        return Finding("token", None, words)
    if not is_it:
        words = f"{network.name}: {asset} does not call itself {name}, version {version} (X402_ASSET_NAME, _VERSION)"
        return Finding("token", False, words)
    return Finding("token", True, f"{network.name}: {asset} is {name}, version {version}")


async def _currencies(settings: Settings) -> AsyncIterator[Finding]:
    """Yield whether there is a token for each currency of MPP; of its node, the provider, something is said already."""
    from ranking_evaluate.payments.json_rpc import JsonRpc, NodeError

    if settings.mpp is None:
        return
    rpc = JsonRpc(settings.mpp.rpc_url, NODE_SECONDS)
    try:
        if await rpc.chain_id() != settings.mpp.chain_id:
            return
        for currency in settings.mpp.currencies:
            try:
                await rpc.balance(currency, settings.mpp.recipient)
            except NodeError:
                yield Finding("token", False, f"mpp: {currency} is no token (MPP_CURRENCY)")
            else:
                yield Finding("token", True, f"mpp: {currency} is a token")
    except NodeError:
        return
    finally:
        await rpc.close()


async def _protocol(protocol: PaymentProtocol) -> AsyncIterator[Finding]:
    """Yield whether the protocol's provider can be used, and how our clock stands beside its clocks."""
    try:
        await protocol.start()
        ready = protocol.ready()
        yield Finding(protocol.wire.name, ready.ready, ready.reason or "its provider can be used")
        if ready.ready:
            await protocol.clock.look()
            for finding in _clocks(protocol):
                yield finding
    finally:
        await protocol.close()


def _clocks(protocol: PaymentProtocol) -> Iterator[Finding]:
    from ranking_evaluate.payments.clock import WARN_SECONDS, in_words

    offsets = protocol.clock.offsets()
    for against in protocol.clock.compared:
        ahead = offsets.get(against)
        if ahead is None:
            yield Finding("clock", None, f"{protocol.wire.name}: {against} does not tell its time at the moment")
            continue
        refuses = protocol.clock.refuses(ahead)
        words = f"{protocol.wire.name}: {in_words(against, ahead)}"
        if refuses:
            words += ", so its payments are refused"
        elif abs(ahead) > WARN_SECONDS:
            words += "; let it be synchronised"
        yield Finding("clock", not refuses, words)
