"""`serve --check` says what a sale lacks before anybody buys, and makes, changes and sends nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ranking_evaluate.sandbox import multicall3
from ranking_evaluate.sandbox.anvil import start_anvil
from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port
from ranking_evaluate.sandbox.tempo import PATH_USD
from ranking_evaluate.sandbox.token import deploy_token
from tests.cli.test_serve import PROGRAM
from tests.faults.tempo_proxy import Tempo, running_tempo
from tests.hostile.service import Neighbourhood, neighbourhood

SQLITE_OF_0_29_0 = Path(__file__).parents[1] / "attempts" / "stores" / "0.29.0" / "sqlite.sql"
MPP_ALONE = {f"RANKING_EVALUATE_X402_{name}": "" for name in ("PAY_TO", "NETWORK", "FACILITATOR_URL")}


@pytest.fixture(scope="module")
def place() -> Iterator[Neighbourhood]:
    with neighbourhood() as found:
        yield found


@pytest.fixture(scope="module")
def tempo() -> Iterator[Tempo]:
    with running_tempo() as started:
        yield started


@pytest.fixture
def good(place: Neighbourhood, tempo: Tempo, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a service that can sell, on a real chain that makes a block each second."""
    store = f"sqlite:///{tmp_path / 'attempts.db'}"
    service = place.service("checked", MPP_RPC_URL=tempo.proxy.url, MPP_CURRENCY=PATH_USD, DATABASE_URL=store)
    return dict(service.environment)


def check(environment: dict[str, str], folder: Path) -> tuple[int, list[tuple[str, str]], str]:
    """Return the exit code, what was found about which thing, and all of the words."""
    ended = subprocess.run(
        [PROGRAM, "serve", "--check"],
        env={"HOME": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    lines = [(line[:7].strip(), line[7:20].strip()) for line in ended.stdout.splitlines()[:-1]]
    return ended.returncode, lines, ended.stdout + ended.stderr


def test_what_can_sell_is_told_by_a_line_for_each_thing_and_nothing_is_made(
    good: dict[str, str], tmp_path: Path
) -> None:
    code, lines, words = check(good, tmp_path)
    assert code == 0, words
    assert lines == [
        ("ok", "settings"),
        ("ok", "store"),
        ("-", "node"),
        ("ok", "x402"),
        ("ok", "clock"),
        ("ok", "mpp"),
        ("ok", "clock"),
        ("ok", "token"),
    ]
    assert words.endswith("It can sell.\n")
    assert "attempts.db will be made" in words
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "what", "words"),
    [
        ({"PAYMENT_RATE": "0/day"}, "settings", "sales have ended here"),
        ({"DATABASE_URL": "sqlite:////proc/nowhere/attempts.db"}, "store", "no folder that may be written to"),
        ({"X402_FACILITATOR_URL": f"http://{LOOPBACK}:1"}, "x402", "the facilitator could not be reached"),
        ({"X402_RPC_URL": f"http://{LOOPBACK}:1"}, "node", "does not answer"),
        ({"MPP_RPC_URL": f"http://{LOOPBACK}:1"}, "mpp", "the node gives no usable answer"),
        ({"MPP_CHAIN_ID": "31337"}, "mpp", "the node is on chain 42431, not on 31337"),
        ({"RATE_STORAGE_URL": f"redis://{LOOPBACK}:1"}, "rates", "Redis"),
        ({"MPP_CURRENCY": "0x" + "12" * 20}, "token", "is no token (MPP_CURRENCY)"),
    ],
)
def test_what_cannot_sell_is_told_why(
    good: dict[str, str], tmp_path: Path, changes: dict[str, str], what: str, words: str
) -> None:
    changed = {f"RANKING_EVALUATE_{name}": value for name, value in changes.items()}
    code, lines, said = check(good | changed, tmp_path)
    assert code == 1, said
    assert [named for state, named in lines if state == "FAILS"] == [what]
    (line,) = [line for line in said.splitlines() if line.startswith("FAILS")]
    assert words in line
    assert said.endswith("It cannot sell.\n")


def test_a_node_of_another_chain_is_named(good: dict[str, str], tempo: Tempo, tmp_path: Path) -> None:
    code, lines, said = check(good | {"RANKING_EVALUATE_X402_RPC_URL": tempo.proxy.url}, tmp_path)
    assert (code, ("FAILS", "node") in lines) == (1, True)
    assert "the node is on eip155:42431" in said


def test_a_token_that_no_payer_can_sign_for_is_told(good: dict[str, str], tmp_path: Path) -> None:
    """The facilitator refuses every payment in it, and tells its buyers what none of them can mend."""
    processes = Processes()
    try:
        chain = start_anvil(processes)
        multicall3.install_multicall3(chain, processes)
        token = deploy_token(chain)
        there = {"ASSET": token.address, "ASSET_NAME": token.name, "ASSET_VERSION": token.version}
        for changes, state, words in (
            ({}, "ok", f"is {token.name}, version {token.version}"),
            ({"ASSET": "0x" + "12" * 20}, "FAILS", "there is no contract at"),
            ({"ASSET": multicall3.ADDRESS}, "-", "does not tell what its transfers are signed for"),
            ({"ASSET_NAME": "Another Dollar"}, "FAILS", "does not call itself Another Dollar"),
            ({"ASSET_VERSION": "7"}, "FAILS", "version 7 (X402_ASSET_NAME, _VERSION)"),
        ):
            values = {"NETWORK": chain.network, "RPC_URL": chain.rpc, **there, **changes}
            changed = {f"RANKING_EVALUATE_X402_{name}": value for name, value in values.items()}
            _, lines, said = check(good | changed, tmp_path)
            assert (state, "token") in lines, said
            assert words in said
    finally:
        processes.stop()


def test_without_a_protocol_nothing_can_be_sold(tmp_path: Path) -> None:
    code, lines, said = check({}, tmp_path)
    assert (code, lines) == (1, [("FAILS", "settings"), ("ok", "store")])
    assert "no payment protocol is configured" in said


def test_a_wrong_setting_is_told_as_the_start_tells_it(good: dict[str, str], tmp_path: Path) -> None:
    code, lines, said = check(good | {"RANKING_EVALUATE_MPP_SECRET_KEY": "short"}, tmp_path)
    assert (code, lines) == (2, [])
    assert said.startswith("RANKING_EVALUATE_MPP_SECRET_KEY: ")


def test_a_store_of_an_older_release_is_left_to_the_start(good: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "attempts.db"
    with closing(apsw.Connection(str(path))) as db:
        db.execute(SQLITE_OF_0_29_0.read_text(encoding="utf-8"))
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    code, lines, said = check(good, tmp_path)
    assert (code, ("ok", "store") in lines) == (0, True), said
    assert "the start brings it up" in said
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


@pytest.mark.parametrize(("ahead", "code", "told"), [(-15, 0, "let it be synchronised"), (-100, 1, "are refused")])
def test_a_chain_of_another_time_is_told(
    good: dict[str, str],
    tmp_path: Path,
    tempo: Tempo,
    monkeypatch: pytest.MonkeyPatch,
    ahead: int,
    code: int,
    told: str,
) -> None:
    """Its blocks are ahead of our clock by so much, as the proxy before it writes them."""
    pass_on = tempo.proxy.answer

    def shifted(call: dict[str, object]) -> bytes | None:
        answer = pass_on(call)
        if call["method"] != "eth_getBlockByNumber" or answer is None:
            return answer
        document = json.loads(answer)
        document["result"]["timestamp"] = hex(int(time.time()) - ahead)
        return json.dumps(document).encode()

    monkeypatch.setattr(tempo.proxy, "answer", shifted)
    ended, lines, said = check(good | MPP_ALONE, tmp_path)
    assert (ended, ("ok" if code == 0 else "FAILS", "clock") in lines) == (code, True), said
    (line,) = [line for line in said.splitlines() if "clock" in line]
    assert told in line
    assert "behind that of eip155:42431" in line


def test_a_service_that_can_sell_nothing_warns_when_it_starts(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [PROGRAM, "serve", "--port", str(free_port())],
        env={"HOME": str(tmp_path)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        lines = [json.loads(process.stderr.readline()) for _ in range(2)]
    finally:
        process.kill()
        process.communicate()
    (warning,) = [line for line in lines if line["level"] == "warning"]
    assert (warning["event"], "no payment protocol is configured" in warning["reason"]) == ("nothing can be sold", True)
