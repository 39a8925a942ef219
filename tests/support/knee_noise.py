"""Made rates for the calibration of knees; the laws are written down here again, on purpose."""

from __future__ import annotations

import numpy as np

from collbench.analyze.knee_profile import Design
from collbench.analyze.scale_types import NodeOrder, Observation, ScalePattern, Step


def pairs_design(pairs: int, repeats: int) -> Design:
    """Every number of pairs across, as many inside: the control."""
    steps = list(range(1, pairs + 1)) * repeats
    return Design((*map(float, steps), *([0.0] * len(steps))), (0,) * (2 * len(steps)))


def made_rates(design: Design, carried: float, noise: float, runs: int, random) -> np.ndarray:
    """Log rates [run, point] at an uplink that carries so many flows."""
    flows = np.array(design.flows)
    law = np.array([min(1.0, carried / x) if x > 0 else 1.0 for x in flows])
    return np.log(law) + noise * random.standard_normal((runs, flows.size))


def hashed_rounds(
    pairs: int, uplinks: int, random, *, draws: int = 8, noise: float = 0.02, rate: float = 1.0
) -> list[Observation]:
    """Rounds of m pairs between two leaves, each way hashed to one of the uplinks of so much."""
    found = []
    for m in [m for m in (*range(1, 17), 20, 25, 31, 38, 47, 58, 64) if m <= pairs]:
        for draw in range(draws):
            there, back = random.integers(uplinks, size=(2, m))
            crowd = np.maximum(np.bincount(there)[there], np.bincount(back)[back])
            shares = np.minimum(1, rate / crowd)
            found.append(_round(ScalePattern.PAIRS, m, draw, _noisy(shares, noise, random), pairs))
        if m > 1:
            ones = _noisy(np.ones(2 * (m // 2)), noise, random)
            found.append(_round(ScalePattern.INSIDE, m, 0, ones, pairs))
    return found


def _noisy(shares: np.ndarray, noise: float, random) -> np.ndarray:
    return shares * np.exp(noise * random.standard_normal(len(shares)))


def _round(pattern, m, draw, rates, size) -> Observation:
    if pattern is ScalePattern.PAIRS:
        nodes = [node for j in range(m) for node in (j, size + j)]
    else:
        half = m // 2
        nodes = [*range(2 * half), *range(size, size + 2 * half)]
    return Observation(
        step=Step(
            pattern=pattern,
            order=NodeOrder.RANDOM,
            seed=draw,
            asked=m,
            nodes=tuple(nodes),
            size_bytes=2**26,
        ),
        rate_gb_per_s=float(rates.min()),
        pair_rates_gb_per_s=tuple(map(float, rates)),
    )
