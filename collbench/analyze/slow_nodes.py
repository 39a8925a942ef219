"""Nodes that look like a knee: slow in every pair, or a step where they join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.knee_points import rates_by_flows
from collbench.analyze.scale_types import PAIRED, RINGS, NodeOrder, Observation
from collbench.stats import FloatArray

_SMALLEST_DROP = 0.05
_ROBUST_SCALES = 3.5
_NOISE_ERRORS = 4.0
_FEWEST_VALUES = 2
_QUARTILE_FROM = 4
"""From so many pairs on a node's upper quartile counts, below the best: a slow partner pulls all
others down."""
_EXPLAINS = 0.5
"""A node explains a step if it leaves at most this share of the squares that n leaves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowNode:
    """A node and by how much it is slower than the others, as a share."""

    node: int
    slower: float
    values: int
    """Partners, or steps, that show it."""
    rail: int | None = None
    """Where rails were measured: that on which it is slowest."""
    alone_in_leaf: bool = False
    """No other node of its leaf took part: its leaf's uplinks may be slow instead."""

    @property
    def name(self) -> str:
        """``node 5``, ``node 5 rail 3``."""
        return f"node {self.node}" + ("" if self.rail is None else f" rail {self.rail}")


def slow_in_pairs(
    observations: Sequence[Observation],
    leaf_of: Mapping[int, int],
    flows_at_full_rate: float | None,
) -> list[SlowNode]:
    """Returns nodes that are slow on any rail whatever their partner, the slowest first.

    Pairs inside leaves, and those across that the uplinks do not limit, are held against the
    median of their own round; a round of fewer than three pairs, against all such pairs.
    """
    found: dict[int, SlowNode] = {}
    seen = {node for one in observations for node in one.step.nodes}
    sizes = Counter(leaf_of[node] for node in seen)
    for rail in dict.fromkeys(one.rail for one in observations):
        mine = [one for one in observations if one.rail == rail]
        for slow in _slow_on_rail(_unlimited(mine, leaf_of, flows_at_full_rate), rail):
            if slow.node not in found or slow.slower > found[slow.node].slower:
                found[slow.node] = replace(slow, alone_in_leaf=sizes[leaf_of[slow.node]] == 1)
    return sorted(found.values(), key=lambda one: -one.slower)


def _slow_on_rail(
    whole: Sequence[tuple[list[tuple[int, int]], FloatArray]], rail: int | None
) -> list[SlowNode]:
    values: dict[int, dict[int, list[float]]] = {}
    if not whole:
        return []
    overall = float(np.median(np.concatenate([np.log(rates) for _, rates in whole])))
    for pairs, rates in whole:
        logs = np.log(rates)
        middle = float(np.median(logs)) if len(logs) >= 3 else overall
        for (a, b), log in zip(pairs, logs, strict=True):
            values.setdefault(a, {}).setdefault(b, []).append(float(log) - middle)
            values.setdefault(b, {}).setdefault(a, []).append(float(log) - middle)
    scores = {
        node: _score([float(np.median(v)) for v in partners.values()])
        for node, partners in values.items()
        if len(partners) >= _FEWEST_VALUES
    }
    counts = {node: len(partners) for node, partners in values.items()}
    single = np.array([v for partners in values.values() for vs in partners.values() for v in vs])
    noise = 1.4826 * float(np.median(np.abs(single - np.median(single))))
    return _outstanding(scores, counts, noise, rail)


def _unlimited(
    observations: Sequence[Observation],
    leaf_of: Mapping[int, int],
    flows_at_full_rate: float | None,
) -> list[tuple[list[tuple[int, int]], FloatArray]]:
    """Returns pairs and rates of rounds that no uplink limits."""
    found = []
    for one in observations:
        step = one.step
        if not one.usable or step.pattern not in PAIRED:
            continue
        if len(one.pair_rates_gb_per_s) != step.m:
            continue
        flows = max(rates_by_flows(one, leaf_of), default=0.0)
        if flows_at_full_rate is not None and flows > flows_at_full_rate:
            continue
        found.append((list(step.pairs), np.array(one.pair_rates_gb_per_s)))
    return found


def _score(values: Sequence[float]) -> float:
    if len(values) < _QUARTILE_FROM:
        return max(values)
    return float(np.quantile(values, 0.75))


def _outstanding(
    scores: Mapping[int, float], counts: Mapping[int, int], noise: float, rail: int | None
) -> list[SlowNode]:
    if len(scores) < 3:
        return []
    all_scores = np.array(list(scores.values()))
    middle = float(np.median(all_scores))
    # The lower half holds the slow ones themselves.
    above = all_scores[all_scores >= middle] - middle
    scale = 1.4826 * float(np.median(above))
    cut = max(_ROBUST_SCALES * scale, -float(np.log1p(-_SMALLEST_DROP)))
    return [
        SlowNode(
            node=node,
            slower=-float(np.expm1(score - middle)),
            values=counts[node],
            rail=rail,
        )
        for node, score in scores.items()
        # Few partners: their own noise counts beside the scatter over nodes.
        if score < middle - max(cut, _NOISE_ERRORS * noise / counts[node] ** 0.5)
    ]


def slow_joiner(
    observations: Sequence[Observation], order: NodeOrder = NodeOrder.CONTIGUOUS
) -> SlowNode | None:
    """Returns the node whose joining makes the step in rings of an order, if it is a node.

    Rings that uplinks limit have to be left out before. Nodes were added in two sequences at
    least: a step that comes with the node in each, whatever n then is, is the node's; one that
    comes with n is not. With one sequence nobody can tell.
    """
    rings = [
        one
        for one in observations
        if one.usable and one.step.pattern in RINGS and one.step.order is order and one.step.n > 1
    ]
    if len({one.step.growth for one in rings}) < 2:
        return None
    logs = np.log([one.rate_gb_per_s or 0.0 for one in rings])
    kinds = np.array([RINGS.index(one.step.pattern) for one in rings])
    counts = np.array([one.step.n for one in rings])
    by_count = min(
        (_step_squares(logs, kinds, counts >= n)[0] for n in np.unique(counts)[1:]),
        default=np.inf,
    )
    found: tuple[float, float, int, int] | None = None
    for node in sorted({node for one in rings for node in one.step.nodes}):
        joined = np.array([node in one.step.nodes for one in rings])
        if len(_joins(rings, joined)) < 2:
            continue
        squares, step = _step_squares(logs, kinds, joined)
        if found is None or squares < found[0]:
            found = squares, step, node, int(joined.sum())
    if found is None or -np.expm1(found[1]) < _SMALLEST_DROP or found[0] > _EXPLAINS * by_count:
        return None
    return SlowNode(node=found[2], slower=-float(np.expm1(found[1])), values=found[3])


def _joins(rings: Sequence[Observation], joined: NDArray[np.bool_]) -> set[int]:
    """Returns at which n a node joins, over the sequences in which rings without it ran too."""
    first: dict[int, int] = {}
    without = set()
    for one, there in zip(rings, joined, strict=True):
        growth = one.step.growth
        if there:
            first[growth] = min(first.get(growth, one.step.n), one.step.n)
        else:
            without.add(growth)
    return {n for growth, n in first.items() if growth in without}


def _step_squares(
    logs: FloatArray, kinds: NDArray[np.intp], after: NDArray[np.bool_]
) -> tuple[float, float]:
    """Returns the squares that a step leaves, each collective with its own level; and the step."""
    centred, indicator = logs.copy(), after.astype(np.float64)
    for kind in np.unique(kinds):
        rows = kinds == kind
        centred[rows] -= centred[rows].mean()
        indicator[rows] -= indicator[rows].mean()
    weight = float(indicator @ indicator)
    step = float(indicator @ centred) / weight if weight > 0 else 0.0
    return float(np.sum((centred - step * indicator) ** 2)), step
