"""The workers of a run, wherever they are: forked, joined into groups, told, dismissed.

Everything here runs in the controller's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar

from collbench.engine.faults import Fault, node_lost
from collbench.engine.gathering import M, gather
from collbench.engine.group_plan import GroupPlan
from collbench.engine.lineup import Kind
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
    Moved,
    Order,
    Report,
    Spoke,
    Tell,
    TellEach,
)
from collbench.engine.processes import KILL_WAIT_S
from collbench.engine.seats import Berth, Post, Seat, by_post, take_moves
from collbench.engine.wire import Hosting, Joined, ToWorker
from collbench.errors import NothingMeasured
from collbench.model import NodeState, ReasonCode
from collbench.nccl.settings import Changes, Needs

T = TypeVar("T")
_OrderFor = Callable[[list[int]], Order]
_LOOK_WAIT_S = 9.0
_NCCL_ASKED = 3
_DISMISS_WAIT_S = 12.0
_SLOW_IMPORT_S = 10.0


class Crew:
    """All workers of a run, by number, and by rank and kind while they are there."""

    def __init__(self, berths: Sequence[Berth], plan: GroupPlan) -> None:
        self._berths = {berth.rank: berth for berth in berths}
        self._plan = plan
        self._seats: dict[int, Seat] = {}
        self._present: dict[tuple[int, Kind], Seat] = {}
        self._numbers = itertools.count()
        self._groups = itertools.count(1)
        self._forks: dict[int, asyncio.Future[str | None]] = {}
        self._looks: dict[int, asyncio.Future[str | None]] = {}
        self._dismissals: dict[int, asyncio.Future[str | None]] = {}
        self._zygotes: dict[Post, int] = {}
        self._hopeless: str | None = None
        """Why nobody is left to run anything, if it is so."""
        self.on_loss: Callable[[str, NodeState], None] | None = None
        """Told which node is lost, and what became of it."""
        self.forked = 0
        self._slowest_import: tuple[float, str] = (0.0, "")

    @property
    def zygotes(self) -> int:
        """Zygotes started so far, on all stations."""
        return sum(self._zygotes.values())

    def slowest_import(self) -> str | None:
        """Returns which zygote's imports took longest, if that is worth a word."""
        seconds, node = self._slowest_import
        if seconds < _SLOW_IMPORT_S:
            return None
        return f"imports took {seconds:.0f} s on {node}, the slowest node"

    def report(self, post: Post, report: Report) -> None:
        """Takes what a station reports."""
        match report:
            case Spoke():
                seat = self._seats.get(report.seat)
                if seat is not None:
                    seat.spoke(report)
            case Moved():
                take_moves(report, self._seats)
            case Died():
                seat = self._seats.get(report.seat)
                if seat is not None:
                    self._forget(seat)
                    seat.lost(report)
            case Forked():
                self._zygotes[post] = report.zygotes
                self._slowest_import = max(self._slowest_import, (report.import_s, post.node))
                for number, pid in report.pids:
                    if number in self._seats:
                        self._seats[number].pid = pid
                    _settle(self._forks, number, None)
            case ForkFailed():
                self._give_up(post, report.text, NodeState.LOST)
            case Looked():
                for look in report.looks:
                    if look.seat in self._seats:
                        self._seats[look.seat].seen = look
                        self._seats[look.seat].evidence = report.evidence
                    _settle(self._looks, look.seat, None)
            case Dismissed():
                left = [self._seats[n] for n in report.survivors if n in self._seats]
                for number in report.seats:
                    _settle(self._dismissals, number, None)
                if left:
                    self._give_up(post, _surviving(left), NodeState.UNKILLABLE)

    def _give_up(self, post: Post, what: str, state: NodeState) -> None:
        """A station is of no use any more though it can be reached: it is let go, and lost."""
        if post.lost is not None:
            return
        home = self._berths[min(self._berths)].post.node
        without = f"--exclude {post.node} begins without it"
        if post.node == home:
            without = "to begin without it, start node 0 elsewhere"
        post.send(Finish(text=what))
        self.lose(post, f"{what}; {without}", state)
        posts = {berth.post for berth in self._berths.values()}
        if {each.node for each in posts} == {each.node for each in posts if each.lost is not None}:
            self._hopeless = f"{post.name}: {what}"

    def require_somebody(self) -> None:
        """Goes on only where a node is left.

        Raises:
            NothingMeasured: none is, and the last one was of no use; says why.
        """
        if self._hopeless is not None:
            raise NothingMeasured(self._hopeless)

    def lose(self, post: Post, why: str, state: NodeState = NodeState.LOST) -> None:
        """A station can no longer be reached, or used: what needs it is told so.

        Args:
            post: of the station.
            why: in words.
            state: what became of its node.
        """
        if post.lost is not None:
            return
        post.lost = why
        for seat in [seat for seat in self._seats.values() if seat.berth.post is post]:
            self._forget(seat)
            seat.lost(None)
            for waits in (self._forks, self._looks, self._dismissals):
                _settle(waits, seat.number, why)
        if self.on_loss is not None:
            self.on_loss(post.node, state)

    def _forget(self, seat: Seat) -> None:
        if self._present.get((seat.rank, seat.kind)) is seat:
            del self._present[seat.rank, seat.kind]

    async def seated(
        self, ranks: Sequence[int], kind: Kind, repeat: int, needs: Needs
    ) -> list[Seat] | Fault:
        """Returns living workers for ranks with what a setting needs, forking those missing.

        The fault is that of nodes that are lost; one that cannot fork is lost from then on.

        Raises:
            NothingMeasured: no node is left that can.
        """
        if (fault := self._lost_among(ranks, kind)) is not None:
            return fault
        part = (repeat, needs.zygote)
        stale = [
            seat
            for rank in ranks
            for every_kind in Kind
            if (seat := self._present.get((rank, every_kind))) is not None
            and (seat.zygote_part != part or seat.worker_part != needs.worker)
        ]
        await self.dismiss(stale, kill=False)
        if (fault := self._lost_among(ranks, kind)) is not None:
            return fault
        missing = [rank for rank in ranks if (rank, kind) not in self._present]
        fresh = [self._new_seat(rank, kind, part, needs.worker) for rank in missing]
        # One that dies from now on stays among them: what waits for its answer says so.
        found = [self._present[rank, kind] for rank in ranks]
        if fresh:
            await self._fork(fresh, part, needs)
        if (fault := self._lost_among(ranks, kind)) is not None:
            return fault
        return found

    def _lost_among(self, ranks: Sequence[int], kind: Kind) -> Fault | None:
        """Returns the fault of the nodes that are lost."""
        self.require_somebody()
        berths = [self._berths[rank] for rank in ranks]
        lost = [Seat(-1, b, kind, (0, ()), ()) for b in berths if b.post.lost is not None]
        return node_lost(lost) if lost else None

    def _new_seat(self, rank: int, kind: Kind, part: tuple[int, Changes], worker: Changes) -> Seat:
        seat = Seat(next(self._numbers), self._berths[rank], kind, part, worker)
        self._seats[seat.number] = seat
        self._present[rank, kind] = seat
        return seat

    async def _fork(self, fresh: Sequence[Seat], part: tuple[int, Changes], needs: Needs) -> None:
        """Forks workers on their stations; where one could not, all are dismissed."""
        self.forked += len(fresh)
        waits: dict[asyncio.Future[str | None], Post] = {}
        for post, seats in by_post(fresh).items():
            waits |= {_wait(self._forks, seat.number): post for seat in seats}
            orders = [self._plan.seat_order(seat, needs) for seat in seats]
            post.send(Fork(repeat=part[0], zygote=part[1], seats=orders))
        # A zygote that never answers is its station's to report, by the same deadline.
        done, late = await asyncio.wait(waits, timeout=2 * self._plan.init_deadline_s)
        failed = any(wait.result() is not None for wait in done)
        for wait in late:
            self._give_up(waits[wait], "its workers were not forked in time", NodeState.LOST)
        if failed or late:
            await self.dismiss(fresh, kill=True)

    async def join(self, seats: Sequence[Seat]) -> list[Joined] | Fault:
        """Lets workers form a group; the first one's store is where they meet."""
        group, token = next(self._groups), secrets.token_hex(16)
        host = seats[0].berth.post.address
        first = self._plan.join_order(seats, 0, group, token, host, None)
        hosting = await self.asked(
            Hosting, seats[:1], first, self._plan.init_deadline_s, ReasonCode.NO_START
        )
        if isinstance(hosting, Fault):
            return hosting
        port = hosting[0].port
        rest: dict[Post, list[tuple[int, ToWorker]]] = {}
        for place, seat in enumerate(seats[1:], start=1):
            order = self._plan.join_order(seats, place, group, token, host, port)
            rest.setdefault(seat.berth.post, []).append((seat.number, order))
        for post, messages in rest.items():
            post.send(TellEach(messages=messages))
        joined = await self.gathered(Joined, seats, self._plan.init_deadline_s, ReasonCode.NO_START)
        if not isinstance(joined, Fault):
            for seat in seats:
                seat.group = group
        return joined

    def tell(self, seats: Sequence[Seat], message: ToWorker) -> None:
        """Hands a message to workers, one order a station."""
        self._send_each(seats, lambda numbers: Tell(seats=numbers, message=message))

    async def asked(
        self,
        kind: type[M],
        seats: Sequence[Seat],
        message: ToWorker,
        deadline_s: float,
        late: ReasonCode,
    ) -> list[M] | Fault:
        """Hands a message to workers and waits for the answer of each, or for the first fault."""
        self.tell(seats, message)
        return await self.gathered(kind, seats, deadline_s, late)

    async def gathered(
        self, kind: type[M], seats: Sequence[Seat], deadline_s: float, late: ReasonCode
    ) -> list[M] | Fault:
        """Waits for one message of a kind from each worker, or for the first fault."""
        return await gather(kind, seats, deadline_s, late, self._look_at)

    async def _look_at(self, seats: Sequence[Seat], ask_nccl: bool) -> None:
        await self._look(seats, ask_nccl=False)
        if ask_nccl:
            said = await self._what_nccl_says(seats)
            for seat in seats:
                seat.evidence = said

    async def _what_nccl_says(self, seats: Sequence[Seat]) -> list[str]:
        """Asks NCCL's own watch where a worker lives that is not stopped itself.

        One answer speaks for all ranks, and its collection asks every process: so one node at a
        time, and few of them.
        """
        awake = [seat for seat in seats if not seat.gone and seat.state() not in "Tt"]
        for mine in list(by_post(awake).values())[:_NCCL_ASKED]:
            await self._look(mine[:1], ask_nccl=True)
            if mine[0].evidence:
                return mine[0].evidence
        return []

    async def _look(self, seats: Sequence[Seat], *, ask_nccl: bool) -> None:
        living = [seat for seat in seats if not seat.gone]
        waits = [_wait(self._looks, seat.number) for seat in living]
        self._send_each(living, lambda numbers: Look(seats=numbers, ask_nccl=ask_nccl))
        if waits:
            await asyncio.wait(waits, timeout=_LOOK_WAIT_S)
        for seat in living:
            self._looks.pop(seat.number, None)

    async def dismiss(self, seats: Sequence[Seat], *, kill: bool) -> None:
        """Ends workers; returns when they are gone, or known to survive."""
        living = [seat for seat in seats if not seat.gone]
        waits = [_wait(self._dismissals, seat.number) for seat in living]
        self._send_each(living, lambda numbers: Dismiss(seats=numbers, kill=kill))
        for seat in seats:
            self._forget(seat)
        if waits:
            await asyncio.wait(waits, timeout=_DISMISS_WAIT_S)
        for seat in seats:
            self._seats.pop(seat.number, None)

    async def dismiss_all(self, *, kill: bool) -> None:
        """Ends all workers."""
        await self.dismiss(list(self._present.values()), kill=kill)

    def _send_each(self, seats: Sequence[Seat], order_for: _OrderFor) -> None:
        for post, mine in by_post(seats).items():
            post.send(order_for([seat.number for seat in mine]))


def _surviving(seats: Sequence[Seat]) -> str:
    """Returns what is said of workers that SIGKILL does not end."""
    who = ", ".join(f"rank {seat.rank} (pid {seat.pid})" for seat in seats)
    return (
        f"{who} {'is' if len(seats) == 1 else 'are'} there {KILL_WAIT_S:.0f} s after SIGKILL,"
        " which makes the node unkillable: look at dmesg, reset the GPU or restart the node"
    )


def _wait(waits: dict[int, asyncio.Future[T]], number: int) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    waits[number] = future
    return future


def _settle(waits: dict[int, asyncio.Future[T]], number: int, value: T) -> None:
    future = waits.pop(number, None)
    if future is not None:
        with contextlib.suppress(asyncio.InvalidStateError):
            future.set_result(value)
