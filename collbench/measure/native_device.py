"""One GPU without torch: a stream, its memory operations, events, graphs and kernels.

Everything goes to one stream that does not wait for the default stream: eager calls, captures and
the replays of their graphs, fills and comparisons. So all of it is in order by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.measure.cuda_timers import Capture, Event
from collbench.measure.native_kernels import RESULT, UNTOUCHED, Kernels
from collbench.measure.native_library import import_extra


class NativeEvent:
    """A CUDA event with a time, on the device's stream."""

    __slots__ = ("_event", "_stream")

    def __init__(self, event: Any, stream: Any) -> None:
        self._event, self._stream = event, stream

    def record(self) -> None:
        """Enters the queue of the stream."""
        self._stream.record(self._event)

    def query(self) -> bool:
        """Returns whether the device has passed it."""
        return bool(self._event.is_done)

    def elapsed_time(self, end: NativeEvent, /) -> float:
        """Returns milliseconds from this event to a later one; both must be over."""
        return float(end._event - self._event)


class NativeCapture:
    """A CUDA graph, replayed on the stream that it was captured on."""

    def __init__(self, stream: Any, issue: Callable[[], None]) -> None:
        self._stream = stream
        builder = stream.create_graph_builder()
        try:
            # Thread-local: NCCL's own threads may call CUDA meanwhile.
            builder.begin_building("thread_local")
            issue()
            self._graph = builder.end_building().complete()
        finally:
            # What was captured holds the communicator just as the graph does.
            builder.close()

    def on_stream(self) -> AbstractContextManager[object]:
        """Does nothing: there is one stream."""
        return nullcontext()

    def replay(self) -> None:
        """Launches the graph."""
        self._graph.launch(self._stream)

    def close(self) -> None:
        """Frees the graph."""
        self._graph.close()


class NativeDevice:
    """A GPU, made this thread's current one.

    Args:
        gpu: CUDA's index of it.
    """

    def __init__(self, gpu: int) -> None:
        core = import_extra("cuda.core")
        self._driver = import_extra("cuda.bindings.driver")
        self._device = core.Device(gpu)
        self._device.set_current()
        self._timed = core.EventOptions(timing_enabled=True)
        self._stream = self._device.create_stream()
        self._queue = self._stream.handle
        self._kernels = Kernels()
        self.scratch = int(self._ask(self._driver.cuMemAlloc(RESULT.size)))
        """Address of a few bytes that belong to no case."""

    @property
    def stream(self) -> int:
        """The stream's handle, as NCCL takes it."""
        return int(self._queue)

    def free_bytes(self) -> int:
        """Returns the free memory of the device."""
        error, free, _ = self._driver.cuMemGetInfo()
        self._ask((error,))
        return int(free)

    def cache_bytes(self) -> int:
        """Returns the size of the L2 cache."""
        return int(self._device.properties.l2_cache_size)

    def event(self) -> Event:
        """Returns a new event with a time."""
        return NativeEvent(self._device.create_event(self._timed), self._stream)

    def synchronize(self) -> None:
        """Waits until the device is idle."""
        self._device.sync()

    def capture(self, issue: Callable[[], None]) -> Capture:
        """Returns what ``issue`` calls, captured on the stream."""
        self.synchronize()
        captured = NativeCapture(self._stream, issue)
        self.synchronize()
        return captured

    def spin(self, cycles: int) -> None:
        """Queues a kernel that does nothing for so many clock cycles."""
        self._kernels.spin(self._stream, cycles)

    def set_bytes(self, address: int, value: int, size_bytes: int) -> None:
        """Queues writing one value into every byte; may be captured."""
        self._ask(self._driver.cuMemsetD8Async(address, value, size_bytes, self._queue))

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """Queues a copy within the device; the two sides must not overlap."""
        self._ask(self._driver.cuMemcpyDtoDAsync(target, source, size_bytes, self._queue))

    def upload(self, address: int, data: bytes) -> None:
        """Copies bytes of the host to the device and waits for it."""
        host = np.frombuffer(data, np.uint8)
        self._ask(self._driver.cuMemcpyHtoDAsync(address, host.ctypes.data, host.size, self._queue))
        self._stream.sync()

    def download(self, address: int, size_bytes: int) -> NDArray[np.uint8]:
        """Returns bytes of the device, uint8[size_bytes], after all that is queued."""
        host = np.empty(size_bytes, np.uint8)
        self._ask(
            self._driver.cuMemcpyDtoHAsync(host.ctypes.data, address, size_bytes, self._queue)
        )
        self._stream.sync()
        return host

    def compare(
        self, found: int, table: int, item_bytes: int, count: int, period: int
    ) -> tuple[int, int]:
        """Returns how many elements differ from a table that repeats, and the index of the first.

        Compares bytes, so NaN equals NaN of the same bits. Waits for the device.

        Args:
            found: address of ``count`` elements.
            table: address of ``period`` elements.
            item_bytes: bytes of an element.
            count: elements to compare.
            period: elements after which the table repeats.
        """
        self.upload(self.scratch, UNTOUCHED)
        self._kernels.compare(
            self._stream,
            found=found,
            table=table,
            item_bytes=item_bytes,
            count=count,
            period=period,
            result=self.scratch,
        )
        wrong, first = RESULT.unpack(self.download(self.scratch, RESULT.size).tobytes())
        return int(wrong), int(first)

    def _ask(self, answer: tuple[Any, ...]) -> Any:
        """Returns what the driver answers beside success.

        Raises:
            RuntimeError: it answers an error.
        """
        error, *values = answer
        if error != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"CUDA: {error.name}")
        return values[0] if values else None
