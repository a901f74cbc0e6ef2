"""What routes depend on: the parts of the application, admission, the checked headers and the key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Depends, Request

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.document import path_of
from ranking_evaluate.contract.errors import Unavailable
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.http.cors import Cors
from ranking_evaluate.http.headers import HeaderNames, header_names
from ranking_evaluate.http.health import StoreHealth
from ranking_evaluate.http.requests import client_of, read_headers, read_key
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.payments.protocol import PaymentProtocol
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates


class InFlight:
    """Counts the requests that are being served, and refuses one more than the limit.

    Args:
        limit: How many are served at once.
        waiting: Returns how many of them wait to be evaluated: they take no place from others.
    """

    def __init__(self, limit: int, waiting: Callable[[], int]) -> None:
        self._limit = limit
        self._waiting = waiting
        self._served = 0
        telemetry.IN_FLIGHT.set_function(lambda: self._served)

    def __enter__(self) -> None:
        """Take a place; raises OVERLOADED when there is none."""
        if self._served - self._waiting() >= self._limit:
            raise Unavailable("OVERLOADED", "Too many requests are being served at once.", retry_after=1)
        self._served += 1

    def __exit__(self, *_: object) -> None:
        """Give the place back."""
        self._served -= 1


class Sold(NamedTuple):
    """What one paid path sells; `protocol` is None where nobody configured the wire's."""

    wire: Wire
    protocol: PaymentProtocol | None
    operation: Operation[Any]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the application is made of; bootstrap puts it together, and `app.state.parts` holds it.

    `wires` are all protocols that have routes, `protocols` the configured ones, `chains` what the service itself asks
    about uncertain payments.
    """

    store: AttemptStore
    chains: Chains
    wires: tuple[Wire, ...]
    protocols: tuple[PaymentProtocol, ...]
    purchases: Purchases
    evaluations: Evaluations
    rates: Rates
    public_origin: str
    max_in_flight: int
    cors_origins: tuple[str, ...]
    security_contact: str | None = None

    @cached_property
    def header_names(self) -> HeaderNames:
        """The header names of all protocols, whether they are configured or not."""
        return header_names(self.wires)

    @cached_property
    def cors(self) -> Cors:
        """Who may call from a browser."""
        return Cors(self.cors_origins, self.header_names)

    @cached_property
    def in_flight(self) -> InFlight:
        """The places for requests that are being served."""
        return InFlight(self.max_in_flight, self.evaluations.waiting)

    @cached_property
    def taken(self) -> frozenset[str]:
        """The names of the protocols that are sold over: the configured ones, until sales end."""
        return frozenset(() if self.rates.sales_ended else (protocol.wire.name for protocol in self.protocols))

    @cached_property
    def store_health(self) -> StoreHealth:
        """Whether the store can be used, for all who ask."""
        return StoreHealth(self.store)

    @cached_property
    def paid(self) -> dict[str, Sold]:
        """What each paid path sells."""
        configured = {protocol.wire.name: protocol for protocol in self.protocols}
        return {
            path_of(operation, wire.name): Sold(wire, configured.get(wire.name), operation)
            for wire in self.wires
            for operation in OPERATIONS
        }


async def admission(request: Request, parts: Parts) -> InFlight:
    """Count a request against its client's rate, and return the place that it takes in a `with`.

    This comes before anything else of the request is looked at.
    """
    client = client_of(request)
    await parts.evaluations.turn(client)
    await parts.rates.count_request(client)
    request.state.told.counted = True
    return parts.in_flight


# FastAPI runs a plain function in a thread, which takes longer than any of these: all are coroutines.


async def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


PartsOf = Annotated[Parts, Depends(_parts)]


async def _admitted(request: Request, parts: PartsOf) -> AsyncIterator[None]:
    with await admission(request, parts):
        yield


async def _headers(request: Request, parts: PartsOf) -> Mapping[str, str]:
    return read_headers(request, parts.header_names.singletons)


ADMITTED: Final = Depends(_admitted, scope="function")
CheckedHeaders = Annotated[Mapping[str, str], Depends(_headers)]


async def _key(request: Request, headers: CheckedHeaders) -> str:
    key = read_key(headers)
    request.state.told.key_digest = telemetry.key_digest(key)
    return key


# No typed header: the limits of all headers are checked before the key, and each fault has a code of its own.
Key = Annotated[str, Depends(_key)]
