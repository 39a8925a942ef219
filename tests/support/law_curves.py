"""Curves of three protocols, and the repeats of a side that has them."""

from __future__ import annotations

import numpy as np

from collbench.analyze.keys import CaseKey
from collbench.model import Mode

SIZES = [8 * 4**k for k in range(14)]
LAWS = ((6.0, 8.0), (14.0, 60.0), (40.0, 330.0))
SWITCHES = (5, 9)


def curve(alpha: float = 1.0, bandwidth: float = 1.0, switches=SWITCHES) -> list[float]:
    """Times of three protocols, alphas and bandwidths times a factor."""
    times = []
    for k, size in enumerate(SIZES):
        alpha_us, gb_per_s = LAWS[sum(k >= switch for switch in switches)]
        times.append(alpha * alpha_us + size / (bandwidth * gb_per_s * 1e3))
    return times


def side(times, mode=Mode.GRAPH, noise=0.0, seed=0, sizes=SIZES):
    """Five repeats; without noise 0.2 % around the times, in turn."""
    random = np.random.default_rng(seed)
    found = {}
    for k, (size, time) in enumerate(zip(sizes, times, strict=True)):
        errors = noise * random.standard_normal(5)
        if not noise:
            errors = 0.001 * np.roll(np.linspace(-1, 1, 5), k)
        key = CaseKey(question=("all_reduce",), mode=mode, size_bytes=size)
        found[key] = list(time * np.exp(errors))
    return found
