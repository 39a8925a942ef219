"""Where the output of workers goes: files in the run's folder, or memory where that is not seen.

A station on another machine that does not share the results folder leaves no file behind: its
workers write into anonymous memory, and the tail travels to node 0 when it is needed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_TAIL_LINES = 10
_TAIL_BYTES = 16384
IN_MEMORY = "memory"
"""As NCCL_DEBUG_FILE of a worker: into memory of its own."""


class WorkerLog:
    """An open log that grows; held by the supervisor for its tail.

    Args:
        path: of a file to append to; None: memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is None:
            self._descriptor = os.memfd_create("collbench-log")
        else:
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        if path is None:
            # Writers share the place of this descriptor: append, whoever else has written.
            flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | os.O_APPEND)

    def fileno(self) -> int:
        """Returns the descriptor to write to."""
        return self._descriptor

    def tail(self) -> list[str]:
        """Returns the last lines."""
        size = os.fstat(self._descriptor).st_size
        start = max(0, size - _TAIL_BYTES)
        text = os.pread(self._descriptor, _TAIL_BYTES, start).decode(errors="replace")
        return text.splitlines()[-_TAIL_LINES:]

    def close(self) -> None:
        """Lets go of the log; what it holds in memory goes with its last writer."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LogPlace:
    """The logs of one station.

    Args:
        folder: the run's ``logs``; None: nothing is written to a file.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder.absolute()

    def open(self, name: str) -> WorkerLog:
        """Returns a log by its file's name."""
        return WorkerLog(None if self._folder is None else self._folder / name)

    def nccl_file(self, seat: int, rank: int) -> str:
        """Returns NCCL_DEBUG_FILE of a worker. NCCL empties what it opens: one for each process."""
        if self._folder is None:
            return IN_MEMORY
        return str(self._folder / f"nccl-seat{seat}-rank{rank}.log")

    def where(self) -> str:
        """Returns the folder in words."""
        return str(self._folder) if self._folder is not None else "kept in memory on that node"
