"""Which calls an access key may make (TIP-1011), whether its authorization says so or the chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallScope:
    """A contract that may be called, in lower case.

    `rules` are its functions by their selectors, each with the first arguments that it may have; no rule permits every
    function, no recipient every first argument.
    """

    target: str
    rules: tuple[tuple[str, tuple[str, ...]], ...]

    def in_rpc(self) -> dict[str, object]:
        """Return the scope as a node takes it in a request."""
        rules = [
            {"selector": selector, **({"recipients": list(recipients)} if recipients else {})}
            for selector, recipients in self.rules
        ]
        return {"target": self.target, **({"selectorRules": rules} if rules else {})}


def permits(scopes: Sequence[CallScope] | None, target: str, selector: str, recipient: str) -> bool:
    """Return whether a call is within the scopes; None permits every call, an empty list none."""
    if scopes is None:
        return True
    target, selector, recipient = target.lower(), selector.lower(), recipient.lower()
    rules = [scope.rules for scope in scopes if scope.target == target]
    return any(
        not rule or any(named == selector and (not to or recipient in to) for named, to in rule) for rule in rules
    )
