"""The calibration in small: fixed seeds, the bars of docs/statistics.md.

The tables of at least 1,000 are made by ``pytest -m bench -s tests/bench/test_calibration.py``.
"""

from __future__ import annotations

import numpy as np
import pytest
from noise import KINDS, as_side, changed, reference, table

from collbench.analyze.compare import Verdict, compare_cases
from collbench.stats import median_interval

TABLES = 30


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_claimed_where_nothing_changed(kind, repeats):
    random = np.random.default_rng([11, repeats])
    wrong = 0
    for _ in range(TABLES):
        keys, logs = table(kind, random, 2 * repeats)
        found = compare_cases(as_side(keys, logs[:repeats]), as_side(keys, logs[repeats:]))
        wrong += any(case.verdict in (Verdict.FASTER, Verdict.SLOWER) for case in found.cases)

    # At 1 % a second one among 30 would come with a chance of 4 %.
    assert wrong <= 1


@pytest.mark.parametrize(("repeats", "slowdown"), [(3, 0.08), (5, 0.05)])
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_slowdown_is_found_and_never_called_faster(everywhere, repeats, slowdown):
    random = np.random.default_rng([12, repeats])
    slower = 0
    for _ in range(TABLES):
        key, base, new = changed(
            random, repeats, slowdown, everywhere=everywhere, kind="one per cent"
        )
        found = compare_cases(base, new)
        assert not found.of(Verdict.FASTER)
        slower += key in [case.key for case in found.of(Verdict.SLOWER)]

    assert slower >= 0.95 * TABLES


def test_the_recorded_noise_is_what_its_readme_says():
    keys, logs = reference()

    assert logs.shape == (20, len(keys)) == (20, 90)


@pytest.mark.parametrize("dependence", [0.0, 0.3, 0.6, 0.8])
def test_intervals_of_medians_cover_as_they_promise(dependence):
    random = np.random.default_rng(13)
    series, n = 800, 100
    values = random.standard_normal((series, n))
    values[:, 0] /= np.sqrt(1 - dependence**2)
    for i in range(1, n):
        values[:, i] += dependence * values[:, i - 1]
    found = [median_interval(np.exp(one)) for one in values]
    covered = np.mean([one.low <= 1 <= one.high for one in found])
    print(f"AR(1) {dependence}: {covered:.3f}")

    # Above 0.97 in part: the correction for dependence is that of a mean, a median needs less.
    assert 0.93 <= covered <= 0.985
