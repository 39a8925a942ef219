"""The README and the docs: links resolve, commands exist, words of the code stand in them."""

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench.cli.main import cli
from collbench.model import ReasonCode, Status
from collbench.notes import NOTES

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "results").glob("*.md")]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_resolves(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_named_exists(page):
    named = set(re.findall(r"(?:`|-m |^)collbench ([a-z]+)\b", page.read_text(), re.MULTILINE))
    commands = set(cli.list_commands(None))  # type: ignore[arg-type]
    assert named <= commands


def test_the_readme_holds_the_two_set_up_commands():
    lines = [
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("pip install -c constraints.txt ")
    ]

    assert lines == [
        "pip install -c constraints.txt -e . && python -m collbench sweep",
        "pip install -c constraints.txt -e '.[test]' && pytest -n 2",
    ]


def test_every_dependency_has_a_tested_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["test"], *extras["dev"]]
    names = {re.split(r"[<>=\[]", item)[0].lower() for item in wanted} - {"collbench"}
    assert names <= pinned
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


def test_every_status_is_explained():
    text = (ROOT / "docs/architecture.md").read_text()
    planned = {Status.PATH_NOT_USED, Status.NODE_LOST}
    assert all(f"`{status}`" in text for status in set(Status) - planned)


def test_notes_and_reasons_have_words():
    assert all(NOTES.values())
    assert len({code.value for code in ReasonCode}) == len(ReasonCode)


@pytest.mark.parametrize("command", ["sweep", "show", "plot", "runs"])
def test_every_command_has_help(command):
    result = CliRunner().invoke(cli, [command, "--help"])

    assert result.exit_code == 0, result.output
    assert "Usage" in result.output
    assert max(len(line) for line in result.output.splitlines()) <= 120


def test_the_reference_run_reads_back():
    result = CliRunner().invoke(cli, ["show", str(ROOT / "results/2xh200/20261130-0635-3947")])

    assert result.exit_code == 0
    assert result.output.startswith("2 x NVIDIA H200 on 1 node (NV18, no IB device)")
    assert "all_reduce float32 graph: 329.3 GB/s busbw at 1 GiB" in result.output
