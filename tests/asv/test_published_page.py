"""The page of a generated history, by asv itself and in a browser without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from history_runs import VERSIONS, history_run
from lab.packages import require
from stored_runs import put

from collbench.cli.history_publish import publish
from collbench.cli.history_serve import page_server
from collbench.errors import UsageError
from collbench.interop.asv_scripts import _SCRIPTS, find_scripts
from collbench.model import Mode
from collbench.nccl.releases import known_releases

pytest.importorskip("asv", reason="needs asv: pip install 'collbench[history]'")

MIB = 2**20
SIZES = (4, 4096, MIB, 64 * MIB)
SLOWER = "all_reduce.time('1MiB', 'graph', 2, 'default')"
SPAN = "all_gather.time('64MiB', 'eager', 2, 'default')"
PLANTED = {
    ("all_reduce", Mode.GRAPH, MIB, "2.30.3"): 1.3,
    # Releases between 2.28.9 and 2.29.7 were not measured.
    ("all_gather", Mode.EAGER, 64 * MIB, "2.29.7"): 1.2,
    ("reduce_scatter", Mode.GRAPH, MIB, "2.30.3"): 0.7,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Publishes a history of 8 releases with two slow-downs and an improvement.

    Its scripts are empty: what asv lists does not depend on them.
    """
    root = tmp_path_factory.mktemp("history")
    put(history_run(planted=PLANTED, sizes=SIZES, repeats=3), root / "runs/lab")
    (root / "scripts").mkdir()
    for name in _SCRIPTS:
        (root / "scripts" / name).write_text("")
    words = [root / "out", "--scripts", root / "scripts", "--results", root / "runs"]
    done = CliRunner().invoke(publish, [*map(str, words)], standalone_mode=False)
    assert done.exception is None, done.output
    assert "Published in" in done.output
    return root / "out"


def read(folder, name):
    return json.loads((folder / "html" / name).read_text())


def asv(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "asv", *arguments],
        cwd=folder,
        env=os.environ | {"HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- what asv finds ----------------------------------------------------------------------------


def test_the_planted_slow_downs_are_listed_and_no_improvement(folder):
    listed = {entry[0]: entry for entry in read(folder, "regressions.json")["regressions"]}

    assert listed.keys() == {SLOWER, SPAN}
    tags = read(folder, "index.json")["tags"]
    ((before, at, old_s, new_s),) = listed[SLOWER][6]
    assert (before, at) == (None, tags["v2.30.3"])
    assert new_s / old_s == pytest.approx(1.3, rel=0.03)
    ((before, at, *_),) = listed[SPAN][6]
    assert (before, at) == (tags["v2.28.9"], tags["v2.29.7"])


def test_compare_says_worse_of_the_slow_down_and_better_of_the_improvement(folder):
    lines = asv(folder, "compare", "v2.29.7", "v2.30.3", "-f", "1.05").splitlines()
    marks = {
        cells[5]: cells[1]
        for cells in ([cell.strip() for cell in line.split("|")] for line in lines)
        if len(cells) > 5
    }

    assert marks[SLOWER] == "+"
    assert marks["reduce_scatter.time('1MiB', 'graph', 2, 'default')"] == "-"
    times = {name: mark for name, mark in marks.items() if ".time(" in name}
    assert sum(mark in ("+", "-") for mark in times.values()) == 2
    assert len(times) == 3 * 2 * len(SIZES)


def test_every_graph_and_release_is_there(folder):
    index = read(folder, "index.json")

    assert len(index["benchmarks"]) == 6
    assert {f"v{version}" for version in VERSIONS} <= index["tags"].keys()
    names = {index["revision_to_hash"][str(index["tags"][f"v{v}"])] for v in VERSIONS}
    assert names == {f"v{version}-1" for version in VERSIONS}
    assert index["hash_length"] >= max(map(len, names))
    feed = (folder / "html/regressions.xml").read_text()
    assert "v2.28.9-1...v2.29.7-1</a>" in feed.replace("&lt;", "<").replace("&gt;", ">")
    assert "commits=v2.30.3-1" in feed


def test_nothing_is_loaded_from_elsewhere(folder):
    text = (folder / "html/index.html").read_text()

    assert text.count('src="vendor/') == 9
    assert 'href="vendor/bootstrap.css"' in text
    assert "integrity=" not in text
    assert 'src="http' not in text


# --- in a browser ------------------------------------------------------------------------------


@dataclass
class Opened:
    """A page with all that went wrong in it."""

    page: object
    address: str
    elsewhere: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def address(folder) -> Iterator[str]:
    """Serves the page with its real scripts."""
    require({"chromium": "chromium"})
    if shutil.which("npm") is None:
        pytest.skip("needs npm, for the scripts that asv's page loads")
    try:
        scripts = find_scripts(None, folder / "none")
    except UsageError as problem:
        if os.environ.get("CI") == "true":
            pytest.fail(str(problem))
        pytest.skip(str(problem))
    for name, content in scripts.items():
        (folder / "html/vendor" / name).write_bytes(content)
    with page_server(folder, port=0, bind="127.0.0.1") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(address):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield found
        found.close()


@pytest.fixture
def opened(browser, address):
    """Opens the page without a network but the server's."""
    found = Opened(page=browser.new_page(viewport={"width": 1200, "height": 900}), address=address)

    def reach(route):
        url = route.request.url
        if url.startswith(address):
            route.continue_()
        else:
            found.elsewhere.append(url)
            route.abort()

    found.page.route("**/*", reach)
    found.page.on("console", lambda message: found.problems.append(message.text))
    found.page.on("pageerror", lambda problem: found.problems.append(str(problem)))
    yield found
    found.page.close()


def test_the_scripts_of_a_page_serve_its_next_one_without_npm(address, folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    found = find_scripts(None, folder / "html/vendor")

    assert found == {name: (folder / "html/vendor" / name).read_bytes() for name in found}
    assert len(found) == 10


def test_the_graph_says_releases_on_its_axis(opened):
    opened.page.goto(f"{opened.address}#all_reduce.time?p-size='1MiB'&p-mode='graph'")
    opened.page.wait_for_selector("canvas.flot-base")
    opened.page.locator("#main-graph", has_text="v2.32.3").wait_for()
    words = opened.page.locator("#main-graph").inner_text().split()

    # Those that were not measured keep their place.
    assert [word for word in words if word.startswith("v2.")] == [
        f"v{release.version}"
        for release in known_releases()
        if VERSIONS[0] <= release.version <= VERSIONS[-1]
    ]
    assert (opened.elsewhere, opened.problems) == ([], [])


def test_the_regressions_page_names_the_release_and_never_the_improvement(opened):
    opened.page.goto(f"{opened.address}#regressions")
    row = opened.page.locator("#regressions-body tr", has_text=SLOWER)
    row.wait_for()

    assert "v2.30.3-1" in row.inner_text()
    assert "1.3" in row.locator("td").nth(3).inner_text()
    link = row.locator("a", has_text="v2.30.3-1").get_attribute("href")
    assert link == "https://github.com/NVIDIA/nccl/tree/v2.30.3-1"
    span = opened.page.locator("#regressions-body tr", has_text=SPAN).inner_text()
    assert "v2.28.9-1..v2.29.7-1" in span
    assert "reduce_scatter" not in opened.page.locator("#regressions-body").inner_text()
    assert (opened.elsewhere, opened.problems) == ([], [])


def test_the_link_of_a_span_marks_it_in_the_graph(opened):
    opened.page.goto(f"{opened.address}#regressions")
    opened.page.locator("#regressions-body a", has_text=SPAN).click()
    opened.page.locator("#main-graph", has_text="v2.32.3").wait_for()
    pale_red = opened.page.evaluate(
        """() => {
            const canvas = document.querySelector("#main-graph canvas.flot-base");
            const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let k = 0; k < all.data.length; k += 4) {
                const [red, green, , opaque] = all.data.slice(k, k + 4);
                count += red > 150 && green < 30 && opaque > 0 && opaque < 100;
            }
            return count;
        }"""
    )

    assert pale_red > 10_000
    assert (opened.elsewhere, opened.problems) == ([], [])


def test_the_list_paints_no_rate(opened):
    opened.page.goto(f"{opened.address}#summarylist")
    rates = opened.page.locator("tr", has_text="reduce_scatter.busbw")
    rates.first.wait_for()
    slower = opened.page.locator("tr", has_text="all_reduce.time ('1MiB', 'graph'")

    assert rates.count() == 2 * len(SIZES)
    assert rates.locator(".positive-change, .negative-change").count() == 0
    assert slower.locator(".positive-change").count() == 1
    assert (opened.elsewhere, opened.problems) == ([], [])
