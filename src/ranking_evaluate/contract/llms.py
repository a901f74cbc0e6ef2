"""llms.txt: what an agent that knows nothing but the origin has to read before it buys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from string import Template
from typing import Final

from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.contract.document import Wires, path_of, price, price_usd, with_price
from ranking_evaluate.contract.errors import error_classes
from ranking_evaluate.contract.problems import rows_of
from ranking_evaluate.contract.replay import REPLAY_HOURS
from ranking_evaluate.contract.wire import Client, shipped
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import VERSION

_ELSEWHERE: Final = (
    (
        "ORIGIN is where you read this. A running service writes here its origin, and the settings that the clients "
        "below need; `/.well-known/x402` and `/readyz` say the same."
    ),
)


def text(name: str) -> str:
    """Return a text of this package, such as the template of a document."""
    return shipped("ranking_evaluate.contract", f"texts/{name}")


def clients(wires: Wires) -> tuple[Client, ...]:
    """Return the example clients of every protocol, which pay no more than the highest price."""
    return tuple(Client(client.name, with_price(client.source)) for wire in wires for client in wire.clients)


def render(wires: Wires, here: Iterable[str] = _ELSEWHERE) -> str:
    """Return llms.txt; `here` is what a running service says of itself, a line each."""
    first = OPERATIONS[0]
    sources = {client.name.replace(".", "_"): client.source.rstrip("\n") for client in clients(wires)}
    guides = (Template(wire.guide).substitute(first=first.id, **sources).rstrip("\n") for wire in wires if wire.guide)
    return Template(text("llms.txt")).substitute(
        prices=" or ".join(sorted({price_usd(operation) for operation in OPERATIONS})),
        protocols=" or ".join(wire.title for wire in wires),
        release=VERSION,
        replay_hours=REPLAY_HOURS,
        here=_list(here),
        operations=_list(
            f"[{operation.id}](/reference/tools/{operation.id}.md): {operation.description} "
            f"POST {' or '.join(f'`{path_of(operation, wire.name)}`' for wire in wires)}. {price(operation)}."
            for operation in OPERATIONS
        ),
        discovery_key=DISCOVERY_KEY,
        first=first.id,
        first_input=json.dumps(first.example_input),
        clients=_in_words(len(sources)),
        guides="\n\n".join(guides),
        errors=_list(
            f"{found.status} {code}{f', cause {cause}' if cause else ''}: {problem.next_step}"
            for found in sorted(error_classes(), key=lambda one: one.status)
            for code in found.codes
            for cause, problem in rows_of(code)
        ),
    )


def variable(protocol: str, setting: str) -> str:
    """Return the environment variable in which the example clients of a protocol look for a setting of it."""
    return f"{protocol.upper()}_{setting}"


def running(origin: str, wires: Wires, taken: Mapping[str, Sequence[Mapping[str, object]]]) -> list[str]:
    """Return what a running service says of itself.

    Args:
        origin: Its public origin.
        wires: Every protocol that has routes.
        taken: By protocol, its settings for each network and token, the preferred first: what the example clients take
            from the environment, and who is paid.
    """
    lines = [f"ORIGIN={origin}"]
    for wire in wires:
        choices = taken.get(wire.name, ())
        if not choices:
            lines.append(f"{wire.name}: not taken here; its paths answer 503")
        for number, settings in enumerate(choices):
            words = " ".join(f"{variable(wire.name, name)}={value}" for name, value in settings.items())
            lines.append(f"{wire.name}{', or as well' if number else ''}: {words}")
    return lines


def _in_words(count: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
    return words[count] if count < len(words) else str(count)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
