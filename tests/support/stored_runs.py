"""Made runs as they are stored, for tests of what compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from records import make_run, make_trial

from collbench.model import (
    Environment,
    Gpu,
    LibraryVersion,
    Nic,
    Node,
    RankPlace,
    Topology,
    Trial,
)
from collbench.store import StoredRun

SIZES = tuple(8 * 4**k for k in range(10))


def law(alpha_us: float, gb_per_s: float) -> Callable[[int], float]:
    """Returns the time of a size."""
    return lambda size: alpha_us + size / gb_per_s / 1e3


def trials_of(
    time_us: Callable[[int], float],
    *,
    repeats: int = 5,
    sizes: Sequence[int] = SIZES,
    noise: float = 0.002,
    **changes: Any,
) -> list[Trial]:
    """Returns trials whose repeats lie evenly around a curve, in another order in each case."""
    found = []
    for k, size in enumerate(sizes):
        for repeat in range(repeats):
            place = (repeat + k) % repeats - (repeats - 1) / 2
            time = time_us(size) * (1 + noise * place)
            found.append(make_trial(size, time, repeat=repeat, **changes))
    return found


def topology_of(
    nodes: int = 1, gpus: int = 2, model: str = "NVIDIA H200", nics: Sequence[Nic] = ()
) -> Topology:
    """Returns nodes of one make, all GPUs in use."""
    machines = [
        Node(
            name=f"secret-host-{n}",
            cpu_model="Xeon",
            cpus=8,
            numa_nodes=1,
            memory_bytes=2**30,
            gpus=[
                Gpu(index=g, name=model, uuid=f"{n}{g}", pci_bus_id="0", memory_bytes=1)
                for g in range(gpus)
            ],
            nics=list(nics),
        )
        for n in range(nodes)
    ]
    places = [
        RankPlace(rank=n * gpus + g, node=f"secret-host-{n}", local_rank=g, gpu=g)
        for n in range(nodes)
        for g in range(gpus)
    ]
    return Topology(nodes=machines, ranks=places)


def environment_of(nccl: str = "2.30.7", **changes: Any) -> Environment:
    """Returns recorded software."""
    fields: dict[str, Any] = {
        "collbench": "0.1.0",
        "python": "3.12.3",
        "torch": "2.13.0",
        "cuda": "13.0",
        "nccl": LibraryVersion(version=nccl),
        "driver": "580.1",
        "kernel": "6.1",
        "os": "Debian 12",
    }
    return Environment(**(fields | changes))


def stored_run(
    trials: Sequence[Trial],
    run_id: str = "20261130-0412-aa11",
    *,
    topology: Topology | None = None,
    environment: Environment | None = None,
    **changes: Any,
) -> StoredRun:
    """Returns a run of these trials; ``changes`` are fields of ``Run``."""
    place = topology or topology_of()
    run = make_run(
        run_id=run_id,
        argv=["sweep", "--repeats", "5"],
        repeats=5,
        planned_trials=len(trials),
        world_size=len(place.ranks),
        environment=environment or environment_of(),
        exit_code=0,
    )
    return StoredRun(
        folder=Path("lab") / run_id,
        run=msgspec.structs.replace(run, **changes),
        topology=place,
        trials=tuple(trials),
        problems=(),
    )


def put(stored: StoredRun, folder: Path) -> Path:
    """Writes a run below a folder, and returns its own folder."""
    own = folder / stored.run.run_id
    own.mkdir(parents=True)
    (own / "run.json").write_bytes(msgspec.json.encode(stored.run))
    (own / "topology.json").write_bytes(msgspec.json.encode(stored.topology))
    lines = [msgspec.json.encode(trial) + b"\n" for trial in stored.trials]
    (own / "trials.jsonl").write_bytes(b"".join(lines))
    return own
