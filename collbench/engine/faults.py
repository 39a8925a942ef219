"""Judging what ended a case early: who, and what shows it.

Error texts name innocents (a ring's neighbours complain of each other), so they are never used to
find the culprit. What counts: whose process is gone, who raised by itself, whose process the
kernel has stopped, whose counter is behind.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.engine.processes import WorkerProcess
from collbench.measure.protocols import Phase
from collbench.model import Culprit, Reason, ReasonCode, Status
from collbench.units import format_duration


@dataclass(frozen=True)
class Fault:
    """Why a case has no result."""

    status: Status
    reason: Reason
    culprits: tuple[Culprit, ...] = ()


def crashed(dead: Sequence[WorkerProcess], exit_statuses: Mapping[int, int], node: str) -> Fault:
    """Workers have ended though nobody told them to."""
    culprits, texts, killed = [], [], False
    for worker in dead:
        status = exit_statuses.get(worker.pid)
        killed = killed or (status is not None and status < 0)
        what = f"dead: {_death(status)}"
        culprits.append(_culprit(worker, what, node))
        texts.append(f"{_who(worker)} {what} in call {_calls(worker)}")
    code = ReasonCode.KILLED if killed else ReasonCode.EXITED
    return Fault(Status.CRASHED, Reason(code=code, text="; ".join(texts)), tuple(culprits))


def raised(texts: Mapping[WorkerProcess, str], *, refused_by_all: bool, node: str) -> Fault:
    """Workers have raised. Where every rank was refused its first call, the case cannot be."""
    first = next(iter(texts.values()))
    if refused_by_all:
        return Fault(Status.UNSUPPORTED, Reason(code=ReasonCode.REFUSED, text=first))
    ranks = ", ".join(str(worker.rank) for worker in texts)
    culprits = tuple(_culprit(worker, f"raised {text}", node) for worker, text in texts.items())
    who = "rank" if len(texts) == 1 else "ranks"
    return Fault(
        Status.FAILED,
        Reason(code=ReasonCode.RAISED, text=f"{who} {ranks} raised {first}"),
        culprits,
    )


def hung(
    workers: Sequence[WorkerProcess],
    waiting_for: Sequence[WorkerProcess],
    silent_s: float,
    code: ReasonCode,
    node: str,
) -> Fault:
    """No counter has moved for the deadline."""
    still = f"no progress for {format_duration(silent_s)}"
    stopped = [worker for worker in waiting_for if worker.state() in "Tt"]
    furthest = max(_calls(worker) for worker in workers)
    behind = [worker for worker in waiting_for if _calls(worker) < furthest]
    if stopped:
        found, what = stopped, "stopped (process state T: SIGSTOP or a debugger)"
    elif behind and len(behind) < len(workers):
        found, what = behind, f"behind: the others are in call {furthest}"
    else:
        found, what = [], ""
    culprits = tuple(_culprit(worker, what, node) for worker in found)
    named = "; ".join(f"{_who(worker)} {what}, in call {_calls(worker)}" for worker in found)
    if not named:
        named = f"no rank is behind: all are in call {furthest}"
        if code is ReasonCode.NO_START:
            joining = [str(w.rank) for w in waiting_for]
            named = f"not ready: rank {', '.join(joining)}"
    return Fault(Status.HUNG, Reason(code=code, text=f"{named}; {still}"), culprits)


def _who(worker: WorkerProcess) -> str:
    return f"rank {worker.rank} (pid {worker.pid})"


def _calls(worker: WorkerProcess) -> int:
    return worker.progress.calls


def _culprit(worker: WorkerProcess, what: str, node: str) -> Culprit:
    state, phase = worker.state(), worker.progress.current
    evidence = [f"process state {state}", f"phase {Phase(phase).name.lower()}"]
    return Culprit(
        rank=worker.rank,
        node=node,
        local_rank=worker.rank,
        pid=worker.pid,
        gpu=worker.gpu,
        calls=_calls(worker),
        what=what,
        evidence=evidence,
        log_tail=worker.log_tail(),
    )


def _death(status: int | None) -> str:
    if status is None:
        return "cause unknown"
    if status >= 0:
        return f"exit status {status}"
    names = {known.value: known.name for known in signal.Signals}  # real-time signals have none
    return names.get(-status, f"signal {-status}")
