"""Many nodes at once, in one process: they meet, run in pairs, and one that is lost is noticed."""

from __future__ import annotations

import time

import msgspec
import pytest
from fake_nodes import Town, names
from setting_cases import made_case

import collbench.engine.controller as controller
from collbench.engine.logs import LogPlace
from collbench.engine.processes import Zygote
from collbench.engine.protocol import Group, Round
from collbench.engine.ready import readable
from collbench.model import NodeState, Status


@pytest.fixture(autouse=True)
def _no_signal(monkeypatch):
    """Nobody cancels these runs: a signal is not waited for."""
    monkeypatch.setattr(controller, "_SIGNAL_WAIT_S", 0.0)


@pytest.fixture
def town(tmp_path):
    """Makes node 0 of so many processes; all that is left ends with the test."""
    made = []

    def make(processes):
        made.append(Town(tmp_path, processes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def pairs(nodes: int) -> Round:
    """Every node with the one that is half of them away, all at the same time."""
    case = msgspec.structs.replace(made_case(1, {}, backend="gloo"), world_size=2)
    half = nodes // 2
    groups = tuple(Group(ranks=(rank, rank + half), cases=(case,)) for rank in range(half))
    return Round(repeat=0, groups=groups)


def whole(nodes: int) -> Round:
    case = msgspec.structs.replace(made_case(2, {}, backend="gloo"), world_size=nodes)
    return Round(repeat=0, groups=(Group(ranks=tuple(range(nodes)), cases=(case,)),))


def timed(work):
    start_s = time.perf_counter()
    return work(), time.perf_counter() - start_s


def import_s() -> float:
    """What every node's one zygote takes before it forks: the workers here are none of its."""
    zygote = Zygote("torch", {}, LogPlace(None), 120.0)
    try:
        readable([zygote], 120.0)
        zygote.take_ready()
        return zygote.import_s
    finally:
        zygote.close()


@pytest.mark.parametrize(
    "nodes", [32, pytest.param(256, marks=pytest.mark.soak)], ids=["32 nodes", "256 nodes"]
)
def test_many_meet_run_in_pairs_and_lose_one(town, request, nodes):
    here = town(nodes)
    here.all_agents()
    met, meeting_s = timed(lambda: here.meet(wait_s=120.0))
    assert names(met.guests) == [f"n{number}" for number in range(nodes)]
    engine = here.engine(met)

    found, first_s = timed(lambda: list(engine.run(pairs(nodes))))
    assert [outcome.trial.status for outcome in found] == [Status.OK] * (nodes // 2)
    found, again_s = timed(lambda: list(engine.run(pairs(nodes))))
    assert [outcome.trial.status for outcome in found] == [Status.OK] * (nodes // 2)
    assert engine.facts().workers == nodes, "the pairs' workers were kept"
    found, whole_s = timed(lambda: list(engine.run(whole(nodes))))
    assert [outcome.times_us.shape for outcome in found] == [(nodes, 20)]
    assert engine.facts().workers == nodes, "and form one group of all"
    found, gathering_s = timed(lambda: list(engine.run(whole(nodes))))
    assert [outcome.trial.status for outcome in found] == [Status.OK]

    lost = nodes - 1
    here.agents[lost].cancel()
    here.ended(lost)
    found, after_s = timed(lambda: list(engine.run(pairs(nodes))))
    by_status = {outcome.trial.status: outcome.trial for outcome in found}
    statuses = [outcome.trial.status for outcome in found]
    assert statuses.count(Status.OK) == nodes // 2 - 1
    assert [culprit.node for culprit in by_status[Status.NODE_LOST].culprits] == [f"n{lost}"]
    assert engine.facts().topology.nodes[lost].state is NodeState.LOST

    if "soak" in (request.config.option.markexpr or ""):
        print(
            f"\n{nodes} nodes: imports of a real zygote {import_s():.3f} s, meeting"
            f" {meeting_s:.3f} s, a round of {nodes // 2} pairs at once {first_s:.3f} s with their"
            f" start, {again_s:.3f} s in living workers, one group of all {whole_s:.3f} s with its"
            f" forming, gathering the answers of all {gathering_s:.3f} s, pairs without the lost"
            f" one {after_s:.3f} s"
        )


def test_the_end_of_node_0_is_the_end_of_all(town):
    here = town(16)
    here.all_agents()
    here.engine(here.meet()).close()

    assert here.ended(*range(1, 16)) == [None] * 15
    assert all(here.stations[process].closed for process in range(1, 16))
