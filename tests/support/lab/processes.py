"""Processes on the nodes of a fabric: started in a session of their own, ended for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.fabric import Fabric, Node

ENTER = Path(__file__).with_name("enter.py")
POLL_S = 0.01
KILL_WAIT_S = 10.0


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Polls; a condition that does not come true fails with its name."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what}"
        time.sleep(POLL_S)


def living_in(namespaces: Iterable[str]) -> dict[int, str]:
    """Returns the command line of every process in some network namespaces, by its pid."""
    wanted = set()
    for name in namespaces:
        with contextlib.suppress(FileNotFoundError):
            status = Path("/run/netns", name).stat()
            wanted.add((status.st_dev, status.st_ino))
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        # A process that ends meanwhile, or has ended and waits for its parent, is in none.
        with contextlib.suppress(OSError):
            status = (entry / "ns/net").stat()
            if (status.st_dev, status.st_ino) in wanted:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
    return found


def kill_in(namespaces: Iterable[str]) -> None:
    """Kills every process in some network namespaces, also those that are started meanwhile."""
    namespaces = list(namespaces)

    def none_left() -> bool:
        pids = living_in(namespaces)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_until(none_left, "the nodes' processes ended", KILL_WAIT_S)


def assert_nothing_left(namespaces: Iterable[str], known: Container[int], wait_s: float) -> None:
    """Fails if processes but the known ones live on in some network namespaces, and kills those.

    Args:
        namespaces: Where to look.
        known: The pids that may stay.
        wait_s: How long the others have to go by themselves.
    """
    namespaces = list(namespaces)

    def left() -> dict[int, str]:
        return {pid: line for pid, line in living_in(namespaces).items() if pid not in known}

    end = time.monotonic() + wait_s
    while left() and time.monotonic() < end:
        time.sleep(POLL_S)
    if lines := left():
        for pid in lines:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"left running on the nodes: {sorted(lines.values())}")


class Processes:
    """What was started on a fabric, output in files of one folder; ``end`` ends it all."""

    def __init__(self, fabric: Fabric, folder: Path) -> None:
        self.fabric, self.folder = fabric, folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._outputs: dict[int, tuple[Path, Path]] = {}

    def run_in(
        self, node: Node, argv: Sequence[str], *, env: Mapping[str, str | None] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a command on a node.

        Args:
            node: Where.
            argv: The command; words, no shell.
            env: Variables over those of the caller; None takes one away.

        Returns:
            The process, head of a session of its own.
        """
        environ = {**os.environ, **(env or {})}
        enter = [sys.executable, "-I", "-S", str(ENTER), node.namespace, node.name, str(node.hosts)]
        stem = f"{len(self._started)}-{node.name}"
        paths = (self.folder / f"{stem}.out", self.folder / f"{stem}.err")
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            process = subprocess.Popen(
                [*enter, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={name: value for name, value in environ.items() if value is not None},
                start_new_session=True,
            )
        self._started.append(process)
        self._outputs[process.pid] = paths
        return process

    def output(self, process: subprocess.Popen[bytes]) -> str:
        """Returns what a process has written to stdout so far."""
        return self._outputs[process.pid][0].read_text(errors="replace")

    def errors(self, process: subprocess.Popen[bytes]) -> str:
        """Returns what a process has written to stderr so far."""
        return self._outputs[process.pid][1].read_text(errors="replace")

    def finish(
        self, process: subprocess.Popen[bytes], deadline_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Waits for a process; one that is late is killed with its session and fails the test."""
        try:
            status = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            kill(process)
            said = f"{self.output(process)}\n{self.errors(process)}"
            raise AssertionError(f"not ended in {deadline_s:g} s: {process.args}\n{said}") from None
        return subprocess.CompletedProcess(
            process.args, status, self.output(process), self.errors(process)
        )

    def end(self) -> None:
        """Kills what still runs of what was started here."""
        for process in self._started:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and its process group, and reaps it.

    A group whose head was reaped is left alone: its number may belong to others by now.
    """
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
