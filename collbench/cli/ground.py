"""What a command measures on: this machine or all that a launcher started, or a model of one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from collbench.cli.library import (
    Libraries,
    find_libraries,
    refuse_without_nccl,
    warnings_of,
)
from collbench.cli.nodes import Company, Gathering, presence_of, serve
from collbench.engine.cluster import ClusterEngine
from collbench.engine.group_plan import GroupPlan
from collbench.engine.logs import LogPlace
from collbench.engine.meet import total_slots
from collbench.engine.placement import DEFAULT_CPU_RANKS, GpuMissing, Slots, Wanted, choose_slots
from collbench.engine.protocol import Executor, Facts, Outcome, Round
from collbench.engine.reception import Guest
from collbench.engine.simulation import Simulation, read_simulation
from collbench.errors import ExitCode
from collbench.launch.leaves import own_leaf
from collbench.launch.share import core_warning, own_core_count, own_cores, own_gpus
from collbench.measure.plant import Plant
from collbench.model import Node, Run, Topology
from collbench.nccl.variables import quiet_variables
from collbench.probe.environment import read_environment
from collbench.probe.gpu import GpuSurvey, survey_gpus
from collbench.probe.host import numa_cores, read_node, usable_cores
from collbench.probe.nic import read_nics
from collbench.probe.watch import HardwareWatch
from collbench.suite import AUTO, ResolvedSuite, Suite, override, resolve

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What a command line says of the place."""

    suite: Suite
    """With all options over it; its tables ``run`` and ``measure`` count here."""
    expect_gpus: int | None = None
    simulate: str | None = None
    algorithm: str | None = None
    """Forced where NCCL communicates, so that it cannot change from one group to the next."""

    def resolved(self, slots: Slots) -> ResolvedSuite:
        """Returns the suite for what is here, with nothing left to guess."""
        suite = self.suite
        if self.algorithm is not None and slots.backend == "nccl":
            suite = override(suite, algo=(self.algorithm,))
        return resolve(suite, gpu=bool(slots.gpus))


@dataclass(frozen=True, kw_only=True)
class Ground:
    """All that take part, with everything known before anything starts."""

    suite: ResolvedSuite
    company: Company
    gathering: Gathering
    slots: Slots
    """Of all stations together."""
    topology: Topology
    libraries: Libraries
    """The NCCL libraries that will be loaded, as their files say."""
    simulation: Simulation | None = None
    guests: Sequence[Guest] = ()
    """The stations that take part, this process's own first."""
    remarks: Sequence[str] = ()
    """Who is missing or left out; what is wrong with the variables that are set."""

    @property
    def on_nccl(self) -> bool:
        """Whether NCCL communicates."""
        return self.slots.backend == "nccl"

    @property
    def nodes(self) -> int:
        """As many as ranks are on; emulated ones count."""
        if self.slots.fake_hosts:
            return self.slots.hosts
        return len({place.node for place in self.topology.ranks})

    def with_topology(self, topology: Topology) -> Ground:
        """Returns the same where more is known of the nodes."""
        return replace(self, topology=topology)

    def watch(self) -> HardwareWatch:
        """Returns what reads this machine's counters: of its own GPUs alone."""
        gpus = self.guests[0].presence.slots.gpus if self.guests else ()
        return HardwareWatch([gpu.index for gpu in gpus])

    def admit(self, logs: Path, run_id: str) -> None:
        """Lets the other stations in, now that there is a folder for their output."""
        reception = self.gathering.reception
        if reception is not None:
            for guest in self.guests[1:]:
                reception.admit(guest, str(logs.absolute()), run_id)

    def make_executor(self, logs: Path, watch: HardwareWatch, plant: Plant | None) -> Executor:
        """Returns what runs rounds here; it has to be closed."""
        suite = self.suite
        if self.simulation is not None:
            return _Located(self.simulation.make_executor(suite.policy), self.topology)
        return ClusterEngine(
            loop=self.gathering.loop,
            topology=self.topology,
            guests=self.guests,
            reception=self.gathering.reception,
            plan=GroupPlan(
                backend=self.slots.backend,
                library=suite.nccl,
                libraries=suite.libraries,
                plant=plant,
                quiet=quiet_variables(os.environ) if suite.policy.proof else {},
                init_deadline_s=suite.policy.init_deadline_s,
            ),
            via=suite.via,
            swept=suite.swept,
            policy=suite.policy,
            logs=LogPlace(logs),
            environ=os.environ,
            own_variables=self.company.own_variables(self.slots.backend),
            watch=watch,
        )

    def with_versions(self, run: Run, executor: Executor) -> Run:
        """Puts in what is loaded; what the file says where the first setting was refused."""
        facts, libraries = executor.facts(), self.libraries
        environment = msgspec.structs.replace(
            run.environment,
            torch=None if run.via == "native" else facts.torch or run.environment.torch,
            cuda=facts.cuda,
            nccl=facts.nccl or libraries.first,
            libraries=dict(libraries.named),
        )
        return msgspec.structs.replace(run, environment=environment)


class _Located:
    """A model whose nodes are in the leaves that the command knows, as of real nodes."""

    def __init__(self, executor: Executor, topology: Topology) -> None:
        self._executor = executor
        self._leaf_of = topology.leaf_of

    def start(self, round_: Round) -> None:
        """Makes ready for a round."""
        self._executor.start(round_)

    def run(self, round_: Round) -> Iterator[Outcome]:
        """Yields one outcome a case."""
        return self._executor.run(round_)

    def facts(self) -> Facts:
        """Returns what the model knows, with the leaves."""
        facts = self._executor.facts()
        return msgspec.structs.replace(facts, topology=facts.topology.with_leaves(self._leaf_of))

    def close(self) -> None:
        """Ends the model."""
        self._executor.close()


def look_around(site: Site, company: Company, gathering: Gathering, *, meet: bool) -> Ground:
    """Returns what there is, once all that were started together have met.

    Args:
        site: what the command line says.
        company: who was started.
        gathering: where they meet.
        meet: False for a dry run: then only this process is known.

    Raises:
        UsageError: the place cannot be as it is asked for.
        NothingMeasured: hardware that is promised cannot be used, or others do not come.
    """
    simulation = read_simulation(Path(site.simulate)) if site.simulate else None
    libraries = find_libraries(site.suite)
    guests: Sequence[Guest] = ()
    remarks: Sequence[str] = ()
    if simulation is not None:
        topology, remarks = simulation.topology, simulation.remarks
        slots = Slots(backend="simulated", world_size=len(topology.ranks), note=simulation.note)
    else:
        slots, topology = _place(site, company)
        refuse_without_nccl(site.suite, slots)
        software = read_environment(os.environ)
        own = presence_of(company, slots, topology.nodes[0], software, libraries.first)
        guests = [Guest(own, LOOPBACK)]
        if not company.alone and meet:
            met = gathering.meet(company, own)
            guests, topology, remarks = met.guests, met.topology, met.remarks
            slots = total_slots(met.guests)
    suite = site.resolved(slots)
    on_nccl = slots.backend == "nccl"
    warnings = list(warnings_of(suite, libraries, os.environ) if on_nccl else ())
    if not company.alone and guests:
        cores = own_core_count(company.launch, len(usable_cores()), os.cpu_count() or 1)
        few = core_warning(company.launch, cores, guests[0].presence.slots.world_size)
        warnings += [few] if few else []
    return Ground(
        suite=suite,
        company=company,
        gathering=gathering,
        slots=slots,
        topology=topology,
        libraries=libraries if on_nccl else Libraries(first=None),
        simulation=simulation,
        guests=guests,
        remarks=(*remarks, *warnings),
    )


def serve_site(site: Site, company: Company, *, dry_run: bool) -> int:
    """Serves node 0 from this process, if it measures anything; returns its exit status."""
    if dry_run or site.simulate is not None:
        return ExitCode.FINE
    libraries = find_libraries(site.suite)
    problem = None
    try:
        slots, topology = _place(site, company)
    except GpuMissing as missing:
        # Node 0 has to hear of it: it would wait for this node, and then be without its words.
        problem, slots = str(missing), Slots(backend="nccl", world_size=0)
        topology = Topology(nodes=[_own_node(company, survey_gpus())], ranks=[])
    suite = site.resolved(slots)
    software = read_environment(os.environ)
    own = presence_of(company, slots, topology.nodes[0], software, libraries.first)
    own = msgspec.structs.replace(own, gpu_problem=problem)
    return serve(
        company,
        own,
        via=suite.via,
        swept=suite.swept,
        init_deadline_s=suite.policy.init_deadline_s,
    )


def _place(site: Site, company: Company) -> tuple[Slots, Topology]:
    """Looks at the machine and decides what of it runs under this process."""
    survey = survey_gpus()
    place, launch = site.suite.run, company.launch
    wanted = Wanted(
        backend=place.backend,
        ranks=None if place.ranks == AUTO else int(place.ranks),
        gpus=None if place.gpus == AUTO else int(place.gpus),
        expect_gpus=site.expect_gpus,
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
    node = _own_node(company, survey)
    return slots, Topology(nodes=[node], ranks=slots.places(node.name))


def _own_node(company: Company, survey: GpuSurvey) -> Node:
    """Returns what is known of this machine."""
    name = company.launch.node_name
    node = read_node(name, gpus=survey.gpus, gpu_links=survey.links, nics=read_nics())
    return msgspec.structs.replace(node, leaf=own_leaf(os.environ))
