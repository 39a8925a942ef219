"""Node 0's end of the meeting: who is there, who is let in, whose link has ended."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from collbench.engine.link import Link, LinkLost, Refused, accept
from collbench.engine.orders import Alive, Finish, Order, Report
from collbench.engine.placement import Slots
from collbench.engine.ready import allow_many_files
from collbench.errors import UsageError
from collbench.model import Node, Record

HEARTBEAT_S = 2.0
MISSED_BEATS = 5
"""So many heartbeats without a word: lost."""
_TOLD_EVERY_S = 5.0
_GREETING_S = 10.0
_PARTING_S = 10.0


class Versions(Record, frozen=True, kw_only=True):
    """What must be equal on all nodes for their figures to belong together."""

    collbench: str
    torch: str | None
    nccl: str | None
    driver: str | None
    backend: str
    gpus: str
    """Count and model."""


class Presence(Record, frozen=True, kw_only=True, tag="presence"):
    """What a station says of itself when it comes."""

    process: int
    """Its number among all processes that the launcher started."""
    processes: int
    local_process: int
    node: str
    slots: Slots
    hardware: Node
    versions: Versions
    pid: int
    gpu_problem: str | None = None
    """Why a GPU that it is promised cannot be used, if so: then it has no slots."""


class Admitted(Record, frozen=True, kw_only=True, tag="admitted"):
    """It takes part."""

    logs: str | None
    """The run's folder for logs, as node 0 sees it."""
    run_id: str


class NotAdmitted(Record, frozen=True, kw_only=True, tag="not_admitted"):
    """It does not take part."""

    why: str
    failed: bool


@dataclass(eq=False)
class Guest:
    """A station that has come; node 0's own has no link."""

    presence: Presence
    address: str
    link: Link | None = None
    beats_missed: int = 0
    task: asyncio.Task[None] | None = None

    def send(self, order: Order) -> None:
        """Sends an order."""
        assert self.link is not None
        self.link.send(order)


@dataclass
class Reception:
    """Where stations come to.

    Args:
        secret: of the run.
        own: node 0's presence.
        address: at which its workers are reached.
    """

    secret: bytes
    own: Presence
    address: str
    guests: dict[int, Guest] = field(default_factory=dict)
    """By the number of their process."""
    turned_away: list[str] = field(default_factory=list)
    """What came and does not belong here, in words."""
    clash: str | None = None
    """Two stations that say they are the same, in words."""

    def __post_init__(self) -> None:
        self.guests[self.own.process] = Guest(self.own, self.address)
        self._server: asyncio.Server | None = None
        self._news = asyncio.Event()
        self._begun = False
        self._beat: asyncio.Task[None] | None = None
        self._parting = False

    async def open(self, host: str, ports: Sequence[int]) -> int:
        """Listens on one interface, on the first port that is free; returns it.

        Raises:
            OSError: none is free.
        """
        allow_many_files()
        problem: OSError | None = None
        for port in ports:
            try:
                self._server = await asyncio.start_server(self._came, host, port, backlog=4096)
            except OSError as error:
                problem = error
                continue
            return int(self._server.sockets[0].getsockname()[1])
        raise problem if problem is not None else OSError("no port to listen on")

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lets a station introduce itself."""
        try:
            async with asyncio.timeout(_GREETING_S):
                link = await accept(reader, writer, self.secret)
                presence = msgspec.json.decode(await link.receive(), type=Presence)
        except (Refused, LinkLost, TimeoutError, msgspec.DecodeError) as problem:
            peer = writer.get_extra_info("peername")
            self.turned_away.append(f"{peer[0] if peer else '?'}: {problem}")
            writer.close()
            return
        if self._begun:
            await self._send_away(link, "the run has begun without this node")
            return
        clash = self._clash(presence)
        if clash is not None:
            self.clash = clash
            self._news.set()
            await self._send_away(link, clash)
            return
        self.guests[presence.process] = Guest(presence, link.peer, link)
        self._news.set()

    @staticmethod
    async def _send_away(link: Link, why: str) -> None:
        link.send(NotAdmitted(why=why, failed=True))
        await link.drain()
        link.close()

    def _clash(self, new: Presence) -> str | None:
        """Returns why two stations cannot both be here; only equal identities are refused."""
        for guest in self.guests.values():
            there = guest.presence
            same_place = (there.node, there.local_process) == (new.node, new.local_process)
            if there.process == new.process or same_place:
                return (
                    f"process {new.process} on {new.node} (pid {new.pid}) and process"
                    f" {there.process} on {there.node} (pid {there.pid}) say that they are the"
                    " same; give each node a name and a rank of its own (--node-name, --node-rank)"
                )
        return None

    async def gathered(self, wait_s: float) -> list[Guest]:
        """Returns all that have come, once everybody is there or the time is over."""
        end_s, told_s = time.monotonic() + wait_s, time.monotonic()
        expected = self.own.processes
        while len(self.guests) < expected and (left_s := end_s - time.monotonic()) > 0:
            if self.clash is not None:
                raise UsageError(self.clash)
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left_s, 1.0))
            if time.monotonic() - told_s > _TOLD_EVERY_S:
                told_s = time.monotonic()
                sys.stderr.write(f"collbench: {len(self.guests)} of {expected} here\n")
        self._begun = True
        return list(self.guests.values())

    def admit(self, guest: Guest, logs: str | None, run_id: str) -> None:
        """Tells a station that it takes part."""
        assert guest.link is not None
        guest.link.send(Admitted(logs=logs, run_id=run_id))

    def turn_away(self, guest: Guest, why: str, *, failed: bool) -> None:
        """Tells a station that it does not take part."""
        self.guests.pop(guest.presence.process, None)
        if guest.link is not None:
            guest.link.send(NotAdmitted(why=why, failed=failed))
            guest.link.close()

    def attend(
        self, guest: Guest, report: Callable[[Report], None], lose: Callable[[str], None]
    ) -> None:
        """From now on hands on what a station reports, and says when it is lost."""
        guest.task = self._tasks_loop().create_task(self._listen(guest, report, lose))
        if self._beat is None:
            self._beat = self._tasks_loop().create_task(self._keep_alive())

    def _tasks_loop(self) -> asyncio.AbstractEventLoop:
        assert self._server is not None
        return self._server.get_loop()

    async def _listen(
        self, guest: Guest, report: Callable[[Report], None], lose: Callable[[str], None]
    ) -> None:
        assert guest.link is not None
        decoder = msgspec.json.Decoder(Report)
        try:
            while True:
                message = decoder.decode(await guest.link.receive())
                guest.beats_missed = 0
                if not isinstance(message, Alive):
                    report(message)
        except (LinkLost, Refused, msgspec.DecodeError) as problem:
            if not self._parting:
                lose(f"its connection ended ({problem})")
        except asyncio.CancelledError:
            if guest.beats_missed > MISSED_BEATS:
                lose(f"no word from it for {MISSED_BEATS * HEARTBEAT_S:.0f} s")
            else:
                raise
        finally:
            guest.link.close()

    async def _keep_alive(self) -> None:
        """Beats count in ticks of this loop: while it stands still, nobody is late."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for guest in list(self.guests.values()):
                if guest.link is None or guest.task is None or guest.task.done():
                    continue
                guest.link.send(Alive())
                guest.beats_missed += 1
                if guest.beats_missed > MISSED_BEATS:
                    guest.task.cancel()

    def dismiss(self, why: str) -> None:
        """Tells all that wait to be admitted that nothing comes of it."""
        for guest in list(self.guests.values()):
            if guest.link is not None and guest.task is None:
                self.turn_away(guest, why, failed=True)

    async def close(self, last: Finish) -> None:
        """Lets all stations go and stops listening."""
        self._parting = True
        if self._beat is not None:
            self._beat.cancel()
        leaving = [g for g in self.guests.values() if g.task is not None and not g.task.done()]
        for guest in leaving:
            guest.send(last)
        tasks = [guest.task for guest in leaving if guest.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_PARTING_S)
        for guest in self.guests.values():
            if guest.link is not None:
                guest.link.close()
        if self._server is not None:
            self._server.close()
