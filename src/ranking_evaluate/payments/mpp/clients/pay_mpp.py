"""Buy one answer over MPP with the official Python SDK: pip install "pympp[tempo]==0.16.0"

python pay_mpp.py INPUT.json KEY >ANSWER.json
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import httpx
from mpp.client.transport import Mpp
from mpp.methods.tempo import TempoAccount
from mpp.methods.tempo import client as tempo

origin = os.environ["ORIGIN"]
operation = os.environ.get("OPERATION", "ranking-evaluate")
body, key = Path(sys.argv[1]).read_bytes(), sys.argv[2]

# The key belongs to this purchase and the credential to this key: both are kept, and sent again rather than made anew.
# Whoever reads the credential before it is settled can spend it, so nobody else may.
os.umask(0o077)
saved = Path(f"{key}.mpp")
headers = {"Content-Type": "application/json", "Idempotency-Key": key}

# Nothing but this token, this chain and this price is ever signed.
charge = tempo.charge(
    account=TempoAccount.from_key(os.environ["WALLET_KEY"]),
    chain_id=int(os.environ["MPP_NETWORK"].removeprefix("eip155:")),
    rpc_url=os.environ["MPP_RPC_URL"],
    currencies=[os.environ["MPP_ASSET"]],
    max_atomic_amount=10_000,
)
# One retry, with the credential: the SDK's default of three may sign three payments.
mpp = Mpp(methods=[charge], allowed_origins=[origin], max_payment_retries=1, paid_retry_timeout=130)


def save_the_credential(event: dict[str, Any]) -> None:
    """Keep the credential before it is sent."""
    saved.write_text(event["credential"].to_authorization())


mpp.on_credential_created(save_the_credential)


async def buy(paying: httpx.AsyncClient) -> httpx.Response:
    """Return what the service answers."""
    async with paying:
        return await paying.post(f"{origin}/v1/mpp/{operation}", content=body, headers=headers)


# A credential that is already there is sent again, and never a second one is signed.
if saved.exists():
    headers["Authorization"] = saved.read_text()
    response = asyncio.run(buy(httpx.AsyncClient(timeout=130)))
else:
    response = asyncio.run(buy(mpp.client(timeout=130)))
sys.stdout.buffer.write(response.content)
sys.stderr.write(f"{response.status_code} {response.headers.get('Payment-Receipt', 'no receipt')}\n")
sys.exit(0 if response.status_code == 200 else 1)
