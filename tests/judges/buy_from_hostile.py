"""One purchase by an impatient buyer from our service, whose facilitator is the one of `hostile-facilitator`.

Run by it, as its "client": FACILITATOR_URL and HOSTILE_CLIENT_TIMEOUT come from the environment. The buyer is the
official client, which signs again at every 402; it asks three times unless it is answered.

    hostile-facilitator test --client-timeout 1 -- python tests/judges/buy_from_hostile.py
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Final

import uvicorn
from eth_account import Account
from x402 import x402Client
from x402.http.clients import x402HttpxClient
from x402.mechanisms.evm.exact import register_exact_evm_client

from ranking_evaluate.bootstrap import build
from ranking_evaluate.settings import read_settings

TRIES: Final = 3
BODY: Final = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'


def serve(database: Path, listener: socket.socket) -> uvicorn.Server:
    """Start the service in a thread of this process and return it once it serves."""
    port = listener.getsockname()[1]
    settings = read_settings(
        {
            "RANKING_EVALUATE_DATABASE_URL": f"sqlite:///{database}",
            "RANKING_EVALUATE_X402_PAY_TO": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "RANKING_EVALUATE_X402_NETWORK": "eip155:84532",
            "RANKING_EVALUATE_X402_FACILITATOR_URL": os.environ["FACILITATOR_URL"],
            # The deadline at which the battery expects the caller of a facilitator to give up.
            "RANKING_EVALUATE_SETTLE_TIMEOUT": os.environ["HOSTILE_CLIENT_TIMEOUT"],
        },
        port=port,
    )
    server = uvicorn.Server(uvicorn.Config(build(settings), http="httptools", ws="none", log_config=None))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return server


async def buy(origin: str) -> list[int]:
    """Ask for one answer until it comes, and return the statuses."""
    key = f"pay_{uuid.uuid4().hex}"
    client = x402Client()
    client.set_spend_controls(False)
    register_exact_evm_client(client, Account.create())

    statuses: list[int] = []
    for _ in range(TRIES):
        async with x402HttpxClient(client, timeout=20) as http:
            answer = await http.post(
                f"{origin}/v1/x402/ranking-evaluate",
                content=BODY,
                headers={"Content-Type": "application/json", "Idempotency-Key": key},
            )
        statuses.append(answer.status_code)
        if answer.status_code == 200:
            break
    return statuses


def main() -> None:
    """Serve, buy, and append the statuses to the file that BUYER_LOG names."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = serve(Path(folder) / "attempts.db", listener)
        statuses = asyncio.run(buy(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        server.should_exit = True
    if "BUYER_LOG" in os.environ:
        with Path(os.environ["BUYER_LOG"]).open("a", encoding="utf-8") as log:
            log.write(f"{statuses}\n")
    sys.exit(0 if statuses[-1] == 200 else 1)


if __name__ == "__main__":
    main()
