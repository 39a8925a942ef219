"""What the wire allows: the bus bandwidth that cannot be passed, where facts tell it.

With a proof the bound is that of the algorithm that ran over the path that it took
(``limit_models``); without one it is the bound of whatever may have run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from collbench.analyze.limit_models import links_share, network_share
from collbench.model import Case, Gpu, Nic, Node, Proof, Topology

_BEFORE_NVLS = {"P100", "V100", "A100", "A800", "A30", "A40", "A5000", "A6000", "3090"}
_NOT_OVER_NVLINK = {
    "NCCL_HOSTID": ("",),
    "NCCL_P2P_DISABLE": ("", "0"),
    "NCCL_P2P_LEVEL": ("", "NVL", "PIX", "PXB", "PHB", "SYS", "1", "2", "3", "4", "5"),
}
"""Variables that can take the data off NVLink, and the values with which they do not."""
_GBIT_PER_GBYTE = 8


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound of busbw, and the words it comes from."""

    busbw_gb_per_s: float
    text: str
    """``18 NVLinks x 26.6 GB/s, Ring``; ``8 NICs x 50.0 GB/s x 1.88, Tree, 2 nodes``."""


LimitOf = Callable[[Case, Proof | None], Limit | None]
"""What tells the limit of a case, given what ran if that is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wires:
    """Equal wires side by side."""

    rate_gb_per_s: float
    """Of all together, in one direction."""
    text: str

    def limit(self, share: float, words: Sequence[str]) -> Limit:
        times = "" if abs(share - 1) < 1e-9 else f" x {share:.3g}"
        return Limit(self.rate_gb_per_s * share, ", ".join([f"{self.text}{times}", *words]))


def wire_limit(
    case: Case, topology: Topology, variables: Mapping[str, str], proof: Proof | None = None
) -> Limit | None:
    """Returns the bound of a case's busbw, or None where it is not known.

    On one node it is known where NVLink joins all GPUs in use. Without reduction or copying inside
    the switch, n ranks cannot do with less than n x S x factor bytes sent in all (all_reduce:
    2 (n - 1) S, of which each rank sends 2 (n - 1) / n S), or, for broadcast, reduce, gather and
    scatter, S x factor bytes through the root's links. busbw = S x factor / time is therefore at
    most what the links of the slowest rank carry in one direction: links x rate of a link.

    A switch that reduces and copies (NVLS, on Hopper and later) lets a rank send
    (n + 1) / n S for an all_reduce: more than 2 (n - 1) / n S for 2 ranks, as much for 3, less
    from 4 on, where busbw may pass links x rate (480 GB/s against 450 on 8 H100). So without a
    proof the bound holds for 2 ranks whatever ran, and for more only where NVLS cannot have run.

    On several nodes it needs a proof: the algorithm, and which network devices carried the data.
    Nothing tells the width of PCIe, so data that took it have no known limit.

    Args:
        case: with its world size, back end and setting.
        topology: GPUs, their links, network devices, and which of them the ranks use.
        variables: the recorded environment; the case's setting goes before it.
        proof: what ran.
    """
    if case.backend != "nccl" or case.world_size < 2 or case.emulated:
        return None
    names = Counter(place.node for place in topology.ranks)
    nodes = [node for node in topology.nodes if node.name in names]
    if len(topology.ranks) != case.world_size or not nodes:
        return None
    told = proof if proof is not None and proof.ranks else None
    if len(nodes) == 1:
        return _inside_node(case, topology, nodes[0], {**variables, **case.setting}, told)
    if told is None or told.nodes not in (None, len(nodes)) or len(set(names.values())) > 1:
        return None
    return _across_nodes(case, topology, nodes, told)


def _inside_node(
    case: Case,
    topology: Topology,
    node: Node,
    variables: Mapping[str, str],
    proof: Proof | None,
) -> Limit | None:
    on_nvlink = None if proof is None else _ran_on_nvlink(proof)
    if on_nvlink is False or (on_nvlink is None and _leaves_nvlink(variables)):
        return None
    links = _links_of(topology, node)
    if links is None:
        return None
    if proof is not None:
        share = links_share(case.collective, proof.algorithm, case.world_size, 1)
        if share is not None:
            return links.limit(share, [proof.algorithm] if proof.algorithm else [])
    nvls_possible = not _nvls_impossible(_used(topology, node), variables)
    return None if case.world_size > 2 and nvls_possible else links.limit(1.0, [])


def _across_nodes(
    case: Case, topology: Topology, nodes: Sequence[Node], proof: Proof
) -> Limit | None:
    """Returns the bound of the network, or of the NVLinks inside the nodes if that is lower."""
    asked = (case.collective, proof.algorithm, case.world_size, len(nodes))
    share = network_share(*asked)
    networks = [_network_of(node, proof.devices) for node in nodes]
    if share is None or any(network is None for network in networks):
        return None
    words = [proof.algorithm] if proof.algorithm else []
    words.append(f"{len(nodes)} nodes")
    bounds = [_slowest(networks).limit(share, words)]
    inside, links = links_share(*asked), [_links_of(topology, node) for node in nodes]
    if inside is not None and all(links) and _ran_on_nvlink(proof) is not False:
        bounds.append(_slowest(links).limit(inside, words))
    return min(bounds, key=lambda limit: limit.busbw_gb_per_s)


def _slowest(wires: Sequence[_Wires | None]) -> _Wires:
    return min((one for one in wires if one is not None), key=lambda one: one.rate_gb_per_s)


def _ran_on_nvlink(proof: Proof) -> bool | None:
    """Whether what carried data inside nodes was NVLink; None where the logs do not tell."""
    if proof.algorithm == "NVLS":
        return True  # the rings that stand in the log beside it carried nothing
    inside = [name for name in proof.transports if not name.startswith(("NET/", "COLLNET/"))]
    network = len(inside) < len(proof.transports)
    if any(not name.startswith("P2P/") for name in inside) or (network and proof.nodes == 1):
        return False
    if not inside or proof.intra_path is None:
        return None
    return proof.intra_path == "NVL"


def _network_of(node: Node, devices: Sequence[str]) -> _Wires | None:
    """Returns those of a node's devices that carried data, None where a rate is not known."""
    # NCCL joins the ports of an adapter to one device: mlx5_0+mlx5_1.
    names = {name for device in devices for name in device.split("+")}
    nics: list[Nic] = [nic for nic in node.nics if nic.name in names]
    rates = [nic.rate_gbit_per_s / _GBIT_PER_GBYTE for nic in nics if nic.rate_gbit_per_s]
    if not nics or len(rates) != len(nics):
        return None
    word = "NIC" if len(nics) == 1 else "NICs"
    each = f" x {rates[0]:.1f} GB/s" if len(set(rates)) == 1 else f" of {sum(rates):.1f} GB/s"
    return _Wires(rate_gb_per_s=sum(rates), text=f"{len(nics)} {word}{each}")


def _used(topology: Topology, node: Node) -> list[Gpu]:
    indices = {place.gpu for place in topology.ranks if place.node == node.name}
    return [gpu for gpu in node.gpus if gpu.index in indices]


def _links_of(topology: Topology, node: Node) -> _Wires | None:
    """Returns the NVLinks of a GPU, None where they differ, or where ranks share a GPU."""
    gpus = _used(topology, node)
    if len(gpus) != sum(place.node == node.name for place in topology.ranks):
        return None
    count = _links_each(node, gpus)
    rates = [gpu.nvlink_gb_per_s for gpu in gpus if gpu.nvlink_gb_per_s]
    if count is None or len(rates) != len(gpus):
        return None
    word = "NVLink" if count == 1 else "NVLinks"
    return _Wires(rate_gb_per_s=count * min(rates), text=f"{count} {word} x {min(rates):.1f} GB/s")


def _links_each(node: Node, gpus: Sequence[Gpu]) -> int | None:
    """Returns the links with which every rank reaches its partners, None where that differs.

    Two GPUs: the links between them. More: known behind a switch alone, where every pair has all
    links of a GPU; in a mesh the links of a GPU are shared out among its partners.
    """
    kinds = {frozenset((link.a, link.b)): link.kind for link in node.gpu_links}
    widths = set()
    for a, b in combinations(gpus, 2):
        match = re.fullmatch(r"NV(\d+)", kinds.get(frozenset((a.index, b.index)), ""))
        if match is None:
            return None
        widths.add(int(match[1]))
    if len(gpus) > 2 and widths != {gpu.nvlinks for gpu in gpus}:
        return None
    return min(widths, default=None)


def _leaves_nvlink(variables: Mapping[str, str]) -> bool:
    return any(
        variables.get(name, "") not in harmless for name, harmless in _NOT_OVER_NVLINK.items()
    )


def _nvls_impossible(gpus: Sequence[Gpu], variables: Mapping[str, str]) -> bool:
    if variables.get("NCCL_NVLS_ENABLE") == "0":
        return True
    return all(_BEFORE_NVLS & set(re.split(r"[^A-Za-z0-9]+", gpu.name)) for gpu in gpus)
