"""Made states of pairs without noise, and what a report knows beside them: figures are exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from stored_runs import stored_run

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_suspects import control_pairs, next_suspects
from collbench.analyze.pair_types import PairKind, PairValue, pair_table
from collbench.model import Node, Status, Topology
from collbench.plan.pairwise import confirmation_rounds, pair_rounds
from collbench.report.pairwise_about import PairwiseAbout


class Pairs:
    """A cluster whose pairs are as fast as the slower node, rail by rail."""

    def __init__(
        self,
        nodes: int = 8,
        *,
        leaf: int | None = None,
        line: float = 48.0,
        slow: dict[int, float] | None = None,
        rails: int = 1,
        slow_rails: dict[tuple[int, int], float] | None = None,
        paths: dict[tuple[int, int], float] | None = None,
        hung: tuple[tuple[int, int], ...] = (),
        lossy: tuple[int, ...] = (),
        round_trips: int = 0,
        retransmits: int | None = None,
        names: tuple[str, ...] | None = None,
    ) -> None:
        self.nodes, self.line, self.rails = nodes, line, rails
        self.slow, self.slow_rails = slow or {}, slow_rails or {}
        self.paths, self.hung, self.lossy = paths or {}, hung, lossy
        self.round_trips, self.retransmits = round_trips, retransmits
        self.names = names or tuple(f"node{n}" for n in range(nodes))
        self.leaves = None if leaf is None else tuple(f"leaf{n // leaf}" for n in range(nodes))

    def rate(self, node: int, rail: int) -> float:
        return self.line * self.slow.get(node, 1.0) * self.slow_rails.get((node, rail), 1.0)

    def values(self, a: int, b: int, number: int, alone: bool) -> list[PairValue]:
        ends = min(a, b), max(a, b)
        common: dict[str, Any] = {"a": a, "b": b, "round": number, "alone": alone}
        if ends in self.hung:
            return [PairValue(**common, kind=PairKind.SEND_RECV, status=Status.HUNG)]
        found = [
            PairValue(
                **common,
                kind=PairKind.SEND_RECV,
                rail=rail if self.rails > 1 else None,
                value=min(self.rate(a, rail), self.rate(b, rail)) * self.paths.get(ends, 1.0),
            )
            for rail in range(self.rails)
        ]
        if self.round_trips:
            slow = self.round_trips // 50 if {a, b} & set(self.lossy) else 0
            found.append(
                PairValue(
                    **common,
                    kind=PairKind.LATENCY,
                    round_trips=self.round_trips,
                    slow_round_trips=slow,
                    retransmits=self.retransmits,
                )
            )
        return found

    def state(self, *, confirm: bool = True, **changes: Any) -> PairwiseState:
        rounds = pair_rounds(self.nodes, self.leaves, seed=1).rounds
        state = PairwiseState(
            names=self.names, leaves=self.leaves, values=self._table(rounds, 0), **changes
        )
        done = len(rounds)
        while confirm and (wanted := next_suspects(state)):
            together = [(one.suspect, one.partner) for one in wanted if not one.alone]
            together += control_pairs(state, wanted)
            alone = [(one.suspect, one.partner) for one in wanted if one.alone]
            again = confirmation_rounds(together, alone, serial=False)
            state = replace(
                state,
                values=np.concatenate([state.values, self._table(again, done)]),
                confirming=state.confirming | set(range(done, done + len(again))),
            )
            done += len(again)
        return state

    def _table(self, rounds, first: int):
        return pair_table(
            value
            for number, one in enumerate(rounds, start=first)
            for a, b in one.tuples()
            for value in self.values(a, b, number, one.alone)
        )


def with_values(state: PairwiseState, *values: PairValue) -> PairwiseState:
    """Returns a state with more values."""
    return replace(state, values=np.concatenate([state.values, pair_table(values)]))


def slow_uplinks(nodes: int, leaf: int, number: int, factor: float) -> dict[tuple[int, int], float]:
    """Returns the paths over one leaf's uplinks, ``factor`` as fast as others."""
    return {
        (a, b): factor
        for a in range(nodes)
        for b in range(a + 1, nodes)
        if a // leaf != b // leaf and number in (a // leaf, b // leaf)
    }


def made_node(name: str, **changes: Any) -> Node:
    """Returns a node's record with nothing in it."""
    return Node(name=name, cpu_model="Xeon", cpus=8, numa_nodes=1, memory_bytes=1, **changes)


def about_of(state: PairwiseState, topology: Topology | None = None, **changes: Any):
    """Returns what a report knows of a run; ``changes`` are its fields, or those of ``Run``."""
    run = stored_run([], "20261130-0412-7f3a").run
    of_run = {name: changes.pop(name) for name in [*changes] if hasattr(run, name)}
    run = msgspec.structs.replace(run, **({"command": "pairwise", "exit_code": None} | of_run))
    fields: dict[str, Any] = {
        "run": run,
        "topology": topology or Topology(nodes=[]),
        "asked": state.names,
        "answered": state.names,
        "leaves_source": None if state.leaves is None else "--topology leaves.txt",
        "ran": "send_recv + all_reduce 64 MiB, 1,000 x 8 B",
        "rounds": "7 rounds of 4 pairs + 2 to confirm",
        "duration_s": 58.0,
    }
    return PairwiseAbout(**(fields | changes))
