"""Facts of the machine: cores, caches, memory within the cgroup's limits, NUMA."""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil

from collbench.model import Gpu, GpuLink, Nic, Node
from collbench.probe.cores import parse_cores

_ROOT = Path("/")
_SMALLEST_CACHE_BYTES = 2**20
_SIZE = re.compile(r"(\d+)([KM]?)")


def usable_cores() -> frozenset[int]:
    """Returns the cores this process may use."""
    return frozenset(os.sched_getaffinity(0))


def numa_cores(root: Path = _ROOT) -> dict[int, frozenset[int]]:
    """Returns the cores of each NUMA node."""
    found = {}
    for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        found[int(folder.name[4:])] = parse_cores(_text(folder / "cpulist"))
    return found


def last_level_cache_bytes(root: Path = _ROOT) -> int:
    """Returns the size of the largest cache of core 0, at least 1 MiB."""
    sizes = [_SMALLEST_CACHE_BYTES]
    for path in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = _SIZE.match(_text(path))
        if match:
            sizes.append(int(match[1]) * {"": 1, "K": 2**10, "M": 2**20}[match[2]])
    return max(sizes)


def free_memory_bytes(root: Path = _ROOT) -> int:
    """Returns the memory that may still be taken: the host's, or the cgroup's if that is less."""
    free = int(psutil.virtual_memory().available)
    for limit, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        limit_text, used_text = _text(root / limit).strip(), _text(root / used).strip()
        if limit_text.isdigit() and used_text.isdigit():
            free = min(free, max(0, int(limit_text) - int(used_text)))
    return free


def read_node(
    name: str,
    *,
    gpus: tuple[Gpu, ...] = (),
    gpu_links: tuple[GpuLink, ...] = (),
    nics: tuple[Nic, ...] = (),
    root: Path = _ROOT,
) -> Node:
    """Returns this machine as a record."""
    return Node(
        name=name,
        cpu_model=_cpu_model(root),
        cpus=len(usable_cores()),
        numa_nodes=max(1, len(numa_cores(root))),
        memory_bytes=int(psutil.virtual_memory().total),
        l3_bytes=last_level_cache_bytes(root),
        gpus=list(gpus),
        gpu_links=list(gpu_links),
        nics=list(nics),
    )


def _cpu_model(root: Path) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return "unknown CPU"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
