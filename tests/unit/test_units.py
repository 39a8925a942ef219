"""Sizes, durations, shares and rates as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.errors import UsageError
from collbench.units import (
    approximate_size,
    format_duration,
    format_rate,
    format_size,
    format_time_us,
    gb_per_s,
    option_size,
    parse_duration,
    parse_share,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("8", 8),
        ("0", 0),
        ("64K", 65536),
        ("64k", 65536),
        ("128M", 134217728),
        ("1G", 1073741824),
        ("1T", 2**40),
        ("64KiB", 65536),
        ("1 MiB", 1048576),
        ("8B", 8),
    ],
)
def test_sizes_are_binary(text, size_bytes):
    assert parse_size(text) == size_bytes


@given(st.integers(min_value=1, max_value=2**60))
def test_a_size_survives_the_trip_through_text(size_bytes):
    assert parse_size(format_size(size_bytes)) == size_bytes
    assert parse_size(option_size(size_bytes)) == size_bytes


@given(st.integers(min_value=1, max_value=10**6), st.sampled_from(["K", "M", "G", "T"]))
def test_decimal_looking_units_are_always_refused(number, unit):
    with pytest.raises(UsageError, match="has two meanings"):
        parse_size(f"{number}{unit}B")


def test_a_decimal_unit_is_refused_with_both_meanings():
    with pytest.raises(UsageError) as caught:
        parse_size("1MB")

    assert str(caught.value) == (
        "size '1MB' has two meanings; write 1M (or 1MiB) for 1048576 bytes, or 1000000 for decimal"
    )


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5M", "M", "1KK", "1 2", "1iB1", "٣K x"])
def test_what_is_no_size_is_refused_with_examples(text):
    with pytest.raises(UsageError) as caught:
        parse_size(text)

    assert str(caught.value) == (
        f"size '{text}' is not a size; write bytes (8), or 64K, 128M, 1G, 64KiB"
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0.5s", 0.5), ("200ms", 0.2), ("2m", 120.0), ("60", 60.0), ("1h", 3600.0), ("1 min", 60.0)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["", "x", "5 weeks", "-1s", "1e3s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_duration(text)

    assert str(caught.value) == f"duration '{text}' is not a duration; write 0.5s, 200ms, 2m"


def test_a_duration_of_nothing_is_refused():
    with pytest.raises(UsageError) as caught:
        parse_duration("0s")

    assert str(caught.value) == "duration '0s' must be above zero; write 0.5s, 200ms, 2m"


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.02", 0.02), ("50 %", 0.5)])
def test_shares(text, share):
    assert parse_share(text) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("text", ["0", "0%", "100%", "1", "-2%", "nan", "inf"])
def test_a_share_is_above_0_and_below_1(text):
    with pytest.raises(UsageError) as caught:
        parse_share(text)

    assert str(caught.value) == (
        f"share '{text}' must be above 0% and below 100%; write 2% or 0.02"
    )


def test_what_is_no_share_is_refused():
    with pytest.raises(UsageError, match=r"share 'two' is not a share; write 2% or 0\.02"):
        parse_share("two")


def test_sizes_for_people():
    assert [format_size(n) for n in (0, 4, 1000, 1024, 1536, 2**20, 3 * 2**30)] == [
        "0 B",
        "4 B",
        "1000 B",
        "1 KiB",
        "1536 B",
        "1 MiB",
        "3 GiB",
    ]
    assert [option_size(n) for n in (4, 65536, 2**30)] == ["4", "64K", "1G"]
    assert [approximate_size(n) for n in (12, 1536, 12.5e6)] == ["12 B", "1.5 KiB", "11.9 MiB"]


def test_times_keep_four_digits_and_rates_keep_three():
    assert [format_time_us(t) for t in (6.5, 39.266, 290.88, 3268.04)] == [
        "6.50",
        "39.27",
        "290.9",
        "3268",
    ]
    assert [format_rate(r) for r in (0.004, 11.02, 328.64)] == ["0.00", "11.02", "328.6"]


def test_spans_for_people():
    assert [format_duration(s) for s in (2.04, 20.3, 89.4, 200, 7500)] == [
        "2.0 s",
        "20 s",
        "89 s",
        "3 min 20 s",
        "2 h 05 min",
    ]


def test_rates_are_decimal():
    assert gb_per_s(10**9, 1e6) == 1.0
    assert gb_per_s(2**30, 3258.2) == pytest.approx(329.550618, abs=5e-7)
    assert gb_per_s(8, 0.0) == 0.0
