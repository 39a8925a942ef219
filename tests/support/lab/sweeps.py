"""``collbench sweep`` over the nodes of a fabric, as a person starts it, and what it leaves."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from collbench.store import StoredRun, read_run
from lab.processes import Processes, wait_until

COLLBENCH = (sys.executable, "-m", "collbench")
SWEEP = (*COLLBENCH, "sweep")
DEADLINE_S = 90.0
"""A machine of two cores may be busy with more than this."""


class Sweeps:
    """Starts sweeps that share a results folder, and looks at them from outside.

    Args:
        lab: owns what is started.
        folder: for the results, and for temporary files, which nobody should leave.
        command: another one than sweep, that nodes run together.
    """

    def __init__(self, lab: Processes, folder: Path, command: str = "sweep") -> None:
        self.lab, self.command = lab, command
        self.results, self.scratch = folder / "results", folder / "scratch"
        for made in (folder, self.results, self.scratch):
            made.mkdir()
        self.environ: dict[str, str | None] = {
            "COLLBENCH_RESULTS": str(self.results),
            "TMPDIR": str(self.scratch),
        }
        """Of every process of a sweep."""
        self.secret = secrets.token_hex(16)
        self.port = 0
        """Where the latest plain sweep meets."""
        self.agents: list[subprocess.Popen[bytes]] = []
        """The latest plain sweep's processes, in the order of the nodes."""

    def start(
        self, node: int, arguments: Sequence[str], env: Mapping[str, str | None] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts one process of a sweep on a node; it has the secret."""
        environ = {**self.environ, "COLLBENCH_SECRET": self.secret, **(env or {})}
        return self.lab.run_in(
            self.lab.fabric.node(node), [*COLLBENCH, self.command, *arguments], env=environ
        )

    def place(self, rank: int, nodes: int, *, port: int | None = None) -> list[str]:
        """Returns the options that say which of the nodes this is and where they meet."""
        meet = f"{self.lab.fabric.node(0).address}:{port or self.port}"
        return [f"--nodes={nodes}", f"--node-rank={rank}", f"--rendezvous={meet}"]

    def start_plain(
        self,
        nodes: int,
        *arguments: str,
        only: Iterable[int] | None = None,
        env: Mapping[int, Mapping[str, str | None]] | None = None,
    ) -> list[subprocess.Popen[bytes]]:
        """Starts a sweep on the first nodes, one process each.

        Args:
            nodes: How many there are to be.
            arguments: Of each.
            only: Those that are started; all.
            env: Variables of single nodes.

        Returns:
            The processes, in the order of the nodes.
        """
        self.port = self.lab.fabric.fresh_port()
        self.agents = [
            self.start(rank, [*self.place(rank, nodes), *arguments], (env or {}).get(rank))
            for rank in (range(nodes) if only is None else only)
        ]
        return self.agents

    def finish(self, deadline_s: float = DEADLINE_S) -> list[subprocess.CompletedProcess[str]]:
        """Waits for the latest plain sweep's processes and returns what they said."""
        return [self.lab.finish(agent, deadline_s) for agent in self.agents]

    def wait_for_trials(self, count: int) -> None:
        """Returns once so many trials are stored, of all runs."""
        wait_until(lambda: self.trials_kept() >= count, f"{count} trials stored", DEADLINE_S)

    def trials_kept(self) -> int:
        """Returns how many trials are stored, of all runs."""
        return sum(path.read_bytes().count(b"\n") for path in self.results.glob("*/*/trials.jsonl"))

    def workers(self, rank: int) -> list[psutil.Process]:
        """Returns the workers of one of the latest plain sweep's processes."""
        zygotes = psutil.Process(self.agents[rank].pid).children()
        return [worker for zygote in zygotes for worker in zygote.children()]

    def folders(self) -> list[Path]:
        """Returns the folders of all runs."""
        return [path.parent for path in self.results.glob("*/*/run.json")]

    def stored(self) -> StoredRun:
        """Returns the only run there is."""
        (stored,) = self.all_stored()
        return stored

    def all_stored(self) -> list[StoredRun]:
        """Returns all runs."""
        return [read_run(folder) for folder in self.folders()]

    def foreign_files(self) -> list[str]:
        """Returns what lies about that belongs to no run.

        The folder for meetings may stay, empty; torchrun never removes its own log folders, nor the
        cache that torch's compiler makes while torchrun imports it.
        """
        runs = self.folders()
        known = {*runs, *(run.parent for run in runs), self.results / ".meeting"}
        return [
            str(path)
            for top in (self.results, self.scratch)
            for path in top.rglob("*")
            if path not in known
            and not any(run in path.parents for run in runs)
            and not any(made in str(path) for made in ("torchelastic_", "torchinductor_"))
        ]
