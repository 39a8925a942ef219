"""What the wire allows: the bus bandwidth that no algorithm can pass, where facts tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collbench.model import Case, Gpu, Topology

_BEFORE_NVLS = ("V100", "A100", "A800", "A30", "A40", "A6000", "T4", "L4", "L40")


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound of busbw, and the sentence it comes from."""

    busbw_gb_per_s: float
    text: str


def wire_limit(case: Case, topology: Topology, variables: Mapping[str, str]) -> Limit | None:
    """Returns the bound of a case's busbw, or None where it is not known.

    Known on one node whose GPUs are all linked by NVLink: busbw is, by its definition, what the
    busiest link carries in one direction for an algorithm that sends no byte twice, so it cannot
    pass links x rate. Reduction in the switch (NVLS) sends less: n + 1 instead of 2 (n - 1) shares
    for an all_reduce, which for 2 ranks is more, not less. So for 2 ranks the bound holds whatever
    ran; for more only where NVLS cannot have run. What ran is not proved here.
    """
    if case.backend != "nccl" or case.world_size < 2 or len(topology.nodes) != 1:
        return None
    used = _used(topology)
    if len(used) != case.world_size or not _all_linked(topology, used):
        return None
    if case.world_size > 2 and not _nvls_impossible(used, variables):
        return None
    weakest = min(used, key=lambda gpu: gpu.nvlinks * (gpu.nvlink_gb_per_s or 0.0))
    if not weakest.nvlink_gb_per_s:
        return None
    links = min(weakest.nvlinks, *_widths(topology, used))
    rate = links * weakest.nvlink_gb_per_s
    return Limit(rate, f"{links} NVLinks x {weakest.nvlink_gb_per_s:.1f} GB/s")


def _used(topology: Topology) -> list[Gpu]:
    indices = {place.gpu for place in topology.ranks}
    return [gpu for gpu in topology.nodes[0].gpus if gpu.index in indices]


def _widths(topology: Topology, used: list[Gpu]) -> list[int]:
    indices = {gpu.index for gpu in used}
    return [
        int(link.kind[2:])
        for link in topology.nodes[0].gpu_links
        if link.kind.startswith("NV") and {link.a, link.b} <= indices
    ]


def _all_linked(topology: Topology, used: list[Gpu]) -> bool:
    return len(_widths(topology, used)) == len(used) * (len(used) - 1) // 2


def _nvls_impossible(used: list[Gpu], variables: Mapping[str, str]) -> bool:
    if variables.get("NCCL_NVLS_ENABLE") == "0":
        return True
    return all(any(word in gpu.name.split() for word in _BEFORE_NVLS) for gpu in used)
