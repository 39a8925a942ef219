"""Matchings: everybody with everybody by the circle method, and between leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PairArray = NDArray[np.int32]
"""int32[pair, 2]: each node in one pair at most."""

Members = NDArray[np.int32]


def circle_length(count: int) -> int:
    """Returns in how many rounds so many members all meet."""
    return 0 if count < 2 else count + count % 2 - 1


def circle(members: Members, turns: NDArray[np.intp]) -> list[PairArray]:
    """Returns some of the rounds in which each two members meet once (circle method).

    There are n - 1 rounds for an even number; n for an odd one, in each of which another one rests.

    Args:
        members: two or more.
        turns: which rounds, from 0 to ``circle_length`` - 1, in this order.
    """
    count = len(members)
    even = count + count % 2
    steps = turns.astype(np.int32)[:, None]
    offsets = np.arange(1, even // 2, dtype=np.int32)
    left = (steps + offsets) % (even - 1)
    right = (steps - offsets) % (even - 1)
    if count == even:
        left = np.concatenate([np.full_like(steps, even - 1), left], axis=1)
        right = np.concatenate([steps, right], axis=1)
    return list(np.stack([members[left], members[right]], axis=-1))


def some_of(members: Members, turns: NDArray[np.intp], count: int) -> list[PairArray]:
    """Returns the first rounds, and of the next ones what nodes lack that had a rest in these."""
    chosen = circle(members, turns[:count])
    met = {int(node): 0 for node in members}
    for one in chosen:
        for node in one.ravel().tolist():
            met[node] += 1
    wanted = min(count, len(members) - 1)
    for turn in turns[count:]:
        if min(met.values(), default=0) >= wanted:
            break
        (one,) = circle(members, np.array([turn]))
        lacking = [pair for pair in one.tolist() if met[pair[0]] < wanted or met[pair[1]] < wanted]
        for node in (node for pair in lacking for node in pair):
            met[node] += 1
        if lacking:
            chosen.append(np.array(lacking, np.int32))
    return chosen


def all_across(
    groups: list[Members], most: int | None, random: np.random.Generator
) -> list[PairArray]:
    """Returns rounds in which all members of different groups meet once.

    A tournament between groups; in each of its rounds every group that plays carries as many
    pairs as the others: as many as the smallest has members, or ``most`` where that is less. Only
    when a small pair of groups is through do the others go on without it.
    """
    found: list[PairArray] = []
    for meeting in _tournament(len(groups), random):
        playing = [_by_size(groups[a], groups[b]) for a, b in meeting]
        load = min(len(small) for small, _ in playing)
        load = load if most is None else min(load, most)
        series = [_everybody(small, large) for small, large in playing]
        longest = max(-(-len(one) // load) for one in series)
        rounds = [
            np.concatenate([one[k * load : (k + 1) * load] for one in series])
            for k in range(longest)
        ]
        random.shuffle(rounds)
        found += rounds
    return found


def _tournament(groups: int, random: np.random.Generator) -> list[list[tuple[int, int]]]:
    order = random.permutation(groups).astype(np.int32)
    meetings = circle(order, random.permutation(circle_length(groups)))
    return [[(int(a), int(b)) for a, b in meeting] for meeting in meetings]


def _by_size(one: Members, other: Members) -> tuple[Members, Members]:
    return (one, other) if len(one) <= len(other) else (other, one)


def _everybody(small: Members, large: Members) -> PairArray:
    """Returns all pairs in an order of which any fewer than ``small`` in a row share no node."""
    shift = np.arange(len(large))[:, None]
    place = np.arange(len(small))
    right = large[(place + shift) % len(large)]
    left = np.broadcast_to(small, right.shape)
    return np.stack([left.ravel(), right.ravel()], axis=-1)


def across_matching(groups: list[Members], random: np.random.Generator) -> PairArray:
    """Returns one matching in which partners are of different groups.

    The members of a group meet those of as many other groups as can be, so that one slow uplink
    is not taken for another. Who is left over, where groups differ in size or one is larger than
    all others together, is paired as far as it goes.
    """
    meetings = _tournament(len(groups), random)
    shuffled = [random.permutation(members) for members in groups]
    pairs: list[tuple[int, int]] = []
    left = {int(node) for members in groups for node in members}
    for turn, meeting in enumerate(meetings):
        for a, b in meeting:
            for mine, theirs in zip(
                shuffled[a][turn :: len(meetings)], shuffled[b][turn :: len(meetings)], strict=False
            ):
                pairs.append((int(mine), int(theirs)))
                left -= {int(mine), int(theirs)}
    rest = [[int(node) for node in members if int(node) in left] for members in shuffled]
    return np.array([*pairs, *_leftover(rest)], np.int32).reshape(-1, 2)


def _leftover(groups: list[list[int]]) -> list[tuple[int, int]]:
    """Returns pairs of the two groups that have most left, as long as there are two."""
    pairs: list[tuple[int, int]] = []
    while True:
        groups = sorted((one for one in groups if one), key=len)
        if len(groups) < 2:
            return pairs
        pairs.append((groups[-1].pop(), groups[-2].pop()))


def throttled(pairs: PairArray, group: NDArray[np.int32], most: int | None) -> list[PairArray]:
    """Returns the pairs in rounds with at most ``most`` of a group in each; the first fits."""
    if most is None or not len(pairs):
        return [pairs]
    loads: list[dict[int, int]] = []
    rounds: list[list[list[int]]] = []
    for pair in pairs.tolist():
        ends = [int(group[node]) for node in pair]
        fits = (k for k, load in enumerate(loads) if all(load.get(end, 0) < most for end in ends))
        place = next(fits, len(rounds))
        if place == len(rounds):
            loads.append({})
            rounds.append([])
        rounds[place].append(pair)
        for end in ends:
            loads[place][end] = loads[place].get(end, 0) + 1
    return [np.array(one, np.int32) for one in rounds]


def in_parts(pairs: PairArray, most: int | None) -> list[PairArray]:
    """Returns the pairs in parts of at most so many."""
    if most is None:
        return [pairs]
    return [pairs[start : start + most] for start in range(0, len(pairs), most)]
