from __future__ import annotations

import random
from itertools import groupby, pairwise, permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate.core.evidence import METRICS, Reason
from ranking_evaluate.operations.measurement import Observation, Protocol, measure

POOL = "abcdef"
PROTOCOL: Protocol = {
    "method": "supplied",
    "corpus": {"id": "docs", "sha256": "a" * 64},
    "cutoff": "2026-01-01T00:00:00Z",
    "retrievalUnit": "document",
    "k": 3,
    "referenceVersion": "v1",
}


def _observation(returned: list[str], gains: dict[str, int] | None, complete: bool, **changes: Any) -> Observation:
    observation: Observation = {
        "queryId": "q",
        "corpus": PROTOCOL["corpus"],
        "cutoff": PROTOCOL["cutoff"],
        "retrievalUnit": PROTOCOL["retrievalUnit"],
        "k": 3,
        "referenceVersion": "v1",
        "returned": returned,
        "labels": None if gains is None else [{"id": unit, "gain": gain} for unit, gain in gains.items()],
        "populationComplete": complete,
        "scan": "complete",
        "access": "permitted",
    }
    observation.update(changes)  # type: ignore[typeddict-item]
    return observation


def _row(observation: Observation) -> Any:
    protocol: Protocol = {**PROTOCOL, "k": observation["k"]}
    rows: Any = measure(protocol, [observation])["observations"]
    return rows[0]


def _values(observation: Observation) -> dict[str, float]:
    """Return the metrics that are available."""
    metrics = _row(observation)["metrics"]
    return {name: one["value"] for name, one in metrics.items() if one["status"] == "available"}


GAINS = st.dictionaries(st.sampled_from(POOL), st.integers(0, 4))
OBSERVATIONS = st.builds(
    _observation,
    returned=st.lists(st.sampled_from(POOL), max_size=8),
    gains=GAINS,
    complete=st.booleans(),
    k=st.integers(1, 6),
)


def _with_labels(observation: Observation, gains: dict[str, int]) -> Observation:
    """Return the observation with those labels that it lacks, as far as its claim of completeness allows."""
    known = observation["labels"] or []
    present = {label["id"] for label in known}
    complete = observation["populationComplete"]
    added: Any = [{"id": unit, "gain": 0 if complete else gain} for unit, gain in gains.items() if unit not in present]
    return {**observation, "labels": [*known, *added]}


@given(OBSERVATIONS, GAINS)
def test_an_available_value_does_not_depend_on_an_absent_label(observation: Observation, gains: dict[str, int]) -> None:
    before = _values(observation)
    after = _values(_with_labels(observation, gains))
    assert {name: after.get(name) for name in before} == before


@given(
    OBSERVATIONS,
    GAINS,
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "scan": st.just("partial"),
            "access": st.just("violation"),
            "corpus": st.just({"id": "other", "sha256": "b" * 64}),
            "referenceVersion": st.just("v0"),
            "retrievalUnit": st.just("passage"),
            "labels": st.none(),
        },
    ),
)
def test_more_evidence_never_makes_a_value_unavailable(
    observation: Observation, gains: dict[str, int], completed: bool, missing: dict[str, Any]
) -> None:
    less: Any = {**observation, **missing}
    if less["labels"] is None:
        less["populationComplete"] = False
    # Label by label, then the claim of completeness, then all that was missing.
    chain = [less, _with_labels(less, gains)]
    if completed:
        chain.append({**chain[-1], "populationComplete": True})
    chain.append({**chain[-1], **{name: observation[name] for name in missing if name != "labels"}})  # type: ignore[literal-required]
    available = [set(_values(one)) for one in chain]
    for fewer, more in pairwise(available):
        assert fewer <= more


@given(OBSERVATIONS, st.data())
def test_a_repeat_never_raises_a_figure(observation: Observation, data: st.DataObject) -> None:
    returned = observation["returned"]
    if not returned:
        return
    first = data.draw(st.integers(0, len(returned) - 1))
    place = data.draw(st.integers(first + 1, len(returned)))
    repeated: Observation = {**observation, "returned": [*returned[:place], returned[first], *returned[place:]]}
    before = _values(observation)
    for name, value in _values(repeated).items():
        # A repeat may push out of the window what made a metric unavailable.
        assert name not in before or value <= before[name]


@given(OBSERVATIONS)
def test_a_repeat_counts_as_much_as_a_unit_known_to_be_of_no_use(observation: Observation) -> None:
    seen: set[str] = set()
    fresh = []
    for position, unit in enumerate(observation["returned"]):
        fresh.append(f"fresh{position}" if unit in seen else unit)
        seen.add(unit)
    useless: Any = [{"id": unit, "gain": 0} for unit in fresh if unit.startswith("fresh")]
    distinct: Observation = {**observation, "returned": fresh, "labels": [*(observation["labels"] or []), *useless]}
    assert _values(observation) == _values(distinct)


@given(OBSERVATIONS)
def test_an_unavailable_metric_has_a_reason_and_reasons_stand_in_the_order_of_the_enum(
    observation: Observation,
) -> None:
    order = list(Reason)
    for one in _row(observation)["metrics"].values():
        if one["status"] == "unavailable":
            places = [order.index(reason) for reason in one["reasons"]]
            assert places
            assert places == sorted(set(places))


# Tie bounds.


def _allowed(returned: list[str], scores: list[float]) -> list[list[str]]:
    """Return every order of the returned units that the scores allow."""
    pairs = zip(scores, returned, strict=True)
    groups = [[unit for _, unit in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]
    return [[unit for group in order for unit in group] for order in product(*map(permutations, groups))]


@st.composite
def _scored(draw: st.DrawFn) -> Observation:
    returned = draw(st.lists(st.sampled_from(POOL), unique=True, max_size=6))
    scores = sorted(draw(st.lists(st.sampled_from([3, 2.5, 1]), min_size=len(returned), max_size=len(returned))))[::-1]
    gains, complete, k = draw(GAINS), draw(st.booleans()), draw(st.integers(1, 7))
    return _observation(returned, gains, complete, scores=scores, k=k)


@given(_scored())
def test_tie_bounds_equal_brute_force_and_the_supplied_order_lies_between(observation: Observation) -> None:
    supplied = _values(observation)
    bounds = _row(observation)["tieBounds"]
    assert set(bounds) == set(supplied)
    orders = [
        _values({**observation, "returned": order})
        for order in _allowed(observation["returned"], observation["scores"])
    ]
    for name, value in supplied.items():
        if any(name not in order for order in orders):
            assert bounds[name] == {"status": "unavailable", "reasons": ["UNLABELED_RETURNED_UNIT"]}
            continue
        # The very doubles, not close ones.
        assert bounds[name] == {
            "min": min(order[name] for order in orders),
            "max": max(order[name] for order in orders),
        }
        assert bounds[name]["min"] <= value <= bounds[name]["max"]


@given(_scored(), GAINS)
def test_an_available_tie_bound_does_not_depend_on_an_absent_label(
    observation: Observation, gains: dict[str, int]
) -> None:
    before = {name: one for name, one in _row(observation)["tieBounds"].items() if "min" in one}
    after = _row(_with_labels(observation, gains))["tieBounds"]
    assert {name: after.get(name) for name in before} == before


def test_with_a_hundred_units_every_supplied_order_lies_between_the_same_bounds() -> None:
    chance = random.Random(100)
    units = [f"u{position}" for position in range(100)]
    gains = {unit: chance.randrange(5) for unit in units}
    scores = sorted((chance.randrange(6) for _ in units), reverse=True)
    seen = set()
    for _ in range(200):
        order = [
            unit for _, unit in sorted(zip(scores, units, strict=True), key=lambda one: (-one[0], chance.random()))
        ]
        row = _row(_observation(order, gains, True, scores=scores, k=70))
        seen.add(str(row["tieBounds"]))
        for name in METRICS:
            bounds = row["tieBounds"][name]
            assert bounds["min"] <= row["metrics"][name]["value"] <= bounds["max"]
    assert len(seen) == 1


@pytest.mark.parametrize(("one", "other", "tied"), [(0.0, -0.0, True), (2**53 + 1, 2**53, True), (1.5, 1, False)])
def test_scores_tie_when_they_are_the_same_double(one: float, other: float, tied: bool) -> None:
    row = _row(_observation(["a", "b"], {"a": 0, "b": 1}, True, scores=[one, other], k=1))
    assert row["tieBounds"]["precision"] == {"min": 0, "max": 1 if tied else 0}


def test_bounds_of_a_cut_tie_are_unavailable_for_that_reason_alone() -> None:
    observation = _observation(["a", "b"], {"a": 0}, False, scores=[1, 1], k=1)
    rows: Any = measure({**PROTOCOL, "k": 1}, [observation], ties_cut={"q"})["observations"]
    # Reciprocal rank is not available at all, so it has no bounds.
    assert rows[0]["tieBounds"] == {"precision": {"status": "unavailable", "reasons": ["TIES_CUT"]}}
