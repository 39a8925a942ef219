"""Waiting for a group's answers: what counts as one, who is blamed for its absence, and when."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest
from fake_engine import JOINED, played
from made_seats import post, worker

import collbench.engine.gathering as gathering
import collbench.engine.seats as seats
from collbench.engine.faults import Fault
from collbench.engine.gathering import gather
from collbench.engine.orders import Died, Moved, SeatLook, Spoke
from collbench.engine.wire import Connected, Hosting, Joined, Raised
from collbench.model import ReasonCode, Status

DEADLINE_S = 60.0


class Clock:
    """The real clock, and what a test has let pass on top of it."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.passed_s


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    made = Clock()
    for module in (gathering, seats):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made.monotonic))
    monkeypatch.setattr(gathering, "_LOOK_S", 0.002)
    return made


class Wait:
    """A wait for ``Joined`` that is under way, and who was looked at in its course."""

    def __init__(self, workers, states=(), kind=Joined) -> None:
        self.workers, self._states, self._kind = workers, dict(states), kind
        self.looked: list[tuple[list[int], bool]] = []
        self.task: asyncio.Task | None = None

    async def begin(self) -> Wait:
        self.task = asyncio.ensure_future(
            gather(self._kind, self.workers, DEADLINE_S, ReasonCode.NO_PROGRESS, self._look_at)
        )
        await self.turn()
        return self

    async def _look_at(self, of, ask_nccl) -> None:
        self.looked.append(([seat.rank for seat in of], ask_nccl))
        for seat in of:
            state = self._states.get(seat.rank, "S")
            seat.seen = SeatLook(seat=seat.number, state=state, log_tail=["a line"])

    async def turn(self) -> None:
        """Lets the wait look at the clock a few times."""
        await asyncio.sleep(0.02)

    async def still_waits(self) -> bool:
        await self.turn()
        return not self.task.done()

    async def fault(self) -> Fault:
        found = await self.task
        assert isinstance(found, Fault)
        return found


def says(seat, message, events=()) -> None:
    seat.spoke(Spoke(seat=seat.number, message=message, events=list(events)))


def raises(seat, text="RuntimeError: connection reset", *, refused=False) -> None:
    says(seat, Raised(text=text, refused=refused))


def dies(seat, exit_status=-9) -> None:
    seat.lost(Died(seat=seat.number, exit_status=exit_status, calls=7, log_tail=["last words"]))


def is_lost(seat, why="its connection ended") -> None:
    seat.berth.post.lost = why
    seat.lost(None)


def moves(seat, calls, longest_s=0.0) -> None:
    seats.take_moves(Moved(moves=[(seat.number, calls, 3, longest_s)]), {seat.number: seat})


# Answers


def test_answers_stand_in_the_order_of_the_ranks():
    async def work():
        wait = await Wait([worker(0), worker(1), worker(2)], kind=Hosting).begin()
        for rank in (2, 0, 1):
            assert await wait.still_waits()
            says(wait.workers[rank], Hosting(port=rank))
        return await wait.task, wait.looked

    answers, looked = played(work())
    assert [answer.port for answer in answers] == [0, 1, 2]
    assert looked == []


def test_what_came_before_the_wait_is_an_answer():
    async def work():
        workers = [worker(0), worker(1)]
        for seat in workers:
            says(seat, JOINED)
        wait = await Wait(workers).begin()
        return await wait.task

    assert played(work()) == [JOINED] * 2


def test_what_belongs_to_the_next_wait_is_kept_for_it():
    async def work():
        host = worker(0)
        says(host, Hosting(port=1))
        says(host, JOINED)
        first = await (await Wait([host], kind=Hosting).begin()).task
        return first, await (await Wait([host]).begin()).task

    assert played(work()) == ([Hosting(port=1)], [JOINED])


def test_news_of_other_kinds_are_no_answers():
    async def work():
        wait = await Wait([worker(0)]).begin()
        says(wait.workers[0], Connected())
        assert await wait.still_waits()
        says(wait.workers[0], JOINED)
        return await wait.task

    assert played(work()) == [JOINED]


def test_workers_are_let_go_of_after_a_wait():
    async def work():
        wait = await Wait([worker(0)]).begin()
        assert wait.workers[0].gathering is not None
        says(wait.workers[0], JOINED)
        await wait.task
        return wait.workers[0].gathering

    assert played(work()) is None


# What comes in their place


def test_who_raises_is_named_once_the_others_had_their_second(clock):
    async def work():
        wait = await Wait([worker(0), worker(1)]).begin()
        raises(wait.workers[1], "ValueError: no")
        assert await wait.still_waits()
        clock.passed_s += 1.01
        return await wait.fault(), wait.looked

    fault, looked = played(work())
    assert (fault.status, fault.reason.code) == (Status.FAILED, ReasonCode.RAISED)
    assert fault.reason.text == "rank 1 raised ValueError: no"
    assert [culprit.log_tail for culprit in fault.culprits] == [["a line"]]
    assert looked == [([1], False)]


def test_where_all_have_spoken_nobody_waits():
    async def work():
        wait = await Wait([worker(0), worker(1)]).begin()
        says(wait.workers[0], JOINED)
        raises(wait.workers[1])
        return await wait.fault()

    assert [culprit.rank for culprit in played(work()).culprits] == [1]


@pytest.mark.parametrize(
    ("refusals", "status"),
    [((True, True), Status.UNSUPPORTED), ((True, False), Status.FAILED)],
)
def test_only_what_all_refuse_is_unsupported(refusals, status):
    async def work():
        wait = await Wait([worker(0), worker(1)]).begin()
        for seat, refused in zip(wait.workers, refusals, strict=True):
            raises(seat, "not supported", refused=refused)
        return await wait.fault()

    assert played(work()).status is status


def test_a_refusal_beside_an_answer_is_a_failure():
    async def work():
        wait = await Wait([worker(0), worker(1)]).begin()
        says(wait.workers[0], JOINED)
        raises(wait.workers[1], "not supported", refused=True)
        return await wait.fault()

    assert played(work()).status is Status.FAILED


def test_a_death_explains_what_the_others_raise():
    async def work():
        wait = await Wait([worker(0), worker(1), worker(2)]).begin()
        raises(wait.workers[0])
        raises(wait.workers[2])
        assert await wait.still_waits()
        dies(wait.workers[1])
        return await wait.fault()

    fault = played(work())
    assert (fault.status, fault.reason.code) == (Status.CRASHED, ReasonCode.KILLED)
    assert fault.reason.text == "rank 1 (pid 1001) dead: SIGKILL in call 7"
    assert [culprit.rank for culprit in fault.culprits] == [1]


def test_a_worker_that_was_dead_before_the_wait_is_named():
    async def work():
        workers = [worker(0), worker(1)]
        dies(workers[1], exit_status=1)
        return await (await Wait(workers).begin()).fault()

    assert played(work()).reason.text == "rank 1 (pid 1001) dead: exit status 1 in call 7"


def test_a_worker_that_ends_after_its_answer_is_no_fault():
    async def work():
        wait = await Wait([worker(0), worker(1)]).begin()
        says(wait.workers[1], JOINED)
        await wait.turn()
        dies(wait.workers[1])
        assert await wait.still_waits()
        says(wait.workers[0], JOINED)
        return await wait.task

    assert played(work()) == [JOINED] * 2


def test_a_lost_node_explains_deaths_and_errors():
    async def work():
        far = post("n1")
        wait = await Wait([worker(0), worker(1), worker(2, at=far), worker(3, at=far)]).begin()
        raises(wait.workers[0])
        dies(wait.workers[1])
        is_lost(wait.workers[2])
        is_lost(wait.workers[3])
        return await wait.fault()

    fault = played(work())
    assert (fault.status, fault.reason.code) == (Status.NODE_LOST, ReasonCode.NODE_LOST)
    assert fault.reason.text == "n1 is lost: its connection ended"
    assert [culprit.rank for culprit in fault.culprits] == [2, 3]


# No progress


@pytest.mark.parametrize(
    ("states", "calls", "culprits"),
    [
        ({1: "T"}, (12, 12, 12), [1]),
        ({}, (12, 11, 12), [1]),
        ({2: "T"}, (12, 11, 12), [2]),
        ({}, (12, 12, 12), []),
    ],
    ids=["one is stopped", "one is behind", "one is stopped, another behind", "nobody is behind"],
)
def test_without_progress_for_the_deadline_it_is_hung(clock, states, calls, culprits):
    async def work():
        workers = [worker(rank, so_many) for rank, so_many in enumerate(calls)]
        wait = await Wait(workers, states).begin()
        clock.passed_s += DEADLINE_S - 1
        assert await wait.still_waits()
        clock.passed_s += 1.5
        return await wait.fault(), wait.looked

    fault, looked = played(work())
    assert (fault.status, fault.reason.code) == (Status.HUNG, ReasonCode.NO_PROGRESS)
    assert "; no progress for 6" in fault.reason.text
    assert [culprit.rank for culprit in fault.culprits] == culprits
    assert looked == [([0, 1, 2], True)]


def test_a_counter_that_moves_starts_the_deadline_anew(clock):
    async def work():
        wait = await Wait([worker(0), worker(1)]).begin()
        for calls in range(1, 4):
            clock.passed_s += DEADLINE_S - 1
            moves(wait.workers[0], calls)
            assert await wait.still_waits()
        clock.passed_s += DEADLINE_S + 0.5
        return await wait.fault()

    fault = played(work())
    assert fault.reason.text.startswith("rank 1 (pid 1001) behind: the others are in call 3")


def test_an_answer_starts_the_deadline_anew_too(clock):
    async def work():
        wait = await Wait([worker(0), worker(1)]).begin()
        clock.passed_s += DEADLINE_S - 1
        says(wait.workers[0], JOINED)
        await wait.turn()
        clock.passed_s += DEADLINE_S - 1
        return await wait.still_waits(), wait.task.cancel()

    assert played(work()) == (True, True)


def test_twenty_times_the_longest_call_is_waited_where_that_is_more(clock):
    async def work():
        wait = await Wait([worker(0), worker(1)]).begin()
        moves(wait.workers[0], 1, longest_s=10.0)
        clock.passed_s += 199
        assert await wait.still_waits()
        clock.passed_s += 1.5
        return await wait.fault()

    assert played(work()).status is Status.HUNG


def test_only_those_that_have_not_answered_can_be_behind(clock):
    async def work():
        wait = await Wait([worker(0, 13), worker(1, 5), worker(2, 12)]).begin()
        says(wait.workers[1], JOINED)
        await wait.turn()
        clock.passed_s += DEADLINE_S + 0.5
        return await wait.fault()

    assert [culprit.rank for culprit in played(work()).culprits] == [2]
