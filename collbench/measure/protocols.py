"""What a worker measures with: four small protocols, each with a fake in this package.

A rank's ``Backend`` opens ``Buffers`` for a case and a ``Timer`` for its mode; ``Control`` lets
the ranks agree outside the timed window; ``Progress`` shows the supervisor that calls go on.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from collbench.measure.walk import Walk
from collbench.model import Case, Reason, Record, WrongElement
from collbench.stats import FloatArray


class Phase(IntEnum):
    """What a worker is doing, as its supervisor sees it."""

    IDLE = 0
    JOINING = 1
    PREPARING = 2
    CHECKING = 3
    WARMING = 4
    SAMPLING = 5


class Progress(Protocol):
    """Counters that another process reads."""

    def tick(self) -> None:
        """Counts one collective call issued."""

    def phase(self, phase: Phase) -> None:
        """Says what begins; counts as progress."""

    def longest(self, time_us: float) -> None:
        """Raises the longest time that calls took between two ticks, in us."""


class Control(Protocol):
    """Agreement between the ranks of a group. Collective: every rank calls each method alike."""

    def barrier(self) -> None:
        """Returns when every rank has called it. Synchronises."""

    def max(self, values: FloatArray) -> FloatArray:
        """Returns the element-wise largest over ranks. Synchronises."""


class Verified(Record, frozen=True, kw_only=True):
    """What one rank found in one slot's output."""

    checked_elements: int
    wrong_elements: int
    first_wrong: WrongElement | None = None


class Buffers(Protocol):
    """The memory of one case on one rank and the call on it."""

    def fill(self) -> None:
        """Writes the known input into every slot and poison into every separate output.

        Both are there for every stream when it returns; the same holds for ``poison``.
        """

    def poison(self) -> None:
        """Overwrites separate outputs, so that an output that nobody writes is seen."""

    def enter(self) -> None:
        """Runs just before a sample's window opens; where a planted late rank waits."""

    def call(self, slot: int) -> None:
        """Issues one collective call on a slot. Collective: every rank of the group."""

    def spoil(self, slot: int, index: int) -> None:
        """Makes one element of a slot's output wrong, in the order of the calls (for tests)."""

    def verify(self, slot: int, when: str) -> Verified:
        """Compares a slot's output with the known answer, element by element.

        Waits for the device first; no collective.
        """

    def close(self) -> None:
        """Lets go of the memory; it may be reused by the next case."""


class Timer(Protocol):
    """Takes samples of one case. Collective: every rank calls each method alike."""

    clock: str
    fixed_ops: int | None
    """Calls a sample, where the way of timing fixes it (a captured graph)."""
    notes: list[str]

    @property
    def host_us_per_call(self) -> float | None:
        """Host time of issuing a call, median over the samples so far; None in a graph."""

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us, each the mean over ``ops`` calls.

        Synchronises: a barrier before the first sample, or before each if isolated; the device
        is idle at return.
        """

    @property
    def checkable(self) -> tuple[int, ...]:
        """The slots to check: the last one called; of a graph its first and its last."""

    def close(self) -> None:
        """Frees graphs and events. Must precede the end of the communicator."""


class Backend(Protocol):
    """What can communicate."""

    name: str

    def refusal(self, case: Case) -> Reason | None:
        """Returns why a case cannot be, equal on all ranks, or None."""

    def free_bytes(self) -> int:
        """Returns the bytes this rank may take for buffers, on its device."""

    def cache_bytes(self) -> int:
        """Returns the size of the last cache before memory: L2 of a GPU, L3 of a CPU."""

    def target_sample_us(self) -> float:
        """Returns how long an eager sample should last for its clock to be exact."""

    def open(self, case: Case, walk: Walk) -> Buffers:
        """Takes the memory of a case."""

    def timer(self, case: Case, walk: Walk, buffers: Buffers) -> Timer:
        """Returns what times this case's mode and pattern. Collective in graph mode."""

    def now_s(self) -> float:
        """Returns a monotonic time in seconds, for budgets."""
