"""What ``collbench sweep`` does: prepare, meet, measure, report; or serve node 0."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing as closed_after
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from collbench.analyze.findings import sweep_findings
from collbench.cli.bar_options import BarJudge, read_bars, with_bars_of_before
from collbench.cli.conclusion import Conclusion
from collbench.cli.earlier import Earlier, earlier_run, open_writer
from collbench.cli.ground import Ground, Site, look_around, serve_site
from collbench.cli.header import new_header, seed_of
from collbench.cli.launch_options import read_launch_options
from collbench.cli.library import nccl_place
from collbench.cli.nodes import Company, Gathering, look_for_company
from collbench.cli.output import results_text, say
from collbench.cli.request import Asked
from collbench.cli.sweep_options import SweepRequest, build_request
from collbench.cli.sweep_resume import (
    Rest,
    continued,
    rest_of,
    resuming_lines,
    settled_environment,
    with_options_of_before,
)
from collbench.engine.protocol import Executor
from collbench.errors import ExitCode
from collbench.measure.plant import Plant, parse_plant, refuse_missing_rank
from collbench.model import Finding, Run, Topology, Trial
from collbench.nccl.settings import setting_text
from collbench.plan.sweep import SweepPlan, plan_sweep
from collbench.report.bars import BAR_CODES
from collbench.report.heading import heading, plan_line, refused_lines
from collbench.report.json_output import json_document
from collbench.report.progress import LiveProgress
from collbench.session import Judge, SessionEnd, interruptible, run_session
from collbench.store import (
    RunWriter,
    StoredRun,
    check_writable,
    cluster_name,
    results_root,
)
from collbench.suite import settings_of


def run_sweep(
    context: click.Context, given: dict[str, Any], conclusion: Conclusion | None = None
) -> int:
    """Runs the command; returns its exit status.

    Args:
        context: of the command line.
        given: its parameters as click gives them.
        conclusion: what the command makes of the trials; a sweep's without.
    """
    conclusion = conclusion or Conclusion()
    asked = read_sweep(context, given, conclusion.command)
    given, request, argv_of_before = asked.given, asked.request, asked.argv_of_before
    conclusion.check(settings_of(request.suite))
    root = results_root(request.results, os.environ)
    company = look_for_company(read_launch_options(given), root)
    bars = BarJudge(bars=read_bars(given, judges=company.leads))
    with interruptible():
        if not company.leads:
            return serve_site(_site(request), company, dry_run=request.dry_run)
        if not request.dry_run and request.resume is None:
            check_writable(root)
        opened = earlier_run(
            request.resume,
            root,
            command=conclusion.command,
            dry_run=request.dry_run,
            argv_of_before=argv_of_before,
        )
        with opened as earlier, closed_after(Gathering()) as gathering:
            prepared = _prepare(request, company, gathering, earlier, conclusion)
            if company.alone or not request.dry_run:  # else the other nodes are not known
                bars.check(prepared.run, prepared.topology, prepared.plan.cases)
            if request.dry_run:
                _dry_run(prepared)
                return ExitCode.FINE
            end, folder = _measure(prepared, root, bars)
    return _report(prepared, end, folder, bars)


def read_sweep(context: click.Context, given: dict[str, Any], command: str) -> Asked[SweepRequest]:
    """Returns what a command line asks of a sweep; starts nothing.

    Args:
        context: of the command line.
        given: its parameters as click gives them.
        command: the name that its runs are kept under.

    Raises:
        UsageError: a value that cannot be, or options that contradict each other.
        RunNotFound: the run that is to go on is not there.
    """
    given, argv_of_before = with_options_of_before(context, given, command)
    given = with_bars_of_before(context, given, argv_of_before)
    return Asked(given=given, argv_of_before=argv_of_before, request=build_request(**given))


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A sweep with everything decided and nothing started."""

    request: SweepRequest
    conclusion: Conclusion
    plan: SweepPlan
    rest: Rest
    """What of the plan is to be done: all of it, but in a run that is continued."""
    earlier: Earlier | None
    run: Run
    ground: Ground
    plant: Plant | None

    @property
    def topology(self) -> Topology:
        """Where it runs."""
        return self.ground.topology

    def tell(self, text: str) -> None:
        """Prints for people: on stderr where stdout is for JSON."""
        say(text, err=self.request.as_json)


def _prepare(
    request: SweepRequest,
    company: Company,
    gathering: Gathering,
    earlier: Earlier | None,
    conclusion: Conclusion,
) -> _Prepared:
    plant = parse_plant(request.plant) if request.plant else None
    cluster = cluster_name(request.cluster, os.environ)
    ground = look_around(_site(request), company, gathering, meet=not request.dry_run)
    suite, slots, topology = ground.suite, ground.slots, ground.topology
    refuse_missing_rank(plant, slots.world_size)
    seed = seed_of(suite, earlier)
    place = nccl_place(suite, slots, topology, ground.libraries, os.environ)
    plan = plan_sweep(
        suite,
        backend=slots.backend,
        world_size=slots.world_size,
        seed=seed,
        nodes=ground.nodes,
        emulated=bool(slots.fake_hosts),
        refusal=place.refusal if ground.on_nccl else None,
    )
    run = new_header(
        ground,
        command=conclusion.command,
        cluster=cluster,
        source=request.source,
        also={},
        repeats=suite.repeats,
        seed=seed,
        planned_trials=plan.trials,
        planted=request.plant,
    )
    if earlier is not None:
        run = continued(earlier.stored, run, plan, topology)
    return _Prepared(
        request=request,
        conclusion=conclusion,
        plan=plan,
        rest=rest_of(plan, earlier.stored.trials if earlier else ()),
        earlier=earlier,
        run=run,
        ground=ground,
        plant=plant,
    )


def _site(request: SweepRequest) -> Site:
    return Site(suite=request.suite, expect_gpus=request.expect_gpus, simulate=request.simulate)


def _tell_plan(prepared: _Prepared, run: Run, run_id: str) -> None:
    plan = prepared.plan
    prepared.tell(heading(run, prepared.topology))
    for text in resuming_lines(prepared.earlier, prepared.rest) if prepared.earlier else ():
        prepared.tell(text)
    prepared.tell(plan_line(plan, run_id))
    for text in (*refused_lines(plan), *plan.collapsed, *prepared.ground.remarks):
        prepared.tell(f"  {text}")


def _dry_run(prepared: _Prepared) -> None:
    _tell_plan(prepared, prepared.run, "not started (--dry-run)")
    left = set(prepared.rest.case_ids)
    for case in (case for case in prepared.plan.cases if case.case_id in left):
        setting = f"  {setting_text(case.setting)}" if case.setting else ""
        prepared.tell(f"  {case.case_id}{setting}")


def _measure(prepared: _Prepared, root: Path, bars: BarJudge) -> tuple[SessionEnd, Path]:
    writer, logs = open_writer(prepared.earlier, root, prepared.run, prepared.topology)
    watch = prepared.ground.watch()
    prepared.ground.admit(logs, writer.run.run_id)
    executor = prepared.ground.make_executor(logs, watch, prepared.plant)
    with closed_after(watch), closed_after(executor):
        try:
            run = _started(prepared, executor, writer.run.run_id)
            writer.update(run, prepared.topology)
            _tell_plan(prepared, run, run.run_id)
            if slow := executor.facts().slowest_import:
                prepared.tell(f"  {slow}")
            prepared.tell("")
        except BaseException:
            if prepared.earlier is None:
                writer.discard()  # nothing was measured yet
            raise
        with LiveProgress(prepared.rest.trials) as progress:
            end = run_session(
                run=run,
                rounds=prepared.rest.rounds,
                refused=prepared.rest.refused,
                executor=executor,
                writer=writer,
                observer=progress,
                judge=_judge(writer, prepared.conclusion, bars),
                settle=lambda status: bars.settled(prepared.conclusion.settled(status)),
                earlier=prepared.earlier.stored.trials if prepared.earlier else (),
            )
    return end, writer.folder


def _started(prepared: _Prepared, executor: Executor, run_id: str) -> Run:
    """Makes ready for the first round; returns the header with what is loaded."""
    if prepared.rest.rounds:
        executor.start(prepared.rest.rounds[0])
    run = msgspec.structs.replace(prepared.run, run_id=run_id)
    run = prepared.ground.with_versions(run, executor)
    if prepared.earlier is None:
        return run
    environment = settled_environment(prepared.earlier.stored, run.environment)
    return msgspec.structs.replace(run, environment=environment)


def _judge(writer: RunWriter, conclusion: Conclusion, bars: BarJudge) -> Judge:
    def judge(run: Run, topology: Topology, trials: Sequence[Trial]) -> list[Finding]:
        stored = StoredRun(folder=writer.folder, run=run, topology=topology, trials=tuple(trials))
        found = sweep_findings(run, trials, stored.over_ranks_us)
        found += conclusion.findings(stored)
        return bars.among(found, run, topology, trials)

    return judge


def _report(prepared: _Prepared, end: SessionEnd, folder: Path, bars: BarJudge) -> int:
    if prepared.request.as_json:
        document = json_document(end.run.run_id, end.exit_code, end.trials, end.findings)
        say(document.decode())
    else:
        stored = StoredRun(
            folder=folder, run=end.run, topology=prepared.topology, trials=tuple(end.trials)
        )
        newest = prepared.request.results is None and prepared.earlier is None
        name = "last" if newest else str(folder)
        said = results_text(
            end.run,
            prepared.topology,
            end.trials,
            [finding for finding in end.findings if finding.code not in BAR_CODES],
            folder,
            name=name,
            between=prepared.conclusion.lines(stored),
        )
        say(said)
        if bar_lines := bars.lines():
            say("\n".join(["", *bar_lines]))
    if end.error is not None:
        say(f"collbench: {end.error}", err=True)
    return end.exit_code
