"""Times enqueued calls by CUDA events. Only workers import this.

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

import numpy as np
import torch

from collbench.measure.calls import Calls
from collbench.stats import FloatArray


class EagerTimer:
    """Calls as a program makes them; the base of the other two."""

    clock = "cuda_event"

    def __init__(self, calls: Calls) -> None:
        self.notes: list[str] = []
        self.fixed_ops: int | None = None
        self._calls = calls
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @property
    def checkable(self) -> tuple[int, ...]:
        """The slot called last."""
        return (self._calls.last_slot,)

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        self._calls.issue(1)
        torch.cuda.synchronize()

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call. Synchronises."""
        self._calls.control.barrier()
        return self._timed(count, ops, lambda: self._calls.issue(ops))

    def _timed(self, count: int, ops: int, issue: Callable[[], None]) -> FloatArray:
        """Returns us a call of ``count`` windows around ``issue``, which makes ``ops`` calls."""
        pairs = self._event_pairs(count)
        for i, (start, stop) in enumerate(pairs):
            if i and self._calls.isolated:
                torch.cuda.synchronize()
                self._calls.control.barrier()
            self._calls.buffers.enter()
            start.record()
            issue()
            stop.record()
        torch.cuda.synchronize()
        return np.array([start.elapsed_time(stop) for start, stop in pairs]) * 1e3 / ops

    def _event_pairs(self, count: int) -> list[tuple[torch.cuda.Event, torch.cuda.Event]]:
        while len(self._events) < count:
            self._events.append(
                (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            )
        return self._events[:count]

    def close(self) -> None:
        """Frees the events."""
        self._events.clear()


class GraphTimer(EagerTimer):
    """Replays of one captured graph of as many calls as there are slots; of one if isolated."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls)
        self.fixed_ops = 1 if calls.isolated else calls.slots
        self._graph: torch.cuda.CUDAGraph | None = torch.cuda.CUDAGraph()
        self._stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            # Thread-local: torch's watchdog thread may query events meanwhile.
            self._graph.capture_begin(capture_error_mode="thread_local")
            calls.issue(self.fixed_ops)
            self._graph.capture_end()
        torch.cuda.synchronize()

    @property
    def checkable(self) -> tuple[int, ...]:
        """The first and the last slot of the graph."""
        last = self._calls.last_slot
        return (0,) if last == 0 else (0, last)

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        with torch.cuda.stream(self._stream):
            self._replay()
        torch.cuda.synchronize()

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call; ``ops`` must be ``fixed_ops``. Synchronises."""
        assert ops == self.fixed_ops
        self._calls.control.barrier()
        with torch.cuda.stream(self._stream):
            if not self._calls.isolated:
                self._replay()
            return self._timed(count, ops, self._replay)

    def _replay(self) -> None:
        assert self._graph is not None
        self._calls.progress.tick()
        self._graph.replay()

    def close(self) -> None:
        """Frees the graph: a live one blocks the end of its communicator."""
        if self._graph is not None:
            self._graph.reset()
            self._graph = None
        super().close()


class QueuedTimer(EagerTimer):
    """Calls queued behind a spin kernel, so that the device never waits for the host."""

    _MOST_TRIES = 4
    _FIRST_SPIN_CYCLES = 2_000_000
    _LONGEST_SPIN_CYCLES = 400_000_000

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls)
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
        spun = torch.cuda.Event()
        torch.cuda._sleep(self._spin_cycles)
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
