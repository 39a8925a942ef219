"""Judging what ended a case early: who, and what shows it.

Error texts name innocents (a ring's neighbours complain of each other), so they are never used to
find the culprit. What counts: whose process is gone, who raised by itself, whose process the
kernel has stopped, whose counter is behind.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.engine.seats import Seat
from collbench.model import Culprit, Reason, ReasonCode, Status
from collbench.units import format_duration


@dataclass(frozen=True)
class Fault:
    """Why a case has no result."""

    status: Status
    reason: Reason
    culprits: tuple[Culprit, ...] = ()


def crashed(dead: Sequence[Seat]) -> Fault:
    """Workers have ended though nobody told them to."""
    culprits, texts, killed = [], [], False
    for worker in dead:
        status = worker.died.exit_status if worker.died is not None else None
        killed = killed or (status is not None and status < 0)
        what = f"dead: {_death(status)}"
        culprits.append(_culprit(worker, what))
        texts.append(f"{_who(worker)} {what} in call {_calls(worker)}")
    code = ReasonCode.KILLED if killed else ReasonCode.EXITED
    return Fault(Status.CRASHED, Reason(code=code, text="; ".join(texts)), tuple(culprits))


def raised(texts: Mapping[Seat, str], *, refused_by_all: bool) -> Fault:
    """Workers have raised. Where every rank was refused its first call, the case cannot be."""
    texts = dict(sorted(texts.items(), key=lambda item: item[0].rank))
    first = next(iter(texts.values()))
    if refused_by_all:
        return Fault(Status.UNSUPPORTED, Reason(code=ReasonCode.REFUSED, text=first))
    ranks = ", ".join(str(worker.rank) for worker in texts)
    culprits = tuple(_culprit(worker, f"raised {text}") for worker, text in texts.items())
    who = "rank" if len(texts) == 1 else "ranks"
    return Fault(
        Status.FAILED,
        Reason(code=ReasonCode.RAISED, text=f"{who} {ranks} raised {first}"),
        culprits,
    )


def hung(
    workers: Sequence[Seat],
    waiting_for: Sequence[Seat],
    silent_s: float,
    code: ReasonCode,
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
    culprits = tuple(_culprit(worker, what) for worker in found)
    named = "; ".join(f"{_who(worker)} {what}, in call {_calls(worker)}" for worker in found)
    if not named:
        named = f"no rank is behind: all are in call {furthest}"
        if code is ReasonCode.NO_START:
            joining = [str(w.rank) for w in waiting_for]
            named = f"not ready: rank {', '.join(joining)}"
    return Fault(Status.HUNG, Reason(code=code, text=f"{named}; {still}"), culprits)


def node_lost(gone: Sequence[Seat]) -> Fault:
    """Nodes can no longer be reached, or used."""
    whys = {worker.berth.post: worker.berth.post.lost or "" for worker in gone}
    text = "; ".join(f"{post.name} is lost: {why}" for post, why in whys.items())
    culprits = tuple(
        _culprit(worker, f"its node is lost: {whys[worker.berth.post]}") for worker in gone
    )
    return Fault(Status.NODE_LOST, Reason(code=ReasonCode.NODE_LOST, text=text), culprits)


def _who(worker: Seat) -> str:
    return f"rank {worker.rank} (pid {worker.pid}{_on(worker)})"


def _on(worker: Seat) -> str:
    """Names the node, where there are several."""
    return f" on {worker.node}" if worker.berth.post.shown else ""


def _calls(worker: Seat) -> int:
    return worker.progress.calls


def _culprit(worker: Seat, what: str) -> Culprit:
    state, phase = worker.state(), worker.progress.current
    evidence = [f"process state {state}", f"phase {phase.name.lower()}", *worker.evidence]
    return Culprit(
        rank=worker.rank,
        node=worker.node,
        local_rank=worker.local_rank,
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
