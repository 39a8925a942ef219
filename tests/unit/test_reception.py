"""The meeting at node 0: who takes part, who does not, and when a station is lost."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
from fake_engine import round_of
from fake_nodes import SECRET, Town, differing, names, presence
from setting_cases import made_case

import collbench.engine.controller as controller
import collbench.engine.reception as reception
from collbench.engine.link import connect
from collbench.engine.meet import total_slots
from collbench.engine.place_notes import loopback_note
from collbench.engine.placement import Slots
from collbench.engine.protocol import Group, Round
from collbench.engine.reception import Admitted, NotAdmitted
from collbench.errors import NothingMeasured, UsageError
from collbench.model import Gpu, NodeState, ReasonCode, Status


@pytest.fixture(autouse=True)
def _no_signal(monkeypatch):
    """Nobody cancels these runs: a signal is not waited for."""
    monkeypatch.setattr(controller, "_SIGNAL_WAIT_S", 0.0)


@pytest.fixture
def town(tmp_path):
    """Makes node 0 of so many processes; all that is left ends with the test."""
    made = []

    def make(processes, **own):
        made.append(Town(tmp_path, processes, **own))
        return made[-1]

    yield make
    for one in made:
        one.close()


def gloo_case(number=1, world_size=2):
    case = made_case(number, {}, backend="gloo")
    return msgspec.structs.replace(case, world_size=world_size)


def states(met):
    return {node.name: node.state for node in met.topology.nodes}


# Who comes


def test_eight_meet_in_the_order_of_their_processes_and_run_together(town):
    here = town(8)
    for process in (5, 3, 7, 1, 6, 2, 4):
        here.agent(process)
    met = here.meet()
    engine = here.engine(met)
    outcomes = list(engine.run(round_of([gloo_case(world_size=8)], ranks=range(8))))
    engine.close()

    assert names(met.guests) == [f"n{number}" for number in range(8)]
    assert [(place.rank, place.node) for place in met.topology.ranks] == [
        (number, f"n{number}") for number in range(8)
    ]
    assert (met.remarks, set(states(met).values())) == ([], {NodeState.PRESENT})
    assert [outcome.trial.status for outcome in outcomes] == [Status.OK]
    assert outcomes[0].times_us.shape == (8, 20)
    assert here.ended(*range(1, 8)) == [None] * 7
    assert all(station.closed for number, station in here.stations.items() if number)


def test_several_processes_of_a_node_stand_together(town):
    here = town(4, slots=Slots(backend="gloo", world_size=2))
    here.agent(1, node="b")
    here.agent(2, node="n0", local_process=1, slots=Slots(backend="gloo", world_size=2))
    here.agent(3, node="b", local_process=1)
    met = here.meet()

    assert [(p.rank, p.node, p.local_rank) for p in met.topology.ranks] == [
        (0, "n0", 0),
        (1, "n0", 1),
        (2, "n0", 2),
        (3, "n0", 3),
        (4, "b", 0),
        (5, "b", 1),
    ]


def test_the_same_identity_twice_is_an_error_that_names_both(town):
    here = town(4)
    here.agent(1)
    here.agent(2, node="n1")

    with pytest.raises(UsageError, match=r"process \d on n1 .* say that they are the same"):
        here.meet()


def test_two_on_one_gpu_are_refused(town):
    gpu = Gpu(index=0, name="NVIDIA H200", uuid="GPU-0", pci_bus_id="", memory_bytes=1)
    shared = Slots(backend="nccl", world_size=1, gpus=(gpu,))
    here = town(2, slots=shared)
    here.agent(1, slots=shared)

    with pytest.raises(UsageError, match=r"have the same GPU \(GPU-0\)"):
        here.meet()


@pytest.mark.parametrize(
    ("processes", "nodes", "note"),
    [
        (1, 1, "NO GPU: CPU loopback over Gloo, 1 rank; says nothing about a cluster"),
        (2, 1, "NO GPU: CPU loopback over Gloo, 2 ranks; says nothing about a cluster"),
        (2, 2, "NO GPU: CPUs over Gloo, 2 ranks on 2 nodes"),
    ],
)
def test_the_first_line_counts_the_ranks_of_all_processes(town, processes, nodes, note):
    own = loopback_note("NO GPU", 1)
    slots = Slots(backend="gloo", world_size=1, note=own)
    here = town(processes, slots=slots)
    for process in range(1, processes):
        here.agent(process, node=f"n{process % nodes}", local_process=process // nodes, slots=slots)

    assert total_slots(here.meet().guests).note == note


# Who does not


def test_it_is_said_how_many_are_here_while_others_are_waited_for(town, monkeypatch, capsys):
    monkeypatch.setattr(reception, "_TOLD_EVERY_S", 0.0)
    here = town(3)
    here.agent(1)
    with pytest.raises(NothingMeasured):
        here.meet(wait_s=0.5)

    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "collbench: 2 of 3 here"
    assert set(said) <= {"collbench: 1 of 3 here", "collbench: 2 of 3 here"}


PROBLEM = "a GPU is promised but none can be used: on PCI: none"


def test_a_node_whose_gpu_cannot_be_used_is_left_out_and_the_others_go_on(town):
    here = town(4)
    here.agent(1)
    here.agent(2, gpu_problem=PROBLEM, slots=Slots(backend="nccl", world_size=0))
    here.agent(3, node="n2", local_process=1)
    met = here.meet()
    outcomes = list(here.engine(met).run(round_of([gloo_case()])))

    assert names(met.guests) == ["n0", "n1"], "all processes of that node are left out"
    assert met.remarks == [f"n2 is left out: {PROBLEM}"]
    assert states(met) == {
        "n0": NodeState.PRESENT,
        "n1": NodeState.PRESENT,
        "n2": NodeState.GPU_MISSING,
    }
    assert here.ended(2, 3) == [f"this node takes no part: {PROBLEM}"] * 2
    assert [outcome.trial.status for outcome in outcomes] == [Status.OK]


@pytest.mark.parametrize(
    ("node", "options", "words"),
    [
        ("n1", {"strict": True}, rf"^--strict, and nodes differ: n1: {PROBLEM}$"),
        ("n0", {}, rf"^n0, which is node 0: {PROBLEM}$"),
    ],
)
def test_a_gpu_that_cannot_be_used_ends_what_cannot_do_without_it(town, node, options, words):
    here = town(2)
    here.agent(1, node=node, local_process=1, gpu_problem=PROBLEM)

    with pytest.raises(NothingMeasured, match=words):
        here.meet(**options)


def test_a_gpu_problem_of_a_node_that_is_excluded_is_nobody_s(town):
    here = town(2)
    here.agent(1, gpu_problem=PROBLEM)

    assert here.meet(exclude=("n1",), strict=True).remarks == ["excluded: n1 (--exclude)"]


def test_without_min_nodes_everybody_has_to_come(town):
    here = town(3)
    here.agent(1)

    with pytest.raises(
        NothingMeasured, match=r"^1 of 3 did not come within 1 s: process 2; look at their output"
    ):
        here.meet(wait_s=1.0)


@pytest.mark.parametrize("least", [2, 3])
def test_min_nodes_says_how_many_have_to_be_there(town, least):
    here = town(3)
    here.agent(1)
    if least == 3:
        with pytest.raises(NothingMeasured, match=r"^2 nodes are here, --min-nodes asks for 3"):
            here.meet(wait_s=1.0, min_nodes=least)
        return
    met = here.meet(wait_s=1.0, min_nodes=least)

    assert names(met.guests) == ["n0", "n1"]
    assert met.remarks == ["absent: process 2"]
    assert states(met)["process 2"] is NodeState.ABSENT


def test_who_comes_after_the_beginning_is_told_so(town):
    here = town(3)
    here.agent(1)
    here.meet(wait_s=1.0, min_nodes=2)
    here.agent(2)
    (problem,) = here.ended(2)

    assert isinstance(problem, NothingMeasured)
    assert str(problem) == "the run has begun without this node"


def test_an_excluded_node_is_let_go_without_a_fault(town):
    here = town(3)
    here.all_agents()
    met = here.meet(exclude=("n1",))

    assert names(met.guests) == ["n0", "n2"]
    assert met.remarks == ["excluded: n1 (--exclude)"]
    assert states(met)["n1"] is NodeState.EXCLUDED
    assert here.ended(1) == ["this node takes no part: --exclude"]


def test_node_0_itself_cannot_be_excluded(town):
    here = town(2)
    here.all_agents()

    with pytest.raises(UsageError, match="--exclude names n0, which is node 0"):
        here.meet(exclude=("n0",))


def test_a_node_with_other_versions_is_left_out_and_told_in_what_it_differs(town):
    here = town(3)
    here.agent(1)
    here.agent(2, versions=differing(torch="2.10", driver="570"))
    met = here.meet()

    why = "torch 2.10 against 2.11, driver 570 against None"
    assert names(met.guests) == ["n0", "n1"]
    assert met.remarks == [f"excluded: n2 ({why})"]
    assert here.ended(2) == [f"this node takes no part: {why}"]


def test_strict_refuses_nodes_that_differ(town):
    here = town(3)
    here.agent(1)
    here.agent(2, versions=differing(torch="2.10"))

    with pytest.raises(NothingMeasured, match=r"--strict, and nodes differ: n2: torch 2.10"):
        here.meet(strict=True)


def test_node_0_has_to_belong_to_most(town):
    here = town(3, versions=differing(torch="2.10"))
    here.all_agents()

    with pytest.raises(NothingMeasured, match=r"node 0 differs from most nodes \(torch 2.10"):
        here.meet()


def test_who_waits_hears_that_the_run_does_not_begin(town):
    here = town(2)
    here.all_agents()
    here.meet()
    here.reception.dismiss("node 0 has ended before the run began")
    (problem,) = here.ended(1)

    assert str(problem) == "node 0 has ended before the run began"


@pytest.mark.parametrize(
    ("bytes_sent", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: node0\r\n\r\n", "no greeting of this program"),
        (b"", "bytes read on a total of 4"),
    ],
    ids=["another program", "a port scan"],
)
def test_a_stranger_is_turned_away_and_the_run_goes_on(town, bytes_sent, words):
    here = town(2)

    async def stranger():
        _, writer = await asyncio.open_connection(*await here.address())
        writer.write(bytes_sent)
        writer.write_eof()
        while not here.reception.turned_away:
            await asyncio.sleep(0.005)
        writer.close()
        await writer.wait_closed()
        here.agent(1)

    strange = here.loop.create_task(stranger())
    met = here.meet()
    outcomes = list(here.engine(met).run(round_of([gloo_case()])))

    assert strange.done()
    assert len(met.remarks) == 1
    assert met.remarks[0].startswith("turned away: 127.0.0.1: ")
    assert words in met.remarks[0]
    assert [outcome.trial.status for outcome in outcomes] == [Status.OK]


def test_an_agent_of_another_run_is_turned_away(town):
    here = town(2)
    here.agent(1, secret=b"of another run", wait_s=1.0)

    with pytest.raises(NothingMeasured, match="did not come"):
        here.meet(wait_s=1.5)
    (problem,) = here.ended(1)
    assert "node 0 does not answer within 1 s" in str(problem)
    assert "it does not know the run's secret" in here.reception.turned_away[0]


# Who is lost


def test_a_station_that_ends_is_a_lost_node_and_the_others_go_on(town):
    here = town(3)
    here.all_agents()
    met = here.meet()
    engine = here.engine(met)
    groups = (
        Group(ranks=(0, 1), cases=(gloo_case(1), gloo_case(2))),
        Group(ranks=(0, 2), cases=(gloo_case(3),)),
    )
    first, second = (Round(repeat=0, groups=(group,)) for group in groups)
    assert [outcome.trial.status for outcome in engine.run(first)] == [Status.OK] * 2
    here.agents[1].cancel()
    here.ended(1)
    lost = [outcome.trial for outcome in engine.run(first)]
    others = [outcome.trial for outcome in engine.run(second)]

    assert [trial.status for trial in lost] == [Status.NODE_LOST, Status.SKIPPED]
    assert {trial.reason.code for trial in lost} == {ReasonCode.NODE_LOST}
    assert lost[0].reason.text.startswith("n1 is lost: its connection ended (")
    assert [trial.status for trial in others] == [Status.OK]
    assert [node.state for node in engine.facts().topology.nodes] == [
        NodeState.PRESENT,
        NodeState.LOST,
        NodeState.PRESENT,
    ]


def test_of_several_processes_of_a_node_the_lost_one_is_named(town):
    here = town(2)
    here.agent(1, node="n0", local_process=1)
    engine = here.engine(here.meet())
    assert [o.trial.status for o in engine.run(round_of([gloo_case()]))] == [Status.OK]
    here.agents[1].cancel()
    here.ended(1)
    (lost,) = [outcome.trial for outcome in engine.run(round_of([gloo_case()]))]

    assert lost.status is Status.NODE_LOST
    assert lost.reason.text.startswith("process 1 on n0 is lost: its connection ended (")
    assert [(culprit.rank, culprit.node) for culprit in lost.culprits] == [(1, "n0")]


def test_a_station_without_a_word_is_lost_after_a_few_heartbeats(town, monkeypatch):
    monkeypatch.setattr(reception, "HEARTBEAT_S", 0.05)
    here = town(2)
    beats = 0

    async def silent():
        nonlocal beats
        reader, writer = await asyncio.open_connection(*await here.address())
        link = await connect(reader, writer, SECRET)
        link.send(presence(1, 2))
        answer = msgspec.json.decode(await link.receive(), type=Admitted | NotAdmitted)
        assert isinstance(answer, Admitted)
        with contextlib.suppress(reception.LinkLost):
            while await link.receive():
                beats += 1
        link.close()

    mute = here.loop.create_task(silent())
    met = here.meet()
    engine = here.engine(met)
    lost = [outcome.trial for outcome in engine.run(round_of([gloo_case()]))]
    here.run(mute)

    assert [trial.status for trial in lost] == [Status.NODE_LOST]
    assert lost[0].reason.text == "n1 is lost: no word from it for 0 s"
    assert beats > reception.MISSED_BEATS


def test_a_station_that_only_beats_is_not_lost(town, monkeypatch):
    monkeypatch.setattr(reception, "HEARTBEAT_S", 0.005)
    monkeypatch.setattr("collbench.engine.agent.HEARTBEAT_S", 0.005)
    here = town(2)
    here.all_agents()
    engine = here.engine(here.meet())
    here.run(asyncio.sleep(0.1))  # 20 beats

    assert [o.trial.status for o in engine.run(round_of([gloo_case()]))] == [Status.OK]
