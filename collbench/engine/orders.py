"""What the controller orders a station to do, and what a station reports.

A station is one process that a launcher started, with the workers of its own slots. The station of
node 0's process and those of other machines take the same orders and send the same reports.
"""

from __future__ import annotations

from collbench.engine.wire import FromWorker, ToWorker
from collbench.model import Record
from collbench.nccl.settings import Changes


class SeatOrder(Record, frozen=True, kw_only=True):
    """A worker to fork."""

    seat: int
    """The controller's number of this worker; never used twice in a run."""
    rank: int
    gpu: int | None
    cpuset: str
    variables: dict[str, str | None]
    logged: bool
    """Whether NCCL writes its log."""


class Fork(Record, frozen=True, kw_only=True, tag="fork"):
    """Fork workers. Answered by ``Forked``, or ``ForkFailed``."""

    repeat: int
    """Repeats never share a process: a new one gets a new zygote."""
    zygote: Changes
    """Variables that a zygote needs; other ones mean a new zygote, and the end of its workers."""
    seats: list[SeatOrder]


class Tell(Record, frozen=True, kw_only=True, tag="tell"):
    """Hand a message to workers."""

    seats: list[int]
    message: ToWorker


class TellEach(Record, frozen=True, kw_only=True, tag="tell_each"):
    """Hand a message of its own to each worker."""

    messages: list[tuple[int, ToWorker]]


class Dismiss(Record, frozen=True, kw_only=True, tag="dismiss"):
    """End workers: let them quit, or kill them at once. Answered by ``Dismissed``."""

    seats: list[int]
    kill: bool


class Look(Record, frozen=True, kw_only=True, tag="look"):
    """Say how workers are right now. Answered by ``Looked``."""

    seats: list[int]
    ask_nccl: bool = False
    """Also ask NCCL's own watch, which can take seconds."""


class Finish(Record, frozen=True, kw_only=True, tag="finish"):
    """The run is over: end everything and leave."""

    text: str | None = None
    """Why, where a person at this station's end should know: it is of no use to the run."""


class Forked(Record, frozen=True, kw_only=True, tag="forked"):
    """The workers live."""

    pids: list[tuple[int, int]]
    """(seat, pid)"""
    zygotes: int
    """Zygotes that this station has started so far."""
    import_s: float
    """How long the imports of the latest zygote took."""


class ForkFailed(Record, frozen=True, kw_only=True, tag="fork_failed"):
    """There is no zygote to fork from."""

    seats: list[int]
    text: str


class Spoke(Record, frozen=True, kw_only=True, tag="spoke"):
    """A worker has sent a message."""

    seat: int
    message: FromWorker
    events: list[str] = []
    """What this machine's counters said meanwhile; with the last worker's result of a case."""
    counters: dict[str, int] = {}
    """What those of errors and retransmissions rose by; likewise."""


class Died(Record, frozen=True, kw_only=True, tag="died"):
    """A worker has ended though nobody dismissed it."""

    seat: int
    exit_status: int | None
    calls: int
    log_tail: list[str]


class Moved(Record, frozen=True, kw_only=True, tag="moved"):
    """Progress counters that moved."""

    moves: list[tuple[int, int, int, float]]
    """(seat, calls, phase, longest call in seconds)"""


class SeatLook(Record, frozen=True, kw_only=True):
    """How a worker is."""

    seat: int
    state: str
    """The kernel's letter: T stopped, D in the kernel, ..."""
    log_tail: list[str]


class Looked(Record, frozen=True, kw_only=True, tag="looked"):
    """How workers are."""

    looks: list[SeatLook]
    evidence: list[str] = []
    """What NCCL's own watch says of them all."""


class Dismissed(Record, frozen=True, kw_only=True, tag="dismissed"):
    """The workers are gone, but for those that survive SIGKILL."""

    seats: list[int]
    survivors: list[int]


class Alive(Record, frozen=True, kw_only=True, tag="alive"):
    """A heartbeat, both ways."""


Order = Fork | Tell | TellEach | Dismiss | Look | Finish | Alive
Report = Forked | ForkFailed | Spoke | Died | Moved | Looked | Dismissed | Alive
