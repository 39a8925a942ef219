"""``collbench import nccl-tests``: what is stored, said and refused, and who reads it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from records import make_trial

from collbench.analyze.frames import load_run
from collbench.analyze.keys import case_key
from collbench.cli.main import cli
from collbench.store import find_run, list_runs, read_run

DATA = Path(__file__).parents[1] / "data" / "nccl-tests"
NO_ROWS = DATA / "all_gather_tree_unsupported.txt"
FILES = sorted(path for path in DATA.rglob("*.*") if path != NO_ROWS)


@pytest.fixture
def imported(called, tmp_path):
    """Imports files into a cluster and returns its runs, the first made first."""

    def call(cluster, *files):
        result = called("import", "nccl-tests", *files, "--cluster", cluster)
        assert result.exception is None
        listed = [one for one in list_runs(tmp_path / "runs") if one.folder.parent.name == cluster]
        names = [
            line.split()[1].rstrip(":") for line in result.stdout.splitlines() if line[:4] == "run "
        ]
        by_name = {one.folder.name: one.folder for one in listed}
        return [read_run(by_name[name]) for name in names]

    return call


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_recorded_file_is_stored_and_shown(called, imported, path):
    (stored,) = imported("lab", path)

    assert (stored.problems, stored.run.exit_code) == ((), 0)
    assert len(stored.trials) == stored.run.planned_trials
    shown = called("show", "last")
    assert shown.exception is None
    assert shown.stdout.startswith("Measured by nccl-tests, not by collbench: NCCL 2.28.9, ")
    assert "the median of one number is that number" in " ".join(shown.stdout.split())


def test_it_says_what_was_made(called):
    files = [DATA / "all_reduce_g0_1.json", DATA / "all_reduce_g1_1.txt"]

    result = called("import", "nccl-tests", *files, "--cluster", "lab")

    assert result.stderr == ""
    lines = result.stdout.splitlines()
    ends = "2 ranks on 1 node, NVIDIA H200"
    assert [lines[0].partition(": ")[2], lines[4].partition(": ")[2]] == [
        f"1 repeat, 28 trials, NCCL 2.28.9, eager, {ends}",
        f"1 repeat, 28 trials, NCCL 2.28.9, graph, {ends}",
    ]
    assert lines[1] == f"  of {files[0]}"
    assert lines[3] == f"  collbench show {lines[0].split()[1].rstrip(':')}"


def test_the_times_of_single_calls_are_frames_of_samples(imported, tmp_path):
    (stored,) = imported("lab", DATA / "calls" / "all_reduce_iter.json")

    samples = load_run(str(stored.folder)).samples(stored.trials[0].trial_id)
    assert len(samples) == 50
    assert samples["time_us"][0] == pytest.approx(18.528, abs=1e-5)


def test_a_case_has_the_key_of_our_own(imported):
    (stored,) = imported("lab", DATA / "all_reduce_g0_1.txt")
    own = msgspec.structs.replace(make_trial(8, 10.0).case, redop="sum", via="native")

    (case,) = [t.case for t in stored.trials if t.case.size_bytes == 8 and t.case.in_place]
    assert case == own
    assert case_key(case) == case_key(own)


def scaled(path, target, factor):
    """Writes a recorded JSON file with all times longer by a factor, and rates to match."""
    document = json.loads(path.read_text())
    for result in document["results"]:
        for key in ("out_of_place", "in_place"):
            figures = result[key]
            figures["time"] *= factor
            figures["alg_bw"] /= factor
            figures["bus_bw"] /= factor
    target.write_text(json.dumps(document))
    return target


@pytest.fixture
def repeats(tmp_path):
    """Writes five files, each a start of its own, whose times scatter by 0.2 %."""

    def write(name, factor):
        return [
            scaled(
                DATA / "all_reduce_g0_1.json",
                tmp_path / f"{name}{k}.json",
                factor * (1 + 0.001 * (k * 2 % 5 - 2)),
            )
            for k in range(5)
        ]

    return write


def test_two_imports_compare(called, imported, repeats, tmp_path):
    imported("before", *repeats("before", 1.0))
    imported("after", *repeats("after", 1.2))
    imported("again", *repeats("again", 1.0))
    runs = tmp_path / "runs"

    result = called("compare", runs / "before", runs / "after", "--json", "--fail-on", "slower")
    same = called("compare", runs / "before", runs / "again", "--json", "--fail-on", "slower")

    assert (result.return_value, same.return_value) == (1, 0)
    found = json.loads(result.stdout)
    assert len(found["cases"]) == 28
    assert {case["verdict"] for case in found["cases"]} == {"SLOWER"}
    assert {case["verdict"] for case in json.loads(same.stdout)["cases"]} == {"SAME"}


def test_text_and_json_of_one_launch_compare_and_need_more_repeats(called, imported, tmp_path):
    imported("one", DATA / "all_reduce_g0_1.json")
    imported("two", DATA / "all_reduce_g0_1.txt")

    result = called("compare", tmp_path / "runs/one", tmp_path / "runs/two")

    assert result.return_value == 4
    assert "repeats" in result.stdout


def test_it_is_drawn_analysed_and_made_a_baseline(called, imported, tmp_path):
    (stored,) = imported("lab", DATA / "all_reduce_g0_1.json")

    assert "all_reduce float32 sum eager" in called("analyze", stored.folder).stdout
    drawn = called("plot", stored.folder).stdout.splitlines()
    assert [Path(line).suffix for line in drawn] == [".png", ".svg"]
    written = called("baseline", stored.folder, "-o", tmp_path / "baseline.json")
    assert written.stdout.startswith(f"28 cases, 1 repeat, of {stored.run.run_id}\n")


def test_data_that_were_wrong_are_what_the_run_ends_with(called, imported, tmp_path):
    text = (DATA / "all_reduce_bf16_max.txt").read_text()
    path = tmp_path / "wrong.txt"
    path.write_text(text.replace("59.25   59.25       0", "59.25   59.25       7"))

    (stored,) = imported("lab", path)

    assert stored.run.exit_code == 1
    assert stored.run.findings[0].code == "data_wrong"
    assert "7 wrong elements" in stored.run.findings[0].text


def test_at_most_ten_odd_lines_are_said_and_the_rest_counted(called, tmp_path):
    path = tmp_path / "odd.txt"
    text = (DATA / "all_reduce_g0_1.txt").read_text()
    path.write_text(text.replace(" Rank  1 ", " rank  1 "))

    result = called("import", "nccl-tests", path, "--cluster", "lab")

    lines = result.stderr.splitlines()
    assert len(lines) == 11
    assert lines[0].startswith(f"collbench: {path}: line 15: out of place busbw 0.01 GB/s, but")
    assert lines[-1] == "collbench: 14 more such lines"


def test_variables_that_differ_part_runs_and_files_that_tell_none_stand_apart(imported, tmp_path):
    ring = tmp_path / "ring.json"
    document = json.loads((DATA / "all_reduce_g0_1.json").read_text())
    ring.write_text(json.dumps(document | {"env": ["NCCL_ALGO=Ring", "AWS_SECRET_KEY=x"]}))

    found = imported("lab", DATA / "all_reduce_g0_1.json", ring, DATA / "all_reduce_g0_1.txt")

    assert [one.run.environment.variables for one in found] == [{}, {"NCCL_ALGO": "Ring"}, {}]
    assert [one.run.repeats for one in found] == [1, 1, 1]


def test_processes_of_mpi_have_the_ranks_of_all(imported, tmp_path):
    document = json.loads((DATA / "calls" / "all_reduce_iter.json").read_text())
    config = document["config"]
    (first,) = config["devices"]
    config["devices"] = [first | {"hostname": name, "rank": 2 * k} for k, name in enumerate("ab")]
    for result in document["results"]:
        for key in ("out_of_place", "in_place"):
            result[key]["bus_bw"] *= 1.5
            times = result[f"{key}_per_iter"]["times_us"]
            result[f"{key}_per_iter"]["per_process_max_times_us"] = [times, times[::-1]]
            result[f"{key}_per_iter"]["skipped_iterations"] = 10
    path = tmp_path / "mpi.json"
    path.write_text(json.dumps(document))

    (stored,) = imported("lab", path)

    places = [(p.rank, p.node, p.local_rank, p.gpu) for p in stored.topology.ranks]
    assert places == [(0, "a", 0, 0), (1, "a", 1, 1), (2, "b", 0, 0), (3, "b", 1, 1)]
    trial = stored.trials[-1]
    assert (trial.case.world_size, trial.case.nodes) == (4, 2)
    assert stored.times_us(trial).shape == (2, 40)
    assert trial.summary.busbw_gb_per_s == pytest.approx(1.5 * trial.summary.algbw_gb_per_s)


@pytest.mark.parametrize(
    ("option", "code"),
    [
        (["-a", "0"], "nccl_tests_rank_0"),
        (["--average=2"], "nccl_tests_least"),
        (["-a3"], "nccl_tests_most"),
        ([], "nccl_tests_mean"),
    ],
)
def test_a_note_says_over_what_the_time_is_taken(imported, tmp_path, option, code):
    document = json.loads((DATA / "all_reduce_g0_1.json").read_text())
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document | {"args": [*document["args"], *option]}))

    (stored,) = imported("lab", path)

    assert {note for trial in stored.trials for note in trial.notes} == {code}
    assert code in {finding.code for finding in stored.run.findings}


def test_import_alone_prints_its_help():
    result = CliRunner().invoke(cli, ["import"], standalone_mode=False)

    assert "nccl-tests" in result.stdout
    assert result.exception is None


def test_last_is_the_run_just_imported(imported, tmp_path):
    (stored,) = imported("lab", DATA / "all_reduce_g0_1.json")

    assert find_run("last", tmp_path / "runs") == stored.folder
