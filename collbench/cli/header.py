"""The header of a run that is about to begin."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Mapping

from collbench.cli.earlier import Earlier
from collbench.cli.ground import Ground
from collbench.model import Run
from collbench.probe.environment import read_environment
from collbench.store import new_run_id
from collbench.suite import ResolvedSuite, suite_as_dict
from collbench.units import utc_text


def seed_of(suite: ResolvedSuite, earlier: Earlier | None) -> int:
    """Returns the seed that is asked for, else that of the run that goes on, else a new one."""
    return suite.seed or (earlier.stored.run.seed if earlier else secrets.randbelow(2**31 - 1) + 1)


def new_header(
    ground: Ground,
    *,
    command: str,
    cluster: str,
    source: str,
    also: Mapping[str, object],
    repeats: int,
    seed: int,
    planned_trials: int,
    planted: str | None,
) -> Run:
    """Returns the header of a new run, from now on.

    Args:
        ground: what it runs on.
        command: its name.
        cluster: under which it is kept.
        source: the suite as the user named it.
        also: what is kept beside the suite's keys.
        repeats: starts of fresh processes.
        seed: of the order.
        planned_trials: as far as is known.
        planted: a fault on purpose, as the user wrote it.
    """
    suite, slots = ground.suite, ground.slots
    return Run(
        run_id=new_run_id(),
        command=command,
        argv=sys.argv[1:],
        cluster=cluster,
        suite={"source": source, **suite_as_dict(suite), **also},
        policy=suite.policy,
        repeats=repeats,
        seed=seed,
        planned_trials=planned_trials,
        backend=slots.backend,
        world_size=slots.world_size,
        environment=read_environment(os.environ),
        note=slots.note,
        simulated=ground.simulation is not None,
        emulated=bool(slots.fake_hosts),
        via=suite.via,
        planted=planted,
        started_at=utc_text(time.time()),
    )
