"""The living workers of one group: they join, measure case after case, and end together."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from collbench.engine.faults import Fault, crashed, hung, raised
from collbench.engine.processes import WorkerProcess, Zygote, end_workers
from collbench.engine.wire import (
    Closed,
    Connect,
    Connected,
    Done,
    Hosting,
    Join,
    Joined,
    Measure,
    Prove,
    Proved,
    Quit,
    Raised,
    Renew,
)
from collbench.measure.loop import RankResult
from collbench.model import Case, Policy, RankProof, ReasonCode

_GLANCE_S = 0.5
"""How often counters are read while nothing arrives."""
_GRACE_S = 1.0
"""After a first fault: time for the others' news, so that the cause and not an effect is named."""
_LONGEST_CALLS = 20
"""A hang is no progress for so many times the longest call seen, or the deadline."""
_QUIT_WAIT_S = 2.0

M = TypeVar("M", bound=msgspec.Struct)


class Team:
    """Workers of one group, in the order of their ranks.

    Args:
        workers: one a rank.
        zygote: their parent, which knows how each ended.
        node: this node's name, for culprits.
        glance: called now and then while a case runs, for what changes during it.
    """

    def __init__(
        self,
        workers: list[WorkerProcess],
        zygote: Zygote,
        node: str,
        glance: Callable[[], None],
    ) -> None:
        self._workers, self._zygote, self._node = workers, zygote, node
        self._glance = glance

    def join(self, orders: Sequence[Join], deadline_s: float) -> list[Joined] | Fault:
        """Lets the workers form their group; the first rank's store is where they meet."""
        port: int | None = None
        for worker, order in zip(self._workers, orders, strict=True):
            fault = self._send(worker, msgspec.structs.replace(order, store_port=port))
            if fault is not None:
                return fault
            if port is None:
                hosting = self._gather(Hosting, [worker], deadline_s, ReasonCode.NO_START)
                if isinstance(hosting, Fault):
                    return hosting
                port = hosting[0].port
        return self._gather(Joined, self._workers, deadline_s, ReasonCode.NO_START)

    def measure(self, case: Case, policy: Policy) -> list[RankResult] | Fault:
        """Lets the workers measure a case; returns each rank's result, or what went wrong."""
        fault = self._tell(Measure(case=case, policy=policy))
        if fault is not None:
            return fault
        done = self._gather(Done, self._workers, policy.deadline_s, ReasonCode.NO_PROGRESS)
        return done if isinstance(done, Fault) else [message.result for message in done]

    def renew(self, variables: Mapping[str, str | None], deadline_s: float) -> list[Joined] | Fault:
        """Lets the workers form their communicator anew, with other variables."""
        fault = self._tell(Renew(variables=dict(variables)))
        if fault is not None:
            return fault
        return self._gather(Joined, self._workers, deadline_s, ReasonCode.NO_START)

    def connect(self, case: Case, deadline_s: float) -> Fault | None:
        """Lets the workers run a case once, untimed: NCCL connects at the first call."""
        fault = self._tell(Connect(case=case))
        if fault is not None:
            return fault
        answer = self._gather(Connected, self._workers, deadline_s, ReasonCode.NO_START)
        return answer if isinstance(answer, Fault) else None

    def prove(self, case: Case, deadline_s: float) -> list[RankProof] | Fault:
        """Lets workers with a log run a case once; returns what each rank's log shows."""
        fault = self._tell(Prove(case=case))
        if fault is not None:
            return fault
        proved = self._gather(Proved, self._workers, deadline_s, ReasonCode.NO_PROGRESS)
        return proved if isinstance(proved, Fault) else [message.proof for message in proved]

    def _tell(self, message: Measure | Renew | Connect | Prove) -> Fault | None:
        """Sends one message to every worker; returns the first fault."""
        for worker in self._workers:
            fault = self._send(worker, message)
            if fault is not None:
                return fault
        return None

    def _send(
        self, worker: WorkerProcess, message: Join | Measure | Renew | Connect | Prove
    ) -> Fault | None:
        try:
            worker.channel.send(message)
        except Closed:
            return self._crash([worker])
        return None

    def _crash(self, dead: Sequence[WorkerProcess]) -> Fault:
        self._zygote.collect({worker.pid for worker in dead}, wait_s=1.0)
        return crashed(dead, self._zygote.exit_statuses, self._node)

    def _gather(
        self, kind: type[M], workers: Sequence[WorkerProcess], deadline_s: float, late: ReasonCode
    ) -> list[M] | Fault:
        """Waits for one message of a kind from each worker, or for the first fault."""
        answers: dict[WorkerProcess, M] = {}
        errors: dict[WorkerProcess, Raised] = {}
        dead: list[WorkerProcess] = []
        fault_s: float | None = None
        moved_s, fingerprint = time.monotonic(), self._fingerprint()
        while True:
            open_ends = [
                w for w in workers if w not in answers and w not in errors and w not in dead
            ]
            if not open_ends and not (errors or dead):
                return [answers[worker] for worker in workers]
            now_s = time.monotonic()
            if errors or dead:
                fault_s = fault_s or now_s
                if dead or not open_ends or now_s - fault_s > _GRACE_S:
                    return self._judge(errors, dead, workers)
            latest = self._fingerprint()
            if latest != fingerprint:
                moved_s, fingerprint = now_s, latest
            longest_s = max(worker.progress.longest_s for worker in self._workers)
            silent_s = now_s - moved_s
            if fault_s is None and silent_s > max(deadline_s, _LONGEST_CALLS * longest_s):
                return hung(self._workers, open_ends, silent_s, late, self._node)
            for worker in self._ready(open_ends):
                try:
                    messages = worker.channel.arrived()
                except Closed:
                    dead.append(worker)
                    continue
                for message in messages:
                    if isinstance(message, Raised):
                        errors[worker] = message
                    elif isinstance(message, kind):
                        answers[worker] = message

    def _ready(self, open_ends: Sequence[WorkerProcess]) -> list[WorkerProcess]:
        sockets = {worker.channel.sock: worker for worker in open_ends}
        readable, _, _ = select.select(list(sockets), [], [], _GLANCE_S)
        if not readable:
            self._glance()
        return [sockets[sock] for sock in readable]

    def _judge(
        self,
        errors: dict[WorkerProcess, Raised],
        dead: list[WorkerProcess],
        workers: Sequence[WorkerProcess],
    ) -> Fault:
        if dead:
            return self._crash(dead)
        texts = {worker: error.text for worker, error in errors.items()}
        refused = len(errors) == len(workers) and all(e.refused for e in errors.values())
        return raised(texts, refused_by_all=refused, node=self._node)

    def _fingerprint(self) -> tuple[tuple[int, int], ...]:
        return tuple(worker.progress.fingerprint() for worker in self._workers)

    def quit(self) -> None:
        """Lets the workers end by themselves, then makes sure."""
        for worker in self._workers:
            try:
                worker.channel.send(Quit())
            except Closed:
                continue
        end_s = time.monotonic() + _QUIT_WAIT_S
        while (left_s := end_s - time.monotonic()) > 0:
            living = [worker.pidfd for worker in self._workers if worker.alive]
            if not living:
                break
            select.select(living, [], [], left_s)
        self.end()

    def end(self) -> list[WorkerProcess]:
        """Kills the workers; returns those that survive SIGKILL."""
        survivors = end_workers(self._workers, self._zygote)
        self._workers = []
        return survivors
