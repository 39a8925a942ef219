"""Stand-ins for what a station starts and reads: a zygote, its workers, the machine's counters."""

from __future__ import annotations

import os
import socket
import subprocess

from collbench.engine.logs import LogPlace
from collbench.engine.processes import WorkerProcess
from collbench.engine.progress import SharedProgress, create_progress_file
from collbench.engine.wire import Channel, FromWorker
from collbench.errors import NothingMeasured
from collbench.probe.watch import Change


class FakeZygote:
    """Forks sleeping processes, whose ends of the channels and counters a test plays."""

    made: list[FakeZygote]
    problem: str | None = None
    silent = False
    """Whether it never becomes ready."""

    def __init__(
        self, _via: str, variables: dict[str, str | None], logs: LogPlace, _deadline_s: float
    ) -> None:
        self.variables, self._logs = variables, logs
        self.alive, self.import_s = True, 2.5
        self.exit_statuses: dict[int, int] = {}
        self.orders: list[tuple[int, dict[str, str | None], str]] = []
        self.ends: list[socket.socket] = []
        self.progress: list[SharedProgress] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._news, theirs = socket.socketpair()
        self._theirs = theirs
        if not self.silent:
            theirs.send(b"!")
        self.made.append(self)

    def fileno(self) -> int:
        return self._news.fileno()

    def take_ready(self) -> None:
        if self.silent:
            raise NothingMeasured("the zygote process did not answer")
        if self.problem is not None:
            raise NothingMeasured(self.problem)

    def fork(
        self, rank: int, *, gpu: int | None, variables: dict[str, str | None], cpuset: str
    ) -> WorkerProcess:
        self.orders.append((rank, variables, cpuset))
        mine, theirs = socket.socketpair()
        # It ends with the first byte that it reads: Quit is the only message it is sent.
        process = subprocess.Popen(["head", "-c", "1"], stdin=theirs, stdout=subprocess.DEVNULL,
                                   start_new_session=True)  # fmt: skip
        descriptor = create_progress_file()
        self.progress.append(SharedProgress(descriptor))
        progress = SharedProgress(descriptor)
        os.close(descriptor)
        self.processes.append(process)
        self.ends.append(theirs)
        log = self._logs.open(f"rank{rank}.log")
        os.write(log.fileno(), b"a line\n")
        return WorkerProcess(
            rank=rank,
            pid=process.pid,
            pidfd=os.pidfd_open(process.pid),
            channel=Channel(mine, FromWorker),
            progress=progress,
            log=log,
            gpu=gpu,
        )

    def collect(self, pids: set[int], wait_s: float) -> None:
        for process in self.processes:
            if process.pid in pids:
                self.exit_statuses[process.pid] = process.wait(timeout=wait_s)

    def close(self) -> None:
        self.alive = False
        self._news.close()
        self._theirs.close()

    def end(self) -> None:
        """Frees what a test has played with."""
        self.close()
        for process in self.processes:
            process.kill()
            process.wait()
        for end in self.ends:
            end.close()
        for progress in self.progress:
            progress.close()


class FakeWatch:
    """Counts readings; an event tells which one was the first."""

    def __init__(self) -> None:
        self.readings = self.samples = 0

    def read(self) -> int:
        self.readings += 1
        return self.readings

    def since(self, before: int) -> Change:
        return Change(events=[f"since reading {before}"], counters={"tcp RetransSegs": before})

    def sample_clocks(self) -> None:
        self.samples += 1
