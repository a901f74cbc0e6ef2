"""The home page: what is sold here, whether it can be bought now, and a first call to copy; for people."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from string import Template
from typing import Any

from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.contract.document import Wires, path_of, price_usd
from ranking_evaluate.contract.llms import text
from ranking_evaluate.contract.replay import REPLAY_HOURS
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import VERSION


def render(origin: str, state: Mapping[str, Any], wires: Wires) -> str:
    """Return the page; `state` is what /readyz says."""
    return Template(text("home.html")).substitute(
        style=_style(),
        readiness="\n".join(_cards(state, wires)),
        operations=_operations(wires),
        first_call=escape(first_call(origin, state["rails"], wires)),
        release=VERSION,
        replay_hours=REPLAY_HOURS,
    )


@cache
def content_security_policy() -> str:
    """Return the policy under which the page works: its own style, its own icon, and nothing else."""
    style = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def first_call(origin: str, readiness: Mapping[str, Mapping[str, Any]], wires: Wires) -> str:
    """Return a command that asks for the terms of the first operation, over the first protocol that is taken."""
    operation = OPERATIONS[0]
    protocol = next((wire for wire in wires if readiness.get(wire.name, {}).get("configured")), wires[0])
    lines = [
        f"curl -i {origin}{path_of(operation, protocol.name)}",
        "-H 'Content-Type: application/json'",
        f"-H 'Idempotency-Key: {DISCOVERY_KEY}'",
        f"-d {shlex.quote(json.dumps(operation.example_input))}",
    ]
    return " \\\n  ".join(lines)


@cache
def _style() -> str:
    return text("home.css")


def _cards(state: Mapping[str, Any], wires: Wires) -> Iterator[str]:
    sells = "ready to sell" if state["ready"] else "not selling at the moment"
    yield _card("Service", state["ready"], sells, state["store"]["reason"] or f"release {state['release']}")
    for wire in wires:
        said = state["rails"].get(wire.name)
        if said is None or not said["configured"]:
            yield _card(wire.name, None, "not taken here", "")
            continue
        money = f"{' and '.join(said['networks'])}{', test money' if said['testnet'] else ''}"
        yield _card(
            wire.name,
            said["ready"],
            "ready" if said["ready"] else "not ready",
            money if said["ready"] else f"{money}: {said['reason']}",
        )


def _card(name: str, ready: bool | None, said: str, more: str) -> str:
    kind = {True: "ready", False: "down", None: "off"}[ready]
    return (
        f'<li class="{kind}"><strong>{escape(name)}</strong> <span class="state">{escape(said)}</span> '
        f"<span>{escape(more)}</span></li>"
    )


@cache
def _operations(wires: Wires) -> str:
    return "\n".join(
        f'<li><h3><a href="/reference/tools/{escape(operation.id)}.md">{escape(operation.name)}</a> '
        f'<span class="price">{price_usd(operation)} USD a call</span></h3>'
        f"<p>{escape(operation.description)}</p>"
        f"<code>POST {' · '.join(path_of(operation, wire.name) for wire in wires)}</code></li>"
        for operation in OPERATIONS
    )
