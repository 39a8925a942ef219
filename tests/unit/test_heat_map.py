"""Heat maps of settings: what is in the cells, what is marked, and the files."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec
import pytest
from best_trials import SIZES, grid
from setting_trials import RING_LL, ended, under

from collbench.model import Mode, ReasonCode, Status
from collbench.report.album import FilesAlbum
from collbench.report.heat_map import draw_heat_maps, heat_maps
from collbench.report.plot import plot_run
from collbench.store import read_run

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0929-1943"
MIB = 2**20


@pytest.fixture(scope="module")
def reference():
    return read_run(REFERENCE)


@pytest.fixture
def words(reference, tmp_path):
    """Draws trials under the reference run's heading; returns the words of the only SVG."""

    def drawn(trials, **changes):
        run = msgspec.structs.replace(reference.run, **changes)
        png, svg = draw_heat_maps(run, reference.topology, trials, FilesAlbum(tmp_path))
        assert png.read_bytes().startswith(b"\x89PNG")
        text = svg.read_text().replace("&gt;", ">")
        return re.findall(r"<(?:text|tspan)[^>]*>([^<]*)</", text), text

    return drawn


def test_cells_hold_the_time_over_the_defaults():
    (found,) = heat_maps(grid({"Tree/Simple": [SIZES[-1]]}))

    assert found.name == "all_reduce graph"
    assert found.sizes == SIZES
    assert found.settings == ("default", "Ring/LL", "Tree/Simple")
    assert found.log_ratios[1] == pytest.approx([math.log(1.2)] * 11)
    assert found.log_ratios[2][-1] == pytest.approx(math.log(0.92))
    assert found.claimed == ((2, 10),)
    assert found.ran == ("Ring/Simple",) * 11
    assert found.missing == {}
    assert found.text == "default is the best everywhere except 1 GiB: Tree/Simple 8.0 % faster"


def test_each_collective_and_mode_has_its_own():
    trials = [
        trial
        for name in ("all_reduce", "all_gather")
        for mode in (Mode.EAGER, Mode.GRAPH)
        for trial in grid({}, name=name, mode=mode)
    ]

    assert [one.name for one in heat_maps(trials)] == [
        "all_reduce eager",
        "all_reduce graph",
        "all_gather eager",
        "all_gather graph",
    ]


def test_what_has_no_time_is_a_hatched_cell_or_a_row_left_out():
    trials = grid({"Tree/Simple": [SIZES[-1]]})
    for size in SIZES:
        nvls = under({"NCCL_ALGO": "NVLS"}, size, 1.0, mode=Mode.GRAPH)
        trials.append(ended(nvls, Status.UNSUPPORTED, ReasonCode.ILLEGAL, "no NVLS"))
    trials = [
        ended(trial, Status.UNSUPPORTED, ReasonCode.REFUSED, "no")
        if trial.case.setting == RING_LL and trial.case.size_bytes == MIB
        else ended(trial, Status.PATH_NOT_USED, ReasonCode.OTHER_ALGORITHM, "fell back")
        if trial.case.setting == RING_LL and trial.case.size_bytes == 4 * MIB
        else trial
        for trial in trials
    ]

    (found,) = heat_maps(trials)

    assert found.left_out == "NVLS"
    assert found.missing == {(1, 5): "unsupported", (1, 6): "path not used"}
    assert math.isnan(found.times_us[1, 5])
    assert math.isnan(found.times_us[1, 6])


@pytest.mark.parametrize(
    "trials",
    [grid({}, settings=("default",)), grid({}, settings=("Ring/LL", "Tree/Simple")), []],
    ids=["one setting", "no default", "nothing"],
)
def test_without_settings_beside_a_default_nothing_is_drawn(trials, reference, tmp_path):
    assert draw_heat_maps(reference.run, reference.topology, trials, FilesAlbum(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_the_picture_has_its_words_its_figures_and_its_marks(words):
    found, svg = words(grid({"Tree/Simple": [SIZES[-1]]}))

    assert found.count("-8 %") == 1
    assert found.count("+20 %") == 21
    assert "10.01" in found
    assert "Ring/Simple" in found
    assert "all_reduce graph: settings against the default" in found
    assert "Default is the best everywhere except 1 GiB: Tree/Simple 8.0 % faster." in found
    assert "2 x NVIDIA H200 on 1 node (NV18, no IB device)" in found
    assert any("outlined: faster beyond noise" in word for word in found)
    assert not any("hatched" in word for word in found)
    assert len(re.findall(r"stroke-width: 2.5", svg)) == 1
    assert "SIMULATED" not in svg


def test_missing_cells_are_explained(words):
    trials = [
        ended(trial, Status.HUNG, ReasonCode.NO_PROGRESS, "hung")
        if trial.case.setting == RING_LL and trial.case.size_bytes == MIB
        else trial
        for trial in grid({})
    ]
    found, svg = words(trials)

    assert "hung" in found
    assert any("hatched: unsupported, or as it says" in word for word in found)
    assert "url(#" in svg


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"simulated": True}, "SIMULATED"),
        ({"emulated": True}, "EMULATED"),
        ({"planted": "late:rank=1,ms=20"}, "PLANTED FAULT"),
    ],
)
def test_what_is_not_real_has_a_watermark(words, changes, mark):
    found, _ = words(grid({}), **changes)

    assert mark in found


def test_many_cells_have_colours_alone(words):
    sizes = tuple(range(1000, 1110))
    found, _ = words(grid({}, sizes=sizes))

    assert "+20 %" not in found


def test_a_size_alone_has_its_algorithm_over_two_lines(words):
    found, _ = words(grid({}, sizes=(MIB,)))

    assert ("Ring/" in found, "Ring/Simple" in found) == (True, False)


def test_one_repeat_claims_nothing(words):
    found, _ = words(grid({"Tree/Simple": SIZES}, repeats=1))

    assert "No best setting from 1 repeat: needs 4 more repeats." in found
    assert not any("outlined" in word for word in found)


def test_plots_of_a_run_hold_its_heat_maps(reference, tmp_path):
    paths = plot_run(
        reference.run,
        reference.topology,
        [t for t in reference.trials if t.case.collective == "all_reduce"],
        lambda *_: None,
        FilesAlbum(tmp_path),
    )

    assert [path.name for path in paths] == [
        "20261130-0929-1943.png",
        "20261130-0929-1943.svg",
        "20261130-0929-1943-all_reduce-graph-settings.png",
        "20261130-0929-1943-all_reduce-graph-settings.svg",
    ]
    assert all(path.stat().st_size > 10_000 for path in paths)
