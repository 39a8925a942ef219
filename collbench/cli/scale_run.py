"""What ``collbench scale`` does: prepare, meet, add nodes, judge; or serve node 0."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from collbench.analyze.knee import KneeAnswer
from collbench.analyze.scale_verdict import ScaleVerdict
from collbench.analyze.scale_words import headline
from collbench.cli.course_prepare import ALGORITHM
from collbench.cli.course_run import opened_ground, run_course
from collbench.cli.ground import Site, serve_site
from collbench.cli.launch_options import read_launch_options
from collbench.cli.nodes import look_for_company
from collbench.cli.nodes_by_leaf import as_it_is_now
from collbench.cli.output import say
from collbench.cli.request import Asked
from collbench.cli.scale_options import ScaleRequest, build_scale, with_options_of_before
from collbench.cli.scale_output import judged
from collbench.cli.scale_prepare import Prepared, prepare, refuse_long
from collbench.engine.protocol import Executor
from collbench.errors import ExitCode
from collbench.model import Finding, Run, Topology, Trial
from collbench.plan.scale_course import ScaleCourse
from collbench.report.heading import heading
from collbench.report.scale import scale_text
from collbench.session import SessionEnd, interruptible
from collbench.store import RunWriter, StoredRun, check_writable, read_run, results_root
from collbench.units import format_duration


def run_scale(context: click.Context, given: dict[str, Any]) -> int:
    """Runs the command; returns its exit status.

    Args:
        context: of the command line.
        given: its parameters as click gives them.
    """
    asked = read_scale(context, given)
    given, request, argv_of_before = asked.given, asked.request, asked.argv_of_before
    root = results_root(request.results, os.environ)
    company = look_for_company(read_launch_options(given), root)
    site = Site(
        suite=request.suite,
        expect_gpus=request.expect_gpus,
        simulate=request.simulate,
        algorithm=ALGORITHM,
    )
    with interruptible():
        if not company.leads:
            return serve_site(site, company, dry_run=request.dry_run)
        if not request.dry_run and request.resume is None:
            check_writable(root)
        opened = opened_ground(
            site, company, request, root, command="scale", argv_of_before=argv_of_before
        )
        with opened as (ground, earlier):
            prepared = prepare(request, root, ground, earlier)
            if request.dry_run:
                _tell_plan(prepared, prepared.run, "not started (--dry-run)")
                return ExitCode.FINE
            refuse_long(prepared)
            end, folder = _measure(prepared, root)
    return _report(prepared, end, folder)


def read_scale(context: click.Context, given: dict[str, Any]) -> Asked[ScaleRequest]:
    """Returns what a command line asks; starts nothing.

    Args:
        context: of the command line.
        given: its parameters as click gives them.

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
        RunNotFound: the run that is to go on is not there.
    """
    given, argv_of_before = with_options_of_before(context, given)
    return Asked(given=given, argv_of_before=argv_of_before, request=build_scale(given))


def _tell_plan(prepared: Prepared, run: Run, run_id: str) -> None:
    design, cost = prepared.design, prepared.cost
    prepared.tell(heading(run, prepared.ground.topology))
    leaves = "leaves unknown"
    if design.leaves:
        leaves = f"{len(design.leaves)} lea{'f' if len(design.leaves) == 1 else 'ves'}"
    prepared.tell(
        f"plan: {len(design.all_nodes)} nodes, {leaves}, {', '.join(design.patterns)}:"
        f" {cost.steps} steps in {design.repeats} repeats, about {format_duration(cost.seconds)},"
        f" {cost.node_hours:.2g} node-hours    run {run_id}"
    )
    prepared.tell_remarks()


def _measure(prepared: Prepared, root: Path) -> tuple[SessionEnd, Path]:
    ground, request = prepared.ground, prepared.request

    def course_of(executor: Executor, writer: RunWriter) -> ScaleCourse:
        del writer
        return ScaleCourse(
            place=prepared.place,
            design=prepared.design,
            probe=request.size_bytes is None,
            topology=as_it_is_now(executor, ground.topology),
        )

    def tell_plan(run: Run) -> None:
        _tell_plan(prepared, run, run.run_id)
        prepared.tell("")

    return run_course(
        ground=ground,
        run=prepared.run,
        root=root,
        plant=prepared.plant,
        earlier=prepared.earlier,
        course_of=course_of,
        verdict_of=lambda writer: _Judge(prepared, writer),
        tell_plan=tell_plan,
    )


class _Judge:
    """Judges the steps when the session ends, however it does."""

    def __init__(self, prepared: Prepared, writer: RunWriter) -> None:
        self._prepared, self._folder = prepared, writer.folder
        self._verdict: ScaleVerdict | None = None

    def judge(self, run: Run, topology: Topology, trials: Sequence[Trial]) -> list[Finding]:
        """Returns the answer as a finding."""
        located = topology.with_leaves(self._prepared.ground.topology.leaf_of)
        self._verdict, _, _ = judged(
            StoredRun(folder=self._folder, run=run, topology=located, trials=tuple(trials))
        )
        broken = _breaks(self._prepared.request, self._verdict)
        return [
            Finding(
                code=str(self._verdict.answer),
                severity="bad" if broken else "info",
                text=headline(self._verdict),
            )
        ]

    def settle(self, status: ExitCode) -> ExitCode:
        """Returns what the verdict says, where there is one."""
        if self._verdict is None or status not in (ExitCode.FINE, ExitCode.INCOMPLETE):
            return status
        bar = self._prepared.request.max_oversubscription
        broken = _breaks(self._prepared.request, self._verdict)
        if broken:
            return ExitCode.CONFIRMED_BAD
        untold = self._verdict.answer is KneeAnswer.INCONCLUSIVE
        return ExitCode.INCOMPLETE if untold or (bar and broken is None) else status


def _breaks(request: ScaleRequest, verdict: ScaleVerdict) -> bool | None:
    if request.max_oversubscription is None:
        return False
    return verdict.breaks(request.max_oversubscription)


def _report(prepared: Prepared, end: SessionEnd, folder: Path) -> int:
    verdict, observations, about = judged(read_run(folder))
    if prepared.request.as_json:
        from collbench.report.scale_json import scale_document

        say(scale_document(verdict, observations, about, end.exit_code).decode())
    else:
        say(scale_text(verdict, observations, about))
        newest = prepared.request.results is None and prepared.earlier is None
        say(f"\nKept in {folder}\n  collbench plot {'last' if newest else folder}")
    if end.error is not None:
        say(f"collbench: {end.error}", err=True)
    return end.exit_code
