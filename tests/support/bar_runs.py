"""Runs to make baselines of and to hold against them, and the nodes they ran on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from records import make_run, make_trial

from collbench.analyze.baseline import Baseline, make_baseline
from collbench.model import Environment, Gpu, LibraryVersion, Nic, Node, RankPlace, Topology
from collbench.store import StoredRun

RESULTS = Path(__file__).parents[2] / "results"
RUN = make_run(
    repeats=3,
    environment=Environment(
        collbench="0.1.0",
        python="3.12",
        torch="2.13.0",
        nccl=LibraryVersion(version="2.28.9"),
        driver="580.1",
        kernel="6.8",
        os="Linux",
    ),
)
SIZES = [8 << (2 * k) for k in range(12)]


def gpu(index: int, name: str = "NVIDIA H200") -> Gpu:
    return Gpu(index=index, name=name, uuid=f"u{index}", pci_bus_id=f"{index}", memory_bytes=1)


def nic(kind: str, rate: float | None) -> Nic:
    return Nic(name="x", kind=kind, rate_gbit_per_s=rate, state="up")


def place(*names: str, nics=(), gpus=(0, 1), model="NVIDIA H200", cpu="EPYC") -> Topology:
    """Nodes of two GPUs each, of which the ranks use ``gpus``."""
    nodes = [
        Node(
            name=name,
            cpu_model=cpu,
            cpus=8,
            numa_nodes=1,
            memory_bytes=1,
            gpus=[gpu(0, model), gpu(1, model)],
            nics=list(nics),
        )
        for name in names
    ]
    ranks = [(name, local, index) for name in names for local, index in enumerate(gpus)]
    return Topology(
        nodes=nodes,
        ranks=[
            RankPlace(rank=rank, node=name, local_rank=local, gpu=index)
            for rank, (name, local, index) in enumerate(ranks)
        ],
    )


HERE = place("a")


def quiet(repeats: int, level: float) -> list[float]:
    """Repeats that differ by 0.2 % and less, evenly around a level."""
    return (level * (1 + 0.001 * np.linspace(-1, 1, repeats))).tolist()


def trials_of(repeats: int, factor: float = 1.0, sizes=SIZES, slow=()):
    """A trial a size and repeat; ``slow`` sizes take ``factor`` times as long."""
    found = []
    for k, size in enumerate(sizes):
        scale = factor if size in slow or not slow else 1.0
        times = quiet(repeats, (50.0 + 10 * k) * scale)
        found += [make_trial(size, time, repeat=r) for r, time in enumerate(times)]
    return found


def stored(trials, topology: Topology = HERE, **changes) -> StoredRun:
    run = msgspec.structs.replace(RUN, **changes)
    return StoredRun(folder=Path(), run=run, topology=topology, trials=tuple(trials), problems=())


def baseline(repeats: int = 5, **changes) -> Baseline:
    return make_baseline([stored(trials_of(repeats), **changes)])
