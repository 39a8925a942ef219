"""``collbench sweep``: collectives over message size on this machine."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Sequence
from contextlib import closing as closed_after
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from collbench.analyze.findings import sweep_findings
from collbench.cli.output import print_results
from collbench.cli.sweep_options import SweepRequest, build_request, sweep_options
from collbench.engine.placement import Slots, Wanted, choose_slots, refuse_launcher
from collbench.engine.protocol import Executor
from collbench.engine.simulated import Fabric, SimulatedEngine, read_fabric
from collbench.engine.supervisor import LocalEngine
from collbench.errors import ExitCode
from collbench.measure.plant import Plant, parse_plant
from collbench.model import Finding, Run, Topology, Trial
from collbench.plan.sweep import SweepPlan, plan_sweep
from collbench.probe.environment import read_environment
from collbench.probe.gpu import survey_gpus
from collbench.probe.host import numa_cores, read_node, usable_cores
from collbench.probe.nic import read_nics
from collbench.probe.watch import HardwareWatch
from collbench.report.heading import heading, plan_line
from collbench.report.json_output import json_document
from collbench.report.progress import LiveProgress
from collbench.session import Interrupted, SessionEnd, interruptible, run_session
from collbench.store import (
    RunWriter,
    StoredRun,
    check_writable,
    cluster_name,
    new_run_id,
    results_root,
)
from collbench.suite import AUTO, ResolvedSuite, resolve, suite_as_dict


@click.command(context_settings={"max_content_width": 120})
@sweep_options
def sweep(**given: Any) -> int:
    """Measure collectives over message size on this machine.

    SUITE is a file, or one of sweep (the default), latency, bandwidth, smoke.

    \b
    Examples:
      collbench sweep                                    all that is here, 30 s on a CPU
      collbench sweep -b 8 -e 8G -f 2                    the ladder of nccl-tests
      collbench sweep --collective all_to_all -d bfloat16 --repeats 5
      collbench sweep latency --json
    """  # noqa: D301  click's mark for "do not rewrap"
    request = build_request(**given)
    refuse_launcher(os.environ)
    plant = parse_plant(request.plant) if request.plant else None
    cluster = cluster_name(request.cluster, os.environ)
    fabric = read_fabric(Path(request.simulate)) if request.simulate else None
    slots, topology = _simulated_place(fabric) if fabric else _place(request)
    suite = resolve(request.suite, gpu=bool(slots.gpus))
    seed = suite.seed or secrets.randbelow(2**31 - 1) + 1
    plan = plan_sweep(suite, backend=slots.backend, world_size=slots.world_size, seed=seed)
    run = _header(request, suite, plan, slots, cluster, seed, simulated=fabric is not None)
    say = _Speaker(as_json=request.as_json)
    if request.dry_run:
        _dry_run(say, run, topology, plan)
        return ExitCode.FINE
    root = results_root(request.results, os.environ)
    check_writable(root)
    try:
        with interruptible():
            return _measure(request, run, topology, plan, slots, suite, fabric, plant, root, say)
    except Interrupted as interrupt:
        say.error("interrupted before the first case; nothing was measured")
        return interrupt.exit_code


class _Speaker:
    """Where words go: stdout for people, stderr where stdout is for JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._err = as_json

    def line(self, text: str) -> None:
        click.echo(text, err=self._err)
        sys.stdout.flush()

    def error(self, text: str) -> None:
        click.echo(f"collbench: {text}", err=True)


def _place(request: SweepRequest) -> tuple[Slots, Topology]:
    """Looks at the machine and decides what runs on it."""
    survey = survey_gpus()
    place = request.suite.run
    wanted = Wanted(
        backend=place.backend,
        ranks=None if place.ranks == AUTO else int(place.ranks),
        gpus=None if place.gpus == AUTO else int(place.gpus),
        expect_gpus=request.expect_gpus,
    )
    slots = choose_slots(wanted, survey, os.environ, usable_cores(), numa_cores())
    name = socket.gethostname()
    node = read_node(name, gpus=survey.gpus, gpu_links=survey.links, nics=read_nics())
    return slots, Topology(nodes=[node], ranks=slots.places(name))


def _simulated_place(fabric: Fabric) -> tuple[Slots, Topology]:
    slots = Slots(backend="simulated", world_size=fabric.ranks)
    return slots, SimulatedEngine.topology_of(fabric)


def _header(
    request: SweepRequest,
    suite: ResolvedSuite,
    plan: SweepPlan,
    slots: Slots,
    cluster: str,
    seed: int,
    *,
    simulated: bool,
) -> Run:
    return Run(
        run_id=new_run_id(),
        command="sweep",
        argv=sys.argv[1:],
        cluster=cluster,
        suite={"source": request.source, **suite_as_dict(suite)},
        policy=suite.policy,
        repeats=suite.repeats,
        seed=seed,
        planned_trials=plan.trials,
        backend=slots.backend,
        world_size=slots.world_size,
        environment=read_environment(os.environ),
        note=slots.note,
        simulated=simulated,
        planted=request.plant,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def _dry_run(say: _Speaker, run: Run, topology: Topology, plan: SweepPlan) -> None:
    say.line(heading(run, topology))
    say.line(plan_line(plan.cases, plan.repeats, plan.estimate_s, "not started (--dry-run)"))
    for text in plan.collapsed:
        say.line(f"  {text}")
    for case in plan.cases:
        say.line(f"  {case.case_id}")


def _measure(
    request: SweepRequest,
    run: Run,
    topology: Topology,
    plan: SweepPlan,
    slots: Slots,
    suite: ResolvedSuite,
    fabric: Fabric | None,
    plant: Plant | None,
    root: Path,
    say: _Speaker,
) -> int:
    writer = RunWriter.create(root, run, topology)
    watch = HardwareWatch([gpu.index for gpu in slots.gpus])
    executor: Executor
    with closed_after(watch):
        if fabric is not None:
            executor = SimulatedEngine(fabric, suite.policy)
        else:
            executor = LocalEngine(
                slots=slots,
                policy=suite.policy,
                topology=topology,
                logs=writer.logs,
                environ=os.environ,
                plant=plant,
                watch=watch,
            )
        try:
            executor.start()
        except BaseException:
            executor.close()
            writer.discard()
            raise
        run = _with_versions(writer.run, executor)
        writer.update(run, topology)
        say.line(heading(run, topology))
        say.line(plan_line(plan.cases, plan.repeats, plan.estimate_s, run.run_id))
        for text in plan.collapsed:
            say.line(f"  {text}")
        say.line("")
        with LiveProgress(plan.trials) as progress:
            end = run_session(
                run=run,
                rounds=plan.rounds,
                executor=executor,
                writer=writer,
                observer=progress,
                judge=_judge(writer),
            )
    return _report(request, end, topology, writer.folder, say)


def _with_versions(run: Run, executor: Executor) -> Run:
    facts = executor.facts()
    environment = msgspec.structs.replace(
        run.environment,
        torch=facts.torch or run.environment.torch,
        cuda=facts.cuda,
        nccl=facts.nccl,
    )
    return msgspec.structs.replace(run, environment=environment)


def _judge(writer: RunWriter) -> Any:
    def judge(run: Run, topology: Topology, trials: Sequence[Trial]) -> list[Finding]:
        stored = StoredRun(
            folder=writer.folder, run=run, topology=topology, trials=tuple(trials), problems=()
        )
        return sweep_findings(run, trials, stored.over_ranks_us)

    return judge


def _report(
    request: SweepRequest, end: SessionEnd, topology: Topology, folder: Path, say: _Speaker
) -> int:
    if request.as_json:
        click.echo(json_document(end.run.run_id, end.exit_code, end.trials, end.findings))
    else:
        name = "last" if request.results is None else str(folder)
        print_results(end.run, topology, end.trials, end.findings, folder, name=name)
    if end.error is not None:
        say.error(end.error)
    return end.exit_code
