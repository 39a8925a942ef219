"""Over which links flows go: NICs, uplinks, NVLink, and paths that are slow by themselves.

A hop between nodes is a flow on each rail it uses. Between leaves a flow takes one uplink of its
leaf and the spine's link to the other leaf: by the number of the node it goes to (static), by a
hash of its ends and of the connection (hashed), or all of them evenly (adaptive).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collbench.engine.fabric_calls import Hops
from collbench.engine.fabric_layout import FloatArray, IntArray, Layout

_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The constants of splitmix64."""
_DENSE = 2**22
"""Calls x links up to which every pair has its own counter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossings:
    """Which call loads which link; a pair stands once."""

    call: IntArray
    link: IntArray
    weight: FloatArray
    """GB/s of the link for 1 GB/s of the call's thinnest flow between nodes."""
    unit_bytes: FloatArray
    """[call] bytes of that flow; 0 where a call sends nothing."""


class Paths:
    """The links of a fabric by number, and the way of every flow.

    Args:
        layout: of the fabric.
        node_of: [rank]
        gpu_of: [rank] within its node.
    """

    def __init__(self, layout: Layout, node_of: IntArray, gpu_of: IntArray) -> None:
        self._layout, self._node_of, self._gpu_of = layout, node_of, gpu_of
        nodes, rails = layout.send.shape
        nvlinks = np.full(nodes * layout.table.gpus_per_node, layout.table.nvlink_gb_per_s)
        paths = np.array(sorted(layout.slow_paths), dtype=np.int64).reshape(-1, 2)
        self._slow_keys = paths[:, 0] * nodes + paths[:, 1]
        factors = np.array([layout.slow_paths[a, b] for a, b in paths.tolist()])
        slow = np.repeat(factors * layout.table.rail_gb_per_s, rails)
        parts = (layout.send, layout.receive, layout.up, layout.down, nvlinks, nvlinks, slow)
        self._starts = np.cumsum([0, *(part.size for part in parts)])
        self._capacity = np.concatenate([part.reshape(-1) for part in parts])

    def capacity(self, round_number: int) -> FloatArray:
        """Returns the rate of every link in a round, GB/s; foreign traffic taken off."""
        found = self._capacity.copy()
        for traffic in self._layout.file.foreign:
            last = round_number if traffic.last_round is None else traffic.last_round
            if traffic.first_round <= round_number <= last:
                size = self._layout.up[0].size
                for start in self._starts[2:4]:
                    first = start + traffic.leaf * size
                    found[first : first + size] *= 1 - traffic.share
        return found

    def crossings(self, hops: Hops, groups: int, connection: int) -> Crossings:
        """Returns the links that the calls of some groups load.

        Args:
            hops: of the calls.
            groups: how many calls there are.
            connection: number of the connections; another one is hashed anew.
        """
        source, target = self._node_of[hops.source], self._node_of[hops.target]
        inside = source == target
        mask = self._rails(hops, source, target) & ~inside[:, None]
        hop, rail = np.nonzero(mask)
        flow_bytes = (hops.hop_bytes / mask.sum(axis=1).clip(1))[hop]
        lane = self._lanes(hops.source[hop], hops.target[hop], rail, connection)
        local = np.flatnonzero(inside)
        local_bytes = np.full(local.size, hops.hop_bytes)
        loads = [
            (hops.group[hop[flow]], link, flow_bytes[flow])
            for flow, link in self._between(source[hop], target[hop], rail, lane)
        ]
        for kind, ranks in ((4, hops.source[local]), (5, hops.target[local])):
            gpus = self._node_of[ranks] * self._layout.table.gpus_per_node + self._gpu_of[ranks]
            loads.append((hops.group[local], self._starts[kind] + gpus, local_bytes))
        unit = _thinnest(hops.group[hop], flow_bytes, groups)
        unit = np.where(unit > 0, unit, _thinnest(hops.group[local], local_bytes, groups))
        return self._summed(loads, unit)

    def _between(
        self, source: IntArray, target: IntArray, rail: IntArray, lane: IntArray
    ) -> list[tuple[IntArray, IntArray]]:
        """Returns flows with a link that they cross, as often as they cross one."""
        layout, starts = self._layout, self._starts
        nodes, rails = layout.send.shape
        every = np.arange(source.size)
        found = [
            (every, starts[0] + source * rails + rail),
            (every, starts[1] + target * rails + rail),
        ]
        leaf, other = layout.leaf_of[source], layout.leaf_of[target]
        if layout.table.routing != "none":
            most = layout.up.shape[2]
            far = np.flatnonzero(leaf != other)
            for kind, end in ((2, leaf[far]), (3, other[far])):
                at = lane[far] % layout.lanes[end]
                found.append((far, starts[kind] + (end * rails + rail[far]) * most + at))
        if self._slow_keys.size:
            key = source * nodes + target
            place = np.searchsorted(self._slow_keys, key).clip(max=self._slow_keys.size - 1)
            slow = np.flatnonzero(self._slow_keys[place] == key)
            found.append((slow, starts[6] + place[slow] * rails + rail[slow]))
        return found

    def _lanes(
        self, source: IntArray, target: IntArray, rail: IntArray, connection: int
    ) -> IntArray:
        """Returns a number for each flow that says which uplink it takes, by its remainder."""
        table = self._layout.table
        if table.routing != "hashed":
            return self._node_of[target]
        with np.errstate(over="ignore"):
            mixed = np.full(source.size, table.seed, dtype=np.uint64)
            for part in (np.full_like(source, connection), source, target, rail):
                mixed = _mix(mixed ^ part.astype(np.uint64))
        return (mixed >> np.uint64(33)).astype(np.int64)

    def _summed(
        self, loads: list[tuple[IntArray, IntArray, FloatArray]], unit: FloatArray
    ) -> Crossings:
        """Adds up what each call puts on each link."""
        call, link, sent = (np.concatenate(part) for part in zip(*loads, strict=True))
        links = int(self._starts[-1])
        keys = call * links + link
        if unit.size * links <= _DENSE:
            # A few calls with a great many hops each: counting is quicker than sorting.
            total = np.bincount(keys, sent, minlength=unit.size * links)
            keys = np.flatnonzero(total)
            total = total[keys]
        else:
            keys, place = np.unique(keys, return_inverse=True)
            total = np.bincount(place, sent, minlength=keys.size)
        call = keys // links
        return Crossings(call=call, link=keys % links, weight=total / unit[call], unit_bytes=unit)

    def _rails(self, hops: Hops, source: IntArray, target: IntArray) -> NDArray[np.bool_]:
        """Returns [hop, rail]: over which rails a hop goes, if it leaves its node."""
        own = self._layout.rails_of_gpu[self._gpu_of[hops.source]]
        theirs = self._layout.rails_of_gpu[self._gpu_of[hops.target]]
        if not hops.whole_nodes:
            return theirs
        nodes, rails = self._layout.send.shape
        there, slot = np.unique(
            np.concatenate([hops.group * nodes + source, hops.group * nodes + target]),
            return_inverse=True,
        )
        count = hops.group.size
        has = np.zeros((there.size, rails), dtype=bool)
        np.logical_or.at(has, slot[:count], own)
        np.logical_or.at(has, slot[count:], theirs)
        both = np.asarray(has[slot[:count]] & has[slot[count:]])
        return np.where(both.any(axis=1, keepdims=True), both, own)


def _thinnest(call: IntArray, flow_bytes: FloatArray, calls: int) -> FloatArray:
    """Returns the bytes of each call's thinnest flow; 0 where it has none."""
    found = np.full(calls, np.inf)
    np.minimum.at(found, call, flow_bytes)
    return np.where(np.isfinite(found), found, 0.0)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns a hash of each value: splitmix64 (Steele, Lea & Flood 2014)."""
    mixed = value + np.uint64(_MIX[0])
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX[1])
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX[2])
    return mixed ^ (mixed >> np.uint64(31))
