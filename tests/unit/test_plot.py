"""Pictures: their words, what is drawn and what is not; ``collbench plot``."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from records import make_trial
from setting_trials import under

from collbench.analyze.limit import Limit
from collbench.cli.main import cli
from collbench.collectives import COLLECTIVES
from collbench.model import Mode
from collbench.report.album import FilesAlbum
from collbench.report.plot import plot_run
from collbench.store import read_run

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-0635-3947"
GOLDEN = Path(__file__).parents[1] / "data/golden/v1"


def no_limit(_case, _proof):
    return None


@pytest.fixture(scope="module")
def reference():
    return read_run(REFERENCE)


@pytest.fixture
def draw(reference, tmp_path):
    """Draws trials under the reference run's heading; returns the SVG's text."""

    def drawn(trials, limit=None, **changes):
        run = msgspec.structs.replace(reference.run, **{"repeats": 1} | changes)
        png, svg = plot_run(
            run, reference.topology, trials, lambda _case, _proof: limit, FilesAlbum(tmp_path)
        )
        assert png.read_bytes().startswith(b"\x89PNG")
        return svg.read_text()

    return drawn


def lines_drawn(svg):
    """The curves' paths: dash pattern, colour and number of points of each."""
    found = []
    for data, style in re.findall(r'<path d="([^"]*)" clip-path="[^"]*" style="([^"]*)"', svg):
        colour = re.search(r"stroke: (#[0-9a-f]{6})", style)
        if "fill: none" in style and "stroke-width: 2" in style and colour:
            found.append((colour[1], "dasharray" in style, len(re.findall("[ML]", data))))
    return found


def test_a_picture_has_its_axes_its_curves_its_ticks_and_its_heading(reference, tmp_path):
    png, svg = plot_run(
        reference.run, reference.topology, reference.trials, no_limit, FilesAlbum(tmp_path)
    )

    assert png.name == "20261130-0635-3947.png"
    assert png.read_bytes().startswith(b"\x89PNG")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())
    assert [word for word in words if "GB/s" in word and "," in word] == [
        "bus bandwidth, GB/s",
        "all_reduce eager, peak 328.2 GB/s",
        "all_reduce graph, peak 329.3 GB/s",
        "all_gather eager, peak 268.6 GB/s",
        "all_gather graph, peak 270.6 GB/s",
        "reduce_scatter eager, peak 273.0 GB/s",
        "reduce_scatter graph, peak 275.0 GB/s",
    ]
    sizes = ["16 B", "256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB"]
    assert [word for word in words if re.fullmatch(r"\d+ [KMG]?i?B", word)] == sizes
    text = " ".join(words)
    assert "time of a call, us" in text
    assert "(band: range of the repeats)" in text
    assert "2 x NVIDIA H200 on 1 node (NV18, no IB device)" in text
    assert "SIMULATED" not in text
    assert "PLANTED" not in text


def test_colour_tells_the_collective_and_dashes_the_mode(draw):
    svg = draw(
        [
            make_trial(size, 10.0, name=name, mode=mode)
            for name in ("all_reduce", "broadcast")
            for mode in (Mode.EAGER, Mode.GRAPH)
            for size in (2**20, 2**22)
        ]
    )

    looks = [(colour, dashed) for colour, dashed, points in lines_drawn(svg) if points == 2]
    blue, pink = "#0072b2", "#cc79a7"
    # Four curves in each of two panels.
    assert sorted(set(looks)) == [(blue, False), (blue, True), (pink, False), (pink, True)]
    assert "all_reduce eager" in svg
    assert "95 % interval of the median" in svg


def test_types_of_one_collective_differ_in_colour(draw):
    svg = draw(
        [
            make_trial(size, 10.0, dtype=dtype)
            for dtype in ("float32", "bfloat16", "int8")
            for size in (2**20, 2**22)
        ]
    )

    assert {colour for colour, _, points in lines_drawn(svg) if points == 2} == {
        "#0072b2",
        "#d55e00",
        "#009e73",
    }
    assert "all_reduce bfloat16, peak" in svg


def test_a_size_without_a_rate_is_left_out_and_not_drawn_as_zero(draw):
    trials = [make_trial(2**20, 10.0), make_trial(2**21, 12.0, rate=False), make_trial(2**22, 20.0)]

    curves = [points for _, _, points in lines_drawn(draw(trials)) if points > 1]

    assert 2 in curves  # the rates
    assert 3 in curves  # the times


def test_the_limit_is_drawn_where_it_is_known(draw):
    trials = [make_trial(2**20, 10.0), make_trial(2**22, 20.0)]
    words = "limit 478 GB/s: 18 NVLinks x 26.6 GB/s"

    assert words in draw(trials, Limit(478.116, "18 NVLinks x 26.6 GB/s"))
    assert "limit" not in draw(trials)


def test_algorithms_with_limits_of_their_own_have_a_line_each(reference, tmp_path):
    def limit_of(case, _proof):
        ran = case.setting.get("NCCL_ALGO", "Ring")
        return Limit(743.7 if ran == "NVLS" else 478.1, f"18 NVLinks x 26.6 GB/s, {ran}")

    trials = [
        under({"NCCL_ALGO": name}, size, 10.0)
        for name in ("Ring", "Tree", "NVLS")
        for size in (2**20, 2**22)
    ]
    paths = plot_run(reference.run, reference.topology, trials, limit_of, FilesAlbum(tmp_path))

    text = next(path for path in paths if path.suffix == ".svg").read_text()
    # Ring and Tree have one line: its words are what both say.
    assert text.count("limit 478 GB/s: 18 NVLinks x 26.6 GB/s<") == 1
    assert text.count("limit 744 GB/s: 18 NVLinks x 26.6 GB/s, NVLS<") == 1


@pytest.mark.parametrize(
    ("changes", "mark"),
    [({"simulated": True}, "SIMULATED"), ({"planted": "late:rank=1,ms=20"}, "PLANTED FAULT")],
)
def test_what_is_not_real_has_a_watermark(draw, changes, mark):
    assert f">{mark}</text>" in draw([make_trial(2**20, 10.0)], **changes)


def test_times_within_one_decade_are_labelled_without_exponents(draw):
    svg = draw([make_trial(2**20, 42.0), make_trial(2**21, 55.0)])

    assert ">50</text>" in svg
    assert "mathdefault" not in svg


@pytest.mark.parametrize(
    ("sizes", "ticks"),
    [
        ([2**20, 2**21, 2**22], ["1 MiB", "2 MiB", "4 MiB"]),
        ([2**10, 2**24], ["1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"]),
        ([1000, 1001], ["1000 B", "1001 B"]),
    ],
)
def test_narrow_ranges_of_sizes_have_ticks_too(draw, sizes, ticks):
    words = re.findall(r">(\d+ [KMG]?i?B)</text>", draw([make_trial(s, 10.0) for s in sizes]))

    assert words[: len(ticks)] == ticks


def test_many_curves_have_their_legend_beside_the_panels(draw):
    trials = [
        make_trial(size, 10.0, name=name, mode=mode)
        for name in COLLECTIVES
        for mode in (Mode.EAGER, Mode.GRAPH)
        for size in (2**20, 2**22)
    ]

    svg = draw(trials)

    assert 'width="864pt"' in svg
    assert svg.count(", peak ") == 18


def test_a_run_with_every_status_can_be_drawn(tmp_path):
    stored = read_run(GOLDEN)

    for path in plot_run(
        stored.run, stored.topology, stored.trials, no_limit, FilesAlbum(tmp_path)
    ):
        assert path.stat().st_size > 1000


def test_the_command_prints_the_files_it_wrote(tmp_path):
    result = CliRunner().invoke(cli, ["plot", str(GOLDEN), "-o", str(tmp_path / "new")])

    assert result.exit_code == 0, result.output
    written = [Path(line) for line in result.stdout.splitlines()]
    assert [path.suffix for path in written] == [".png", ".svg"]
    assert all(path.parent == tmp_path / "new" and path.is_file() for path in written)


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")

    result = CliRunner().invoke(cli, ["plot", str(GOLDEN), "-o", str(tmp_path / "file" / "under")])

    assert str(result.exception) == (
        f"cannot draw into '{tmp_path}/file/under': Not a directory; give another folder with -o"
    )


def test_a_run_without_times_is_a_usage_error_that_says_where_to_look(tmp_path):
    for name in ("run.json", "topology.json"):
        (tmp_path / name).write_bytes((GOLDEN / name).read_bytes())
    (tmp_path / "trials.jsonl").write_bytes(b"")

    result = CliRunner().invoke(cli, ["plot", str(tmp_path)])

    assert "has no times to draw; 'collbench show' says why" in str(result.exception)


def test_a_run_whose_cases_have_times_and_no_rate_is_drawn_and_says_so(tmp_path):
    """Both values of --ib on one node: nothing that was asked for carried the data."""
    run = Path(__file__).parents[2] / "results/2xh200/20261130-1931-3420"
    done = CliRunner().invoke(cli, ["plot", str(run), "-o", str(tmp_path)], standalone_mode=False)

    assert done.exception is None
    svg = (tmp_path / f"{run.name}.svg").read_text()
    assert "no case has a rate" in svg
    assert "limit" not in svg
