from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate.core import instants


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z",
        "2026-01-01t00:00:00Z",
        "2026-01-01T00:00:00z",
        "2026-01-01T00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2016-12-31T23:59:60Z",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00.0123456789Z",
        "2026-01-01T00:00:00,5Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+0100",
        "2026-01-01T00:00:00Z\n",
        " 2026-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0000-02-29T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "٢٠٢٦-01-01T00:00:00Z",
        "2026-01-01T00:00:00−01:00",
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        instants.nanoseconds(text)


@pytest.mark.parametrize("year", [1, 4, 100, 400, 1600, 1900, 2000, 2023, 2024, 2100, 9996, 9999])
def test_exactly_the_days_of_the_calendar_are_accepted(year: int) -> None:
    for month in range(14):
        for day in range(33):
            text = f"{year:04}-{month:02}-{day:02}T00:00:00Z"
            try:
                real = date(year, month, day)
            except ValueError:
                with pytest.raises(ValueError, match="RFC 3339"):
                    instants.nanoseconds(text)
            else:
                assert instants.nanoseconds(text) == real.toordinal() * 86_400 * 10**9


def test_every_year_has_its_leap_day_or_not() -> None:
    for year in range(10_000):
        leap = year > 0 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        for day, real in (("01-31", year > 0), ("02-28", year > 0), ("02-29", leap)):
            try:
                instants.nanoseconds(f"{year:04}-{day}T00:00:00Z")
            except ValueError:
                assert not real
            else:
                assert real


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T05:30:00.000+05:30"),
        ("2026-01-01T00:00:00Z", "2025-12-31T19:00:00-05:00"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00-00:00"),
        ("2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.100000000Z"),
        ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00.0+23:59"),
    ],
)
def test_spellings_of_one_instant_are_equal(one: str, other: str) -> None:
    assert instants.nanoseconds(one) == instants.nanoseconds(other)


def test_a_nanosecond_apart_is_apart_and_offsets_at_both_ends_of_time_do_not_overflow() -> None:
    ordered = [
        "0001-01-01T00:00:00+23:59",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00.000000001Z",
        "9999-12-31T23:59:59.999999998Z",
        "9999-12-31T23:59:59.999999999Z",
        "9999-12-31T23:59:59.999999999-00:01",
    ]
    numbers = [instants.nanoseconds(text) for text in ordered]
    assert numbers == sorted(set(numbers))
    assert numbers[2] - numbers[1] == 1
    assert numbers[5] - numbers[4] == 60 * 10**9


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31)),  # noqa: DTZ001 - the offset is added.
    st.integers(-1439, 1439),
)
def test_away_from_the_ends_it_agrees_with_the_library(local: datetime, minutes: int) -> None:
    moment = local.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    text = f"{local.isoformat(timespec='microseconds')}{sign}{hours:02}:{rest:02}"
    since = moment - datetime(1, 1, 1, tzinfo=UTC)
    micro = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    # The proleptic calendar counts its first day as day one.
    assert instants.nanoseconds(text) == (micro + 86_400 * 10**6) * 1000


@pytest.mark.parametrize(
    ("seconds", "instant"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (951_782_400.999, "2000-02-29T00:00:00Z"),
        (4_102_444_799.0, "2099-12-31T23:59:59Z"),
    ],
)
def test_epoch_seconds_are_written_as_an_instant_of_this_form(seconds: float, instant: str) -> None:
    assert instants.written(seconds) == instant
    epoch = instants.nanoseconds("1970-01-01T00:00:00Z")
    assert instants.nanoseconds(instant) == epoch + int(seconds) * 10**9
