"""Hash collisions: flows that share one uplink of several while others lie idle.

Oversubscription lowers every pair of a round; collisions leave some at full rate and halve others,
and which, changes with the draw. A pair exchanges, and each of its directions picks one of u
uplinks of a node link's rate by a hash of its own; the pair is as fast as the slower of the two.
With m pairs it keeps E[1 / max(K, L)] of its rate, K and L the flows on its two uplinks, each
1 + binomial(m - 1, 1/u). u is fitted to the rounds, so that a fabric which is short of uplinks as
well is told from one that has enough. What a direction that waits for the other leaves to its
neighbours is not counted, and where both directions share one hash they collide less: then the
ratio comes out too small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from collbench.analyze.knee import KneeAnswer, Point, Ratio, fit_knee
from collbench.analyze.knee_points import rates_by_flows
from collbench.analyze.scale_types import Observation, ScalePattern
from collbench.stats import FloatArray

_FULL = 0.9
"""Of the plateau: a pair at full rate. A collision takes it to two thirds or less."""
_UNEVEN = 1.35
"""Best over worst pair of a round: three flows where two had full rate differ by 1.5, and 64 pairs
with 5 % of noise by 1.27."""
UNEVEN_ROUNDS = 0.2
"""The share of them from which on they are more than chance."""
_SHARE_FULL = 0.05
_SAME_SUM = 0.10
"""Scatter of the rounds about the law of one link. Collisions scatter them by 0.13 and more (1st
percentile; mostly 0.2 to 0.4), TCP on a busy host by up to 0.08."""
_ONE_UPLINK = 1.5
"""A knee below: the uplinks carry one node link, so that there is nothing to hash over."""
_PAST_KNEE = 1.25
_FEWEST_ROUNDS = 4
_RESAMPLES = 400
_LEVEL = 0.99
_SURELY_SHORT = 1.25
"""A ratio whose interval lies above is oversubscription beside the collisions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collisions:
    """What re-drawn pairings show; rates are shares of the full one."""

    there: bool
    """Pairs of one round differ as only collisions make them."""
    rounds: int
    share_full: float
    """Of the pairs that keep their full rate."""
    median: float
    worst: float
    uneven: float = 0.0
    """The share of rounds whose pairs differ."""
    ratio: Ratio | None = None
    """Oversubscription with collisions taken into account."""

    @property
    def oversubscribed(self) -> bool:
        """Whether uplinks are short as well, surely."""
        low = None if self.ratio is None else self.ratio.low
        return low is not None and low > _SURELY_SHORT


@dataclass(frozen=True, slots=True)
class _Round:
    flows: float
    shares: FloatArray


def find_collisions(
    observations: Sequence[Observation],
    leaf_of: Mapping[int, int],
    *,
    full_gb_per_s: float,
    flows_at_full_rate: float | None,
    leaf_size: int,
    slow: frozenset[int] = frozenset(),
) -> Collisions | None:
    """Returns what the rounds of pairs across say, None where there are too few to tell.

    Args:
        observations: of any pattern.
        leaf_of: each node's leaf.
        full_gb_per_s: a pair's rate that nothing limits.
        flows_at_full_rate: the knee that was fitted, None where there is none.
        leaf_size: nodes of the largest leaf.
        slow: nodes that are slow by themselves; their pairs are left out.
    """
    rounds = [
        _Round(flows, np.array(rates) / full_gb_per_s)
        for one in observations
        if one.usable and one.step.pattern is ScalePattern.PAIRS
        for flows, rates in rates_by_flows(one, leaf_of, slow).items()
        if flows > 0
    ]
    largest = max((one.flows for one in rounds), default=0.0)
    edge = largest / 2 if flows_at_full_rate is None else _PAST_KNEE * flows_at_full_rate
    late = [one for one in rounds if one.flows > 1 and one.flows >= min(edge, largest)]
    if len(late) < _FEWEST_ROUNDS:
        return None
    shares = np.concatenate([one.shares for one in late])
    full = float(np.mean(shares >= _FULL))
    uneven = float(np.mean([_is_uneven(one) for one in late]))
    mixed = flows_at_full_rate is not None and full >= _SHARE_FULL
    single = flows_at_full_rate is not None and flows_at_full_rate < _ONE_UPLINK and not full
    there = (uneven >= UNEVEN_ROUNDS or mixed) and not (single or _shared_unfairly(rounds))
    return Collisions(
        there=there,
        rounds=len(late),
        share_full=full,
        median=float(np.median(shares)),
        worst=float(shares.min()),
        uneven=uneven,
        ratio=_hashed_ratio(rounds, leaf_size) if there else None,
    )


def _is_uneven(one: _Round) -> bool:
    return len(one.shares) > 1 and bool(one.shares.max() >= _UNEVEN * one.shares.min())


def _shared_unfairly(rounds: Sequence[_Round]) -> bool:
    """Whether pairs share one link unevenly: then their sum is that link's, whatever was drawn."""
    means = [float(one.shares.mean()) for one in rounds]
    points = [
        Point(flows=one.flows, rate_gb_per_s=mean) for one, mean in zip(rounds, means, strict=True)
    ]
    # Shares are of the full rate: where nothing crosses they are 1.
    fit = fit_knee([*points, *[Point(flows=0.0, rate_gb_per_s=1.0)] * len(points)])
    if fit.answer is not KneeAnswer.KNEE or fit.flows is None:
        return False
    errors = [
        np.log(mean / fit.expected_share(one.flows))
        for one, mean in zip(rounds, means, strict=True)
        if one.flows > fit.flows
    ]
    return bool(np.sqrt(np.mean(np.square(errors))) <= _SAME_SUM)


def _hashed_ratio(rounds: Sequence[_Round], leaf_size: int) -> Ratio:
    """Returns leaf size / u, u fitted to the rounds' mean rates, with a bootstrap over rounds."""
    flows = np.array([one.flows for one in rounds])
    means = np.array([one.shares.mean() for one in rounds])
    uplinks = _uplinks(leaf_size)
    law = np.array([_share_kept(one, leaf_size) for one in flows.tolist()])
    errors = (means[:, np.newaxis] - law) ** 2
    random = np.random.default_rng(21)
    drawn = random.multinomial(len(rounds), np.full(len(rounds), 1 / len(rounds)), _RESAMPLES)
    ratios = leaf_size / uplinks[(drawn @ errors).argmin(axis=1)]
    edge = (1 - _LEVEL) / 2
    return Ratio(
        value=float(leaf_size / uplinks[errors.sum(axis=0).argmin()]),
        low=float(np.quantile(ratios, edge)),
        high=float(np.quantile(ratios, 1 - edge)),
    )


def _uplinks(leaf_size: int) -> FloatArray:
    """Returns the numbers of uplinks that are tried."""
    return np.geomspace(1.0, 16.0 * leaf_size, 400)


@lru_cache(maxsize=256)
def _share_kept(pairs: float, leaf_size: int) -> FloatArray:
    """Returns what a pair keeps of its rate among so many, by the number of uplinks."""
    most = max(1, round(pairs))
    counts = np.arange(1, most + 1)
    below = stats.binom.cdf(counts - 1, most - 1, 1 / _uplinks(leaf_size)[:, np.newaxis])
    both = np.diff(below**2, axis=1, prepend=0.0)
    return np.asarray(both @ (1 / counts))
