"""A wrong setting stops `serve` with one line that says which it is and what to do: over the real command."""

from __future__ import annotations

import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from ranking_evaluate.sandbox.processes import LOOPBACK, free_port

PROGRAM: Final = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
PAYEE: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
X402: Final = {
    "X402_PAY_TO": PAYEE,
    "X402_NETWORK": "eip155:84532",
    "X402_FACILITATOR_URL": f"http://{LOOPBACK}:1",
}
NETWORKS: Final = [f"eip155:{number}" for number in (1, 10, 56, 100, 130, 137, 8453, 42161)]
MANY: Final = X402 | {
    "X402_NETWORK": ",".join(NETWORKS),
    "X402_ASSET": ",".join(f"{network}={PAYEE}" for network in NETWORKS),
    "X402_ASSET_NAME": ",".join(f"{network}=USD Coin" for network in NETWORKS),
    "X402_ASSET_VERSION": ",".join(f"{network}=2" for network in NETWORKS),
    "PUBLIC_ORIGIN": "https://ranking-evaluate.example.org",
}
"""Eight networks, of which six fit at this origin."""
MPP: Final = {
    "MPP_RECIPIENT": PAYEE,
    "MPP_CHAIN_ID": "42431",
    "MPP_RPC_URL": f"http://{LOOPBACK}:1",
    "MPP_CURRENCY": "0x20c0000000000000000000000000000000000000",
    "MPP_SECRET_KEY": "s" * 32,
}


@dataclass(frozen=True)
class Case:
    """Settings, and the words that the one line must have."""

    what: str
    settings: dict[str, str]
    words: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    others: dict[str, str] = field(default_factory=dict)


def cases(taken: int, not_a_database: Path) -> list[Case]:
    nobody = free_port()
    return [
        Case("a bad address", X402 | {"X402_PAY_TO": PAYEE[:-1]}, ("X402_PAY_TO: ", "40 hexadecimal digits")),
        Case("a mistyped address", X402 | {"X402_PAY_TO": PAYEE[:-1] + "e"}, ("X402_PAY_TO: ", "mistyped")),
        Case("a short secret", MPP | {"MPP_SECRET_KEY": "s" * 31}, ("MPP_SECRET_KEY: ", "openssl rand -hex 32")),
        Case("an unknown network", X402 | {"X402_NETWORK": "eip155:5"}, ("X402_ASSET: ", "no known USDC")),
        Case("no network", X402 | {"X402_NETWORK": "base"}, ("X402_NETWORK: ", "eip155:8453")),
        Case(
            "mixed money", X402 | MPP | {"MPP_CHAIN_ID": "4217"}, ("X402_NETWORK: ", "mainnets alone or testnets alone")
        ),
        Case(
            "mixed networks",
            X402 | {"X402_NETWORK": "eip155:84532,eip155:8453"},
            ("X402_NETWORK: eip155:8453 and eip155:84532", "mainnets alone or testnets alone"),
        ),
        Case(
            "half a network",
            X402 | {"X402_NETWORK": "eip155:84532,eip155:31337"},
            ("X402_ASSET: ", "eip155:31337 has no known USDC"),
        ),
        Case("too many networks for a head", MANY, ("a 402 over x402", "3,800", "X402_NETWORK", "PUBLIC_ORIGIN")),
        Case("half a protocol", {"X402_PAY_TO": PAYEE}, ("X402_NETWORK: needed", "whole or not at all")),
        Case("a typing error", {"X402_PAYTO": PAYEE}, ("X402_PAYTO: ", "did you mean RANKING_EVALUATE_X402_PAY_TO?")),
        Case("a folder that is not there", {"DATABASE_URL": "sqlite:////no/such/folder/a.db"}, ("DATABASE_URL: ",)),
        Case("a file that is no database", {"DATABASE_URL": f"sqlite:///{not_a_database}"}, ("DATABASE_URL: ",)),
        Case(
            "a database that is down",
            {"DATABASE_URL": f"postgresql://me:canary@{LOOPBACK}:{nobody}/db"},
            ("DATABASE_URL: ", "cannot reach"),
        ),
        Case(
            "a Redis that is down", {"RATE_STORAGE_URL": f"redis://:canary@{LOOPBACK}:{nobody}"}, ("RATE_STORAGE_URL",)
        ),
        Case("a port that is taken", {}, ("Cannot listen", "in use", "--port"), ("--port", str(taken))),
        Case("a host that is not ours", {"PUBLIC_ORIGIN": "https://a.example"}, ("--host",), ("--host", "192.0.2.1")),
        Case("a metrics port that is taken", {"METRICS_PORT": str(taken)}, ("METRICS_PORT: ", "in use")),
        Case("no public origin", {}, ("PUBLIC_ORIGIN: needed", "https://your.host"), ("--host", "0.0.0.0")),  # noqa: S104
        Case(
            "half a CDP key",
            X402 | {"X402_FACILITATOR_URL": "cdp"},
            ("CDP_API_KEY_SECRET: needed",),
            (),
            {"CDP_API_KEY_ID": "me"},
        ),
    ]


NAMES: Final = [case.what for case in cases(1, Path("x"))]


@dataclass
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Case, Ended]]]:
    """Run every case, a few at a time."""
    folder = tmp_path_factory.mktemp("serve")
    not_a_database = folder / "notes.txt"
    not_a_database.write_text("these are my notes, and no database at all\n" * 100)
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        waiting = cases(taken.getsockname()[1], not_a_database)
        found: dict[str, tuple[Case, Ended]] = {}
        while waiting:
            batch, waiting = waiting[:3], waiting[3:]
            running = [(case, start(case, folder)) for case in batch]
            for case, process in running:
                out, err = process.communicate(timeout=60)
                found[case.what] = (case, Ended(process.returncode, out, err))
        yield found


def start(case: Case, folder: Path) -> subprocess.Popen[str]:
    arguments = case.arguments if "--port" in case.arguments else (*case.arguments, "--port", str(free_port()))
    environment = {f"RANKING_EVALUATE_{name}": value for name, value in case.settings.items()}
    return subprocess.Popen(
        [PROGRAM, "serve", *arguments],
        cwd=folder,
        env={"HOME": str(folder), **environment, **case.others},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


MAY_PASS: Final = {
    "a database that is down",
    "a Redis that is down",
    "a folder that is not there",
    "a file that is no database",
}
"""What is tried again by whoever starts it."""


@pytest.mark.parametrize("what", NAMES)
def test_a_wrong_setting_stops_the_start_with_one_line(ended: dict[str, tuple[Case, Ended]], what: str) -> None:
    case, end = ended[what]
    assert end.code == (1 if what in MAY_PASS else 2)
    assert end.out == ""
    # No line of the log comes before it: nothing was served.
    lines = end.err.splitlines()
    assert len(lines) == 1, end.err
    for word in case.words:
        assert word in lines[0]
    assert "Traceback" not in end.err
    assert "canary" not in end.err


def test_what_is_right_starts_and_stops_at_a_signal(tmp_path: Path) -> None:
    port = free_port()
    process = start(Case("right", {}, (), ("--port", str(port))), tmp_path)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection((LOOPBACK, port), 1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        time.sleep(0.5)
        process.terminate()
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode in {0, -15}
    assert all(line.startswith("{") for line in err.splitlines())
