"""Node 0 and the processes of other nodes in one event loop, over real sockets on loopback.

Their stations are fake ones: what is real is the meeting, the links and the engine above them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
from fake_engine import FakeStation, Stage

import collbench.engine.cluster as cluster
from collbench.engine.agent import Agent
from collbench.engine.cluster import ClusterEngine
from collbench.engine.group_plan import GroupPlan
from collbench.engine.logs import LogPlace
from collbench.engine.loops import end_loop
from collbench.engine.meet import Met, hold_meeting
from collbench.engine.orders import Alive, Finish, Order, Report
from collbench.engine.placement import Slots
from collbench.engine.reception import Guest, Presence, Reception, Versions
from collbench.launch.detect import Launch, Launcher
from collbench.launch.meeting import Meeting, MeetingKind
from collbench.launch.options import LaunchOptions
from collbench.launch.rendezvous import find
from collbench.model import Node, Policy
from collbench.probe.watch import HardwareWatch

SECRET = b"the secret of this run"
VERSIONS = Versions(
    collbench="1.0", torch="2.11", nccl=None, driver=None, backend="gloo", gpus="no GPU"
)


def presence(process: int, processes: int, **changes: Any) -> Presence:
    """Returns what the only process of a node says of itself."""
    name = changes.get("node", f"n{process}")
    known: dict[str, Any] = {
        "process": process,
        "processes": processes,
        "local_process": 0,
        "node": name,
        "slots": Slots(backend="gloo", world_size=1),
        "hardware": Node(name=name, cpu_model="", cpus=2, numa_nodes=1, memory_bytes=1),
        "versions": VERSIONS,
        "pid": 5000 + process,
    }
    return Presence(**{**known, **changes})


class ServingStation(FakeStation):
    """A fake station with the life of a real one: it runs until it is told to finish."""

    def __init__(self, stage: Stage, report: Callable[[Report], None]) -> None:
        super().__init__(stage, report)
        self._over = asyncio.Event()
        self.closed = False

    def _obey(self, order: Order) -> None:
        match order:
            case Finish():
                self._over.set()
            case Alive():
                pass
            case _:
                super()._obey(order)

    async def run(self) -> None:
        """Returns once it was told to finish."""
        await self._over.wait()

    def close(self) -> None:
        """Ends its workers."""
        self.held.clear()
        self.closed = True


class Town:
    """Node 0, and agents that come to it.

    Args:
        folder: for the file by which they meet.
        processes: how many the launcher has started.
        own: what differs in node 0's presence.
    """

    def __init__(self, folder: Path, processes: int, **own: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.problems: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, found: self.problems.append(found))
        self.processes, self.stage = processes, Stage()
        self.meeting = Meeting(
            kind=MeetingKind.FILE, path=str(folder / "meet" / "run"), key="run", why="a test"
        )
        self.reception = Reception(SECRET, presence(0, processes, **own), "127.0.0.1")
        self.stations: dict[int, ServingStation] = {}
        self.agents: dict[int, asyncio.Task[str | None]] = {}
        self._folder = folder
        self._engine: ClusterEngine | None = None

    def agent(
        self,
        process: int,
        *,
        secret: bytes = SECRET,
        swept: Collection[str] = (),
        wait_s: float = 20.0,
        **changes: Any,
    ) -> asyncio.Task[str | None]:
        """Starts the agent of a process; it comes once the loop runs."""

        def make_station(_logs: LogPlace, report: Callable[[Report], None]) -> ServingStation:
            self.stations[process] = ServingStation(self.stage, report)
            return self.stations[process]

        made = Agent(
            presence=presence(process, self.processes, **changes),
            meeting=self.meeting,
            secret_of=lambda _token: secret,
            swept=swept,
            make_station=make_station,
            wait_s=wait_s,
        )
        self.agents[process] = self.loop.create_task(made.serve())
        return self.agents[process]

    def all_agents(self) -> None:
        """Starts the agents of all other processes."""
        for process in range(1, self.processes):
            self.agent(process)

    def meet(self, **options: Any) -> Met:
        """Holds the meeting."""
        launch = Launch(
            launcher=Launcher.PLAIN,
            process=0,
            processes=self.processes,
            node_name=self.reception.own.node,
        )
        given = LaunchOptions(**{"wait_s": 20.0, **options})
        return hold_meeting(self.loop, self.reception, launch, self.meeting, given, "token")

    def engine(self, met: Met, policy: Policy | None = None) -> ClusterEngine:
        """Admits all and returns the engine over them; node 0's station is a fake one too."""
        policy = policy or Policy(deadline_s=20.0, init_deadline_s=20.0)
        for guest in met.guests[1:]:
            self.reception.admit(guest, None, "run")
        real, cluster.Station = cluster.Station, self._own_station
        try:
            self._engine = ClusterEngine(
                loop=self.loop,
                topology=met.topology,
                guests=met.guests,
                reception=self.reception,
                plan=GroupPlan(
                    backend="gloo",
                    library=None,
                    plant=None,
                    quiet={},
                    init_deadline_s=policy.init_deadline_s,
                ),
                via="torch",
                swept=(),
                policy=policy,
                logs=LogPlace(None),
                environ={},
                own_variables={},
                watch=HardwareWatch(root=self._folder),
            )
        finally:
            cluster.Station = real
        return self._engine

    def _own_station(self, *, report: Callable[[Report], None], **_known: Any) -> ServingStation:
        self.stations[0] = ServingStation(self.stage, report)
        return self.stations[0]

    def ended(self, *processes: int) -> list[str | BaseException | None]:
        """Waits for agents to end and returns what came of them."""
        tasks = [self.agents[process] for process in processes]
        if self.loop.is_closed():
            return [task.result() for task in tasks]

        async def all_of_them() -> Sequence[str | BaseException | None]:
            async with asyncio.timeout(20.0):
                return await asyncio.gather(*tasks, return_exceptions=True)

        return list(self.loop.run_until_complete(all_of_them()))

    def run(self, work: Any) -> Any:
        """Runs something else in the loop, with a limit."""
        return self.loop.run_until_complete(asyncio.wait_for(work, 20.0))

    async def address(self) -> tuple[str, int]:
        """Returns where node 0 listens."""
        announced = await asyncio.to_thread(find, self.meeting, 20.0)
        return announced.host, announced.port

    def close(self) -> None:
        """Ends node 0 and everybody else."""
        if self._engine is not None:
            self._engine.close()
        elif not self.loop.is_closed():
            self.loop.run_until_complete(self.reception.close(Finish()))
        if not self.loop.is_closed():
            end_loop(self.loop)
        assert self.problems == []


def names(guests: Sequence[Guest]) -> list[str]:
    """Returns the nodes of guests."""
    return [guest.presence.node for guest in guests]


def differing(**changes: Any) -> Versions:
    """Returns versions that differ from the others'."""
    return msgspec.structs.replace(VERSIONS, **changes)
