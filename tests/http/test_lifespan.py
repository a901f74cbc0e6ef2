"""What the lifespan opened it closes, in the opposite order, whatever else fails on the way in or out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.http.app import build_app
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates, RateStorageUnavailable
from tests.fakes import ScriptedProtocol

pytestmark = pytest.mark.anyio

IN_ORDER: Final = ["drain", "close b", "close a", "close rates", "close store"]


class Broken(Exception):
    """What a part raises that does not open or close."""


class Told(ScriptedProtocol):
    """A protocol that writes down what is called, and fails at one of its calls."""

    def __init__(self, name: str, fails: str, calls: list[str]) -> None:
        super().__init__()
        self._name, self._fails, self._calls = name, fails, calls

    async def start(self) -> None:
        if self._fails == f"start {self._name}":
            raise Broken

    async def close(self) -> None:
        self._calls.append(f"close {self._name}")
        if self._fails == f"close {self._name}":
            raise Broken


def beside(folder: Path) -> list[Path]:
    return list(folder.glob("a.db-*"))


async def run(database: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> list[str]:
    """Run the lifespan in which one call fails; return what was closed, in its order."""
    calls: list[str] = []
    store, rates = SqliteStore(database), Rates("memory://", None, None)
    protocols = tuple(Told(name, fails, calls) for name in "ab")
    evaluations = Evaluations(1, None)
    purchases = Purchases(
        store, rates, evaluations, (ScriptedProtocol.wire,), chains=Chains(()), verify_timeout=1, settle_timeout=1
    )

    def noted(what: str, whole: Any) -> Any:
        async def call() -> None:
            if not what.startswith("open"):
                calls.append(what)
                await whole()
            if fails == what:
                raise RateStorageUnavailable("Redis does not answer") if what == "open rates" else Broken

        return call

    monkeypatch.setattr(store, "close", noted("close store", store.close))
    monkeypatch.setattr(rates, "close", noted("close rates", rates.close))
    monkeypatch.setattr(rates, "open", noted("open rates", rates.open))
    monkeypatch.setattr(purchases, "drain", noted("drain", purchases.drain))
    app = build_app(
        Parts(
            chains=Chains(()),
            store=store,
            wires=(ScriptedProtocol.wire,),
            protocols=protocols,
            purchases=purchases,
            evaluations=evaluations,
            rates=rates,
            public_origin="https://rank.example",
            max_in_flight=1,
            cors_origins=(),
        )
    )
    if not fails:
        async with app.router.lifespan_context(app):
            assert not calls
        return calls
    with pytest.raises((Broken, RateStorageUnavailable)):
        async with app.router.lifespan_context(app):
            assert not fails.startswith(("start", "open"))
    return calls


@pytest.mark.parametrize("fails", ["", "drain", "close a", "close b", "close rates", "close store"])
async def test_everything_is_closed_though_one_part_fails_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    assert await run(tmp_path / "a.db", monkeypatch, fails) == IN_ORDER
    assert beside(tmp_path) == [], "a store that is closed leaves no log beside its file"


@pytest.mark.parametrize(
    ("fails", "closed"),
    [("open rates", IN_ORDER[3:]), ("start a", IN_ORDER[2:]), ("start b", IN_ORDER[1:])],
)
async def test_what_was_opened_before_a_part_that_fails_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, closed: list[str]
) -> None:
    assert await run(tmp_path / "a.db", monkeypatch, fails) == closed
    assert beside(tmp_path) == []
