"""From the ranks' results, or a fault, to one record."""

from __future__ import annotations

from datetime import datetime

import msgspec
import numpy as np
import pytest

from collbench.engine.faults import Fault
from collbench.engine.merge import merge_results, trial_without_result
from collbench.measure.loop import RankResult
from collbench.model import (
    Case,
    Culprit,
    Gpu,
    LibraryVersion,
    Mode,
    Node,
    Proof,
    RankPlace,
    RankProof,
    Reason,
    ReasonCode,
    Status,
    StopReason,
    Topology,
    WrongElement,
)
from collbench.notes import NOTES, notes_for

CASE = Case(
    collective="reduce_scatter",
    backend="gloo",
    dtype="float32",
    redop="sum",
    size_bytes=10**6,
    requested_bytes=10**6,
    count=125_000,
    world_size=2,
    in_place=False,
)
ON_NCCL = Case(
    collective="all_reduce",
    backend="nccl",
    dtype="float32",
    redop="sum",
    size_bytes=10**6,
    requested_bytes=10**6,
    count=250_000,
    world_size=2,
    in_place=True,
    mode=Mode.GRAPH,
    setting={"NCCL_ALGO": "Ring"},
)
LOADED = LibraryVersion(version="2.28.9")
REST = RankProof(transports=["P2P/CUMEM"])
"""Of a rank that is not the first: only that one writes down what was chosen."""


def node(name: str, gpu: int) -> Node:
    device = Gpu(
        index=gpu,
        name="NVIDIA H200",
        uuid=f"GPU-{gpu}",
        pci_bus_id="",
        memory_bytes=1,
        compute_capability="9.0",
    )
    return Node(name=name, cpu_model="", cpus=1, numa_nodes=1, memory_bytes=1, gpus=[device])


TOPOLOGY = Topology(
    nodes=[node("a", 4), node("b", 7)],
    ranks=[
        RankPlace(rank=0, node="a", local_rank=0, gpu=4),
        RankPlace(rank=1, node="b", local_rank=0, gpu=7),
    ],
)
START_S = 1_795_000_000.25
MEASURED = RankResult(
    status=Status.OK,
    stop_reason=StopReason.FIXED,
    times_us=np.array([50, 40, 60], "<f4").tobytes(),
    ops_per_sample=4,
    warmup_samples=11,
    clock="perf_counter",
    checked_elements=250_000,
    notes=["few_samples"],
)
WRONG = Reason(code=ReasonCode.WRONG_ELEMENT, text="the output differs from the known answer")


def second(**changes) -> RankResult:
    times = np.array([40, 50, 30], "<f4").tobytes()
    return msgspec.structs.replace(MEASURED, **{"times_us": times, **changes})


def merged(*results: RankResult, case: Case = CASE, **more):
    span_s = (START_S, START_S + 2.5)
    more = {"ranks": (0, 1), **more}
    return merge_results(case, 3, results, span_s, ["throttled"], TOPOLOGY, **more)


def proved(*proofs: RankProof | None, case: Case = ON_NCCL, **more):
    """The trial of ranks whose own logs show so much."""
    results = [msgspec.structs.replace(MEASURED, proof=proof) for proof in proofs]
    return merged(*results, case=case, **{"nccl": LOADED, **more}).trial


def test_a_measured_case_has_its_figures_and_its_samples():
    outcome = merged(MEASURED, second())
    trial = outcome.trial

    assert (trial.status, trial.reason, trial.stop_reason) == (Status.OK, None, StopReason.FIXED)
    assert trial.trial_id == f"{CASE.case_id}.3"
    assert (trial.case_id, trial.repeat) == (CASE.case_id, 3)
    # Slowest of each sample 50, 50, 60; 1 MB in 50 us; reduce_scatter over 2: x 1/2.
    assert trial.summary.median_us == 50
    assert trial.summary.busbw_gb_per_s == pytest.approx(10)
    assert (trial.summary.ops_per_sample, trial.summary.warmup_samples) == (4, 11)
    assert (trial.check.checked, trial.check.checked_elements) == (True, 500_000)
    assert trial.check.wrong_elements == 0
    assert trial.events == ["throttled"]
    assert datetime.fromisoformat(trial.started_at).timestamp() == START_S
    assert trial.duration_s == 2.5
    assert outcome.clock == "perf_counter"
    assert outcome.times_us.tolist() == [[50, 40, 60], [40, 50, 30]]
    assert outcome.times_us.dtype == np.float32


def test_notes_of_the_back_end_and_of_all_ranks_stand_once():
    trial = merged(MEASURED, second(notes=["few_samples", "queue_not_filled"])).trial

    assert trial.notes == [
        "few_samples",
        "gloo_reduce_scatter_sends_all_reduce",
        "queue_not_filled",
    ]
    assert set(trial.notes) <= NOTES.keys()


def test_wrong_data_are_placed_and_show_no_rate():
    wrong = WrongElement(rank=1, index=5, expected="3", got="nan", when="last")
    trial = merged(
        msgspec.structs.replace(MEASURED, status=Status.DATA_WRONG, reason=WRONG),
        second(status=Status.DATA_WRONG, reason=WRONG, wrong_elements=2, first_wrong=wrong),
    ).trial

    assert trial.status is Status.DATA_WRONG
    assert trial.reason.code is ReasonCode.WRONG_ELEMENT
    assert trial.reason.text == "rank 1, element 5, last call: expected 3, got nan"
    assert (trial.check.wrong_elements, trial.check.first_wrong) == (2, wrong)
    assert (trial.summary.median_us, trial.summary.busbw_gb_per_s) == (50, None)
    (culprit,) = trial.culprits
    assert (culprit.rank, culprit.node, culprit.gpu) == (1, "b", 7)
    assert culprit.what == "received a wrong element after its last call"


def test_a_wrong_element_of_a_group_is_placed_among_the_ranks_of_the_run():
    wrong = WrongElement(rank=0, index=5, expected="3", got="nan", when="last")
    first = msgspec.structs.replace(
        MEASURED, status=Status.DATA_WRONG, reason=WRONG, first_wrong=wrong
    )
    trial = merged(first, second(status=Status.DATA_WRONG, reason=WRONG), ranks=(1, 0)).trial

    assert trial.reason.text == "rank 1, element 5, last call: expected 3, got nan"
    assert [(c.rank, c.node, c.gpu) for c in trial.culprits] == [(1, "b", 7)]


def test_data_wrong_at_the_first_call_have_no_figures():
    wrong = WrongElement(rank=0, index=0, expected="3", got="4", when="first")
    result = RankResult(status=Status.DATA_WRONG, reason=WRONG, wrong_elements=1, first_wrong=wrong)
    outcome = merged(result, RankResult(status=Status.DATA_WRONG, reason=WRONG))

    assert (outcome.trial.summary, outcome.times_us) == (None, None)
    assert [culprit.rank for culprit in outcome.trial.culprits] == [0]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.UNSUPPORTED, ReasonCode.NO_SUCH_REDOP),
        (Status.SKIPPED, ReasonCode.NO_MEMORY),
    ],
)
def test_what_was_not_measured_keeps_its_reason(status, code):
    reason = Reason(code=code, text="why")
    outcome = merged(*[RankResult(status=status, reason=reason)] * 2)
    trial = outcome.trial

    assert (trial.status, trial.reason) == (status, reason)
    assert (trial.summary, trial.check, trial.culprits, trial.stop_reason) == (None, None, [], None)
    assert outcome.times_us is None


def test_an_unchecked_case_says_so():
    trial = merged(*[msgspec.structs.replace(MEASURED, checked_elements=0)] * 2).trial

    assert (trial.check.checked, trial.check.checked_elements) == (False, 0)


@pytest.mark.parametrize(
    ("of_ranks_us", "told_us"), [((3.5, 4.5), 4.5), ((None, 4.5), 4.5), ((None, None), None)]
)
def test_the_hosts_time_is_that_of_the_costliest_rank(of_ranks_us, told_us):
    results = [msgspec.structs.replace(MEASURED, host_us_per_call=us) for us in of_ranks_us]

    assert merged(*results).trial.summary.host_us_per_call == told_us


def test_without_logs_nothing_is_proved():
    assert merged(MEASURED, second()).trial.proof is None
    assert proved(RankProof(algorithm="Ring"), None).proof is None, (
        "half of the ranks prove nothing"
    )


def test_what_all_logs_show_is_the_proof():
    trial = proved(RankProof(algorithm="Ring", protocol="Simple"), REST)

    assert (trial.proof.algorithm, trial.proof.protocol) == ("Ring", "Simple")
    assert (trial.proof.ranks, trial.proof.twin) == (2, False)
    assert (trial.status, trial.reason) == (Status.OK, None)
    assert trial.summary.busbw_gb_per_s is not None


def test_twins_prove_for_the_ranks_that_were_timed():
    twins = [RankProof(algorithm="Ring", protocol="LL"), REST]
    trial = proved(None, None, twins=twins)

    assert (trial.proof.protocol, trial.proof.ranks, trial.proof.twin) == ("LL", 2, True)
    assert trial.status is Status.OK


def test_twins_that_could_not_run_say_why_and_cost_the_case_nothing():
    trial = proved(None, None, twins="rank 1 dead: SIGKILL")

    assert trial.proof == Proof(twin=True, problem="rank 1 dead: SIGKILL")
    assert (trial.status, trial.reason) == (Status.OK, None)


def test_another_algorithm_than_asked_for_shows_its_time_and_no_rate():
    trial = proved(RankProof(algorithm="Tree", protocol="LL"), REST)

    assert trial.status is Status.PATH_NOT_USED
    assert trial.reason.code is ReasonCode.OTHER_ALGORITHM
    assert (trial.summary.median_us, trial.summary.busbw_gb_per_s) == (50, None)
    assert trial.check.checked
    assert trial.culprits == []


def test_wrong_data_weigh_more_than_another_path():
    wrong = WrongElement(rank=1, index=5, expected="3", got="nan", when="last")
    results = [
        msgspec.structs.replace(
            MEASURED,
            status=Status.DATA_WRONG,
            reason=WRONG,
            first_wrong=wrong,
            proof=RankProof(algorithm="Tree"),
        )
    ] * 2
    trial = merged(*results, case=ON_NCCL, nccl=LOADED).trial

    assert trial.status is Status.DATA_WRONG
    assert trial.reason.code is ReasonCode.WRONG_ELEMENT


def test_ll128_where_nccl_leaves_it_off_is_noted():
    case = msgspec.structs.replace(ON_NCCL, setting={"NCCL_PROTO": "LL128"})
    own = RankProof(algorithm="Ring", protocol="LL128", nodes=1, intra_path="SYS")
    trial = proved(own, own, case=case)

    assert trial.status is Status.OK
    assert trial.notes == ["few_samples", "ll128_forced"]
    assert set(trial.notes) <= NOTES.keys()


def test_a_library_that_is_not_known_is_not_judged():
    trial = proved(RankProof(algorithm="Tree"), REST, nccl=None)

    assert (trial.status, trial.proof.algorithm) == (Status.OK, "Tree")


def test_a_fault_becomes_a_record_without_figures():
    culprit = Culprit(rank=1, node="b", local_rank=0, pid=7, calls=3, what="dead: SIGKILL")
    reason = Reason(code=ReasonCode.KILLED, text="rank 1 dead")
    trial = trial_without_result(CASE, 2, Fault(Status.CRASHED, reason, (culprit,)), START_S)

    assert (trial.trial_id, trial.repeat) == (f"{CASE.case_id}.2", 2)
    assert (trial.status, trial.reason, trial.culprits) == (Status.CRASHED, reason, [culprit])
    assert trial.notes == ["gloo_reduce_scatter_sends_all_reduce"]
    assert (trial.summary, trial.check, trial.samples) == (None, None, None)
    assert datetime.fromisoformat(trial.started_at).timestamp() == START_S


@pytest.mark.parametrize(
    ("collective", "world_size", "codes"),
    [
        ("all_reduce", 2, []),
        ("all_gather", 2, ["gloo_pair_half_duplex"]),
        ("all_gather", 4, []),
        ("reduce_scatter", 4, ["gloo_reduce_scatter_sends_all_reduce"]),
        ("broadcast", 4, ["gloo_broadcast_unpipelined"]),
        ("all_to_all", 4, ["gloo_all_to_all_half_duplex"]),
        ("send_recv", 4, ["gloo_pair_half_duplex"]),
    ],
)
def test_what_gloo_really_does_is_noted_and_of_nccl_nothing(collective, world_size, codes):
    case = msgspec.structs.replace(CASE, collective=collective, world_size=world_size)

    assert notes_for(case) == codes
    assert set(codes) <= NOTES.keys()
    assert notes_for(msgspec.structs.replace(case, backend="nccl")) == []
