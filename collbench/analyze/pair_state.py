"""What a verdict on pairs is made from: nodes, leaves, values, and what is known from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collbench.analyze.pair_groups import IntArray, distinct
from collbench.analyze.pair_types import KINDS, NO_RAIL, STATUSES, PairKind, PairTable
from collbench.errors import UsageError
from collbench.model import Status

AT_SCALE = 64
"""Up to so many nodes all pairs are tried, and leaves need not be known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """An absolute bar."""

    source: str
    """Where it is from: ``--min-busbw``, a baseline's name."""
    at_least: Mapping[tuple[PairKind, int | None], float]
    """By kind and rail, in GB/s: below it is too slow, however many are."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PairwiseState:
    """All that is known so far; nodes are numbered as in ``names``."""

    names: tuple[str, ...]
    values: PairTable
    leaves: tuple[str, ...] | None = None
    """Each node's leaf; None: unknown."""
    confirming: frozenset[int] = frozenset()
    """Rounds that ran suspects and controls again; all others are the first look."""
    throttled: frozenset[int] = frozenset()
    """Rounds of the first look that ran pairs across leaves once more, no more at once than the
    uplinks carry at full rate."""
    config_differs: Mapping[int, str] = field(default_factory=dict)
    """Nodes that are set up unlike the others: in which way."""
    not_tested: Mapping[int, str] = field(default_factory=dict)
    """Nodes that could not be tested: why."""
    reference: Reference | None = None

    def __post_init__(self) -> None:
        if self.leaves is not None and len(self.leaves) != len(self.names):
            raise UsageError(
                f"leaves of {len(self.leaves)} nodes for {len(self.names)}; give one a node"
            )
        if self.values.size:
            ends = np.stack([self.values["a"], self.values["b"]])
            if ends.min() < 0 or ends.max() >= len(self.names):
                raise UsageError(f"a value of a node that is not among {len(self.names)}")
            if np.any(ends[0] == ends[1]):
                raise UsageError("a value of a node with itself; pairs have two nodes")

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.names)

    @property
    def shares_unknown(self) -> bool:
        """Whether pairs may share links of which nothing is known: many nodes, leaves unknown."""
        return self.leaves is None and self.size > AT_SCALE

    @cached_property
    def leaf_numbers(self) -> IntArray:
        """Each node's leaf as a number, in the order of ``leaf_names``; all 0 where unknown."""
        if self.leaves is None:
            return np.zeros(self.size, np.intp)
        place = {name: number for number, name in enumerate(self.leaf_names)}
        return np.array([place[name] for name in self.leaves], np.intp)

    @cached_property
    def leaf_names(self) -> tuple[str, ...]:
        """The leaves, each once, in the order in which nodes have them."""
        return tuple(dict.fromkeys(self.leaves or ()))

    @cached_property
    def ends(self) -> tuple[IntArray, IntArray]:
        """Both nodes of each value."""
        return self.values["a"].astype(np.intp), self.values["b"].astype(np.intp)

    @cached_property
    def across(self) -> NDArray[np.bool_]:
        """Whether a value's nodes are in different leaves."""
        a, b = self.ends
        return np.asarray(self.leaf_numbers[a] != self.leaf_numbers[b])

    @cached_property
    def again(self) -> NDArray[np.bool_]:
        """Whether a value is of a confirming round."""
        return np.isin(self.values["round"], list(self.confirming))

    @cached_property
    def crowded(self) -> NDArray[np.bool_]:
        """Whether a value is of pairs across leaves, all at once, which ran throttled as well.

        It tells what the uplinks carry, and nothing of a path.
        """
        if not self.throttled:
            return np.zeros(self.values.size, bool)
        return np.asarray(self.across & ~self.again & ~self.calm)

    @cached_property
    def calm(self) -> NDArray[np.bool_]:
        """Whether a value is of a throttled round."""
        return np.isin(self.values["round"], list(self.throttled))

    @cached_property
    def measured(self) -> NDArray[np.bool_]:
        """Whether a row holds a rate that can be used."""
        ok = self.values["status"] == STATUSES.index(Status.OK)
        with np.errstate(invalid="ignore"):
            return np.asarray(ok & (self.values["value"] > 0))

    def rows_of(self, kind: PairKind, rail: int | None) -> NDArray[np.bool_]:
        """Returns which rows are of a kind and a rail and hold a rate."""
        number = NO_RAIL if rail is None else rail
        mine = (self.values["kind"] == KINDS.index(kind)) & (self.values["rail"] == number)
        return np.asarray(mine & self.measured)

    @cached_property
    def judged(self) -> tuple[tuple[PairKind, int | None], ...]:
        """The (kind, rail) whose rates judge nodes, those of both directions at once."""
        found: list[tuple[PairKind, int | None]] = []
        first = self.measured & ~self.again
        for kind in (PairKind.SEND_RECV, PairKind.ALL_REDUCE):
            mine = first & (self.values["kind"] == KINDS.index(kind))
            rails = distinct(self.values["rail"][mine])
            found += [(kind, None if rail == NO_RAIL else int(rail)) for rail in rails]
        return tuple(found)
