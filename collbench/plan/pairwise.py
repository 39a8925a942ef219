"""The schedule of pairs: rounds of disjoint pairs, inside leaves first, then between leaves.

Rounds are alike in what they load: inside a leaf nothing shared is used, so all leaves run at
once; between leaves every leaf carries as many pairs as the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_state import AT_SCALE
from collbench.errors import UsageError
from collbench.plan.pair_matchings import (
    PairArray,
    across_matching,
    all_across,
    circle,
    circle_length,
    in_parts,
    some_of,
    throttled,
)

INSIDE_AT_SCALE = 2
ACROSS_AT_SCALE = 1
UNKNOWN_AT_SCALE = 3
"""Matchings where leaves are unknown."""


class RoundKind(StrEnum):
    """What the pairs of a round have in common."""

    INSIDE = "inside"
    ACROSS = "across"
    ANY = "any"
    """Leaves are unknown."""
    CONFIRM = "confirm"


@dataclass(frozen=True, eq=False, slots=True)
class PairRound:
    """Pairs that run at the same time; no node is in two of them."""

    kind: RoundKind
    pairs: PairArray
    """int32[pair, 2]."""

    @property
    def alone(self) -> bool:
        """Whether one pair runs by itself."""
        return len(self.pairs) == 1

    def tuples(self) -> tuple[tuple[int, int], ...]:
        """Returns the pairs as plain numbers."""
        return tuple((int(a), int(b)) for a, b in self.pairs)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Schedule:
    """Rounds in the order in which they run."""

    rounds: tuple[PairRound, ...]
    seed: int
    paths: int
    """Pairs that there are."""
    paths_across: int
    """Of these across leaves; 0 where leaves are unknown."""

    def tried(self, kind: RoundKind | None = None) -> int:
        """Returns how many pairs the rounds hold, of one kind or in all."""
        return sum(len(one.pairs) for one in self.rounds if kind in (None, one.kind))

    @property
    def share_tried(self) -> float:
        """Share of all pairs that is tried."""
        return self.tried() / self.paths

    @property
    def share_across_tried(self) -> float:
        """Share of the pairs across leaves that is tried; 1 where there are none."""
        return self.tried(RoundKind.ACROSS) / self.paths_across if self.paths_across else 1.0


def pair_rounds(
    nodes: int,
    leaves: Sequence[Hashable] | None = None,
    *,
    rounds: str | int = "auto",
    across_at_once: int | None = None,
    at_once: int | None = None,
    serial: bool = False,
    seed: int = 0,
) -> Schedule:
    """Returns the rounds in which nodes 0 to ``nodes`` - 1 meet.

    ``auto`` is all pairs up to 64 nodes; above, two matchings inside leaves and one across, or
    three where leaves are unknown. With an odd number one node has a rest in each matching; inside
    leaves the nodes that had one meet again, so that each has two partners where its leaf has.

    Args:
        nodes: how many.
        leaves: each node's leaf; None: unknown.
        rounds: ``auto``, ``all``, or K matchings inside leaves and half as many across.
        across_at_once: pairs across the uplink of a leaf at a time; None: as many as there are.
        at_once: pairs at a time in the whole fabric; None: as many as there are.
        serial: one pair at a time.
        seed: of the order of nodes and rounds.

    Raises:
        UsageError: fewer than 2 nodes, or a number that is not above 0.
    """
    _check(nodes, leaves, rounds, across_at_once, at_once)
    random = np.random.default_rng(seed)
    everything = rounds == "all" or (rounds == "auto" and nodes <= AT_SCALE)
    groups = _groups(nodes, leaves, random)
    if len(groups) == 1:
        kind = RoundKind.ANY if leaves is None else RoundKind.INSIDE
        at_scale = UNKNOWN_AT_SCALE if leaves is None else INSIDE_AT_SCALE
        count = None if everything else rounds if isinstance(rounds, int) else at_scale
        parts = [(kind, one) for one in _together(groups, count, random)]
    else:
        inside = None if everything else rounds if isinstance(rounds, int) else INSIDE_AT_SCALE
        parts = [(RoundKind.INSIDE, one) for one in _together(groups, inside, random)]
        number = np.empty(nodes, np.int32)
        for place, members in enumerate(groups):
            number[members] = place
        if everything:
            between = all_across(groups, across_at_once, random)
        else:
            count = max(1, rounds // 2) if isinstance(rounds, int) else ACROSS_AT_SCALE
            matchings = [across_matching(groups, random) for _ in range(count)]
            between = [one for each in matchings for one in throttled(each, number, across_at_once)]
        parts += [(RoundKind.ACROSS, one) for one in between]
    most = 1 if serial else at_once
    made = [PairRound(kind, part) for kind, one in parts for part in in_parts(one, most)]
    sizes = np.array([len(members) for members in groups])
    paths = nodes * (nodes - 1) // 2
    return Schedule(
        rounds=tuple(one for one in made if len(one.pairs)),
        seed=seed,
        paths=paths,
        paths_across=paths - int((sizes * (sizes - 1) // 2).sum()),
    )


def inside_rounds(leaves: Sequence[Hashable], *, serial: bool = False, seed: int = 0) -> Schedule:
    """Returns the rounds in which everybody meets all of its own leaf, all leaves at once.

    Args:
        leaves: each member's.
        serial: one pair at a time.
        seed: of the order.

    Raises:
        UsageError: no leaf has two members.
    """
    random = np.random.default_rng(seed)
    groups = [group for group in _groups(len(leaves), leaves, random) if len(group) > 1]
    if not groups:
        raise UsageError("no node has two ranks to pair; --inside needs two GPUs a node or more")
    parts = _together(groups, None, random)
    most = 1 if serial else None
    made = [PairRound(RoundKind.INSIDE, part) for one in parts for part in in_parts(one, most)]
    return Schedule(
        rounds=tuple(one for one in made if len(one.pairs)),
        seed=seed,
        paths=sum(len(group) * (len(group) - 1) // 2 for group in groups),
        paths_across=0,
    )


def confirmation_rounds(
    together: Iterable[tuple[int, int]], alone: Iterable[tuple[int, int]] = (), *, serial: bool
) -> tuple[PairRound, ...]:
    """Returns the rounds that run suspects and controls again.

    Args:
        together: pairs that may run at once; those that share no node do, in their order.
        alone: pairs that must run by themselves.
        serial: all of them one by one.
    """
    packed: list[list[tuple[int, int]]] = []
    busy: list[set[int]] = []
    single = [*together, *alone] if serial else list(alone)
    for pair in () if serial else together:
        place = next((k for k, nodes in enumerate(busy) if not nodes & set(pair)), len(packed))
        if place == len(packed):
            packed.append([])
            busy.append(set())
        packed[place].append(pair)
        busy[place] |= set(pair)
    pairs = [*packed, *([pair] for pair in single)]
    return tuple(PairRound(RoundKind.CONFIRM, np.array(one, np.int32)) for one in pairs)


def _together(
    groups: list[NDArray[np.int32]], count: int | None, random: np.random.Generator
) -> list[PairArray]:
    """Returns rounds in which all groups meet in themselves at once; None: everybody everybody."""
    rounds = []
    for members in groups:
        if len(members) < 2:
            continue
        turns = random.permutation(circle_length(len(members)))
        if count is None:
            rounds.append(circle(members, turns))
        else:
            rounds.append(some_of(members, turns, count))
    longest = max(map(len, rounds), default=0)
    return [np.concatenate([mine[k] for mine in rounds if k < len(mine)]) for k in range(longest)]


def _groups(
    nodes: int, leaves: Sequence[Hashable] | None, random: np.random.Generator
) -> list[NDArray[np.int32]]:
    names = [None] * nodes if leaves is None else list(leaves)
    members: dict[Hashable, list[int]] = {}
    for node, name in enumerate(names):
        members.setdefault(name, []).append(node)
    return [random.permutation(np.array(one, np.int32)) for one in members.values()]


def _check(
    nodes: int,
    leaves: Sequence[Hashable] | None,
    rounds: str | int,
    across_at_once: int | None,
    at_once: int | None,
) -> None:
    if nodes < 2:
        raise UsageError(f"{nodes} node cannot pair; give 2 or more")
    if leaves is not None and len(leaves) != nodes:
        raise UsageError(f"leaves of {len(leaves)} nodes for {nodes}; give one a node")
    if rounds not in ("auto", "all") and (not isinstance(rounds, int) or rounds < 1):
        raise UsageError(f"--rounds {rounds}: allowed: auto, all, or a number above 0")
    for what, value in (("across_at_once", across_at_once), ("at_once", at_once)):
        if value is not None and value < 1:
            raise UsageError(f"{what} {value}: allowed: 1 and more")
