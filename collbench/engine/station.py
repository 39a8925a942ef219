"""A station: the workers of one started process, under the controller's orders.

It runs in the event loop of its process and never blocks in it: imports of a zygote are awaited,
everything else takes milliseconds. It never imports torch and never calls CUDA.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from collbench.engine.logs import LogPlace
from collbench.engine.orders import (
    Alive,
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
    SeatLook,
    SeatOrder,
    Spoke,
    Tell,
    TellEach,
)
from collbench.engine.processes import WorkerProcess, Zygote, end_workers, let_quit
from collbench.engine.ras import ras_report
from collbench.engine.wire import Closed, Done, Measure, Raised, ToWorker
from collbench.errors import NothingMeasured
from collbench.nccl.settings import Changes
from collbench.nccl.variables import LOG_VARIABLES
from collbench.probe.watch import Change, HardwareWatch, Reading

_LOOK_EVERY_S = 0.25
"""How often progress counters and clocks are read."""
_QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
"""For the zygote, unless the user has set them: forking is sound only without threads."""


@dataclass(eq=False)
class _Held:
    """A living worker and what was last reported of it."""

    seat: int
    process: WorkerProcess
    fingerprint: tuple[int, int] = (0, 0)


@dataclass(eq=False)
class _Watched:
    """A case that is being measured here: counters before it, workers that have not answered."""

    before: Reading
    open: set[int] = field(default_factory=set)


class Station:
    """Workers of this process's slots.

    Args:
        via: through what workers communicate: ``torch`` or ``native``.
        environ: this process's environment.
        own_variables: of every worker here, under those of its order: interfaces have other names
            on other nodes.
        logs: where output goes.
        watch: hardware counters of this machine.
        init_deadline_s: for a zygote's imports.
        report: takes what happens here.
    """

    def __init__(
        self,
        *,
        via: str,
        environ: Mapping[str, str],
        own_variables: Mapping[str, str],
        logs: LogPlace,
        watch: HardwareWatch,
        init_deadline_s: float,
        report: Callable[[Report], None],
    ) -> None:
        self._via, self._environ, self._logs = via, environ, logs
        self._own_variables = own_variables
        self._watch, self._init_deadline_s = watch, init_deadline_s
        self._report = report
        self._held: dict[int, _Held] = {}
        self._watched: dict[int, _Watched] = {}
        self._zygote: Zygote | None = None
        self._zygotes = 0
        self._part: tuple[int, Changes] | None = None
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def send(self, order: Order) -> None:
        """Takes an order; orders are obeyed one after the other."""
        self._orders.put_nowait(order)

    async def run(self) -> None:
        """Obeys orders until told to finish; whoever ends it otherwise closes the station."""
        looking = asyncio.ensure_future(self._look_around())
        try:
            while not isinstance(order := await self._orders.get(), Finish):
                await self._obey(order)
            self.close()
        finally:
            looking.cancel()

    async def _obey(self, order: Order) -> None:
        match order:
            case Fork():
                await self._fork(order)
            case Tell():
                self._watch_case(order.seats, order.message)
                for seat in order.seats:
                    self._tell(seat, order.message)
            case TellEach():
                for seat, message in order.messages:
                    self._tell(seat, message)
            case Dismiss():
                self._dismiss(order)
            case Look():
                held = [self._held[seat] for seat in order.seats if seat in self._held]
                looks = [
                    SeatLook(seat=h.seat, state=h.process.state(), log_tail=h.process.log_tail())
                    for h in held
                ]
                evidence = await self._ras() if order.ask_nccl else []
                self._report(Looked(looks=looks, evidence=evidence))
            case Alive() | Finish():
                pass

    async def _ras(self) -> list[str]:
        """Returns what NCCL's own watch says, if there is one and it answers."""
        address = self._own_variables.get("NCCL_RAS_ADDR")
        return [] if address is None else await ras_report(address)

    async def _fork(self, order: Fork) -> None:
        try:
            zygote = await self._living_zygote(order.repeat, order.zygote)
            for seat in order.seats:
                self._hold(seat.seat, self._forked(zygote, seat))
        except (NothingMeasured, OSError) as problem:
            self._report(ForkFailed(seats=[s.seat for s in order.seats], text=str(problem)))
            return
        pids = [(seat.seat, self._held[seat.seat].process.pid) for seat in order.seats]
        self._report(Forked(pids=pids, zygotes=self._zygotes, import_s=zygote.import_s))

    async def _living_zygote(self, repeat: int, variables: Changes) -> Zygote:
        """Returns the zygote of a repeat with its variables; ends another one and its workers."""
        if self._zygote is not None and (
            self._part != (repeat, variables) or not self._zygote.alive
        ):
            ended = [self._gone(held, None) for held in self._held.values()]
            self._end_all()
            for report in ended:
                self._report(report)
        if self._zygote is None:
            quiet = {name: value for name, value in _QUIET.items() if name not in self._environ}
            merged: dict[str, str | None] = {**quiet, **dict(variables)}
            zygote = Zygote(self._via, merged, self._logs, self._init_deadline_s)
            self._zygote, self._part = zygote, (repeat, variables)
            self._zygotes += 1
            ready = self._loop.create_future()
            self._loop.add_reader(zygote.fileno(), _resolve, ready)
            try:
                with contextlib.suppress(TimeoutError):  # taking it then says what is wrong
                    await asyncio.wait_for(ready, self._init_deadline_s)
            finally:
                self._loop.remove_reader(zygote.fileno())
            try:
                zygote.take_ready()
            except NothingMeasured:
                self._end_all()
                raise
        return self._zygote

    def _forked(self, zygote: Zygote, seat: SeatOrder) -> WorkerProcess:
        variables: dict[str, str | None] = {**self._own_variables, **seat.variables}
        if seat.logged:
            file = self._logs.nccl_file(seat.seat, seat.rank)
            variables |= {**LOG_VARIABLES, "NCCL_DEBUG_FILE": file}
        return zygote.fork(seat.rank, gpu=seat.gpu, variables=variables, cpuset=seat.cpuset)

    def _hold(self, seat: int, process: WorkerProcess) -> None:
        held = _Held(seat, process)
        self._held[seat] = held
        self._loop.add_reader(process.channel.sock, self._heard, held)

    def _heard(self, held: _Held) -> None:
        try:
            messages = held.process.channel.arrived()
        except Closed:
            self._lost(held)
            return
        for message in messages:
            change = Change()
            if isinstance(message, Done | Raised):
                change = self._answered(held.seat)
            self._report(
                Spoke(
                    seat=held.seat,
                    message=message,
                    events=list(change.events),
                    counters=dict(change.counters),
                )
            )

    def _lost(self, held: _Held) -> None:
        """A worker is gone though nobody dismissed it."""
        self._answered(held.seat)
        self._loop.remove_reader(held.process.channel.sock)
        del self._held[held.seat]
        process = held.process
        status = None
        if self._zygote is not None:
            self._zygote.collect({process.pid}, wait_s=1.0)
            status = self._zygote.exit_statuses.get(process.pid)
        report = self._gone(held, status)
        if self._zygote is not None:
            end_workers([process], self._zygote)
        self._report(report)

    @staticmethod
    def _gone(held: _Held, status: int | None) -> Died:
        process = held.process
        calls, tail = process.progress.calls, process.log_tail()
        return Died(seat=held.seat, exit_status=status, calls=calls, log_tail=tail)

    def _tell(self, seat: int, message: ToWorker) -> None:
        held = self._held.get(seat)
        if held is not None:
            with contextlib.suppress(Closed):  # its end is noticed where it is read
                held.process.channel.send(message)

    def _watch_case(self, seats: Sequence[int], message: ToWorker) -> None:
        if isinstance(message, Measure):
            watched = _Watched(self._watch.read(), {s for s in seats if s in self._held})
            for seat in watched.open:
                self._watched[seat] = watched

    def _answered(self, seat: int) -> Change:
        """Returns what the counters say once the last worker of a case has answered."""
        watched = self._watched.pop(seat, None)
        if watched is None:
            return Change()
        watched.open.discard(seat)
        return Change() if watched.open else self._watch.since(watched.before)

    def _dismiss(self, order: Dismiss) -> None:
        gone = [self._held.pop(seat) for seat in order.seats if seat in self._held]
        for held in gone:
            self._watched.pop(held.seat, None)
            self._loop.remove_reader(held.process.channel.sock)
        processes = [held.process for held in gone]
        survivors: list[WorkerProcess] = []
        if processes and self._zygote is not None:
            if not order.kill:
                let_quit(processes)
            survivors = end_workers(processes, self._zygote)
        left = [held.seat for held in gone if held.process in survivors]
        self._report(Dismissed(seats=order.seats, survivors=left))

    async def _look_around(self) -> None:
        """Reports counters that moved; samples clocks while a case runs."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._watched:
                self._watch.sample_clocks()
            moves = []
            for held in self._held.values():
                progress = held.process.progress
                latest = progress.fingerprint()
                if latest != held.fingerprint:
                    held.fingerprint = latest
                    moves.append(
                        (held.seat, progress.calls, int(progress.current), progress.longest_s)
                    )
            if moves:
                self._report(Moved(moves=moves))

    def _end_all(self) -> None:
        for held in self._held.values():
            self._loop.remove_reader(held.process.channel.sock)
        processes = [held.process for held in self._held.values()]
        self._held.clear()
        self._watched.clear()
        if self._zygote is not None:
            let_quit(processes)
            end_workers(processes, self._zygote)
            self._zygote.close()
            self._zygote = None

    def close(self) -> None:
        """Ends every process; may be called twice."""
        self._end_all()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
