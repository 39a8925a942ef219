"""Made histories: releases measured interleaved in one run, with changes planted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from records import make_trial
from stored_runs import environment_of, law, stored_run

from collbench.model import LibraryVersion, Mode, Trial
from collbench.nccl.settings import LIBRARY
from collbench.store import StoredRun

VERSIONS = ("2.27.7", "2.28.3", "2.28.9", "2.29.7", "2.30.3", "2.30.7", "2.31.2", "2.32.3")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
SIZES = tuple(4**k for k in range(1, 15))
_LAWS = {Mode.EAGER: law(30.0, 250.0), Mode.GRAPH: law(8.0, 250.0)}

Planted = Mapping[tuple[str, Mode, int, str], float]
"""By collective, mode, size and release from which on a case's time is so many times as long."""


def history_trials(
    versions: Sequence[str] = VERSIONS,
    *,
    planted: Planted | None = None,
    repeats: int = 3,
    noise: float = 0.01,
    collectives: Sequence[str] = COLLECTIVES,
    sizes: Sequence[int] = SIZES,
    seed: int = 1,
    **changes: Any,
) -> list[Trial]:
    """Returns the trials of releases that settings call by their versions."""
    random = np.random.default_rng(seed)
    found = []
    for number, version in enumerate(versions):
        for collective in collectives:
            for mode, time_us in _LAWS.items():
                for size in sizes:
                    factor = 1.0
                    for (name, when, bytes_, since), change in (planted or {}).items():
                        same = (name, when, bytes_) == (collective, mode, size)
                        if same and number >= versions.index(since):
                            factor *= change
                    for repeat in range(repeats):
                        time = time_us(size) * factor * float(np.exp(random.normal(0, noise)))
                        trial = make_trial(
                            size, time, name=collective, mode=mode, repeat=repeat, **changes
                        )
                        found.append(_on(trial, version))
    return found


def _on(trial: Trial, version: str) -> Trial:
    case = msgspec.structs.replace(trial.case, via="native", setting={LIBRARY: version})
    names = {"case": case, "case_id": case.case_id, "trial_id": case.trial_id(trial.repeat)}
    return msgspec.structs.replace(trial, **names)


def history_run(
    versions: Sequence[str] = VERSIONS, *, run_id: str = "20261130-1200-aaaa", **made: Any
) -> StoredRun:
    """Returns one run that measured all releases."""
    run_changes = dict(made.pop("run", {}))
    trials = history_trials(versions, **made)
    environment = msgspec.structs.replace(
        environment_of(versions[0], torch=None),
        libraries={v: LibraryVersion(version=v, path=f"/opt/nccl/{v}") for v in versions},
    )
    return stored_run(
        trials,
        topology=run_changes.pop("topology", None),
        run_id=run_id,
        command="history run",
        argv=["history", "run", "--nccl", ",".join(versions)],
        environment=environment,
        via="native",
        repeats=made.get("repeats", 3),
        **run_changes,
    )
