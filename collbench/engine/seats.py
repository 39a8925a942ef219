"""A worker as the controller knows it, wherever it runs, and the posts that reach it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from collbench.engine.lineup import Kind
from collbench.engine.orders import Died, Moved, Order, SeatLook, Spoke
from collbench.engine.wire import FromWorker
from collbench.measure.protocols import Phase
from collbench.nccl.settings import Changes


@dataclass(eq=False)
class Post:
    """Where orders for one station go."""

    node: str
    address: str
    """At which the station's workers reach each other's stores."""
    send: Callable[[Order], None]
    shown: bool = False
    """Whether its node is named in texts: where there are several."""
    lost: str | None = None
    """Why it can no longer be reached, or used."""
    process: int | None = None
    """The number of the station's process, where its node has several."""

    @property
    def name(self) -> str:
        """What it is called in texts."""
        return self.node if self.process is None else f"process {self.process} on {self.node}"


@dataclass(eq=False, frozen=True)
class Berth:
    """Where a rank runs."""

    rank: int
    post: Post
    local_rank: int
    gpu: int | None
    """Index among the node's GPUs."""
    cuda_index: int | None
    """CUDA's number of it in the worker."""
    cpuset: str
    ranks_on_device: int
    fake_host: str | None


@dataclass
class Progress:
    """Counters of a worker as last reported."""

    calls: int = 0
    current: Phase = Phase.IDLE
    longest_s: float = 0.0


@dataclass(eq=False)
class Gathering:
    """What waits for answers of several workers."""

    fresh: list[Seat] = field(default_factory=list)
    """Workers of which there is news."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    moved_s: float = field(default_factory=time.monotonic)
    """When a counter moved last."""
    longest_s: float = 0.0

    def note(self, seat: Seat) -> None:
        """Takes news of a worker."""
        self.fresh.append(seat)
        self.wake.set()


@dataclass(eq=False)
class Seat:
    """One worker."""

    number: int
    berth: Berth
    kind: Kind
    zygote_part: tuple[int, Changes]
    worker_part: Changes
    pid: int = 0
    progress: Progress = field(default_factory=Progress)
    inbox: list[FromWorker] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    """Its node's, since the case began; with the last worker of the node alone."""
    died: Died | None = None
    seen: SeatLook | None = None
    evidence: list[str] = field(default_factory=list)
    """What NCCL's own watch said when it was looked at."""
    gathering: Gathering | None = None
    group: int | None = None
    """The number of the group it has joined."""

    @property
    def rank(self) -> int:
        """Its rank among all of the run."""
        return self.berth.rank

    @property
    def node(self) -> str:
        """The node it runs on."""
        return self.berth.post.node

    @property
    def local_rank(self) -> int:
        """Its rank among the node's."""
        return self.berth.local_rank

    @property
    def gpu(self) -> int | None:
        """Its GPU."""
        return self.berth.gpu

    @property
    def gone(self) -> bool:
        """Whether it can no longer answer."""
        return self.died is not None or self.berth.post.lost is not None

    def state(self) -> str:
        """Returns the kernel's letter for the process, as last seen."""
        return self.seen.state if self.seen is not None else "?"

    def log_tail(self) -> list[str]:
        """Returns its last lines, as last seen."""
        if self.died is not None:
            return self.died.log_tail
        return self.seen.log_tail if self.seen is not None else []

    def spoke(self, report: Spoke) -> None:
        """Takes a message in."""
        self.inbox.append(report.message)
        self.events += report.events
        self.counters |= report.counters
        if self.gathering is not None:
            self.gathering.note(self)

    def moved(self, calls: int, phase: int, longest_s: float) -> None:
        """Takes counters in."""
        self.progress = Progress(calls, Phase(phase), longest_s)
        if self.gathering is not None:
            self.gathering.moved_s = time.monotonic()
            self.gathering.longest_s = max(self.gathering.longest_s, longest_s)

    def lost(self, report: Died | None) -> None:
        """It ended, or its node can no longer be reached."""
        if report is not None:
            self.died = report
            self.progress = Progress(report.calls, self.progress.current, self.progress.longest_s)
        if self.gathering is not None:
            self.gathering.note(self)


def by_post(seats: Sequence[Seat]) -> dict[Post, list[Seat]]:
    """Returns workers by the station that they live at."""
    found: dict[Post, list[Seat]] = {}
    for seat in seats:
        found.setdefault(seat.berth.post, []).append(seat)
    return found


def take_moves(report: Moved, seats: dict[int, Seat]) -> None:
    """Hands counters to the workers that they belong to."""
    for number, calls, phase, longest_s in report.moves:
        seat = seats.get(number)
        if seat is not None:
            seat.moved(calls, phase, longest_s)
