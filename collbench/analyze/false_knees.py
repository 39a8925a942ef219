"""What looks like a knee and is none: each has a check and a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from scipy import stats

from collbench.analyze.collisions import UNEVEN_ROUNDS, Collisions
from collbench.analyze.knee_points import Latency
from collbench.analyze.scale_types import (
    PAIRED,
    RINGS,
    NodeOrder,
    Observation,
    ScalePattern,
)
from collbench.analyze.slow_nodes import SlowNode

_DIP = 0.10
_OWN_FALL = 0.10
_HOST_FALL = 0.05
_CHANCE = 0.01
_LATENCY = 0.05
_FEWEST_RATES = 4
_FEWEST_COUNTS = 3


class FalseKneeKind(StrEnum):
    """What else lowers rates as nodes are added."""

    COLLISIONS = "collisions"
    ALGORITHM = "algorithm"
    COLLECTIVE = "collective"
    LATENCY = "latency"
    NODE = "node"
    HOSTS = "hosts"
    THREE_NODES = "three_nodes"


@dataclass(frozen=True, kw_only=True, slots=True)
class FalseKnee:
    """One check and what it came to."""

    kind: FalseKneeKind
    found: bool | None
    """None: it could not be told."""
    text: str


def hosts(observations: Sequence[Observation], slow: frozenset[int] = frozenset()) -> FalseKnee:
    """Whether the control falls too: pairs inside leaves, the more of them at once the slower."""
    found = [
        (one.step.m, rate)
        for one in observations
        if one.usable and one.step.pattern is ScalePattern.INSIDE
        for rate in [_middle_rate(one, slow)]
        if rate is not None
    ]
    fall = _fall([m for m, _ in found], [rate for _, rate in found])
    if fall is None:
        text = "hosts: cannot tell, too few rounds of pairs inside leaves"
        return FalseKnee(kind=FalseKneeKind.HOSTS, found=None, text=text)
    most = max(m for m, _ in found)
    if fall >= _HOST_FALL:
        text = (
            f"hosts: pairs inside leaves, which use no uplink, fall by {fall:.0%} at {most} pairs"
            " at once: hosts, NICs or the leaf switches themselves"
        )
        return FalseKnee(kind=FalseKneeKind.HOSTS, found=True, text=text)
    text = f"no host limit: up to {most} pairs at once inside leaves keep their rate"
    return FalseKnee(kind=FalseKneeKind.HOSTS, found=False, text=text)


def _middle_rate(one: Observation, slow: frozenset[int]) -> float | None:
    if len(one.pair_rates_gb_per_s) != one.step.m:
        return None if slow & set(one.step.nodes) else one.rate_gb_per_s
    rates = [
        rate
        for pair, rate in zip(one.step.pairs, one.pair_rates_gb_per_s, strict=True)
        if not slow & set(pair)
    ]
    return float(np.median(rates)) if rates else None


def node(joiner: SlowNode | None, pairs: Sequence[SlowNode], growths: int) -> FalseKnee:
    """Whether a node makes the step, not n."""
    if pairs:
        named = ", ".join(
            f"{one.name} ({one.slower:.0%} slower, {one.values} partners{_alone(one)})"
            for one in pairs[:3]
        )
        more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
        text = f"slow whatever the partner: {named}{more}; left out of the fit"
        return FalseKnee(kind=FalseKneeKind.NODE, found=True, text=text)
    if joiner is not None:
        text = (
            f"a slow node: the step of {joiner.slower:.0%} comes with node {joiner.node} in"
            f" {growths} sequences of adding nodes, whatever n then is"
        )
        return FalseKnee(kind=FalseKneeKind.NODE, found=True, text=text)
    if growths < 2:
        text = "a slow joiner: cannot tell from rings, nodes were added in one sequence alone"
        return FalseKnee(kind=FalseKneeKind.NODE, found=None, text=text)
    text = f"no node's arrival explains a drop ({growths} sequences)"
    return FalseKnee(kind=FalseKneeKind.NODE, found=False, text=text)


def _alone(one: SlowNode) -> str:
    return "; alone in its leaf, so this may be the leaf's uplinks" if one.alone_in_leaf else ""


def collisions(found: Collisions | None) -> FalseKnee:
    """Whether pairs of one round differ as only collisions make them."""
    if found is None:
        text = "collisions: cannot tell, too few rounds of pairs across"
        return FalseKnee(kind=FalseKneeKind.COLLISIONS, found=None, text=text)
    spread = f"median {found.median:.0%}, worst {found.worst:.0%} of full rate"
    if not found.there:
        rounds = f"so no collisions ({found.rounds} rounds)"
        text = f"every pair drops alike, {rounds}"
        if found.uneven >= UNEVEN_ROUNDS:
            text = f"pairs take unlike shares of what the uplinks carry in all, {rounds}"
        return FalseKnee(kind=FalseKneeKind.COLLISIONS, found=False, text=text)
    if found.oversubscribed and found.ratio is not None:
        text = f"collisions: {spread}; uplinks are short beside them: {found.ratio.text}"
    else:
        text = f"no oversubscription; collisions: {spread}"
    return FalseKnee(kind=FalseKneeKind.COLLISIONS, found=True, text=text)


def algorithm(observations: Sequence[Observation]) -> FalseKnee:
    """Whether what ran changes with n; rates are compared within one algorithm in any case."""
    by_n: dict[int, Counter[str]] = {}
    for one in observations:
        if one.usable and one.algorithm is not None and one.step.pattern not in PAIRED:
            by_n.setdefault(one.step.n, Counter())[f"{one.step.pattern} {one.algorithm}"] += 1
    if not by_n:
        text = "the algorithm is not proved: a change with n would not be seen"
        return FalseKnee(kind=FalseKneeKind.ALGORITHM, found=None, text=text)
    names = {n: set(counter) for n, counter in sorted(by_n.items())}
    changes = [
        (a, b)
        for a, b in pairwise(names)
        if _collectives(names[a]) == _collectives(names[b]) and names[a] != names[b]
    ]
    if not changes:
        text = f"{_ran(set().union(*names.values()))} throughout"
        return FalseKnee(kind=FalseKneeKind.ALGORITHM, found=False, text=text)
    a, b = changes[0]
    text = (
        f"the algorithm changes from {a} to {b} nodes ({_ran(names[a] - names[b])} to"
        f" {_ran(names[b] - names[a])}): a step there is its own, each was fitted apart"
    )
    return FalseKnee(kind=FalseKneeKind.ALGORITHM, found=True, text=text)


def _collectives(names: set[str]) -> set[str]:
    return {name.split(" ", 1)[0] for name in names}


def _ran(names: set[str]) -> str:
    return ", ".join(sorted({name.split(" ", 1)[1] for name in names})) or "nothing"


def collective(unlimited: Sequence[Observation]) -> FalseKnee:
    """Whether a collective falls with n where no uplink limits it.

    Args:
        unlimited: rings in leaf order that no uplink limits.
    """
    falls = []
    for pattern in RINGS:
        alone = [
            one
            for one in unlimited
            if one.usable and one.step.pattern is pattern and one.step.n > 2
        ]
        fall = None
        if len({one.step.n for one in alone}) >= _FEWEST_COUNTS:
            fall = _fall([one.step.n for one in alone], [one.rate_gb_per_s or 0.0 for one in alone])
        if fall is not None:
            falls.append((pattern, fall))
    if not falls:
        text = "the collective's own factor: cannot tell, too few sizes of rings in leaf order"
        return FalseKnee(kind=FalseKneeKind.COLLECTIVE, found=None, text=text)
    own = [(pattern, fall) for pattern, fall in falls if fall >= _OWN_FALL]
    if own:
        named = ", ".join(f"{pattern} {fall:.0%}" for pattern, fall in own)
        text = f"the collective itself falls with n in leaf order too ({named}): not the uplinks"
        return FalseKnee(kind=FalseKneeKind.COLLECTIVE, found=True, text=text)
    named = ", ".join(pattern for pattern, _ in falls)
    text = f"in leaf order {named} keeps its rate, so n alone costs nothing"
    return FalseKnee(kind=FalseKneeKind.COLLECTIVE, found=False, text=text)


def _fall(counts: Sequence[int], rates: Sequence[float]) -> float | None:
    """Returns how much of the rate goes from the least to the most at once; 0 where by chance."""
    if len(set(counts)) < 2 or len(counts) < _FEWEST_RATES:
        return None
    logs = np.log(counts)
    line = stats.linregress(logs, np.log(rates))
    if line.slope >= 0 or line.pvalue > _CHANCE:
        return 0.0
    return -float(np.expm1(line.slope * (logs.max() - logs.min())))


def latency(found: Latency) -> FalseKnee:
    """Whether a part of the time does not grow with the size, and with n looks like a fall."""
    if not found.corrected:
        text = "latency: not taken out, one size was measured"
        return FalseKnee(kind=FalseKneeKind.LATENCY, found=None, text=text)
    at = f"{found.share:.1%} of the time at {found.share_at_n} nodes"
    text = f"latency is {at}; taken out" if found.share >= _LATENCY else f"latency is at most {at}"
    return FalseKnee(kind=FalseKneeKind.LATENCY, found=found.share >= _LATENCY, text=text)


def three_nodes(observations: Sequence[Observation]) -> FalseKnee:
    """Whether 3 nodes are slower than 2 and 4: a ring's layout, seen with NCCL, no capacity."""
    dips = []
    for pattern in RINGS:
        rates = {
            n: [
                one.rate_gb_per_s or 0.0
                for one in observations
                if one.usable
                and one.step.pattern is pattern
                and one.step.order is NodeOrder.CONTIGUOUS
                and one.step.n == n
            ]
            for n in (2, 3, 4)
        }
        if all(rates.values()):
            middle = {n: float(np.median(found)) for n, found in rates.items()}
            dips.append((pattern, 1 - middle[3] / min(middle[2], middle[4])))
    if not dips:
        text = "a dip at 3 nodes: cannot tell, rings of 2, 3 and 4 nodes in leaf order are needed"
        return FalseKnee(kind=FalseKneeKind.THREE_NODES, found=None, text=text)
    pattern, dip = max(dips, key=lambda item: item[1])
    if dip < _DIP:
        text = "no dip at 3 nodes"
        return FalseKnee(kind=FalseKneeKind.THREE_NODES, found=False, text=text)
    text = f"3 nodes are {dip:.0%} slower than 2 and 4 ({pattern}): a dip, no knee; left out"
    return FalseKnee(kind=FalseKneeKind.THREE_NODES, found=True, text=text)
