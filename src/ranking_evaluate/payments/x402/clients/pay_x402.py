"""Buy one answer over x402 with the official Python SDK: pip install "x402[evm,httpx]==2.25.0"

python pay_x402.py INPUT.json KEY >ANSWER.json
"""

import asyncio
import os
import sys
from pathlib import Path

import httpx
from eth_account import Account
from x402 import x402Client
from x402.http.clients import x402HttpxClient
from x402.http.utils import encode_payment_signature_header
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.schemas.hooks import PaymentCreatedContext

origin = os.environ["ORIGIN"]
operation = os.environ.get("OPERATION", "ranking-evaluate")
body, key = Path(sys.argv[1]).read_bytes(), sys.argv[2]

# The key belongs to this purchase and the credential to this key: both are kept, and sent again rather than made anew.
# Whoever reads the credential before it is settled can spend it, so nobody else may.
os.umask(0o077)
saved = Path(f"{key}.x402")
headers = {"Content-Type": "application/json", "Idempotency-Key": key}

client = x402Client()
register_exact_evm_client(client, Account.from_key(os.environ["WALLET_KEY"]))
# Without this the SDK refuses tokens that it does not know, and with it everything but this token and this price.
client.set_spend_controls(
    {
        "allowed_assets": [
            {
                "network": os.environ["X402_NETWORK"],
                "asset": os.environ["X402_ASSET"],
                "max_amount_per_payment": "10000",
            }
        ]
    }
)


def save_the_credential(context: PaymentCreatedContext) -> None:
    """Keep the credential before it is sent."""
    saved.write_text(encode_payment_signature_header(context.payment_payload))


client.on_after_payment_creation(save_the_credential)


async def buy(paying: httpx.AsyncClient) -> httpx.Response:
    """Return what the service answers."""
    async with paying:
        return await paying.post(f"{origin}/v1/x402/{operation}", content=body, headers=headers)


# A credential that is already there is sent again, and never a second one is signed.
if saved.exists():
    headers["PAYMENT-SIGNATURE"] = saved.read_text()
    response = asyncio.run(buy(httpx.AsyncClient(timeout=130)))
else:
    response = asyncio.run(buy(x402HttpxClient(client, timeout=130)))
sys.stdout.buffer.write(response.content)
sys.stderr.write(f"{response.status_code} {response.headers.get('PAYMENT-RESPONSE', 'no receipt')}\n")
sys.exit(0 if response.status_code == 200 else 1)
