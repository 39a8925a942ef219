"""The local engine: a supervisor with a zygote and one worker a rank.

It never imports torch and never calls CUDA. Workers live on from case to case; after a fault they
are killed and fresh ones forked, so that a fault costs one case. A new repeat gets a new zygote,
and so does a setting that only a fresh interpreter would read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.engine.faults import Fault
from collbench.engine.lineup import Kind, has_twin, timed_in
from collbench.engine.merge import merge_results, trial_without_result
from collbench.engine.muster import Muster
from collbench.engine.placement import Slots
from collbench.engine.processes import KILL_WAIT_S, Zygote
from collbench.engine.protocol import Facts, Outcome, Round
from collbench.engine.team import Team
from collbench.errors import EngineError, NothingMeasured
from collbench.measure.plant import Plant
from collbench.model import Case, Policy, RankProof, Status, Topology
from collbench.nccl.settings import Changes, Needs, needs_of
from collbench.nccl.variables import quiet_variables
from collbench.probe.watch import HardwareWatch

_FORMATION_TRIES = 3

_QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
"""For the zygote, unless the user has set them: forking is sound only without threads."""


@dataclass
class _Seated:
    """A living team and what its communicator was formed with."""

    team: Team
    communicator: Changes


class LocalEngine:
    """Runs rounds of one group on this machine. An ``Executor``.

    Args:
        slots: back end, ranks, GPUs, cores.
        via: through what workers communicate: ``torch`` or ``native``.
        library: path of the NCCL library to load; None: the installed one.
        swept: the variables that any setting of the run touches.
        policy: deadlines; the rest is passed on to the workers.
        topology: of this machine, with the ranks' places.
        logs: folder for the processes' output.
        environ: this process's environment.
        plant: a fault to plant, or None.
        watch: hardware counters, read around each case.
    """

    def __init__(
        self,
        *,
        slots: Slots,
        via: str,
        library: str | None,
        swept: Collection[str],
        policy: Policy,
        topology: Topology,
        logs: Path,
        environ: Mapping[str, str],
        plant: Plant | None,
        watch: HardwareWatch,
    ) -> None:
        self._slots, self._via, self._policy, self._logs = slots, via, policy, logs
        self._environ, self._watch, self._swept = environ, watch, swept
        self._muster = Muster(
            slots=slots,
            library=library,
            quiet=quiet_variables(environ) if policy.proof else {},
            node=topology.nodes[0].name,
            logs=logs,
            plant=plant,
            glance=watch.sample_clocks,
        )
        self._facts = Facts(topology=topology)
        self._zygote: Zygote | None = None
        self._teams: dict[Kind, _Seated] = {}
        self._repeat = 0
        self._zygote_part: Changes = ()
        self._worker_part: Changes = ()
        self._refused: dict[Needs, Fault] = {}
        self._failed_formations = 0

    def facts(self) -> Facts:
        """Returns what is known; library versions only after the first group formed."""
        return self._facts

    def start(self, round_: Round) -> None:
        """Forms the first group, so that a heading can name the versions that are loaded.

        Raises:
            NothingMeasured: it cannot be formed; says which rank and GPU, and why.
        """
        case = round_.groups[0].cases[0]
        self._enter(round_.repeat)
        team = self._team(case, timed_in(case, self._policy))
        if isinstance(team, Fault) and not case.setting:
            self.close()
            raise NothingMeasured(f"the ranks do not come together: {self._explained(team)}")

    def run(self, round_: Round) -> Iterator[Outcome]:
        """Yields one outcome a case of the round's only group."""
        (group,) = round_.groups
        if group.ranks != tuple(range(self._slots.world_size)):
            raise EngineError(f"a local group holds all ranks; got {group.ranks}")
        self._enter(round_.repeat)
        try:
            for case in group.cases:
                yield self._outcome(case)
        except BaseException:
            self._end_teams()
            raise

    def close(self) -> None:
        """Ends every process; may be called twice."""
        for seated in self._teams.values():
            seated.team.quit()
        self._teams.clear()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _enter(self, repeat: int) -> None:
        """Repeats never share a process."""
        if repeat != self._repeat:
            self.close()
            self._repeat = repeat

    def _outcome(self, case: Case) -> Outcome:
        start_s = time.time()
        kind = timed_in(case, self._policy)
        team = self._team(case, kind)
        if isinstance(team, Fault):
            return Outcome(trial=trial_without_result(case, self._repeat, team, start_s))
        start_s = time.time()
        before = self._watch.read()
        answer = team.measure(case, self._policy)
        if isinstance(answer, Fault):
            self._end_team(kind)
            return Outcome(trial=trial_without_result(case, self._repeat, answer, start_s))
        events = self._watch.events(before)
        end_s = time.time()
        twins: list[RankProof] | str | None = None
        if answer[0].status is Status.OK and has_twin(case, self._policy):
            found = self._proved_by_twin(case)
            twins = found.reason.text if isinstance(found, Fault) else found
        return merge_results(
            case,
            self._repeat,
            answer,
            (start_s, end_s),
            events,
            self._facts.topology,
            twins,
            nccl=self._facts.nccl,
        )

    def _proved_by_twin(self, case: Case) -> list[RankProof] | Fault:
        """Runs a case once in logged workers that were started alike."""
        start_s = time.monotonic()
        team = self._team(case, Kind.LOGGED)
        proofs = team if isinstance(team, Fault) else team.prove(case, self._policy.deadline_s)
        if isinstance(proofs, Fault) and not isinstance(team, Fault):
            self._end_team(Kind.LOGGED)
        self._count(proof_s=self._facts.proof_s + time.monotonic() - start_s)
        return proofs

    def _team(self, case: Case, kind: Kind) -> Team | Fault:
        """Returns living workers of a kind with the case's setting; the fault if there are none."""
        needs = needs_of(case.setting, self._swept)
        if needs in self._refused:
            return self._refused[needs]
        if needs.zygote != self._zygote_part or needs.worker != self._worker_part:
            self._part_ways(needs)
        seated = self._teams.get(kind)
        if seated is not None and seated.communicator == needs.communicator:
            return seated.team
        fault = self._form(needs, kind) if seated is None else self._renew(seated, needs)
        if fault is not None:
            self._end_team(kind)
            self._judge_formation(case, needs, fault)
            return fault
        self._failed_formations = 0
        return self._connected(case, kind)

    def _connected(self, case: Case, kind: Kind) -> Team | Fault:
        """NCCL connects at the first call: that is made by the case to come, before its time."""
        team = self._teams[kind].team
        if case.backend == "nccl":
            fault = team.connect(case, self._policy.init_deadline_s)
            if fault is not None:
                self._end_team(kind)
                return fault
        return team

    def _part_ways(self, needs: Needs) -> None:
        """Ends what cannot serve the new setting."""
        if needs.zygote != self._zygote_part:
            self.close()
        for seated in self._teams.values():
            seated.team.quit()
        self._teams.clear()
        self._zygote_part, self._worker_part = needs.zygote, needs.worker

    def _form(self, needs: Needs, kind: Kind) -> Fault | None:
        variables = dict((*needs.worker, *needs.communicator))
        self._count(workers=self._facts.workers + self._slots.world_size)
        team, orders = self._muster.fork(
            self._living_zygote(), variables, logged=kind is Kind.LOGGED
        )
        self._teams[kind] = _Seated(team, needs.communicator)
        answer = team.join(orders, self._policy.init_deadline_s)
        if isinstance(answer, Fault):
            return answer
        first = answer[0]
        self._count(
            communicators=self._facts.communicators + 1,
            torch=first.torch,
            cuda=first.cuda,
            nccl=first.nccl,
        )
        return None

    def _renew(self, seated: _Seated, needs: Needs) -> Fault | None:
        answer = seated.team.renew(dict(needs.communicator), self._policy.init_deadline_s)
        seated.communicator = needs.communicator
        self._count(communicators=self._facts.communicators + 1)
        return answer if isinstance(answer, Fault) else None

    def _judge_formation(self, case: Case, needs: Needs, fault: Fault) -> None:
        """A setting that every rank refused is not tried again; other failures not for ever."""
        if case.setting and fault.status is Status.UNSUPPORTED:
            self._refused[needs] = fault
            return
        self._failed_formations += 1
        if self._failed_formations >= _FORMATION_TRIES:
            raise NothingMeasured(
                f"the ranks did not come together {_FORMATION_TRIES} times in a row:"
                f" {self._explained(fault)}"
            )

    def _living_zygote(self) -> Zygote:
        if self._zygote is not None and not self._zygote.alive:
            self._zygote.close()
            self._zygote = None
        if self._zygote is None:
            variables: dict[str, str | None] = {
                name: value for name, value in _QUIET.items() if name not in self._environ
            }
            variables |= dict(self._zygote_part)
            deadline_s = self._policy.init_deadline_s
            self._zygote = Zygote(self._via, variables, self._logs, deadline_s)
            self._count(zygotes=self._facts.zygotes + 1)
        return self._zygote

    def _count(self, **facts: object) -> None:
        self._facts = msgspec.structs.replace(self._facts, **facts)

    def _explained(self, fault: Fault) -> str:
        who = "; ".join(
            f"rank {culprit.rank}" + (f" on GPU {culprit.gpu}" if culprit.gpu is not None else "")
            for culprit in fault.culprits
        )
        return f"{fault.reason.text}" + (f" ({who})" if who else "") + f"; logs: {self._logs}"

    def _end_teams(self) -> None:
        for kind in list(self._teams):
            self._end_team(kind)

    def _end_team(self, kind: Kind) -> None:
        seated = self._teams.pop(kind, None)
        survivors = seated.team.end() if seated is not None else []
        if survivors:
            pids = ", ".join(f"rank {w.rank} (pid {w.pid})" for w in survivors)
            raise NothingMeasured(
                f"{pids} lives on {KILL_WAIT_S:.0f} s after SIGKILL: this node is unkillable;"
                " look at dmesg, reset the GPU or restart the node"
            )
