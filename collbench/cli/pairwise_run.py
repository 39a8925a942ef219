"""What ``collbench pairwise`` does: prepare, meet, pair, judge; or serve node 0."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import closing as closed_after
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec

from collbench.analyze.pair_reference import bar_of_limit, bar_of_rates, bar_of_run, questions_of
from collbench.analyze.pair_state import PairwiseState, Reference
from collbench.analyze.pair_verdicts import NodeVerdict, PairwiseResult
from collbench.cli.bar_options import BAR_OPTIONS, read_bars, with_bars_of_before
from collbench.cli.ground import Ground, Site, look_around, serve_site
from collbench.cli.launch_options import read_launch_options
from collbench.cli.nodes import Gathering, look_for_company
from collbench.cli.nodes_by_leaf import (
    as_it_is_now,
    leaves_kept,
    left_out,
    ranks_by_node,
    shares_gpus,
    with_leaves,
)
from collbench.cli.output import say
from collbench.cli.pairwise_options import (
    PairwiseRequest,
    build_pairwise,
    refuse_another_question,
    refuse_other_ground,
    with_options_of_before,
)
from collbench.cli.pairwise_output import (
    counted_rounds,
    judged,
    pairwise_findings,
    reference_as_dict,
    reference_of,
)
from collbench.cli.qualify import chosen_members
from collbench.cli.sweep_options import read_values
from collbench.cli.sweep_resume import Earlier, earlier_run
from collbench.engine.protocol import Executor
from collbench.errors import ExitCode, StoreError, UsageError
from collbench.launch.leaves import Leaves
from collbench.measure.plant import Plant, parse_plant
from collbench.model import Case, Finding, Run, Topology, Trial
from collbench.plan.message_size import AIM_S, AIM_S_ELSE
from collbench.plan.pair_cases import PairPlace
from collbench.plan.pairwise import Schedule, pair_rounds
from collbench.plan.pairwise_course import PairwiseCourse
from collbench.probe.environment import read_environment
from collbench.report.heading import heading
from collbench.report.pairwise import pairwise_text
from collbench.report.pairwise_about import PairwiseAbout
from collbench.report.progress import LiveProgress
from collbench.session import SessionEnd, interruptible, run_session
from collbench.store import (
    RunWriter,
    StoredRun,
    check_writable,
    cluster_name,
    find_run,
    new_run_id,
    read_run,
    results_root,
)
from collbench.suite import suite_as_dict
from collbench.units import format_duration, format_size, utc_text

_FEW_AT_ONCE = 64
"""Pairs at a time for so many nodes, above 64 where leaves are not known."""
_TOLERANCE = 0.05
_ALGORITHM = "Ring"
_ROUND_S = 1.0
"""Of forming groups and the latency pass, for the estimate."""


def run_pairwise(context: click.Context, given: dict[str, Any]) -> int:
    """Runs the command; returns its exit status.

    Args:
        context: of the command line.
        given: its parameters as click gives them.
    """
    given, argv_of_before = with_options_of_before(context, given)
    given = with_bars_of_before(context, given, argv_of_before)
    request = build_pairwise(given)
    root = results_root(request.results, os.environ)
    company = look_for_company(read_launch_options(given), root)
    site = Site(
        suite=request.suite,
        expect_gpus=request.expect_gpus,
        simulate=request.simulate,
        algorithm=_ALGORITHM,
    )
    with interruptible():
        if not company.leads:
            idle = request.dry_run or request.simulate is not None
            return ExitCode.FINE if idle else serve_site(site, company)
        _check_folders(request, root)
        opened = earlier_run(
            request.resume,
            root,
            command="pairwise",
            dry_run=request.dry_run,
            argv_of_before=argv_of_before,
        )
        with closed_after(Gathering()) as gathering, opened as earlier:
            ground = look_around(site, company, gathering, meet=not request.dry_run)
            prepared = _prepare(request, given, root, ground, earlier)
            if request.dry_run:
                _tell_plan(prepared, prepared.run, "not started (--dry-run)")
                return ExitCode.FINE
            end, folder = _measure(prepared, root)
    return _report(prepared, end, folder)


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


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Everything decided and nothing started."""

    request: PairwiseRequest
    ground: Ground
    """With the leaves in its topology."""
    leaves: Leaves | None
    members: Sequence[int]
    """Numbers of the nodes that take part."""
    schedule: Schedule
    place: PairPlace
    reference: Reference | None
    run: Run
    plant: Plant | None
    earlier: Earlier | None

    def tell(self, text: str) -> None:
        """Prints for people: on stderr where stdout is for JSON."""
        say(text, err=self.request.as_json)


def _prepare(
    request: PairwiseRequest,
    given: dict[str, Any],
    root: Path,
    ground: Ground,
    earlier: Earlier | None,
) -> _Prepared:
    plant = parse_plant(request.plant) if request.plant else None
    if earlier is not None:
        refuse_other_ground(earlier.stored.run, simulated=request.simulate is not None)
    ground, leaves = with_leaves(ground, request.topology)
    nodes, ranks = ground.topology.nodes, ranks_by_node(ground.topology)
    able = [number for number in ranks if ranks[number]]
    members = chosen_members(request.qualify, request.against, nodes, able)
    _refuse_too_few(members, alone=ground.company.alone, dry_run=request.dry_run)
    suite = ground.suite
    drawn = secrets.randbelow(2**31 - 1) + 1
    seed = suite.seed or (earlier.stored.run.seed if earlier else drawn)
    known = [leaf for number in members if (leaf := nodes[number].leaf) is not None]
    schedule = pair_rounds(
        len(members),
        known if len(known) == len(members) else None,
        rounds=request.rounds,
        at_once=None if known or len(members) <= 64 else max(2, len(members) // _FEW_AT_ONCE),
        serial=request.serial or request.qualify is not None,
        seed=seed,
    )
    reference = _reference(request, given, root, ground, max(len(ranks[n]) for n in members))
    if reference is None and earlier is not None:
        reference = reference_of(earlier.stored)
    pair_place = PairPlace(
        names=[node.name for node in nodes],
        ranks=ranks,
        backend=ground.slots.backend,
        via=suite.via,
        policy=suite.policy,
        setting={"NCCL_ALGO": _ALGORITHM} if ground.on_nccl else {},
        emulated=bool(ground.slots.fake_hosts),
        latency=not shares_gpus(ground) if request.latency is None else request.latency,
    )
    run = _header(request, ground, schedule, pair_place, members, seed, reference, leaves)
    if earlier is not None:
        refuse_another_question(earlier.stored.run, run)
        run = msgspec.structs.replace(
            earlier.stored.run,
            suite={**earlier.stored.run.suite, "reference": run.suite["reference"]},
            resumed_at=[*earlier.stored.run.resumed_at, utc_text(time.time())],
            ended_at=None,
            exit_code=None,
            findings=[],
        )
    return _Prepared(
        request=request,
        ground=ground,
        leaves=leaves,
        members=members,
        schedule=schedule,
        place=pair_place,
        reference=reference,
        run=run,
        plant=plant,
        earlier=earlier,
    )


def _refuse_too_few(members: Sequence[int], *, alone: bool, dry_run: bool) -> None:
    if len(members) < 2:
        if dry_run and not alone:
            raise UsageError(
                "--dry-run does not wait for the other nodes, and of one alone there is no plan;"
                " take it with --simulate and a fabric of as many nodes"
            )
        how = (
            "start it on several: srun -N8 --ntasks-per-node=1 collbench pairwise"
            if alone
            else "the others are absent or left out"
        )
        raise UsageError(f"{len(members)} node cannot be paired; {how}")


def _reference(
    request: PairwiseRequest, given: dict[str, Any], root: Path, ground: Ground, ranks: int
) -> Reference | None:
    """Returns the absolute bar that is asked for; the last one named of several is not silent."""
    values = read_values(BAR_OPTIONS, given)
    baseline, tolerance = values.get("baseline"), values.get("tolerance", _TOLERANCE)
    without = {"baseline": None, "tolerance": None} if baseline is not None else {}
    bars = read_bars({**given, **without})
    kinds = [baseline is not None]
    if bars is not None:
        kinds += [bool(bars.min_busbw_gb_per_s or bars.min_busbw_of), bars.min_of_limit is not None]
    if sum(kinds) > 1:
        raise UsageError("--baseline, --min-busbw and --min-of-limit are three bars; give one")
    asked = questions_of(ranks)
    if baseline is not None:
        if Path(baseline).is_file() or baseline.endswith(".json"):
            raise UsageError(
                f"--baseline {baseline}: pairs are held against an earlier run of 'pairwise', not"
                " against a file; give its folder or id ('collbench runs' lists all)"
            )
        stored = read_run(find_run(baseline, root))
        simulated = request.simulate is not None
        return bar_of_run(asked, stored, baseline, tolerance, simulated=simulated)
    if bars is None:
        return None
    if bars.min_of_limit is not None:
        return bar_of_limit(asked, ground.topology, bars.min_of_limit)
    return bar_of_rates(asked, bars.min_busbw_gb_per_s, bars.min_busbw_of)


def _header(
    request: PairwiseRequest,
    ground: Ground,
    schedule: Schedule,
    place: PairPlace,
    members: Sequence[int],
    seed: int,
    reference: Reference | None,
    leaves: Leaves | None,
) -> Run:
    suite = ground.suite
    names = [ground.topology.nodes[number].name for number in members]
    return Run(
        run_id=new_run_id(),
        command="pairwise",
        argv=sys.argv[1:],
        cluster=cluster_name(request.cluster, os.environ),
        suite={
            "source": "pairwise",
            **suite_as_dict(suite),
            "members": names,
            "rounds": request.rounds,
            "serial": request.serial,
            "qualify": request.qualify,
            "size_bytes": request.size_bytes,
            "latency": place.latency,
            "leaves_source": leaves.source if leaves is not None and leaves.leaf_of else None,
            "left_out": left_out(ground),
            "reference": None if reference is None else reference_as_dict(reference),
        },
        policy=suite.policy,
        repeats=1,
        seed=seed,
        planned_trials=schedule.tried() * place.trials_a_pair(members),
        backend=ground.slots.backend,
        world_size=ground.slots.world_size,
        environment=read_environment(os.environ),
        note=ground.slots.note,
        simulated=ground.simulation is not None,
        emulated=bool(ground.slots.fake_hosts),
        via=suite.via,
        planted=request.plant,
        started_at=utc_text(time.time()),
    )


def _tell_plan(prepared: _Prepared, run: Run, run_id: str) -> None:
    schedule, ground = prepared.schedule, prepared.ground
    prepared.tell(heading(run, ground.topology))
    most = max(len(one.pairs) for one in schedule.rounds)
    size = prepared.request.size_bytes
    seconds = len(schedule.rounds) * (_ROUND_S + 30 * AIM_S.get(run.backend, AIM_S_ELSE))
    prepared.tell(
        f"plan: {len(prepared.members)} nodes, {counted_rounds(len(schedule.rounds), most)},"
        f" {100 * schedule.share_tried:.3g}% of the paths,"
        f" messages of {'a size to be found' if size is None else format_size(size)},"
        f" about {format_duration(seconds)} and who looks bad again    run {run_id}"
    )
    if prepared.earlier is not None:
        prepared.tell(f"resuming: {len(prepared.earlier.stored.trials)} trials are there")
        if prepared.earlier.argv_of_before is not None:
            prepared.tell(f"  with the options of before: {prepared.earlier.argv_of_before}")
    problems = prepared.leaves.problems if prepared.leaves is not None else ()
    for text in (*ground.remarks, *problems):
        prepared.tell(f"  {text}")


class _Heard:
    """Tells the course and the live line of each trial."""

    def __init__(self, course: PairwiseCourse, progress: LiveProgress) -> None:
        self._course, self._progress = course, progress

    def running(self, case: Case) -> None:
        """A case begins."""
        self._progress.running(case)

    def finished(self, trial: Trial) -> None:
        """A trial is stored."""
        self._course.hear(trial)
        self._progress.finished(trial)


def _measure(prepared: _Prepared, root: Path) -> tuple[SessionEnd, Path]:
    ground, earlier = prepared.ground, prepared.earlier
    if earlier is None:
        writer = RunWriter.create(root, prepared.run, ground.topology)
        logs = writer.logs
    else:
        assert earlier.writer is not None
        writer = earlier.writer
        logs = writer.new_part(earlier.stored.topology)
    watch = ground.watch()
    ground.admit(logs, writer.run.run_id)
    executor = ground.make_executor(logs, watch, prepared.plant)
    course = _course(prepared, executor, writer)
    for trial in earlier.stored.trials if earlier else ():
        course.hear(trial)
    verdict = _Verdict(prepared, writer)
    with closed_after(watch), closed_after(executor):
        run = msgspec.structs.replace(prepared.run, run_id=writer.run.run_id)
        rounds = course.rounds()
        try:
            first = next(rounds, None)
            if first is not None:
                executor.start(first)
            run = ground.with_versions(run, executor)
            writer.update(run, ground.topology)
            _tell_plan(prepared, run, run.run_id)
            prepared.tell("")
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
                judge=verdict.findings,
                settle=verdict.settled,
                earlier=earlier.stored.trials if earlier else (),
            )
    if end.error is None and verdict.problem is not None:
        end = replace(end, error=verdict.problem)
    return end, writer.folder


def _course(prepared: _Prepared, executor: Executor, writer: RunWriter) -> PairwiseCourse:
    topology = prepared.ground.topology

    def stored() -> StoredRun:
        return StoredRun(
            folder=writer.folder, run=writer.run, topology=topology, trials=(), problems=()
        )

    return PairwiseCourse(
        place=prepared.place,
        schedule=prepared.schedule,
        members=prepared.members,
        topology=as_it_is_now(executor, topology),
        stored=stored,
        serial=prepared.request.serial or prepared.request.qualify is not None,
        size_bytes=prepared.request.size_bytes,
        reference=prepared.reference,
    )


class _Verdict:
    """Judges the pairs when the session ends, however it does."""

    def __init__(self, prepared: _Prepared, writer: RunWriter) -> None:
        self._prepared, self._folder = prepared, writer.folder
        self._result: PairwiseResult | None = None
        self.problem: str | None = None
        """Why the nodes' files could not be written."""

    def findings(self, run: Run, topology: Topology, trials: Sequence[Trial]) -> list[Finding]:
        """Returns who is not well."""
        stored = StoredRun(
            folder=self._folder,
            run=run,
            topology=leaves_kept(topology, self._prepared.ground.topology),
            trials=tuple(trials),
            problems=(),
        )
        state, self._result, about = judged(stored, self._prepared.reference)
        if self._prepared.request.node_json is not None:
            self._write_files(Path(self._prepared.request.node_json), state, self._result, about)
        return pairwise_findings(state, self._result)

    def _write_files(
        self, folder: Path, state: PairwiseState, result: PairwiseResult, about: PairwiseAbout
    ) -> None:
        from collbench.report.verdict_json import write_node_files

        mine = _qualified(self._prepared, result)
        said = result if mine is None else replace(result, nodes=(mine,))
        try:
            write_node_files(folder, state, said, about)
        except StoreError as problem:
            self.problem = str(problem)  # the run's own folder still has to be closed

    def settled(self, status: ExitCode) -> ExitCode:
        """Returns what the verdict says, where there is one; 3 if it could not be written."""
        if self.problem is not None:
            return ExitCode.NOTHING_MEASURED
        if self._result is None or status not in (ExitCode.FINE, ExitCode.INCOMPLETE):
            return status
        return _status_of(self._prepared, self._result)


def _status_of(prepared: _Prepared, result: PairwiseResult) -> ExitCode:
    """Of a node that is to be qualified only its own verdict counts."""
    mine = _qualified(prepared, result)
    if mine is None:
        return result.exit_code
    verdicts = {"pass": ExitCode.FINE, "fail": ExitCode.CONFIRMED_BAD}
    return verdicts.get(mine.verdict, ExitCode.INCOMPLETE)


def _qualified(prepared: _Prepared, result: PairwiseResult) -> NodeVerdict | None:
    if prepared.request.qualify is None:
        return None
    names = [node.name for node in prepared.ground.topology.nodes]
    return result.nodes[names.index(prepared.request.qualify)]


def _report(prepared: _Prepared, end: SessionEnd, folder: Path) -> int:
    stored = read_run(folder)
    state, result, about = judged(stored, prepared.reference)
    if prepared.request.as_json:
        from collbench.report.verdict_json import verdict_document

        say(verdict_document(state, result, about).decode())
    else:
        say(pairwise_text(state, result, about))
        if (mine := _qualified(prepared, result)) is not None:
            say(f"\nQUALIFY {prepared.request.qualify}: {mine.verdict}")
        newest = prepared.request.results is None and prepared.earlier is None
        name = "last" if newest else str(folder)
        say(f"\nKept in {folder}\n  collbench plot {name}\n  collbench drain {name}")
    if end.error is not None:
        say(f"collbench: {end.error}", err=True)
    return end.exit_code
