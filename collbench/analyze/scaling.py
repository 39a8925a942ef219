"""Beside the knee: parallel efficiency, and where jitter sets in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.analyze.knee_points import loaded_rate
from collbench.analyze.scale_types import NodeOrder, Observation, ScalePattern
from collbench.stats import spread

EXPECTED_EFFICIENCY = 0.8
"""What the field expects of a fabric at least."""

_JITTER = 1.1
_OVER_QUIET = 2.0
"""Jitter's excess over 1 has to be so many times that of the smallest steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """A pattern's rate at n nodes as a share of that on fewer."""

    pattern: ScalePattern
    order: NodeOrder
    n: int
    rate_gb_per_s: float
    against_one_node: float | None
    against_one_leaf: float | None
    """The most nodes that were measured inside one leaf; None where there was none."""

    @property
    def expected(self) -> bool | None:
        """Whether it is at least 80 % of one leaf's; None where that is not known."""
        return (
            None if self.against_one_leaf is None else self.against_one_leaf >= EXPECTED_EFFICIENCY
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Jitter:
    """How much calls of one step, and repeats of it, differ."""

    n: int
    p95_over_median: float | None
    """The median over the step's observations."""
    repeat_spread: float
    """(largest - smallest) / median of the rates in repeats."""


def efficiencies(
    observations: Sequence[Observation], leaf_of: Mapping[int, int] | None
) -> list[Efficiency]:
    """Returns the efficiency of every pattern of collectives, order and n, by rising n."""
    rates: dict[tuple[ScalePattern, NodeOrder, int], list[float]] = {}
    alone: dict[ScalePattern, list[float]] = {}
    leaf: dict[ScalePattern, dict[int, list[float]]] = {}
    for one in observations:
        step = one.step
        if not one.usable or step.m:
            continue
        rate = loaded_rate(one, leaf_of)
        rates.setdefault((step.pattern, step.order, step.n), []).append(rate)
        if step.n == 1:
            alone.setdefault(step.pattern, []).append(rate)
        elif leaf_of is not None and len({leaf_of[node] for node in step.nodes}) == 1:
            leaf.setdefault(step.pattern, {}).setdefault(step.n, []).append(rate)
    found = []
    for (pattern, order, n), values in sorted(rates.items(), key=lambda item: item[0]):
        middle = float(np.median(values))
        inside = leaf.get(pattern)
        found.append(
            Efficiency(
                pattern=pattern,
                order=order,
                n=n,
                rate_gb_per_s=middle,
                against_one_node=middle / float(np.median(alone[pattern]))
                if pattern in alone
                else None,
                against_one_leaf=middle / float(np.median(inside[max(inside)])) if inside else None,
            )
        )
    return found


def jitter(observations: Sequence[Observation]) -> list[Jitter]:
    """Returns the jitter at each n, by rising n; the worst pattern counts."""
    steps: dict[int, dict[tuple[ScalePattern, NodeOrder], list[Observation]]] = {}
    for one in observations:
        if one.usable:
            kinds = steps.setdefault(one.step.n, {})
            kinds.setdefault((one.step.pattern, one.step.order), []).append(one)
    return [
        Jitter(
            n=n,
            p95_over_median=max(filter(None, map(_tail, kinds.values())), default=None),
            repeat_spread=max(map(_repeat_spread, kinds.values())),
        )
        for n, kinds in sorted(steps.items())
    ]


def _tail(those: Sequence[Observation]) -> float | None:
    tails = [one.p95_us / one.time_us for one in those if one.p95_us and one.time_us]
    return float(np.median(tails)) if tails else None


def _repeat_spread(those: Sequence[Observation]) -> float:
    """Returns the spread over repeats of the median over what was drawn in each."""
    repeats: dict[int, list[float]] = {}
    for one in those:
        repeats.setdefault(one.step.repeat, []).append(one.rate_gb_per_s or 0.0)
    return spread(np.array([float(np.median(rates)) for rates in repeats.values()]))


def jitter_sets_in(found: Sequence[Jitter]) -> int | None:
    """Returns the n from which on p95 / median stays above 1.1 and twice that of small steps."""
    known = [(one.n, one.p95_over_median) for one in found if one.p95_over_median is not None]
    if len(known) < 3:
        return None
    quiet = float(np.median([tail for _, tail in known[: max(1, len(known) // 3)]]))
    bar = max(_JITTER, 1 + _OVER_QUIET * (quiet - 1))
    first = None
    for n, tail in reversed(known):
        if tail <= bar:
            break
        first = n
    return first
