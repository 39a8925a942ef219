"""The zygote: imports what its workers need once, and forks them on request.

For workers that communicate through torch that is torch; for native ones torch is never imported,
so that no other NCCL than the one asked for can be mapped.

It runs no tensor operation, starts no thread and never touches CUDA, so that a fork of it is
sound and takes hundredths of a second where a cold start takes seconds. It dies with its
supervisor, and the workers with it (PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import msgspec

from collbench.engine.interrupts import SIGNALS
from collbench.engine.member import JoinGroup
from collbench.engine.ready import readable
from collbench.engine.wire import ForkWorker, Ready, Reaped, WorkerForked
from collbench.engine.worker import set_variables, work
from collbench.probe.cores import parse_cores

_PR_SET_PDEATHSIG = 1
_LONGEST_MESSAGE = 1 << 20


def die_with_parent(parent_pid: int) -> None:
    """Asks the kernel for SIGKILL when the parent ends; ends at once if it has ended already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os._exit(1)


def leave_signals_to_the_supervisor() -> None:
    """Ignores what asks a command to end, for the workers too.

    Launchers signal every process of a step; here all end with the supervisor, once it has said
    how the run stands.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def serve(control: socket.socket, join_group: JoinGroup) -> None:
    """Answers the supervisor until it closes its end.

    Args:
        control: the supervisor's other end.
        join_group: how a worker joins its group.
    """
    children: dict[int, int] = {}  # pidfd -> pid
    decoder = msgspec.json.Decoder(ForkWorker)
    while True:
        ready = readable([control, *children], None)
        for pidfd in [descriptor for descriptor in ready if descriptor != control.fileno()]:
            pid = children.pop(pidfd)
            os.close(pidfd)
            _, status = os.waitpid(pid, 0)
            reaped = Reaped(pid=pid, exit_status=os.waitstatus_to_exitcode(status))
            control.send(msgspec.json.encode(reaped))
        if control.fileno() not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(control, _LONGEST_MESSAGE, 3)
        if not data:
            return
        order = decoder.decode(data)
        pid = os.fork()
        if pid == 0:
            control.close()
            for pidfd in children:
                os.close(pidfd)
            _become_worker(order, descriptors, join_group)
        for descriptor in descriptors:
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        children[pidfd] = pid
        forked = WorkerForked(rank=order.rank, pid=pid)
        socket.send_fds(control, [msgspec.json.encode(forked)], [pidfd])


def _become_worker(order: ForkWorker, descriptors: list[int], join_group: JoinGroup) -> NoReturn:
    """Runs a worker in the forked child; does not return."""
    zygote_pid = os.getppid()
    status = 1
    try:
        os.setsid()
        die_with_parent(zygote_pid)
        channel_fd, progress_fd, log_fd = descriptors
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)
        set_variables(order.variables)
        if order.cpuset:
            os.sched_setaffinity(0, parse_cores(order.cpuset))
        status = work(socket.socket(fileno=channel_fd), progress_fd, join_group)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> NoReturn:
    """Entry point. Arguments: the control socket's descriptor, the supervisor's pid, the way."""
    descriptor, parent_pid, via = sys.argv[1:]
    leave_signals_to_the_supervisor()
    die_with_parent(int(parent_pid))
    control = socket.socket(fileno=int(descriptor))
    join_group: JoinGroup = import_module(f"{__package__}.{via}_member").join

    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        sys.stderr.write(
            f"zygote: {threads} threads after the imports: a fork may inherit a lock that nobody"
            " frees; unset what starts them (OPENBLAS_NUM_THREADS, sitecustomize)\n"
        )
    control.send(msgspec.json.encode(Ready()))
    serve(control, join_group)
    # Python would take torch apart for a second, and the supervisor waits for the end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
