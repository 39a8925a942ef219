"""Every block and command line of the README and the docs is run, or read as its program reads it.

Each is put into a class by rule; one that fits none fails with its page and line. The tutorial's
blocks are run by test_tutorial.py.
"""

from __future__ import annotations

import json
import re
import tomllib
from contextlib import chdir
from functools import cache
from pathlib import Path
from shutil import copytree

import pytest
from doc_blocks import INDENTED, REMARK, SPAN, Block, blocks_of, commands_of, remarks_of
from doc_lines import BEGINS, ROOT, WrongLine
from doc_runs import Page
from doc_shown import not_printed

from collbench.engine.fabric_file import parse_fabric_file
from collbench.engine.simulated import read_fabric
from collbench.errors import CollbenchError
from collbench.launch.topology_files import parse_topology
from collbench.suite import load_suite

PAGES = [ROOT / "README.md", ROOT / "results/README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCRIPTS = sorted(path for path in (ROOT / "examples").rglob("*.*") if path.is_file())
TUTORIAL = "docs/tutorial.md"
TESTS = "\n".join(path.read_text() for path in sorted((ROOT / "tests/unit").glob("test_*.py")))
DIAGRAM = re.compile(r"--?> |> \w| = ")
FILE_OF = re.compile(r"--simulate (\w+\.toml)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def try_block(page: Page, block: Block, text: str, alone: list[Block]) -> None:
    """Runs or reads a block by its language, and else by what is in it."""
    if block.language in (SPAN, REMARK):
        (command,) = commands_of(block)
        if BEGINS.match(command.text) and not re.match(
            r"collbench[/._]|collbench\.\w", command.text
        ):
            page.try_(command)
    elif block.language == "sh" or block.is_session or BEGINS.match(block.text):
        for command in commands_of(block):
            page.try_(command)
    elif block.language == "toml":
        read_toml(page, block, text)
        page.counts["TOML that is read"] += 1
    elif block.language == "json":
        read_json(page, block)
        page.counts["JSON that is read"] += 1
    elif block.language == "python":
        run_python(page, block)
        page.counts["Python that is run"] += 1
    elif block.language == "dockerfile":
        read_image(page, block)
        page.counts["a file of an image"] += 1
    elif reads_as_topology(block):
        page.counts["topology files that are read"] += 1
    elif block.language == INDENTED and DIAGRAM.search(block.text):
        page.counts["diagrams and formulas"] += 1
    else:
        alone.append(block)


def how_shown(page: Page, block: Block) -> str:
    """Returns what holds a text that stands without the command that printed it."""
    lines = block.text.splitlines()
    if any(not_printed(lines, printed) is None for printed in page.printed):
        return "shown alone: printed by a command of the page"
    if any(labels(lines) == labels(printed.splitlines()) for printed in page.printed):
        return "shown alone: its labels are printed by a command of the page"
    if f'"{page.name}"' in TESTS or five_words(lines[0]) & five_words(TESTS):
        return "shown alone: a unit test holds its words"
    raise WrongLine("a block that no rule knows")


@cache
def five_words(text: str) -> frozenset[tuple[str, ...]]:
    """Returns each five words that follow one another; figures and names are passed over."""
    words = re.findall(r"[a-z]+", text)
    return frozenset(zip(*(words[at:] for at in range(5)), strict=False))


def labels(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line and line[0] != " "]


def read_toml(page: Page, block: Block, text: str) -> None:
    """Reads a fabric or a suite, and leaves it where the page's commands look for it."""
    name = next((n for n in FILE_OF.findall(text) if not (page.folder / n).exists()), "suite.toml")
    path = page.folder / name
    path.write_text(block.text)
    tables = tomllib.loads(block.text)
    if "fabric" in tables:
        parse_fabric_file(path, tables)
    elif "ranks" in tables:
        read_fabric(path)
    else:
        load_suite(str(path))


def read_json(page: Page, block: Block) -> None:
    shown = json.loads(block.text)
    done = page.here(["show", "last", "--json"])
    unknown = fields(shown) - fields(json.loads(done.text))
    if unknown:
        raise WrongLine(f"fields that show --json does not have: {sorted(unknown)}")


def fields(value: object, at: str = "") -> set[str]:
    """Returns the paths of all fields of an object, items of lists alike."""
    if isinstance(value, list):
        return set().union(*(fields(item, at) for item in value))
    if not isinstance(value, dict):
        return set()
    own = {f"{at}.{key}" for key in value}
    return own.union(*(fields(item, f"{at}.{key}") for key, item in value.items()))


def run_python(page: Page, block: Block) -> None:
    page.seed("sweep")
    with chdir(page.folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLLBENCH_RESULTS", str(page.made))
        exec(compile(block.text, block.place, "exec"), {})


def read_image(page: Page, block: Block) -> None:
    for line in block.text.splitlines():
        word, _, rest = line.partition(" ")
        if word not in ("FROM", "RUN", "COPY", "ENV"):
            raise WrongLine(line)
        if word == "COPY" and not (ROOT / rest.split()[0]).exists():
            raise WrongLine(line)


def reads_as_topology(block: Block) -> bool:
    try:
        return len(parse_topology(block.text)) > 1
    except CollbenchError:
        return False


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """The results of the repository, where commands may write beside them."""
    return Path(copytree(ROOT / "results", tmp_path_factory.mktemp("reference") / "results"))


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_block_and_command_of_a_page(path, tmp_path, reference):
    text = path.read_text()
    page = Page(named(path), tmp_path, reference, names_results="results/2xh200" in text)
    alone: list[Block] = []
    for block in blocks_of(path, ROOT):
        if page.name == TUTORIAL and block.language != SPAN:
            continue
        try:
            try_block(page, block, text, alone)
        except Exception as problem:  # noqa: BLE001  every block of the page is to be told of
            page.problems.append(f"{block.place}: {problem!r}")
    for block in alone:
        try:
            page.counts[how_shown(page, block)] += 1
        except WrongLine as problem:
            page.problems.append(f"{block.place}: {problem}")
    print(page.name, dict(page.counts))

    assert not page.problems, "\n\n".join(page.problems)


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_every_command_of_an_examples_comments(path, tmp_path, reference):
    page = Page(named(path), tmp_path, reference, names_results=False)
    for block in remarks_of(path, ROOT):
        try_block(page, block, "", [])
    print(page.name, dict(page.counts))

    assert not page.problems, "\n\n".join(page.problems)
