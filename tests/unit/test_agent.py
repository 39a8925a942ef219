"""A process of another node: how it comes to node 0, what it takes from it, and when it ends."""

from __future__ import annotations

import asyncio
import re
import socket

import msgspec
import pytest
from fake_engine import Stage, played
from fake_nodes import SECRET, ServingStation, presence

import collbench.engine.agent as agent
from collbench.engine.agent import Agent
from collbench.engine.link import accept
from collbench.engine.orders import Alive, Finish, Fork, Forked, ForkFailed, Report, SeatOrder
from collbench.engine.reception import Admitted, NotAdmitted, Presence
from collbench.errors import NothingMeasured
from collbench.launch.meeting import Meeting, MeetingKind

PRESENCE = presence(1, 2)
ADMITTED = Admitted(logs=None, run_id="run")


class Node0:
    """What plays node 0 to one agent."""

    def __init__(self, swept=(), wait_s=20.0) -> None:
        self._swept, self._wait_s = swept, wait_s
        self.stage, self.logs = Stage(), []
        self.station: ServingStation | None = None
        self.link = None
        self._came: asyncio.Queue = asyncio.Queue()

    async def __aenter__(self) -> Node0:
        async def put(reader, writer):
            await self._came.put((reader, writer))

        self._server = await asyncio.start_server(put, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        meeting = Meeting(kind=MeetingKind.ADDRESS, host="127.0.0.1", ports=(port,), why="a test")
        self.task = asyncio.ensure_future(
            Agent(
                presence=PRESENCE,
                meeting=meeting,
                secret_of=lambda _token: SECRET,
                swept=self._swept,
                make_station=self._make_station,
                wait_s=self._wait_s,
            ).serve()
        )
        return self

    def _make_station(self, logs, report):
        self.logs.append(logs)
        self.station = ServingStation(self.stage, report)
        return self.station

    async def __aexit__(self, *_) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self.link is not None:
            self.link.close()
        self._server.close()

    async def meet(self, answer=ADMITTED) -> Presence:
        """Lets the agent in; returns what it says of itself."""
        self.link = await accept(*await self._came.get(), SECRET)
        found = msgspec.json.decode(await self.link.receive(), type=Presence)
        self.link.send(answer)
        return found

    async def next_report(self):
        """Returns the next report that is no heartbeat."""
        decoder = msgspec.json.Decoder(Report)
        while isinstance(report := decoder.decode(await self.link.receive()), Alive):
            pass
        return report


def fork(zygote=(), **variables):
    seat = SeatOrder(seat=7, rank=3, gpu=None, cpuset="", variables=variables, logged=False)
    return Fork(repeat=0, zygote=zygote, seats=[seat])


def test_it_says_who_it_is_serves_and_ends_when_let_go():
    async def work():
        async with Node0() as node_0:
            found = await node_0.meet()
            node_0.link.send(fork(NCCL_ALGO="Ring"))
            report = await node_0.next_report()
            node_0.link.send(Finish())
            return found, report, await node_0.task, node_0

    found, report, why, node_0 = played(work())
    assert found == PRESENCE
    assert report == Forked(pids=[(7, 1007)], zygotes=1, import_s=0.0)
    assert why is None
    assert node_0.station.closed
    assert node_0.logs[0].where() == "kept in memory on that node"


def test_it_says_why_it_was_let_go_before_the_end():
    async def work():
        async with Node0() as node_0:
            await node_0.meet()
            node_0.link.send(Finish(text="no torch"))
            return await node_0.task, node_0.station.closed

    assert played(work()) == ("no torch", True)


def test_it_writes_into_the_run_s_folder_where_it_sees_it(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "run.json").write_text('{"run_id": "run-7"}')

    async def where(run_id):
        async with Node0() as node_0:
            await node_0.meet(Admitted(logs=str(tmp_path / "logs"), run_id=run_id))
            node_0.link.send(Finish())
            await node_0.task
            return node_0.logs[0].where()

    assert played(where("run-7")) == str(tmp_path / "logs")
    assert played(where("run-8")) == "kept in memory on that node", "another run's folder"


def test_a_node_that_takes_no_part_hears_why():
    async def work(answer):
        async with Node0() as node_0:
            await node_0.meet(answer)
            return await node_0.task, node_0.station

    assert played(work(NotAdmitted(why="--exclude", failed=False))) == ("--exclude", None)
    with pytest.raises(NothingMeasured, match="the same"):
        played(work(NotAdmitted(why="two are the same", failed=True)))


@pytest.mark.parametrize(
    ("order", "refused"),
    [
        (fork(LD_PRELOAD="/tmp/x.so"), "LD_PRELOAD"),
        (fork(PATH="/tmp", LD_PRELOAD=None), "LD_PRELOAD, PATH"),
        (fork(zygote=(("PYTHONPATH", "/tmp"),)), "PYTHONPATH"),
        (fork(NCCL_="x"), "NCCL_"),
        (fork(XNCCL_ALGO="x"), "XNCCL_ALGO"),
    ],
    ids=["LD_PRELOAD", "taken away", "of the zygote", "no name", "no prefix"],
)
def test_variables_that_do_not_belong_to_communication_are_not_taken(order, refused):
    async def work():
        async with Node0() as node_0:
            await node_0.meet()
            node_0.link.send(order)
            return await node_0.next_report(), node_0.stage.events

    report, events = played(work())
    text = f"variables that are not taken from the network: {refused}"
    assert report == ForkFailed(seats=[7], text=text)
    assert events == []


def test_what_its_own_command_line_sweeps_is_taken():
    async def work():
        async with Node0(swept=("LD_PRELOAD",)) as node_0:
            await node_0.meet()
            node_0.link.send(fork(LD_PRELOAD="/opt/x.so"))
            return await node_0.next_report(), node_0.stage.events

    report, events = played(work())
    assert isinstance(report, Forked)
    assert events[-1] == ("team", 1, False, {"LD_PRELOAD": "/opt/x.so"})


def test_it_ends_when_node_0_is_gone():
    async def work():
        async with Node0() as node_0:
            await node_0.meet()
            node_0.link.send(fork())
            await node_0.next_report()
            node_0.link.close()
            with pytest.raises(NothingMeasured, match=r"^node 0 is lost: "):
                await node_0.task
            return node_0.station

    station = played(work())
    assert station.closed
    assert station.held == {}


def test_it_ends_when_node_0_says_nothing_any_more(monkeypatch):
    monkeypatch.setattr(agent, "HEARTBEAT_S", 0.005)

    async def work():
        async with Node0() as node_0:
            await node_0.meet()
            with pytest.raises(NothingMeasured, match=r"^node 0 is lost: no word for 0 s$"):
                await node_0.task
            return node_0.station.closed

    assert played(work())


def test_it_stays_as_long_as_node_0_beats(monkeypatch):
    monkeypatch.setattr(agent, "HEARTBEAT_S", 0.02)

    async def work():
        async with Node0() as node_0:
            await node_0.meet()
            for _ in range(25):
                node_0.link.send(Alive())
                await asyncio.sleep(0.02)
            return node_0.task.done()

    assert played(work()) is False


def test_what_is_not_node_0_s_ends_it():
    async def work():
        async with Node0() as node_0:
            await node_0.meet()
            node_0.link._writer.write(bytes(64))
            with pytest.raises(NothingMeasured, match="a frame with a wrong code"):
                await node_0.task

    played(work())


def test_a_node_0_that_does_not_answer_is_one_line():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = nobody.getsockname()[1]
        meeting = Meeting(kind=MeetingKind.ADDRESS, host="127.0.0.1", ports=(port,), why="--x")
        alone = Agent(
            presence=PRESENCE,
            meeting=meeting,
            secret_of=lambda _token: SECRET,
            swept=(),
            make_station=lambda _logs, _report: None,
            wait_s=0.05,
        )
        words = f"node 0 does not answer within 0 s (127.0.0.1:{port}: "
        with pytest.raises(NothingMeasured, match=re.escape(words)):
            played(alone.serve())
