"""GPUs of a node two by two: each stands as a node, and its node as a leaf.

So the verdict on nodes serves for GPUs: a slow one, a slow link between two, one that hangs.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from collbench.model import Node, RankPlace, Topology
from collbench.store import StoredRun


def as_paired(stored: StoredRun) -> StoredRun:
    """Returns a run with what was paired as its nodes: GPUs where that was asked (``--inside``)."""
    if not stored.run.suite.get("inside"):
        return stored
    return replace(stored, topology=per_rank(stored.topology))


def per_rank(topology: Topology) -> Topology:
    """Returns a topology in which every rank is a node of its own, in the leaf of its node.

    Ranks keep their numbers. Nodes without ranks stay as they are.
    """
    holders = {node.name: node for node in topology.nodes}
    names = [_name(place) for place in topology.ranks]
    nodes = [
        _part(holders[place.node], place, name)
        for place, name in zip(topology.ranks, names, strict=True)
    ]
    with_ranks = {place.node for place in topology.ranks}
    rest = [node for node in topology.nodes if node.name not in with_ranks]
    places = [
        msgspec.structs.replace(place, node=name, local_rank=0)
        for place, name in zip(topology.ranks, names, strict=True)
    ]
    return msgspec.structs.replace(topology, nodes=[*nodes, *rest], ranks=places)


def _name(place: RankPlace) -> str:
    part = f"rank{place.local_rank}" if place.gpu is None else f"gpu{place.gpu}"
    return f"{place.node}:{part}"


def _part(node: Node, place: RankPlace, name: str) -> Node:
    """Returns a node with one rank's GPU alone; NICs are not between GPUs of a node."""
    gpus = [gpu for gpu in node.gpus if gpu.index == place.gpu]
    return msgspec.structs.replace(
        node, name=name, leaf=node.name, gpus=gpus, gpu_links=[], nics=[]
    )
