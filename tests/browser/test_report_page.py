"""``collbench report`` as a person opens it: every picture drawn, nothing loaded, keys suffice."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bar_runs import place
from click.testing import CliRunner
from records import make_trial
from stored_runs import put, stored_run

from collbench.cli.main import cli

ROOT = Path(__file__).parents[2]
RUNS = {
    "sweep": ROOT / "results/2xh200/20261130-0635-3947",
    "ab": ROOT / "results/2xh200/20261130-1233-9fc5",
    "pairwise": ROOT / "results/2xh200/20261130-1319-63a8",
}


@dataclass
class Opened:
    """A page with all that went wrong in it."""

    page: object
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@pytest.fixture
def opened(chromium, tmp_path):
    """Writes a report of some runs and opens it."""
    pages = []

    def open_(*runs: Path, **look) -> Opened:
        target = tmp_path / f"report{len(pages)}.html"
        made = CliRunner().invoke(cli, ["report", *map(str, runs), "-o", str(target)])
        assert made.exit_code == 0, made.output
        found = Opened(page=chromium.new_page(viewport={"width": 1100, "height": 900}, **look))
        pages.append(found.page)
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda message: found.problems.append(message.text))
        found.page.on("pageerror", lambda problem: found.problems.append(str(problem)))
        found.page.goto(target.as_uri())
        return found

    yield open_
    for page in pages:
        page.close()


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("kind", RUNS)
def test_every_picture_is_drawn_and_nothing_is_loaded(opened, kind, look):
    found = opened(RUNS[kind], color_scheme=look)
    page = found.page

    assert found.problems == []
    assert [url for url in found.requests if not url.startswith(("file:", "data:"))] == []
    pictures = page.locator("figure svg")
    assert pictures.count() >= 1
    for number in range(pictures.count()):
        box = pictures.nth(number).bounding_box()
        assert box["width"] > 500
        assert box["height"] > 200
        assert pictures.nth(number).locator("path, image, text").count() > 10
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (look == "light")


@pytest.mark.parametrize(
    ("kind", "words"), [("pairwise", "GB/s|MB/s"), ("sweep", "us"), ("ab", "us")]
)
def test_the_pointer_finds_the_figures_of_a_point(opened, kind, words):
    page = opened(RUNS[kind]).page
    spot = page.locator(".spots > *").nth(3)
    title = spot.locator("title").text_content()
    spot.scroll_into_view_if_needed()
    box = spot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    shown = page.locator("#words")
    assert shown.is_visible()
    assert any(word in shown.inner_text() for word in words.split("|"))
    # Where points lie upon each other the one on top is told.
    assert shown.inner_text() in page.locator(".spots > * title").all_text_contents()
    assert title in page.locator(".spots > * title").all_text_contents()
    page.mouse.move(1, 1)
    assert shown.is_hidden()


def test_what_a_point_says_stands_in_the_table_behind_the_picture(opened):
    page = opened(RUNS["sweep"]).page
    page.locator("figure summary").first.click()
    rows = page.locator("figure tbody tr")

    assert rows.count() == 90
    cells = rows.nth(0).locator("td").all_inner_texts()
    title = page.locator(".spots > * title").first.text_content()
    assert f"{cells[0]}, {cells[1]}: {cells[2]} us" in title


def test_the_keyboard_reaches_and_opens_every_table(opened):
    page = opened(RUNS["pairwise"]).page
    unopened = page.locator("details:not([open])").count()
    assert unopened >= 4
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        if page.evaluate("document.activeElement.tagName === 'SUMMARY'"):
            page.keyboard.press("Enter")
    assert page.locator("details:not([open])").count() == 0
    reached = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(one => one.tabIndex === 0).length"
    )
    assert reached == page.locator("table").count() >= 3


def test_a_conclusion_stands_above_the_first_picture(opened):
    page = opened(RUNS["pairwise"]).page
    conclusion = page.locator(".conclusion").first

    assert "1 of 8 nodes fails: node5 node_slow -64 %" in conclusion.inner_text()
    assert conclusion.bounding_box()["y"] < page.locator("figure").first.bounding_box()["y"]
    assert "EMULATED" in page.locator(".mark").first.inner_text()


def test_several_runs_stand_in_one_page_without_mixing_their_ids(opened):
    page = opened(*RUNS.values()).page

    assert page.locator("article").count() == 3
    assert page.locator("nav a").count() == 3
    twice = page.evaluate(
        "(() => { const ids = [...document.querySelectorAll('[id]')].map(one => one.id);"
        " return ids.filter((id, place) => ids.indexOf(id) !== place); })()"
    )
    assert twice == []


def test_words_from_outside_stay_words(opened, tmp_path):
    evil = "<script>document.title='taken'</script>"
    folder = put(stored_run_of(evil), tmp_path / "runs")
    page = opened(folder).page

    assert page.title().startswith("collbench: sweep on ")
    assert page.locator("article script").count() == 0
    page.locator("summary", has_text="Nodes").click()
    assert evil in page.locator("table", has_text="leaf").inner_text()


def stored_run_of(name):
    return stored_run(
        [make_trial(size, 100.0) for size in (2**20, 2**24)],
        topology=place(name),
        cluster=name,
        note=name,
        argv=["sweep", name],
    )
