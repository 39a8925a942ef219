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

from collbench.measure.protocols import Buffers, Control, Progress
from collbench.model import Pattern
from collbench.stats import FloatArray


class _EventTimer:
    """What the three modes share: slots in turn, events, barriers."""

    clock = "cuda_event"

    def __init__(
        self,
        *,
        buffers: Buffers,
        slots: int,
        pattern: Pattern,
        control: Control,
        progress: Progress,
    ) -> None:
        self.notes: list[str] = []
        self.fixed_ops: int | None = None
        self._buffers, self._slots = buffers, slots
        self._isolated = pattern is Pattern.ISOLATED
        self._control, self._progress = control, progress
        self._next_slot = self._last_slot = 0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @property
    def checkable(self) -> tuple[int, ...]:
        """The slot called last."""
        return (self._last_slot,)

    def _calls(self, ops: int) -> None:
        for _ in range(ops):
            slot = self._next_slot
            self._progress.tick()
            self._buffers.call(slot)
            self._last_slot = slot
            self._next_slot = (slot + 1) % self._slots

    def _timed(self, count: int, ops: int, issue: Callable[[], None]) -> FloatArray:
        """Returns us a call of ``count`` windows around ``issue``, which makes ``ops`` calls."""
        pairs = self._event_pairs(count)
        for i, (start, stop) in enumerate(pairs):
            if i and self._isolated:
                torch.cuda.synchronize()
                self._control.barrier()
            self._buffers.enter()
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


class EagerTimer(_EventTimer):
    """Calls as a program makes them."""

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        self._calls(1)
        torch.cuda.synchronize()

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call. Synchronises."""
        self._control.barrier()
        return self._timed(count, ops, lambda: self._calls(ops))


class GraphTimer(_EventTimer):
    """Replays of one captured graph of as many calls as there are slots."""

    def __init__(
        self,
        *,
        buffers: Buffers,
        slots: int,
        pattern: Pattern,
        control: Control,
        progress: Progress,
    ) -> None:
        super().__init__(
            buffers=buffers, slots=slots, pattern=pattern, control=control, progress=progress
        )
        self.fixed_ops = 1 if self._isolated else slots
        self._graph: torch.cuda.CUDAGraph | None = torch.cuda.CUDAGraph()
        self._stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            # Thread-local: torch's watchdog thread may query events meanwhile.
            self._graph.capture_begin(capture_error_mode="thread_local")
            self._calls(self.fixed_ops)
            self._graph.capture_end()
        torch.cuda.synchronize()

    @property
    def checkable(self) -> tuple[int, ...]:
        """The first and the last slot of the graph."""
        return (0,) if self._last_slot == 0 else (0, self._last_slot)

    def _replay(self) -> None:
        assert self._graph is not None
        self._progress.tick()
        self._graph.replay()

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        with torch.cuda.stream(self._stream):
            self._replay()
        torch.cuda.synchronize()

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call; ``ops`` must be ``fixed_ops``. Synchronises."""
        assert ops == self.fixed_ops
        self._control.barrier()
        with torch.cuda.stream(self._stream):
            if not self._isolated:
                self._replay()
            return self._timed(count, ops, self._replay)

    def close(self) -> None:
        """Frees the graph: a live one blocks the end of its communicator."""
        if self._graph is not None:
            self._graph.reset()
            self._graph = None
        super().close()


class QueuedTimer(_EventTimer):
    """Calls queued behind a spin kernel, so that the device never waits for the host."""

    _MOST_TRIES = 4
    _FIRST_SPIN_CYCLES = 2_000_000
    _LONGEST_SPIN_CYCLES = 400_000_000

    def __init__(
        self,
        *,
        buffers: Buffers,
        slots: int,
        pattern: Pattern,
        control: Control,
        progress: Progress,
    ) -> None:
        super().__init__(
            buffers=buffers, slots=slots, pattern=pattern, control=control, progress=progress
        )
        self._spin_cycles = self._FIRST_SPIN_CYCLES

    def once(self) -> None:
        """Goes once, untimed, through the measured path."""
        self._calls(1)
        torch.cuda.synchronize()

    def sample(self, count: int, ops: int) -> FloatArray:
        """Returns ``count`` times in us a call. Synchronises.

        The chunk is taken again with a longer spin where any rank's spin ended too early.
        """
        for _ in range(self._MOST_TRIES):
            times_us, early = self._queued(count, ops)
            if self._control.max(np.array([float(early)]))[0] == 0:
                return times_us
            self._spin_cycles = min(4 * self._spin_cycles, self._LONGEST_SPIN_CYCLES)
        if "queue_not_filled" not in self.notes:
            self.notes.append("queue_not_filled")
        return times_us

    def _queued(self, count: int, ops: int) -> tuple[FloatArray, bool]:
        self._control.barrier()
        if self._isolated:
            chunks = [self._held(1, ops) for _ in range(count)]
            return np.concatenate([times for times, _ in chunks]), any(e for _, e in chunks)
        return self._held(count, ops)

    def _held(self, count: int, ops: int) -> tuple[FloatArray, bool]:
        spun = torch.cuda.Event()
        torch.cuda._sleep(self._spin_cycles)
        spun.record()
        early = False
        issued = 0

        def issue() -> None:
            nonlocal early, issued
            self._calls(ops)
            issued += 1
            if issued == count:
                early = spun.query()

        times_us = self._timed(count, ops, issue)
        if self._isolated:
            self._control.barrier()
        return times_us, early
