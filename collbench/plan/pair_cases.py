"""What a pair of nodes runs: the cases, and the engine's rounds that they make.

A schedule's round of pairs becomes a few rounds of the engine, one for each question, so that all
pairs ask the same at the same time: on all rails at once a send to the other node's GPU of the
same place and one from it; an all_reduce over all GPUs of both nodes; a thousand small exchanges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from collbench.analyze.pair_rows import CONFIRMS, PROBES, THROTTLED
from collbench.collectives import COLLECTIVES
from collbench.engine.protocol import Group, Round
from collbench.model import Case, Mode, Pattern, Policy
from collbench.plan.message_size import window

ROUND_TRIPS = 1000
"""Of a latency pass."""
LATENCY_ASKED_BYTES = 8

MESSAGES = 15
"""Of a bandwidth pass, the same for all pairs: so they overlap from the first to the last."""

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class PairPlace:
    """Where pairs run and how."""

    names: Sequence[str]
    """The nodes', by number."""
    ranks: Mapping[int, Sequence[int]]
    """Each node's ranks by local rank; nodes without are not to be paired."""
    backend: str
    via: str
    policy: Policy
    setting: Mapping[str, str]
    """Of the collectives: a forced algorithm, so that it cannot change between pairs."""
    emulated: bool = False
    nodes: int = 2
    """That the ranks of a pair are on; 1 inside a node."""
    latency: bool = True
    """False where ranks share a GPU: then a small exchange waits for the others' turn."""

    def trials_a_pair(self, nodes: Iterable[int]) -> int:
        """Returns how many trials a pair of these nodes has, where they have as many ranks."""
        return min(len(self.ranks[node]) for node in nodes) + 1 + self.latency


class PairRounds:
    """Makes the engine's rounds; numbers them through the run.

    Args:
        place: where.
        size_bytes: of the bandwidth passes.
        first_number: of the first round.
    """

    def __init__(self, place: PairPlace, size_bytes: int, first_number: int = 0) -> None:
        self._place, self.size_bytes = place, size_bytes
        self._numbers = count(first_number)
        # Proving takes each process and communicator twice: the first pairs stand for all.
        self._proved = msgspec.structs.replace(place.policy, window=window(place.backend, MESSAGES))
        self._bandwidth = msgspec.structs.replace(self._proved, proof=False)
        self._latency = msgspec.structs.replace(
            place.policy, samples=ROUND_TRIPS, warmup=10, check=False, proof=False
        )

    def of(self, pairs: Sequence[Pair], *, confirm: bool = False) -> Iterator[Round]:
        """Returns the rounds of pairs that run at the same time.

        Args:
            pairs: node numbers; no node is in two of them.
            confirm: they run again what looked bad, and controls.
        """
        named = CONFIRMS if confirm else ""
        yield from self._bandwidths(pairs, named)
        if self._place.latency:
            small = self._groups(pairs, "send_recv", named, latency=True)
            yield self._round(small, self._latency)

    def throttled(self, pairs: Sequence[Pair]) -> Iterator[Round]:
        """Returns the rounds of pairs that ran beside too many others; loss was looked for then."""
        yield from self._bandwidths(pairs, THROTTLED)

    def _bandwidths(self, pairs: Sequence[Pair], named: str) -> Iterator[Round]:
        several = any(len(self._place.ranks[node]) > 1 for pair in pairs for node in pair)
        exchange = self._groups(pairs, "send_recv", named, by_rail=True)
        whole = self._groups(pairs, "all_reduce", named)
        policy, self._proved = self._proved, self._bandwidth
        yield self._round(exchange if several else whole, policy)
        yield self._round(whole if several else exchange, policy)

    def one_way(self, pairs: Sequence[Pair]) -> Iterator[Round]:
        """Returns the rounds that send from the first to the second node, then back."""
        for root in (0, 1):
            groups = self._groups(pairs, "broadcast", CONFIRMS, by_rail=True, root=root)
            yield self._round(groups, self._bandwidth)

    def probe(self, pairs: Sequence[Pair], size_bytes: int) -> Round:
        """Returns a short round that tells how large a message should be."""
        policy = msgspec.structs.replace(self._place.policy, samples=3, warmup=1, proof=False)
        groups = self._groups(pairs, "send_recv", PROBES, size_bytes=size_bytes)
        return self._round(groups, policy)

    def _round(self, groups: tuple[Group, ...], policy: Policy) -> Round:
        return Round(repeat=0, groups=groups, number=next(self._numbers), policy=policy)

    def _groups(
        self,
        pairs: Iterable[Pair],
        collective: str,
        named: str,
        *,
        by_rail: bool = False,
        latency: bool = False,
        root: int | None = None,
        size_bytes: int | None = None,
    ) -> tuple[Group, ...]:
        found = []
        for a, b in pairs:
            name = f"{named}{self._place.names[a]}-{self._place.names[b]}"
            mine, others = self._place.ranks[a], self._place.ranks[b]
            members: list[tuple[str, tuple[int, ...]]] = [(name, (mine[0], others[0]))]
            if collective == "all_reduce":
                members = [(name, (*mine, *others))]
            elif by_rail and (rails := min(len(mine), len(others))) > 1:
                members = [(f"{name}/rail{r}", (mine[r], others[r])) for r in range(rails)]
            size = LATENCY_ASKED_BYTES if latency else size_bytes or self.size_bytes
            for label, ranks in members:
                case = case_between(
                    self._place, collective, len(ranks), size, latency=latency, root=root
                )
                found.append(Group(ranks=ranks, cases=(case,), name=label))
        return tuple(found)


def case_between(
    place: PairPlace,
    name: str,
    world_size: int,
    size_bytes: int,
    *,
    nodes: int | None = None,
    latency: bool = False,
    root: int | None = None,
) -> Case:
    """Returns a collective between nodes as it is run there.

    Args:
        place: where and how.
        name: of the collective.
        world_size: ranks of the group.
        size_bytes: asked for.
        nodes: that the ranks are on; None: as pairs are.
        latency: one call at a time, each after a barrier.
        root: of the collectives that have one.
    """
    collective = COLLECTIVES[name]
    elements = collective.count(size_bytes, "float32", world_size)
    return Case(
        collective=name,
        backend=place.backend,
        dtype="float32",
        redop="sum" if collective.has_redop else None,
        root=root,
        size_bytes=collective.size_bytes(elements, "float32", world_size),
        requested_bytes=size_bytes,
        count=elements,
        world_size=world_size,
        nodes=place.nodes if nodes is None else nodes,
        in_place=collective.natural_in_place,
        mode=Mode.EAGER,
        pattern=Pattern.ISOLATED if latency else Pattern.BACK_TO_BACK,
        # One for all of a pair: another would take another communicator.
        setting=dict(place.setting),
        via=place.via,
        emulated=place.emulated,
    )
