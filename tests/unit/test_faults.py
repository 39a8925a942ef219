"""Who is named for a fault, and what shows it."""

from __future__ import annotations

import pytest
from made_seats import LINES, dead, post, worker

from collbench.engine.faults import crashed, hung, node_lost, raised
from collbench.measure.protocols import Phase
from collbench.model import ReasonCode, Status


def test_a_stopped_process_is_named():
    workers = [worker(0, 12), worker(1, 12, gpu=3, state="T"), worker(2, 12)]
    fault = hung(workers, workers, 60.4, ReasonCode.NO_PROGRESS)

    assert fault.status is Status.HUNG
    assert fault.reason.code is ReasonCode.NO_PROGRESS
    assert fault.reason.text == (
        "rank 1 (pid 1001) stopped (process state T: SIGSTOP or a debugger),"
        " in call 12; no progress for 60 s"
    )
    (culprit,) = fault.culprits
    assert (culprit.rank, culprit.node, culprit.local_rank, culprit.gpu) == (1, "here", 1, 3)
    assert (culprit.pid, culprit.calls) == (workers[1].pid, 12)
    assert culprit.what == "stopped (process state T: SIGSTOP or a debugger)"
    assert culprit.evidence == ["process state T", "phase sampling"]
    assert culprit.log_tail == LINES


def test_a_stopped_process_is_named_before_one_that_is_behind():
    workers = [worker(0, 12), worker(1, 13, state="T"), worker(2, 11)]
    fault = hung(workers, workers, 60, ReasonCode.NO_PROGRESS)
    assert [culprit.rank for culprit in fault.culprits] == [1]


def test_the_rank_behind_is_named():
    workers = [worker(0, 13), worker(1, 13), worker(2, 12)]
    fault = hung(workers, workers, 60, ReasonCode.NO_PROGRESS)

    assert fault.reason.text == (
        "rank 2 (pid 1002) behind: the others are in call 13, in call 12; no progress for 60 s"
    )
    (culprit,) = fault.culprits
    assert (culprit.rank, culprit.calls) == (2, 12)
    assert culprit.evidence == ["process state S", "phase sampling"]


def test_a_rank_that_has_answered_is_not_behind():
    workers = [worker(0, 13), worker(1, 5), worker(2, 12)]
    fault = hung(workers, [workers[0], workers[2]], 60, ReasonCode.NO_PROGRESS)

    assert [culprit.rank for culprit in fault.culprits] == [2]


def test_where_no_rank_is_behind_none_is_named_and_it_says_so():
    workers = [worker(0, 12), worker(1, 12)]
    fault = hung(workers, workers, 200, ReasonCode.NO_PROGRESS)

    assert fault.culprits == ()
    assert fault.reason.text == (
        "no rank is behind: all are in call 12; no progress for 3 min 20 s"
    )


def test_a_group_that_does_not_form_names_who_is_not_ready():
    workers = [worker(rank, phase=Phase.JOINING) for rank in range(3)]
    fault = hung(workers, workers[1:], 120, ReasonCode.NO_START)

    assert fault.status is Status.HUNG
    assert fault.reason.code is ReasonCode.NO_START
    assert fault.reason.text == "not ready: rank 1, 2; no progress for 2 min 00 s"


@pytest.mark.parametrize(
    ("exit_status", "code", "what"),
    [
        (-9, ReasonCode.KILLED, "dead: SIGKILL"),
        (-11, ReasonCode.KILLED, "dead: SIGSEGV"),
        (-40, ReasonCode.KILLED, "dead: signal 40"),
        (1, ReasonCode.EXITED, "dead: exit status 1"),
        (None, ReasonCode.EXITED, "dead: cause unknown"),
    ],
)
def test_a_dead_worker_is_named_with_how_it_died(exit_status, code, what):
    fault = crashed([dead(1, 7, exit_status)])

    assert fault.status is Status.CRASHED
    assert fault.reason.code is code
    assert fault.reason.text == f"rank 1 (pid 1001) {what} in call 7"
    assert [(culprit.rank, culprit.what) for culprit in fault.culprits] == [(1, what)]
    assert fault.culprits[0].log_tail == ["last"]


def test_several_dead_workers_are_all_named():
    fault = crashed([dead(0, 3, 1), dead(2, 4, -9)])

    assert fault.reason.code is ReasonCode.KILLED
    assert fault.reason.text == (
        "rank 0 (pid 1000) dead: exit status 1 in call 3; rank 2 (pid 1002) dead: SIGKILL in call 4"
    )
    assert [culprit.rank for culprit in fault.culprits] == [0, 2]


def test_where_there_are_several_nodes_theirs_is_named():
    elsewhere = post("n7", shown=True)

    assert crashed([dead(9, 7, -9, at=elsewhere)]).reason.text == (
        "rank 9 (pid 1009 on n7) dead: SIGKILL in call 7"
    )
    workers = [worker(0, 12), worker(1, 11, at=elsewhere)]
    fault = hung(workers, workers, 60, ReasonCode.NO_PROGRESS)
    assert fault.reason.text == (
        "rank 1 (pid 1001 on n7) behind: the others are in call 12, in call 11;"
        " no progress for 60 s"
    )


def test_what_nccl_s_own_watch_says_is_evidence():
    workers = [worker(0, 12), worker(1, 12, state="T", evidence=["NCCL RAS: INCOMPLETE"])]
    (culprit,) = hung(workers, workers, 60, ReasonCode.NO_PROGRESS).culprits

    assert culprit.evidence == ["process state T", "phase sampling", "NCCL RAS: INCOMPLETE"]


def test_a_lost_node_is_named_once_with_all_its_ranks():
    far, farther = post("n1", lost="no word from it for 10 s"), post("n2", lost="its link ended")
    fault = node_lost([worker(2, at=far), worker(3, at=far), worker(4, at=farther)])

    assert fault.status is Status.NODE_LOST
    assert fault.reason.code is ReasonCode.NODE_LOST
    assert fault.reason.text == "n1 is lost: no word from it for 10 s; n2 is lost: its link ended"
    assert [(c.rank, c.node, c.what) for c in fault.culprits] == [
        (2, "n1", "its node is lost: no word from it for 10 s"),
        (3, "n1", "its node is lost: no word from it for 10 s"),
        (4, "n2", "its node is lost: its link ended"),
    ]


def test_a_rank_that_raised_is_named_with_its_words():
    guilty = worker(1, 12)
    fault = raised({guilty: "ValueError: no"}, refused_by_all=False)

    assert fault.status is Status.FAILED
    assert fault.reason.code is ReasonCode.RAISED
    assert fault.reason.text == "rank 1 raised ValueError: no"
    assert [(c.rank, c.what) for c in fault.culprits] == [(1, "raised ValueError: no")]


def test_several_ranks_that_raised_are_named_with_the_first_words():
    texts = {worker(0): "RuntimeError: a", worker(2): "RuntimeError: b"}
    fault = raised(texts, refused_by_all=False)

    assert fault.reason.text == "ranks 0, 2 raised RuntimeError: a"
    assert [c.what for c in fault.culprits] == ["raised RuntimeError: a", "raised RuntimeError: b"]


def test_what_all_ranks_are_refused_is_unsupported_and_nobodys_fault():
    texts = {worker(0): "RuntimeError: not supported", worker(1): "RuntimeError: not supported"}
    fault = raised(texts, refused_by_all=True)

    assert fault.status is Status.UNSUPPORTED
    assert fault.reason.code is ReasonCode.REFUSED
    assert fault.reason.text == "RuntimeError: not supported"
    assert fault.culprits == ()


def test_a_worker_that_nobody_has_looked_at_is_of_unknown_state():
    seat = worker(0)
    seat.seen = None

    assert (seat.state(), seat.log_tail()) == ("?", [])
