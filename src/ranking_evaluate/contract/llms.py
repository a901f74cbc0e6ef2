"""llms.txt: what an agent that knows nothing but the origin has to read before it buys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from string import Template
from typing import Final

from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.contract.document import PROTOCOLS, path_of, price, price_usd, with_price
from ranking_evaluate.contract.errors import PROBLEMS, error_classes
from ranking_evaluate.contract.replay import REPLAY_HOURS
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import VERSION

CLIENTS: Final = ("pay_x402.py", "pay_x402.mjs", "pay_mpp.py", "pay_mpp.mjs")
"""The example clients, by their file names: each protocol with both official SDKs."""

_ELSEWHERE: Final = (
    (
        "ORIGIN is where you read this. A running service writes here its origin, and the settings that the clients "
        "below need; `/.well-known/x402` and `/readyz` say the same."
    ),
)


def text(name: str) -> str:
    """Return a text of this package: the template of a document, or the source of an example client."""
    return (resources.files("ranking_evaluate.contract") / name).read_text(encoding="utf-8")


def client_source(name: str) -> str:
    """Return the source of an example client, which pays no more than the price; the tests run these very files."""
    return with_price(text(f"clients/{name}"))


def render(here: Iterable[str] = _ELSEWHERE) -> str:
    """Return llms.txt; `here` is what a running service says of itself, a line each."""
    first = OPERATIONS[0]
    return Template(text("texts/llms.txt")).substitute(
        prices=" or ".join(sorted({price_usd(operation) for operation in OPERATIONS})),
        release=VERSION,
        replay_hours=REPLAY_HOURS,
        here=_list(here),
        operations=_list(
            f"[{operation.id}](/reference/tools/{operation.id}.md): {operation.description} "
            f"POST {' or '.join(f'`{path_of(operation, protocol)}`' for protocol in PROTOCOLS)}. {price(operation)}."
            for operation in OPERATIONS
        ),
        discovery_key=DISCOVERY_KEY,
        first=first.id,
        first_input=json.dumps(first.example_input),
        errors=_list(
            f"{found.status} {code}: {PROBLEMS[code].next_step}"
            for found in sorted(error_classes(), key=lambda one: one.status)
            for code in found.codes
        ),
        **{name.replace(".", "_"): client_source(name).rstrip("\n") for name in CLIENTS},
    )


def running(origin: str, rails: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return what a running service says of itself.

    Args:
        origin: Its public origin.
        rails: By protocol, the settings that the example clients take from the environment.
    """
    lines = [f"ORIGIN={origin}"]
    for protocol in PROTOCOLS:
        settings = [f"{name}={value}" for name, value in rails.get(protocol, {}).items()]
        lines.append(f"{protocol}: {' '.join(settings) or 'not taken here; its paths answer 503'}")
    return lines


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
