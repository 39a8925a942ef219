"""A station: it obeys orders, hands on what its workers say, and reports what becomes of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct

import msgspec
import pytest
from fake_engine import played
from fake_zygote import FakeWatch, FakeZygote

import collbench.engine.station as station
from collbench.engine.logs import LogPlace
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
    SeatLook,
    SeatOrder,
    Spoke,
    Tell,
    TellEach,
)
from collbench.engine.station import Station
from collbench.engine.wire import (
    Channel,
    Connect,
    Done,
    Hosting,
    Measure,
    Raised,
    Renew,
    ToWorker,
)
from collbench.measure.loop import RankResult
from collbench.measure.protocols import Phase
from collbench.model import Case, Policy, Status

CASE = Case(
    collective="all_reduce",
    backend="gloo",
    dtype="float32",
    redop="sum",
    size_bytes=64,
    requested_bytes=64,
    count=16,
    world_size=2,
    in_place=True,
)
MEASURE = Measure(case=CASE, policy=Policy())
DONE = Done(result=RankResult(status=Status.OK))
RAISED = Raised(text="RuntimeError", refused=False)


@pytest.fixture
def zygotes(monkeypatch):
    class Zygote(FakeZygote):
        made: list[FakeZygote] = []

    monkeypatch.setattr(station, "Zygote", Zygote)
    monkeypatch.setattr(station, "_LOOK_EVERY_S", 0.005)
    yield Zygote
    for zygote in Zygote.made:
        zygote.end()


class Place:
    """A station that runs, and what it has reported."""

    def __init__(self, folder, zygotes, **more) -> None:
        self._zygotes, self.reports, self._news = zygotes, [], asyncio.Event()
        self.watch = FakeWatch()
        known = {
            "via": "torch",
            "environ": {"OMP_NUM_THREADS": "4"},
            "own_variables": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "WARN"},
            "logs": LogPlace(folder),
            "watch": self.watch,
            "init_deadline_s": 20.0,
            "report": self._report,
        }
        self.station = Station(**{**known, **more})

    def _report(self, report) -> None:
        self.reports.append(report)
        self._news.set()

    async def __aenter__(self) -> Place:
        self.task = asyncio.ensure_future(self.station.run())
        return self

    async def __aexit__(self, *_) -> None:
        for zygote in self._zygotes.made:
            for process in zygote.processes:
                process.send_signal(signal.SIGCONT)  # nobody waits for those that were stopped
        self.station.send(Finish())
        await self.task

    async def next(self, kind):
        """Returns the next report of a kind, and forgets those before it."""
        while True:
            while self.reports:
                if isinstance(report := self.reports.pop(0), kind):
                    return report
            self._news.clear()
            await self._news.wait()

    async def forked(self, *seats, repeat=0, zygote=(), **changes):
        """Forks workers; returns the report."""
        orders = [seat_order(seat, **changes) for seat in seats]
        self.station.send(Fork(repeat=repeat, zygote=zygote, seats=orders))
        return await self.next((Forked, ForkFailed))

    @property
    def zygote(self) -> FakeZygote:
        return self._zygotes.made[-1]

    def says(self, worker: int, message) -> None:
        data = msgspec.json.encode(message)
        self.zygote.ends[worker].sendall(struct.pack("!I", len(data)) + data)

    async def dies(self, worker: int) -> None:
        """A worker is killed, and its end of the channel closes."""
        self.zygote.processes[worker].kill()
        self.zygote.ends[worker].shutdown(socket.SHUT_RDWR)

    def told(self, worker: int):
        """Returns what was sent to a worker whose process has been stopped."""
        channel = Channel(self.zygote.ends[worker], ToWorker)
        return channel.receive()


def seat_order(seat, **changes):
    known = {
        "seat": seat,
        "rank": seat - 10,
        "gpu": None,
        "cpuset": "0-3",
        "variables": {"NCCL_DEBUG": "INFO"},
        "logged": False,
    }
    return SeatOrder(**{**known, **changes})


@pytest.fixture
def at(tmp_path, zygotes):
    """Runs work at a station; returns what it returns."""

    def run(work, **more):
        async def whole():
            async with Place(tmp_path, zygotes, **more) as place:
                return await work(place)

        return played(whole())

    return run


def stopped(place, *workers) -> None:
    """Keeps processes from taking what is sent to them."""
    for worker in workers:
        os.kill(place.zygote.processes[worker].pid, signal.SIGSTOP)


# Forking


def test_workers_are_forked_with_their_variables_over_those_of_the_node(at):
    async def work(place):
        return await place.forked(11, 12), place.zygote

    report, zygote = at(work)
    pids = [process.pid for process in zygote.processes]
    assert report == Forked(pids=[(11, pids[0]), (12, pids[1])], zygotes=1, import_s=2.5)
    variables = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO"}
    assert zygote.orders == [(1, variables, "0-3"), (2, variables, "0-3")]


def test_a_zygote_is_kept_from_threads_unless_the_user_wants_them(at):
    async def work(place):
        await place.forked(11, zygote=(("PYTHONHASHSEED", None),))
        return place.zygote.variables

    assert at(work) == {
        "OPENBLAS_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONHASHSEED": None,
    }


def test_a_logged_worker_has_nccl_write_into_a_file_of_its_own(at, tmp_path):
    async def work(place):
        await place.forked(11, 12, logged=True)
        return [variables for _, variables, _ in place.zygote.orders]

    first, second = at(work)
    assert first["NCCL_DEBUG_FILE"] == f"{tmp_path}/nccl-seat11-rank1.log"
    assert second["NCCL_DEBUG_FILE"] == f"{tmp_path}/nccl-seat12-rank2.log"
    assert first["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize(
    ("repeat", "zygote", "alive"),
    [(0, (), True), (1, (), False), (0, (("PYTHONHASHSEED", "1"),), False)],
    ids=["the same", "another repeat", "other variables"],
)
def test_what_makes_another_zygote_necessary(at, zygotes, repeat, zygote, alive):
    async def work(place):
        await place.forked(11)
        report = await place.forked(12, repeat=repeat, zygote=zygote)
        return report.zygotes, zygotes.made[0].alive

    assert at(work) == (1 if alive else 2, alive)


def test_workers_that_end_with_their_zygote_are_reported(at):
    async def work(place):
        await place.forked(11)
        place.station.send(Fork(repeat=1, zygote=(), seats=[seat_order(12)]))
        return await place.next(Died), await place.next(Forked)

    died, forked = at(work)
    assert (died.seat, died.log_tail) == (11, ["a line"])
    assert [seat for seat, _ in forked.pids] == [12]


def test_a_zygote_that_has_died_is_replaced(at, zygotes):
    async def work(place):
        await place.forked(11)
        place.zygote.alive = False
        return await place.forked(12)

    assert at(work).zygotes == 2


def test_a_zygote_that_cannot_start_is_said_and_tried_anew_next_time(at, zygotes):
    async def work(place):
        zygotes.problem = "the zygote process has ended: no module named torch"
        failed = await place.forked(11, 12)
        zygotes.problem = None
        return failed, await place.forked(13)

    failed, forked = at(work)
    text = "the zygote process has ended: no module named torch"
    assert failed == ForkFailed(seats=[11, 12], text=text)
    assert [seat for seat, _ in forked.pids] == [13]
    assert [zygote.alive for zygote in zygotes.made] == [False, False], "both have been ended"


def test_a_zygote_that_does_not_become_ready_is_not_waited_for_longer_than_it_may(at, zygotes):
    zygotes.silent = True

    async def work(place):
        return await place.forked(11)

    report = at(work, init_deadline_s=0.05)
    assert report == ForkFailed(seats=[11], text="the zygote process did not answer")


def test_what_the_system_refuses_is_said_too(at, zygotes, monkeypatch):
    def fork(*_, **__):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(zygotes, "fork", fork)

    async def work(place):
        return await place.forked(11)

    assert at(work) == ForkFailed(seats=[11], text="[Errno 24] Too many open files")


# Talking


def test_what_a_worker_says_is_handed_on(at):
    async def work(place):
        await place.forked(11, 12)
        place.says(1, Hosting(port=4711))
        return await place.next(Spoke)

    assert at(work) == Spoke(seat=12, message=Hosting(port=4711))


def test_messages_reach_all_workers_or_each_its_own(at):
    first, second = (Renew(variables={"NCCL_ALGO": name}) for name in ("Ring", "Tree"))

    async def work(place):
        await place.forked(11, 12)
        stopped(place, 0, 1)
        place.station.send(Tell(seats=[11, 12, 99], message=Connect(case=CASE)))
        place.station.send(TellEach(messages=[(11, first), (12, second), (99, first)]))
        place.station.send(Look(seats=[11]))
        await place.next(Looked)
        return [place.told(0), place.told(1)]

    assert at(work) == [Connect(case=CASE)] * 2


def test_counters_of_the_machine_go_with_the_last_result_of_a_case(at):
    async def work(place):
        await place.forked(11, 12)
        stopped(place, 0, 1)
        place.station.send(Tell(seats=[11, 12], message=MEASURE))
        place.station.send(Look(seats=[11]))
        await place.next(Looked)
        place.says(0, DONE)
        first = await place.next(Spoke)
        while place.watch.samples == 0:
            await asyncio.sleep(0.002)
        place.says(1, RAISED)
        return first, await place.next(Spoke)

    first, second = at(work)
    assert (first.seat, first.events) == (11, [])
    assert (second.seat, second.events) == (12, ["since reading 1"])


def test_two_cases_at_once_have_their_counters_each(at):
    async def work(place):
        await place.forked(11, 12)
        stopped(place, 0, 1)
        for seat in (11, 12):
            place.station.send(Tell(seats=[seat], message=MEASURE))
        place.station.send(Look(seats=[11]))
        await place.next(Looked)
        place.says(1, DONE)
        second = await place.next(Spoke)
        place.says(0, DONE)
        return second.events, (await place.next(Spoke)).events

    assert at(work) == (["since reading 2"], ["since reading 1"])


def test_a_death_ends_the_watching_of_its_worker(at):
    async def work(place):
        await place.forked(11, 12)
        stopped(place, 0, 1)
        place.station.send(Tell(seats=[11, 12], message=MEASURE))
        place.station.send(Look(seats=[11]))
        await place.next(Looked)
        await place.dies(0)
        await place.next(Died)
        place.says(1, DONE)
        return (await place.next(Spoke)).events

    assert at(work) == ["since reading 1"]


# What becomes of them


def test_a_worker_that_ends_is_reported_with_how_and_where(at):
    async def work(place):
        await place.forked(11, 12)
        for _ in range(5):
            place.zygote.progress[1].tick()
        await place.dies(1)
        died = await place.next(Died)
        place.station.send(Look(seats=[11, 12]))
        return died, await place.next(Looked)

    died, looked = at(work)
    assert died == Died(seat=12, exit_status=-9, calls=5, log_tail=["a line"])
    assert [look.seat for look in looked.looks] == [11]


def test_what_a_worker_said_before_its_end_is_heard(at):
    async def work(place):
        await place.forked(11)
        place.says(0, RAISED)
        await place.dies(0)
        return await place.next(Spoke), await place.next(Died)

    spoke, died = at(work)
    assert (spoke.message, died.seat) == (RAISED, 11)


def test_counters_that_move_are_reported_once(at):
    async def work(place):
        await place.forked(11, 12)
        progress = place.zygote.progress[1]
        progress.phase(Phase.SAMPLING)
        progress.tick()
        progress.longest(2500.0)
        moved = await place.next(Moved)
        await asyncio.sleep(0.05)
        return moved, place.reports

    moved, rest = at(work)
    assert moved.moves == [(12, 1, int(Phase.SAMPLING), 0.0025)]
    assert rest == []


def test_a_look_tells_what_the_kernel_says(at):
    async def work(place):
        await place.forked(11)
        stopped(place, 0)
        os.waitpid(place.zygote.processes[0].pid, os.WUNTRACED)
        place.station.send(Look(seats=[11, 99]))
        return await place.next(Looked)

    assert at(work).looks == [SeatLook(seat=11, state="T", log_tail=["a line"])]


@pytest.mark.parametrize("kill", [False, True], ids=["let quit", "killed"])
def test_dismissed_workers_end_and_their_end_is_no_death(at, kill):
    async def work(place):
        await place.forked(11, 12)
        place.station.send(Dismiss(seats=[11, 12, 99], kill=kill))
        dismissed = await place.next(Dismissed)
        ends = [process.wait() for process in place.zygote.processes]
        await asyncio.sleep(0.02)
        return dismissed, ends, place.reports

    dismissed, ends, rest = at(work)
    assert dismissed == Dismissed(seats=[11, 12, 99], survivors=[])
    assert ends == [-signal.SIGKILL if kill else 0] * 2
    assert rest == []


def test_a_stopped_worker_is_killed_too(at):
    async def work(place):
        await place.forked(11)
        stopped(place, 0)
        place.station.send(Dismiss(seats=[11], kill=True))
        await place.next(Dismissed)
        return place.zygote.processes[0].wait()

    assert at(work) == -signal.SIGKILL


def test_the_end_of_the_run_is_the_end_of_all(at, zygotes):
    async def work(place):
        await place.forked(11, 12)

    at(work)
    (zygote,) = zygotes.made
    assert not zygote.alive
    assert all(process.poll() is not None for process in zygote.processes)
