"""Stand-ins for stations and their workers: they write down what is asked of them, and answer.

``Stage`` is the place they all play on. What goes wrong is said in ``Stage.faults``: the number of
a team (the workers of one order to fork, from 1) and the step -> what happens there instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from collbench.engine.controller import Controller
from collbench.engine.crew import Crew
from collbench.engine.group_plan import GroupPlan
from collbench.engine.lineup import Starts
from collbench.engine.orders import (
    Died,
    Dismiss,
    Dismissed,
    Finish,
    Fork,
    Forked,
    ForkFailed,
    Look,
    Looked,
    Order,
    Report,
    SeatLook,
    Spoke,
    Tell,
    TellEach,
)
from collbench.engine.placement import Slots
from collbench.engine.protocol import Group, Outcome, Round
from collbench.engine.roster import berths_of
from collbench.engine.seats import Post
from collbench.engine.wire import (
    Connect,
    Connected,
    Done,
    FromWorker,
    Hosting,
    Join,
    Joined,
    Measure,
    Prove,
    Proved,
    Raised,
    Renew,
    ToWorker,
)
from collbench.measure.loop import RankResult
from collbench.model import (
    Case,
    LibraryVersion,
    Node,
    Policy,
    RankPlace,
    RankProof,
    Status,
    StopReason,
    Topology,
)

RANKS = 2
STORE_PORT = 4711
TWIN_PROOF = RankProof(transports=["P2P/CUMEM"], algorithm="Ring", protocol="LL")
JOINED = Joined(torch="2.11", cuda="13.0", nccl=LibraryVersion(version="2.28.9"))
STEPS = {Join: "join", Renew: "renew", Connect: "connect", Measure: "measure", Prove: "prove"}


class Fails(StrEnum):
    """What may happen in place of an answer."""

    REFUSED = "refused"
    """Every rank raises that it cannot."""
    RAISED = "raised"
    """Every rank raises."""
    DIED = "died"
    """The team's last worker is killed."""


@dataclass
class Stage:
    """What was started and asked, in order, and what goes wrong."""

    events: list[tuple[Any, ...]] = field(default_factory=list)
    faults: dict[tuple[int, str], Fails] = field(default_factory=dict)
    status: Status = Status.OK
    """Of every result."""
    cannot_fork: dict[int, str] = field(default_factory=dict)
    """Why no zygote starts, by a rank that it would have forked."""
    unkillable: set[int] = field(default_factory=set)
    """The ranks whose workers survive SIGKILL."""
    stopped: set[int] = field(default_factory=set)
    """The ranks that are stopped."""
    nccl_says: dict[int, list[str]] = field(default_factory=dict)
    """What NCCL's own watch answers where a rank lives."""
    joins: list[Join] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    """By which rank 0 measured."""
    teams: int = 0

    def happened(self, *kinds: str) -> list[tuple[Any, ...]]:
        """Returns the events of some kinds."""
        return [event for event in self.events if event[0] in kinds]


@dataclass(frozen=True)
class FakeWorker:
    """A worker of a fake station."""

    seat: int
    rank: int
    team: int
    logged: bool


class FakeStation:
    """Obeys as a station does, with workers that answer at once.

    Args:
        stage: where everything is written down.
        report: takes the answers.
    """

    def __init__(self, stage: Stage, report: Callable[[Report], None]) -> None:
        self._stage, self._report = stage, report
        self.held: dict[int, FakeWorker] = {}
        self.let_go: str | None = None
        """Why, before the end of the run."""
        self._part: tuple[int, Any] | None = None
        self._zygotes = 0

    def send(self, order: Order) -> None:
        """Takes an order; it is obeyed a turn of the event loop later."""
        asyncio.get_running_loop().call_soon(self._obey, order)

    def _obey(self, order: Order) -> None:
        match order:
            case Fork():
                self._fork(order)
            case Tell():
                self._tell([(seat, order.message) for seat in order.seats])
            case TellEach():
                self._tell(order.messages)
            case Dismiss():
                self._dismiss(order)
            case Look():
                self._look(order)
            case Finish():
                self.let_go = order.text
                self.held.clear()
            case _:
                raise AssertionError(f"not an order to this station: {order}")

    def _fork(self, order: Fork) -> None:
        stage = self._stage
        failing = [seat.rank for seat in order.seats if seat.rank in stage.cannot_fork]
        if failing:
            seats = [seat.seat for seat in order.seats]
            self._report(ForkFailed(seats=seats, text=stage.cannot_fork[failing[0]]))
            return
        if self._part != (order.repeat, order.zygote):
            assert not self.held, "workers of another zygote have been dismissed before"
            self._part = (order.repeat, order.zygote)
            self._zygotes += 1
            stage.events.append(("zygote", dict(order.zygote)))
        stage.teams += 1
        first = order.seats[0]
        stage.events.append(("team", stage.teams, first.logged, first.variables))
        for seat in order.seats:
            self.held[seat.seat] = FakeWorker(seat.seat, seat.rank, stage.teams, seat.logged)
        pids = [(seat.seat, 1000 + seat.seat) for seat in order.seats]
        self._report(Forked(pids=pids, zygotes=self._zygotes, import_s=0.0))

    def _tell(self, messages: Sequence[tuple[int, ToWorker]]) -> None:
        told = [(self.held[seat], message) for seat, message in messages if seat in self.held]
        if not told:
            return
        self._write_down(told[0][0].team, told[0][1])
        for worker, message in told:
            if isinstance(message, Join):
                self._stage.joins.append(message)
                if message.rank == 0:
                    self._say(worker, Hosting(port=STORE_PORT))
            self._answer(worker, message)

    def _write_down(self, team: int, message: ToWorker) -> None:
        step = STEPS[type(message)]
        match message:
            case Join():
                if message.rank == 0:
                    self._stage.events.append((step, team))
            case Renew():
                self._stage.events.append((step, team, message.variables))
            case Connect() | Measure() | Prove():
                self._stage.events.append((step, team, message.case.setting))

    def _answer(self, worker: FakeWorker, message: ToWorker) -> None:
        fails = self._stage.faults.get((worker.team, STEPS[type(message)]))
        if fails is None:
            self._say(worker, self._answer_to(message, worker))
        elif fails is not Fails.DIED:
            text = f"{fails} by rank {worker.rank}"
            self._say(worker, Raised(text=text, refused=fails is Fails.REFUSED))
        elif worker.seat == max(w.seat for w in self.held.values() if w.team == worker.team):
            del self.held[worker.seat]
            self._report(Died(seat=worker.seat, exit_status=-9, calls=7, log_tail=["last words"]))

    def _answer_to(self, message: ToWorker, worker: FakeWorker) -> FromWorker:
        match message:
            case Join() | Renew():
                return JOINED
            case Connect():
                return Connected()
            case Measure():
                if worker.rank == 0:
                    self._stage.policies.append(message.policy)
                result = RankResult(
                    status=self._stage.status,
                    stop_reason=StopReason.FIXED,
                    times_us=np.full(20, 5.0, "<f4").tobytes(),
                    clock="fake",
                    proof=TWIN_PROOF if worker.logged else None,
                )
                return Done(result=result)
            case _:
                return Proved(proof=TWIN_PROOF)

    def _say(self, worker: FakeWorker, message: FromWorker) -> None:
        self._report(Spoke(seat=worker.seat, message=message))

    def _dismiss(self, order: Dismiss) -> None:
        gone = [self.held.pop(seat) for seat in order.seats if seat in self.held]
        for team in sorted({worker.team for worker in gone}):
            self._stage.events.append(("end" if order.kill else "quit", team))
        survivors = [worker.seat for worker in gone if worker.rank in self._stage.unkillable]
        self._report(Dismissed(seats=order.seats, survivors=survivors))

    def _look(self, order: Look) -> None:
        held = [self.held[seat] for seat in order.seats if seat in self.held]
        stopped = self._stage.stopped
        looks = [
            SeatLook(seat=w.seat, state="T" if w.rank in stopped else "S", log_tail=["a line"])
            for w in held
        ]
        said: list[str] = []
        if order.ask_nccl:
            for worker in held:
                self._stage.events.append(("ask nccl", worker.rank))
                said += self._stage.nccl_says.get(worker.rank, [])
        self._report(Looked(looks=looks, evidence=said))


class FakeCluster:
    """A controller and a crew over fake stations, ranks of one node after those of another.

    Args:
        stage: what they play on.
        nodes: ranks of each.
        swept: the variables that any setting touches.
        policy: of the controller.
        quiet: variables of quiet workers.
    """

    def __init__(
        self,
        stage: Stage,
        *,
        nodes: Sequence[int] = (RANKS,),
        swept: Sequence[str] = (),
        policy: Policy | None = None,
        quiet: dict[str, str] | None = None,
    ) -> None:
        self.stage, self.policy = stage, policy or Policy()
        names = [f"n{number}" for number in range(len(nodes))]
        addresses = [f"198.18.0.{number}" for number in range(1, len(nodes) + 1)]
        self.posts = [
            Post(name, address, _nowhere, shown=len(nodes) > 1)
            for name, address in zip(names, addresses, strict=True)
        ]
        slots = [Slots(backend="nccl", world_size=ranks) for ranks in nodes]
        berths = berths_of(slots, self.posts)
        plan = GroupPlan(
            backend="nccl",
            library=None,
            libraries={name: f"/{name}/libnccl.so.2" for name in ("old", "new")},
            plant=None,
            quiet=quiet or {},
            init_deadline_s=self.policy.init_deadline_s,
        )
        self.crew = Crew(berths, plan)
        self.stations = [FakeStation(stage, self._reporter(post)) for post in self.posts]
        for post, station in zip(self.posts, self.stations, strict=True):
            post.send = station.send
        self.controller = Controller(
            crew=self.crew,
            swept=swept,
            policy=self.policy,
            topology=Topology(
                nodes=[
                    Node(name=name, cpu_model="", cpus=2, numa_nodes=1, memory_bytes=1)
                    for name in names
                ],
                ranks=[
                    RankPlace(rank=berth.rank, node=berth.post.node, local_rank=berth.local_rank)
                    for berth in berths
                ],
            ),
            logs="/run/logs",
        )

    def _reporter(self, post: Post) -> Callable[[Report], None]:
        return lambda report: self.crew.report(post, report)

    async def run(self, round_: Round) -> list[Outcome]:
        """Returns the outcomes of a round whose groups run at the same time."""
        outcomes: asyncio.Queue[Outcome | BaseException] = asyncio.Queue()
        start = asyncio.Barrier(len(round_.groups))
        driving = [
            asyncio.ensure_future(self.controller.drive(group, round_, outcomes, start))
            for group in round_.groups
        ]
        await asyncio.gather(*driving)
        found: list[Outcome] = []
        while not outcomes.empty():
            outcome = outcomes.get_nowait()
            if isinstance(outcome, BaseException):
                raise outcome
            found.append(outcome)
        return found

    async def run_all(self, rounds: Sequence[Round]) -> list[Outcome]:
        """Returns the outcomes of rounds, one after the other."""
        return [outcome for round_ in rounds for outcome in await self.run(round_)]

    def starts(self) -> Starts:
        """Returns what was started; ``twins`` is not among the facts."""
        facts = self.controller.facts
        return Starts(
            zygotes=facts.zygotes, workers=facts.workers, communicators=facts.communicators
        )


def _nowhere(order: Order) -> None:
    raise AssertionError(f"no station stands at this post yet: {order}")


def round_of(cases: Sequence[Case], repeat: int = 0, ranks: Sequence[int] = range(RANKS)) -> Round:
    """Returns a round of one group."""
    return Round(repeat=repeat, groups=(Group(ranks=tuple(ranks), cases=tuple(cases)),))


def played(work: Coroutine[Any, Any, Any], limit_s: float = 20.0) -> Any:
    """Runs work in an event loop of its own; a wait without end and a callback's error fail."""
    problems: list[dict[str, Any]] = []

    async def limited() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: problems.append(found))
        async with asyncio.timeout(limit_s):
            return await work

    found = asyncio.run(limited())
    assert problems == []
    return found
