"""What the engine costs over real Gloo; printed, never a gate: ``pytest -s -m bench``."""

from __future__ import annotations

import asyncio
import time

import pytest
from fake_nodes import presence

from collbench.engine.cluster import ClusterEngine
from collbench.engine.crew import GroupPlan
from collbench.engine.logs import LogPlace
from collbench.engine.placement import Slots
from collbench.engine.protocol import Group, Round
from collbench.engine.reception import Guest
from collbench.model import Case, Policy, Status, Topology
from collbench.probe.watch import HardwareWatch

pytestmark = pytest.mark.bench

ROUNDS = 5


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


def ran(engine: ClusterEngine, *groups: Group, repeat: int = 0) -> tuple[float, float]:
    """Runs groups at once; returns the wall time and, of it, what the slowest group measured."""
    start_s = time.perf_counter()
    found = list(engine.run(Round(repeat=repeat, groups=groups)))
    wall_s = time.perf_counter() - start_s
    assert {outcome.trial.status for outcome in found} == {Status.OK}
    return wall_s, sum(o.times_us.max(axis=0).sum() for o in found) / 1e6 / len(groups)


def shown(what: str, times_s: list[float]) -> None:
    ordered = sorted(times_s)
    print(
        f"{what}: median {ordered[len(ordered) // 2] * 1e3:.1f} ms, least {ordered[0] * 1e3:.1f} ms"
    )


def test_a_group_in_living_workers_against_fresh_ones(engine):
    """The same four ranks in another order are another group: their workers join anew."""
    here = engine(4, ONE_SAMPLE)
    first_s, _ = ran(here, Group(ranks=(0, 1, 2, 3), cases=(case(1, 4),)))
    living_s, same_s, fresh_s = [], [], []
    for number in range(ROUNDS):
        for ranks in ((3, 2, 1, 0), (0, 1, 2, 3)):
            living_s.append(ran(here, Group(ranks=ranks, cases=(case(1, 4),)))[0])
        same_s.append(ran(here, Group(ranks=(0, 1, 2, 3), cases=(case(1, 4),)))[0])
        fresh_s.append(
            ran(here, Group(ranks=(0, 1, 2, 3), cases=(case(1, 4),)), repeat=number + 1)[0]
        )
        ran(here, Group(ranks=(0, 1, 2, 3), cases=(case(1, 4),)), repeat=0)
    print(f"\nthe first group of a run: {first_s:.2f} s")
    shown("a new group in living workers", living_s)
    shown("the same group once more", same_s)
    shown("a group in fresh workers of a fresh zygote", fresh_s)


def test_a_round_of_four_pairs(engine):
    here = engine(8, ONE_SAMPLE)
    groups = [Group(ranks=(rank, rank + 4), cases=(case(1, 2),)) for rank in range(4)]
    ran(here, *groups)
    overhead_s = [wall_s - timed_s for wall_s, timed_s in (ran(here, *groups) for _ in range(20))]
    print()
    shown("a round of 4 pairs on top of what it times", overhead_s)


def test_the_wall_time_of_100_cases(engine):
    here = engine(4, Policy(samples=50, warmup=5, check=True, proof=False))
    cases = tuple(case(1000 * number, 4) for number in range(1, 101))
    ran(here, Group(ranks=(0, 1, 2, 3), cases=cases[:1]))
    wall_s, timed_s = ran(here, Group(ranks=(0, 1, 2, 3), cases=cases))
    print(f"\n100 cases: {wall_s:.2f} s, of which {timed_s:.2f} s are samples")
