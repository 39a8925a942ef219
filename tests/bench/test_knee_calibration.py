"""How often knees are right: the tables of docs/scale_statistics.md.

``COLLBENCH_KNEE_RUNS=1000 pytest -m bench -s tests/bench/test_knee_calibration.py``; seeds are
fixed, so the figures come out the same again.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from knee_noise import hashed_rounds, made_rates, pairs_design

from collbench.analyze.knee import KneeAnswer
from collbench.analyze.knee_profile import Design, has_knee, interval, knee_thresholds, profile
from collbench.analyze.scale_verdict import judge_scale

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

RUNS = int(os.environ.get("COLLBENCH_KNEE_RUNS", "1000"))
HASHED_RUNS = int(os.environ.get("COLLBENCH_KNEE_HASHED_RUNS", "100"))
PAIRS, NOISES, REPEATS = (4, 8, 16, 64), (0.01, 0.03, 0.05), (1, 3)


def ends(design: Design, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether there is a knee, and the ends of its interval; without one there is no upper end."""
    found = profile(design, logs)
    knee = has_knee(design, found)
    low, high = interval(found)
    return knee, np.exp(low), np.where(knee, np.exp(np.minimum(high, 700)), np.inf)


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("pairs", PAIRS)
def test_intervals_of_every_knee(pairs, noise, repeats):
    random = np.random.default_rng([31, pairs, repeats, round(1000 * noise)])
    design = pairs_design(pairs, repeats)
    covered, detected, widths = {}, {}, {}
    for carried in range(1, pairs + 1):
        knee, low, high = ends(design, made_rates(design, carried, noise, RUNS, random))
        covered[carried] = float(np.mean((low <= carried) & (carried <= high)))
        detected[carried] = float(knee.mean())
        widths[carried] = float(np.median(high - low))
    seen = [carried for carried in covered if detected[carried] >= 0.99]
    sides = [covered[carried] for carried in seen]
    rest = [covered[carried] for carried in covered if carried not in seen]
    middle = pairs // 2
    print(
        f"\n| {pairs} | {noise:.0%} | {repeats} | {np.mean(sides):.3f} ({min(sides):.3f} to"
        f" {max(sides):.3f}) | {min(rest):.3f} to {max(rest):.3f} | {middle}: {widths[middle]:.2f}"
        f" | 1 to {max(seen)} | {detected[pairs]:.1%} |"
    )

    assert 0.93 <= np.mean(sides) <= 0.97
    assert min(covered.values()) >= 0.93 - 3 * np.sqrt(0.05 * 0.95 / RUNS)
    # The last point alone cannot show a knee.
    assert detected[pairs] <= 0.03
    if (pairs, noise) == (16, 0.03):
        assert widths[8] <= 0.45


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("pairs", PAIRS)
def test_without_a_knee_none_is_called(pairs, noise, repeats):
    random = np.random.default_rng([32, pairs, repeats, round(1000 * noise)])
    design = pairs_design(pairs, repeats)
    knee_thresholds(design)
    knee, low, _ = ends(design, made_rates(design, 2.0 * pairs, noise, 4 * RUNS, random))
    print(
        f"\n| {pairs} | {noise:.0%} | {repeats} | {np.mean(~knee):.2%} |"
        f" {pairs / np.median(low):.3f} |"
    )

    assert np.mean(~knee) >= 0.97


@pytest.mark.parametrize(
    ("uplinks_a_pair", "rate", "ratio"),
    [(1.0, 1.0, 1.0), (0.5, 2.0, 1.0), (0.5, 1.0, 2.0), (0.25, 1.0, 4.0)],
    ids=["1:1", "1:1 of twice the rate", "2:1", "4:1"],
)
@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize("pairs", [4, 8, 16, 64])
def test_hashed_fabrics(pairs, noise, uplinks_a_pair, rate, ratio):
    random = np.random.default_rng([33, pairs, round(1000 * noise), round(10 * ratio * rate)])
    leaves = (tuple(range(pairs)), tuple(range(pairs, 2 * pairs)))
    uplinks = max(1, round(uplinks_a_pair * pairs))
    called, named, held, values = 0, 0, 0, []
    for _ in range(HASHED_RUNS):
        rounds = hashed_rounds(pairs, uplinks, random, noise=noise, rate=rate)
        verdict = judge_scale(rounds, leaves)
        called += verdict.answer is KneeAnswer.KNEE
        named += verdict.collisions is not None and verdict.collisions.there
        held += (verdict.ratio.low or 0) <= ratio <= (verdict.ratio.high or np.inf)
        values += [] if verdict.ratio.value is None else [verdict.ratio.value]
    middle = f"{np.median(values):.2f}" if values else "-"
    print(
        f"\n| {ratio:g}:1 of {uplinks} x {rate:g} | {pairs} | {noise:.0%} |"
        f" {called / HASHED_RUNS:.1%} | {named / HASHED_RUNS:.1%} | {middle} |"
        f" {held / HASHED_RUNS:.1%} |"
    )

    assert called <= 0.01 * HASHED_RUNS or ratio > 1
    # Four pairs on two uplinks: in one repeat mostly too few rounds for a narrow interval.
    surely = 0.7 if (pairs, ratio) == (4, 2.0) else 0.95
    assert called >= surely * HASHED_RUNS or ratio == 1
