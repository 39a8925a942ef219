"""Times calls that block until they are done, by a host clock (Gloo, and the fake back end)."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np

from collbench.measure.calls import Calls
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
    host_us_per_call: float | None = None
    """Blocking calls have no host time apart from their own."""

    def __init__(self, clock: Clock, calls: Calls) -> None:
        self.clock = clock.name
        self.notes: list[str] = []
        self._now_us = clock.now_us
        self._calls = calls

    @property
    def checkable(self) -> tuple[int, ...]:
        """The slot called last."""
        return (self._calls.last_slot,)

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        self._calls.issue(1)

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call. Synchronises."""
        calls = self._calls
        times_us = np.empty(count)
        for i in range(count):
            if i == 0 or calls.isolated:
                calls.control.barrier()
            calls.buffers.enter()
            start_us = self._now_us()
            calls.issue(ops)
            times_us[i] = (self._now_us() - start_us) / ops
        return times_us

    def close(self) -> None:
        """Holds nothing."""
