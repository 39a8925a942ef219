"""Trends: exact figures on made values, and how often noise looks like one."""

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from collbench.analyze.trend import independent_blocks, trend


def test_a_line_is_a_trend_of_its_whole_change():
    found = trend(np.linspace(95.0, 105.0, 11))

    assert found.change == pytest.approx(0.10)
    # All 55 pairs rise; of 11 values the sum has a variance of 165.
    assert found.p == pytest.approx(2 * stats.norm.sf(54 / np.sqrt(165)))


def test_what_falls_is_below_zero():
    assert trend(np.linspace(105.0, 95.0, 11)).change == pytest.approx(-0.10)


def test_the_slope_is_that_of_theil_and_sen():
    values = np.array([10.0, 10.3, 9.9, 10.4, 90.0, 10.6, 10.2, 10.8])
    slope = stats.theilslopes(values).slope

    assert trend(values).change == pytest.approx(slope * 7 / np.median(values))


def test_equal_values_have_no_trend():
    found = trend(np.full(20, 7.0))

    assert (found.change, found.p) == (0.0, 1.0)


def test_one_or_two_values_have_no_trend():
    assert trend(np.array([1.0, 2.0])).p == 1.0


def test_outliers_make_no_trend():
    values = np.tile([10.0, 10.1], 10)
    values[18:] = 1e4

    assert abs(trend(values).change) < 0.01


def test_samples_are_taken_together_in_blocks():
    blocks = independent_blocks(np.linspace(95.0, 105.0, 2000))

    assert blocks.size == 20
    assert trend(blocks).change == pytest.approx(0.10 * 19 / 20, rel=1e-3)


def made(r, count=300, samples=400):
    """Series of a first-order process, each with a deviation of 5 %."""
    noise = np.random.default_rng(5).standard_normal((count, samples + 50))
    return np.exp(0.05 * lfilter([np.sqrt(1 - r * r)], [1, -r], noise, axis=1)[:, 50:])


def test_the_more_samples_depend_on_each_other_the_fewer_blocks_there_are():
    counts = [np.mean([independent_blocks(s).size for s in made(r, 20)]) for r in (0, 0.8, 0.95)]

    assert counts[0] == 20
    assert counts[0] > counts[1] > counts[2] > 1


@pytest.mark.parametrize("r", [0.0, 0.3, 0.6, 0.8])
def test_noise_is_a_trend_hardly_more_often_than_said(r):
    called = np.mean([trend(independent_blocks(series)).p < 0.01 for series in made(r)])

    # Three standard errors of a share of 0.01.
    assert called < 0.01 + 3 * np.sqrt(0.01 * 0.99 / 300)


@pytest.mark.parametrize(
    "shape",
    [lambda x: 0.05 * x, lambda x: 0.10 * (1 - np.exp(-4 * x))],
    ids=["a line", "a curve"],
)
def test_a_drift_of_5_percent_is_found_in_noise_of_1_percent(shape):
    drift = 1 + shape(np.linspace(0, 1, 400))
    found = [trend(independent_blocks(series**0.2 * drift)) for series in made(0.3, 50)]

    assert np.mean([one.p < 1e-4 and one.change > 0.03 for one in found]) > 0.95
