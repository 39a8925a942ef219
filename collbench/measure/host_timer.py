"""Times calls that block until they are done, by a host clock (Gloo, and the fake back end)."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np

from collbench.measure.protocols import Buffers, Control, Progress
from collbench.model import Pattern
from collbench.stats import FloatArray


class Clock(Protocol):
    """A monotonic host clock."""

    name: str

    def now_us(self) -> float:
        """Returns microseconds since some fixed moment."""


class PerfCounter:
    """``time.perf_counter``."""

    name = "perf_counter"

    def now_us(self) -> float:
        """Returns microseconds since some fixed moment."""
        return time.perf_counter_ns() / 1e3


class HostTimer:
    """A window is [clock, ops blocking calls, clock].

    Back to back: one barrier, then windows follow each other. Isolated: a barrier before each.
    """

    fixed_ops: int | None = None

    def __init__(
        self,
        *,
        clock: Clock,
        buffers: Buffers,
        slots: int,
        pattern: Pattern,
        control: Control,
        progress: Progress,
    ) -> None:
        self.clock = clock.name
        self.notes: list[str] = []
        self._last_slot = 0
        self._now_us = clock.now_us
        self._buffers, self._slots = buffers, slots
        self._isolated = pattern is Pattern.ISOLATED
        self._control, self._progress = control, progress
        self._next_slot = 0

    @property
    def checkable(self) -> tuple[int, ...]:
        """The slot called last."""
        return (self._last_slot,)

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        self._calls(1)

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call. Synchronises."""
        times_us = np.empty(count)
        for i in range(count):
            if i == 0 or self._isolated:
                self._control.barrier()
            self._buffers.enter()
            start_us = self._now_us()
            self._calls(ops)
            times_us[i] = (self._now_us() - start_us) / ops
        return times_us

    def _calls(self, ops: int) -> None:
        for _ in range(ops):
            slot = self._next_slot
            self._progress.tick()
            self._buffers.call(slot)
            self._last_slot = slot
            self._next_slot = (slot + 1) % self._slots

    def close(self) -> None:
        """Holds nothing."""
