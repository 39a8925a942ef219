"""The verdict of `scale`: where the fabric runs out, how surely, and what it is not.

Pairs across leaves at once are the witness: nothing of NCCL is in their way. Other patterns are
fitted likewise and held against it; without pairs they are fitted together, each with its own
plateau and one common knee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collbench.analyze import false_knees
from collbench.analyze.collisions import Collisions, find_collisions
from collbench.analyze.false_knees import FalseKnee, FalseKneeKind
from collbench.analyze.flows import Leaves, flows_per_uplink, leaf_of_nodes
from collbench.analyze.knee import KneeAnswer, KneeFit, Point, Ratio, fit_knee, oversubscription
from collbench.analyze.knee_points import (
    Latency,
    correct_latency,
    points_of,
    uplink_sums,
)
from collbench.analyze.scale_lost import LostSteps, lost_steps
from collbench.analyze.scale_types import PAIRED, RINGS, NodeOrder, Observation, ScalePattern
from collbench.analyze.scale_witness import Witness, witnesses
from collbench.analyze.slow_nodes import SlowNode, slow_in_pairs, slow_joiner

_ONE_FLOW = 0.95
_SMALLEST_RATIO = 1.1
"""Below, oversubscription is bounded and not claimed."""
_UNKNOWN = Ratio(value=None, low=None, high=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleVerdict:
    """The answer with what it rests on."""

    answer: KneeAnswer
    fit: KneeFit
    ratio: Ratio
    leaf_size: int
    """Nodes of the largest leaf that takes part; the ratio is of these."""
    full_gb_per_s: float | None
    """A pair's rate that no uplink limits; of pairs alone."""
    capacity_gb_per_s: float | None
    """What a leaf's uplinks carry one way, of one rail: rates of pairs past the knee, summed."""
    witnesses: tuple[Witness, ...]
    checks: tuple[FalseKnee, ...]
    collisions: Collisions | None
    latency: Latency
    slow_nodes: tuple[SlowNode, ...]
    lost: LostSteps
    """Steps without a rate."""
    reason: str | None = None

    def check(self, kind: FalseKneeKind) -> FalseKnee | None:
        """Returns the check of a kind."""
        return next((one for one in self.checks if one.kind is kind), None)

    def breaks(self, largest_ratio: float) -> bool | None:
        """Returns whether a bar is surely broken, surely kept, or None."""
        if self.ratio.low is not None and self.ratio.low > largest_ratio:
            return True
        if self.answer is not KneeAnswer.INCONCLUSIVE and self.ratio.high is not None:
            return False if self.ratio.high <= largest_ratio else None
        return None


def judge_scale(observations: Sequence[Observation], leaves: Leaves | None) -> ScaleVerdict:
    """Returns the verdict on what was measured.

    Args:
        observations: all steps, whatever became of them; with two sizes latency is taken out.
        leaves: node numbers by leaf; None where they are unknown.

    Raises:
        UsageError: a node in two leaves, or in none.
    """
    verdict = _judged_by_leaves(observations, leaves)
    if verdict.answer is not KneeAnswer.INCONCLUSIVE or not verdict.lost.steps:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; {verdict.lost.summary}")


def _judged_by_leaves(observations: Sequence[Observation], leaves: Leaves | None) -> ScaleVerdict:
    leaf_of = None if leaves is None else leaf_of_nodes(leaves)
    corrected, latency = correct_latency(observations)
    if leaf_of is None:
        return _unknown_leaves(observations, corrected, latency)
    seen = {node for one in observations for node in one.step.nodes}
    sizes = [len(seen & set(leaf)) for leaf in leaves or ()]
    if sum(size > 0 for size in sizes) < 2:
        reason = f"cannot see uplinks: the {len(seen)} nodes are in one leaf"
        return _one_leaf(observations, corrected, latency, leaf_of, reason)
    return _judged(observations, corrected, latency, leaf_of, max(sizes))


def _judged(
    observations: Sequence[Observation],
    corrected: Sequence[Observation],
    latency: Latency,
    leaf_of: Mapping[int, int],
    leaf_size: int,
) -> ScaleVerdict:
    first = fit_knee(points_of(_paired(corrected), leaf_of))
    in_pairs = tuple(slow_in_pairs(corrected, leaf_of, first.flows))
    slow = frozenset(one.node for one in in_pairs)
    others = [
        one
        for one in corrected
        if one.step.pattern not in PAIRED and not slow & set(one.step.nodes)
    ]
    three = false_knees.three_nodes(others)
    if three.found:
        others = [one for one in others if one.step.n != 3 or one.step.pattern not in RINGS]
    host_limit = false_knees.hosts(corrected, slow)
    paired = points_of(
        _paired(corrected), leaf_of, against_control=bool(host_limit.found), slow=slow
    )
    measured = any(one.step.pattern is ScalePattern.PAIRS for one in corrected)
    fit = _called(fit_knee(paired if measured else points_of(others, leaf_of)), leaf_size)
    full = _full_rate(paired)
    collisions = None
    if measured and full is not None:
        collisions = find_collisions(
            corrected,
            leaf_of,
            full_gb_per_s=full,
            flows_at_full_rate=fit.flows,
            leaf_size=leaf_size,
            slow=slow,
        )
    alone = _in_leaf_order(others, leaf_of, fit.flows)
    joiner = None if slow else slow_joiner(alone)
    growths = len({one.step.growth for one in alone})
    sums = uplink_sums(corrected, leaf_of)
    answer, ratio, reason = _concluded(fit, collisions, leaf_size)
    return ScaleVerdict(
        answer=answer,
        fit=fit,
        ratio=ratio,
        leaf_size=leaf_size,
        full_gb_per_s=full,
        capacity_gb_per_s=_capacity(sums, fit) if answer is KneeAnswer.KNEE else None,
        witnesses=tuple(witnesses(others, leaf_of, fit)),
        checks=(
            host_limit,
            false_knees.node(joiner, in_pairs, growths),
            false_knees.collisions(collisions),
            false_knees.algorithm(others),
            false_knees.collective(alone),
            false_knees.latency(latency),
            three,
        ),
        collisions=collisions,
        latency=latency,
        slow_nodes=in_pairs if joiner is None else (joiner,),
        lost=lost_steps(observations),
        reason=reason,
    )


def _called(fit: KneeFit, leaf_size: int) -> KneeFit:
    """Returns the fit, without a knee that is no more than what nearly full uplinks cost.

    Flows that fill nine tenths of an uplink lose 5 % and more in its queue: measured with TCP, on a
    busy host up to 8 %. What the interval allows above that stands as the bound.
    """
    if fit.answer is not KneeAnswer.KNEE or fit.flows is None:
        return fit
    if leaf_size >= _SMALLEST_RATIO * fit.flows:
        return fit
    return replace(fit, answer=KneeAnswer.NO_KNEE, flows=None, flows_high=None)


def _paired(observations: Sequence[Observation]) -> list[Observation]:
    return [one for one in observations if one.step.pattern in PAIRED]


def _in_leaf_order(
    others: Sequence[Observation], leaf_of: Mapping[int, int], flows_at_full_rate: float | None
) -> list[Observation]:
    """Returns the rings in leaf order that no uplink limits.

    These have one flow per uplink, which only uplinks slower than a node link cannot carry.
    """
    slower = flows_at_full_rate is not None and flows_at_full_rate < _ONE_FLOW
    return [
        one
        for one in others
        if one.step.pattern in RINGS
        and one.step.order is NodeOrder.CONTIGUOUS
        and flows_per_uplink(one.step, leaf_of) <= (0 if slower else 1)
    ]


def _concluded(
    fit: KneeFit, collisions: Collisions | None, leaf_size: int
) -> tuple[KneeAnswer, Ratio, str | None]:
    """Returns answer, ratio and why; collisions first, since the fit takes them for a knee."""
    if collisions is None or not collisions.there or collisions.ratio is None:
        return fit.answer, oversubscription(fit, leaf_size), fit.reason
    found = collisions.ratio
    if collisions.oversubscribed:
        return KneeAnswer.KNEE, found, None
    high = None if found.high is None else max(1.0, found.high)
    return KneeAnswer.NO_KNEE, Ratio(value=None, low=None, high=high), None


def _full_rate(paired: Sequence[Point]) -> float | None:
    """Returns the rate of pairs that no uplink limits and no hash can collide, None without."""
    for most in (0.0, 1.0):
        free = [one.rate_gb_per_s for one in paired if one.flows <= most]
        if free:
            return float(np.median(free))
    return None


def _capacity(sums: Mapping[float, Sequence[float]], fit: KneeFit) -> float | None:
    edge = fit.flows or 0.0
    late = [value for flows, values in sums.items() if flows >= edge for value in values]
    return float(np.median(late)) if late else None


def _unknown_leaves(
    observations: Sequence[Observation], corrected: Sequence[Observation], latency: Latency
) -> ScaleVerdict:
    """Returns what random orders alone can say: from which n on rates fall, and no ratio."""
    fit = fit_knee(points_of(corrected, None))
    joiner = slow_joiner(corrected, NodeOrder.RANDOM)
    growths = len({one.step.growth for one in corrected if one.step.pattern in RINGS})
    reason = fit.reason
    if fit.answer is KneeAnswer.KNEE:
        reason = "leaves are unknown: rates in random order fall from there on, why is not told"
    return ScaleVerdict(
        answer=fit.answer,
        fit=fit,
        ratio=_UNKNOWN,
        leaf_size=0,
        full_gb_per_s=None,
        capacity_gb_per_s=None,
        witnesses=(),
        checks=(
            false_knees.node(joiner, (), growths),
            false_knees.algorithm(corrected),
            false_knees.latency(latency),
        ),
        collisions=None,
        latency=latency,
        slow_nodes=() if joiner is None else (joiner,),
        lost=lost_steps(observations),
        reason=reason,
    )


def _one_leaf(
    observations: Sequence[Observation],
    corrected: Sequence[Observation],
    latency: Latency,
    leaf_of: Mapping[int, int],
    reason: str,
) -> ScaleVerdict:
    """Returns what can be said where nothing crosses an uplink: of nodes and hosts."""
    in_pairs = tuple(slow_in_pairs(corrected, leaf_of, None))
    slow = frozenset(one.node for one in in_pairs)
    others = [one for one in corrected if not slow & set(one.step.nodes)]
    growths = len({one.step.growth for one in corrected if one.step.pattern in RINGS})
    checks = (
        false_knees.hosts(corrected, slow),
        false_knees.node(None if slow else slow_joiner(others), in_pairs, growths),
        false_knees.latency(latency),
    )
    return ScaleVerdict(
        answer=KneeAnswer.INCONCLUSIVE,
        fit=KneeFit(answer=KneeAnswer.INCONCLUSIVE, reason=reason),
        ratio=_UNKNOWN,
        leaf_size=len({node for one in observations for node in one.step.nodes}),
        full_gb_per_s=_full_rate(points_of(_paired(corrected), leaf_of, slow=slow)),
        capacity_gb_per_s=None,
        witnesses=(),
        checks=checks if observations else (),
        collisions=None,
        latency=latency,
        slow_nodes=in_pairs,
        lost=lost_steps(observations),
        reason=reason,
    )
