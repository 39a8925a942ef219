"""Max-min fair rates by water filling, for many calls at once.

The rates of all calls rise together; where a link is full, the calls that cross it stop, the
others go on. A call may load a link by a weight, since a collective sends several flows that make
progress together: a rate of 1 GB/s takes ``weight`` GB/s of the link.
"""

from __future__ import annotations

import numpy as np

from collbench.engine.fabric_layout import FloatArray, IntArray

_EQUAL = 1 + 1e-9
"""Levels closer than this are one: they differ by rounding alone."""


def max_min_rates(
    call: IntArray, link: IntArray, weight: FloatArray, capacity: FloatArray, calls: int
) -> FloatArray:
    """Returns the rate of each call; infinite where it crosses no link.

    A link is a bottleneck as soon as none of its calls is held lower by another link; then it
    stays one, whatever happens elsewhere. So all such links are settled in one step, and the
    steps are as many as bottlenecks depend on each other in a chain, not as there are levels.

    Args:
        call: [crossing] the call, 0 to ``calls`` - 1; a pair (call, link) stands once.
        link: [crossing] the link.
        weight: [crossing] above 0.
        capacity: [link] in GB/s, above 0.
        calls: how many there are.
    """
    rates = np.full(calls, np.inf)
    left = capacity.astype(np.float64)
    while call.size:
        load = np.bincount(link, weight, minlength=left.size)
        with np.errstate(divide="ignore"):
            level = np.where(load > 0, left / np.where(load > 0, load, 1.0), np.inf)
        bound = np.full(calls, np.inf)
        np.minimum.at(bound, call, level[link])
        lowest = np.full(left.size, np.inf)
        np.minimum.at(lowest, link, bound[call])
        bottleneck = level <= lowest * _EQUAL
        settled = np.zeros(calls, dtype=bool)
        settled[call[bottleneck[link]]] = True
        rates[settled] = bound[settled]
        done = settled[call]
        used = np.bincount(link[done], weight[done] * rates[call[done]], minlength=left.size)
        left = np.maximum(left - used, 0.0)
        call, link, weight = call[~done], link[~done], weight[~done]
    return rates
