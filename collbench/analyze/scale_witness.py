"""What patterns other than pairs say of the uplinks, each alone, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.analyze.knee import KneeFit, fit_knee
from collbench.analyze.knee_points import loaded_rate, points_of
from collbench.analyze.scale_types import NodeOrder, Observation, ScalePattern

_APART = 1.05
"""Intervals of 95 % miss each other by chance, and overheads of patterns differ by as much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """What one pattern alone says."""

    pattern: ScalePattern
    fit: KneeFit
    agrees: bool | None
    """Whether its interval meets that of the verdict, or nearly; None where one has none."""
    n: int
    """The most nodes it ran on ..."""
    rates_gb_per_s: dict[NodeOrder, float]
    """... and its rate there, by order: the median; of halves, of the mean over their nodes."""


def witnesses(
    others: Sequence[Observation], leaf_of: Mapping[int, int], verdict: KneeFit
) -> Iterator[Witness]:
    """Yields what each pattern says.

    Args:
        others: observations of one size, of all patterns but pairs.
        leaf_of: each node's leaf.
        verdict: what they are held against.
    """
    for pattern in ScalePattern:
        mine = [one for one in others if one.usable and one.step.pattern is pattern]
        if not mine:
            continue
        fit = fit_knee(points_of(mine, leaf_of))
        n = max(one.step.n for one in mine)
        rates: dict[NodeOrder, list[float]] = {}
        for one in mine:
            if one.step.n == n:
                rates.setdefault(one.step.order, []).append(loaded_rate(one, leaf_of))
        yield Witness(
            pattern=pattern,
            fit=fit,
            agrees=_agree(fit, verdict),
            n=n,
            rates_gb_per_s={
                order: float(np.median(rates[order])) for order in NodeOrder if order in rates
            },
        )


def _agree(a: KneeFit, b: KneeFit) -> bool | None:
    if any(fit.flows_low is None and fit.flows_high is None for fit in (a, b)):
        return None
    return _low(a) <= _APART * _high(b) and _low(b) <= _APART * _high(a)


def _low(fit: KneeFit) -> float:
    return fit.flows_low or 0.0


def _high(fit: KneeFit) -> float:
    return float("inf") if fit.flows_high is None else fit.flows_high
