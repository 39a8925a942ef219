"""What pairs are held against besides each other: bars, a baseline run, the NICs' rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collbench.analyze.baseline import Baseline, HardwareClass
from collbench.analyze.pair_levels import pair_class_differences
from collbench.analyze.pair_state import Reference
from collbench.analyze.pair_types import PairKind
from collbench.errors import UsageError
from collbench.model import Nic, Topology

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


def bar_of_baseline(
    asked: Sequence[Question],
    made: Baseline,
    name: str,
    tolerance: float,
    hardware: HardwareClass,
    *,
    simulated: bool,
    inside: bool,
) -> Reference:
    """Returns what good pairs of the same hardware reached as a reference.

    Args:
        asked: by kind and rail.
        made: the baseline.
        name: what the user calls it; records say the ids of its runs.
        tolerance: so much less is still enough, as a share.
        hardware: of the run to come.
        simulated: whether that is a model's.
        inside: whether GPUs of a node are paired.

    Raises:
        UsageError: it holds no pairs, a model's beside real ones, those of other hardware, or
            nothing that is asked.
    """
    if not made.pairs:
        raise UsageError(
            f"--baseline {name} holds cases of a sweep; pairs are held against a run of 'pairwise',"
            " or what 'collbench baseline' writes of one"
        )
    if made.simulated != simulated:
        kinds = ("measured", "simulated")
        raise UsageError(
            f"--baseline {name} is {kinds[made.simulated]} and this run is"
            f" {kinds[simulated]}: a model says nothing of hardware"
        )
    apart = pair_class_differences(made.hardware, hardware)
    if apart:
        found = ", ".join(f"{what} {was} there and {is_now} here" for what, was, is_now in apart)
        raise UsageError(f"--baseline {name} is for other hardware: {found}")
    levels = {
        (level.collective, level.rail): level.busbw_gb_per_s
        for level in made.pairs
        if level.inside == inside
    }
    at_least = {
        (kind, rail): levels[kind, rail] * (1 - tolerance)
        for kind, rail in asked
        if (kind, rail) in levels
    }
    if not at_least:
        raise UsageError(f"--baseline {name} has no good pair of what is asked; take another run")
    return Reference(source=f"baseline {', '.join(made.run_ids)}", at_least=at_least)
