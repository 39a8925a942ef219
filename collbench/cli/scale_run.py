"""What ``collbench scale`` does: prepare, meet, add nodes, judge; or serve node 0."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import closing as closed_after
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from collbench.analyze.knee import KneeAnswer
from collbench.analyze.scale_verdict import ScaleVerdict
from collbench.analyze.scale_words import headline
from collbench.cli.course_run import run_course
from collbench.cli.ground import Ground, Site, look_around, serve_site
from collbench.cli.launch_options import read_launch_options
from collbench.cli.nodes import Gathering, look_for_company
from collbench.cli.nodes_by_leaf import (
    as_it_is_now,
    leaves_kept,
    left_out,
    ranks_by_node,
    with_leaves,
)
from collbench.cli.output import say
from collbench.cli.scale_options import ScaleRequest, build_scale
from collbench.cli.scale_output import judged, leaves_of
from collbench.cli.sweep_resume import Earlier, earlier_run
from collbench.engine.protocol import Executor
from collbench.errors import ExitCode, UsageError
from collbench.launch.leaves import Leaves
from collbench.measure.plant import parse_plant
from collbench.model import Finding, NodeState, Run, Topology, Trial
from collbench.plan.message_size import AIM_S, AIM_S_ELSE, PROBE_BYTES, PROBE_BYTES_ELSE
from collbench.plan.pair_cases import PairPlace
from collbench.plan.scale import next_steps
from collbench.plan.scale_course import ScaleCourse, planned_trials
from collbench.plan.scale_design import Estimate, ScaleDesign, check_design, estimate, pattern_of
from collbench.probe.environment import read_environment
from collbench.report.heading import heading
from collbench.report.scale import scale_text
from collbench.session import SessionEnd, interruptible
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
from collbench.units import format_duration, utc_text

_ALGORITHM = "Ring"
_REPEATS = 3
_GROUP_S = 0.3
"""Of forming groups."""
_CALLS = 12


def run_scale(given: dict[str, Any]) -> int:
    """Runs the command; returns its exit status.

    Args:
        given: its parameters as click gives them.
    """
    request = build_scale(given)
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
        if not request.dry_run and request.resume is None:
            check_writable(root)
        opened = earlier_run(
            request.resume, root, command="scale", dry_run=request.dry_run, argv_of_before=None
        )
        with opened as earlier, closed_after(Gathering()) as gathering:
            ground = look_around(site, company, gathering, meet=not request.dry_run)
            prepared = _prepare(request, root, ground, earlier)
            if request.dry_run:
                _tell_plan(prepared, prepared.run, "not started (--dry-run)")
                return ExitCode.FINE
            _refuse_long(prepared)
            end, folder = _measure(prepared, root)
    return _report(prepared, end, folder)


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Everything decided and nothing started."""

    request: ScaleRequest
    ground: Ground
    """With the leaves in its topology."""
    leaves: Leaves | None
    design: ScaleDesign
    place: PairPlace
    cost: Estimate
    run: Run
    earlier: Earlier | None

    def tell(self, text: str) -> None:
        """Prints for people: on stderr where stdout is for JSON."""
        say(text, err=self.request.as_json)


def _prepare(
    request: ScaleRequest, root: Path, ground: Ground, earlier: Earlier | None
) -> _Prepared:
    ground, leaves = _with_leaves(request, root, ground)
    nodes, ranks = ground.topology.nodes, ranks_by_node(ground.topology)
    members = [n for n in ranks if ranks[n] and nodes[n].state is NodeState.PRESENT]
    _refuse_other_nodes(earlier, [nodes[number].name for number in members])
    suite = ground.suite
    seed = earlier.stored.run.seed if earlier else suite.seed or secrets.randbelow(2**31 - 1) + 1
    by_leaf = leaves_of(ground.topology)
    design = _design(request, ground, by_leaf, members, ranks, seed)
    check_design(design)
    place = PairPlace(
        names=[node.name for node in nodes],
        ranks=ranks,
        backend=ground.slots.backend,
        via=suite.via,
        policy=suite.policy,
        setting={"NCCL_ALGO": _ALGORITHM} if ground.on_nccl else {},
        emulated=bool(ground.slots.fake_hosts),
        latency=False,
    )
    steps = next_steps(design)
    step_s = _GROUP_S + _CALLS * AIM_S.get(place.backend, AIM_S_ELSE)
    cost = estimate(steps, nodes=len(members), step_s=step_s, start_s=4.0)
    run = _header(request, ground, design, leaves, planned_trials(steps, _rails(ranks, members)))
    if earlier is not None:
        run = msgspec.structs.replace(
            earlier.stored.run,
            resumed_at=[*earlier.stored.run.resumed_at, utc_text(time.time())],
            ended_at=None,
            exit_code=None,
            findings=[],
        )
    return _Prepared(
        request=request,
        ground=ground,
        leaves=leaves,
        design=design,
        place=place,
        cost=cost,
        run=run,
        earlier=earlier,
    )


def _rails(ranks: dict[int, list[int]], members: Sequence[int]) -> int:
    return min(len(ranks[number]) for number in members)


def _with_leaves(request: ScaleRequest, root: Path, ground: Ground) -> tuple[Ground, Leaves | None]:
    """Returns the ground with every node's leaf, from a run of pairwise if one is given."""
    if request.from_pairwise is None:
        return with_leaves(ground, request.topology)
    stored = read_run(find_run(request.from_pairwise, root))
    if stored.run.command != "pairwise":
        raise UsageError(
            f"--from-pairwise {request.from_pairwise} is a run of '{stored.run.command}'; give one"
            " of 'pairwise'"
        )
    leaf_of = {node.name: node.leaf for node in stored.topology.nodes if node.leaf is not None}
    here = [n.name for n in ground.topology.nodes if n.state is NodeState.PRESENT]
    unknown = [name for name in here if name not in leaf_of]
    if unknown:
        raise UsageError(
            f"--from-pairwise {request.from_pairwise} does not know the leaf of {unknown[0]}"
            f"{f' and {len(unknown) - 1} more' if len(unknown) > 1 else ''}; give --topology FILE"
        )
    nodes = [
        msgspec.structs.replace(node, leaf=leaf_of.get(node.name)) for node in ground.topology.nodes
    ]
    topology = msgspec.structs.replace(ground.topology, nodes=nodes)
    source = f"run {stored.run.run_id} of pairwise"
    return ground.with_topology(topology), Leaves(source=source, leaf_of=leaf_of)


def _refuse_other_nodes(earlier: Earlier | None, names: Sequence[str]) -> None:
    if earlier is None:
        return
    before = earlier.stored.run.suite.get("members")
    if before != list(names):
        raise UsageError(
            f"run {earlier.stored.run.run_id} cannot be resumed: it was of other nodes, or of these"
            " in another order; start a new run"
        )


def _design(
    request: ScaleRequest,
    ground: Ground,
    by_leaf: tuple[tuple[int, ...], ...] | None,
    members: Sequence[int],
    ranks: dict[int, list[int]],
    seed: int,
) -> ScaleDesign:
    size = request.size_bytes or PROBE_BYTES.get(ground.slots.backend, PROBE_BYTES_ELSE)
    known = by_leaf is not None and len(by_leaf) > 1
    design = ScaleDesign(
        leaves=by_leaf if known and by_leaf is not None else (),
        nodes=() if known else tuple(members),
        repeats=request.repeats or _REPEATS,
        size_bytes=size,
        small_bytes=max(1, size // 8),
        step=request.step,
        one_node=_rails(ranks, members) > 1,
        seed=seed,
    )
    if request.patterns is not None:
        patterns = tuple(pattern_of(word) for word in request.patterns)
        design = msgspec.structs.replace(design, patterns=patterns)
    if request.redraws is not None:
        design = msgspec.structs.replace(design, redraws=request.redraws)
    return design


def _header(
    request: ScaleRequest,
    ground: Ground,
    design: ScaleDesign,
    leaves: Leaves | None,
    planned: int,
) -> Run:
    suite = ground.suite
    names = [ground.topology.nodes[number].name for number in design.all_nodes]
    return Run(
        run_id=new_run_id(),
        command="scale",
        argv=sys.argv[1:],
        cluster=cluster_name(request.cluster, os.environ),
        suite={
            "source": "scale",
            **suite_as_dict(suite),
            "members": names,
            "patterns": [str(pattern) for pattern in design.patterns],
            "redraws": design.redraws,
            "leaves_source": leaves.source if leaves is not None and leaves.leaf_of else None,
            "left_out": left_out(ground),
            "max_oversubscription": request.max_oversubscription,
        },
        policy=suite.policy,
        repeats=design.repeats,
        seed=design.seed,
        planned_trials=planned,
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


def _refuse_long(prepared: _Prepared) -> None:
    if prepared.cost.asks and not prepared.request.yes and prepared.ground.simulation is None:
        raise UsageError(
            f"this takes about {format_duration(prepared.cost.seconds)}"
            f" ({prepared.cost.node_hours:.1f} node-hours); say --yes, or ask for less: fewer"
            " --patterns, --repeats, --redraws, a larger --step"
        )


def _tell_plan(prepared: _Prepared, run: Run, run_id: str) -> None:
    design, cost = prepared.design, prepared.cost
    prepared.tell(heading(run, prepared.ground.topology))
    leaves = f"{len(design.leaves)} leaves" if design.leaves else "leaves unknown, or one"
    prepared.tell(
        f"plan: {len(design.all_nodes)} nodes, {leaves}, {', '.join(design.patterns)}:"
        f" {cost.steps} steps in {design.repeats} repeats, about {format_duration(cost.seconds)},"
        f" {cost.node_hours:.2g} node-hours    run {run_id}"
    )
    problems = prepared.leaves.problems if prepared.leaves is not None else ()
    for text in (*prepared.ground.remarks, *problems):
        prepared.tell(f"  {text}")


def _measure(prepared: _Prepared, root: Path) -> tuple[SessionEnd, Path]:
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
        plant=parse_plant(request.plant) if request.plant else None,
        earlier=prepared.earlier,
        course_of=course_of,
        verdict_of=lambda writer: _Judge(prepared, writer),
        tell_plan=tell_plan,
    )


class _Judge:
    """Judges the steps when the session ends, however it does."""

    def __init__(self, prepared: _Prepared, writer: RunWriter) -> None:
        self._prepared, self._folder = prepared, writer.folder
        self._verdict: ScaleVerdict | None = None

    def judge(self, run: Run, topology: Topology, trials: Sequence[Trial]) -> list[Finding]:
        """Returns the answer as a finding."""
        stored = StoredRun(
            folder=self._folder,
            run=run,
            topology=leaves_kept(topology, self._prepared.ground.topology),
            trials=tuple(trials),
            problems=(),
        )
        self._verdict, _, _ = judged(stored)
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


def _report(prepared: _Prepared, end: SessionEnd, folder: Path) -> int:
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
