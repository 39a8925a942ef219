"""Where and on what nccl-tests ran, as far as its first lines tell."""

from __future__ import annotations

from collections.abc import Mapping

from collbench.interop.nccl_tests_read_types import Table
from collbench.model import Environment, Gpu, LibraryVersion, Node, RankPlace, Topology
from collbench.version import __version__

_UNKNOWN = "unknown"


def environment_of(table: Table, variables: Mapping[str, str]) -> Environment:
    """Returns the software as far as a table tells it.

    Args:
        table: with NCCL's version.
        variables: NCCL's, of the run.
    """
    version = table.nccl_version
    return Environment(
        collbench=__version__,
        python=_UNKNOWN,
        kernel=_UNKNOWN,
        os=_UNKNOWN,
        nccl=None if version is None else LibraryVersion(version=version),
        variables=dict(variables),
    )


def topology_of(table: Table) -> Topology:
    """Returns the hosts and GPUs that the table's first lines list; nothing else is known."""
    gpus: dict[str, dict[int, Gpu]] = {}
    places = list[RankPlace]()
    for number, rank in enumerate(table.ranks):
        mine = gpus.setdefault(rank.host, {})
        gpu = Gpu(
            index=rank.device, name=rank.model, uuid="", pci_bus_id=rank.bus_id, memory_bytes=0
        )
        mine.setdefault(rank.device, gpu)
        local = sum(place.node == rank.host for place in places)
        places.append(RankPlace(rank=number, node=rank.host, local_rank=local, gpu=rank.device))
    nodes = [
        Node(
            name=host,
            cpu_model=_UNKNOWN,
            cpus=0,
            numa_nodes=0,
            memory_bytes=0,
            gpus=list(mine.values()),
        )
        for host, mine in gpus.items()
    ]
    return Topology(nodes=nodes, ranks=places)
