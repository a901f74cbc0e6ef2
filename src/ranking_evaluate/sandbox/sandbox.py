"""The sandbox: every payment protocol on this machine, then the service on top of them."""

import sysconfig
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from ranking_evaluate.contract.llms import variable
from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, SandboxError, free_port, is_port_free
from ranking_evaluate.sandbox.tempo import mpp_protocol
from ranking_evaluate.sandbox.wallets import new_wallet
from ranking_evaluate.sandbox.x402 import LOCAL, x402_protocol

SERVICE: Final = "service"
START_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.03
WATCH_SECONDS: Final = 0.5


class Sandbox:
    """A context manager: within it the service runs and can be paid; after it nothing of it is left.

    Args:
        port: The service's port on the loopback interface, or 0 for a free one.
        environment: Settings of the service beside or instead of the sandbox's own.
        command: What to run instead of `ranking-evaluate`, before the arguments of `serve`.
        x402_networks: What the chains of x402 call themselves, see `x402_protocol`.

    Attributes:
        origin: The service's address.
        database: The service's DATABASE_URL.
        protocols: The payment protocols, which one payer has money for.
        processes: The chains and the service, by name.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str | Path] | None = None,
        x402_networks: Sequence[str] = (LOCAL,),
    ) -> None:
        self._port = port
        self._environment = environment or {}
        self._command = command or [Path(sysconfig.get_path("scripts")) / "ranking-evaluate"]
        self._x402_networks = x402_networks
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        """Start everything.

        Raises:
            SandboxError: A program is missing, the port is taken, or something did not come up.
        """
        if self._port and not is_port_free(self._port):
            raise SandboxError(f"Port {self._port} is taken. Choose another one with --port.")
        with ExitStack() as opening:
            self.processes = Processes()
            opening.callback(self.processes.stop)
            self.database = f"sqlite:///{self.processes.directory / 'attempts.db'}"
            payer = new_wallet()
            self.protocols = (
                opening.enter_context(x402_protocol(self.processes, payer, self._x402_networks)),
                opening.enter_context(mpp_protocol(self.processes, payer)),
            )
            port = self._port or free_port()
            self.origin = f"http://{LOOPBACK}:{port}"
            self._serve = [*self._command, "serve", "--host", LOOPBACK, "--port", str(port)]
            opening.callback(self.stop_service)
            self.start_service()
            self._opened = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, the service first."""
        self._opened.close()

    @property
    def info(self) -> dict[str, Any]:
        """What another program needs to use this sandbox; `sandbox --info` writes it to a file."""
        return {
            "origin": self.origin,
            "database": self.database,
            **{funded.protocol: dict(funded.info) for funded in self.protocols},
        }

    @property
    def exports(self) -> dict[str, str]:
        """The environment in which the example clients buy here; `sandbox --env` writes it to a file."""
        settings = {
            variable(funded.protocol, setting): value
            for funded in self.protocols
            for setting, value in funded.exports.items()
        }
        return {"ORIGIN": self.origin, "WALLET_KEY": self.protocols[0].payer.key, **settings}

    def start_service(self) -> None:
        """Start the service, on the same port and database as before, and wait until it can take payments."""
        environment = {
            "RANKING_EVALUATE_DATABASE_URL": self.database,
            # Trials send many requests from one address.
            "RANKING_EVALUATE_REQUEST_RATE": "",
            "RANKING_EVALUATE_PAYMENT_RATE": "",
        }
        for funded in self.protocols:
            environment |= funded.environment
        self.processes.start(SERVICE, self._serve, {**environment, **self._environment})
        self._wait_for("/healthz")
        self._wait_for("/readyz")

    def stop_service(self, *, kill: bool = False) -> None:
        """Stop the service alone: in good order, or with SIGKILL."""
        self.processes.end(SERVICE, kill=kill)

    def watch(self) -> None:
        """Wait for ever.

        Raises:
            SandboxError: A process ended by itself.
        """
        while True:
            self.processes.check()
            time.sleep(WATCH_SECONDS)

    def _wait_for(self, path: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        last = "it did not answer"
        with httpx.Client(trust_env=False, timeout=5.0) as client:
            while time.monotonic() < deadline:
                self.processes.check()
                try:
                    answer = client.get(self.origin + path)
                except httpx.TransportError:
                    time.sleep(POLL_SECONDS)
                    continue
                if answer.is_success:
                    return
                last = f"it answered {answer.status_code} {answer.text[:500]}"
                time.sleep(POLL_SECONDS)
        raise SandboxError(f"The service was not ready at {self.origin}{path} within {START_SECONDS:.0f} s: {last}")
