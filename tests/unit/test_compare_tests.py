"""The parts of a comparison against brute force: sharing of noise, permutation, Holm."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import special, stats

from collbench.analyze.moderated import (
    NEIGHBOURS,
    SMALLEST_VARIANCE,
    moderate,
    neighbourhood,
    trigamma_inverse,
)
from collbench.analyze.permutation import count_splits, holm, splits, step_down
from collbench.analyze.significance import evidence, largest_of_others, largest_steps


@pytest.mark.parametrize("y", [2e-4, 0.01, 0.5, 1.0, 7.0, 300.0, 9e4])
def test_trigamma_inverse(y):
    value = special.polygamma(1, np.array([y]))

    assert trigamma_inverse(value)[0] == pytest.approx(y, rel=1e-4)


def test_one_case_alone_has_a_plain_t_test():
    base = np.log([[100.0], [104.0], [99.0]])
    new = np.log([[111.0], [109.0], [114.0], [110.0]])
    found = evidence(base, new, ["graph"], 0.01)
    plain = stats.ttest_ind(new[:, 0], base[:, 0])

    assert found.freedom[0] == 5
    assert found.log_ratio[0] == pytest.approx(new.mean() - base.mean())
    assert found.log_ratio[0] / found.error[0] == pytest.approx(plain.statistic)
    assert found.reach(0.05)[0] == pytest.approx(2.5705818 * found.error[0])


def test_sharing_finds_the_prior_that_made_the_variances():
    random = np.random.default_rng(1)
    cases, freedom, prior_freedom, prior = 4000, 4, 6.0, 2e-4
    true = prior_freedom * prior / random.chisquare(prior_freedom, cases)
    variances = true * random.chisquare(freedom, cases) / freedom
    # All of one time: neighbours are those at hand.
    shared = moderate(variances, freedom, neighbourhood(["one"] * cases, np.zeros(cases)))

    # Taken a standard error on the side of caution: below 6 on the median, never far above.
    assert 2 < np.median(shared.freedom) - freedom < 6
    assert np.mean(np.log(shared.variance / true) ** 2) < 0.6 * np.mean(
        np.log(variances / true) ** 2
    )


def test_without_excess_scatter_cases_share_nearly_all():
    random = np.random.default_rng(2)
    variances = 1e-4 * random.chisquare(4, 200) / 4
    shared = moderate(variances, 4, neighbourhood(["one"] * 200, np.zeros(200)))

    assert np.median(shared.freedom) > 10
    assert np.std(np.log(shared.variance)) < 0.5 * np.std(np.log(variances))


def test_identical_repeats_have_the_smallest_noise():
    shared = moderate(np.zeros(30), 4, neighbourhood(["one"] * 30, np.zeros(30)))

    assert np.all(shared.variance >= 0.4 * SMALLEST_VARIANCE)
    assert np.all(np.isfinite(shared.variance))


def test_neighbours_are_of_one_group_and_near_in_time():
    groups = ["eager", "graph"] * 40
    times = np.arange(80.0)[::-1]
    found = neighbourhood(groups, times)
    for place, case in enumerate(found.order):
        near = found.order[found.first[place] : found.last[place]]
        assert len(near) == NEIGHBOURS
        assert case in near
        assert {groups[k] for k in near} == {groups[case]}
        assert np.ptp(times[near]) == 2 * (NEIGHBOURS - 1)


@pytest.mark.parametrize(
    ("base", "new", "count"), [(3, 3, 10), (4, 4, 35), (5, 5, 126), (2, 3, 10)]
)
def test_splits_are_all_ways_once_and_the_real_one_first(base, new, count):
    found = splits(base, new)
    real = np.arange(base + new) >= base

    assert len(found) == count_splits(base, new) == count
    assert np.array_equal(found[0], real)
    assert np.all(found.sum(axis=1) == new)
    distinct = {frozenset((tuple(one), tuple(~one))) for one in found}
    assert len(distinct) == count


def test_many_splits_are_drawn_alike_each_time():
    found = splits(10, 10)

    assert np.array_equal(found, splits(10, 10))
    assert np.array_equal(found[0], np.arange(20) >= 10)
    assert 400 < len(np.unique(found, axis=0)) <= len(found) == 500


def test_step_down_against_its_definition():
    random = np.random.default_rng(3)
    p = random.random((40, 6)) ** 3
    corrected, _ = step_down(p, 0.05)
    order = np.argsort(p[0])
    expected, largest = np.empty(6), 0.0
    for rank, case in enumerate(order):
        others = order[rank:]
        share = np.mean([p[way, others].min() <= p[0, case] for way in range(40)])
        largest = max(largest, share)
        expected[case] = largest

    assert corrected == pytest.approx(expected)


def test_the_critical_p_is_where_the_correction_passes_alpha():
    random = np.random.default_rng(4)
    p = random.random((126, 5))
    _, critical = step_down(p, 0.01)
    least = int(np.argmin(p[0]))
    lowered = p.copy()
    lowered[0, least] = critical[least] * 0.999

    # Below the limit no more than one way of 126 reaches it: itself.
    assert step_down(lowered, 0.01)[0][least] == pytest.approx(
        np.mean(lowered.min(axis=1) <= lowered[0, least])
    )
    assert np.sum(p.min(axis=1) < critical[least]) <= 1


def test_holm():
    # Sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.5; never falling.
    assert holm(np.array([0.03, 0.01, 0.5, 0.02])) == pytest.approx([0.06, 0.04, 0.5, 0.06])


def test_permuted_statistics_equal_those_of_each_way_by_itself():
    random = np.random.default_rng(5)
    logs = random.standard_normal((10, 7)) * 0.02
    logs[5:, 2] += 0.5
    found = evidence(logs[:5], logs[5:], ["graph"] * 7, 0.01)
    ways = [way for way in combinations(range(10), 5) if way[0] == 0]
    own = []
    for way in ways:
        rest = [k for k in range(10) if k not in way]
        one = evidence(logs[list(way)], logs[rest], ["graph"] * 7, 0.01)
        statistic = np.abs(one.log_ratio) / one.error
        own.append(2 * special.stdtr(one.freedom, -statistic))
    expected = np.maximum(step_down(np.array(own), 0.01)[0], holm(own[0]))

    assert found.permuted
    assert found.p == pytest.approx(expected)
    assert found.p[2] == pytest.approx(1 / 126)


def test_steps_and_the_largest_of_others():
    values = np.array([[1.0, 5.0, 0.0], [4.0, 5.0, 9.0], [2.0, 5.0, 1.0]])
    steps = largest_steps(values)

    assert steps.tolist() == [2.0, 0.0, 8.0]
    every = [np.array([True, True, True])]
    assert largest_of_others(steps, every).tolist() == [8.0, 8.0, 2.0]
    apart = [np.array([True, True, False]), np.array([False, False, True])]
    assert largest_of_others(steps, apart).tolist() == [0.0, 2.0, 0.0]
