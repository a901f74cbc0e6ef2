"""Hundreds of Authorization headers that are no good credential: cut, damaged, nested, oversized, several at once."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator


def malformed(good: str) -> Iterator[str]:
    """Yield damaged forms of a good header, the same ones each time."""
    rng = random.Random(402)
    scheme, token = good.split()
    document = json.loads(base64.urlsafe_b64decode(token + "=="))

    def packed(value: object) -> str:
        return f"{scheme} " + base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    def raw(data: bytes) -> str:
        return f"{scheme} " + base64.urlsafe_b64encode(data).decode().rstrip("=")

    for _ in range(150):
        yield good[: rng.randrange(len(good))]
    for _ in range(150):
        place = rng.randrange(len(scheme) + 1, len(good))
        yield good[:place] + rng.choice('AZaz09-_=+/ ,"é\0') + good[place + 1 :]
    for depth in (10, 100, 1_000, 10_000):
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            yield raw((opening * depth + "1" + closing * depth).encode())
            yield raw((opening * depth).encode())
            yield packed({**document, "payload": {"type": "transaction", "signature": depth * "0"}})
        yield raw(
            json.dumps(document)
            .replace('"payload": {', '"payload": {"deep": ' + "[" * depth + "]" * depth + ", ")
            .encode()
        )
        yield f"{scheme} " + "A" * depth * 3
        yield f'Digest a="{depth * chr(92)}' + '"' * depth
        yield '"\\' * depth + f", {good}"
        yield f"{scheme} " + ", ".join([token] * 3)
        yield ", ".join([good] * (depth // 100 + 2))
        yield f"Bearer {'x' * depth}"
    for part in ("challenge", "payload"):
        for value in (None, 1, 1.5, True, "x", [], {}, [document], {"id": 1}, {"type": "hash"}, {"type": "proof"}):
            yield packed({**document, part: value})
        yield packed({name: value for name, value in document.items() if name != part})
    for name in document["challenge"]:
        for value in (None, 0, -1.5, [], {}, "", "x", "é\r\n", "e30", "W10", "A" * 30_000):
            yield packed({**document, "challenge": {**document["challenge"], name: value}})
    signature = document["payload"]["signature"]
    for value in (
        None,
        1,
        "",
        "0x",
        "0x76",
        "0x78" + signature[4:],
        signature[2:],
        signature + "00",
        signature[:-2],
        "0x76c0",
    ):
        yield packed({**document, "payload": {"type": "transaction", "signature": value}})
    for _ in range(60):
        place = rng.randrange(2, len(signature))
        damaged = signature[:place] + rng.choice("0123456789abcdefgX") + signature[place + 1 :]
        yield packed({**document, "payload": {"type": "transaction", "signature": damaged}})
    for value in ("0x", "0x12", "0x" + "g" * 64, 5, None):
        yield packed({**document, "payload": {"type": "hash", "hash": value}})
    for data in (b"", b"null", b"NaN", b"1e999", b'{"a":1,"a":2}', b"\xff\xfe", b'"\\ud800"', b'{"__proto__":{}}'):
        yield raw(data)
        yield raw(json.dumps(document).encode()[:-1] + b"," + data + b"}")
