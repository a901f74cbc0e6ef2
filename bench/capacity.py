"""What one service process sells in a second through nginx, over each protocol, and what it keeps of a purchase.

`python -m bench.capacity` prints it as a table. Everything runs on this machine: the service with SQLite, nginx with
deploy/nginx.conf (without its limits for one address, since all buyers here have one), and the other sides. The x402
facilitator answers at once and settles nothing; payments over MPP are real ones on a local chain, which makes a block
for each and shares the cores. Credentials are signed before the clock starts.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from secrets import token_hex
from typing import Any, NamedTuple

import apsw
import httpx

from bench.jobs import TYPICAL
from bench.paid import PAID, throughput
from bench.paid_servers import LOOPBACK, NETWORK, PAYEE, free_port, wait_for
from bench.timing import percentile
from ranking_evaluate.cli.payers import mpp
from ranking_evaluate.cli.payers.payer import Mandate
from ranking_evaluate.sandbox import Sandbox
from tests.deploy.nginx import configuration, nginx

X402_CALLS = 400
MPP_ROUNDS, MPP_CALLS, MPP_BUYERS = 6, 32, 8
"""A credential of MPP lives for 24 s, so only so many are signed ahead."""


class Row(NamedTuple):
    """One line of the table; latencies are seconds of the paid call."""

    what: str
    a_second: float
    mean: float
    slowest: float


@contextmanager
def facilitator() -> Iterator[str]:
    """Run the facilitator that answers at once."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.paid_servers", "facilitator", str(port)])
    try:
        wait_for(port)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        process.terminate()
        process.wait(20)


def over_x402(port: int) -> Row:
    """Sell to 50 buyers at once, three times."""
    ((timed, slowest),) = throughput({"service": port}, X402_CALLS, PAID).values()
    return Row("x402, 50 buyers at once, no chain", 1 / timed.median, timed.median * 50, slowest)


def over_mpp(origin: str, payer: str, rpc: str) -> Row:
    """Sell to some buyers at once, whose credentials are signed before each round."""
    url = f"{origin}/v1/mpp/ranking-evaluate"
    rates: list[float] = []
    seconds: list[float] = []
    with httpx.Client(trust_env=False, timeout=60) as client, ThreadPoolExecutor(MPP_BUYERS) as buyers:

        def terms(key: str) -> httpx.Response:
            return client.post(url, content=TYPICAL.body, headers=headers(key))

        def sign(key: str) -> dict[str, str]:
            mandate = Mandate(wallet_key=payer, key=key, max_amount=Decimal("0.01"), rpc_url=rpc)
            signed = mpp.sign(terms(key), mandate)
            return {**headers(key), signed.header: signed.value}

        def pay(sent: dict[str, str]) -> float:
            began = time.perf_counter()
            answer = client.post(url, content=TYPICAL.body, headers=sent)
            if answer.status_code != 200:
                raise RuntimeError(f"it did not sell: {answer.text}")
            return time.perf_counter() - began

        for _ in range(MPP_ROUNDS):
            ready = [sign(f"capacity_{token_hex(12)}") for _ in range(MPP_CALLS)]
            began = time.perf_counter()
            seconds += buyers.map(pay, ready)
            rates.append(MPP_CALLS / (time.perf_counter() - began))
    what = f"MPP, {MPP_BUYERS} buyers at once, on a local chain"
    return Row(what, statistics.median(rates), statistics.mean(seconds), percentile(seconds, 0.99))


def headers(key: str) -> dict[str, str]:
    """Return what every request of a purchase has."""
    return {"Content-Type": "application/json", "Idempotency-Key": key}


def main() -> None:
    """Measure, and print the table."""
    with facilitator() as url:
        settings = {
            "REQUEST_RATE": "",
            "PAYMENT_RATE": "",
            "X402_PAY_TO": PAYEE,
            "X402_NETWORK": NETWORK,
            "X402_FACILITATOR_URL": url,
            **dict.fromkeys(("X402_ASSET", "X402_ASSET_NAME", "X402_ASSET_VERSION", "X402_RPC_URL"), ""),
        }
        environment = {f"RANKING_EVALUATE_{name}": value for name, value in settings.items()}
        with Sandbox(environment=environment) as sandbox:
            print(_report(sandbox))


def _report(sandbox: Sandbox) -> str:
    service, port = httpx.URL(sandbox.origin).port or 0, free_port()
    text = configuration(port, service, sandbox.processes.directory / "nginx")
    text = re.sub(r"^ *limit_(?:req|conn) .*\n", "", text, flags=re.MULTILINE)
    with nginx(sandbox.processes, "nginx", text, port) as origin:
        facts: Any = sandbox.info["mpp"]
        rows = [over_x402(port), over_mpp(origin, str(facts["payerKey"]), str(facts["rpc"]))]
    return "\n".join(
        [
            "| through nginx, one process | purchases a second | mean | 99 % within |",
            "| - | - | - | - |",
            *(f"| {row.what} | {row.a_second:,.0f} | {_ms(row.mean)} | {_ms(row.slowest)} |" for row in rows),
            "",
            kept(sandbox),
        ]
    )


def kept(sandbox: Sandbox) -> str:
    """Return what a purchase leaves in the store, within its day, and in the log."""
    db = apsw.Connection(sandbox.database.removeprefix("sqlite:///"))
    [(sold,)] = db.execute("SELECT count(*) FROM sales")
    store = db.pragma("page_count") * db.pragma("page_size") / sold
    log = sandbox.processes.log_path("service").stat().st_size / sold
    return f"Each of {sold:,} purchases left {store:,.0f} bytes in the store and {log:,.0f} in the log."


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


if __name__ == "__main__":
    main()
