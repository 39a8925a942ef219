"""What a picture of pairs says in words: the conclusion, and what is shown."""

from __future__ import annotations

import math

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import (
    FabricVerdict,
    NodeState,
    NodeVerdict,
    PairwiseResult,
)
from collbench.report.drain_line import percent
from collbench.report.pair_matrix import PairMatrix
from collbench.report.pairwise_about import PairwiseAbout
from collbench.report.pairwise_words import gravest_first, listed


def conclusion(state: PairwiseState, result: PairwiseResult) -> str:
    """Returns what a slide says first."""
    fails = gravest_first(result.of(NodeState.FAIL))
    words = []
    if fails:
        named = [_short(state, node) for node in fails]
        verb = "fails" if len(fails) == 1 else "fail"
        words.append(f"{len(fails)} of {state.size} nodes {verb}: {listed(named, 3)}")
    confirmed = [fault for fault in result.fabric if fault.confirmed]
    if confirmed:
        names = [_fault(state, fault) for fault in confirmed]
        words.append(listed(names, 2))
    passed = len(result.of(NodeState.PASS))
    if not fails and passed == state.size:
        words.insert(0, f"all {state.size} nodes pass")
    elif not fails:
        words.insert(0, f"{passed} of {state.size} nodes pass, none fails")
    for verdict in (NodeState.SUSPECT, NodeState.INCONCLUSIVE):
        count = len(result.of(verdict))
        words += [f"{count} {verdict}"] if count else []
    return "; ".join(words)


def _fault(state: PairwiseState, fault: FabricVerdict) -> str:
    ends = fault.leaves or [state.names[node] for node in sorted(fault.nodes)[:2]]
    return f"{fault.code} {'-'.join(ends)}"


def _short(state: PairwiseState, node: NodeVerdict) -> str:
    words = f"{state.names[node.node]} {node.code or ''}".rstrip()
    if node.rail is not None and len(node.rails) <= 1:
        words += f" {node.rail}"
    return words if node.effect is None else f"{words} {percent(node.effect.share)} %"


def what_is_shown(matrix: PairMatrix, about: PairwiseAbout) -> str:
    """Returns what the cells are, and what is usual."""
    if not matrix.has_values:
        return "No pair gave a value"
    unit = matrix.unit
    words = f"{matrix.kind} of every pair in {unit.name}"
    if matrix.nodes_a_cell > 1:
        nodes = f"{matrix.nodes_a_cell} x {matrix.nodes_a_cell} nodes"
        words = f"{matrix.kind}, a cell the slowest pair of {nodes}"
    words += ", its slowest rail" if matrix.of_rails else ""
    usual = [
        f"{unit.text(rate)} {unit.name} {where}"
        for rate, where in ((matrix.usual, "inside leaves"), (matrix.usual_across, "across"))
        if not math.isnan(rate)
    ]
    words += f"; usual: {', '.join(usual)}"
    if about.share_tried is not None:
        words += f"; {100 * about.share_tried:.3g} % of paths tried"
    return words
