"""Nothing of what callers send is kept: canaries in bodies, ids, headers and credentials are in no file afterwards."""

from __future__ import annotations

import base64
import json
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import apsw
import httpx
import psycopg
import pytest

from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port
from tests.faults.facilitator import Fault, FaultyFacilitator, ledger_only
from tests.postgres import PostgresServer

REQUESTS: Final = 500
CANARY: Final = "kanarienvogel"
ADDRESS: Final = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
FAULTS: Final = (
    Fault.NONE,
    Fault.NONE,
    Fault.REFUSED,
    Fault.RESET_AFTER,
    Fault.GARBAGE,
    Fault.VERIFY_REFUSED,
    Fault.VERIFY_NONCE_USED,
    Fault.VERIFY_GARBAGE,
)


def forms(text: str) -> list[bytes]:
    """Return the canary as it may stand in a file: plain, in hexadecimal, or somewhere within base64."""
    raw = text.encode()
    aligned = (base64.b64encode(b"." * shift + raw) for shift in range(3))
    # The first and last characters of each depend on what stands beside the canary.
    return [raw, raw.hex().encode(), *(encoded[4:-4] for encoded in aligned)]


def body(number: int) -> bytes:
    """Return an input full of canaries: good, refused by its rules, or no JSON at all."""
    judged = [{"id": f"{CANARY}-document-{number}", "grade": 2}]
    query = {"id": f"{CANARY}-query-{number}", "retrieved": [judged[0]["id"]], "judgments": judged}
    match number % 10:
        case 8:
            return json.dumps({"queries": [{**query, CANARY: 1}]}).encode()
        case 9:
            return f'{{"queries": "{CANARY}'.encode()
        case _:
            return json.dumps({"queries": [query]}).encode()


def credential(accepted: Any, key: str, number: int) -> str:
    """Return an x402 credential with canaries wherever it has room for one; its signature is one in hexadecimal."""
    authorization = {
        "from": ADDRESS,
        "to": accepted["payTo"],
        "value": accepted["amount"],
        "validAfter": "0",
        "validBefore": str(int(time.time()) + 100),
        "nonce": f"0x{number:064x}",
    }
    signature = "0x" + (CANARY.encode().hex() * 10)[:130]
    document = {
        "x402Version": 2,
        "accepted": accepted,
        "resource": {"url": f"http://{CANARY}.test/", "description": CANARY, "mimeType": "application/json"},
        "payload": {"authorization": authorization, "signature": signature},
        "extensions": {"payment-identifier": {"info": {"required": True, "id": key}}, CANARY: {"info": CANARY}},
    }
    if number % 7 == 6:
        document["payload"][CANARY] = CANARY
    return base64.b64encode(json.dumps(document).encode()).decode()


def send(client: httpx.Client, faulty: FaultyFacilitator) -> set[int]:
    """Send the requests, and return the statuses that came."""
    challenge = client.post("/v1/x402/ranking-evaluate", content=body(0), headers=headers("a-first-look-0001"))
    accepted = json.loads(base64.b64decode(challenge.headers["payment-required"]))["accepts"][0]

    def status(number: int) -> int:
        key = f"purchase-number-{number:06d}"
        sent = headers(key) | {"PAYMENT-SIGNATURE": credential(accepted, key, number)}
        if number % 11 == 0:
            sent["PAYMENT-SIGNATURE"] = base64.b64encode(f'{{"x402Version": "{CANARY}"'.encode()).decode()
        protocol = "x402"
        if number % 13 == 0:
            del sent["PAYMENT-SIGNATURE"]
            protocol, sent["Authorization"] = "mpp", f"Payment {CANARY}{base64.b64encode(CANARY.encode()).decode()}"
        if number % 17 == 0:
            sent["Idempotency-Key"] = f"{CANARY} is no key"
        path = f"/v1/{protocol}/ranking-evaluate?{CANARY}={CANARY}"
        return client.post(path, content=body(number), headers=sent).status_code

    statuses: set[int] = set()
    with ThreadPoolExecutor(8) as threads:
        for part, fault in enumerate(FAULTS):
            faulty.set(fault)
            statuses.update(threads.map(status, range(1 + part, REQUESTS, len(FAULTS))))
    return statuses


def headers(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key, "Content-Type": "application/json", "User-Agent": CANARY, "X-Forwarded-For": CANARY}


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.stop()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_canary_of_five_hundred_requests_is_in_any_file(
    request: pytest.FixtureRequest, processes: Processes, kind: str
) -> None:
    network, port = "eip155:31337", free_port()
    with FaultyFacilitator(ledger_only(network)) as faulty:
        settings = {
            "DATABASE_URL": f"sqlite:///{processes.directory / 'attempts.db'}",
            "X402_PAY_TO": ADDRESS,
            "X402_NETWORK": network,
            "X402_ASSET": ADDRESS,
            "X402_ASSET_NAME": "Dollar",
            "X402_ASSET_VERSION": "1",
            "X402_FACILITATOR_URL": faulty.url,
            "MPP_RECIPIENT": ADDRESS,
            "MPP_CHAIN_ID": "42431",
            "MPP_RPC_URL": f"http://{LOOPBACK}:1",
            "MPP_CURRENCY": ADDRESS,
            "MPP_SECRET_KEY": "s" * 32,
            "REQUEST_RATE": "",
            "PAYMENT_RATE": "",
            "LOG_LEVEL": "debug",
        }
        server: PostgresServer | None = None
        if kind == "postgres":
            server = request.getfixturevalue("postgres_server")
            settings["DATABASE_URL"] = server.new_database()
        environment = {f"RANKING_EVALUATE_{name}": value for name, value in settings.items()}
        program = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
        processes.start("service", [program, "serve", "--port", str(port)], environment)
        with httpx.Client(base_url=f"http://{LOOPBACK}:{port}", trust_env=False, timeout=30) as client:
            wait_for(client)
            statuses = send(client, faulty)
        # Killed, so that nothing is tidied up.
        processes.end("service", kill=True)
    assert {200, 400, 402, 409, 422, 503} <= statuses

    log = processes.log_path("service").read_bytes()
    assert b"settle outcome" in log
    if server is None:
        assert {file.name for file in processes.directory.iterdir()} >= {"attempts.db", "attempts.db-wal"}
        with closing(apsw.Connection(str(processes.directory / "attempts.db"))) as file:
            file.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # Both are searched, the file and its log.
            states = {state for (state,) in file.execute("SELECT state FROM attempts")}
        files = [file for file in processes.directory.iterdir() if file.is_file()]
    else:
        with psycopg.connect(settings["DATABASE_URL"]) as db:
            states = {state for (state,) in db.execute("SELECT state FROM ranking_evaluate.attempts")}
            db.execute("CHECKPOINT")
        files = server.files()
    assert states == {"settled", "failed", "uncertain"}
    kept: dict[str, bytes] = {}
    for path in files:
        # PostgreSQL writes some of its own files anew under another name, and then renames them.
        with suppress(FileNotFoundError):
            kept[path.name] = path.read_bytes()
    assert any(b"purchase-number-000001" in content for content in kept.values()), "the search finds nothing at all"
    for canary in forms(CANARY):
        assert [name for name, content in kept.items() if canary in content] == []


def wait_for(client: httpx.Client) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if client.get("/readyz").json()["rails"]["x402"]["ready"]:
                return
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the service does not come up"
        time.sleep(0.05)
