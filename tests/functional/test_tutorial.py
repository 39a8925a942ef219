"""The tutorial: its commands run as they stand, and print what it shows."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command_lines import commands_in, refuse_what_cannot_be, without_remark

from collbench.cli.main import run

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "tutorial.md").read_text()
RUN_ID = re.compile(r"\b20\d{6}-\d{4}(-[0-9a-f]{4})?\b")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Shown:
    """A command of the page and the lines that stand below it."""

    command: str
    lines: list[str] = field(default_factory=list)


def blocks(language):
    """The fenced blocks of a language; without one they are sessions."""
    return [text for name, text in FENCE.findall(TEXT) if name == language]


def sessions():
    """All commands with what they show, in their order."""
    found = []
    for line in "".join(blocks("")).splitlines():
        if line.startswith("$ "):
            found.append(Shown(line[2:]))
        else:
            found[-1].lines.append(line)
    return found


SESSIONS = sessions()


def ran_here(words):
    """Runs collbench in this process, which saves the second that it takes to start."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["collbench", *words])
        with pytest.raises(SystemExit) as end:
            run(words)
    return said.getvalue(), end.value.code


def in_bash(script, status):
    """What a shell prints whose last command ended so."""
    return subprocess.run(
        ["bash", "-c", f"(exit {status}); {script}"], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each command prints, in an empty folder with the page's file in it."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "cluster.toml").write_text(blocks("toml")[0])
    found, status = [], 0
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLLBENCH_RESULTS", raising=False)
        patch.setenv("COLUMNS", "120")
        for one in SESSIONS:
            program, *_ = one.command.split()
            if program == "collbench":
                # Words as the shell makes them of the line: quotes, and files for a pattern.
                words = in_bash(f"printf '%s\\n' {one.command}", 0).splitlines()
                text, status = ran_here(words[1:])
            else:
                text, status = in_bash(one.command, status), 0
            found.append(text)
    return found


def masked(line):
    return RUN_ID.sub("RUN", line).rstrip()


@pytest.mark.parametrize(
    "number", range(len(SESSIONS)), ids=lambda n: f"{n} {SESSIONS[n].command[:40]}"
)
def test_a_command_prints_what_the_tutorial_shows(printed, number):
    shown = SESSIONS[number]
    there = iter([masked(line) for line in printed[number].splitlines()])
    for wanted in map(masked, shown.lines):
        if wanted in ("", "..."):
            continue
        if wanted.endswith("..."):
            found = any(line.startswith(wanted.removesuffix("...")) for line in there)
        else:
            found = wanted in there  # below the one before: the iterator goes on from it
        assert found, f"not printed in this place: {wanted}\n{printed[number]}"
    assert shown.lines or not printed[number]


@pytest.mark.parametrize(
    "line",
    [line for text in blocks("sh") for line in text.splitlines() if "srun" in line],
)
def test_a_line_for_a_cluster_is_one_that_collbench_takes(line):
    assert line.startswith("srun ")
    (words,) = commands_in(without_remark(line))
    refuse_what_cannot_be(words)


def test_each_question_has_a_line_for_a_cluster_and_a_session():
    parts = re.split(r"^## (?=\d)", TEXT, flags=re.MULTILINE)[1:]

    assert len(parts) == 5
    for part in parts[:4]:
        assert "\nsrun " in part
        assert "\n$ collbench " in part


def test_the_map_has_every_page():
    linked = set(re.findall(r"\]\((\w+\.md)", (DOCS / "index.md").read_text()))

    assert linked == {page.name for page in DOCS.glob("*.md")} - {"index.md"}
