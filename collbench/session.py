"""The loop of a command: plan -> engine -> store, and what every kind of end leaves behind.

Each finished trial is on disk before the next begins. However the loop ends, the run folder is
readable and says how it ended.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

import msgspec

from collbench.engine.interrupts import handling, raise_outside_tasks, undisturbed
from collbench.engine.protocol import Executor, Facts, Outcome, Round, trial_id_of
from collbench.errors import CollbenchError, ExitCode
from collbench.model import (
    Case,
    Finding,
    GroupPlace,
    Reason,
    ReasonCode,
    Run,
    Status,
    Topology,
    Trial,
)
from collbench.plan.sweep import Refused
from collbench.store import RunWriter, replace_trial
from collbench.units import utc_text

Judge = Callable[[Run, Topology, Sequence[Trial]], list[Finding]]
Settle = Callable[[ExitCode], ExitCode]
"""From how the trials ended to how the command ends: it may know more than they say."""


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM asked the command to end."""

    def __init__(self, exit_code: ExitCode) -> None:
        super().__init__()
        self.exit_code = exit_code


class Observer(Protocol):
    """Who is told how the session goes on."""

    def running(self, case: Case) -> None:
        """A case begins."""

    def finished(self, trial: Trial) -> None:
        """A trial is stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionEnd:
    """How a session ended."""

    run: Run
    trials: tuple[Trial, ...]
    findings: tuple[Finding, ...]
    exit_code: ExitCode
    kept: int
    """Trials that were measured or judged, of those planned."""
    error: str | None = None
    """Why the session stopped early, in a line."""


_EXIT_CODES = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.TERMINATED,
}


@contextmanager
def interruptible() -> Iterator[None]:
    """Turns the first SIGINT, SIGTERM or SIGHUP into ``Interrupted``; the next are ignored.

    So that an impatient second Ctrl-C does not break the tidying up that the first began.
    """
    fired = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal fired
        if not fired:
            fired = True
            raise_outside_tasks(Interrupted(_EXIT_CODES[signal.Signals(number)]))

    with handling(handle):
        yield


def run_session(
    *,
    run: Run,
    rounds: Iterable[Round],
    refused: Sequence[Refused] = (),
    executor: Executor,
    writer: RunWriter,
    observer: Observer,
    judge: Judge,
    settle: Settle = lambda status: status,
    earlier: Sequence[Trial] = (),
) -> SessionEnd:
    """Runs all rounds, stores every trial, judges, closes the run.

    Findings and exit status are of all trials, those of before and the new ones.

    Args:
        run: its header, already stored.
        rounds: what to run. The next one is asked for when all of the last one is stored and the
            observer has heard of it: so a plan may look at what came before.
        refused: cases that cannot be; recorded first.
        executor: where; it is closed at the end, whatever the end.
        writer: where trials go.
        observer: who is told.
        judge: makes findings of the trials.
        settle: called after it, with the exit status that the trials give.
        earlier: trials that the run held when it was opened again; a new one counts in the place
            of one that it is again.
    """
    trials = {trial.trial_id: trial for trial in earlier}
    begun: list[Round] = []
    try:
        stop, error = _run_rounds(
            run, _noted(rounds, begun), refused, executor, writer, observer, trials
        )
    except BaseException:
        executor.close()
        raise
    # From here on an interruption would leave a run that says it goes on.
    with undisturbed():
        executor.close()
        kept = _kept(trials)
        if error is not None:
            if isinstance(rounds, Sequence):
                begun = list(rounds)
            _record_rest(begun, trials, writer, error)
        return _closed(
            run, executor.facts(), tuple(trials.values()), writer, judge, settle, stop, error, kept
        )


def _noted(rounds: Iterable[Round], begun: list[Round]) -> Iterator[Round]:
    """Yields rounds and notes each as it is begun."""
    for round_ in rounds:
        begun.append(round_)
        yield round_


def _run_rounds(
    run: Run,
    rounds: Iterable[Round],
    refused: Sequence[Refused],
    executor: Executor,
    writer: RunWriter,
    observer: Observer,
    trials: dict[str, Trial],
) -> tuple[ExitCode | None, str | None]:
    """Runs all rounds into ``trials``; returns how and why that ended early, if it did."""
    try:
        with undisturbed():
            for item in refused:
                trial = writer.append(_refused_trial(item), None, "")
                replace_trial(trials, trial)
                observer.finished(trial)
        for round_ in rounds:
            for outcome in _watched(executor, round_, observer):
                with undisturbed():
                    trial = writer.append(outcome.trial, outcome.times_us, outcome.clock)
                    replace_trial(trials, trial)
                observer.finished(trial)
            writer.sync()
    except Interrupted as interrupt:
        text = f"interrupted; kept {_kept(trials)} of {run.planned_trials} trials"
        return interrupt.exit_code, text
    except CollbenchError as problem:
        return problem.exit_code, str(problem)
    return None, None


def _closed(
    run: Run,
    facts: Facts,
    trials: tuple[Trial, ...],
    writer: RunWriter,
    judge: Judge,
    settle: Settle,
    stop: ExitCode | None,
    error: str | None,
    kept: int,
) -> SessionEnd:
    """Judges the trials and writes how the run ended."""
    findings = judge(run, facts.topology, trials)
    exit_code = stop if stop is not None else settle(exit_code_of(trials))
    environment = msgspec.structs.replace(
        run.environment, libraries={**run.environment.libraries, **facts.libraries}
    )
    run = msgspec.structs.replace(
        run,
        environment=environment,
        ended_at=utc_text(time.time()),
        zygotes=run.zygotes + facts.zygotes,
        workers=run.workers + facts.workers,
        communicators=run.communicators + facts.communicators,
        proof_s=run.proof_s + facts.proof_s,
        exit_code=int(exit_code),
        findings=findings,
    )
    try:
        writer.update(run, facts.topology)
        writer.close()
    except CollbenchError as problem:
        error = error or str(problem)
        exit_code = stop if stop is not None else problem.exit_code
    return SessionEnd(
        run=run,
        trials=trials,
        findings=tuple(findings),
        exit_code=ExitCode(exit_code),
        kept=kept,
        error=error,
    )


def _watched(executor: Executor, round_: Round, observer: Observer) -> Iterator[Outcome]:
    """Yields a round's outcomes, telling the observer what runs before each.

    Of several groups that run at once it is told the first case of each.
    """
    outcomes = executor.run(round_)
    if len(round_.groups) > 1:
        for group in round_.groups:
            observer.running(group.cases[0])
        yield from outcomes
        return
    for case in round_.groups[0].cases:
        observer.running(case)
        yield next(outcomes)


def _kept(trials: Mapping[str, Trial]) -> int:
    """Counts the trials that were measured or judged."""
    interrupted = ReasonCode.INTERRUPTED
    return sum(t.reason is None or t.reason.code is not interrupted for t in trials.values())


def _record_rest(
    rounds: Sequence[Round], trials: dict[str, Trial], writer: RunWriter, error: str
) -> None:
    """Records what an early end left out, so that no row is missing."""
    reason = Reason(code=ReasonCode.INTERRUPTED, text=error)
    rest = [
        _unrun_trial(case, round_.repeat, Status.SKIPPED, reason, round_.place_of(group))
        for round_ in rounds
        for group in round_.groups
        for case in group.cases
        if round_.trial_id(group, case) not in trials
    ]
    # Where the disk is full as well, what was measured is what counts.
    with suppress(CollbenchError):
        for trial in [writer.append(trial, None, "") for trial in rest]:
            replace_trial(trials, trial)


def _refused_trial(item: Refused) -> Trial:
    return _unrun_trial(item.case, 0, Status.UNSUPPORTED, item.reason)


def _unrun_trial(
    case: Case, repeat: int, status: Status, reason: Reason, place: GroupPlace | None = None
) -> Trial:
    return Trial(
        trial_id=trial_id_of(case, repeat, place),
        case_id=case.case_id,
        case=case,
        repeat=repeat,
        status=status,
        reason=reason,
        group=place,
        started_at=utc_text(time.time()),
        duration_s=0.0,
    )


def exit_code_of(trials: Sequence[Trial]) -> ExitCode:
    """Returns how a command ends whose trials ended so.

    1 if data were wrong: that is confirmed. 4 if a case hung, crashed or failed. 3 if nothing was
    measured. Unsupported and skipped cases beside measured ones are no fault.
    """
    statuses = {trial.status for trial in trials}
    if Status.DATA_WRONG in statuses:
        return ExitCode.CONFIRMED_BAD
    if statuses & {Status.HUNG, Status.CRASHED, Status.FAILED, Status.NODE_LOST}:
        return ExitCode.INCOMPLETE
    if not statuses & {Status.OK, Status.PATH_NOT_USED}:
        return ExitCode.NOTHING_MEASURED
    return ExitCode.FINE
