"""When sampling stops and when it begins."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.measure import stopping
from collbench.measure.stopping import Stopping, WarmUp
from collbench.model import Policy, StopReason

STEADY = np.array([100.0, 101.0] * 5)
WILD = np.array([100.0, 160.0] * 5)


def test_precise_needs_two_looks_in_a_row():
    rule = Stopping(Policy())

    assert rule.update(STEADY, 0.1) is None
    assert rule.update(STEADY, 0.2) is StopReason.PRECISE


def test_a_wide_look_between_starts_the_count_again():
    rule = Stopping(Policy(precision=0.02))

    assert rule.update(STEADY, 0.1) is None
    assert rule.update(3 * STEADY, 0.2) is None
    assert rule.update(np.tile(STEADY, 10), 0.3) is None, "the first narrow look after a wide one"
    assert rule.update(STEADY, 0.4) is StopReason.PRECISE


def test_looks_are_only_at_multiples_of_ten():
    rule = Stopping(Policy())

    assert rule.update(STEADY[:5], 0.1) is None
    assert rule.update(STEADY[:5], 0.1) is None, "the first look"
    for _ in range(9):
        assert rule.update(STEADY[:1], 0.1) is None
    assert rule.update(STEADY[:1], 0.1) is StopReason.PRECISE


def test_precision_is_what_was_asked_for():
    # Half-width of 100, 101 in turn: median 100.5, so 0.5 / 100.5 = 0.4975 %.
    fine, coarse = Stopping(Policy(precision=0.0049)), Stopping(Policy(precision=0.0050))

    assert [fine.update(STEADY, 0.1), fine.update(STEADY, 0.1)] == [None, None]
    assert [coarse.update(STEADY, 0.1), coarse.update(STEADY, 0.1)] == [None, StopReason.PRECISE]


def test_time_ends_what_is_not_precise():
    rule = Stopping(Policy(max_time_s=1.0))

    assert rule.update(WILD, 0.999) is None
    assert rule.update(WILD[:3], 1.0) is StopReason.TIME


def test_time_ends_even_the_first_sample():
    assert Stopping(Policy(max_time_s=1.0)).update(WILD[:1], 1.5) is StopReason.TIME


def test_a_fixed_number_looks_at_neither_precision_nor_time():
    rule = Stopping(Policy(samples=25, max_time_s=1.0))

    assert rule.next_count(5.0, 1e6) == 10
    assert rule.update(STEADY, 5.0) is None
    assert rule.update(STEADY, 6.0) is None
    assert rule.next_count(6.0, 1e6) == 5
    assert rule.update(STEADY[:5], 7.0) is StopReason.FIXED


def test_full_when_no_more_samples_are_kept(monkeypatch):
    monkeypatch.setattr(stopping, "MOST_SAMPLES", 30)
    rule = Stopping(Policy(precision=1e-6))

    assert rule.update(WILD, 0.1) is None
    assert rule.update(WILD, 0.1) is None
    assert rule.update(WILD, 0.1) is StopReason.FULL


@pytest.mark.parametrize(
    ("elapsed_s", "sample_us", "count"),
    [
        (0.0, 100.0, 10),
        (0.9, 20_000.0, 5),
        (0.9, 21_000.0, 5),
        (0.9, 26_000.0, 4),
        (0.9, 5e6, 1),
        (1.5, 100.0, 1),
        (0.0, 0.0, 10),
    ],
)
def test_the_next_look_comes_before_the_time_is_overrun(elapsed_s, sample_us, count):
    rule = Stopping(Policy(max_time_s=1.0))
    found = rule.next_count(elapsed_s, sample_us)

    assert found == count
    one_less_s = elapsed_s + (found - 1) * sample_us / 1e6
    assert found == 1 or one_less_s < 1.0, "at most one sample runs over"


def test_the_next_look_is_at_a_multiple_of_ten():
    rule = Stopping(Policy(max_time_s=1.0))
    rule.update(STEADY[:4], 0.1)

    assert rule.next_count(0.1, 100.0) == 6


def test_warm_up_is_over_when_times_fall_no_more():
    rule = WarmUp(Policy(max_time_s=1.0))

    falling_then_flat = [1000.0, 500.0, 300.0, 290.0]
    over = [rule.over(np.full(10, us), 0.01 * i) for i, us in enumerate(falling_then_flat)]

    # 500 and 300 are below 95 % of the one before, 290 is not.
    assert over == [False, False, False, True]


def test_one_chunk_says_nothing_about_warm_up():
    assert not WarmUp(Policy()).over(np.full(10, 5.0), 0.0)


def test_warm_up_takes_at_most_a_fifth_of_the_time():
    rule = WarmUp(Policy(max_time_s=1.0))

    assert not rule.over(np.full(10, 1000.0), 0.1)
    assert not rule.over(np.full(10, 500.0), 0.19)
    assert rule.over(np.full(10, 250.0), 0.2)


def test_one_slow_call_in_a_chunk_does_not_delay_the_end_of_warm_up():
    rule = WarmUp(Policy())
    rule.over(np.array([10.0] * 9 + [5000.0]), 0.01)

    assert rule.over(np.full(10, 10.0), 0.02)
