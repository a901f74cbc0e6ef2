"""Send mutated bodies and credentials, and many requests, to a served process. For long runs, start the module itself:

    python -m tests.hostile.torture --mutations 100000 --requests 100000

Prints the answers by status, and the memory of the process before and after. Fails at the first 5xx.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from typing import IO, Final

from tests.hostile.service import (
    BODY,
    CHAIN_ID,
    CURRENCY,
    HOST,
    JSON,
    KEY,
    MPP_PATH,
    PATH,
    PAYEE,
    Answer,
    Service,
    buyer,
    neighbourhood,
    read_answer,
    request,
)
from tests.hostile.wallet import WALLET
from tests.oracles.answer_keys import BODIES
from tests.payments import mpp_buyer

TOKENS: Final = (
    *(b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\u", b"null", b"true", b"NaN"),
    *(
        b"-",
        b"1e400",
        b"-0",
        b"1E-400",
        b"9" * 400,
        b"0.1",
        b"1_0",
        b"\x00",
        b"\x0c",
        b"\xff",
        b"\xc0\x80",
        b"\xef\xbb\xbf",
    ),
    *(
        b'"__proto__":1,',
        b'"constructor":{},',
        b"[" * 30,
        b'{"a":' * 30,
        b'"k":1,',
        b'"queries":',
        "é".encode(),
        b"\xf0\x9f\x98\x80",
    ),
)


def mutate(source: bytes, chance: random.Random) -> bytes:
    """Return a source with a few of its bytes changed, moved, doubled or cut."""
    data = bytearray(source)
    for _ in range(chance.randint(1, 4)):
        at, to = sorted(chance.randint(0, len(data)) for _ in range(2))
        match chance.randrange(7):
            case 0 if data:
                data[min(at, len(data) - 1)] = chance.randrange(256)
            case 1:
                data[at:at] = chance.choice(TOKENS)
            case 2:
                del data[at : min(to, at + 20)]
            case 3:
                data[to:to] = data[at : min(to, at + 200)]
            case 4:
                del data[at:]
            case 5 if data:
                data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
            case _:
                data[at:to] = bytes(reversed(data[at:to])) if chance.random() < 0.1 else data[at:to]
    return bytes(data)


def line(name: str, value: bytes) -> bytes:
    """Return a header line; what would end it is no part of a value."""
    return name.encode() + b": " + value.translate(None, b"\r\n\x00")


def mutations(service: Service, count: int, seed: int) -> Iterator[bytes]:
    """Yield requests with a mutated body, or with a mutated credential of either protocol."""
    chance = random.Random(seed)
    bodies = [BODY, *(row["body"] for row in BODIES)]
    bodies = [body for body in bodies if len(body) < 4_000]
    with buyer(service) as shopper:
        x402 = json.dumps(shopper.sign(KEY)).encode()
        headers = {"Idempotency-Key": KEY, "Content-Type": "application/json"}
        challenge = shopper.client.post(MPP_PATH, content=BODY, headers=headers).headers["www-authenticate"]
    mpp = mpp_buyer.craft(challenge, WALLET, chain_id=CHAIN_ID, token=CURRENCY, recipient=PAYEE).encode()
    echoed = base64.urlsafe_b64decode(mpp.split()[1] + b"==")
    for number in range(count):
        key = b"Idempotency-Key: " + (KEY.encode() if number % 3 else b"torture-%016d" % number)
        match number % 6:
            case 0 | 1 | 2:
                path = PATH if number % 2 else MPP_PATH
                yield request(HOST, JSON, key, path=path, body=mutate(chance.choice(bodies), chance))
            case 3:
                header = base64.b64encode(mutate(x402, chance))
                header = mutate(header, chance) if chance.random() < 0.2 else header
                yield request(HOST, JSON, key, line("PAYMENT-SIGNATURE", header))
            case 4:
                header = base64.urlsafe_b64encode(mutate(echoed, chance)).rstrip(b"=")
                yield request(HOST, JSON, key, line("Authorization", b"Payment " + header), path=MPP_PATH)
            case _:
                yield request(HOST, JSON, key, line("Authorization", mutate(mpp, chance)), path=MPP_PATH)


class Line:
    """One connection that is opened again whenever it was closed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connection: socket.socket | None = None
        self._reader: IO[bytes] | None = None

    def ask(self, data: bytes) -> Answer:
        if self._connection is None or self._reader is None:
            self._connection = self._service.connect()
            self._reader = self._connection.makefile("rb")
        self._connection.sendall(data)
        answer = read_answer(self._reader)
        if answer.closed:
            self.close()
        return answer

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._connection is not None:
            self._connection.close()
        self._connection = self._reader = None


def torture(service: Service, count: int, seed: int = 7) -> Counter[str]:
    """Send so many mutations; return how often each answer came."""
    seen: Counter[str] = Counter()
    with contextlib.closing(Line(service)) as caller:
        for data in mutations(service, count, seed):
            answer = caller.ask(data)
            assert answer.status is not None, data
            assert answer.status < 500, (answer, data)
            seen[f"{answer.status} {answer.code or ''}".strip()] += 1
    return seen


def soak(service: Service, count: int) -> None:
    """Send so many requests of several kinds, each under a key of its own."""
    caller = Line(service)
    for number in range(count):
        lines = (HOST, JSON, f"Idempotency-Key: soak-{number:016d}")
        match number % 4:
            case 0:
                data, status = request(*lines), 402
            case 1:
                data, status = request(*lines, path=MPP_PATH), 402
            case 2:
                data, status = request(*lines, body=b"{"), 400
            case _:
                data, status = request(*lines, method="GET", path="/v1/attempts", body=b""), 404
        assert caller.ask(data).status == status
    caller.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with neighbourhood() as place, place.running("torture", LOG_LEVEL="error") as service:
        started = time.monotonic()
        for answer, times in torture(service, given.mutations, given.seed).most_common():
            print(f"{times:8} {answer}")
        print(f"{given.mutations} mutations in {time.monotonic() - started:.0f} s, no 5xx")
        soak(service, min(10_000, given.requests))
        before, started = service.memory(), time.monotonic()
        soak(service, given.requests)
        memory = f"{before / 2**20:.1f} MiB resident before, {service.memory() / 2**20:.1f} after"
        print(f"{given.requests} requests in {time.monotonic() - started:.0f} s: {memory}")


if __name__ == "__main__":
    main()
