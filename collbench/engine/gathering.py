"""Waiting for answers of a group's workers, and judging what comes in their place."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from collbench.engine.faults import Fault, crashed, hung, node_lost, raised
from collbench.engine.seats import Gathering, Seat
from collbench.engine.wire import FromWorker, Raised
from collbench.model import ReasonCode

_GRACE_S = 1.0
"""After a first fault: time for the others' news, so that the cause and not an effect is named."""
_LONGEST_CALLS = 20
"""A hang is no progress for so many times the longest call seen, or the deadline."""
_LOOK_S = 0.5
"""How often a wait looks at the clock."""

M = TypeVar("M", bound=FromWorker)
LookAt = Callable[[Sequence[Seat], bool], Awaitable[None]]
"""Asks how workers are right now, and NCCL too if told so; returns when it is known."""


async def gather(
    kind: type[M], seats: Sequence[Seat], deadline_s: float, late: ReasonCode, look_at: LookAt
) -> list[M] | Fault:
    """Waits for one message of a kind from each worker, or for the first fault.

    The work is that of the news, not of the workers: a group of thousands costs no more than its
    messages.

    Args:
        kind: of the messages.
        seats: who must send one; the answers come in this order.
        deadline_s: without progress for so long, or 20 x the longest call seen, it is hung.
        late: the reason's code then.
        look_at: asks how workers are.
    """
    waiting = _Waiting(kind, seats)
    try:
        while not waiting.over():
            silent_s = waiting.silent_s()
            if silent_s > max(deadline_s, _LONGEST_CALLS * waiting.news.longest_s):
                await look_at(seats, True)
                return hung(seats, waiting.open_ends(), silent_s, late)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiting.news.wake.wait(), _LOOK_S)
            waiting.take_in()
        if waiting.faulty:
            await look_at([seat for seat in waiting.errors if not seat.gone], False)
            return waiting.judged()
        return [waiting.answers[seat] for seat in seats]
    finally:
        waiting.close()


class _Waiting(Generic[M]):
    """The state of one wait."""

    def __init__(self, kind: type[M], seats: Sequence[Seat]) -> None:
        self._kind, self._seats = kind, seats
        self.answers: dict[Seat, M] = {}
        self.errors: dict[Seat, Raised] = {}
        self._dead: list[Seat] = []
        self._lost: list[Seat] = []
        self._fault_s: float | None = None
        self.news = Gathering()
        for seat in seats:
            seat.gathering = self.news
            if seat.inbox or seat.gone:
                self.news.note(seat)
        self.take_in()

    @property
    def faulty(self) -> bool:
        """Whether anything but answers has come."""
        return bool(self.errors or self._dead or self._lost)

    def take_in(self) -> None:
        """Sorts what came."""
        self.news.wake.clear()
        fresh, self.news.fresh = self.news.fresh, []
        for seat in fresh:
            for message in seat.inbox:
                if isinstance(message, Raised):
                    self.errors[seat] = message
                elif isinstance(message, self._kind):
                    self.answers[seat] = message
            # The first rank may have joined by the time that its being host is taken in.
            seat.inbox[:] = [m for m in seat.inbox if not isinstance(m, (Raised, self._kind))]
            if seat.gone and seat not in self.answers and seat not in self.errors:
                where = self._lost if seat.berth.post.lost is not None else self._dead
                if seat not in where:
                    where.append(seat)
        if fresh:
            self.news.moved_s = time.monotonic()
        if self.faulty and self._fault_s is None:
            self._fault_s = time.monotonic()

    def over(self) -> bool:
        """Whether there is nothing more to wait for."""
        known = len(self.answers) + len(self.errors) + len(self._dead) + len(self._lost)
        if known == len(self._seats):
            return True
        if self._fault_s is None:
            return False
        # An error may be the effect of a death whose news is still on its way, and a death that of
        # something that ends others too; a lost node explains everything.
        return bool(self._lost) or time.monotonic() - self._fault_s > _GRACE_S

    def silent_s(self) -> float:
        """Returns for how long no counter has moved; 0 once there is a fault."""
        return 0.0 if self._fault_s is not None else time.monotonic() - self.news.moved_s

    def open_ends(self) -> list[Seat]:
        """Returns the workers that have not answered."""
        return [seat for seat in self._seats if seat not in self.answers]

    def judged(self) -> Fault:
        """Returns the fault. A lost node explains the deaths and errors of the others."""
        if self._lost:
            return node_lost(self._lost)
        if self._dead:
            return crashed(self._dead)
        texts = {seat: error.text for seat, error in self.errors.items()}
        refused = len(self.errors) == len(self._seats) and all(
            error.refused for error in self.errors.values()
        )
        return raised(texts, refused_by_all=refused)

    def close(self) -> None:
        """Lets go of the workers."""
        for seat in self._seats:
            seat.gathering = None
