"""What pairs are held against besides each other: bars, a baseline run, the NICs' rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collbench.analyze.pair_rows import state_of_run
from collbench.analyze.pair_state import PairwiseState, Reference
from collbench.analyze.pair_types import KINDS, NO_RAIL, PairKind
from collbench.analyze.pair_verdicts import NodeState
from collbench.analyze.pairwise import judge
from collbench.errors import UsageError
from collbench.model import Nic, Topology
from collbench.store import StoredRun

_BARRED = (PairKind.SEND_RECV, PairKind.ALL_REDUCE)
Question = tuple[PairKind, int | None]


def questions_of(ranks_a_node: int) -> list[Question]:
    """Returns what pairs are asked, by kind and rail."""
    if ranks_a_node == 1:
        return [(PairKind.SEND_RECV, None), (PairKind.ALL_REDUCE, None)]
    rails: list[Question] = [(PairKind.SEND_RECV, rail) for rail in range(ranks_a_node)]
    return [*rails, (PairKind.ALL_REDUCE, None)]


def bar_of_rates(
    asked: Sequence[Question], everything: float | None, by_collective: Mapping[str, float]
) -> Reference:
    """Returns ``--min-busbw`` as a reference.

    Raises:
        UsageError: a bar of a collective that pairs do not run.
    """
    for name in by_collective:
        if name not in _BARRED:
            raise UsageError(
                f"--min-busbw {name}: pairs do not run it; allowed: {', '.join(_BARRED)}"
            )
    rates = {kind: by_collective.get(kind, everything) for kind in _BARRED}
    found = {one: rate for one in asked if (rate := rates[one[0]]) is not None}
    return Reference(source="--min-busbw", at_least=found)


def bar_of_limit(asked: Sequence[Question], topology: Topology, share: float) -> Reference:
    """Returns ``--min-of-limit`` as a reference: a share of the slowest node's NICs.

    Raises:
        UsageError: a rate is not known.
    """
    holders = {place.node for place in topology.ranks}
    slowest = [_rates(node.nics) for node in topology.nodes if node.name in holders]
    if not slowest or not all(slowest):
        raise UsageError(
            "--min-of-limit: the rates of the NICs are not known on all nodes; say the bar in GB/s"
            " with --min-busbw"
        )
    rails = min(map(len, slowest))
    of_rail = [min(rates[rail] for rates in slowest) for rail in range(rails)]
    found: dict[Question, float] = {}
    for kind, rail in asked:
        if kind is PairKind.ALL_REDUCE:
            found[kind, rail] = share * sum(of_rail)
        elif rail is None or rail < rails:
            found[kind, rail] = share * of_rail[rail or 0]
    return Reference(source=f"--min-of-limit {share:.0%}", at_least=found)


def _rates(nics: Sequence[Nic]) -> list[float]:
    """Returns the rates of the RDMA devices in GB/s, of physical Ethernet where there are none."""
    kinds = [[nic for nic in nics if (nic.kind == "ethernet") is plain] for plain in (False, True)]
    chosen = kinds[0] or kinds[1]
    rates = [nic.rate_gbit_per_s for nic in chosen]
    return [rate / 8 for rate in rates if rate] if all(rates) else []


def bar_of_run(
    asked: Sequence[Question], stored: StoredRun, name: str, tolerance: float, *, simulated: bool
) -> Reference:
    """Returns an earlier ``pairwise`` run as a reference: what its good nodes reached.

    Args:
        asked: by kind and rail.
        stored: the run.
        name: what the user calls it; records say its id.
        tolerance: so much less is still enough, as a share.
        simulated: whether the run to come is a model's.

    Raises:
        UsageError: it is no such run, a model's beside real ones, or has nothing that is asked.
    """
    if stored.run.command != "pairwise":
        raise UsageError(
            f"--baseline {name} is a run of '{stored.run.command}'; pairs are held against a run of"
            " 'pairwise'"
        )
    if stored.run.simulated != simulated:
        kinds = ("measured", "simulated")
        raise UsageError(
            f"--baseline {name} is {kinds[stored.run.simulated]} and this run is"
            f" {kinds[simulated]}: a model says nothing of hardware"
        )
    state = state_of_run(stored)
    good = {one.node for one in judge(state).of(NodeState.PASS)}
    found = {one: rate for one in asked if (rate := _median(state, one, good)) is not None}
    if not found:
        raise UsageError(f"--baseline {name} has no good pair of what is asked; take another run")
    at_least = {one: rate * (1 - tolerance) for one, rate in found.items()}
    return Reference(source=f"baseline {stored.run.run_id}", at_least=at_least)


def _median(state: PairwiseState, asked: Question, good: set[int]) -> float | None:
    kind, rail = asked
    table = state.values
    mine = state.measured & (table["kind"] == KINDS.index(kind))
    mine &= table["rail"] == (NO_RAIL if rail is None else rail)
    numbers = sorted(good)
    mine &= np.isin(table["a"], numbers) & np.isin(table["b"], numbers)
    return float(np.median(table["value"][mine])) if mine.any() else None
