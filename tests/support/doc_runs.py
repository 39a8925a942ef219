"""Runs a page's command lines in a folder of their own, and holds what they print to the page."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
from command_lines import refuse_what_cannot_be
from doc_blocks import Command
from doc_lines import ROOT, WrongLine, check_launcher, check_other, collbench_words, needs_shell
from doc_lines import programs as programs_of
from doc_names import MODEL, command_of, essential, is_name_only, kind_for
from doc_shown import not_printed

from collbench.cli.main import cli, run
from collbench.cli.on_nodes import check_line
from collbench.errors import CollbenchError

MEASURE = {"sweep", "ab", "pairwise", "scale", "history run"}
TOOLS = {"echo", "grep", "sed", "cp", "cd", "python"}
AWAY = {"history install", "history publish", "history serve"}
"""What takes a network, a service that ends with Ctrl-C, or minutes: tests of their own hold it."""

FEWER = {"scale": ("--redraws", "1", "--repeats", "1", "--step", "16")}
"""By command what keeps a run short where the page shows nothing of it."""

STANDS_FOR = {"FILE": "nccl-tests.txt", "DIR": "folder", "FORMAT": "csv", "WORD": "busbw"}
_MODEL_CANNOT = re.compile(r"--simulate and \S+ cannot both be given|nccl4py|no node has two ranks")
_OF_A_PLACE = {"--rendezvous", "--baseline", "--resume"}
"""Options that look at what is only where the command runs: another host, a run, a file."""
_ELSEWHERE = "  of these shown from other hardware: not compared"
_OPEN = re.compile(r"([\w.]+=)?[A-Z]{3,}")
_ELIDED = re.compile(r".*[^A-Z]\.\.\..*")


@dataclass
class Done:
    text: str
    status: int


@dataclass
class Page:
    """The state of a page: its folder, what ran, and what was wrong."""

    name: str
    folder: Path
    reference: Path
    """A copy of the repository's results: commands may write beside a run."""
    names_results: bool
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    before: Done = field(default_factory=lambda: Done("", 0))
    at: Path = field(init=False)
    printed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = self.folder
        for name in ("suites", "examples", "notebooks", "tests", "constraints.txt"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "made").mkdir()
        if self.names_results:
            (self.folder / "results").mkdir()
            (self.folder / "results/2xh200").symlink_to(self.reference / "2xh200")
        (self.folder / "model.toml").write_text(MODEL)
        (self.folder / "leaves").write_text("leaf0: node[0-3]\nleaf1: node[4-7]\n")
        data = ROOT / "tests/data/nccl-tests/all_reduce_g1_1.txt"
        (self.folder / "nccl-tests.txt").write_bytes(data.read_bytes())
        for tool, does in (
            ("bin/collbench", f'exec {sys.executable} -m collbench "$@"'),
            ("bin/asv", "exit 0"),
            ("build/all_reduce_perf", f"exec cat {data}"),
        ):
            path = self.folder / tool
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/bash\n{does}\n")
            path.chmod(0o755)

    @property
    def environ(self) -> dict[str, str]:
        """Of the commands of the page; results go beside those of the repository."""
        own = {
            "COLUMNS": "120",
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{self.folder}/bin{os.pathsep}{os.environ['PATH']}",
        }
        return own | (
            {"COLLBENCH_RESULTS": str(self.folder / "made")} if self.names_results else {}
        )

    @property
    def made(self) -> Path:
        return self.folder / ("made" if self.names_results else "results")

    def try_(self, command: Command) -> None:
        """Runs or checks a command by its rule, and keeps what was wrong with it."""
        try:
            self._try(command)
        except (WrongLine, CollbenchError, click.ClickException, OSError, ValueError) as problem:
            self.problems.append(f"{command.place}: {command.text}: {problem!r}")

    def _try(self, command: Command) -> None:
        if needs_shell(command.text):
            if call := collbench_words(command.text.split()):
                self._seed(*call[1][:1])
            self._compare(command, self._in_bash(command))
            self.counts["run by bash"] += 1
            return
        done: Done | None = None
        for words in programs_of(command.text):
            call = collbench_words(words)
            if call is not None:
                check_launcher(call[0])
                done = self._collbench(command, *call)
            elif words[0] in TOOLS and not command.is_span:
                done = self._in_bash(command)
                self.counts["run by bash"] += 1
                break
            elif command.is_span and len(words) == 1:
                self.counts["named"] += 1
            else:
                check_other(words)
                self.counts["another program's: names and options looked at"] += 1
        self._compare(command, done)

    def _in_bash(self, command: Command) -> Done:
        text = command.text.replace("| source", "| cat")  # of fish: bash has another
        keep = f"code=$?; pwd > {self.folder}/.pwd; exit $code"
        ended = subprocess.run(
            ["bash", "-c", f"(exit {self.before.status}); {text}\n{keep}"],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.at,
            env=os.environ | self.environ,
        )
        self.at = Path((self.folder / ".pwd").read_text().strip())
        if ended.returncode or ended.stderr:
            raise WrongLine(f"status {ended.returncode}: {ended.stderr.strip()}")
        return Done(ended.stdout, 0)

    # --- collbench ---------------------------------------------------------------------------

    def _collbench(self, command: Command, before: list[str], words: list[str]) -> Done | None:
        words = [re.sub(r",\.\.\.$", "", word) for word in words]
        if not words or words[0].startswith("-"):
            return self.here(words)
        name = command_of(words)
        rest = words[len(name.split()) :]
        if command.is_span and before == ["collbench"] and is_name_only(name, rest):
            self.counts["named"] += 1
            return None
        if name in AWAY or any(_ELIDED.fullmatch(word) for word in rest):
            refuse_what_cannot_be([word for word in words if "..." not in word])
            self.counts["read as its command reads it"] += 1
            return None
        if name in MEASURE:
            return self._measure(command, name, [word for word in rest if word != "..."])
        self._seed(name)
        self.counts["run as it stands"] += 1
        return self.here([*name.split(), *self._filled(name, rest)])

    def _measure(self, command: Command, name: str, rest: list[str]) -> Done | None:
        """Runs it on a model, if a model can answer; else reads its line as the command does."""
        own = [] if "--simulate" in rest else ["--simulate", "model.toml"]
        unknown = [word for word in rest if _OPEN.fullmatch(word) or word.startswith("/")]
        if not own or not (unknown or _OF_A_PLACE & {*rest} or name == "history run"):
            fewer = () if command.shown else FEWER.get(name, ())
            done = self.here([*name.split(), *rest, *own, *fewer])
            if done.status != 2 or not own:
                self.counts["run on a model"] += 1
                self.counts[_ELSEWHERE] += bool(own and command.shown)
                return None if own and command.shown else done
            if not _MODEL_CANNOT.search(done.text):
                raise WrongLine(done.text)
        self.counts["read as its command reads it"] += 1
        stand_in = self._committed(name, rest)
        if "--resume" in rest or stand_in:
            self._put(stand_in or self._suitable(name))
        if "--resume" in rest:
            refuse_what_cannot_be([*name.split(), *rest])
            return None
        with chdir(self.at), pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLLBENCH_RESULTS", str(self.made))
            check_line([*name.split(), *rest], cli.make_context("collbench", ["sweep"]))
        if stand_in and command.shown:
            self.counts["  of these shown from a run in results/"] += 1
            return self.here(["show", str(stand_in)])
        if command.shown:
            self.counts[_ELSEWHERE] += 1
        return None

    def _filled(self, name: str, rest: Sequence[str]) -> list[str]:
        """Puts something that is there for the words that a page leaves open."""
        found: list[str] = []
        for before, word in zip(["", *rest], rest, strict=False):
            plain = word.removesuffix("...")
            if word == "...":
                found.append(str(self._suitable("history run")))
            elif plain in ("RUN", "BASE"):
                found.append(str(self._suitable(kind_for(name))))
            elif plain == "NEW":
                found.append(str(self._suitable("sweep nccl_matrix")))
            elif before == "-o":
                found.append(Path(word).name)
                (self.at / found[-1]).unlink(missing_ok=True)  # each block is a story of its own
            elif "*" in word:
                found.extend(sorted(str(path.relative_to(self.at)) for path in self.at.glob(word)))
            else:
                found.append(STANDS_FOR.get(plain, word))
        if name in ("baseline", "report") and "-o" not in found:  # theirs is there already
            found += ["--force"]
        return found

    def _seed(self, name: str) -> None:
        """Where nothing of the kind is stored, a run of the repository is what was made before."""
        kind = kind_for(name)
        stored = [json.loads(p.read_text())["command"] for p in self.made.glob("*/*/run.json")]
        if not stored or (kind != "sweep" and not any(map(kind.startswith, stored))):
            self._put(self._suitable(kind))

    def _runs(self) -> Iterator[tuple[Path, str, list[str]]]:
        """Yields folder, command and arguments of each run of the repository."""
        for path in sorted(self.reference.glob("*/*/run.json")):
            record = json.loads(path.read_text())
            yield path.parent, record["command"], record["argv"]

    def _suitable(self, kind: str) -> Path:
        """Returns the run of a kind (``pairwise``, ``sweep nccl_matrix``) with the most trials."""
        found = [folder for folder, _, argv in self._runs() if " ".join(argv).startswith(kind)]
        return max(found, key=lambda folder: (folder / "trials.jsonl").stat().st_size)

    def _committed(self, name: str, rest: Sequence[str]) -> Path | None:
        """Returns the run of the repository that a command made: it has all of its words.

        How often and from what seed a case was repeated does not matter, nor where a library lies.
        """
        wanted = Counter(essential(rest))
        for folder, command, argv in self._runs():
            if command == name and not wanted - Counter(essential(argv)):
                return folder
        return None

    def seed(self, kind: str) -> None:
        """Puts a run of a kind where the page's own runs go."""
        self._put(self._suitable(kind))

    def _put(self, run: Path) -> None:
        place = self.made / "2xh200" / run.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(run)

    def here(self, words: Sequence[str]) -> Done:
        """Runs collbench in this process, which saves the second that it takes to start."""
        said = io.StringIO()
        with (
            chdir(self.at),
            redirect_stdout(said),
            redirect_stderr(said),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.delenv("COLLBENCH_RESULTS", raising=False)
            for variable, value in self.environ.items():
                patch.setenv(variable, value)
            patch.setattr(sys, "argv", ["collbench", *words])
            with pytest.raises(SystemExit) as end:
                run(list(words))
        assert isinstance(end.value.code, int)
        self.before = Done(said.getvalue(), end.value.code)
        self.printed.append(self.before.text)
        return self.before

    def _compare(self, command: Command, done: Done | None) -> None:
        if done is None:
            return
        refused = any(line.startswith("collbench: ") for line in command.shown)
        allowed = (2, 3) if refused else (0, 1, 4)
        if done.status not in allowed:
            raise WrongLine(f"status {done.status}: {done.text}")
        missing = not_printed(command.shown, done.text)
        if missing is not None:
            raise WrongLine(f"not printed in this place: {missing}\n{done.text[:6000]}")
