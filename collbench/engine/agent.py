"""The other end of the meeting: a process on another node serves node 0 with its station."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from collbench.engine.link import Link, LinkLost, Refused, connect
from collbench.engine.logs import LogPlace
from collbench.engine.orders import Alive, Finish, Fork, ForkFailed, Order, Report
from collbench.engine.reception import (
    HEARTBEAT_S,
    Admitted,
    NotAdmitted,
    Presence,
)
from collbench.engine.station import Station
from collbench.errors import NothingMeasured
from collbench.launch.meeting import Meeting, MeetingKind
from collbench.launch.rendezvous import Announcement, find
from collbench.nccl.variables import PREFIXES

_MISSED_BEATS = 10
"""So many heartbeats without a word from node 0: it is lost."""
_TRY_EVERY_S = 0.3
_CONNECT_S = 5.0
_ADMISSION_S = 60.0
"""On top of the waiting for others: node 0 plans and opens its run."""
_ALLOWED = re.compile(rf"({'|'.join(PREFIXES)})\w+")
_LOADS_CODE = re.compile(r"\w*(PLUGIN|INJECTION|MODULE|CONF_FILE|PATH|DIR)\w*")
"""Variables that name code to be loaded; they count only where this command line has them too."""

MakeStation = Callable[[LogPlace, Callable[[Report], None]], Station]


class Agent:
    """Serves node 0 from this process.

    Args:
        presence: what this station says of itself.
        meeting: where node 0 is found.
        secret_of: gives the run's secret, from the announcement's token if there is one.
        swept: names of variables that the command line of this process sweeps.
        make_station: opens the station once it is admitted.
        wait_s: so long node 0 may be missing.
    """

    def __init__(
        self,
        *,
        presence: Presence,
        meeting: Meeting,
        secret_of: Callable[[str | None], bytes],
        swept: Collection[str],
        make_station: MakeStation,
        wait_s: float,
    ) -> None:
        self._presence, self._meeting, self._secret_of = presence, meeting, secret_of
        self._swept, self._make_station, self._wait_s = swept, make_station, wait_s
        self._missed = 0
        self._let_go: str | None = None

    async def serve(self) -> str | None:
        """Serves until node 0 lets this station go; returns why, where that is before the end.

        Raises:
            NothingMeasured: node 0 does not answer, or is lost.
        """
        link = await self._met()
        try:
            link.send(self._presence)
            async with asyncio.timeout(self._wait_s + _ADMISSION_S):
                data = await link.receive()
            answer = msgspec.json.decode(data, type=Admitted | NotAdmitted)
            if isinstance(answer, NotAdmitted):
                if answer.failed:
                    raise NothingMeasured(answer.why)
                return answer.why
            return await self._serve(link, answer)
        except (LinkLost, Refused) as problem:
            raise NothingMeasured(f"node 0 is lost: {problem}") from None
        except TimeoutError:
            raise NothingMeasured("node 0 took this node in and then said nothing more") from None
        except msgspec.DecodeError as problem:
            raise NothingMeasured(f"node 0 says what is not understood: {problem}") from None
        finally:
            link.close()

    async def _serve(self, link: Link, admitted: Admitted) -> str | None:
        station = self._make_station(LogPlace(_seen_here(admitted)), link.send)
        working = asyncio.ensure_future(station.run())
        beating = asyncio.ensure_future(self._beat(link))
        hearing = asyncio.ensure_future(self._hear(link, station))
        try:
            await asyncio.wait({working, beating, hearing}, return_when=asyncio.FIRST_COMPLETED)
            for task in (hearing, beating, working):
                if task.done():
                    task.result()
        finally:
            for task in (working, beating, hearing):
                task.cancel()
            # Before the workers end: node 0 then knows what the others' errors come from.
            link.close()
            await asyncio.gather(working, beating, hearing, return_exceptions=True)
            station.close()
        return self._let_go

    async def _hear(self, link: Link, station: Station) -> None:
        decoder = msgspec.json.Decoder(Order)
        while True:
            order = decoder.decode(await link.receive())
            self._missed = 0
            if isinstance(order, Fork) and (refused := self._refusal(order)):
                seats = [seat.seat for seat in order.seats]
                link.send(ForkFailed(seats=seats, text=refused))
                continue
            station.send(order)
            if isinstance(order, Finish):
                self._let_go = order.text
                await asyncio.Event().wait()  # the station ends by itself

    def _refusal(self, order: Fork) -> str | None:
        """Returns why variables from the network are not taken, or None."""
        names = {name for name, _ in order.zygote}
        names |= {name for seat in order.seats for name in seat.variables}
        foreign = sorted(
            name
            for name in names - set(self._swept)
            if not _ALLOWED.fullmatch(name) or _LOADS_CODE.fullmatch(name)
        )
        if not foreign:
            return None
        return f"variables that are not taken from the network: {', '.join(foreign)}"

    async def _beat(self, link: Link) -> None:
        self._missed = 0
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            link.send(Alive())
            self._missed += 1
            if self._missed > _MISSED_BEATS:
                raise LinkLost(f"no word for {_MISSED_BEATS * HEARTBEAT_S:.0f} s")

    async def _met(self) -> Link:
        """Connects to node 0; tries until it answers or the time is over.

        Raises:
            NothingMeasured: it does not.
        """
        end_s = time.monotonic() + self._wait_s
        announced: Announcement | None = None
        known = self._meeting.kind is MeetingKind.ADDRESS
        problem = "nobody answers"
        while (left_s := end_s - time.monotonic()) > 0:
            if not known and (announced is None or self._meeting.kind is MeetingKind.FILE):
                announced = await asyncio.to_thread(find, self._meeting, left_s)
            host, ports = self._address(announced)
            secret = self._secret_of(announced.token if announced else None)
            for port in ports:
                try:
                    async with asyncio.timeout(_CONNECT_S):
                        reader, writer = await asyncio.open_connection(host, port)
                        try:
                            return await connect(reader, writer, secret)
                        except BaseException:
                            writer.close()
                            raise
                except (OSError, LinkLost, TimeoutError) as error:
                    problem = f"{host}:{port}: {error or type(error).__name__}"
                except Refused as error:
                    # Another program's port, or another run's: node 0 may be at the next one.
                    problem = f"{host}:{port}: {error}"
            await asyncio.sleep(_TRY_EVERY_S)
        raise NothingMeasured(
            f"node 0 does not answer within {self._wait_s:.0f} s ({problem}; meeting:"
            f" {self._meeting.why}); start it, open the port, or give --rendezvous HOST:PORT"
        )

    def _address(self, announced: Announcement | None) -> tuple[str, Sequence[int]]:
        if announced is not None:
            return announced.host, (announced.port,)
        assert self._meeting.host is not None
        return self._meeting.host, self._meeting.ports


def _seen_here(admitted: Admitted) -> Path | None:
    """Returns the run's log folder if this node sees it too."""
    if admitted.logs is None:
        return None
    folder = Path(admitted.logs)
    with contextlib.suppress(OSError):
        if admitted.run_id in (folder.parent / "run.json").read_text():
            return folder
    return None
