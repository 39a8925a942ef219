"""Who is named for a fault, judged on real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable

import pytest

from collbench.engine.faults import crashed, hung, raised
from collbench.engine.processes import WorkerProcess
from collbench.engine.progress import SharedProgress, create_progress_file
from collbench.engine.wire import Channel, FromWorker
from collbench.measure.protocols import Phase
from collbench.model import ReasonCode, Status

MakeWorker = Callable[..., WorkerProcess]


@pytest.fixture
def worker(tmp_path):
    """Makes workers of sleeping processes: by rank, calls issued, phase."""
    made: list[tuple[subprocess.Popen[bytes], WorkerProcess]] = []

    def make(rank: int, calls: int = 0, phase: Phase = Phase.SAMPLING, gpu: int | None = None):
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        ours, theirs = socket.socketpair()
        theirs.close()
        descriptor = create_progress_file()
        progress = SharedProgress(descriptor)
        os.close(descriptor)
        progress.phase(phase)
        for _ in range(calls):
            progress.tick()
        log = tmp_path / f"rank{rank}.log"
        log.write_text("".join(f"line {i}\n" for i in range(15)))
        found = WorkerProcess(
            rank=rank,
            pid=process.pid,
            pidfd=os.pidfd_open(process.pid),
            channel=Channel(ours, FromWorker),
            progress=progress,
            log=log,
            gpu=gpu,
        )
        made.append((process, found))
        return found

    yield make
    for process, found in made:
        process.kill()
        process.wait()
        found.close()


def stop(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    os.waitpid(worker.pid, os.WUNTRACED)  # returns once it is stopped


def test_a_stopped_process_is_named(worker: MakeWorker):
    workers = [worker(0, 12), worker(1, 12, gpu=3), worker(2, 12)]
    stop(workers[1])
    fault = hung(workers, workers, 60.4, ReasonCode.NO_PROGRESS, "here")

    assert fault.status is Status.HUNG
    assert fault.reason.code is ReasonCode.NO_PROGRESS
    assert fault.reason.text == (
        f"rank 1 (pid {workers[1].pid}) stopped (process state T: SIGSTOP or a debugger),"
        " in call 12; no progress for 60 s"
    )
    (culprit,) = fault.culprits
    assert (culprit.rank, culprit.node, culprit.local_rank, culprit.gpu) == (1, "here", 1, 3)
    assert (culprit.pid, culprit.calls) == (workers[1].pid, 12)
    assert culprit.what == "stopped (process state T: SIGSTOP or a debugger)"
    assert culprit.evidence == ["process state T", "phase sampling"]
    assert culprit.log_tail == [f"line {i}" for i in range(5, 15)]


def test_a_stopped_process_is_named_before_one_that_is_behind(worker: MakeWorker):
    workers = [worker(0, 12), worker(1, 13), worker(2, 11)]
    stop(workers[1])

    fault = hung(workers, workers, 60, ReasonCode.NO_PROGRESS, "here")
    assert [culprit.rank for culprit in fault.culprits] == [1]


def test_the_rank_behind_is_named(worker: MakeWorker):
    workers = [worker(0, 13), worker(1, 13), worker(2, 12)]
    fault = hung(workers, workers, 60, ReasonCode.NO_PROGRESS, "here")

    assert fault.reason.text == (
        f"rank 2 (pid {workers[2].pid}) behind: the others are in call 13, in call 12;"
        " no progress for 60 s"
    )
    (culprit,) = fault.culprits
    assert (culprit.rank, culprit.calls) == (2, 12)
    assert culprit.evidence[0].removeprefix("process state ") in ("R", "S", "D")


def test_a_rank_that_has_answered_is_not_behind(worker: MakeWorker):
    workers = [worker(0, 13), worker(1, 5), worker(2, 12)]
    fault = hung(workers, [workers[0], workers[2]], 60, ReasonCode.NO_PROGRESS, "here")

    assert [culprit.rank for culprit in fault.culprits] == [2]


def test_where_no_rank_is_behind_none_is_named_and_it_says_so(worker: MakeWorker):
    workers = [worker(0, 12), worker(1, 12)]
    fault = hung(workers, workers, 200, ReasonCode.NO_PROGRESS, "here")

    assert fault.culprits == ()
    assert fault.reason.text == (
        "no rank is behind: all are in call 12; no progress for 3 min 20 s"
    )


def test_a_group_that_does_not_form_names_who_is_not_ready(worker: MakeWorker):
    workers = [worker(rank, phase=Phase.JOINING) for rank in range(3)]
    fault = hung(workers, workers[1:], 120, ReasonCode.NO_START, "here")

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
def test_a_dead_worker_is_named_with_how_it_died(worker: MakeWorker, exit_status, code, what):
    dead = worker(1, 7)
    statuses = {} if exit_status is None else {dead.pid: exit_status}
    fault = crashed([dead], statuses, "here")

    assert fault.status is Status.CRASHED
    assert fault.reason.code is code
    assert fault.reason.text == f"rank 1 (pid {dead.pid}) {what} in call 7"
    assert [(culprit.rank, culprit.what) for culprit in fault.culprits] == [(1, what)]


def test_several_dead_workers_are_all_named(worker: MakeWorker):
    dead = [worker(0, 3), worker(2, 4)]
    fault = crashed(dead, {dead[0].pid: 1, dead[1].pid: -9}, "here")

    assert fault.reason.code is ReasonCode.KILLED
    assert fault.reason.text == (
        f"rank 0 (pid {dead[0].pid}) dead: exit status 1 in call 3;"
        f" rank 2 (pid {dead[1].pid}) dead: SIGKILL in call 4"
    )
    assert [culprit.rank for culprit in fault.culprits] == [0, 2]


def test_a_rank_that_raised_is_named_with_its_words(worker: MakeWorker):
    guilty = worker(1, 12)
    fault = raised({guilty: "ValueError: no"}, refused_by_all=False, node="here")

    assert fault.status is Status.FAILED
    assert fault.reason.code is ReasonCode.RAISED
    assert fault.reason.text == "rank 1 raised ValueError: no"
    assert [(c.rank, c.what) for c in fault.culprits] == [(1, "raised ValueError: no")]


def test_several_ranks_that_raised_are_named_with_the_first_words(worker: MakeWorker):
    texts = {worker(0): "RuntimeError: a", worker(2): "RuntimeError: b"}
    fault = raised(texts, refused_by_all=False, node="here")

    assert fault.reason.text == "ranks 0, 2 raised RuntimeError: a"
    assert [c.what for c in fault.culprits] == ["raised RuntimeError: a", "raised RuntimeError: b"]


def test_what_all_ranks_are_refused_is_unsupported_and_nobodys_fault(worker: MakeWorker):
    texts = {worker(0): "RuntimeError: not supported", worker(1): "RuntimeError: not supported"}
    fault = raised(texts, refused_by_all=True, node="here")

    assert fault.status is Status.UNSUPPORTED
    assert fault.reason.code is ReasonCode.REFUSED
    assert fault.reason.text == "RuntimeError: not supported"
    assert fault.culprits == ()


def test_the_state_of_a_process_that_has_gone_is_unknown(worker: MakeWorker):
    gone = worker(0)
    os.kill(gone.pid, signal.SIGKILL)
    os.waitpid(gone.pid, 0)

    assert gone.state() == "?"
    assert not gone.alive
