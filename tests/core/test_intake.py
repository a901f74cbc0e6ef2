from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ranking_evaluate.core import intake, json_text
from ranking_evaluate.core.errors import ErrorCode, OperationError

VALID = b'{"queries":[{"id":"q\\u00e9","retrieved":["a","b[","{c\\""],"judgments":[{"id":"a","grade":1.5}]}],"k":1e1}'


def _refusal(body: bytes) -> OperationError:
    with pytest.raises(OperationError) as refused:
        intake.read(body)
    return refused.value


def _code(body: bytes) -> ErrorCode | None:
    try:
        intake.read(body)
    except OperationError as refused:
        return refused.code
    return None


@pytest.mark.parametrize("written", [b"10", b"10.0", b"1e1", b"1E+1", b"100e-1"])
def test_an_integral_number_is_an_integer_however_written(written: bytes) -> None:
    value = intake.read(b'{"k":[' + written + b"]}")
    assert repr(value) == "{'k': [10]}"


def test_negative_zero_is_zero_and_a_huge_float_stays_one() -> None:
    assert repr(intake.read(b"[-0.0,-0,1e300,0.5,9007199254740992.0]")) == "[0, 0, 1e+300, 0.5, 9007199254740992.0]"
    assert repr(intake.read(b"1.0")) == "1"


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (b'{"a":{"k":1,"k":2}}', ErrorCode.DUPLICATE_FIELD, "/a/k"),
        (b'{"a":{"k":1,"\\u006b":2}}', ErrorCode.DUPLICATE_FIELD, "/a/k"),
        (b'[0,{"a/b~":1e400}]', ErrorCode.INVALID_NUMBER, "/1/a~1b~0"),
        (b'{"a":1e400,"a":1}', ErrorCode.INVALID_NUMBER, "/a"),
        (b"1e400", ErrorCode.INVALID_NUMBER, ""),
        (b"[" + b"9" * 5000 + b"]", ErrorCode.INVALID_NUMBER, "/0"),
        (b'["\\udc00"]', ErrorCode.INVALID_UNICODE, "/0"),
        (b'{"a":{"\\udc00":"\\udc00"}}', ErrorCode.INVALID_UNICODE, "/a"),
        (b'{"a":[{"__proto__":1}]}', ErrorCode.UNSAFE_KEY, "/a/0"),
        (b'{"constr\\u0075ctor":1}', ErrorCode.UNSAFE_KEY, ""),
    ],
)
def test_a_fault_is_named_with_its_place(body: bytes, code: ErrorCode, pointer: str) -> None:
    refused = _refusal(body)
    assert (refused.code, refused.pointer) == (code, pointer)


def test_an_unsafe_name_is_fine_as_a_value_and_within_another_name() -> None:
    body = b'{"a":"__proto__","x\\"__proto__":"constructor","my_prototype":["prototype"]}'
    assert intake.read(body) == json.loads(body)


def test_depth_20_is_accepted_and_depth_21_is_not() -> None:
    assert intake.read(b"[" * 20 + b"]" * 20)
    assert _refusal(b"[" * 21 + b"]" * 21).code == ErrorCode.COMPLEXITY_LIMIT


def test_brackets_within_strings_do_not_hide_depth() -> None:
    opened, closed = b'["]]]]]]]]]]",' * 21, b"]" * 21
    assert _refusal(opened + b"0" + closed).code == ErrorCode.COMPLEXITY_LIMIT


def test_12000_values_are_accepted_and_one_more_is_not() -> None:
    assert intake.read(b"[" + b"0," * 11_998 + b"0]")
    assert _refusal(b"[" + b"0," * 11_999 + b"0]").code == ErrorCode.COMPLEXITY_LIMIT


def test_commas_within_strings_and_empty_containers_are_not_counted_as_values() -> None:
    assert intake.read(b'["' + b"," * 20_000 + b'"]')
    assert intake.read(b"[" + b"[ ]," * 11_998 + b"{}]")
    assert _refusal(b"[" + b"[ ]," * 11_999 + b"{}]").code == ErrorCode.COMPLEXITY_LIMIT


def test_white_space_counts_only_towards_the_raw_limit() -> None:
    assert intake.read(b"[]".ljust(intake.RAW_BYTES)) == []
    assert _refusal(b"[]".ljust(intake.RAW_BYTES + 1)).code == ErrorCode.INPUT_LIMIT


def test_the_compact_form_may_be_exactly_100000_bytes() -> None:
    exact = b'["' + b"x" * (intake.CANONICAL_BYTES - 4) + b'"]'
    assert intake.read(exact)
    assert _refusal(exact.replace(b"x", b"xx", 1)).code == ErrorCode.INPUT_LIMIT


@pytest.mark.parametrize(
    "body", [b"[" * 131_072, b'[{"a":' * 20_000, b'"' + b'\\"' * 60_000, b"[" * 2000 + b"]" * 1999]
)
def test_what_never_closes_is_malformed_however_deep(body: bytes) -> None:
    assert _refusal(body).code == ErrorCode.MALFORMED_JSON


def test_depth_in_a_member_that_is_overwritten_is_depth() -> None:
    assert _refusal(b'{"a":' + b"[" * 20 + b"]" * 20 + b',"a":1}').code == ErrorCode.COMPLEXITY_LIMIT


@pytest.mark.parametrize("name", ["b", 'q"', "b:", "\\u0062", "é"])
def test_a_member_twice_is_seen_among_colons_quotes_and_escapes(name: str) -> None:
    written = json.dumps(name)
    body = f'{{"a":[":\\":",{{{written}:1,"x:":"{{:}}",{written}:":"}}]}}'.encode()
    refused = _refusal(body)
    assert (refused.code, refused.pointer) == (ErrorCode.DUPLICATE_FIELD, f"/a/1/{name}")
    assert intake.read(body.replace(f"{written}:1,".encode(), b"")) == {"a": [':":', {"x:": "{:}", name: ":"}]}


def test_the_fault_that_is_named_first_is_that_of_the_last_place_as_ever() -> None:
    body = b'[{"a":[1e400]},{"b":{"c":"\\ud800","d":1e400}}]'
    assert (_refusal(body).code, _refusal(body).pointer) == (ErrorCode.INVALID_UNICODE, "/1/b/c")


def test_a_pointer_is_cut_before_a_name_that_would_fill_the_screen() -> None:
    assert _refusal(b'{"a":{"' + b"x" * 90_000 + b'":1e400}}').pointer == "/a"


def test_a_detail_never_quotes_the_input() -> None:
    for body in (
        b'{"SECRET":1,"SECRET":1}',
        b'["SECRET\\ud800"]',
        b"[SECRET]",
        b'{"prototype":"SECRET"}',
        b'[1e400,"SECRET"]',
    ):
        assert "SECRET" not in _refusal(body).detail


@given(st.binary(max_size=60) | st.text(alphabet='[]{}",:\\u0d8e+-.1tfn ', max_size=60).map(str.encode))
def test_no_bytes_bring_anything_but_a_refusal(body: bytes) -> None:
    _code(body)


@given(
    st.integers(0, len(VALID)),
    st.integers(0, 8),
    st.binary(max_size=4) | st.sampled_from([b'"', b"\\", b"[", b"e", b"1e999"]),
)
def test_no_mutation_of_a_valid_body_brings_anything_but_a_refusal(start: int, cut: int, inserted: bytes) -> None:
    body = VALID[:start] + inserted + VALID[start + cut :]
    try:
        json.loads(body.decode(), parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert _code(body) == ErrorCode.MALFORMED_JSON
    else:
        assert _code(body) != ErrorCode.MALFORMED_JSON


# A tree in which an object is a tuple of pairs, so that it can have equal names.
NAMES = st.sampled_from(["a", "b", "", 'a"', "\\", '\\"', "[", "{,", "constructor", '"__proto__', "__proto__", "é"])
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | NAMES | st.text(max_size=5)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(NAMES, inner), max_size=3).map(tuple),
    max_leaves=12,
)


def _written(tree: Any, chance: random.Random) -> str:
    """Return the tree as JSON, with random white space and escapes."""

    def space() -> str:
        return chance.choice(("", "", " ", "\n\t"))

    if isinstance(tree, list):
        inner = ",".join(_written(item, chance) for item in tree)
        return f"{space()}[{space()}{inner}{space()}]"
    if isinstance(tree, tuple):
        members = ",".join(f"{_written(name, chance)}{space()}:{_written(member, chance)}" for name, member in tree)
        return f"{{{space()}{members}{space()}}}{space()}"
    if isinstance(tree, str) and chance.random() < 0.3:
        return '"' + "".join(f"\\u{ord(one):04x}" if ord(one) < 0x10000 else one for one in tree) + '"'
    return space() + json.dumps(tree, ensure_ascii=chance.random() < 0.5) + space()


def _naive(tree: Any) -> tuple[int, int, bool, bool]:
    """Return the values, the depth, and whether a name is repeated or unsafe."""
    if not isinstance(tree, list | tuple):
        return 1, 0, False, False
    names = [name for name, _ in tree] if isinstance(tree, tuple) else []
    items = [member for _, member in tree] if isinstance(tree, tuple) else tree
    inner = [_naive(item) for item in items]
    return (
        1 + sum(values for values, _, _, _ in inner),
        1 + max((depth for _, depth, _, _ in inner), default=0),
        len(set(names)) < len(names) or any(repeated for _, _, repeated, _ in inner),
        any(name in ("constructor", "prototype", "__proto__") for name in names) or any(bad for _, _, _, bad in inner),
    )


@given(TREES, st.integers(1, 12), st.integers(1, 4), st.randoms(use_true_random=False))
@example([[], ()], 3, 2, random.Random(1))
def test_values_depth_duplicates_and_unsafe_names_are_exact(
    tree: Any, most_values: int, most_depth: int, chance: random.Random
) -> None:
    text = _written(tree, chance)
    values, depth, repeated, unsafe = _naive(tree)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_text, "VALUES", most_values)
        patched.setattr(json_text, "DEPTH", most_depth)
        code = _code(text.encode())
    if values > most_values or depth > most_depth:
        assert code == ErrorCode.COMPLEXITY_LIMIT
    elif repeated:
        assert code == ErrorCode.DUPLICATE_FIELD
    elif unsafe:
        assert code == ErrorCode.UNSAFE_KEY
    else:
        assert code is None
        assert intake.read(text.encode()) == json.loads(text)


@given(TREES, st.sampled_from(["1e400", "-1e999", '"\\ud800"', '"\\udc00x"']), st.randoms(use_true_random=False))
def test_what_cannot_be_represented_is_found_anywhere(tree: Any, fault: str, chance: random.Random) -> None:
    _, depth, _, _ = _naive(tree)
    assume(depth < json_text.DEPTH)
    expected = ErrorCode.INVALID_UNICODE if "u" in fault else ErrorCode.INVALID_NUMBER
    assert _code(f"[{_written(tree, chance)},{fault}]".encode()) == expected
