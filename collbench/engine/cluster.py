"""The executor of real hardware: a controller, its own station, and those of other machines."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from collbench.engine.controller import Controller
from collbench.engine.crew import Crew
from collbench.engine.group_plan import GroupPlan
from collbench.engine.logs import LogPlace
from collbench.engine.loops import end_loop
from collbench.engine.orders import Finish, Report
from collbench.engine.protocol import Facts, Outcome, Round
from collbench.engine.reception import Guest, Reception
from collbench.engine.roster import berths_of
from collbench.engine.seats import Post
from collbench.engine.station import Station
from collbench.model import Policy, Topology
from collbench.probe.watch import HardwareWatch

_CLOSING_S = 15.0
T = TypeVar("T")


class ClusterEngine:
    """An ``Executor`` over the stations that take part; on one machine that is its own alone.

    Args:
        loop: the event loop in which the meeting was held; closed at the end.
        topology: of all nodes, with the ranks' places.
        guests: the stations that take part, this process's own first.
        reception: where the other stations' links are; None on one machine.
        plan: how groups are formed.
        via: through what workers communicate.
        swept: the variables that any setting of the run touches.
        policy: deadlines; the rest is passed on to the workers.
        logs: where this station's output goes.
        environ: this process's environment.
        own_variables: of every worker of this station.
        watch: hardware counters of this machine.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        topology: Topology,
        guests: Sequence[Guest],
        reception: Reception | None,
        plan: GroupPlan,
        via: str,
        swept: Sequence[str],
        policy: Policy,
        logs: LogPlace,
        environ: Mapping[str, str],
        own_variables: Mapping[str, str],
        watch: HardwareWatch,
    ) -> None:
        self._loop, self._reception = loop, reception
        self._outcomes: asyncio.Queue[Outcome | BaseException] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._station: Station | None = None
        self._station_task: asyncio.Task[None] | None = None
        posts = [Post(guest.presence.node, guest.address, _nowhere) for guest in guests]
        stations = Counter(post.node for post in posts)
        for post, guest in zip(posts, guests, strict=True):
            post.shown = len(posts) > 1
            post.process = guest.presence.process if stations[post.node] > 1 else None
        berths = berths_of([guest.presence.slots for guest in guests], posts)
        self._crew = Crew(berths, plan)
        self._controller = Controller(
            crew=self._crew, swept=swept, policy=policy, topology=topology, logs=logs.where()
        )

        async def open_station() -> None:
            self._station = Station(
                via=via,
                environ=environ,
                own_variables=own_variables,
                logs=logs,
                watch=watch,
                init_deadline_s=policy.init_deadline_s,
                report=lambda report: self._crew.report(posts[0], report),
            )
            posts[0].send = self._station.send
            self._station_task = asyncio.ensure_future(self._station.run())

        self._await(open_station())
        if reception is not None:
            for post, guest in zip(posts[1:], guests[1:], strict=True):
                post.send = guest.send
                reception.attend(guest, self._reporter(post), self._loser(post))

    def _reporter(self, post: Post) -> Callable[[Report], None]:
        return lambda report: self._crew.report(post, report)

    def _loser(self, post: Post) -> Callable[[str], None]:
        return lambda why: self._crew.lose(post, why)

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def facts(self) -> Facts:
        """Returns what is known; library versions only after the first group formed."""
        return self._controller.facts

    def start(self, round_: Round) -> None:
        """Forms the first group, so that a heading can name the versions that are loaded.

        Raises:
            NothingMeasured: it cannot be formed; says which rank and GPU, and why.
        """
        try:
            self._await(self._controller.start(round_))
        except BaseException:
            self.close()
            raise

    def run(self, round_: Round) -> Iterator[Outcome]:
        """Yields one outcome a case, each as soon as it is finished; groups run at once."""
        self._outcomes = asyncio.Queue()
        start = asyncio.Barrier(len(round_.groups))
        self._tasks = [
            self._loop.create_task(self._controller.drive(group, round_, self._outcomes, start))
            for group in round_.groups
        ]
        try:
            for _ in range(sum(len(group.cases) for group in round_.groups)):
                outcome = self._await(self._outcomes.get())
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Ends what runs; leaves the stations."""
        if self._loop.is_closed():
            return
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            self._await(asyncio.wait_for(self._crew.dismiss_all(kill=True), _CLOSING_S))

    def close(self) -> None:
        """Ends every process and lets the other stations go; may be called twice."""
        if self._loop.is_closed():
            return
        for task in self._tasks:
            task.cancel()
        try:
            self._await(self._leave())
        finally:
            if self._station is not None:
                self._station.close()
            end_loop(self._loop)

    async def _leave(self) -> None:
        if self._station is not None and self._station_task is not None:
            self._station.send(Finish())
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._station_task, _CLOSING_S)
        if self._reception is not None:
            await self._reception.close(Finish())


def _nowhere(_order: object) -> None:
    raise AssertionError("no station stands at this post yet")
