"""The fabric's faults in words: paths, uplinks, splits, each confirmed or not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from collbench.analyze.pair_analysis import IDENTIFIABLE, Analysis
from collbench.analyze.pair_confirm import Outcome
from collbench.analyze.pair_effects import effect_of
from collbench.analyze.pair_fabric import SlowLeaf, SlowPath
from collbench.analyze.pair_screen import Screen
from collbench.analyze.pair_verdicts import FabricCode, FabricVerdict


def fabric_verdicts(found: Analysis) -> tuple[FabricVerdict, ...]:
    """Returns what is wrong between nodes, the gravest first; what was cleared is left out."""
    return (
        *found.broken.split,
        *_leaves(found),
        *_slow_paths(found),
        *_broken_paths(found),
        *_lossy_paths(found),
        *_two_below_bar(found),
    )


def _leaves(found: Analysis) -> Iterator[FabricVerdict]:
    for one, leaf in found.leaves:
        again = found.leaf_again(one, leaf)
        confirmed = found.leaf_confirmed(one, leaf)
        # Full rate for a pair by itself: uplinks are shared out, or flows collide; no fault.
        if not confirmed and again.outcome is Outcome.CLEARED:
            continue
        yield _leaf(found, one, leaf, confirmed)


def _leaf(found: Analysis, one: Screen, leaf: SlowLeaf, confirmed: bool) -> FabricVerdict:
    again = found.leaf_again(one, leaf)
    words = [f"{leaf.pairs} values across its uplinks, low in {leaf.rounds_low} of {leaf.rounds}"]
    words[0] += " rounds" if leaf.rounds else ""
    if len(leaf.leaves) == 2:
        words = [f"{leaf.pairs} values between both leaves; which of the two cannot be told"]
    if again.tries:
        words.append(f"a pair alone: low {again.low} of {again.tries} times")
    if again.outcome is Outcome.CLEARED:
        words.append("a pair alone gets its rate: fewer uplinks, or other traffic")
    return FabricVerdict(
        code=FabricCode.LEAF_UPLINK_SLOW,
        leaves=tuple(found.state.leaf_names[number] for number in leaf.leaves),
        rail=one.rail,
        measured=leaf.measured,
        expected=leaf.expected,
        effect=effect_of(np.array([leaf.deviation]), one.spread / math.sqrt(leaf.pairs)),
        pairs=leaf.pairs,
        confirmed=confirmed,
        evidence=tuple(words),
    )


def _slow_paths(found: Analysis) -> Iterator[FabricVerdict]:
    for one, path in found.paths:
        if found.state.size >= IDENTIFIABLE:
            outcome = found.path_again(one, path).outcome
            if outcome is not Outcome.CLEARED:
                yield _path(found, one, path, outcome is Outcome.CONFIRMED)


def _path(found: Analysis, one: Screen, path: SlowPath, confirmed: bool) -> FabricVerdict:
    again = found.path_again(one, path)
    rows = found.rerun_of(one).of_pair(path.a, path.b)
    again_relative = found.rerun_of(one).relative[rows] - path.level
    relative = np.concatenate([[path.deviation], again_relative])
    effect = effect_of(relative, one.spread)
    return FabricVerdict(
        code=FabricCode.SLOW_PATH,
        nodes=(min(path.a, path.b), max(path.a, path.b)),
        rail=one.rail,
        measured=path.value,
        expected=path.value / math.exp(path.deviation),
        effect=effect,
        pairs=relative.size,
        confirmed=confirmed,
        evidence=(
            "both nodes give full rate with others",
            f"run again alone: low {again.low} of {again.tries} times",
        ),
    )


def _broken_paths(found: Analysis) -> Iterator[FabricVerdict]:
    for a, b in found.broken.in_doubt:
        ends = found.broken.pairs[a, b]
        if found.settled_doubt(a) and found.settled_doubt(b):
            words = ", ".join(f"{status} {count} times" for status, count in ends.items())
            yield FabricVerdict(
                code=FabricCode.SLOW_PATH,
                nodes=(a, b),
                pairs=sum(ends.values()),
                confirmed=sum(ends.values()) >= 2,
                evidence=(words, "both nodes work with others"),
            )


def _lossy_paths(found: Analysis) -> Iterator[FabricVerdict]:
    """Yields pairs that lose, and did so again, while neither node does with others.

    One that was fine when it was run again had a busy host or a full queue.
    """
    seen = found.loss
    for a, b in found.lossy_pairs:
        mine = (np.minimum(seen.a, seen.b) == a) & (np.maximum(seen.a, seen.b) == b)
        again = mine & seen.again
        if again.any() and not seen.lossy[again].any():
            continue
        yield FabricVerdict(
            code=FabricCode.SLOW_PATH,
            nodes=(a, b),
            measured=float(np.median(seen.shares[mine])),
            expected=0.0,
            unit="of round trips above 100 ms",
            pairs=int(mine.sum()),
            confirmed=int(seen.lossy[mine].sum()) >= 2,
            evidence=("loses, while neither node does with others",),
        )


def _two_below_bar(found: Analysis) -> Iterator[FabricVerdict]:
    """Yields the one path of two nodes, where it is below a bar: which node, nobody can tell."""
    if found.state.size >= IDENTIFIABLE:
        return
    for one in found.screens:
        if one.bar is not None and one.below_bar.any():
            value = math.exp(float(np.median(one.logs)))
            bar = math.exp(one.bar)
            yield FabricVerdict(
                code=FabricCode.SLOW_PATH,
                nodes=(0, 1),
                rail=one.rail,
                measured=value,
                expected=bar,
                effect=effect_of(np.array([math.log(value / bar)]), one.spread),
                pairs=one.rows.size,
                confirmed=True,
                evidence=(f"{value:.4g} GB/s, below {bar:.4g}; which of the two cannot be told",),
            )
