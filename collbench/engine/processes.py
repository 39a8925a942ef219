"""A zygote and its workers as the supervisor holds them: sockets, counters, pidfds."""

from __future__ import annotations

import contextlib
import os
import select
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
from collbench.engine.progress import SharedProgress, create_progress_file
from collbench.engine.wire import Channel, Fork, Forked, FromWorker, FromZygote, Ready, Reaped
from collbench.errors import NothingMeasured

KILL_WAIT_S = 5.0
"""A process that is there so long after SIGKILL is in the kernel's hands: unkillable."""
_LOG_TAIL_LINES = 10
_LOG_TAIL_BYTES = 16384
_LONGEST_MESSAGE = 1 << 16


@dataclass(eq=False)
class WorkerProcess:
    """One living worker."""

    rank: int
    pid: int
    pidfd: int
    channel: Channel[FromWorker]
    progress: SharedProgress
    log: Path
    gpu: int | None

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return not select.select([self.pidfd], [], [], 0)[0]

    def state(self) -> str:
        """Returns the kernel's letter for the process (T: stopped, D: in the kernel, ...)."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return "?"
        return text.rpartition(")")[2].split()[0]

    def kill(self) -> None:
        """Sends SIGKILL to the worker and all it has started. A stopped process obeys it too."""
        with contextlib.suppress(ProcessLookupError):
            if self.alive:
                os.killpg(self.pid, signal.SIGKILL)

    def log_tail(self) -> list[str]:
        """Returns the last lines the worker has written."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
                lines = stream.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return lines[-_LOG_TAIL_LINES:]

    def close(self) -> None:
        """Frees what the supervisor holds of an ended worker."""
        self.channel.close()
        self.progress.close()
        os.close(self.pidfd)


class Zygote:
    """The process that has the imports done and forks workers.

    Args:
        via: through what workers communicate: ``torch``, or ``native``.
        variables: set on top of this process's environment before its imports; None: taken away.
        logs: folder for its own output and the workers'.
        deadline_s: for the imports.
    """

    def __init__(
        self, via: str, variables: Mapping[str, str | None], logs: Path, deadline_s: float
    ) -> None:
        self._logs, self._deadline_s = logs, deadline_s
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._decoder = msgspec.json.Decoder(FromZygote)
        self.exit_statuses: dict[int, int] = {}
        """Of workers that have ended, by pid; negative is a signal."""
        self._process: subprocess.Popen[bytes] | None = None
        command = [sys.executable, "-m", f"{__package__}.zygote"]
        merged = {**os.environ, **variables}
        try:
            # Interrupted half-way through, a process would be there that nobody knows of.
            with undisturbed(), theirs, (logs / "zygote.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(os.getpid()), via],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={name: value for name, value in merged.items() if value is not None},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            ready, _ = self._receive()
        except BaseException:
            self.close()
            raise
        assert isinstance(ready, Ready)

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
        log_path = self._logs / f"rank{rank}.log"
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        progress_fd = create_progress_file()
        order = Fork(rank=rank, variables=variables, cpuset=cpuset)
        try:
            with theirs, log_path.open("ab") as log:
                descriptors = [theirs.fileno(), progress_fd, log.fileno()]
                socket.send_fds(self._control, [msgspec.json.encode(order)], descriptors)
            while True:
                answer, received = self._receive()
                if isinstance(answer, Forked):
                    break
        except OSError as problem:
            mine.close()
            os.close(progress_fd)
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
            log=log_path,
            gpu=gpu,
        )

    def _receive(self) -> tuple[FromZygote, list[int]]:
        if not select.select([self._control], [], [], self._deadline_s)[0]:
            raise NothingMeasured(
                f"the zygote process did not answer within {self._deadline_s:.0f} s (imports of"
                f" torch?); give it longer with --init-deadline; its log: {self._logs}/zygote.log"
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
            if not select.select([self._control], [], [], left)[0]:
                return
            try:
                self._receive()
            except (OSError, NothingMeasured):
                return

    def _last_words(self) -> str:
        lines = (self._logs / "zygote.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """Ends the zygote; workers that still live end with it (PDEATHSIG)."""
        self._control.close()
        if self._process is None:
            return
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def end_workers(workers: list[WorkerProcess], zygote: Zygote) -> list[WorkerProcess]:
    """Kills workers and frees them; returns those that survive (unkillable)."""
    for worker in workers:
        worker.kill()
    end = time.monotonic() + KILL_WAIT_S
    living = list(workers)
    while living and (left := end - time.monotonic()) > 0:
        select.select([worker.pidfd for worker in living], [], [], left)
        living = [worker for worker in living if worker.alive]
    zygote.collect({w.pid for w in workers if w not in living}, wait_s=1.0)
    for worker in workers:
        worker.close()
    return living
