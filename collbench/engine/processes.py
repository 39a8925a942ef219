"""A zygote and its workers as the supervisor holds them: sockets, counters, pidfds."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.engine.interrupts import undisturbed
from collbench.engine.logs import LogPlace, WorkerLog
from collbench.engine.progress import SharedProgress, create_progress_file
from collbench.engine.ready import readable
from collbench.engine.wire import (
    Channel,
    Closed,
    ForkWorker,
    FromWorker,
    FromZygote,
    Quit,
    Ready,
    Reaped,
    WorkerForked,
)
from collbench.errors import NothingMeasured

KILL_WAIT_S = 5.0
"""A process that is there so long after SIGKILL is in the kernel's hands: unkillable."""
_LONGEST_MESSAGE = 1 << 16
_QUIT_WAIT_S = 2.0


@dataclass(eq=False)
class WorkerProcess:
    """One living worker."""

    rank: int
    pid: int
    pidfd: int
    channel: Channel[FromWorker]
    progress: SharedProgress
    log: WorkerLog
    gpu: int | None

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return not readable([self.pidfd], 0)

    def state(self) -> str:
        """Returns the kernel's letter for the process (T: stopped, D: in the kernel, ...)."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return "?"
        return text.rpartition(")")[2].split()[0]

    def kill(self) -> None:
        """Sends SIGKILL to the worker and all it has started. A stopped process obeys it too."""
        if not self.alive:
            return
        # One that was forked a moment ago is no group of its own yet.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def log_tail(self) -> list[str]:
        """Returns the last lines the worker has written."""
        return self.log.tail()

    def close(self) -> None:
        """Frees what the supervisor holds of an ended worker."""
        self.channel.close()
        self.progress.close()
        self.log.close()
        os.close(self.pidfd)


class Zygote:
    """The process that has the imports done and forks workers.

    Args:
        via: through what workers communicate: ``torch``, or ``native``.
        variables: set on top of this process's environment before its imports; None: taken away.
        logs: for its own output and the workers'.
        deadline_s: for the imports, and for a fork.
    """

    def __init__(
        self, via: str, variables: Mapping[str, str | None], logs: LogPlace, deadline_s: float
    ) -> None:
        self._logs, self._deadline_s = logs, deadline_s
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._decoder = msgspec.json.Decoder(FromZygote)
        self.exit_statuses: dict[int, int] = {}
        """Of workers that have ended, by pid; negative is a signal."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log = logs.open("zygote.log")
        self._started_s = time.monotonic()
        self.import_s = 0.0
        """How long its imports took."""
        command = [sys.executable, "-m", f"{__package__}.zygote"]
        merged = {**os.environ, **variables}
        try:
            # Interrupted half-way through, a process would be there that nobody knows of.
            with undisturbed(), theirs:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(os.getpid()), via],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log.fileno(),
                    stderr=self._log.fileno(),
                    env={name: value for name, value in merged.items() if value is not None},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Returns the descriptor that is readable once ``take_ready`` may be called."""
        return self._control.fileno()

    def take_ready(self) -> None:
        """Takes the news that the imports are done; does not block.

        Raises:
            NothingMeasured: it ended, or has not answered; its caller has waited for the deadline.
        """
        ready, _ = self._receive(wait_s=0)
        assert isinstance(ready, Ready)
        self.import_s = time.monotonic() - self._started_s

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def fork(
        self, rank: int, *, gpu: int | None, variables: dict[str, str | None], cpuset: str
    ) -> WorkerProcess:
        """Returns a new worker.

        Raises:
            NothingMeasured: the zygote has ended or does not answer.
        """
        log = self._logs.open(f"rank{rank}.log")
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        progress_fd = create_progress_file()
        order = ForkWorker(rank=rank, variables=variables, cpuset=cpuset)
        try:
            with theirs:
                descriptors = [theirs.fileno(), progress_fd, log.fileno()]
                socket.send_fds(self._control, [msgspec.json.encode(order)], descriptors)
            while True:
                answer, received = self._receive(wait_s=self._deadline_s)
                if isinstance(answer, WorkerForked):
                    break
        except (OSError, NothingMeasured) as problem:
            mine.close()
            log.close()
            os.close(progress_fd)
            if isinstance(problem, NothingMeasured):
                raise
            raise NothingMeasured(
                f"the zygote process has ended: {self._last_words()}"
            ) from problem
        progress = SharedProgress(progress_fd)
        os.close(progress_fd)
        return WorkerProcess(
            rank=rank,
            pid=answer.pid,
            pidfd=received[0],
            channel=Channel(mine, FromWorker),
            progress=progress,
            log=log,
            gpu=gpu,
        )

    def _receive(self, *, wait_s: float) -> tuple[FromZygote, list[int]]:
        if not readable([self._control], wait_s):
            raise NothingMeasured(
                f"the zygote process did not answer within {self._deadline_s:.0f} s (imports of"
                f" torch?); give it longer with --init-deadline; its log: {self._logs.where()}"
            )
        data, descriptors, _, _ = socket.recv_fds(self._control, _LONGEST_MESSAGE, 1)
        if not data:
            raise NothingMeasured(f"the zygote process has ended: {self._last_words()}")
        message = self._decoder.decode(data)
        if isinstance(message, Reaped):
            self.exit_statuses[message.pid] = message.exit_status
        return message, descriptors

    def collect(self, pids: set[int], wait_s: float) -> None:
        """Takes in news of ended workers until those of ``pids`` are known or the time is over."""
        end = time.monotonic() + wait_s
        while not pids <= self.exit_statuses.keys() and (left := end - time.monotonic()) > 0:
            if not readable([self._control], left):
                return
            try:
                self._receive(wait_s=0)
            except (OSError, NothingMeasured):
                return

    def _last_words(self) -> str:
        lines = self._log.tail()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """Ends the zygote; workers that still live end with it (PDEATHSIG)."""
        self._control.close()
        if self._process is None:
            self._log.close()
            return
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def let_quit(workers: list[WorkerProcess]) -> None:
    """Tells workers to end by themselves and gives them a moment for it."""
    for worker in workers:
        with contextlib.suppress(Closed):
            worker.channel.send(Quit())
    end = time.monotonic() + _QUIT_WAIT_S
    while (left := end - time.monotonic()) > 0:
        living = [worker.pidfd for worker in workers if worker.alive]
        if not living:
            return
        readable(living, left)


def end_workers(workers: list[WorkerProcess], zygote: Zygote) -> list[WorkerProcess]:
    """Kills workers and frees them; returns those that survive (unkillable)."""
    for worker in workers:
        worker.kill()
    end = time.monotonic() + KILL_WAIT_S
    living = list(workers)
    while living and (left := end - time.monotonic()) > 0:
        readable([worker.pidfd for worker in living], left)
        living = [worker for worker in living if worker.alive]
    zygote.collect({w.pid for w in workers if w not in living}, wait_s=1.0)
    for worker in workers:
        worker.close()
    return living
