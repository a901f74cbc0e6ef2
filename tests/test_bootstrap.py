"""Which store a DATABASE_URL opens, and what an operator reads when it cannot."""

from __future__ import annotations

import sys

import pytest

from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.bootstrap import open_store
from ranking_evaluate.settings import SettingsError, read_database_url


def test_the_url_chooses_the_store() -> None:
    assert isinstance(open_store("sqlite:///attempts.db"), SqliteStore)
    assert isinstance(open_store("postgresql://me@localhost/attempts"), PostgresStore)


def test_without_the_extra_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingsError) as caught:
        open_store("postgresql://me@localhost/attempts")
    assert caught.value.faults == [
        "RANKING_EVALUATE_DATABASE_URL: a postgresql:// store needs `pip install 'ranking-evaluate[postgres]'`"
    ]


def test_a_url_that_cannot_be_read_is_refused_without_being_quoted() -> None:
    with pytest.raises(SettingsError) as caught:
        open_store("postgresql://me:secret@localhost/attempts?no_such_option=secret")
    assert caught.value.faults == ["RANKING_EVALUATE_DATABASE_URL: not a PostgreSQL URL that can be read"]


def test_where_attempts_are_is_read_whatever_the_other_variables_say() -> None:
    wrong = {"RANKING_EVALUATE_X402_PAY_TO": "0x12", "RANKING_EVALUATE_SETTLE_TIMEOUT": "never"}
    assert read_database_url(wrong) == "sqlite:///ranking-evaluate.db"
    with pytest.raises(SettingsError, match="RANKING_EVALUATE_DATABASE_URL"):
        read_database_url({"RANKING_EVALUATE_DATABASE_URL": "mysql://somewhere"})
