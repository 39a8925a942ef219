"""Which leaf each node is in: from a file, from the nodes' own variables, or from Slurm's scontrol.

Node 0 sees its own variables alone, so that each node puts its leaf into its own record. What is
known of some nodes only is not used: a node without a leaf would be judged by the wrong class.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import UsageError, nearest
from collbench.launch.topology_files import is_switch_line, parse_topology, read_topology_file

SLURM_ADDRESS = "Slurm (SLURM_TOPOLOGY_ADDR)"
SLURM_SCONTROL = "Slurm (scontrol show topology)"
SIMULATED = "the simulated fabric"
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaves:
    """Which leaf each node of a run is in, and who says so."""

    source: str
    """In words, for headings."""
    leaf_of: Mapping[str, str]
    """The leaf's name, by node: of every node, or of none where it is not known."""
    problems: tuple[str, ...] = ()
    """Lines to be said: why it is not known though something was there to read."""


def own_leaf(environ: Mapping[str, str]) -> str | None:
    """Returns the leaf of this node as Slurm names it; None where it says none.

    Where a node has a leaf switch on each rail, Slurm writes all of them as one name:
    ``leaf[0-7]``, which nodes of the same switches share.

    Args:
        environ: this process's variables. SLURM_TOPOLOGY_ADDR is ``spine.leaf0.node0`` and its
            pattern ``switch.switch.node`` where Slurm's plug-in topology/tree is in use.
    """
    *kinds, last = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    if last != "node" or set(kinds) != {"switch"}:
        return None
    *switches, node = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".", len(kinds))
    # A dot in a switch's name shifts the rest, and a launcher may pass on another node's address.
    if len(switches) != len(kinds) or node != environ.get("SLURMD_NODENAME", node):
        return None
    return switches[-1] or None


def leaves_from_file(path: Path, nodes: Sequence[str]) -> Leaves:
    """Returns what ``--topology FILE`` says; the file may describe more nodes.

    Args:
        path: Slurm's topology.conf, what ``scontrol show topology`` prints, or lines ``NODE LEAF``
            or ``LEAF: NODE NODE[1-3]``.
        nodes: names of the nodes that are asked for.

    Raises:
        UsageError: it cannot be read, has a line that cannot be, or lacks a node.
    """
    found = read_topology_file(path)
    missing = [node for node in nodes if node not in found]
    if missing:
        raise UsageError(
            f"--topology {path} says no leaf of {_listed(missing)}; add a line for each node that"
            f" takes part, by the name it has here{nearest(missing[0], found)}"
        )
    return Leaves(source=f"--topology {path}", leaf_of={node: found[node] for node in nodes})


def leaves_of_records(
    nodes: Sequence[str], records: Mapping[str, str | None], source: str = SLURM_ADDRESS
) -> Leaves | None:
    """Returns what the nodes say of themselves; None where none of them says anything.

    Args:
        nodes: names of the nodes that are asked for.
        records: the leaf in each node's record.
        source: who told the nodes.
    """
    found = {node: leaf for node in nodes if (leaf := records.get(node))}
    return _all_or_none(nodes, found, source) if found else None


def leaves_from_scontrol(text: str, nodes: Sequence[str]) -> Leaves | None:
    """Returns what ``scontrol show topology`` printed; None where it describes no switch.

    Args:
        text: of lines such as ``SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=node[0-3]``.
        nodes: names of the nodes that are asked for.
    """
    lines = [line for line in text.splitlines() if is_switch_line(line)]
    if not lines:
        return None
    try:
        found = parse_topology("\n".join(lines))
    except UsageError as problem:
        return _unknown(SLURM_SCONTROL, str(problem))
    return _all_or_none(nodes, found, SLURM_SCONTROL)


def ask_scontrol(timeout_s: float = 10.0) -> str | None:
    """Returns what ``scontrol show topology`` prints; None where it is not there or fails."""
    program = shutil.which("scontrol")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "show", "topology"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def find_leaves(
    nodes: Sequence[str],
    records: Mapping[str, str | None],
    *,
    file: Path | None,
    environ: Mapping[str, str],
    ask: Callable[[], str | None] = ask_scontrol,
    simulated: bool = False,
) -> Leaves | None:
    """Returns the leaves from the first that knows them: the file, the nodes, scontrol.

    Args:
        nodes: names of the nodes that take part.
        records: the leaf in each node's record.
        file: ``--topology``; where it is given, nothing else is looked at.
        environ: node 0's variables: scontrol is asked in a job of Slurm's alone.
        ask: calls scontrol.
        simulated: the records are a model's, which knows all of them.

    Returns:
        None where nobody says anything; without a leaf, but with problems, where what is said
        cannot be used.

    Raises:
        UsageError: the file cannot be read, has a line that cannot be, or lacks a node.
    """
    if file is not None:
        return leaves_from_file(file, nodes)
    if simulated:
        return leaves_of_records(nodes, records, SIMULATED)
    unusable = []
    for leaves in _said_by_slurm(nodes, records, environ, ask):
        if leaves.leaf_of:
            return leaves
        unusable.append(leaves)
    if not unusable:
        return None
    return Leaves(
        source=" and ".join(leaves.source for leaves in unusable),
        leaf_of={},
        problems=tuple(problem for leaves in unusable for problem in leaves.problems),
    )


def by_leaf(nodes: Sequence[str], leaf_of: Mapping[str, str]) -> list[list[int]]:
    """Returns places in ``nodes``, leaf by leaf, in the order of each leaf's first node."""
    places: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        places.setdefault(leaf_of[node], []).append(place)
    return list(places.values())


def _said_by_slurm(
    nodes: Sequence[str],
    records: Mapping[str, str | None],
    environ: Mapping[str, str],
    ask: Callable[[], str | None],
) -> Iterator[Leaves]:
    """Yields what there is, one after the other, so that scontrol is called only if need be."""
    if leaves := leaves_of_records(nodes, records):
        yield leaves
    text = ask() if environ.get("SLURM_JOB_ID") else None
    if text is not None and (leaves := leaves_from_scontrol(text, nodes)):
        yield leaves


def _all_or_none(nodes: Sequence[str], found: Mapping[str, str], source: str) -> Leaves:
    missing = [node for node in nodes if node not in found]
    if missing:
        return _unknown(source, f"no leaf of {_listed(missing)}")
    return Leaves(source=source, leaf_of={node: found[node] for node in nodes})


def _unknown(source: str, why: str) -> Leaves:
    line = f"leaves are not known from {source}: {why}; --topology FILE names them"
    return Leaves(source=source, leaf_of={}, problems=(line,))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
