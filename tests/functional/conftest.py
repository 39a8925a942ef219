"""Starts the command line as a user does, and knows whether anything of it is left running."""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import psutil
import pytest

from collbench.cli.main import run as run_command_line
from collbench.store import StoredRun, read_run

WAIT_S = 200
Call = Callable[..., subprocess.CompletedProcess[str]]


@dataclass
class Collbench:
    """A sandbox for command lines: own results folder, own mark on every process started."""

    results: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: subprocess.Popen[str] | None = None

    def start(
        self, *arguments: str, stdout: int | IO[str] = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        environ = {**os.environ, "COLLBENCH_TEST_MARK": self.mark}
        environ.pop("COLLBENCH_RESULTS", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "collbench", *arguments, "--results", str(self.results)],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        return self.process

    def finish(self) -> subprocess.CompletedProcess[str]:
        assert self.process is not None
        out, err = self.process.communicate(timeout=WAIT_S)
        return subprocess.CompletedProcess([], self.process.returncode, out, err)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        self.start(*arguments)
        return self.finish()

    def stored(self) -> StoredRun:
        """The only run there is."""
        (folder,) = self.folders()
        return read_run(folder)

    def folders(self) -> list[Path]:
        return [path.parent for path in self.results.glob("*/*/run.json")]

    def trials_kept(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self.results.glob("*/*/trials.jsonl"))

    def workers(self) -> list[psutil.Process]:
        """The ranks' processes, in the order of their pids."""
        assert self.process is not None
        zygotes = psutil.Process(self.process.pid).children()
        return sorted((w for z in zygotes for w in z.children()), key=lambda w: w.pid)

    def leftovers(self) -> list[str]:
        """Processes with this sandbox's mark that still run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("COLLBENCH_TEST_MARK") == self.mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
        return found

    def end(self) -> None:
        """Kills what still runs of the latest command, and waits until nothing is left of any."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        wait_until(lambda: not self.leftovers(), "all processes ended")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Polls; a condition that never comes true fails the test with its name."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {WAIT_S} s"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def wait() -> Callable[[Callable[[], bool], str], None]:
    return wait_until


@contextlib.contextmanager
def sandbox(results: Path) -> Iterator[Collbench]:
    """Ends with nothing of it running, or fails."""
    made = Collbench(results)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def collbench(tmp_path: Path) -> Iterator[Collbench]:
    with sandbox(tmp_path / "results") as made:
        yield made


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Collbench]]:
    """Makes sandboxes for runs that several tests of a module look at and none changes."""
    with contextlib.ExitStack() as made:
        yield lambda: made.enter_context(sandbox(tmp_path_factory.mktemp("sandbox") / "results"))


@pytest.fixture
def here(
    collbench: Collbench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs command lines in this process, which saves a second each: a model starts no other."""
    monkeypatch.delenv("COLLBENCH_RESULTS", raising=False)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [*arguments, "--results", str(collbench.results)]
        monkeypatch.setattr(sys, "argv", ["collbench", *argv])
        with pytest.raises(SystemExit) as end:
            run_command_line(argv)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(argv, end.value.code, said.out, said.err)

    return run


@pytest.fixture
def on_fabric(here: Call, tmp_path: Path) -> Call:
    """Runs a command on a simulated fabric: a file shipped, or the text of one."""

    def run(command: str, fabric: str | Path, *options: str) -> subprocess.CompletedProcess[str]:
        if not isinstance(fabric, Path):
            path = tmp_path / "fabric.toml"
            path.write_text(fabric)
            fabric = path
        return here(command, "--simulate", str(fabric), "--seed", "3", *options)

    return run


@pytest.fixture
def pairs(on_fabric: Call) -> Call:
    """Runs ``pairwise`` on a fabric."""
    return partial(on_fabric, "pairwise")
