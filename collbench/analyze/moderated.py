"""Noise shared between cases: a few repeats say little of one case's noise, many cases say much.

Empirical Bayes as in limma (Smyth 2004, "Linear models and empirical Bayes methods for assessing
differential expression in microarray experiments"): the variance of each case is drawn towards
that of its neighbours, the more the more alike they are. Neighbours are the cases of one mode that
take about as long (limma's trend; Law et al. 2014): small eager calls are noisier than large ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from collbench.stats import FloatArray

NEIGHBOURS = 24
"""Cases that share their noise estimate."""

SMALLEST_VARIANCE = 1e-4**2
"""Of log times: no clock tells repeats apart by less than 0.01 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbourhood:
    """For each case the run of cases, in an order of its own, that share its noise estimate."""

    order: NDArray[np.intp]
    first: NDArray[np.intp]
    """By place in the order: where its run begins ..."""
    last: NDArray[np.intp]
    """... and ends, exclusive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moderated:
    """Variances after sharing, of the shape that came in."""

    variance: FloatArray
    freedom: FloatArray
    """Degrees of freedom of Student's t with this variance."""


def neighbourhood(groups: Sequence[Hashable], log_times: FloatArray) -> Neighbourhood:
    """Returns each case's ``NEIGHBOURS`` nearest in time within its group, itself included.

    Args:
        groups: one a case; only cases of one group are neighbours.
        log_times: mean log time over the repeats of both sides: it must not tell the sides apart.
    """
    order: list[int] = []
    first, last = [], []
    for group in dict.fromkeys(groups):
        members = [k for k, other in enumerate(groups) if other == group]
        members.sort(key=lambda k: log_times[k])
        start, count = len(order), len(members)
        width = min(NEIGHBOURS, count)
        for place in range(count):
            begin = min(max(0, place - width // 2), count - width)
            first.append(start + begin)
            last.append(start + begin + width)
        order += members
    return Neighbourhood(order=np.array(order, np.intp), first=np.array(first), last=np.array(last))


def moderate(variances: FloatArray, freedom: int, neighbours: Neighbourhood) -> Moderated:
    """Returns variances drawn towards their neighbours'.

    How far they scatter beyond chance is itself known badly from a few neighbours: it is taken one
    standard error above its estimate, so that noise is never thought more alike than it may be.

    Args:
        variances: of log times, [..., case].
        freedom: degrees of freedom of each.
        neighbours: who shares.
    """
    floored = np.maximum(variances, SMALLEST_VARIANCE)
    logs = np.log(floored) - special.digamma(freedom / 2) + np.log(freedom / 2)
    count = _counts(neighbours)
    mean, scatter = _local_moments(logs, neighbours)
    by_chance = float(special.polygamma(1, freedom / 2))
    fourth = float(special.polygamma(3, freedom / 2)) / by_chance**2
    error = by_chance * np.sqrt((fourth + 2) / count)
    prior_freedom = 2 * trigamma_inverse(np.maximum(scatter - by_chance, 0.0) + error)
    prior = np.exp(mean + special.digamma(prior_freedom / 2) - np.log(prior_freedom / 2))
    # Alone, a case has nobody to share with.
    prior_freedom = np.where(count > 1, prior_freedom, 0.0)
    total = prior_freedom + freedom
    return Moderated(
        variance=(prior_freedom * prior + freedom * floored) / total,
        # Neighbours that share everything have together no more than this.
        freedom=np.minimum(total, freedom * count),
    )


def _counts(neighbours: Neighbourhood) -> FloatArray:
    counts = (neighbours.last - neighbours.first).astype(np.float64)
    return np.asarray(counts[np.argsort(neighbours.order)])


def _local_moments(values: FloatArray, neighbours: Neighbourhood) -> tuple[FloatArray, FloatArray]:
    """Returns mean and variance (n - 1) over each case's neighbours, in the order of the cases."""
    ordered = values[..., neighbours.order]
    # Less cancellation than with the values themselves.
    shift = ordered.mean(axis=-1, keepdims=True)
    centred = ordered - shift
    count = neighbours.last - neighbours.first
    mean = _window_sums(centred, neighbours) / count
    squares = _window_sums(centred**2, neighbours) / count
    scatter = np.maximum(squares - mean**2, 0) * count / np.maximum(count - 1, 1)
    back = np.argsort(neighbours.order)
    return (mean + shift)[..., back], scatter[..., back]


def _window_sums(values: FloatArray, neighbours: Neighbourhood) -> FloatArray:
    sums = np.cumsum(values, axis=-1)
    sums = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)
    return np.asarray(sums[..., neighbours.last] - sums[..., neighbours.first])


@cache
def _trigamma_table() -> tuple[FloatArray, FloatArray]:
    """Returns log trigamma, rising, and the log of where it is taken."""
    log_y = np.linspace(np.log(1e-4), np.log(1e6), 4000)[::-1]
    return np.log(special.polygamma(1, np.exp(log_y))), log_y


def trigamma_inverse(values: FloatArray) -> FloatArray:
    """Returns y with trigamma(y) = value, within 1e-5 of y, for values from 1e-6 to 1e8.

    From a table: a permutation asks for it a million times.
    """
    return np.asarray(np.exp(np.interp(np.log(values), *_trigamma_table())))
