"""The README and the docs: links resolve, commands exist, words of the code stand in them."""

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
from click.testing import CliRunner
from doc_blocks import SPAN, blocks_of

from collbench.cli.main import cli
from collbench.model import ReasonCode, Status
from collbench.notes import NOTES

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "results").glob("*.md")]
)
OF_OTHERS = {
    "--cpu-bind",
    "--kill-on-bad-exit",
    "--max-restarts",
    "--nproc-per-node",
    "--show-stderr",
    "--skip-save",
}
"""Options of srun, torchrun and asv that the pages speak of."""


def options(command):
    """Returns the options of a command and of all below it."""
    own = {name for parameter in command.params for name in parameter.opts}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            own |= options(command.get_command(context, name))
    return own


OPTIONS = options(cli) | {"--help"}


def headings(page):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_resolves(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_a_page_finds_its_heading(page):
    for file, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text()):
        target = page.parent / file if file else page
        assert anchor in headings(target), f"{page.name}: {file}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_the_outside_is_one_of_https(page):
    for target in re.findall(r"\]\((\w+:[^)]*)\)", page.read_text()):
        parts = urlsplit(target)
        assert (parts.scheme, " " in target) == ("https", False), target
        assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", parts.netloc), target


def test_every_page_is_reached_from_the_map_and_the_map_from_the_readme():
    linked = set(re.findall(r"\]\((\w+\.md)", (ROOT / "docs/index.md").read_text()))

    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert "](docs/index.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_and_file_that_is_named_exists(page):
    for block in blocks_of(page, ROOT):
        if block.language != SPAN:
            continue
        option = re.match(r"--[a-z][\w-]*", block.text)
        if option and not option[0].startswith("--benchmark-"):
            assert option[0] in OPTIONS | OF_OTHERS, f"{block.place}: {block.text}"
        if re.fullmatch(r"(collbench|tests|suites|examples|docs|notebooks)/[\w./-]+", block.text):
            assert (ROOT / block.text).exists(), f"{block.place}: {block.text}"


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
