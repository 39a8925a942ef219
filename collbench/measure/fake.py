"""A back end, a clock and a control that answer by a model: exact figures without hardware.

``n`` ranks are ``n`` threads. A call ends at (latest entry of any rank) + alpha + bytes on the
wire / bandwidth, on a clock that only the model moves; so everything above the back end (loop,
stopping, summaries, records, tables) can be checked to the last digit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collbench.collectives import COLLECTIVES
from collbench.measure.calls import Calls
from collbench.measure.host_timer import HostTimer
from collbench.measure.protocols import Buffers, Control, Phase, Progress, Verified
from collbench.measure.walk import Walk, side_counts
from collbench.model import Case, Mode, Reason, ReasonCode, WrongElement
from collbench.stats import FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkModel:
    """time_us = alpha_us + S x busbw factor / bandwidth, times 1 + noise x a standard normal."""

    alpha_us: float = 10.0
    bandwidth_gb_per_s: float = 100.0
    noise: float = 0.0
    free_bytes: int = 64 * 2**30
    cache_bytes: int = 32 * 2**20

    def time_us(self, case: Case) -> float:
        """Returns the noiseless time of one call."""
        factor = COLLECTIVES[case.collective].busbw_factor(case.world_size)
        return self.alpha_us + case.size_bytes * factor / self.bandwidth_gb_per_s / 1e3


class FakeClock:
    """A clock that stands still unless it is moved."""

    name = "fake"

    def __init__(self) -> None:
        self.time_us = 0.0

    def now_us(self) -> float:
        """Returns the time it was moved to."""
        return self.time_us


class FakeWorld:
    """What the ranks of a fake group share: a meeting point for threads."""

    def __init__(self, world_size: int) -> None:
        self._barrier = threading.Barrier(world_size)
        self._values: list[FloatArray] = [np.empty(0)] * world_size

    def exchange(self, rank: int, values: FloatArray) -> list[FloatArray]:
        """Returns every rank's values. Collective; synchronises.

        Raises:
            threading.BrokenBarrierError: another rank has given up.
        """
        self._values[rank] = values
        self._barrier.wait()
        found = list(self._values)
        self._barrier.wait()
        return found

    def abort(self) -> None:
        """Makes every rank that waits, or will wait, give up."""
        self._barrier.abort()


class FakeControl:
    """Agreement between threads; takes no time on the fake clocks."""

    def __init__(self, world: FakeWorld, rank: int, clock: FakeClock) -> None:
        self._world, self._rank, self._clock = world, rank, clock

    def barrier(self) -> None:
        """Returns when every rank has called it; all clocks then show the latest time."""
        latest = self.max(np.array([self._clock.time_us]))
        self._clock.time_us = float(latest[0])

    def max(self, values: FloatArray) -> FloatArray:
        """Returns the element-wise largest over ranks. Synchronises."""
        return np.max(self._world.exchange(self._rank, values), axis=0)  # type: ignore[no-any-return]


class FakeBuffers:
    """No memory; a call moves the clock."""

    def __init__(self, case: Case, rank: int, call: Callable[[Case], None]) -> None:
        self._case, self._rank, self._call = case, rank, call
        self._spoilt: int | None = None

    def fill(self) -> None:
        """Does nothing."""

    def poison(self) -> None:
        """Does nothing."""

    def enter(self) -> None:
        """Does nothing."""

    def call(self, slot: int) -> None:
        """Moves the clock by the model's time."""
        del slot
        self._call(self._case)

    def spoil(self, slot: int, index: int) -> None:
        """Makes the next verification find this element wrong."""
        del slot
        self._spoilt = index

    def verify(self, slot: int, when: str) -> Verified:
        """Finds everything right that was not spoilt."""
        del slot
        wrong = None
        if self._spoilt is not None:
            wrong = WrongElement(
                rank=self._rank, index=self._spoilt, expected="1", got="0", when=when
            )
            self._spoilt = None
        return Verified(
            checked_elements=side_counts(self._case)[1],
            wrong_elements=0 if wrong is None else 1,
            first_wrong=wrong,
        )

    def close(self) -> None:
        """Does nothing."""


class FakeBackend:
    """Answers as ``LinkModel`` says; eager mode only, like a CPU."""

    name = "simulated"

    def __init__(
        self,
        model: LinkModel,
        world: FakeWorld,
        rank: int,
        clock: FakeClock,
        progress: Progress,
        seed: int,
    ) -> None:
        self._model, self._world, self._rank, self._clock = model, world, rank, clock
        self._control = FakeControl(world, rank, clock)
        self._progress = progress
        self._random = np.random.default_rng([seed, rank])

    @property
    def control(self) -> Control:
        """The agreement that belongs to this back end's clock."""
        return self._control

    def refusal(self, case: Case) -> Reason | None:
        """Refuses all modes but eager."""
        if case.mode is Mode.EAGER:
            return None
        return Reason(code=ReasonCode.NO_SUCH_MODE, text=f"mode {case.mode} is not simulated")

    def free_bytes(self) -> int:
        """Returns the model's."""
        return self._model.free_bytes

    def cache_bytes(self) -> int:
        """Returns the model's."""
        return self._model.cache_bytes

    def target_sample_us(self) -> float:
        """The fake clock is exact: one call a sample."""
        return 0.0

    def open(self, case: Case, walk: Walk) -> Buffers:
        """Returns buffers without memory."""
        del walk
        return FakeBuffers(case, self._rank, self._call)

    def timer(self, case: Case, walk: Walk, buffers: Buffers) -> HostTimer:
        """Returns the host timer on the fake clock."""
        calls = Calls(
            buffers=buffers,
            slots=walk.slots,
            pattern=case.pattern,
            control=self._control,
            progress=self._progress,
        )
        return HostTimer(self._clock, calls)

    def now_s(self) -> float:
        """Returns the fake clock's time."""
        return self._clock.time_us / 1e6

    def _call(self, case: Case) -> None:
        entries = self._world.exchange(self._rank, np.array([self._clock.time_us]))
        noise = 1 + self._model.noise * float(self._random.standard_normal())
        latest = float(np.max(entries))
        self._clock.time_us = latest + self._model.time_us(case) * max(noise, 0.05)


class NoProgress:
    """Counts for nobody."""

    def tick(self) -> None:
        """Does nothing."""

    def phase(self, phase: Phase) -> None:
        """Does nothing."""

    def longest(self, time_us: float) -> None:
        """Does nothing."""
