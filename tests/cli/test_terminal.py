"""What a command prints of other people's words does nothing to a terminal: every command, under a real one."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import subprocess
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ranking_evaluate.attempts.events import RecordSettled, RecordUncertain
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.cli import COMMANDS
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.attempts.samples import KEY, draft, settling
from tests.cli.hostile import FAKE, HOSTILE, OFFER, shop, x402_offer
from tests.cli.on_a_terminal import on_a_terminal
from tests.fakes import FixedClock

PROGRAM: Final = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
SOURCE: Final = Path(__file__).parents[2] / "src" / "ranking_evaluate" / "cli"

OBEYED: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""C0 but for the line feed, DEL, C1, Unicode's line breaks, and what turns letters around."""

INPUT: Final = {"queries": [{"id": "q", "retrieved": ["a"], "judgments": [{"id": "a", "grade": 1}]}], "k": 1}
# TREC's columns end at white space, which the text therefore does without here.
ID: Final = re.sub(r"\s", "", HOSTILE)


class Terminal:
    """Commands on a terminal of their own, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}

    def write(self, name: str, content: object) -> str:
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / name).write_bytes(text.encode(errors="surrogatepass"))
        return name

    def run(self, *arguments: str) -> str:
        """Return all that the terminal was sent, with its own line ends as line feeds."""
        # A dumb terminal gets no colours, so no escape sequence is ours.
        code, sent = on_a_terminal([PROGRAM, *arguments], self.folder, {"TERM": "dumb", **self.environment})
        assert code in {0, 1, 2, 3}, sent
        assert b"Traceback" not in sent
        printed = sent.decode().replace("\r\n", "\n")
        found = OBEYED.search(printed)
        assert found is None, printed[max(0, found.start() - 200) : found.end() + 50]
        return printed


def scored(terminal: Terminal) -> str:
    query = {**INPUT["queries"][0], "id": HOSTILE}  # type: ignore[index]
    body = terminal.write("input.json", {**INPUT, "queries": [query]})
    refused = terminal.write("refused.json", {**INPUT, HOSTILE: 1})
    lines = terminal.write("lines", "\n".join(json.dumps(one) for one in (INPUT, {**INPUT, HOSTILE: 1})))
    return (
        terminal.run("score", body)
        + terminal.run("score", refused)
        + terminal.run("score", "--lines", lines)
        + terminal.run("score", "--operation", HOSTILE, body)
    )


def verified(terminal: Terminal) -> str:
    body = terminal.write("input.json", INPUT)
    answer = subprocess.run([PROGRAM, "score", body], cwd=terminal.folder, capture_output=True, check=True).stdout
    changed: dict[str, Any] = {**json.loads(answer), HOSTILE: HOSTILE}
    changed["result"]["queries"][0]["id"] = HOSTILE
    renamed = {**changed, "operation": HOSTILE}
    return terminal.run("verify", terminal.write("r", changed), "--input", body) + terminal.run(
        "verify", terminal.write("s", renamed), "--input", body
    )


def converted(terminal: Terminal) -> str:
    qrels = terminal.write("qrels", f"{ID} 0 d 1\n{ID}x 0 d 1\n")
    run = terminal.write("run", f"{ID} Q0 d 1 2.0 me\nother{ID} Q0 d 1 2.0 me\n")
    twice = terminal.write("twice", f"{ID} Q0 {ID} 1 2.0 me\n{ID} Q0 {ID} 1 2.0 me\n")
    beir = terminal.write("beir", {HOSTILE: {HOSTILE: HOSTILE}})
    return "".join(
        terminal.run("convert", "--qrels", one, "--run", other)
        for one, other in ((qrels, run), (qrels, twice), (beir, run), (qrels, beir))
    )


def measured(terminal: Terminal) -> str:
    qrels = terminal.write("qrels", f"{ID} 0 d 1\n{ID}x 0 d 1\n")
    run = terminal.write("run", f"{ID} Q0 d 1 2.0 me\nother{ID} Q0 d 1 2.0 me\n")
    other = terminal.write("other", f"{ID} Q0 x 1 2.0 me\n")
    twice = terminal.write("twice", f"{ID} Q0 {ID} 1 2.0 me\n{ID} Q0 {ID} 1 2.0 me\n")
    beir = terminal.write("beir", {HOSTILE: {HOSTILE: HOSTILE}})
    return "".join(
        terminal.run("measure", "--qrels", *files)
        for files in (
            (qrels, run, other, "--max-drop", "rr@10=0"),
            (qrels, run, "--json", "-"),
            (qrels, twice),
            (beir, run),
            (qrels, beir),
        )
    )


def merged(terminal: Terminal) -> str:
    body = terminal.write("input.json", INPUT)
    answer = subprocess.run([PROGRAM, "score", body], cwd=terminal.folder, capture_output=True, check=True).stdout
    response = json.loads(answer)
    response["result"]["queries"][0]["id"] = HOSTILE
    twice = terminal.write("twice", "\n".join([json.dumps(response)] * 2))
    refused = terminal.write("refused", {"code": HOSTILE, "status": 422})
    return terminal.run("merge", twice) + terminal.run("merge", refused)


def reported(terminal: Terminal) -> str:
    query = {**INPUT["queries"][0], "id": HOSTILE}  # type: ignore[index]
    body = terminal.write("input.json", {**INPUT, "queries": [query]})
    answer = subprocess.run([PROGRAM, "score", body], cwd=terminal.folder, capture_output=True, check=True).stdout
    terminal.write("r.json", answer.decode())
    name = HOSTILE.replace("/", "")
    terminal.write(name, {"code": HOSTILE, "status": 422})
    # What a cell of CSV holds may go over several lines.
    assert terminal.run("report", "r.json", "-o", "-", "--format", "csv")
    return terminal.run("report", "r.json", "-o", "-", "--format", "markdown") + terminal.run("report", name, "-o", "-")


def paid(terminal: Terminal) -> str:
    terminal.environment["RANKING_EVALUATE_WALLET_KEY"] = new_wallet().key
    body = terminal.write("input.json", INPUT)
    seen = ""

    def pay(url: str) -> str:
        return terminal.run("pay", url, "--protocol", "x402", "--input", body)

    with shop(x402_offer(OFFER)) as served:
        # The answer, its receipt, and refusals before and after a credential was sent.
        seen += pay(served.url)
        assert served.credentials
        words = {"code": HOSTILE, "detail": HOSTILE, "nextStep": HOSTILE, "title": HOSTILE}
        for status, detail in ((402, HOSTILE), (409, "\ud800")):
            served.status, served.body = status, json.dumps({**words, "detail": detail}).encode()
            seen += pay(served.url)
    for changes in ({"asset": HOSTILE}, {"payTo": HOSTILE}):
        with shop(x402_offer({**OFFER, **changes})) as served:
            seen += pay(served.url)
    return seen


def store(folder: Path) -> dict[str, str]:
    """Make a store whose rows hold what a facilitator and a chain said, and return the variable that names it."""
    path = folder / "attempts.db"

    async def fill() -> None:
        opened = SqliteStore(path, FixedClock(1_796_083_200.0))
        await opened.open()
        uncertain = await settling(opened, draft("one", payer=HOSTILE))
        await opened.move(uncertain.claim, RecordUncertain(HOSTILE, HOSTILE, HOSTILE))
        sold = await settling(opened, draft("two", key="purchase-number-0002", payer=HOSTILE, asset=HOSTILE))
        await opened.move(sold.claim, RecordSettled("receipt", HOSTILE))
        await opened.close()

    asyncio.run(fill())
    return {"RANKING_EVALUATE_DATABASE_URL": f"sqlite:///{path}"}


def decided(terminal: Terminal) -> str:
    terminal.environment |= store(terminal.folder)
    return "".join(
        terminal.run("attempts", *arguments)
        for arguments in (
            ("list",),
            ("show", KEY),
            ("show", "purchase-number-0002", "--json"),
            ("show", HOSTILE),
            ("refund", "purchase-number-0002", "--tx", HOSTILE),
            ("settle", KEY, "--tx", HOSTILE),
            ("backup", HOSTILE.replace("/", "")),
        )
    )


def booked(terminal: Terminal) -> str:
    terminal.environment |= store(terminal.folder)
    assert terminal.run("sales", "--format", "csv", "--by", "payer")
    return terminal.run("sales", "--by", "payer") + terminal.run("sales", "--by", "payer", "--format", "json")


def served(terminal: Terminal) -> str:
    terminal.environment |= {
        f"RANKING_EVALUATE_{name}": HOSTILE
        for name in ("PUBLIC_ORIGIN", "DATABASE_URL", "LOG_LEVEL", "X402_NETWORK", "MPP_CHAIN_ID")
    }
    return terminal.run("serve")


def without_anvil(command: str) -> Callable[[Terminal], str]:
    def started(terminal: Terminal) -> str:
        terminal.environment["ANVIL"] = f"{terminal.folder}/{HOSTILE}"
        return terminal.run(command)

    return started


def given_to_agents(terminal: Terminal) -> str:
    """Its output is the protocol's alone, so what it prints for people is that it cannot begin."""
    terminal.write("mcp.py", f"raise ImportError({HOSTILE!r})")
    terminal.environment["PYTHONPATH"] = str(terminal.folder)
    return terminal.run("mcp")


def generated(terminal: Terminal) -> str:
    (terminal.folder / "reference").mkdir()
    terminal.write(f"reference/{HOSTILE.replace('/', '')}", "left over")
    return terminal.run("reference", "--check")


TRIED: Final[Mapping[str, Callable[[Terminal], str]]] = {
    "demo": without_anvil("demo"),
    "score": scored,
    "verify": verified,
    "convert": converted,
    "mcp": given_to_agents,
    "measure": measured,
    "merge": merged,
    "report": reported,
    "pay": paid,
    "serve": served,
    "attempts": decided,
    "sales": booked,
    "sandbox": without_anvil("sandbox"),
    "reference": generated,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_a_terminal_obeys(command: str, tmp_path: Path) -> None:
    printed = TRIED[command](Terminal(tmp_path))
    assert printed
    assert not [line for line in printed.split("\n") if line.startswith(FAKE)]


def test_commands_print_through_one_door() -> None:
    """Of the modules only `streams` prints text; tables of Rich's are printed where their cells are made visible."""
    for path in SOURCE.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {ast.unparse(call) for call in calls}
        own = {"streams.py": {"typer.echo"}, "__init__.py": {"typer.echo"}}.get(path.name, set())
        found = names & {"typer.echo", "typer.secho", "print", "rich.print", "sys.stderr.write", "sys.stdout.write"}
        assert found <= own, path
