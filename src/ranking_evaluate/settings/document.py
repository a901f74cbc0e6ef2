"""docs/settings.md and deploy/example.env, rendered from the table of settings."""

from __future__ import annotations

from typing import Final

from ranking_evaluate.settings.variables import PREFIX, Group, Variable, variables_of

PATH: Final = "docs/settings.md"

EXAMPLE_PATH: Final = "deploy/example.env"

_EXAMPLE_HEAD: Final = """\
# Every setting of the service, for `env_file` of compose and EnvironmentFile of systemd: copy it, and fill it in.
# Take the hash sign away to set a variable; its value is the default, where there is one. docs/settings.md says more.
# Written by `ranking-evaluate reference`.
"""

_EXAMPLES: Final = {
    "PUBLIC_ORIGIN": "https://rank.example.org",
    "SECURITY_CONTACT": "mailto:security@example.org",
    "X402_NETWORK": "eip155:8453",
}
"""What is filled in already; the other variables that are needed are left empty."""

_EXAMPLE_NOTES: Final = {
    Group.SERVICE: "compose.yaml sets the store, and what depends on it, by itself.",
    Group.X402: "USDC on Base. Leave all of them empty to sell over MPP alone.",
    Group.COINBASE: "For the facilitator `cdp`; install requirements-cdp.lock (for the image `LOCK=` it).",
    Group.MPP: "A Tempo charge. Leave all of them empty to sell over x402 alone.",
}

_HEAD: Final = f"""\
# Settings

<!-- Written by `ranking-evaluate reference` from src/ranking_evaluate/settings/variables.py; edit that. -->

`ranking-evaluate serve` reads these environment variables once, when it starts. A wrong one stops the start with one
line that says which it is and what to do; so does an unknown one that begins with `{PREFIX}`.
An empty variable counts as not set, unless its row says what it means. [operate.md](operate.md) tells which ones you
need.
"""

_NOTES: Final = {
    Group.X402: "x402 is sold when all required variables are set; some of them alone stop the start. "
    "A mainnet beside a testnet, of one protocol or of both, stops it too.",
    Group.COINBASE: f"Both are required when `{PREFIX}X402_FACILITATOR_URL` is `cdp`, and not read otherwise. "
    "Coinbase chose the names, so they have no prefix.",
    Group.MPP: "MPP is sold when all required variables are set; some of them alone stop the start.",
    Group.BUYER: f"`pay` reads `{PREFIX}MPP_RPC_URL` too when it pays with MPP.",
}


def render() -> str:
    """Return the document: one table for each group."""
    return "\n".join([_HEAD, *map(_section, Group)])


def render_example() -> str:
    """Return the file of all variables of the service, the buyer's left out."""
    groups = [group for group in Group if group is not Group.BUYER]
    return _EXAMPLE_HEAD + "".join(map(_example_section, groups))


def _example_section(group: Group) -> str:
    lines = [f"\n# {group.value}. {_EXAMPLE_NOTES.get(group, '')}".rstrip()]
    for variable in variables_of(group):
        needed = variable.required or variable.name in _EXAMPLES
        value = _EXAMPLES.get(variable.name, variable.default)
        lines.append(f"{'' if needed else '#'}{variable.full_name}={value}")
    return "\n".join(lines) + "\n"


def _section(group: Group) -> str:
    note = f"{_NOTES[group]}\n\n" if group in _NOTES else ""
    rows = "".join(
        f"| `{variable.full_name}` | {variable.meaning} | {_default(variable)} |\n" for variable in variables_of(group)
    )
    return f"## {group.value}\n\n{note}| variable | meaning | default |\n| --- | --- | --- |\n{rows}"


def _default(variable: Variable) -> str:
    if variable.required:
        return "**required**"
    return variable.default_rule or (f"`{variable.default}`" if variable.default else "none")
