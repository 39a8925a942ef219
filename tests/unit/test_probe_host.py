import os
from types import SimpleNamespace

import psutil
import pytest

from collbench.probe.host import (
    cpu_quota,
    free_memory_bytes,
    last_level_cache_bytes,
    numa_cores,
    read_node,
    usable_cores,
)

MIB = 2**20


def put(root, path, text):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{text}\n")


@pytest.fixture(autouse=True)
def host(monkeypatch):
    """A host of 1000 MiB, 600 of them free, and cores 0-3 for this process."""
    memory = SimpleNamespace(total=1000 * MIB, available=600 * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})


def test_without_a_cgroup_the_hosts_free_memory_counts(tmp_path):
    assert free_memory_bytes(tmp_path) == 600 * MIB


def test_a_cgroup_v2_limit_at_a_level_above_the_process_counts(tmp_path):
    put(tmp_path, "proc/self/cgroup", "0::/slurm/job_7/step_0")
    put(tmp_path, "sys/fs/cgroup/slurm/job_7/memory.max", 200 * MIB)
    put(tmp_path, "sys/fs/cgroup/slurm/job_7/memory.current", 150 * MIB)
    put(tmp_path, "sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max")
    put(tmp_path, "sys/fs/cgroup/slurm/job_7/step_0/memory.current", 10 * MIB)

    assert free_memory_bytes(tmp_path) == 50 * MIB


def test_file_cache_that_the_kernel_can_drop_is_free_memory(tmp_path):
    put(tmp_path, "proc/self/cgroup", "0::/")
    put(tmp_path, "sys/fs/cgroup/memory.max", 200 * MIB)
    put(tmp_path, "sys/fs/cgroup/memory.current", 190 * MIB)
    put(tmp_path, "sys/fs/cgroup/memory.stat", f"anon 1\ninactive_file {100 * MIB}")

    assert free_memory_bytes(tmp_path) == 110 * MIB


def test_a_cgroup_v1_limit_counts_with_the_cache_of_the_groups_below(tmp_path):
    put(tmp_path, "proc/self/cgroup", "4:memory:/docker/ab\n1:cpu,cpuacct:/docker/ab\n0::/")
    folder = "sys/fs/cgroup/memory/docker/ab"
    put(tmp_path, f"{folder}/memory.limit_in_bytes", 300 * MIB)
    put(tmp_path, f"{folder}/memory.usage_in_bytes", 250 * MIB)
    put(
        tmp_path,
        f"{folder}/memory.stat",
        f"inactive_file {MIB}\ntotal_inactive_file {40 * MIB}",
    )

    assert free_memory_bytes(tmp_path) == 90 * MIB


def test_a_container_that_sees_the_hosts_cgroup_path_is_limited_by_its_own_root(tmp_path):
    put(tmp_path, "proc/self/cgroup", "0::/kubepods/pod1/c1")
    put(tmp_path, "sys/fs/cgroup/memory.max", 100 * MIB)
    put(tmp_path, "sys/fs/cgroup/memory.current", 130 * MIB)

    assert free_memory_bytes(tmp_path) == 0


@pytest.mark.parametrize(("text", "cores"), [("250000 100000", 2.5), ("max 100000", None)])
def test_the_cpu_quota_of_cgroup_v2_is_counted_in_cores(tmp_path, text, cores):
    put(tmp_path, "proc/self/cgroup", "0::/pod")
    put(tmp_path, "sys/fs/cgroup/pod/cpu.max", text)

    assert cpu_quota(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [(150000, 1.5), (-1, None)])
def test_the_cpu_quota_of_cgroup_v1_is_counted_in_cores(tmp_path, quota, cores):
    put(tmp_path, "proc/self/cgroup", "1:cpu,cpuacct:/pod")
    put(tmp_path, "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", quota)
    put(tmp_path, "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", 100000)

    assert cpu_quota(tmp_path) == cores


def test_the_usable_cores_are_those_of_the_affinity_mask():
    assert usable_cores() == {0, 1, 2, 3}


def test_the_largest_cache_of_a_core_is_its_last_level(tmp_path):
    for index, size in enumerate(("48K", "32K", "2048K", "512M")):
        put(tmp_path, f"sys/devices/system/cpu/cpu0/cache/index{index}/size", size)

    assert last_level_cache_bytes(tmp_path) == 512 * MIB


def test_a_cache_that_is_not_known_is_taken_as_1_mib_and_recorded_as_0(tmp_path):
    assert last_level_cache_bytes(tmp_path) == MIB
    assert read_node("n", root=tmp_path).l3_bytes == 0


def test_a_node_is_read_from_proc_and_sys(tmp_path):
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Xeon A\n\nprocessor\t: 1")
    put(tmp_path, "sys/devices/system/node/node0/cpulist", "0-1")
    put(tmp_path, "sys/devices/system/node/node1/cpulist", "2-3")
    put(tmp_path, "sys/devices/system/cpu/cpu0/cache/index3/size", "32768K")

    node = read_node("n1", root=tmp_path)

    assert numa_cores(tmp_path) == {0: {0, 1}, 1: {2, 3}}
    assert (node.name, node.cpu_model, node.cpus, node.numa_nodes) == ("n1", "Xeon A", 4, 2)
    assert (node.memory_bytes, node.l3_bytes) == (1000 * MIB, 32 * MIB)
    assert (node.gpus, node.gpu_links, node.nics) == ([], [], [])


@pytest.mark.parametrize(("quota", "cpus"), [("250000", 2), ("50000", 1), ("6400000", 4)])
def test_a_nodes_cores_are_no_more_than_the_quota_and_at_least_one(tmp_path, quota, cpus):
    put(tmp_path, "proc/self/cgroup", "0::/")
    put(tmp_path, "sys/fs/cgroup/cpu.max", f"{quota} 100000")

    assert read_node("n", root=tmp_path).cpus == cpus


def test_an_arm_cpu_is_told_by_its_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f")

    assert read_node("n", root=tmp_path).cpu_model == "aarch64 CPU 0x41 0xd4f"
