"""The nodes of a run by number, with their leaves and ranks: for commands that set nodes apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from collbench.cli.ground import Ground
from collbench.engine.protocol import Executor
from collbench.errors import UsageError
from collbench.launch.leaves import Leaves, find_leaves
from collbench.model import NodeState, Topology


def with_leaves(ground: Ground, topology_file: str | None) -> tuple[Ground, Leaves | None]:
    """Returns what there is, every node with its leaf, and who said so.

    Args:
        ground: the nodes have met.
        topology_file: of ``--topology``.

    Raises:
        UsageError: the file does not have all nodes, or cannot be.
    """
    topology = ground.topology
    leaves = find_leaves(
        [node.name for node in topology.nodes if node.state is NodeState.PRESENT],
        topology.leaf_of,
        file=None if topology_file is None else Path(topology_file),
        environ=os.environ,
        simulated=ground.simulation is not None,
    )
    leaf_of = leaves.leaf_of if leaves is not None else {}
    return ground.with_topology(topology.with_leaves(leaf_of)), leaves


def as_it_is_now(executor: Executor, before: Topology) -> Callable[[], Topology]:
    """Returns what says who is still there; an engine does not know the leaves."""
    return lambda: executor.facts().topology.with_leaves(before.leaf_of)


def ranks_by_node(topology: Topology) -> dict[int, list[int]]:
    """Returns each node's ranks by its number; nodes that do not take part have none."""
    number_of = {node.name: number for number, node in enumerate(topology.nodes)}
    ranks: dict[int, list[int]] = {number: [] for number in number_of.values()}
    for place in topology.ranks:
        ranks[number_of[place.node]].append(place.rank)
    return ranks


def left_out(ground: Ground) -> dict[str, str]:
    """Returns why nodes do not take part, by name, where a remark says it."""
    found = {}
    for node in ground.topology.nodes:
        if node.state is not NodeState.PRESENT:
            said = [text for text in ground.remarks if text.startswith(f"{node.name} ")]
            found[node.name] = said[0].partition(": ")[2] if said else ""
    return found


def shares_gpus(ground: Ground) -> bool:
    """Whether several ranks have one GPU: then they take turns."""
    gpus = ground.slots.gpus
    return len({gpu.uuid for gpu in gpus}) < len(gpus)


def refuse_too_few(members: Sequence[int], *, alone: bool, dry_run: bool, command: str) -> None:
    """Makes sure that there are two nodes at least.

    Args:
        members: numbers of the nodes that take part.
        alone: no other process was started.
        dry_run: the others are not waited for.
        command: what is asked of them.

    Raises:
        UsageError: there are fewer.
    """
    if len(members) >= 2:
        return
    if dry_run and not alone:
        raise UsageError(
            "--dry-run does not wait for the other nodes, and of one alone there is no plan;"
            " take it with --simulate and a fabric of as many nodes"
        )
    how = (
        f"start it on several: srun -N8 --ntasks-per-node=1 collbench {command}"
        if alone
        else "the others are absent or left out"
    )
    what = "paired" if command == "pairwise" else "scaled: it takes two and more"
    raise UsageError(f"{len(members)} node cannot be {what}; {how}")
