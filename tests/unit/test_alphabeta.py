"""Laws of curves: exact figures, switches, intervals, and the segments against ruptures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import ruptures
from ruptures.base import BaseCost

from collbench.analyze.alphabeta import FEWEST_POINTS, fit_segments
from collbench.errors import UsageError

SIZES = 2.0 ** np.arange(3, 31)
PROTOCOLS = ((6.0, 8.0), (14.0, 60.0), (40.0, 330.0))


def law(alpha: float, rate: float, sizes=SIZES) -> np.ndarray:
    return alpha + sizes / (rate * 1e3)


def three_protocols() -> tuple[np.ndarray, list[int]]:
    """Times of the quickest of three laws, and the places where the quickest changes."""
    laws = np.array([law(*one) for one in PROTOCOLS])
    return laws.min(axis=0), [int(k) + 1 for k in np.flatnonzero(np.diff(laws.argmin(axis=0)))]


def test_exact_times_give_the_law_back():
    fit = fit_segments(SIZES, law(20.0, 300.0))
    (segment,) = fit.segments

    assert segment.alpha_us == pytest.approx(20.0)
    assert segment.bandwidth_gb_per_s == pytest.approx(300.0)
    # Half of the rate: 20 us x 300 GB/s = 6 MB.
    assert segment.half_size_bytes == pytest.approx(6e6)
    assert segment.time_us(6e6) == pytest.approx(40.0)
    assert (segment.first_bytes, segment.last_bytes, segment.points) == (8, 2**30, 28)
    assert fit.switches_bytes == ()


def test_exact_times_of_three_laws_give_all_back():
    times, places = three_protocols()
    fit = fit_segments(SIZES, times)

    assert fit.switches_bytes == tuple(int(SIZES[k]) for k in places)
    for segment, (alpha, rate) in zip(fit.segments, PROTOCOLS, strict=True):
        assert segment.alpha_us == pytest.approx(alpha, rel=1e-6)
        assert segment.bandwidth_gb_per_s == pytest.approx(rate, rel=1e-6)


def test_switches_at_three_per_cent_of_noise():
    random = np.random.default_rng(1)
    times, places = three_protocols()
    both = single = 0
    for _ in range(40):
        noise = 1 + 0.03 * random.standard_normal(SIZES.size)
        found = np.searchsorted(SIZES, fit_segments(SIZES, times * noise).switches_bytes)
        both += found.size == 2 and bool(np.all(np.abs(found - places) <= 1))
        single += fit_segments(SIZES, law(40.0, 330.0) * noise).switches_bytes == ()

    assert both >= 38
    assert single == 40


def test_intervals_hold_the_truth_as_often_as_they_say():
    random = np.random.default_rng(2)
    alpha = rate = 0
    for _ in range(200):
        noise = 1 + 0.03 * random.standard_normal(SIZES.size)
        segment = fit_segments(SIZES, law(40.0, 330.0) * noise).segments[-1]
        alpha += segment.alpha_low_us <= 40 <= segment.alpha_high_us
        rate += segment.bandwidth_low_gb_per_s <= 330 <= segment.bandwidth_high_gb_per_s

    assert 0.92 <= alpha / 200 <= 0.98
    assert 0.92 <= rate / 200 <= 0.98


def test_times_that_do_not_grow_have_no_bandwidth():
    fit = fit_segments([8, 16, 32, 64], [10.1, 10.0, 10.0, 9.9])
    (segment,) = fit.segments

    assert segment.bandwidth_gb_per_s == math.inf
    assert segment.bandwidth_high_gb_per_s == math.inf
    assert segment.half_size_bytes == math.inf
    assert segment.alpha_us == pytest.approx(10.0, rel=1e-3)


def test_times_without_a_start_have_no_alpha():
    (segment,) = fit_segments([2**20, 2**21, 2**22], [9.9, 20.0, 40.4]).segments

    assert (segment.alpha_us, segment.alpha_low_us) == (0.0, 0.0)
    assert segment.half_size_bytes == 0


def test_a_point_of_little_weight_hardly_counts():
    times = law(20.0, 300.0)
    times[10] *= 2
    weights = np.ones(SIZES.size)
    weights[10] = 1e-9

    (segment,) = fit_segments(SIZES, times, weights).segments
    assert segment.alpha_us == pytest.approx(20.0, rel=1e-6)


class RelativeError(BaseCost):
    """Squares of 1 - (a + b S) / t by plain least squares, as ruptures calls it."""

    model = ""
    min_size = FEWEST_POINTS

    def fit(self, signal):
        self.signal = signal
        return self

    def error(self, start, end):
        columns = self.signal[start:end]
        scaled = columns / columns.max(axis=0)
        found, *_ = np.linalg.lstsq(scaled, np.ones(end - start), rcond=None)
        return float(np.sum((1 - scaled @ found) ** 2))


@pytest.mark.parametrize("seed", range(6))
def test_segments_are_those_of_ruptures(seed):
    random = np.random.default_rng(seed)
    sizes = 4096.0 * 1.5 ** np.arange(24)
    # Laws that cannot turn negative by noise, where ours would be held at zero.
    parts = [law(30.0, 2.0, sizes[:8]), law(400.0, 40.0, sizes[8:16])]
    times = np.concatenate([*parts, law(5000.0, 300.0, sizes[16:])])
    times *= 1 + 0.005 * random.standard_normal(24)
    signal = np.column_stack([1 / times, sizes / times])
    search = ruptures.Dynp(custom_cost=RelativeError(), min_size=FEWEST_POINTS, jump=1)
    expected = search.fit(signal).predict(n_bkps=2)

    found = fit_segments(sizes, times).switches_bytes
    assert [*np.searchsorted(sizes, np.array(found) - 0.5), 24] == pytest.approx(expected, abs=0)


@pytest.mark.parametrize(
    ("sizes", "times", "weights", "words"),
    [
        ([8, 16], [1.0, 2.0], None, "a fit has 2 sizes, 2 times and 2 weights"),
        ([8, 16, 32], [1.0, 2.0], None, "a fit has 3 sizes, 2 times"),
        ([8, 8, 16], [1.0, 2.0, 3.0], None, "sizes that do not rise"),
        ([8, 16, 32], [1.0, 0.0, 3.0], None, "not above zero"),
        ([8, 16, 32], [1.0, 2.0, 3.0], [1.0, 0.0, 1.0], "not above zero"),
    ],
)
def test_bad_input_is_said(sizes, times, weights, words):
    with pytest.raises(UsageError) as raised:
        fit_segments(sizes, times, weights)

    assert words in str(raised.value)
