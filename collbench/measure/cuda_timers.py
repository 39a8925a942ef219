"""Times enqueued calls by CUDA events, whatever library makes the calls.

Every sample has its own two events, so that what a rank does between samples is in no window.
eager: never pre-filled, so the host's launch cost is in the time (what a program feels).
graph: ``slots`` calls captured once and replayed on the stream of the capture; one replay runs
ahead untimed, so that the launch of a graph hides behind the one before it. Replayed on the
default stream the same graph is bound by the host: an all_reduce of 8 B on 2 H200 then takes
11 us a call in a graph of 20 calls and 19 us in one of 128, against 5.8 us on its own stream.
eager_device: a spin kernel holds the queue until all calls are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np

from collbench.measure.calls import Calls
from collbench.stats import FloatArray


class Event(Protocol):
    """A CUDA event with a time."""

    def record(self) -> None:
        """Enters the queue of the stream that calls go to at present."""

    def query(self) -> bool:
        """Returns whether the device has passed it."""

    def elapsed_time(self, end: Any, /) -> float:
        """Returns milliseconds from this event to a later one; both must be over."""


class Capture(Protocol):
    """Calls captured in a CUDA graph."""

    def on_stream(self) -> AbstractContextManager[object]:
        """Makes the stream of the capture the one that events and replays go to."""

    def replay(self) -> None:
        """Launches the graph on the stream that is on."""

    def close(self) -> None:
        """Frees the graph: a live one blocks the end of its communicator."""


class CudaDevice(Protocol):
    """What the timers need of the device that the calls run on."""

    def event(self) -> Event:
        """Returns a new event."""

    def synchronize(self) -> None:
        """Waits until the device is idle."""

    def capture(self, issue: Callable[[], None]) -> Capture:
        """Returns what ``issue`` calls, captured on a stream that is not the default one.

        The device is idle before and after.
        """

    def spin(self, cycles: int) -> None:
        """Queues a kernel that does nothing for so many clock cycles."""


class EagerTimer:
    """Calls as a program makes them; the base of the other two."""

    clock = "cuda_event"

    def __init__(self, calls: Calls, device: CudaDevice) -> None:
        self.notes: list[str] = []
        self.fixed_ops: int | None = None
        self._calls, self._device = calls, device
        self._events: list[tuple[Event, Event]] = []
        self._host_us: list[float] = []

    @property
    def checkable(self) -> tuple[int, ...]:
        """The slot called last."""
        return (self._calls.last_slot,)

    @property
    def host_us_per_call(self) -> float | None:
        """The median time in us that the host took to issue a call; None before any sample."""
        return float(np.median(self._host_us)) if self._host_us else None

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        self._calls.issue(1)
        self._device.synchronize()

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call. Synchronises."""
        self._calls.control.barrier()
        return self._timed(count, ops, lambda: self._calls.issue(ops))

    def _timed(self, count: int, ops: int, issue: Callable[[], None]) -> FloatArray:
        """Returns us a call of ``count`` windows around ``issue``, which makes ``ops`` calls."""
        pairs = self._event_pairs(count)
        host_ns = []
        for i, (start, stop) in enumerate(pairs):
            if i and self._calls.isolated:
                self._device.synchronize()
                self._calls.control.barrier()
            self._calls.buffers.enter()
            start.record()
            issuing_ns = perf_counter_ns()
            issue()
            issued_ns = perf_counter_ns()
            stop.record()
            host_ns.append(issued_ns - issuing_ns)
        self._device.synchronize()
        self._host_us += [ns / 1e3 / ops for ns in host_ns]
        return np.array([start.elapsed_time(stop) for start, stop in pairs]) * 1e3 / ops

    def _event_pairs(self, count: int) -> list[tuple[Event, Event]]:
        while len(self._events) < count:
            self._events.append((self._device.event(), self._device.event()))
        return self._events[:count]

    def close(self) -> None:
        """Frees the events."""
        self._events.clear()


class GraphTimer(EagerTimer):
    """Replays of one captured graph of as many calls as there are slots; of one if isolated."""

    def __init__(self, calls: Calls, device: CudaDevice) -> None:
        super().__init__(calls, device)
        ops = 1 if calls.isolated else calls.slots
        self.fixed_ops = ops
        self._capture: Capture | None = device.capture(lambda: calls.issue(ops))

    @property
    def checkable(self) -> tuple[int, ...]:
        """The first and the last slot of the graph."""
        last = self._calls.last_slot
        return (0,) if last == 0 else (0, last)

    @property
    def host_us_per_call(self) -> float | None:
        """None: the host launches graphs, not calls."""
        return None

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        assert self._capture is not None
        with self._capture.on_stream():
            self._replay()
        self._device.synchronize()

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call; ``ops`` must be ``fixed_ops``. Synchronises."""
        assert ops == self.fixed_ops
        assert self._capture is not None
        self._calls.control.barrier()
        with self._capture.on_stream():
            if not self._calls.isolated:
                self._replay()
            return self._timed(count, ops, self._replay)

    def _replay(self) -> None:
        assert self._capture is not None
        self._calls.progress.tick()
        self._capture.replay()

    def close(self) -> None:
        """Frees the graph: a live one blocks the end of its communicator."""
        if self._capture is not None:
            self._capture.close()
            self._capture = None
        super().close()


class QueuedTimer(EagerTimer):
    """Calls queued behind a spin kernel, so that the device never waits for the host."""

    _MOST_TRIES = 4
    _FIRST_SPIN_CYCLES = 2_000_000
    _LONGEST_SPIN_CYCLES = 400_000_000

    def __init__(self, calls: Calls, device: CudaDevice) -> None:
        super().__init__(calls, device)
        self._spin_cycles = self._FIRST_SPIN_CYCLES

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call. Synchronises.

        The chunk is taken again with a longer spin where any rank's spin ended too early.
        """
        for _ in range(self._MOST_TRIES):
            times_us, early = self._queued(count, ops)
            if self._calls.control.max(np.array([float(early)]))[0] == 0:
                return times_us
            self._spin_cycles = min(4 * self._spin_cycles, self._LONGEST_SPIN_CYCLES)
        if "queue_not_filled" not in self.notes:
            self.notes.append("queue_not_filled")
        return times_us

    def _queued(self, count: int, ops: int) -> tuple[FloatArray, bool]:
        """Returns times, and whether a spin ended before all its calls were queued."""
        self._calls.control.barrier()
        if not self._calls.isolated:
            return self._held(count, ops)
        held = []
        for _ in range(count):
            held.append(self._held(1, ops))
            self._calls.control.barrier()
        return np.concatenate([times for times, _ in held]), any(early for _, early in held)

    def _held(self, count: int, ops: int) -> tuple[FloatArray, bool]:
        spun = self._device.event()
        self._device.spin(self._spin_cycles)
        spun.record()
        issued = 0
        early = False

        def issue() -> None:
            nonlocal early, issued
            self._calls.issue(ops)
            issued += 1
            if issued == count:
                early = spun.query()

        times_us = self._timed(count, ops, issue)
        return times_us, early
