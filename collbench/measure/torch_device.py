"""The CUDA device of torch's calls, as the timers need it. Only workers import this."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from collbench.measure.cuda_timers import Capture, Event


class TorchCapture:
    """A CUDA graph of torch with the stream that it was captured on."""

    def __init__(self, issue: Callable[[], None]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            # Thread-local: torch's watchdog thread may query events meanwhile.
            self._graph.capture_begin(capture_error_mode="thread_local")
            issue()
            self._graph.capture_end()
        torch.cuda.synchronize()

    def on_stream(self) -> AbstractContextManager[object]:
        """Makes the stream of the capture torch's current one."""
        return torch.cuda.stream(self._stream)

    def replay(self) -> None:
        """Launches the graph on torch's current stream."""
        self._graph.replay()

    def close(self) -> None:
        """Frees the graph."""
        self._graph.reset()


class TorchDevice:
    """torch's current device and stream."""

    def event(self) -> Event:
        """Returns a new event with a time."""
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        """Waits until the device is idle."""
        torch.cuda.synchronize()

    def capture(self, issue: Callable[[], None]) -> Capture:
        """Returns what ``issue`` calls, captured on a stream of its own."""
        return TorchCapture(issue)

    def spin(self, cycles: int) -> None:
        """Queues a kernel that does nothing for so many clock cycles."""
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
