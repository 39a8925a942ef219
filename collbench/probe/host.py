"""Facts of the machine: cores, caches, NUMA, memory and cores within the cgroup's limits.

A batch system (Slurm, Kubernetes) gives a job less than the host has, by cgroup. The limit may
stand at any level between the process's own cgroup and the root, so all of them are looked at.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from collbench.model import Gpu, GpuLink, Nic, Node
from collbench.probe.cores import parse_cores
from collbench.probe.files import text_of

_ROOT = Path("/")
_SMALLEST_CACHE_BYTES = 2**20
_SIZE = re.compile(r"(\d+)([KM]?)")


def usable_cores() -> frozenset[int]:
    """Returns the cores this process may use."""
    return frozenset(os.sched_getaffinity(0))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """Returns how many cores' time the cgroup grants, None where it sets no limit.

    A quota names no cores: it is a share of time on all of ``usable_cores``.
    """
    granted = []
    for folder in _cgroup_folders(root, "cpu"):
        quota, _, period = text_of(folder / "cpu.max").partition(" ")
        if not quota:
            quota = text_of(folder / "cpu.cfs_quota_us")
            period = text_of(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            granted.append(int(quota) / int(period))
    return min(granted, default=None)


def numa_cores(root: Path = _ROOT) -> dict[int, frozenset[int]]:
    """Returns the cores of each NUMA node."""
    found = {}
    for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        found[int(folder.name[4:])] = parse_cores(text_of(folder / "cpulist"))
    return found


def last_level_cache_bytes(root: Path = _ROOT) -> int:
    """Returns the size of the largest cache of core 0, at least 1 MiB: what a walk must exceed."""
    return max(_SMALLEST_CACHE_BYTES, _largest_cache_bytes(root))


def free_memory_bytes(root: Path = _ROOT) -> int:
    """Returns the memory that may still be taken: the host's, or the cgroup's if that is less."""
    free = int(psutil.virtual_memory().available)
    for folder in _cgroup_folders(root, "memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit_text, used_text = text_of(folder / limit), text_of(folder / used)
            if limit_text.isdigit() and used_text.isdigit():
                needed = max(0, int(used_text) - _droppable_bytes(folder))
                free = min(free, max(0, int(limit_text) - needed))
    return free


def read_node(
    name: str,
    *,
    gpus: tuple[Gpu, ...] = (),
    gpu_links: tuple[GpuLink, ...] = (),
    nics: tuple[Nic, ...] = (),
    root: Path = _ROOT,
) -> Node:
    """Returns this machine as a record.

    Args:
        name: of the node, as the run calls it.
        gpus: what ``survey_gpus`` found.
        gpu_links: likewise.
        nics: what ``read_nics`` found.
        root: where /proc and /sys are, for tests.
    """
    cores, quota = len(usable_cores()), cpu_quota(root)
    return Node(
        name=name,
        cpu_model=_cpu_model(root),
        cpus=cores if quota is None else max(1, min(cores, int(quota))),
        numa_nodes=max(1, len(numa_cores(root))),
        memory_bytes=int(psutil.virtual_memory().total),
        l3_bytes=_largest_cache_bytes(root),
        gpus=list(gpus),
        gpu_links=list(gpu_links),
        nics=list(nics),
    )


def _largest_cache_bytes(root: Path) -> int:
    sizes = [0]
    for path in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = _SIZE.fullmatch(text_of(path))
        if match:
            sizes.append(int(match[1]) * {"": 1, "K": 2**10, "M": 2**20}[match[2]])
    return max(sizes)


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yields the folders of this process's cgroup and those above it, cgroup v1 and v2.

    A line of /proc/self/cgroup is ``0::/path`` (v2) or ``4:memory:/path`` (v1). In a container
    without a cgroup namespace the path is the host's and not there: then the mount's root, which
    is the container's own cgroup, is all there is.
    """
    for line in text_of(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        mount = root / "sys/fs/cgroup"
        if controller in controllers.split(","):
            mount = mount / controller
        elif number != "0":
            continue
        folder = mount / path.strip("/")
        while True:
            if folder.is_dir():
                yield folder
            if folder == mount:
                break
            folder = folder.parent


def _droppable_bytes(cgroup: Path) -> int:
    """Returns the file cache counted as used that the kernel gives up before it says "full"."""
    for line in text_of(cgroup / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        # In v1 the plain name leaves out the groups below, which the usage counts.
        if name == "total_inactive_file" or (name == "inactive_file" and _is_v2(cgroup)):
            return int(value)
    return 0


def _is_v2(cgroup: Path) -> bool:
    return (cgroup / "memory.max").exists()


def _cpu_model(root: Path) -> str:
    """Returns the model's name; Arm's kernel gives only numbers, which tell models apart too."""
    fields: dict[str, str] = {}
    for line in text_of(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    if "model name" in fields:
        return fields["model name"]
    numbers = [fields.get("CPU implementer"), fields.get("CPU part")]
    return " ".join([platform.machine(), "CPU", *(word for word in numbers if word)])
