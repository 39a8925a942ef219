"""What ``collbench pairwise`` does: prepare, meet, pair, judge; or serve node 0."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from collbench.analyze.pair_inside import per_rank
from collbench.cli.bar_options import with_bars_of_before
from collbench.cli.course_prepare import ALGORITHM
from collbench.cli.course_run import opened_ground, run_course
from collbench.cli.ground import Site, serve_site
from collbench.cli.launch_options import read_launch_options
from collbench.cli.nodes import look_for_company
from collbench.cli.nodes_by_leaf import as_it_is_now
from collbench.cli.output import say
from collbench.cli.pairwise_options import PairwiseRequest, build_pairwise, with_options_of_before
from collbench.cli.pairwise_output import counted_rounds, judged, qualify_line
from collbench.cli.pairwise_prepare import Prepared, prepare
from collbench.cli.pairwise_verdict import PairwiseJudge
from collbench.cli.request import Asked
from collbench.engine.protocol import Executor
from collbench.errors import ExitCode, UsageError
from collbench.model import Run, Topology
from collbench.plan.message_size import window
from collbench.plan.pair_cases import MESSAGES
from collbench.plan.pairwise_course import PairwiseCourse
from collbench.report.heading import heading
from collbench.report.pairwise import pairwise_text
from collbench.session import SessionEnd, interruptible
from collbench.store import RunWriter, StoredRun, check_writable, read_run, results_root
from collbench.units import format_duration, format_size

_ROUND_S = 1.0
"""Of forming groups and the latency pass, for the estimate."""


def run_pairwise(context: click.Context, given: dict[str, Any]) -> int:
    """Runs the command; returns its exit status.

    Args:
        context: of the command line.
        given: its parameters as click gives them.
    """
    asked = read_pairwise(context, given)
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
        _check_folders(request, root)
        opened = opened_ground(
            site, company, request, root, command="pairwise", argv_of_before=argv_of_before
        )
        with opened as (ground, earlier):
            prepared = prepare(request, given, root, ground, earlier)
            if request.dry_run:
                _tell_plan(prepared, prepared.run, "not started (--dry-run)")
                return ExitCode.FINE
            end, folder = _measure(prepared, root)
    return _report(prepared, end, folder)


def read_pairwise(context: click.Context, given: dict[str, Any]) -> Asked[PairwiseRequest]:
    """Returns what a command line asks; starts nothing.

    Args:
        context: of the command line.
        given: its parameters as click gives them.

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
        RunNotFound: the run that is to go on is not there.
    """
    given, argv_of_before = with_options_of_before(context, given)
    given = with_bars_of_before(context, given, argv_of_before)
    return Asked(given=given, argv_of_before=argv_of_before, request=build_pairwise(given))


def _check_folders(request: PairwiseRequest, root: Path) -> None:
    if request.dry_run:
        return
    if request.resume is None:
        check_writable(root)
    if request.node_json is not None:
        try:
            check_writable(Path(request.node_json))
        except UsageError:
            raise UsageError(
                f"--node-json {request.node_json}: cannot be written to; give another folder"
            ) from None


def _tell_plan(prepared: Prepared, run: Run, run_id: str) -> None:
    schedule, ground = prepared.schedule, prepared.ground
    prepared.tell(heading(run, ground.topology))
    most = max(len(one.pairs) for one in schedule.rounds)
    size = prepared.request.size_bytes
    seconds = len(schedule.rounds) * (_ROUND_S + 2 * window(run.backend, MESSAGES).total_s)
    what = "GPUs inside nodes" if prepared.request.inside else "nodes"
    prepared.tell(
        f"plan: {len(prepared.members)} {what}, {counted_rounds(len(schedule.rounds), most)},"
        f" {100 * schedule.share_tried:.3g}% of the paths,"
        f" messages of {'a size to be found' if size is None else format_size(size)},"
        f" about {format_duration(seconds)} and who looks bad again    run {run_id}"
    )
    prepared.tell_remarks()


def _measure(prepared: Prepared, root: Path) -> tuple[SessionEnd, Path]:
    ground = prepared.ground
    judges: list[PairwiseJudge] = []

    def verdict_of(writer: RunWriter) -> PairwiseJudge:
        judges.append(PairwiseJudge(prepared, writer))
        return judges[-1]

    def tell_plan(run: Run) -> None:
        _tell_plan(prepared, run, run.run_id)
        prepared.tell("")

    end, folder = run_course(
        ground=ground,
        run=prepared.run,
        root=root,
        plant=prepared.plant,
        earlier=prepared.earlier,
        course_of=lambda executor, writer: _course(prepared, executor, writer),
        verdict_of=verdict_of,
        tell_plan=tell_plan,
    )
    problem = judges[0].problem
    if end.error is None and problem is not None:
        end = replace(end, error=problem)
    return end, folder


def _course(prepared: Prepared, executor: Executor, writer: RunWriter) -> PairwiseCourse:
    topology = prepared.ground.topology

    def stored() -> StoredRun:
        return StoredRun(folder=writer.folder, run=writer.run, topology=topology, trials=())

    return PairwiseCourse(
        place=prepared.place,
        schedule=prepared.schedule,
        members=prepared.members,
        topology=_units_now(prepared, executor),
        stored=stored,
        serial=prepared.request.serial or prepared.request.qualify is not None,
        size_bytes=prepared.request.size_bytes,
        reference=prepared.reference,
    )


def _units_now(prepared: Prepared, executor: Executor) -> Callable[[], Topology]:
    """Returns what says who is still there, of nodes or of their GPUs."""
    now = as_it_is_now(executor, prepared.ground.topology)
    return (lambda: per_rank(now())) if prepared.request.inside else now


def _report(prepared: Prepared, end: SessionEnd, folder: Path) -> int:
    stored = read_run(folder)
    state, result, about = judged(stored, prepared.reference)
    if prepared.request.as_json:
        from collbench.report.verdict_json import verdict_document

        say(verdict_document(state, result, about).decode())
    else:
        say(pairwise_text(state, result, about))
        if (line := qualify_line(stored.run, state, result)) is not None:
            say(f"\n{line}")
        newest = prepared.request.results is None and prepared.earlier is None
        name = "last" if newest else str(folder)
        say(f"\nKept in {folder}\n  collbench plot {name}")
        if not prepared.request.inside:
            say(f"  collbench drain {name}")
    if end.error is not None:
        say(f"collbench: {end.error}", err=True)
    return end.exit_code
