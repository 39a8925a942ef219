"""Intervals, dependence and shape, against brute force and against samples of known make."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from collbench.stats import (
    MedianInterval,
    bimodality,
    effective_n,
    lag1_autocorrelation,
    median_interval,
    spread,
)

DRAWS = 400


def alternating(n: int) -> np.ndarray:
    """1..n so ordered that neighbours lie on opposite sides: no value hangs on the one before."""
    low, high = np.arange(1, n // 2 + 1), np.arange(n // 2 + 1, n + 1)
    values = np.empty(n)
    values[0::2], values[1::2] = (high, low) if n % 2 else (low, high)
    return values


def brute_force_rank(n: int) -> int:
    """The largest k with P(Binomial(n, 1/2) < k) <= 2.5 %, in whole numbers."""
    below, k = 0, 0
    while Fraction(below + math.comb(n, k), 2**n) <= Fraction(1, 40):
        below += math.comb(n, k)
        k += 1
    return k


@pytest.mark.parametrize("n", [10, 11, 16, 17, 20, 25, 50, 99, 100, 400])
def test_the_interval_is_that_of_the_binomial(n):
    found = median_interval(alternating(n))
    k = brute_force_rank(n)

    assert found is not None
    assert found.effective_n == n
    assert found.median == (n + 1) / 2
    assert (found.low, found.high) == pytest.approx((k, n + 1 - k), abs=1e-9)
    # What the interval promises, and that the next narrower one would not hold it.
    covered = Fraction(sum(math.comb(n, i) for i in range(k, n - k + 1)), 2**n)
    narrower = Fraction(sum(math.comb(n, i) for i in range(k + 1, n - k)), 2**n)
    assert covered >= Fraction(95, 100) > narrower


def test_below_ten_values_there_is_no_interval():
    assert median_interval(alternating(9)) is None
    assert median_interval(alternating(10)) is not None


def test_values_that_hang_together_widen_the_interval():
    rising = np.arange(1.0, 101.0)
    found = median_interval(rising)

    assert found is not None
    # r = 0.97, so n (1 - r) / (1 + r) is below 6: all that can be said is smallest to largest.
    assert found.effective_n == pytest.approx(100 * 0.03 / 1.97, rel=1e-3)
    assert (found.low, found.median, found.high) == (1.0, 50.5, 100.0)


@pytest.mark.parametrize("dependence", [0.0, 0.6])
def test_the_interval_covers_the_median_about_as_often_as_it_says(dependence):
    random = np.random.default_rng(20261130)
    covered = 0
    for _ in range(DRAWS):
        noise = random.standard_normal(120)
        series = np.empty(120)
        series[0] = noise[0] / math.sqrt(1 - dependence**2)
        for i in range(1, 120):
            series[i] = dependence * series[i - 1] + noise[i]
        found = median_interval(np.exp(series))  # skewed as times are; its true median is 1
        assert found is not None
        covered += found.low <= 1 <= found.high

    assert 0.93 <= covered / DRAWS <= 0.99


def test_without_the_correction_dependent_values_would_be_overconfident():
    random = np.random.default_rng(7)
    series = np.empty(2000)
    series[0] = 0
    for i, noise in enumerate(random.standard_normal(1999), start=1):
        series[i] = 0.6 * series[i - 1] + noise

    # The ranks of a Gaussian AR(1) with 0.6 correlate by 6/pi arcsin(0.3) = 0.582.
    assert lag1_autocorrelation(series) == pytest.approx(0.582, abs=0.04)
    assert effective_n(series) == pytest.approx(2000 * 0.418 / 1.582, rel=0.12)


def test_half_width_is_the_wider_side_as_a_share():
    assert MedianInterval(median=10, low=9, high=12, effective_n=9).half_width == 0.2
    assert MedianInterval(median=10, low=7, high=11, effective_n=9).half_width == 0.3
    assert MedianInterval(median=0, low=0, high=0, effective_n=9).half_width == math.inf


def test_autocorrelation_of_five_rising_values():
    # Centred ranks -2 -1 0 1 2: (2 + 0 + 0 + 2) / 10.
    rising = np.array([1.0, 2.0, 4.0, 8.0, 16.0])

    assert lag1_autocorrelation(rising) == pytest.approx(0.4)
    assert effective_n(rising) == pytest.approx(5 * 0.6 / 1.4)


def test_one_outlier_makes_no_dependence_of_its_own():
    rising = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    wild = np.array([1.0, 2.0, 4.0, 8.0, 1e9])

    assert lag1_autocorrelation(wild) == lag1_autocorrelation(rising)


def test_to_and_fro_is_not_rewarded_with_more_values():
    values = np.array([1.0, 2.0] * 5)

    assert lag1_autocorrelation(values) == pytest.approx(-0.9)
    assert effective_n(values) == 10


def test_a_coarse_clock_makes_no_dependence():
    # Two ticks in random order: equal values must not be ranked by where they stand.
    ticks = np.random.default_rng(1).choice([10.0, 10.5], 200)

    assert abs(lag1_autocorrelation(ticks)) < 0.1
    assert effective_n(ticks) > 160


def test_equal_or_few_values_have_no_dependence():
    assert lag1_autocorrelation(np.full(50, 3.0)) == 0
    assert lag1_autocorrelation(np.array([1.0, 2.0])) == 0
    assert effective_n(np.full(50, 3.0)) == 50
    assert effective_n(np.array([5.0])) == 1


def test_two_modes_stand_apart():
    # Means 1.5 and 11.5, variance 0.25 each: sqrt(2) x 10 / sqrt(0.5) = 20.
    values = np.array([1.0, 12.0, 2.0, 11.0] * 10)

    assert bimodality(values) == pytest.approx(20)


def test_one_mode_is_not_two():
    one = np.random.default_rng(3).standard_normal(500) + 100

    assert bimodality(one) < 3


def test_two_exact_modes_are_infinitely_far_apart():
    assert bimodality(np.array([8.0] * 10 + [9.0] * 10)) == math.inf


def test_a_few_outliers_are_no_second_mode():
    values = np.concatenate([np.random.default_rng(5).normal(10, 0.1, 99), [50.0]])

    assert bimodality(values) < 3


def test_too_few_or_equal_values_have_no_modes():
    assert bimodality(np.array([1.0] * 9 + [9.0] * 10)) == 0
    assert bimodality(np.full(64, 8.0)) == 0


def test_spread_of_repeats():
    assert spread(np.array([8.0, 10.0, 13.0])) == 0.5
    assert spread(np.array([8.0])) == 0
    assert spread(np.zeros(3)) == 0
