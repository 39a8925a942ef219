"""Progress counters in shared memory: written by a worker, read by its supervisor.

An anonymous memory file whose descriptor is handed over: nothing with a name is left behind
however the processes end.
"""

from __future__ import annotations

import mmap
import os

from collbench.measure.protocols import Phase

_CALLS, _PHASE, _MOVES, _LONGEST_NS = range(4)
_BYTES = 64


def create_progress_file() -> int:
    """Returns the descriptor of a new block of counters, all zero."""
    descriptor = os.memfd_create("collbench-progress")
    os.ftruncate(descriptor, _BYTES)
    return descriptor


class SharedProgress:
    """The counters of one worker. Writing costs about 0.1 us; reading needs no lock."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, _BYTES)
        self._cells = memoryview(self._map).cast("Q")

    def tick(self) -> None:
        """Counts one collective call issued."""
        self._cells[_CALLS] += 1

    def phase(self, phase: Phase) -> None:
        """Says what begins; the calls count from 0 again when a case is prepared."""
        if phase is Phase.PREPARING:
            self._cells[_CALLS] = 0
        self._cells[_PHASE] = phase
        self._cells[_MOVES] += 1

    def longest(self, time_us: float) -> None:
        """Raises the longest time that calls took between two ticks."""
        self._cells[_LONGEST_NS] = max(self._cells[_LONGEST_NS], int(time_us * 1e3))
        self._cells[_MOVES] += 1

    @property
    def calls(self) -> int:
        """Collective calls issued in the current case."""
        return self._cells[_CALLS]

    @property
    def current(self) -> Phase:
        """What the worker is doing."""
        return Phase(self._cells[_PHASE])

    @property
    def longest_s(self) -> float:
        """The longest time seen between two ticks, in seconds."""
        return self._cells[_LONGEST_NS] / 1e9

    def fingerprint(self) -> tuple[int, int]:
        """Returns numbers that differ from the last ones if anything moved."""
        return self._cells[_CALLS], self._cells[_MOVES]

    def close(self) -> None:
        """Unmaps the counters."""
        self._cells.release()
        self._map.close()
