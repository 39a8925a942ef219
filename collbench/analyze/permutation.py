"""Which p survives many cases: permutation of whole repeats where there are enough, else Holm.

A repeat is moved as a whole, with all its cases: whatever its cases have in common (a slow start,
a drift) is in the permutations too, and no shape of noise is assumed. The only assumption is that
without a change any repeat could have been of either side.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from collbench.stats import FloatArray

MOST_SPLITS = 500
"""Above as many, a seeded choice of them stands for all."""

_SEED = 20261130


def count_splits(base: int, new: int) -> int:
    """Returns in how many ways repeats can be dealt to the sides, mirrored ways counted once."""
    ways = math.comb(base + new, base)
    return ways // 2 if base == new else ways


@lru_cache(maxsize=8)
def splits(base: int, new: int) -> NDArray[np.bool_]:
    """Returns ways to deal repeats to sides, [way, repeat], True where new; the real one first."""
    repeats = base + new
    if count_splits(base, new) <= MOST_SPLITS:
        chosen = [
            way
            for way in combinations(range(repeats), base)
            # With sides of one size, the mirrored way gives the same statistic.
            if base != new or way[0] == 0
        ]
        found = np.ones((len(chosen), repeats), bool)
        for row, way in enumerate(chosen):
            found[row, list(way)] = False
        return found
    random = np.random.default_rng(_SEED)
    real = np.arange(repeats) >= base
    drawn = [random.permutation(real) for _ in range(MOST_SPLITS - 1)]
    return np.array([real, *drawn])


def step_down(p: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Returns corrected p and the critical value of each case's own p (Westfall & Young 1993).

    Step-down: a case is held against those alone that are no clearer than itself, so that one
    large change hides no small one.

    Args:
        p: each case's own, [way, case], the real way first.
        alpha: the level of the critical value.
    """
    ways, cases = p.shape
    order = np.argsort(p[0], kind="stable")
    least = np.minimum.accumulate(p[:, order][:, ::-1], axis=1)[:, ::-1]
    # Ways that are equal but for rounding count as equal.
    reached = (least <= p[0, order] * (1 + 1e-9)).mean(axis=0)
    allowed = math.ceil(alpha * ways) - 1
    limits = np.sort(least, axis=0)[allowed]
    corrected, critical = np.empty(cases), np.empty(cases)
    corrected[order] = np.maximum.accumulate(reached)
    critical[order] = limits
    return corrected, critical


def holm(p: FloatArray) -> FloatArray:
    """Returns each case's own p, corrected over all cases (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    corrected = np.empty(p.size)
    left = np.arange(p.size, 0, -1)
    corrected[order] = np.maximum.accumulate(np.minimum(p[order] * left, 1.0))
    return corrected
