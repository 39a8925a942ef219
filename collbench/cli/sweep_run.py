"""What ``collbench sweep`` does: prepare, meet, measure, report; or serve node 0."""

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

import click
import msgspec

from collbench.analyze.findings import sweep_findings
from collbench.cli.launch_options import read_launch_options
from collbench.cli.library import (
    Libraries,
    find_libraries,
    nccl_place,
    refuse_without_nccl,
    warnings_of,
)
from collbench.cli.nodes import Company, Gathering, look_for_company, presence_of, serve
from collbench.cli.output import print_results, say
from collbench.cli.sweep_options import SweepRequest, build_request
from collbench.cli.sweep_resume import (
    Earlier,
    Rest,
    continued,
    earlier_run,
    rest_of,
    resuming_lines,
    settled_environment,
    with_options_of_before,
)
from collbench.engine.cluster import ClusterEngine
from collbench.engine.crew import GroupPlan
from collbench.engine.logs import LogPlace
from collbench.engine.meet import total_slots
from collbench.engine.placement import DEFAULT_CPU_RANKS, Slots, Wanted, choose_slots
from collbench.engine.protocol import Executor
from collbench.engine.reception import Guest
from collbench.engine.simulated import Fabric, SimulatedEngine, read_fabric
from collbench.errors import ExitCode
from collbench.launch.share import core_warning, own_core_count, own_cores, own_gpus
from collbench.measure.plant import Plant, parse_plant
from collbench.model import Finding, Run, Topology, Trial
from collbench.nccl.settings import setting_text
from collbench.nccl.variables import quiet_variables
from collbench.plan.sweep import SweepPlan, plan_sweep
from collbench.probe.environment import read_environment
from collbench.probe.gpu import survey_gpus
from collbench.probe.host import numa_cores, read_node, usable_cores
from collbench.probe.nic import read_nics
from collbench.probe.watch import HardwareWatch
from collbench.report.heading import heading, plan_line, refused_lines
from collbench.report.json_output import json_document
from collbench.report.progress import LiveProgress
from collbench.session import Judge, SessionEnd, interruptible, run_session
from collbench.store import (
    RunWriter,
    StoredRun,
    check_writable,
    cluster_name,
    new_run_id,
    results_root,
)
from collbench.suite import AUTO, ResolvedSuite, resolve, suite_as_dict
from collbench.units import utc_text

LOOPBACK = "127.0.0.1"


def run_sweep(context: click.Context, given: dict[str, Any]) -> int:
    """Runs the command; returns its exit status.

    Args:
        context: of the command line.
        given: its parameters as click gives them.
    """
    given, argv_of_before = with_options_of_before(context, given)
    request = build_request(**given)
    root = results_root(request.results, os.environ)
    company = look_for_company(read_launch_options(given), root)
    with interruptible():
        if not company.leads:
            return _serve(request, company)
        if not request.dry_run and request.resume is None:
            check_writable(root)
        opened = earlier_run(
            request.resume, root, dry_run=request.dry_run, argv_of_before=argv_of_before
        )
        with opened as earlier, closed_after(Gathering()) as gathering:
            prepared = _prepare(request, company, gathering, earlier)
            if request.dry_run:
                _dry_run(prepared)
                return ExitCode.FINE
            end, folder = _measure(prepared, root)
    return _report(prepared, end, folder)


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A sweep with everything decided and nothing started."""

    request: SweepRequest
    suite: ResolvedSuite
    plan: SweepPlan
    rest: Rest
    """What of the plan is to be done: all of it, but in a run that is continued."""
    earlier: Earlier | None
    run: Run
    slots: Slots
    """Of all stations together."""
    topology: Topology
    fabric: Fabric | None
    plant: Plant | None
    libraries: Libraries
    """The NCCL libraries that will be loaded, as their files say."""
    company: Company
    gathering: Gathering
    guests: Sequence[Guest] = ()
    """The stations that take part, this process's own first."""
    remarks: Sequence[str] = ()
    """Who is missing or left out; what is wrong with the variables that are set."""

    def tell(self, text: str) -> None:
        """Prints for people: on stderr where stdout is for JSON."""
        say(text, err=self.request.as_json)


def _prepare(
    request: SweepRequest, company: Company, gathering: Gathering, earlier: Earlier | None
) -> _Prepared:
    plant = parse_plant(request.plant) if request.plant else None
    cluster = cluster_name(request.cluster, os.environ)
    fabric = read_fabric(Path(request.simulate)) if request.simulate else None
    libraries = find_libraries(request.suite)
    guests: Sequence[Guest] = ()
    remarks: Sequence[str] = ()
    if fabric is not None:
        slots, topology = _simulated_place(fabric)
    else:
        slots, topology = _place(request, company)
        refuse_without_nccl(request.suite, slots)
        software = read_environment(os.environ)
        own = presence_of(company, slots, topology.nodes[0], software, libraries.first)
        guests = [Guest(own, LOOPBACK)]
        if not company.alone and not request.dry_run:
            met = gathering.meet(company, own)
            guests, topology, remarks = met.guests, met.topology, met.remarks
            slots = total_slots(met.guests)
    suite = resolve(request.suite, gpu=bool(slots.gpus))
    drawn = secrets.randbelow(2**31 - 1) + 1 if earlier is None else earlier.stored.run.seed
    seed = suite.seed or drawn
    on_nccl = slots.backend == "nccl"
    place = nccl_place(suite, slots, topology, libraries, os.environ)
    plan = plan_sweep(
        suite,
        backend=slots.backend,
        world_size=slots.world_size,
        seed=seed,
        nodes=slots.hosts if slots.fake_hosts else len({p.node for p in topology.ranks}),
        emulated=bool(slots.fake_hosts),
        refusal=place.refusal if on_nccl else None,
    )
    warnings = list(warnings_of(suite, libraries, os.environ) if on_nccl else ())
    if not company.alone:
        cores = own_core_count(company.launch, len(usable_cores()), os.cpu_count() or 1)
        few = core_warning(company.launch, cores, guests[0].presence.slots.world_size)
        warnings += [few] if few else []
    run = _header(request, suite, plan, slots, cluster, seed, simulated=fabric is not None)
    if earlier is not None:
        run = continued(earlier.stored, run, plan, topology)
    return _Prepared(
        request=request,
        suite=suite,
        plan=plan,
        rest=rest_of(plan, earlier.stored.trials if earlier else ()),
        earlier=earlier,
        run=run,
        slots=slots,
        topology=topology,
        fabric=fabric,
        plant=plant,
        libraries=libraries if on_nccl else Libraries(first=None),
        company=company,
        gathering=gathering,
        guests=guests,
        remarks=(*remarks, *warnings),
    )


def _serve(request: SweepRequest, company: Company) -> int:
    """Serves node 0, if it measures anything."""
    if request.dry_run or request.simulate:
        return ExitCode.FINE
    libraries = find_libraries(request.suite)
    slots, topology = _place(request, company)
    suite = resolve(request.suite, gpu=bool(slots.gpus))
    software = read_environment(os.environ)
    own = presence_of(company, slots, topology.nodes[0], software, libraries.first)
    return serve(
        company,
        own,
        via=suite.via,
        swept=suite.swept,
        init_deadline_s=suite.policy.init_deadline_s,
    )


def _place(request: SweepRequest, company: Company) -> tuple[Slots, Topology]:
    """Looks at the machine and decides what of it runs under this process."""
    survey = survey_gpus()
    place, launch = request.suite.run, company.launch
    wanted = Wanted(
        backend=place.backend,
        ranks=None if place.ranks == AUTO else int(place.ranks),
        gpus=None if place.gpus == AUTO else int(place.gpus),
        expect_gpus=request.expect_gpus,
        fake_hosts=place.fake_hosts or None,
        alone=company.alone,
        default_ranks=DEFAULT_CPU_RANKS if company.alone else 1,
    )
    slots = choose_slots(
        wanted,
        survey,
        os.environ,
        own_cores(launch, usable_cores(), os.cpu_count() or 1),
        numa_cores(),
        lambda visible: own_gpus(launch, visible),
    )
    name = launch.node_name
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
        emulated=bool(slots.fake_hosts),
        via=suite.via,
        planted=request.plant,
        started_at=utc_text(time.time()),
    )


def _tell_plan(prepared: _Prepared, run: Run, run_id: str) -> None:
    plan = prepared.plan
    prepared.tell(heading(run, prepared.topology))
    for text in resuming_lines(prepared.earlier, prepared.rest) if prepared.earlier else ():
        prepared.tell(text)
    prepared.tell(plan_line(plan, run_id))
    for text in (*refused_lines(plan), *plan.collapsed, *prepared.remarks):
        prepared.tell(f"  {text}")


def _dry_run(prepared: _Prepared) -> None:
    _tell_plan(prepared, prepared.run, "not started (--dry-run)")
    left = set(prepared.rest.case_ids)
    for case in (case for case in prepared.plan.cases if case.case_id in left):
        setting = f"  {setting_text(case.setting)}" if case.setting else ""
        prepared.tell(f"  {case.case_id}{setting}")


def _measure(prepared: _Prepared, root: Path) -> tuple[SessionEnd, Path]:
    writer, logs = _opened(prepared, root)
    own_gpus_here = prepared.guests[0].presence.slots.gpus if prepared.guests else ()
    watch = HardwareWatch([gpu.index for gpu in own_gpus_here])
    reception = prepared.gathering.reception
    if reception is not None:
        for guest in prepared.guests[1:]:
            reception.admit(guest, str(logs.absolute()), writer.run.run_id)
    executor = _executor(prepared, logs, watch)
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
                judge=_judge(writer),
                earlier=prepared.earlier.stored.trials if prepared.earlier else (),
            )
    return end, writer.folder


def _opened(prepared: _Prepared, root: Path) -> tuple[RunWriter, Path]:
    """Returns the run's writer and the folder of the processes' output."""
    if prepared.earlier is None:
        writer = RunWriter.create(root, prepared.run, prepared.topology)
        return writer, writer.logs
    assert prepared.earlier.writer is not None
    writer = prepared.earlier.writer
    return writer, writer.new_part(prepared.earlier.stored.topology)


def _started(prepared: _Prepared, executor: Executor, run_id: str) -> Run:
    """Makes ready for the first round; returns the header with what is loaded."""
    if prepared.rest.rounds:
        executor.start(prepared.rest.rounds[0])
    run = msgspec.structs.replace(prepared.run, run_id=run_id)
    run = _with_versions(run, executor, prepared.libraries)
    if prepared.earlier is None:
        return run
    environment = settled_environment(prepared.earlier.stored, run.environment)
    return msgspec.structs.replace(run, environment=environment)


def _executor(prepared: _Prepared, logs: Path, watch: HardwareWatch) -> Executor:
    if prepared.fabric is not None:
        return SimulatedEngine(prepared.fabric, prepared.suite.policy)
    suite = prepared.suite
    return ClusterEngine(
        loop=prepared.gathering.loop,
        topology=prepared.topology,
        guests=prepared.guests,
        reception=prepared.gathering.reception,
        plan=GroupPlan(
            backend=prepared.slots.backend,
            library=suite.nccl,
            libraries=suite.libraries,
            plant=prepared.plant,
            quiet=quiet_variables(os.environ) if suite.policy.proof else {},
            init_deadline_s=suite.policy.init_deadline_s,
        ),
        via=suite.via,
        swept=suite.swept,
        policy=suite.policy,
        logs=LogPlace(logs),
        environ=os.environ,
        own_variables=prepared.company.own_variables(prepared.slots.backend),
        watch=watch,
    )


def _with_versions(run: Run, executor: Executor, libraries: Libraries) -> Run:
    """Puts in what is loaded; what the file says where the first setting was refused."""
    facts = executor.facts()
    environment = msgspec.structs.replace(
        run.environment,
        torch=None if run.via == "native" else facts.torch or run.environment.torch,
        cuda=facts.cuda,
        nccl=facts.nccl or libraries.first,
        libraries=dict(libraries.named),
    )
    return msgspec.structs.replace(run, environment=environment)


def _judge(writer: RunWriter) -> Judge:
    def judge(run: Run, topology: Topology, trials: Sequence[Trial]) -> list[Finding]:
        stored = StoredRun(
            folder=writer.folder, run=run, topology=topology, trials=tuple(trials), problems=()
        )
        return sweep_findings(run, trials, stored.over_ranks_us)

    return judge


def _report(prepared: _Prepared, end: SessionEnd, folder: Path) -> int:
    if prepared.request.as_json:
        document = json_document(end.run.run_id, end.exit_code, end.trials, end.findings)
        say(document.decode())
    else:
        newest = prepared.request.results is None and prepared.earlier is None
        name = "last" if newest else str(folder)
        print_results(end.run, prepared.topology, end.trials, end.findings, folder, name=name)
    if end.error is not None:
        say(f"collbench: {end.error}", err=True)
    return end.exit_code
