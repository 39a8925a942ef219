"""Stand-ins for what the local engine starts: they write down what is asked of them.

``Stage`` is the place they all play on. What goes wrong is said in ``Stage.faults``: the number of
a team (from 1, in the order of forking) and the step -> the fault it answers with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from collbench.engine.faults import Fault
from collbench.engine.lineup import Starts
from collbench.engine.placement import Slots
from collbench.engine.protocol import Group, Outcome, Round
from collbench.engine.supervisor import LocalEngine
from collbench.engine.wire import Joined
from collbench.measure.loop import RankResult
from collbench.model import (
    Case,
    LibraryVersion,
    Node,
    Policy,
    RankProof,
    Reason,
    ReasonCode,
    Status,
    StopReason,
    Topology,
)
from collbench.probe.watch import HardwareWatch

RANKS = 2
NODE = Node(name="n", cpu_model="", cpus=2, numa_nodes=1, memory_bytes=1)
TWIN_PROOF = RankProof(transports=["P2P/CUMEM"], algorithm="Ring", protocol="LL")
JOINED = [Joined(torch="2.11", cuda="13.0", nccl=LibraryVersion(version="2.28.9"))] * RANKS


def fault(status: Status, text: str) -> Fault:
    """Returns a fault with the reason code that goes with its status."""
    codes = {
        Status.UNSUPPORTED: ReasonCode.REFUSED,
        Status.CRASHED: ReasonCode.KILLED,
        Status.HUNG: ReasonCode.NO_START,
        Status.FAILED: ReasonCode.RAISED,
    }
    return Fault(status, Reason(code=codes[status], text=text))


@dataclass
class Stage:
    """What was started and asked, in order, and what goes wrong."""

    events: list[tuple[Any, ...]] = field(default_factory=list)
    faults: dict[tuple[int, str], Fault] = field(default_factory=dict)
    status: Status = Status.OK
    """Of every result."""
    teams: int = 0
    zygotes: list[FakeZygote] = field(default_factory=list)

    def happened(self, *kinds: str) -> list[tuple[Any, ...]]:
        """Returns the events of some kinds."""
        return [event for event in self.events if event[0] in kinds]

    def muster(self, **_known: Any) -> FakeMuster:
        """Stands in for ``Muster``."""
        return FakeMuster(self)

    def zygote(
        self, via: str, variables: dict[str, str | None], _logs: Path, _deadline_s: float
    ) -> FakeZygote:
        """Stands in for ``Zygote``."""
        self.events.append(("zygote", via, variables))
        self.zygotes.append(FakeZygote(self))
        return self.zygotes[-1]


class FakeZygote:
    """Lives until it is closed."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self.alive = stage, True

    def close(self) -> None:
        self.alive = False
        self._stage.events.append(("zygote ends",))


class FakeMuster:
    """Forks teams and numbers them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def fork(
        self, zygote: FakeZygote, variables: dict[str, str | None], *, logged: bool
    ) -> tuple[FakeTeam, list[None]]:
        assert zygote.alive
        self._stage.teams += 1
        self._stage.events.append(("team", self._stage.teams, logged, dict(variables)))
        return FakeTeam(self._stage, self._stage.teams, logged=logged), [None] * RANKS


class FakeTeam:
    """Answers at once; every rank alike."""

    def __init__(self, stage: Stage, number: int, *, logged: bool) -> None:
        self._stage, self.number, self._logged = stage, number, logged

    def _asked(self, step: str, *more: Any) -> Fault | None:
        self._stage.events.append((step, self.number, *more))
        return self._stage.faults.get((self.number, step))

    def join(self, orders: list[None], _deadline_s: float) -> list[Joined] | Fault:
        assert len(orders) == RANKS
        return self._asked("join") or JOINED

    def renew(self, variables: dict[str, str | None], _deadline_s: float) -> list[Joined] | Fault:
        return self._asked("renew", variables) or JOINED

    def connect(self, case: Case, _deadline_s: float) -> Fault | None:
        return self._asked("connect", case.setting)

    def measure(self, case: Case, _policy: Policy) -> list[RankResult] | Fault:
        result = RankResult(
            status=self._stage.status,
            stop_reason=StopReason.FIXED,
            times_us=np.full(20, 5.0, "<f4").tobytes(),
            clock="fake",
            proof=TWIN_PROOF if self._logged else None,
        )
        return self._asked("measure", case.setting) or [result] * RANKS

    def prove(self, case: Case, _deadline_s: float) -> list[RankProof] | Fault:
        return self._asked("prove", case.setting) or [TWIN_PROOF] * RANKS

    def quit(self) -> None:
        self._stage.events.append(("quit", self.number))

    def end(self) -> list[Any]:
        self._stage.events.append(("end", self.number))
        return []


def make_engine(
    logs: Path, swept: list[str], *, backend: str = "nccl", policy: Policy | None = None
) -> LocalEngine:
    """Returns an engine of two ranks; what it starts has to be replaced by then."""
    slots = Slots(backend=backend, world_size=RANKS)
    return LocalEngine(
        slots=slots,
        via="torch",
        library=None,
        swept=swept,
        policy=policy or Policy(),
        topology=Topology(nodes=[NODE], ranks=slots.places("n")),
        logs=logs,
        environ={"OMP_NUM_THREADS": "4"},
        plant=None,
        watch=HardwareWatch(root=logs),
    )


def round_of(cases: list[Case], repeat: int = 0) -> Round:
    """Returns a round of one group of all ranks."""
    return Round(repeat=repeat, groups=(Group(ranks=tuple(range(RANKS)), cases=tuple(cases)),))


def outcomes(engine: LocalEngine, rounds: list[Round]) -> Iterator[Outcome]:
    """Yields the outcomes of all rounds."""
    for round_ in rounds:
        yield from engine.run(round_)


def starts_of(engine: LocalEngine) -> Starts:
    """Returns what an engine has started; ``twins`` is not among its facts."""
    facts = engine.facts()
    return Starts(zygotes=facts.zygotes, workers=facts.workers, communicators=facts.communicators)
