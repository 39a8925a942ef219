"""How many flows share an uplink: counted for the order at hand, nothing approximated.

A leaf's uplinks carry what leaves it and, the other way, what comes in; the two do not share. The
count is that of the most loaded leaf and direction, in flows of a node link's rate. Several leaves
need no form of their own: a leaf that is full adds no more, so the count, and with it the rate,
stays where it is (the floor).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from collbench.analyze.scale_types import PAIRED, ScalePattern, Step
from collbench.errors import UsageError

Leaves = Sequence[Sequence[int]]


def leaf_of_nodes(leaves: Leaves) -> dict[int, int]:
    """Returns each node's leaf.

    Raises:
        UsageError: a node in two leaves.
    """
    place: dict[int, int] = {}
    for leaf, nodes in enumerate(leaves):
        for node in nodes:
            if node in place:
                raise UsageError(
                    f"node {node} is in leaf {place[node]} and in leaf {leaf}; a node has one leaf;"
                    " correct the topology"
                )
            place[node] = leaf
    return place


def flows_per_uplink(step: Step, leaf_of: Mapping[int, int]) -> float:
    """Returns how many flows share the most loaded uplink one way; 0: none crosses.

    Rings: each node sends to the next. Half: to the one n/2 further on. all_to_all: to all others,
    to each an equal part of its rate, so n1 (n - n1) / (n - 1) leave a leaf with n1 of n nodes.

    Raises:
        UsageError: a node that is in no leaf.
    """
    places = _places(step, leaf_of)
    if step.pattern in PAIRED:
        return max(flows_of_pairs(step, leaf_of), default=0.0)
    if step.pattern is ScalePattern.ALL_TO_ALL:
        n = len(places)
        if n < 2:
            return 0.0
        return max(mine * (n - mine) / (n - 1) for mine in Counter(places).values())
    out: Counter[int] = Counter()
    back: Counter[int] = Counter()
    for source, target in _sends(step.pattern, places):
        if source != target:
            out[source] += 1
            back[target] += 1
    return float(max([*out.values(), *back.values()], default=0))


def flows_of_pairs(step: Step, leaf_of: Mapping[int, int]) -> tuple[float, ...]:
    """Returns for each pair how many flows share the uplink that limits it; 0: inside a leaf.

    Of halves as well: who exchanges loads an uplink once each way.

    Raises:
        UsageError: a node that is in no leaf.
    """
    _places(step, leaf_of)
    ends = [(leaf_of[a], leaf_of[b]) for a, b in step.pairs]
    load = Counter(leaf for a, b in ends if a != b for leaf in (a, b))
    return tuple(0.0 if a == b else float(max(load[a], load[b])) for a, b in ends)


def _places(step: Step, leaf_of: Mapping[int, int]) -> list[int]:
    missing = [node for node in step.nodes if node not in leaf_of]
    if missing:
        raise UsageError(
            f"node {missing[0]} of {step.pattern} is in no leaf; every node needs one;"
            " complete the topology, or leave leaves unknown"
        )
    return [leaf_of[node] for node in step.nodes]


def _sends(pattern: ScalePattern, places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields from which leaf to which each node sends; a lone node sends nothing."""
    n = len(places)
    away = n // 2 if pattern is ScalePattern.HALF else 1
    if n > 1:
        yield from ((places[i], places[(i + away) % n]) for i in range(n))
