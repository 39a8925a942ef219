"""Loss, from a pass of many small round trips: it hides in bandwidth and shows in the tail.

A lost message costs a time-out (200 ms over TCP), so round trips over 100 ms count losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_groups import FEW, IntArray, partner_counts
from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import KINDS, STATUSES, PairKind
from collbench.model import Status
from collbench.stats import FloatArray

QUIET_SHARE = 2e-4
"""Of slow round trips, that a busy host makes without any loss."""

HEALTHY_CHANCE = 1e-4
"""Of a healthy pair to be called lossy."""

_FEWEST_RETRANSMITS = 10
_TIMES_OTHERS = 10


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What the latency pass says."""

    a: IntArray
    b: IntArray
    again: NDArray[np.bool_]
    lossy: NDArray[np.bool_]
    """By value: its slow round trips or its retransmissions are no chance."""
    shares: FloatArray
    """Slow round trips of all, by value."""
    suspects: NDArray[np.bool_]
    """By node: most of its pairs lose, with two different partners at least."""
    smallest: float | None
    """The smallest share that could have been seen in a pair; None: no such pass."""


def loss(state: PairwiseState) -> Loss:
    """Returns what the latency pass says; first look and confirming rounds alike."""
    table = state.values
    rows = np.flatnonzero(
        (table["kind"] == KINDS.index(PairKind.LATENCY))
        & (table["status"] == STATUSES.index(Status.OK))
        & (table["round_trips"] > 0)
    )
    a, b = state.ends[0][rows], state.ends[1][rows]
    trips = table["round_trips"][rows].astype(np.float64)
    slow = table["slow_round_trips"][rows].astype(np.float64)
    lossy = _too_many(trips, slow) | _resent(table["retransmits"][rows])
    again = state.again[rows]
    return Loss(
        a=a,
        b=b,
        again=again,
        lossy=lossy,
        shares=slow / np.maximum(trips, 1),
        suspects=_nodes(state.size, a[~again], b[~again], lossy[~again]),
        smallest=3 / float(np.median(trips)) if rows.size else None,
    )


def _too_many(trips: FloatArray, slow: FloatArray) -> NDArray[np.bool_]:
    """Returns where so many slow round trips have a chance below ``HEALTHY_CHANCE`` (Poisson)."""
    if not trips.size:
        return np.zeros(0, bool)
    expected = max(QUIET_SHARE, _usual(slow / trips)) * trips
    found = slow > expected
    for row in np.flatnonzero(found):
        found[row] = _poisson_tail(int(slow[row]), float(expected[row])) < HEALTHY_CHANCE
    return found


def _usual(values: NDArray[Any]) -> float:
    """Returns the lower quartile: with one bad node of four, half of all pairs are bad."""
    return float(np.quantile(values, 0.25, method="lower"))


def _poisson_tail(count: int, mean: float) -> float:
    """Returns the chance of at least ``count``."""
    terms = (math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(count))
    return 1 - sum(terms)


def _resent(retransmits: NDArray[np.int64]) -> NDArray[np.bool_]:
    known = retransmits[retransmits >= 0]
    if not known.size:
        return np.zeros(retransmits.size, bool)
    usual = _usual(known)
    return np.asarray(retransmits >= max(_FEWEST_RETRANSMITS, _TIMES_OTHERS * usual))


def _nodes(size: int, a: IntArray, b: IntArray, lossy: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns which nodes lose in all of their pairs below 4, in three of four from 4 on."""
    ends = np.concatenate([a, b])
    counts = np.bincount(ends, minlength=size)
    partners = partner_counts(a[lossy], b[lossy], size)
    losing = np.bincount(ends, weights=np.tile(lossy, 2), minlength=size)
    enough = np.where(counts < FEW, losing >= counts, losing >= 0.75 * counts)
    return np.asarray(enough & (partners >= 2))
