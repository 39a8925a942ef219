"""What is said of the fabric: its faults, what crosses it, and how small a fault could be seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_types import KINDS, UNREADABLE, PairKind
from collbench.analyze.pair_verdicts import FabricCode, PairwiseResult
from collbench.report.pairwise_about import PairwiseAbout
from collbench.report.pairwise_words import Words, listed

_MOST_FAULTS = 16
_MOST_LEAVES = 4
_NOT_LESS = 0.96
"""Of what pairs inside leaves get: nothing is named that is nearer."""


def fabric_lines(
    state: PairwiseState, result: PairwiseResult, about: PairwiseAbout, words: Words
) -> list[str]:
    """Returns a line a fault, then one on what crosses leaves and one on what would be seen."""
    lines = [words.fault(fault) for fault in result.fabric[:_MOST_FAULTS]]
    if len(result.fabric) > _MOST_FAULTS:
        lines.append(f"and {len(result.fabric) - _MOST_FAULTS} more faults")
    said = (_crossing(result, about), _seen(state, result, about))
    return [*lines, *("; ".join(parts) for parts in said if parts)]


def _crossing(result: PairwiseResult, about: PairwiseAbout) -> list[str]:
    parts = []
    slow = sorted(
        {
            leaf
            for fault in result.fabric
            if fault.code is FabricCode.LEAF_UPLINK_SLOW
            for leaf in fault.leaves
        }
    )
    if result.across_share is not None:
        share = f"{100 * result.across_share:.3g} %"
        parts.append(f"pairs across leaves, all at once, got {share} of what pairs inside got")
        if result.across_share < _NOT_LESS:
            parts.append(_why_less(result, slow))
    if result.throttled_share is not None:
        share = f"{100 * result.throttled_share:.3g} %"
        parts.append(f"no more at once than the uplinks carry, they got {share}")
    if result.collisions:
        share = f"{100 * result.collisions:.2g} %"
        others = " over other uplinks" if slow else ""
        parts.append(f"collisions: {share} of pairs across{others} fell behind the others")
    elif result.collisions is not None:
        parts.append("no collisions seen")
    if about.share_across_tried is not None and about.share_across_tried < 1:
        parts.append(f"{100 * about.share_across_tried:.2g} % of paths across tried")
    return parts


def _why_less(result: PairwiseResult, slow_leaves: Sequence[str]) -> str:
    """Returns what is known of why pairs across leaves are slower than those inside."""
    if slow_leaves:
        return f"those over the uplinks of {listed(slow_leaves, _MOST_LEAVES)} among them"
    if result.collisions:
        return (
            "most flows collide or the uplinks are shared out, which is no node's fault"
            " (collbench scale tells which)"
        )
    return "all of them alike: the uplinks are shared out, which is no node's fault"


def _seen(state: PairwiseState, result: PairwiseResult, about: PairwiseAbout) -> list[str]:
    parts = []
    if about.share_tried is not None:
        parts.append(f"{100 * about.share_tried:.3g} % of all paths tried")
    if result.smallest_fault is not None:
        parts.append(f"a node would stand out from {100 * result.smallest_fault:.2g} % slower on")
    if result.smallest_loss is not None:
        parts.append(f"smallest loss that could be seen {100 * result.smallest_loss:.2g} %")
        parts += ["retransmissions unreadable"] * counters_unreadable(state)
    else:
        parts.append("loss not looked for: no latency pass")
    return parts


def counters_unreadable(state: PairwiseState) -> bool:
    """Returns whether in a latency pass no counter of retransmissions could be read."""
    rows = state.values[state.values["kind"] == KINDS.index(PairKind.LATENCY)]
    return bool(rows.size) and bool(np.all(rows["retransmits"] == UNREADABLE))
