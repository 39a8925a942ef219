"""The place that a fabric's model pretends to be: nodes with GPUs and NICs, leaves, ranks."""

from __future__ import annotations

import numpy as np

from collbench.engine.fabric_layout import Layout
from collbench.model import Gpu, Nic, Node, NodeState, RankPlace, Topology

_GPU_BYTES = 80 * 10**9


def topology_of(layout: Layout) -> Topology:
    """Returns hardware and placement; nodes that differ are excluded and have no rank."""
    nics = _nics(layout)
    nodes = [_node(layout, number, nics) for number in range(len(layout.names))]
    present = [node for node in nodes if node.state is NodeState.PRESENT]
    slots = [(node.name, gpu) for node in present for gpu in range(layout.table.gpus_per_node)]
    places = [
        RankPlace(rank=rank, node=name, local_rank=gpu, gpu=gpu)
        for rank, (name, gpu) in enumerate(slots)
    ]
    return Topology(nodes=nodes, ranks=places)


def summary_of(layout: Layout) -> str:
    """Returns the fabric in a line, for headings."""
    table = layout.table
    gpus, rails = table.gpus_per_node, table.rails
    parts = [
        f"{len(layout.names)} nodes x {gpus} GPU{'s' * (gpus > 1)}",
        f"{rails} rail{'s' * (rails > 1)} of {table.rail_gb_per_s:g} GB/s",
    ]
    if layout.leaves > 1:
        unlimited = table.routing == "none"
        between = (
            "no limit between them" if unlimited else f"{_ratio(layout):.3g}:1, {table.routing}"
        )
        parts.append(f"{layout.leaves} leaves ({between})")
    return ", ".join(parts)


def _ratio(layout: Layout) -> float:
    """Returns the largest oversubscription of a leaf, as the file has it without its faults."""
    table, nodes = layout.table, int(np.bincount(layout.leaf_of).max())
    if table.uplink_gb_per_s is None or table.uplinks is None:
        return table.oversubscription or 1.0
    return nodes * table.rail_gb_per_s / (table.uplinks * table.uplink_gb_per_s)


def remarks_of(layout: Layout) -> list[str]:
    """Returns a line for each node that is left out."""
    return [f"{layout.names[node]} is left out: {what}" for node, what in layout.differs.items()]


def _nics(layout: Layout) -> list[Nic]:
    rate = layout.table.rail_gb_per_s * 8
    return [
        Nic(name=f"mlx5_{rail}", kind="infiniband", rate_gbit_per_s=rate, state="ACTIVE")
        for rail in range(layout.table.rails)
    ]


def _node(layout: Layout, number: int, nics: list[Nic]) -> Node:
    name = layout.names[number]
    gpus = [
        Gpu(
            index=index,
            name="simulated GPU",
            uuid=f"{name}-gpu{index}",
            pci_bus_id="",
            memory_bytes=_GPU_BYTES,
            nvlinks=1,
            nvlink_gb_per_s=layout.table.nvlink_gb_per_s,
        )
        for index in range(layout.table.gpus_per_node)
    ]
    return Node(
        name=name,
        state=NodeState.EXCLUDED if number in layout.differs else NodeState.PRESENT,
        cpu_model="model",
        cpus=1,
        numa_nodes=1,
        memory_bytes=0,
        gpus=gpus,
        nics=nics,
        leaf=layout.leaf_name(number),
    )
