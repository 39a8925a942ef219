"""Running a course: a plan that makes its next round from what came before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing as closed_after
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Protocol

import msgspec

from collbench.cli.earlier import Earlier, earlier_run, open_writer
from collbench.cli.ground import Ground, Site, look_around
from collbench.cli.nodes import Company, Gathering
from collbench.cli.request import RunRequest
from collbench.engine.protocol import Executor, Round
from collbench.measure.plant import Plant
from collbench.model import Case, Run, Trial
from collbench.report.progress import LiveProgress
from collbench.session import Judge, SessionEnd, Settle, run_session
from collbench.store import RunWriter


class Course(Protocol):
    """Makes rounds; has to be told each trial before the next round is asked for."""

    def hear(self, trial: Trial) -> None:
        """Takes in a trial that is stored."""

    def rounds(self) -> Iterator[Round]:
        """Yields the rounds of the run; of a run that goes on those that are left."""


class Verdict(Protocol):
    """Judges the trials when a session ends, however it does."""

    @property
    def judge(self) -> Judge:
        """Makes findings."""

    @property
    def settle(self) -> Settle:
        """Says how the command ends; called after ``judge``."""


class _Heard:
    """Tells the course and the live line of each trial."""

    def __init__(self, course: Course, progress: LiveProgress) -> None:
        self._course, self._progress = course, progress

    def running(self, case: Case) -> None:
        """A case begins."""
        self._progress.running(case)

    def finished(self, trial: Trial) -> None:
        """A trial is stored."""
        self._course.hear(trial)
        self._progress.finished(trial)


@contextmanager
def opened_ground(
    site: Site,
    company: Company,
    request: RunRequest,
    root: Path,
    *,
    command: str,
    argv_of_before: str | None,
) -> Iterator[tuple[Ground, Earlier | None]]:
    """Opens the run that goes on, lets the nodes meet, and closes both at the end.

    Args:
        site: what the command line says of the place.
        company: who was started.
        request: what is asked; a dry run meets nobody.
        root: the folder of all runs.
        command: of the run.
        argv_of_before: the command line that the options were taken from.

    Raises:
        RunNotFound: no such run.
        RecordError: it cannot be read.
        StoreError: it cannot be written.
        UsageError: it is of another command, or the place cannot be as it is asked for.
        NothingMeasured: hardware that is promised cannot be used, or others do not come.
    """
    opened = earlier_run(
        request.resume,
        root,
        command=command,
        dry_run=request.dry_run,
        argv_of_before=argv_of_before,
    )
    with opened as earlier, closed_after(Gathering()) as gathering:
        yield look_around(site, company, gathering, meet=not request.dry_run), earlier


def run_course(
    *,
    ground: Ground,
    run: Run,
    root: Path,
    plant: Plant | None,
    earlier: Earlier | None,
    course_of: Callable[[Executor, RunWriter], Course],
    verdict_of: Callable[[RunWriter], Verdict],
    tell_plan: Callable[[Run], None],
) -> tuple[SessionEnd, Path]:
    """Runs a course to its end; returns how it ended, and the run's folder.

    Args:
        ground: what it runs on.
        run: its header, not yet stored.
        root: the folder of all runs.
        plant: a fault on purpose.
        earlier: the run that goes on, if one does.
        course_of: makes the course, once there is what runs it and where it is kept.
        verdict_of: makes what judges it.
        tell_plan: prints heading and plan, now that versions are known.
    """
    writer, logs = open_writer(earlier, root, run, ground.topology)
    watch = ground.watch()
    ground.admit(logs, writer.run.run_id)
    executor = ground.make_executor(logs, watch, plant)
    course = course_of(executor, writer)
    for trial in earlier.stored.trials if earlier else ():
        course.hear(trial)
    verdict = verdict_of(writer)
    with closed_after(watch), closed_after(executor):
        run = msgspec.structs.replace(run, run_id=writer.run.run_id)
        rounds = course.rounds()
        try:
            first = next(rounds, None)
            if first is not None:
                executor.start(first)
            run = ground.with_versions(run, executor)
            writer.update(run, ground.topology)
            tell_plan(run)
        except BaseException:
            if earlier is None:
                writer.discard()  # nothing was measured yet
            raise
        with LiveProgress(run.planned_trials) as progress:
            end = run_session(
                run=run,
                rounds=rounds if first is None else chain([first], rounds),
                executor=executor,
                writer=writer,
                observer=_Heard(course, progress),
                judge=verdict.judge,
                settle=verdict.settle,
                earlier=earlier.stored.trials if earlier else (),
            )
    return end, writer.folder
