"""What the engine costs over real Gloo; never a gate: ``pytest -m bench tests/bench``.

The samples are the product's own time: wall time of a round less what its ranks measured.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count, cycle

import pytest
from fake_nodes import presence

from collbench.engine.cluster import ClusterEngine
from collbench.engine.group_plan import GroupPlan
from collbench.engine.logs import LogPlace
from collbench.engine.placement import Slots
from collbench.engine.protocol import Group, Round
from collbench.engine.reception import Guest
from collbench.model import Case, Policy, Status, Topology
from collbench.probe.watch import HardwareWatch

pytestmark = pytest.mark.bench

ALL = (0, 1, 2, 3)


@pytest.fixture
def engine(tmp_path):
    """Makes an engine of so many Gloo ranks on this machine; it ends with the test."""
    made: list[ClusterEngine] = []

    def make(ranks: int, policy: Policy) -> ClusterEngine:
        slots = Slots(backend="gloo", world_size=ranks)
        own = presence(0, 1, slots=slots)
        made.append(
            ClusterEngine(
                loop=asyncio.new_event_loop(),
                topology=Topology(nodes=[own.hardware], ranks=slots.places(own.node)),
                guests=[Guest(own, "127.0.0.1")],
                reception=None,
                plan=GroupPlan(
                    backend="gloo",
                    library=None,
                    plant=None,
                    quiet={},
                    init_deadline_s=policy.init_deadline_s,
                ),
                via="torch",
                swept=(),
                policy=policy,
                logs=LogPlace(tmp_path),
                environ={},
                own_variables={},
                watch=HardwareWatch(root=tmp_path),
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


ONE_SAMPLE = Policy(samples=1, warmup=1, check=False, proof=False)


def case(count: int, world_size: int) -> Case:
    return Case(
        collective="all_reduce",
        backend="gloo",
        dtype="float32",
        redop="sum",
        size_bytes=4 * count,
        requested_bytes=4 * count,
        count=count,
        world_size=world_size,
        in_place=True,
    )


def overhead_s(engine: ClusterEngine, *groups: Group, repeat: int = 0) -> float:
    """Runs groups at once; returns the wall time on top of what they measured on average."""
    start_s = time.perf_counter()
    found = list(engine.run(Round(repeat=repeat, groups=groups)))
    wall_s = time.perf_counter() - start_s
    assert {outcome.trial.status for outcome in found} == {Status.OK}
    timed_us = sum(outcome.times_us.max(axis=0).sum() for outcome in found)
    return wall_s - float(timed_us) / 1e6 / len(groups)


def test_the_first_group_of_a_run(reported, engine):
    here = engine(4, ONE_SAMPLE)
    reported(lambda: overhead_s(here, Group(ranks=ALL, cases=(case(1, 4),))), rounds=1)


def test_the_same_group_once_more(reported, engine):
    here = engine(4, ONE_SAMPLE)
    group = Group(ranks=ALL, cases=(case(1, 4),))
    reported(lambda: overhead_s(here, group), rounds=20, warmup_rounds=1)


def test_a_new_group_in_living_workers(reported, engine):
    """The same four ranks in another order are another group: their workers join anew."""
    here = engine(4, ONE_SAMPLE)
    groups = cycle(Group(ranks=ranks, cases=(case(1, 4),)) for ranks in (ALL, ALL[::-1]))
    reported(lambda: overhead_s(here, next(groups)), rounds=10, warmup_rounds=1)


def test_a_group_in_fresh_workers_of_a_fresh_zygote(reported, engine):
    here = engine(4, ONE_SAMPLE)
    group, repeats = Group(ranks=ALL, cases=(case(1, 4),)), count()
    reported(lambda: overhead_s(here, group, repeat=next(repeats)), rounds=5, warmup_rounds=1)


def test_a_round_of_four_pairs(reported, engine):
    here = engine(8, ONE_SAMPLE)
    groups = [Group(ranks=(rank, rank + 4), cases=(case(1, 2),)) for rank in range(4)]
    reported(lambda: overhead_s(here, *groups), rounds=20, warmup_rounds=1)


def test_a_trial_of_50_samples(reported, engine):
    """A hundredth of a group of 100 cases: no worker starts and no group meets in it."""
    here = engine(4, Policy(samples=50, warmup=5, check=True, proof=False))
    cases = tuple(case(1000 * number, 4) for number in range(1, 101))
    overhead_s(here, Group(ranks=ALL, cases=cases[:1]))
    whole = Group(ranks=ALL, cases=cases)
    reported(lambda: overhead_s(here, whole) / len(cases), rounds=3)
