"""The local engine: a supervisor with a zygote and one worker a rank.

It never imports torch and never calls CUDA. Workers live on from case to case; after a fault they
are killed and fresh ones forked, so that a fault costs one case. A new repeat gets a new zygote.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from collbench.engine.faults import Fault
from collbench.engine.merge import merge_results, trial_without_result
from collbench.engine.placement import Slots
from collbench.engine.processes import KILL_WAIT_S, WorkerProcess, Zygote
from collbench.engine.protocol import Facts, Outcome, Round
from collbench.engine.team import Team
from collbench.engine.wire import Join
from collbench.errors import EngineError, NothingMeasured
from collbench.measure.plant import Plant
from collbench.model import Case, Policy, Topology
from collbench.probe.watch import HardwareWatch

_LOOPBACK = "127.0.0.1"
_FORMATION_TRIES = 3

_QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
"""For the zygote, unless the user has set them: forking is sound only without threads."""


class LocalEngine:
    """Runs rounds of one group on this machine. An ``Executor``.

    Args:
        slots: back end, ranks, GPUs, cores.
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
        policy: Policy,
        topology: Topology,
        logs: Path,
        environ: Mapping[str, str],
        plant: Plant | None,
        watch: HardwareWatch,
    ) -> None:
        self._slots, self._policy, self._logs = slots, policy, logs
        self._environ, self._plant, self._watch = environ, plant, watch
        self._facts = Facts(topology=topology)
        self._zygote: Zygote | None = None
        self._team: Team | None = None
        self._repeat = 0
        self._groups_formed = 0
        self._failed_formations = 0

    def facts(self) -> Facts:
        """Returns what is known; library versions only after the first group formed."""
        return self._facts

    def start(self) -> None:
        """Forms the first group, so that a heading can name the versions that are loaded.

        Raises:
            NothingMeasured: it cannot be formed; says which rank and GPU, and why.
        """
        fault = self._form_team()
        if fault is not None:
            self.close()
            raise NothingMeasured(f"the ranks do not come together: {self._explained(fault)}")

    def run(self, round_: Round) -> Iterator[Outcome]:
        """Yields one outcome a case of the round's only group."""
        (group,) = round_.groups
        if group.ranks != tuple(range(self._slots.world_size)):
            raise EngineError(f"a local group holds all ranks; got {group.ranks}")
        if round_.repeat != self._repeat:
            self.close()
            self._repeat = round_.repeat
        try:
            for case in group.cases:
                yield self._outcome(case)
        except BaseException:
            self._end_team()
            raise

    def close(self) -> None:
        """Ends every process; may be called twice."""
        if self._team is not None:
            self._team.quit()
            self._team = None
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _outcome(self, case: Case) -> Outcome:
        start_s = time.time()
        fault = self._form_team() if self._team is None else None
        if fault is None:
            assert self._team is not None
            before = self._watch.read()
            answer = self._team.measure(case, self._policy)
            events = self._watch.events(before)
            if not isinstance(answer, Fault):
                places = self._facts.topology.ranks
                return merge_results(case, self._repeat, answer, start_s, events, places)
            fault = answer
        self._end_team()
        return Outcome(trial=trial_without_result(case, self._repeat, fault, start_s))

    def _form_team(self) -> Fault | None:
        """Forks workers and lets them join; returns the fault if they do not."""
        zygote, slots = self._living_zygote(), self._slots
        self._groups_formed += 1
        workers: list[WorkerProcess] = []
        node = self._facts.topology.nodes[0].name
        self._team = Team(workers, zygote, node, glance=self._watch.sample_clocks)
        for rank in range(slots.world_size):
            cpuset = slots.cpusets[rank] if slots.cpusets else ""
            gpu = slots.gpus[rank].index if slots.gpus else None
            workers.append(zygote.fork(rank, gpu=gpu, variables={}, cpuset=cpuset))
        self._facts = msgspec.structs.replace(
            self._facts, workers=self._facts.workers + slots.world_size
        )
        answer = self._team.join(self._orders(), self._policy.init_deadline_s)
        if isinstance(answer, Fault):
            self._failed_formations += 1
            if self._failed_formations >= _FORMATION_TRIES:
                raise NothingMeasured(
                    f"the ranks did not come together {_FORMATION_TRIES} times in a row:"
                    f" {self._explained(answer)}"
                )
            return answer
        self._failed_formations = 0
        first = answer[0]
        self._facts = msgspec.structs.replace(
            self._facts, torch=first.torch, cuda=first.cuda, nccl=first.nccl
        )
        return None

    def _living_zygote(self) -> Zygote:
        if self._zygote is not None and not self._zygote.alive:
            self._zygote.close()
            self._zygote = None
        if self._zygote is None:
            variables = {k: v for k, v in _QUIET.items() if k not in self._environ}
            self._zygote = Zygote(variables, self._logs, self._policy.init_deadline_s)
            self._facts = msgspec.structs.replace(self._facts, zygotes=self._facts.zygotes + 1)
        return self._zygote

    def _orders(self) -> list[Join]:
        slots = self._slots
        return [
            Join(
                rank=rank,
                world_size=slots.world_size,
                backend=slots.backend,
                # CUDA numbers the visible GPUs; they were chosen in that order.
                gpu=rank if slots.gpus else None,
                ranks_on_device=1 if slots.gpus else slots.world_size,
                store_host=_LOOPBACK,
                store_port=None,
                prefix=f"group{self._groups_formed}",
                plant=self._plant,
            )
            for rank in range(slots.world_size)
        ]

    def _explained(self, fault: Fault) -> str:
        who = "; ".join(
            f"rank {culprit.rank}" + (f" on GPU {culprit.gpu}" if culprit.gpu is not None else "")
            for culprit in fault.culprits
        )
        return f"{fault.reason.text}" + (f" ({who})" if who else "") + f"; logs: {self._logs}"

    def _end_team(self) -> None:
        if self._team is None:
            return
        survivors = self._team.end()
        self._team = None
        if survivors:
            pids = ", ".join(f"rank {w.rank} (pid {w.pid})" for w in survivors)
            raise NothingMeasured(
                f"{pids} lives on {KILL_WAIT_S:.0f} s after SIGKILL: this node is unkillable;"
                " look at dmesg, reset the GPU or restart the node"
            )
