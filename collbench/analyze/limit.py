"""What the wire allows: the bus bandwidth that no algorithm can pass, where facts tell it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from collbench.model import Case, Gpu, Topology

_BEFORE_NVLS = {"P100", "V100", "A100", "A800", "A30", "A40", "A5000", "A6000", "3090"}
_NOT_OVER_NVLINK = {
    "NCCL_HOSTID": ("",),
    "NCCL_P2P_DISABLE": ("", "0"),
    "NCCL_P2P_LEVEL": ("", "NVL", "PIX", "PXB", "PHB", "SYS", "1", "2", "3", "4", "5"),
}
"""Variables that can take the data off NVLink, and the values with which they do not."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound of busbw, and the words it comes from."""

    busbw_gb_per_s: float
    text: str


def wire_limit(case: Case, topology: Topology, variables: Mapping[str, str]) -> Limit | None:
    """Returns the bound of a case's busbw, or None where it is not known.

    Known on one node where NVLink joins all GPUs in use. Without reduction or copying inside the
    switch, n ranks cannot do with less than n x S x factor bytes sent in all (all_reduce:
    2 (n - 1) S, of which each rank sends 2 (n - 1) / n S), or, for broadcast, reduce, gather and
    scatter, S x factor bytes through the root's links. busbw = S x factor / time is therefore at
    most what the links of the slowest rank carry in one direction: links x rate of a link.

    A switch that reduces and copies (NVLS, on Hopper and later) lets a rank send
    (n + 1) / n S for an all_reduce: more than 2 (n - 1) / n S for 2 ranks, as much for 3, less
    from 4 on, where busbw may pass links x rate (480 GB/s against 450 on 8 H100). So the bound
    holds for 2 ranks whatever ran, and for more only where NVLS cannot have run.

    Args:
        case: with its world size, back end and setting.
        topology: GPUs, their links, and which of them the ranks use.
        variables: the recorded environment; the case's setting goes before it.
    """
    if case.backend != "nccl" or case.world_size < 2 or len(topology.nodes) != 1 or case.emulated:
        return None
    gpus = _used(topology)
    effective = {**variables, **case.setting}
    if len(gpus) != case.world_size or _leaves_nvlink(effective):
        return None
    if case.world_size > 2 and not _nvls_impossible(gpus, effective):
        return None
    links = _links_each(topology, gpus)
    rates = [gpu.nvlink_gb_per_s for gpu in gpus if gpu.nvlink_gb_per_s]
    if links is None or len(rates) != len(gpus):
        return None
    word = "NVLink" if links == 1 else "NVLinks"
    return Limit(links * min(rates), f"{links} {word} x {min(rates):.1f} GB/s")


def _used(topology: Topology) -> list[Gpu]:
    indices = {place.gpu for place in topology.ranks}
    return [gpu for gpu in topology.nodes[0].gpus if gpu.index in indices]


def _links_each(topology: Topology, gpus: Sequence[Gpu]) -> int | None:
    """Returns the links with which every rank reaches its partners, None where that differs.

    Two GPUs: the links between them. More: known behind a switch alone, where every pair has all
    links of a GPU; in a mesh the links of a GPU are shared out among its partners.
    """
    kinds = {frozenset((link.a, link.b)): link.kind for link in topology.nodes[0].gpu_links}
    widths = set()
    for a, b in combinations(gpus, 2):
        match = re.fullmatch(r"NV(\d+)", kinds.get(frozenset((a.index, b.index)), ""))
        if match is None:
            return None
        widths.add(int(match[1]))
    if len(gpus) > 2 and widths != {gpu.nvlinks for gpu in gpus}:
        return None
    return min(widths)


def _leaves_nvlink(variables: Mapping[str, str]) -> bool:
    return any(
        variables.get(name, "") not in harmless for name, harmless in _NOT_OVER_NVLINK.items()
    )


def _nvls_impossible(gpus: Sequence[Gpu], variables: Mapping[str, str]) -> bool:
    if variables.get("NCCL_NVLS_ENABLE") == "0":
        return True
    return all(_BEFORE_NVLS & set(re.split(r"[^A-Za-z0-9]+", gpu.name)) for gpu in gpus)
