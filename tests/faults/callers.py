"""The callers of the trials: what they sign and send, and what each of them is up to."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ranking_evaluate import evaluate
from ranking_evaluate.attempts.fingerprint import fingerprint
from ranking_evaluate.contract.rules import published_sha256
from ranking_evaluate.operations.registry import find
from ranking_evaluate.release import VERSION
from tests.faults.bank import ASSET, NETWORK, PAYEE, PAYER
from tests.faults.facilitator import Fault
from tests.faults.invariants import Answer

if TYPE_CHECKING:
    from tests.faults.trials import Shop

OPERATION: Final = "ranking-evaluate"
PATH: Final = f"/v1/x402/{OPERATION}"
CANARY: Final = "kanarienvogel"
"""Stands in every body and signature, and may stand in no file of the service."""

SIGNATURE: Final = "0x" + (CANARY.encode().hex() * 10)[:130]
VALID_SECONDS: Final = 100
REPLY_SECONDS: Final = 10.0

BODIES: Final = tuple(
    json.dumps(
        {
            "queries": [
                {
                    "id": f"{CANARY}-{number}",
                    "retrieved": [f"{CANARY}-d{n}" for n in range(number + 1)],
                    "judgments": [{"id": f"{CANARY}-d{n}", "grade": n % 3} for n in range(number + 2)],
                }
            ]
        }
    ).encode()
    for number in range(4)
)
ANSWERS: Final = tuple(evaluate(OPERATION, body) for body in BODIES)
FINGERPRINTS: Final = tuple(
    fingerprint(
        operation=OPERATION,
        protocol="x402",
        release=VERSION,
        schema_sha256=published_sha256(find(OPERATION)),
        input_sha256=json.loads(answer)["provenance"]["inputSha256"],
    )
    for answer in ANSWERS
)


@dataclass(frozen=True, slots=True)
class Signed:
    """A credential; `proof` is what moves the money."""

    key: str
    proof: str
    valid_before: int
    dressing: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The payment payload."""
        authorization = {
            "from": PAYER,
            "to": PAYEE,
            "value": "10000",
            "validAfter": "0",
            "validBefore": str(self.valid_before),
            "nonce": self.proof,
        }
        return {
            "x402Version": 2,
            "accepted": {
                "scheme": "exact",
                "network": NETWORK,
                "asset": ASSET,
                "amount": "10000",
                "payTo": PAYEE,
                "maxTimeoutSeconds": 120,
                "extra": {"name": "Sandbox Dollar", "version": "1"},
            },
            "payload": {"authorization": authorization, "signature": SIGNATURE + self.dressing},
            "extensions": {"payment-identifier": {"info": {"required": True, "id": self.key}}},
        }

    @property
    def header(self) -> str:
        """The PAYMENT-SIGNATURE header."""
        return base64.b64encode(json.dumps(self.document).encode()).decode()

    @property
    def digest(self) -> str:
        """The digest of what was decoded (docs/lifecycle.md, section 1)."""
        text = json.dumps(self.document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer that came whole."""

    status: int
    headers: dict[str, str]
    body: bytes


async def exchange(port: int, request: bytes, leave_after: float | None) -> Reply | None:
    """Send a request and return its answer; None when there is none, or when the caller leaves before it."""
    writer = None
    try:
        async with asyncio.timeout(REPLY_SECONDS if leave_after is None else leave_after):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            values = dict(line.split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers["content-length"]))
            return Reply(int(head[0].split()[1]), {name.lower(): value for name, value in values.items()}, body)
    except (OSError, EOFError, TimeoutError):
        return None
    finally:
        if writer is not None:
            writer.transport.abort()


GARBAGE: Final = ("%%%", "e30=", base64.b64encode(b'{"x402Version":2').decode())


class Plot:
    """One caller with a purchase or two in mind; every key and every credential belongs to one plot."""

    def __init__(self, shop: Shop, number: int) -> None:
        self.shop = shop
        self.random = random.Random(shop.random.random())
        self.keys = [f"plot_{shop.name}_{number:07d}_{which}" for which in "ab"]
        self.body = self.random.randrange(len(BODIES))
        self.signed: list[Signed] = []
        self.sent: set[tuple[Signed, int]] = set()
        self.kind = self.random.choice(PLOT_KINDS)

    def sign(self, key: str | None = None, fault: Fault | None = None) -> Signed:
        """Sign a payment, and decide what will become of it."""
        nonce = "0x" + self.random.randbytes(32).hex()
        signed = Signed(key or self.keys[0], nonce, int(self.shop.now) + VALID_SECONDS)
        self.shop.facilitator.plan[nonce] = fault or self.shop.some_fault(self.random)
        self.signed.append(signed)
        return signed

    async def ask(self, signed: Signed | None, key: str | None = None, **how: Any) -> Answer | None:
        """Send a request of this plot."""
        given = {"body": self.body, **how}
        if signed is not None:
            self.sent.add((signed, given["body"]))
        return await self.shop.ask(key or (signed.key if signed else self.keys[0]), signed, **given)

    async def insist(self, signed: Signed) -> Answer | None:
        """Resend until there is an answer that is one, as a patient client does."""
        answer = None
        for _ in range(4):
            answer = await self.ask(signed)
            if answer is not None and answer.status != 503 and answer.code != "PAYMENT_IN_PROGRESS":
                return answer
            await asyncio.sleep(self.random.uniform(0.01, 0.08))
            await self.shop.replicas.up.wait()
        return answer

    async def act(self) -> None:
        """Do what this kind of caller does."""
        await asyncio.sleep(self.random.uniform(0, 0.05))
        match self.kind:
            case "patient":
                await self.insist(self.sign())
            case "automatic":
                # An official client: it signs at every 402, and sends what it signed.
                answer = await self.ask(None)
                for _ in range(3):
                    if answer is not None and answer.status != 402:
                        break
                    answer = await self.insist(self.sign())
            case "copies":
                signed = self.sign()
                await asyncio.gather(*(self.ask(signed) for _ in range(4)))
                await self.insist(signed)
            case "rivals":
                one, other = self.sign(), self.sign()
                await asyncio.gather(self.insist(one), self.insist(other))
            case "relabeller":
                signed = self.sign()
                stolen = replace(signed, key=self.keys[1])
                await asyncio.gather(self.insist(signed), self.ask(stolen))
                await self.ask(stolen)
            case "dresser":
                signed = self.sign()
                await asyncio.gather(self.insist(signed), self.ask(replace(signed, dressing="00")))
            case "leaver":
                signed = self.sign(fault=self.random.choice((Fault.LATE, Fault.NONE, None)))
                await self.ask(signed, leave_after=self.random.uniform(0.001, 0.06))
                await asyncio.sleep(self.random.uniform(0, 0.05))
                await self.insist(signed)
            case _:
                signed = self.sign()
                await asyncio.gather(
                    self.insist(signed),
                    self.ask(None),
                    self.ask(None, garbage=self.random.choice(GARBAGE)),
                    self.ask(signed, body=(self.body + 1) % len(BODIES)),
                )
                await self.ask(None)

    async def come_back(self) -> None:
        """Send everything again, one after the other, right after the start."""
        for signed in self.signed:
            await self.ask(signed, quiet=True)

    async def ask_everything(self) -> None:
        """Ask for every column of the decision table, under every key."""
        wanted: list[tuple[Signed | None, dict[str, Any]]] = [(None, {}), (None, {"garbage": GARBAGE[0]})]
        wanted += [(signed, {}) for signed in self.signed]
        wanted += [(signed, {"body": (self.body + 1) % len(BODIES)}) for signed in self.signed[:1]]
        wanted += [(replace(signed, dressing="00"), {}) for signed in self.signed[:1]]
        wanted += [(replace(signed, key=self.keys[1]), {}) for signed in self.signed[:1]]
        wanted.append((self.sign(fault=Fault.NONE), {}))
        self.random.shuffle(wanted)
        for signed, how in wanted:
            await self.ask(signed, quiet=True, **how)

    async def end(self) -> None:
        """Fetch what was paid for; and where nothing was, pay, with a credential of today."""
        fetched: dict[tuple[str, str], Answer] = {}
        for signed, body in self.sent:
            paid = (signed.key, signed.proof)
            if paid in self.shop.moved:
                answer = await self.ask(signed, body=body, quiet=True)
                # Of what was sent with one authorization, one request is the purchase: the others are conflicts.
                if answer is not None and (answer.status == 200 or paid not in fetched):
                    fetched[paid] = answer
        self.shop.history.last.update(fetched)
        await self.ask(self.sign(fault=Fault.NONE), quiet=True)

    async def next_day(self) -> None:
        """Ask again when every window is over."""
        await self.ask_everything()


PLOT_KINDS: Final = (
    "patient",
    "patient",
    "automatic",
    "automatic",
    "copies",
    "rivals",
    "relabeller",
    "dresser",
    "leaver",
    "leaver",
    "asker",
)
