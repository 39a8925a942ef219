"""What all reports of a ``scale`` run share: the run and who was asked, and its curves.

A curve holds a pattern in one order, step by step, beside what the verdict's knee lets expect
there, so that text, JSON and picture show the same figures.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collbench.analyze.false_knees import FalseKneeKind
from collbench.analyze.flows import flows_of_pairs, flows_per_uplink, leaf_of_nodes
from collbench.analyze.knee import KneeAnswer
from collbench.analyze.knee_points import correct_latency, loaded_rate
from collbench.analyze.rate_unit import RateUnit, rate_unit
from collbench.analyze.scale_types import PAIRED, RINGS, NodeOrder, Observation, ScalePattern
from collbench.analyze.scale_verdict import ScaleVerdict
from collbench.report.course_about import CourseAbout

LeafOf = Mapping[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleAbout(CourseAbout):
    """A ``scale`` run, as its reports tell of it."""

    leaves: tuple[tuple[int, ...], ...] | None = None
    """Node numbers by leaf, as the verdict had them; None: unknown."""
    steps: str
    """``212 steps in 3 repeats``."""

    @property
    def leaf_of(self) -> LeafOf | None:
        """Each node's leaf; None where leaves are unknown."""
        return None if self.leaves is None else leaf_of_nodes(self.leaves)

    def name(self, node: int) -> str | None:
        """Returns the name of a node number, None where the topology does not hold it."""
        nodes = self.topology.nodes
        return nodes[node].name if node < len(nodes) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveStep:
    """A step of a curve; rates in GB/s, a pair's one way or a collective's bus bandwidth."""

    at: int
    """Nodes; of pairs how many flows share an uplink; of pairs inside leaves, beside how many."""
    groups: int
    """Pairs that run at once; 0 where it is no pattern of pairs."""
    flows: float
    """Per uplink, one way; the number of nodes where leaves are unknown."""
    rate: float
    """The median over draws, repeats and rails; of a round of pairs, of halves too, their mean
    counts."""
    low: float
    """The lowest of these."""
    high: float
    worst_pair: float | None = None
    law: float | None = None
    """What the verdict's knee lets expect; None where it says nothing."""
    law_low: float | None = None
    """Likewise at the lower end of the knee's interval."""
    law_high: float | None = None
    count: int
    """Of the rates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A pattern in an order, by rising number."""

    pattern: ScalePattern
    order: NodeOrder
    rails: int
    """Rails whose rates stand side by side; 1: none apart."""
    steps: tuple[CurveStep, ...]


@dataclass(frozen=True, slots=True)
class _Rate:
    """One rate with its place on a curve."""

    one: Observation
    at: int
    flows: float
    rate: float
    pairs: tuple[float, ...] = ()


def curves_of(
    verdict: ScaleVerdict, observations: Sequence[Observation], leaf_of: LeafOf | None
) -> list[Curve]:
    """Returns all curves, by pattern and order; latency is taken out as the verdict did.

    Pairs of slow nodes are left out, as in the verdict; collectives with them have no law.

    Args:
        verdict: on the observations.
        observations: all steps, whatever became of them.
        leaf_of: each node's leaf; None where leaves are unknown.
    """
    slow = frozenset(one.node for one in verdict.slow_nodes)
    corrected, _ = correct_latency(observations)
    rates = [rate for one in corrected for rate in _rates(one, leaf_of, slow)]
    law = _Law(verdict, rates, slow)
    kinds: dict[tuple[ScalePattern, NodeOrder], list[_Rate]] = {}
    for rate in rates:
        kinds.setdefault((rate.one.step.pattern, rate.one.step.order), []).append(rate)
    return [
        Curve(
            pattern=pattern,
            order=order,
            rails=len({rate.one.rail for rate in kinds[pattern, order]}),
            steps=tuple(_steps(kinds[pattern, order], law)),
        )
        for pattern in ScalePattern
        for order in NodeOrder
        if (pattern, order) in kinds
    ]


def unit_of(curves: Iterable[Curve]) -> RateUnit:
    """Returns the unit of all rates of a report."""
    return rate_unit(np.array([step.rate for curve in curves for step in curve.steps]))


def measured(observations: Sequence[Observation]) -> list[Observation]:
    """Returns the usable observations of the large size, as they were measured."""
    usable = [one for one in observations if one.usable]
    largest = max((one.step.size_bytes for one in usable), default=0)
    return [one for one in usable if one.step.size_bytes == largest]


def pair_rates(
    observations: Sequence[Observation], leaf_of: LeafOf
) -> Iterator[tuple[float, float]]:
    """Yields flows per uplink and rate in GB/s of every single pair across leaves."""
    corrected, _ = correct_latency(observations)
    for one in corrected:
        if one.step.pattern is ScalePattern.PAIRS:
            for rate in _rates(one, leaf_of, frozenset()):
                yield from ((rate.flows, pair) for pair in rate.pairs)


def _rates(one: Observation, leaf_of: LeafOf | None, slow: frozenset[int]) -> Iterator[_Rate]:
    """Yields an observation's rates: one, or of pairs across one for each number of flows."""
    step = one.step
    whole = loaded_rate(one, leaf_of)
    if step.pattern not in PAIRED:
        flows = float(step.n) if leaf_of is None else flows_per_uplink(step, leaf_of)
        yield _Rate(one, step.n, flows, whole)
        return
    if leaf_of is None:
        return
    shared = flows_of_pairs(step, leaf_of)
    if len(one.pair_rates_gb_per_s) != len(shared):
        if not slow & set(step.nodes):
            yield _Rate(one, _place_of(one, max(shared)), max(shared), whole, (whole,))
        return
    found: dict[float, list[float]] = {}
    for pair, flows, rate in zip(step.pairs, shared, one.pair_rates_gb_per_s, strict=True):
        if not slow & set(pair):
            found.setdefault(flows, []).append(rate)
    for flows, rates in found.items():
        yield _Rate(one, _place_of(one, flows), flows, float(np.mean(rates)), tuple(rates))


def _place_of(one: Observation, flows: float) -> int:
    return one.step.asked if one.step.pattern is ScalePattern.INSIDE else round(flows)


def _steps(rates: Sequence[_Rate], law: _Law) -> Iterator[CurveStep]:
    places: dict[int, list[_Rate]] = {}
    for rate in rates:
        places.setdefault(rate.at, []).append(rate)
    for at, mine in sorted(places.items()):
        values = [rate.rate for rate in mine]
        pairs = [pair for rate in mine for pair in rate.pairs]
        expected = [found for rate in mine for found in law.at(rate)]
        low, middle, high = np.median(expected, axis=0).tolist() if expected else (None,) * 3
        yield CurveStep(
            at=at,
            groups=int(np.median([_groups(rate.one) for rate in mine])),
            flows=float(np.median([rate.flows for rate in mine])),
            rate=float(np.median(values)),
            low=min(values),
            high=max(values),
            worst_pair=min(pairs, default=None),
            law=middle,
            law_low=low,
            law_high=high,
            count=len(values),
        )


def _groups(one: Observation) -> int:
    return one.step.n // 2 if one.step.pattern is ScalePattern.HALF else one.step.m


class _Law:
    """What the verdict's knee lets expect, each pattern over its own full rate."""

    def __init__(self, verdict: ScaleVerdict, rates: Sequence[_Rate], slow: frozenset[int]) -> None:
        self._fit, self._slow = verdict.fit, slow
        hosts = verdict.check(FalseKneeKind.HOSTS)
        self._hosts = bool(hosts and hosts.found)
        self._full = verdict.full_gb_per_s
        collided = verdict.collisions is not None and verdict.collisions.there
        # Collisions bend rates in another way, for which the fit of the law alone is no guide.
        self._known = verdict.answer is not KneeAnswer.INCONCLUSIVE and not collided
        full: dict[Hashable, list[float]] = {}
        for rate in rates if self._known else ():
            one = rate.one
            if self._is_held_by_uplinks(one):
                freed = rate.rate / self._fit.expected_share(rate.flows)
                full.setdefault(_kind(rate), []).append(freed)
                if _is_baseline(one):
                    full.setdefault(_baseline(rate), []).append(freed)
        self._bases = {key: float(np.median(values)) for key, values in full.items()}

    def at(self, rate: _Rate) -> Iterator[tuple[float, float, float]]:
        """Yields one law, at the knee's lower end, at the knee and at its upper end, or none."""
        base = self._base(rate)
        if base is None:
            return
        fit, flows = self._fit, rate.flows
        middle = fit.expected_share(flows)
        low = min(middle, (fit.flows_low or 0.0) / flows) if flows else 1.0
        high = 1.0 if fit.flows_high is None or not flows else min(1.0, fit.flows_high / flows)
        yield base * low, base * middle, base * high

    def _is_held_by_uplinks(self, one: Observation) -> bool:
        """One node alone uses no network; a slow one holds up a collective by itself."""
        return one.step.n > 1 and (bool(one.step.m) or not self._slow & set(one.step.nodes))

    def _base(self, rate: _Rate) -> float | None:
        pattern = rate.one.step.pattern
        if pattern is ScalePattern.INSIDE or not self._known:
            return None
        if not self._is_held_by_uplinks(rate.one):
            return None
        if pattern is ScalePattern.PAIRS and not self._hosts and self._full is not None:
            return self._full
        if pattern is ScalePattern.PAIRS or pattern in RINGS:
            found = self._bases.get(_baseline(rate))
            if found is not None:
                return found
        return self._bases.get(_kind(rate))


def _kind(rate: _Rate) -> Hashable:
    return rate.one.step.pattern, rate.one.algorithm


def _is_baseline(one: Observation) -> bool:
    if one.step.pattern in RINGS:
        return one.step.order is NodeOrder.CONTIGUOUS
    return one.step.pattern is ScalePattern.INSIDE


def _baseline(rate: _Rate) -> Hashable:
    """Returns what has the same rate where no uplink limits: as many pairs, the ring of n nodes."""
    step = rate.one.step
    if step.pattern in PAIRED:
        return ScalePattern.INSIDE, step.asked
    return step.pattern, step.n, step.growth, rate.one.algorithm
