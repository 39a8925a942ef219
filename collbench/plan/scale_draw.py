"""Which nodes take part in a step of `scale`, and in which order: drawn from seeds alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

Leaves = Sequence[Sequence[int]]

EVERY_UP_TO = 16
_GROWTH = 1.25


def ladder(first: int, last: int, step: int | None = None) -> tuple[int, ...]:
    """Returns the numbers to try: every one to 16, then each 1.25 times the one before.

    Args:
        first: the smallest.
        last: the largest, always among them.
        step: a fixed distance instead.
    """
    if last < first:
        return ()
    found = [first]
    while found[-1] < last:
        here = found[-1]
        if step is not None:
            ahead = here + step
        elif here < EVERY_UP_TO:
            ahead = here + 1
        else:
            ahead = max(here + 1, int(here * _GROWTH))
        found.append(min(ahead, last))
    return tuple(found)


def generator(*words: object) -> random.Random:
    """Returns a generator whose values depend on the words alone."""
    # Not cryptography: a recorded seed must give the same draw again.
    return random.Random("/".join(map(str, words)))  # noqa: S311


def grown(leaves: Leaves, growth: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Returns the leaves in the sequence in which their nodes are added; growth 0: as given."""
    if growth == 0:
        return tuple(tuple(leaf) for leaf in leaves)
    draw = generator(seed, "growth", growth)
    drawn = [draw.sample(list(leaf), len(leaf)) for leaf in leaves]
    draw.shuffle(drawn)
    return tuple(tuple(leaf) for leaf in drawn)


def first_nodes(leaves: Leaves, n: int) -> tuple[tuple[int, ...], ...]:
    """Returns the first n nodes leaf by leaf, as leaves; those that are empty are left out."""
    found: list[tuple[int, ...]] = []
    left = n
    for leaf in leaves:
        found.append(tuple(leaf[:left]))
        left -= len(found[-1])
    return tuple(leaf for leaf in found if leaf)


def contiguous(leaves: Leaves) -> tuple[int, ...]:
    """Returns the nodes leaf by leaf."""
    return tuple(chain.from_iterable(leaves))


def round_robin(leaves: Leaves) -> tuple[int, ...]:
    """Returns one node of each leaf in turn."""
    turns = zip_longest(*leaves)
    return tuple(node for turn in turns for node in turn if node is not None)


def pairs_across(leaves: Leaves, a_leaf: int, draw: random.Random) -> tuple[int, ...]:
    """Returns disjoint pairs across leaves, as many as asked from each leaf that has them.

    Leaves are matched by chance, each with one other, so that all uplinks carry the same; leaves
    with fewer nodes among themselves; of an odd number of leaves one rests.
    """
    ranked = [(-min(len(leaf), a_leaf), draw.random(), leaf) for leaf in leaves if leaf]
    ranked.sort(key=lambda item: item[:2])
    nodes: list[int] = []
    for (_, _, one), (_, _, other) in zip(ranked[::2], ranked[1::2], strict=False):
        count = min(len(one), len(other), a_leaf)
        drawn = zip(draw.sample(list(one), count), draw.sample(list(other), count), strict=True)
        nodes += chain.from_iterable(drawn)
    return tuple(nodes)


def pairs_inside(leaves: Leaves, pairs: int, draw: random.Random) -> tuple[int, ...]:
    """Returns at most so many disjoint pairs inside leaves, spread evenly over them."""
    drawn = [draw.sample(list(leaf), len(leaf)) for leaf in leaves]
    draw.shuffle(drawn)
    by_leaf = [list(zip(leaf[::2], leaf[1::2], strict=False)) for leaf in drawn]
    turns = (pair for turn in zip_longest(*by_leaf) for pair in turn if pair is not None)
    return tuple(chain.from_iterable(pair for pair, _ in zip(turns, range(pairs), strict=False)))


def shuffled(nodes: Sequence[int], draw: random.Random) -> tuple[int, ...]:
    """Returns the nodes in a drawn order."""
    return tuple(draw.sample(list(nodes), len(nodes)))


def most_pairs_a_leaf(leaves: Leaves) -> int:
    """Returns how many pairs across a leaf can have: the size of the second largest leaf."""
    sizes = sorted((len(leaf) for leaf in leaves), reverse=True)
    return sizes[1] if len(sizes) > 1 else 0


def without(leaves: Leaves, lost: frozenset[int]) -> Iterator[tuple[int, ...]]:
    """Yields the leaves without lost nodes; those that are empty then are left out."""
    for leaf in leaves:
        left = tuple(node for node in leaf if node not in lost)
        if left:
            yield left
