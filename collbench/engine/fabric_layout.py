"""From the file's words to arrays: nodes, leaves, the rate of every link, and where faults are.

Nodes, leaves, rails and GPUs are numbers from 0 here. A node's NIC on rail r is joined to its
leaf's switch of that rail; leaves are joined by spines, rail by rail, so that a flow stays on the
rail it was sent on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.engine.fabric_file import Direction, FabricFile, FabricTable, NodeRef
from collbench.errors import UsageError, nearest

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_MOST_NODES = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One node, or the path between two (``b`` is not None)."""

    a: int
    b: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A fabric as arrays; rates in GB/s, of one direction."""

    file: FabricFile
    names: tuple[str, ...]
    leaf_of: IntArray
    """[node]"""
    leaves: int
    rails_of_gpu: NDArray[np.bool_]
    """[gpu, rail]: over which NICs of its node a GPU sends."""
    send: FloatArray
    """[node, rail]"""
    receive: FloatArray
    lanes: IntArray
    """[leaf]: uplinks that a flow is sent over one of; 1 where all share every flow."""
    up: FloatArray
    """[leaf, rail, lane], from the leaf."""
    down: FloatArray
    slow_paths: dict[tuple[int, int], float]
    """Both ways, as a share of a rail's rate."""
    losses: tuple[tuple[Place, float], ...]
    hangs: tuple[Place, ...]
    parts: tuple[IntArray, ...]
    """[node] each: which part of a split it is in; -1 in none."""
    differs: dict[int, str]

    @property
    def table(self) -> FabricTable:
        """The file's ``[fabric]``."""
        return self.file.fabric

    def leaf_name(self, node: int) -> str:
        """Returns what the leaf of a node is called."""
        return f"leaf{self.leaf_of[node]}"


def lay_out(file: FabricFile) -> Layout:
    """Returns a fabric as arrays.

    Raises:
        UsageError: counts that do not fit, or a node, rail or leaf that is not there.
    """
    table = file.fabric
    names = _names(table)
    nodes, rails = len(names), table.rails
    leaf_of = _leaf_of(table, nodes)
    finder = _Finder(names)
    send = np.full((nodes, rails), table.rail_gb_per_s)
    receive = send.copy()
    for node_fault in file.slow_node:
        _slow(send, receive, finder.node(node_fault.node), node_fault.factor, node_fault.direction)
    for rail_fault in file.slow_rail:
        place = (finder.node(rail_fault.node), _checked(rail_fault.rail, rails, "rail"))
        _slow(send, receive, place, rail_fault.factor, rail_fault.direction)
    slow_paths = {}
    for path in file.slow_path:
        ends = finder.pair(path.a, path.b)
        slow_paths[ends] = slow_paths[ends[::-1]] = path.factor
    losses = []
    for loss in file.loss:
        place_of = finder.place(loss.node, loss.a, loss.b)
        losses.append((place_of, loss.share))
        kept = 1 - loss.share  # what is lost is sent again
        if place_of.b is None:
            _slow(send, receive, place_of.a, kept, "both")
        else:
            ends = (place_of.a, place_of.b)
            slow_paths[ends] = slow_paths[ends[::-1]] = kept * slow_paths.get(ends, 1.0)
    lanes, up, down = _uplinks(file, np.bincount(leaf_of))
    differs = {finder.node(row.node): row.what for row in file.differs}
    if len(differs) == nodes:
        raise UsageError("every node differs; leave one out of the tables of differs")
    return Layout(
        file=file,
        names=names,
        leaf_of=leaf_of,
        leaves=lanes.size,
        rails_of_gpu=_rails_of_gpu(table.gpus_per_node, rails),
        send=send,
        receive=receive,
        lanes=lanes,
        up=up,
        down=down,
        slow_paths=slow_paths,
        losses=tuple(losses),
        hangs=tuple(finder.place(row.node, row.a, row.b) for row in file.hang),
        parts=tuple(finder.parts(row.groups) for row in file.split),
        differs=differs,
    )


class _Finder:
    """Finds nodes by number or name."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._numbers = {name: number for number, name in enumerate(names)}

    def node(self, ref: NodeRef) -> int:
        if isinstance(ref, int):
            return _checked(ref, len(self._names), "node")
        if ref not in self._numbers:
            hint = nearest(ref, self._names) or ";"
            raise UsageError(
                f"no node '{ref}'{hint} there are {self._names[0]} to {self._names[-1]}"
            )
        return self._numbers[ref]

    def pair(self, a: NodeRef, b: NodeRef) -> tuple[int, int]:
        ends = (self.node(a), self.node(b))
        if ends[0] == ends[1]:
            raise UsageError(f"a and b are both {self._names[ends[0]]}; a path has two ends")
        return ends

    def place(self, node: NodeRef | None, a: NodeRef | None, b: NodeRef | None) -> Place:
        if node is not None:
            return Place(a=self.node(node))
        assert a is not None
        assert b is not None
        ends = self.pair(a, b)
        return Place(a=ends[0], b=ends[1])

    def parts(self, groups: Sequence[Sequence[NodeRef]]) -> IntArray:
        found = np.full(len(self._names), -1)
        for number, group in enumerate(groups):
            for ref in group:
                node = self.node(ref)
                if found[node] not in (-1, number):
                    raise UsageError(f"{self._names[node]} is in two groups of one split")
                found[node] = number
        return found


def _checked(number: int, count: int, what: str) -> int:
    if not 0 <= number < count:
        raise UsageError(f"no {what} {number}; allowed: 0 to {count - 1}")
    return number


def _names(table: FabricTable) -> tuple[str, ...]:
    if (table.nodes is None) == (table.names is None):
        raise UsageError("fabric needs nodes = COUNT, or names = [...]: one of the two")
    if table.names is not None:
        names = tuple(table.names)
        if len(set(names)) < len(names) or not all(names):
            raise UsageError("fabric.names has a name twice, or an empty one")
    else:
        assert table.nodes is not None
        digits = len(str(table.nodes - 1))
        shown = range(min(table.nodes, _MOST_NODES + 1))
        names = tuple(f"node{number:0{digits}d}" for number in shown)
    if not 1 <= len(names) <= _MOST_NODES:
        count = table.nodes if table.nodes is not None else len(names)
        raise UsageError(f"fabric has {count} nodes; allowed: 1 to {_MOST_NODES}")
    return names


def _leaf_of(table: FabricTable, nodes: int) -> IntArray:
    if table.leaves is not None and table.nodes_a_leaf is not None:
        raise UsageError("fabric.leaves and fabric.nodes_a_leaf both say it; leave one out")
    if table.nodes_a_leaf is not None:
        return np.arange(nodes) // table.nodes_a_leaf
    if isinstance(table.leaves, list):
        sizes = table.leaves
        if sum(sizes) != nodes or min(sizes, default=0) < 1:
            raise UsageError(f"fabric.leaves {sizes} must be sizes above 0 that sum to {nodes}")
        return np.repeat(np.arange(len(sizes)), sizes)
    leaves = 1 if table.leaves is None else table.leaves
    if not 1 <= leaves <= nodes:
        raise UsageError(f"fabric.leaves is {leaves}; allowed: 1 to {nodes}, the nodes")
    return np.arange(nodes) * leaves // nodes


def _rails_of_gpu(gpus: int, rails: int) -> NDArray[np.bool_]:
    """Returns [gpu, rail]: neighbours share a NIC where NICs are few, else a GPU has several."""
    found = np.zeros((gpus, rails), dtype=bool)
    if gpus >= rails:
        found[np.arange(gpus), np.arange(gpus) * rails // gpus] = True
    else:
        found[np.arange(rails) * gpus // rails, np.arange(rails)] = True
    return found


def _slow(
    send: FloatArray,
    receive: FloatArray,
    place: int | tuple[int, int],
    factor: float,
    direction: Direction,
) -> None:
    if direction != "receive":
        send[place] *= factor
    if direction != "send":
        receive[place] *= factor


def _uplinks(file: FabricFile, sizes: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Returns lanes [leaf] and the rates up and down [leaf, rail, lane]."""
    table = file.fabric
    if table.uplink_gb_per_s is not None:
        if table.uplinks is None or table.oversubscription is not None:
            raise UsageError(
                "fabric.uplink_gb_per_s goes with uplinks = COUNT and without oversubscription"
            )
        counts = np.full(sizes.size, table.uplinks)
        rates = np.full(sizes.size, table.uplink_gb_per_s)
    else:
        carried = sizes / (table.oversubscription or 1.0)
        fitting = np.maximum(1, np.rint(carried).astype(np.int64))
        counts = fitting if table.uplinks is None else np.full(sizes.size, table.uplinks)
        rates = carried * table.rail_gb_per_s / counts
    if table.routing == "adaptive":
        counts, rates = np.ones_like(counts), counts * rates
    up = np.repeat(rates[:, None, None], table.rails, axis=1)
    up = np.repeat(up, int(counts.max()), axis=2)
    down = up.copy()
    for fault in file.slow_uplink:
        leaf = _checked(fault.leaf, sizes.size, "leaf")
        _slow(up, down, leaf, fault.factor, fault.direction)
    for traffic in file.foreign:
        _checked(traffic.leaf, sizes.size, "leaf")
    return counts, up, down
