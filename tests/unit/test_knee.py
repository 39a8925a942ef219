"""The knee of exact rates, its interval, the answers, and the calibration in small."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from knee_noise import made_rates, pairs_design
from scipy import stats

from collbench.analyze.knee import (
    KneeAnswer,
    KneeFit,
    Point,
    fit_knee,
    oversubscription,
)
from collbench.analyze.knee_profile import (
    Design,
    has_knee,
    interval,
    knee_thresholds,
    profile,
)
from collbench.errors import UsageError


def points(carried: float, flows, full=10.0, plateau="pairs", noise=None) -> list[Point]:
    factors = np.ones(len(flows)) if noise is None else noise
    return [
        Point(
            flows=float(x),
            rate_gb_per_s=full * (min(1.0, carried / x) if x else 1.0) * float(factor),
            plateau=plateau,
        )
        for x, factor in zip(flows, factors, strict=True)
    ]


@pytest.mark.parametrize("carried", [0.5, 1.0, 2.0, 2.7, 5.0])
def test_exact_rates_give_the_knee_back(carried):
    fit = fit_knee(points(carried, [0, 0, *range(1, 9)]))

    assert fit.answer is KneeAnswer.KNEE
    assert fit.flows == pytest.approx(carried)
    # The floor of 1 % keeps the interval from being a point.
    assert fit.flows_low < carried < fit.flows_high
    assert fit.flows_high / fit.flows_low < 1.05
    assert fit.relative_error == pytest.approx(0, abs=1e-6)


def test_the_floor_under_the_interval_by_hand():
    # Three points on the plateau, one beyond: the variance of log m* is (1/3 + 1) x 1 %^2.
    fit = fit_knee(points(2.0, [0, 1, 1.5, 4]))
    half = math.sqrt(stats.chi2.ppf(0.9, 1) * (1 / 3 + 1)) * 0.01

    assert math.log(fit.flows_low / 2) == pytest.approx(-half, abs=1e-4)


def test_the_interval_is_that_of_the_profile_likelihood():
    random = np.random.default_rng(3)
    flows = np.array([0.0] * 8 + list(range(1, 9)))
    design = Design(tuple(flows), (0,) * 16)
    logs = made_rates(design, 3.4, 0.04, 1, random)

    grid = np.linspace(0, math.log(8), 20001)
    law = np.minimum(0, grid[:, np.newaxis] - np.log(np.maximum(flows, 1e-9)))
    values = np.sum((logs - law - (logs - law).mean(axis=1, keepdims=True)) ** 2, axis=1)
    limit = values.min() * (1 + stats.f.ppf(0.95, 1, 14) / 14)
    inside = grid[values <= limit]
    found = profile(design, logs)
    low, high = interval(found)

    assert found.at_best()[1][0] == pytest.approx(values.min(), rel=1e-5)
    assert (low[0], high[0]) == pytest.approx((inside[0], inside[-1]), abs=2e-4)


@settings(deadline=None)
@given(
    carried=st.floats(0.3, 30),
    scale=st.floats(1e-3, 1e3),
    sizes=st.lists(st.integers(1, 20), min_size=4, max_size=12, unique=True),
)
def test_a_knee_does_not_depend_on_units_and_order(carried, scale, sizes):
    made = points(carried, [0, 0, *sizes])
    scaled = [
        Point(flows=one.flows, rate_gb_per_s=one.rate_gb_per_s * scale, plateau=one.plateau)
        for one in reversed(made)
    ]
    a, b = fit_knee(made), fit_knee(scaled)

    assert a.answer is b.answer
    assert (a.flows or 0) == pytest.approx(b.flows or 0, rel=1e-6)
    if a.flows is not None:
        assert a.flows_low <= a.flows <= a.flows_high


def test_patterns_with_plateaus_of_their_own_share_one_knee():
    made = points(2.0, [0, 1, 2, 3, 4]) + points(2.0, [1, 2, 3, 4], full=3.0, plateau="ring")
    fit = fit_knee(made)

    assert fit.flows == pytest.approx(2.0)
    assert fit.points == 9


def test_without_a_knee_there_is_a_lower_bound():
    fit = fit_knee(points(9.0, [0, 0, 0, 1, 2, 3, 4]))
    ratio = oversubscription(fit, 4)

    assert fit.answer is KneeAnswer.NO_KNEE
    assert (fit.flows, fit.flows_high) == (None, None)
    assert 3.9 < fit.flows_low < 4
    assert ratio.value is None
    assert ratio.text == f"at most {4 / fit.flows_low:.2f}:1"


def test_a_knee_at_the_last_point_is_none():
    assert fit_knee(points(4.0, [0, 0, 0, 1, 2, 3, 4])).answer is KneeAnswer.NO_KNEE


def test_the_ratio_of_a_knee_turns_the_interval_round():
    fit = KneeFit(answer=KneeAnswer.KNEE, flows=2.0, flows_low=1.6, flows_high=2.5)
    ratio = oversubscription(fit, 4)

    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.0, 1.6, 2.5))
    assert ratio.text == "2.00:1 [1.60, 2.50]"
    assert fit.expected_share(1.0) == 1.0
    assert fit.expected_share(4.0) == 0.5


def test_all_rates_falling_from_the_first_step_on_have_a_bound_on_one_side():
    fit = fit_knee(points(0.8, range(1, 7)))
    ratio = oversubscription(fit, 4)

    assert fit.answer is KneeAnswer.INCONCLUSIVE
    assert "nothing without a limit was measured" in fit.reason
    assert (ratio.value, ratio.high) == (None, None)
    assert ratio.text.startswith("at least 3.")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ([], "0 different numbers of flows"),
        (points(1.0, [0, 0, 0, 0]), "1 different numbers of flows"),
        (points(1.0, [0, 0, 1, 1]), "2 different numbers of flows"),
    ],
)
def test_too_little_is_inconclusive(made, words):
    fit = fit_knee(made)

    assert fit.answer is KneeAnswer.INCONCLUSIVE
    assert words in fit.reason
    assert oversubscription(fit, 4).text == "unknown"


def test_noise_that_hides_a_knee_is_inconclusive():
    random = np.random.default_rng(1)
    noise = np.exp(0.6 * random.standard_normal(10))
    fit = fit_knee(points(8.0, [0, 0, *range(1, 9)], noise=noise))

    assert fit.answer is KneeAnswer.INCONCLUSIVE
    assert "would not be seen" in fit.reason


def test_repeats_that_agree_better_than_the_law_are_counted_once_a_step():
    # Every step is off by its own 3 %, its four repeats agree within 0.1 %.
    random = np.random.default_rng(2)
    flows = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    own = np.exp(0.03 * random.standard_normal(len(flows)))
    repeats = np.exp(0.001 * random.standard_normal((4, len(flows))))
    made = [p for row in repeats for p in points(4.0, flows, noise=own * row)]
    fit = fit_knee(made)

    assert fit.misfit
    assert fit.relative_error > 0.015
    assert fit.flows_low < 4.0 < fit.flows_high
    assert not fit_knee(points(4.0, flows * 4, noise=np.tile(1.0, 36))).misfit


@pytest.mark.parametrize("bad", [(-1.0, 1.0), (1.0, 0.0), (1.0, math.nan), (math.inf, 1.0)])
def test_bad_points_are_said(bad):
    with pytest.raises(UsageError) as raised:
        fit_knee([Point(flows=bad[0], rate_gb_per_s=bad[1])])

    assert "leave the step out" in str(raised.value)


def test_thresholds_are_those_of_the_design_and_the_same_each_time():
    few, many = pairs_design(4, 1), pairs_design(16, 1)

    assert knee_thresholds(few) == knee_thresholds.__wrapped__(few)
    # Few points know their noise badly.
    assert knee_thresholds(few).estimated > knee_thresholds(many).estimated > 4


@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize(("pairs", "carried"), [(4, 2), (8, 3), (16, 8)])
def test_intervals_hold_the_truth_as_often_as_they_say(pairs, carried, noise):
    random = np.random.default_rng([pairs, carried])
    design = pairs_design(pairs, 1)
    found = profile(design, made_rates(design, carried, noise, 1000, random))
    low, high = interval(found)

    assert has_knee(design, found).all()
    held = np.mean((low <= math.log(carried)) & (math.log(carried) <= high))
    # 0.95 with 1,000 runs: two standard errors beside the bars of 0.93 and 0.97.
    assert 0.93 <= held <= 0.984
    if (pairs, noise) == (16, 0.03):
        assert np.median(np.exp(high) - np.exp(low)) <= 0.45


@pytest.mark.parametrize("pairs", [4, 16])
def test_no_knee_is_called_where_there_is_none(pairs):
    random = np.random.default_rng(pairs)
    design = pairs_design(pairs, 1)
    found = profile(design, made_rates(design, 3.0 * pairs, 0.03, 2000, random))

    assert np.mean(has_knee(design, found)) <= 0.02
