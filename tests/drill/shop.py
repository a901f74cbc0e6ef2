"""The whole installation: two replicas on PostgreSQL and Redis behind nginx, two chains, and a facilitator."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from ranking_evaluate.sandbox.funded import FundedProtocol
from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port
from ranking_evaluate.sandbox.tempo import mpp_protocol
from ranking_evaluate.sandbox.wallets import new_wallet
from ranking_evaluate.sandbox.x402 import x402_protocol
from tests.deploy.nginx import configuration, nginx
from tests.drill.watch import proxy_probe
from tests.faults.facilitator import FaultyFacilitator, forward_to
from tests.hostile.service import PROGRAM, Service
from tests.postgres import PostgresServer
from tests.redis import RedisServer

END_SECONDS: Final = 60.0
NGINX: Final = "nginx"
WAITING: Final = "#if ($asks_for_terms) { return 503; }"
REQUEST_RATE: Final = 1500
"""Requests a minute of one address; all buyers here have one."""


@dataclass
class Shop:
    """What runs, and what a step may break."""

    processes: Processes
    origin: str
    protocols: tuple[FundedProtocol, ...]
    facilitator: FaultyFacilitator
    postgres: PostgresServer
    redis: RedisServer
    replicas: list[Service]
    probe: int

    def send_callers_to(self, *replicas: Service, terms: bool = True) -> None:
        """Have nginx reload a configuration with these replicas; without `terms` those wait who ask for them."""
        port, folder = int(self.origin.rpartition(":")[2]), self.processes.directory / NGINX
        text = configuration(port, replicas[0].port, folder, *(other.port for other in replicas[1:]))
        if not terms:
            text = text.replace(WAITING, WAITING.removeprefix("#"))
        (folder / "nginx.conf").write_text(text, encoding="utf-8")
        self.processes._running[NGINX].send_signal(signal.SIGHUP)

    def stop(self, replica: Service) -> None:
        """Stop a replica in good order, and wait for its end."""
        process = self.processes._running[replica.name]
        process.terminate()
        process.wait(END_SECONDS)
        replica.end()

    def restart(self, replica: Service) -> None:
        """Stop a replica in good order, and start it again."""
        self.stop(replica)
        replica.start()

    def received(self) -> dict[str, int]:
        """Return what the chains say was paid to us over each protocol, in base units."""
        return {funded.protocol: funded.balance(funded.payee) for funded in self.protocols}

    def booked(self) -> dict[str, int]:
        """Return what our books say was sold over each protocol, as `ranking-evaluate sales` does."""
        command = [str(PROGRAM), "sales", "--by", "network", "--format", "json"]
        environment = {"HOME": str(self.processes.directory), **self.replicas[0].environment}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        sold = {line["network"]: int(line["sold"]) for line in json.loads(done.stdout)["totals"]}
        return {funded.protocol: sold.get(funded.network, 0) for funded in self.protocols}


@contextmanager
def shop() -> Iterator[Shop]:
    """Start everything."""
    processes = Processes()
    with ExitStack() as stack:
        stack.callback(processes.stop)
        payer = new_wallet()
        protocols = (
            stack.enter_context(x402_protocol(processes, payer)),
            stack.enter_context(mpp_protocol(processes, payer)),
        )
        real = protocols[0].environment["RANKING_EVALUATE_X402_FACILITATOR_URL"]
        facilitator = stack.enter_context(FaultyFacilitator(forward_to(real)))
        postgres = stack.enter_context(PostgresServer())
        redis = stack.enter_context(RedisServer())
        port = free_port()
        origin = f"http://{LOOPBACK}:{port}"
        environment: dict[str, str] = {}
        for funded in protocols:
            environment |= funded.environment
        given = {
            "PUBLIC_ORIGIN": origin,
            "DATABASE_URL": postgres.new_database(),
            "RATE_STORAGE_URL": redis.url,
            "TRUSTED_PROXIES": LOOPBACK,
            "REQUEST_RATE": f"{REQUEST_RATE}/minute",
            "PAYMENT_RATE": f"{REQUEST_RATE}/minute",
            "X402_FACILITATOR_URL": facilitator.url,
            # What dies in the middle of a payment is over soon.
            "VERIFY_TIMEOUT": "5",
            "SETTLE_TIMEOUT": "10",
        }
        environment |= {f"RANKING_EVALUATE_{name}": value for name, value in given.items()}
        replicas = [Service(processes, f"replica-{number}", environment) for number in (1, 2)]
        for replica in replicas:
            replica.start()
        folder = processes.directory / NGINX
        text = configuration(port, replicas[0].port, folder, replicas[1].port)
        stack.enter_context(nginx(processes, NGINX, text, port))
        probe = stack.enter_context(proxy_probe(origin))
        yield Shop(processes, origin, protocols, facilitator, postgres, redis, replicas, probe)
