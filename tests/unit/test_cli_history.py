"""``collbench history``: what it prints, its exit status, what it refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from command_options import refusal_of
from history_runs import VERSIONS, history_run
from stored_runs import environment_of, law, put, stored_run, topology_of, trials_of

from collbench.cli import main
from collbench.cli.history_sides import read_sides, read_versions
from collbench.cli.library_folders import (
    install_command,
    libraries_folder,
    library_path,
    missing_releases,
)
from collbench.cli.readers import shown
from collbench.errors import UsageError
from collbench.model import LibraryVersion, Mode, Status
from collbench.store import read_run

GRAPH = Mode.GRAPH
SMALL = {"collectives": ("all_reduce", "all_gather"), "sizes": tuple(4**k for k in range(4, 12))}
SLOWER_NOW = {("all_reduce", GRAPH, 4**9, "2.32.3"): 1.12}
SLOWER_BEFORE = {("all_gather", Mode.EAGER, 4**5, "2.29.7"): 1.12}


def asked(*words: object):
    return CliRunner().invoke(main.cli, ["history", *map(str, words)], standalone_mode=False)


def kept(folder: Path, *runs) -> list[str]:
    """Stores runs, and returns the words that name their folder."""
    for stored in runs:
        put(stored, folder / "lab")
    return ["--results", str(folder)]


@pytest.fixture
def regressed(tmp_path) -> list[str]:
    return kept(tmp_path, history_run(planted=SLOWER_NOW | SLOWER_BEFORE, **SMALL))


def test_check_says_what_the_newest_made_slower_and_ends_with_1(regressed):
    done = asked("check", *regressed)
    assert done.return_value == 1
    text = done.output

    assert text.startswith("NCCL 2.32.3, the newest of 8 releases: 32 cases against 2.31.2: ")
    before, best = text.split("SLOWER than the best earlier", 1)
    assert "all_reduce graph 256 KiB" in before.split("SLOWER than 2.31.2 (1)", 1)[1]
    assert "all_gather eager 1 KiB" in best
    assert "both were measured in one go, interleaved" in text
    assert text.rstrip().endswith("next: collbench history bisect names the release of each change")


def test_check_of_an_earlier_release_takes_what_came_before_it(regressed):
    done = asked("check", "--new", "2.30.7", *regressed)

    assert done.return_value == 1  # all_gather since 2.29.7
    assert "NCCL 2.30.7, of 8 releases: 32 cases against 2.30.3" in done.output
    assert "256 KiB" not in done.output.split("Conclusion")[1]


def test_check_of_a_history_without_changes_ends_with_0(tmp_path):
    done = asked("check", *kept(tmp_path, history_run(repeats=5, **SMALL)))

    assert done.return_value == 0
    assert "nothing is slower: " in done.output


def test_an_improvement_stands_apart_and_is_no_regression(tmp_path):
    planted = {("all_reduce", GRAPH, 4**9, "2.32.3"): 0.85}
    done = asked("check", *kept(tmp_path, history_run(planted=planted, **SMALL)))

    assert done.return_value == 0
    assert "FASTER than 2.31.2 (1)" in done.output
    assert "SLOWER than" not in done.output


def test_too_few_repeats_say_how_many_more_and_by_which_command(tmp_path):
    words = kept(tmp_path, history_run(("2.28.9", "2.29.7"), repeats=2, **SMALL))
    done = asked("check", *words)
    assert done.return_value == 4
    assert done.output.strip() == (
        "NCCL 2.29.7, the newest of 2 releases: needs 3 more repeats: collbench history run"
        " --nccl 2.28.9,2.29.7 --repeats 5 (base and new)"
    )

    done = asked("bisect", *words)
    assert done.return_value == 4
    assert "cannot tell, too few repeats: needs 3 more of each release" in done.output


def test_bisect_names_the_release_of_each_change(regressed):
    done = asked("bisect", *regressed)
    lines = [" ".join(line.split()) for line in done.output.splitlines()]

    assert done.return_value == 0
    assert lines[0] == "NCCL 2.27.7 to 2.32.3 (8 releases): 2 slower, 0 faster in 32 cases"
    assert [line for line in lines if line.startswith("all_reduce graph 256 KiB 2.32.3 2.31.2 +")]
    assert [line for line in lines if line.startswith("all_gather eager 1 KiB 2.29.7 2.28.9 +")]


def test_json_is_one_object_with_every_release_and_change(regressed):
    found = json.loads(asked("check", "--json", *regressed).output)
    (history,) = found["histories"]
    assert found["schema"] == "collbench.history/1"
    assert found["exit_code"] == 1
    assert [one["version"] for one in history["releases"]] == list(VERSIONS)
    assert (history["new"], history["before"], history["regressed"]) == ("2.32.3", "2.31.2", True)
    assert [one["collective"] for one in history["against_best"]] == ["all_gather"]

    (history,) = json.loads(asked("bisect", "--json", *regressed).output)["histories"]
    assert {(one["collective"], one["changed_with"]) for one in history["changes"]} == {
        ("all_reduce", "2.32.3"),
        ("all_gather", "2.29.7"),
    }

    (history,) = json.loads(asked("show", "--json", *regressed).output)["histories"]
    assert len(history["cases"]) == 32
    assert len(history["cases"][0]["times_us"]["2.27.7"]) == 3


def test_show_prints_a_column_a_release_marks_changes_and_draws(regressed, tmp_path):
    done = asked("show", "--plot", tmp_path / "pictures", *regressed)
    rows = {" ".join(line.split()) for line in done.output.splitlines()}

    assert f"size {' '.join(VERSIONS)}" in rows
    (marked,) = [row for row in rows if row.startswith("256 KiB") and row.endswith("+")]
    assert len(marked.split()) == 10
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {
        "history.png",
        "history.svg",
    }
    svg = (tmp_path / "pictures" / "history.svg").read_text()
    assert all(version in svg for version in VERSIONS)
    assert "+12 %" in svg or "+11 %" in svg or "+13 %" in svg


def test_mixed_hardware_is_separate_and_said(tmp_path):
    other = history_run(run_id="h100", run={"topology": topology_of(model="NVIDIA H100")}, **SMALL)
    words = kept(tmp_path, history_run(**SMALL), other)
    done = asked("check", *words)

    assert done.output.count("the newest of 8 releases") == 2
    assert "2 histories: they differ in hardware" in done.output


def test_one_release_is_no_history_and_the_way_to_more_is_said(tmp_path):
    words = kept(tmp_path, history_run(("2.28.9",), **SMALL))

    text = refusal_of(asked_raising, "check", *words)
    assert text == (
        "a history needs 2 releases of NCCL, and there is 2.28.9; measure more: collbench history"
        " run --nccl 2.28.9,2.29.7"
    )


def asked_raising(*words: object) -> None:
    done = asked(*words)
    if done.exception is not None:
        raise done.exception


def test_what_keeps_releases_apart_is_named_with_the_option_that_joins_them(tmp_path):
    runs = [
        stored_run(
            trials_of(law(10, 100)), f"run-{nccl}", environment=environment_of(nccl, torch=torch)
        )
        for nccl, torch in (("2.28.9", "2.11.0"), ("2.29.7", "2.13.0"))
    ]
    words = kept(tmp_path, *runs)

    text = refusal_of(asked_raising, "check", *words)
    assert "in 2 histories that differ in torch 2.11.0 / 2.13.0 (--across torch joins them)" in text
    assert asked("check", "--across", "torch", *words).return_value == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--axis", "ncl"], "--axis 'ncl' is not allowed; did you mean 'nccl'?"),
        (["--across", "torch,os"], "--across 'os' is not allowed; allowed: nccl, plugin, torch"),
        (["--new", "2.99.1"], "no history holds NCCL 2.99.1; releases there are: 2.27.7, 2.28.3"),
        (["--new", "2.27.7"], "has no release before it with a case in common"),
        (["--threshold", "x"], "--threshold: "),
    ],
)
def test_wrong_words_are_one_line(regressed, words, said):
    assert said in refusal_of(asked_raising, "check", *words, *regressed)


def test_simulated_and_planted_runs_are_left_out_unless_asked_for(tmp_path):
    model = history_run(run_id="model", run={"simulated": True}, **SMALL)
    plant = history_run(run_id="plant", run={"planted": "wrong_element"}, **SMALL)
    words = kept(tmp_path, model, plant)

    text = refusal_of(asked_raising, "check", *words)
    assert "1 run simulated: --simulated reads these" in text
    assert "1 run with a planted fault" in text
    done = asked("check", "--simulated", *words)
    assert done.output.startswith("SIMULATED: ")


def test_an_empty_store_says_what_makes_runs(tmp_path):
    assert refusal_of(asked_raising, "check", "--results", str(tmp_path)) == (
        f"no measured run of cases in '{tmp_path}'; 'collbench history run', 'sweep' and 'import"
        " nccl-tests' make them"
    )


def test_releases_by_number_and_libraries_by_path_stand_side_by_side(tmp_path):
    sides = read_sides(["2.28.9,2.29.7", "ours=/opt/libnccl.so.2,plugin=/o/net.so"], tmp_path, "13")

    assert sides.versions == ("2.28.9", "2.29.7")
    assert sides.texts == (
        f"2.28.9={tmp_path}/cu13-2.28.9/nvidia/nccl/lib/libnccl.so.2",
        f"2.29.7={tmp_path}/cu13-2.29.7/nvidia/nccl/lib/libnccl.so.2",
        "ours=/opt/libnccl.so.2,plugin=/o/net.so",
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["2.28.9"], "a history takes two releases or more, and 1 is given"),
        ([], "a history takes two releases or more, and 0 is given"),
        (["2.28,2.29.7"], "'2.28' is no release of NCCL; write for instance 2.29.7"),
        (["2.28.9,2.28.9"], "release 2.28.9 is given twice; give each once"),
    ],
)
def test_sides_that_cannot_be(texts, said):
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        read_sides(texts, Path("/libs"), "13")


def test_where_releases_are_installed_and_which_are_missing(tmp_path):
    assert libraries_folder(None, {"XDG_CACHE_HOME": "/c"}) == Path("/c/collbench/nccl")
    assert libraries_folder(None, {"COLLBENCH_NCCL_FOLDER": "/n"}) == Path("/n")
    assert libraries_folder("/o", {"COLLBENCH_NCCL_FOLDER": "/n"}) == Path("/o")
    there = library_path(tmp_path, "2.28.9", "13")
    there.parent.mkdir(parents=True)
    there.touch()

    assert missing_releases(tmp_path, ["2.28.9", "2.29.7"], "13") == ["2.29.7"]
    assert read_versions(" 2.28.9 ,2.29.7") == ("2.28.9", "2.29.7")
    assert install_command(Path("/n"), ["2.29.7"], "12") == (
        "collbench history install 2.29.7 --cuda 12 --libraries /n"
    )


def test_a_stored_run_of_the_command_shows_and_draws_its_history(regressed, tmp_path):
    run = CliRunner().invoke
    done = run(main.cli, ["show", *regressed], standalone_mode=False)
    assert "NCCL 2.32.3, the newest of 8 releases" in done.output

    done = run(main.cli, ["plot", "-o", str(tmp_path / "p"), *regressed], standalone_mode=False)
    names = {path.name for path in (tmp_path / "p").iterdir()}
    assert "20261130-1200-aaaa-history.png" in names
    assert "20261130-1200-aaaa.png" in names


def test_a_release_whose_folder_holds_another_is_refused(tmp_path):
    for version in ("2.28.9", "2.29.7"):
        path = library_path(tmp_path, version, "13")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\x7fELF NCCL version 2.28.9+cuda13.0 compiled ncclGetUniqueId")
    done = asked("run", "--nccl", "2.28.9,2.29.7", "--libraries", tmp_path, "--dry-run")

    assert isinstance(done.exception, UsageError)
    assert "is NCCL 2.28.9, not 2.29.7; remove that folder" in str(done.exception)


def test_a_missing_release_is_named_with_the_command_that_installs_it(tmp_path):
    done = asked("run", "--nccl", "2.28.9,2.29.7", "--libraries", tmp_path, "--dry-run")

    assert f"first collbench history install 2.28.9,2.29.7 --libraries {tmp_path}" in str(
        done.exception
    )


def test_on_several_nodes_nobody_installs(tmp_path):
    words = ["--nodes", "2", "--node-rank", "0", "--rendezvous", "127.0.0.1:1"]
    done = asked("run", "--nccl", "2.28.9,2.29.7", "--libraries", tmp_path, *words)

    assert "install it once, where all nodes see it: collbench history install" in str(
        done.exception
    )
    assert not list(tmp_path.iterdir())


def test_an_imported_result_of_nccl_tests_is_history_too(tmp_path):
    sizes = tuple(4**k for k in range(4, 12))
    runs = [
        stored_run(
            trials_of(law(10, rate), sizes=sizes),
            f"imported-{nccl}",
            command="nccl-tests",
            environment=environment_of(nccl, torch=None),
        )
        for nccl, rate in (("2.28.9", 100), ("2.29.7", 80))
    ]
    done = asked("check", *kept(tmp_path, *runs))

    assert done.return_value == 1
    assert "not measured in one go" in done.output


def test_what_is_handed_over_begins_with_the_answer(tmp_path):
    folder = put(history_run(planted=SLOWER_NOW, **SMALL), tmp_path)
    first, *rest = shown(read_run(folder)).conclusion()

    assert first.startswith(
        "NCCL 2.32.3, the newest of 8 releases: 1 of 32 cases is slower than 2.31.2; most of all"
        " all_reduce graph 256 KiB: +"
    )
    assert rest[0] == "next: collbench history bisect names the release of each change"
    assert not [line for line in rest if "base -> new" in line]


def changed(stored, run_id: str, status=None, **keep):
    """A run's trials of some cases under another id, or with another end."""
    trials = []
    for trial in stored.trials:
        if keep.get("only", trial.case.collective) == trial.case.collective:
            version = trial.case.setting["nccl"]
            if status is not None and version == keep["of"]:
                if trial.case.collective != keep.get("collective", trial.case.collective):
                    trials.append(trial)
                    continue
                trial = msgspec.structs.replace(trial, status=status, summary=None)
            trials.append(trial)
    run = msgspec.structs.replace(stored.run, run_id=run_id)
    return dataclasses.replace(stored, run=run, trials=tuple(trials), folder=Path(run_id))


TWO = ("2.29.7", "2.30.7")
SLOWER_AT_ONCE = {("all_reduce", GRAPH, 4**9, "2.30.7"): 1.5}
OWN = {"collectives": ("broadcast",), "sizes": (4096,)}


def test_cases_that_no_longer_work_fail_the_gate(tmp_path):
    run = changed(
        history_run(TWO, repeats=5, **SMALL),
        "failing",
        Status.FAILED,
        of="2.30.7",
        collective="all_gather",
    )
    done = asked("check", *kept(tmp_path, run))

    assert done.return_value == 1
    assert "NO LONGER OK, ok on 2.29.7 (16)" in done.output
    assert "16 cases that were ok on 2.29.7 are so no more (failed)" in done.output
    (history,) = json.loads(asked("check", "--json", "--results", str(tmp_path)).output)[
        "histories"
    ]
    assert len(history["no_longer_ok"]) == 16
    assert history["regressed"]


def test_a_release_on_which_nothing_works_fails_the_gate_too(tmp_path):
    run = changed(history_run(TWO, repeats=5, **SMALL), "dead", Status.HUNG, of="2.30.7")
    done = asked("check", *kept(tmp_path, run))

    assert done.return_value == 1
    assert "are so no more (hung)" in done.output


def test_cases_that_were_not_measured_are_named(tmp_path):
    whole = history_run(TWO, repeats=5, **SMALL)
    part = changed(whole, "part", only="all_reduce")
    old = changed(history_run(("2.29.7",), repeats=5, **SMALL), "old")
    done = asked("check", *kept(tmp_path, part, old))

    assert done.return_value == 0
    assert "Not measured on 2.30.7 (16)" in done.output
    assert "16 were not measured on 2.30.7" in done.output


def test_other_numbers_of_repeats_hide_nothing(tmp_path):
    """A second run of the old release adds repeats to half of the cases."""
    slower = {("all_reduce", GRAPH, 4**9, "2.30.7"): 1.5}
    both = history_run(TWO, repeats=5, planted=slower, **SMALL)
    more = changed(history_run(("2.29.7",), repeats=5, seed=3, **SMALL), "more", only="all_gather")
    done = asked("check", *kept(tmp_path, both, more))

    assert done.return_value == 1
    assert "all_reduce graph 256 KiB" in done.output


def test_cases_of_runs_that_hold_one_release_each_are_compared_too(tmp_path):
    slow = {
        ("all_gather", when, size, "2.30.7"): 1.5
        for when in (GRAPH, Mode.EAGER)
        for size in SMALL["sizes"]
    }
    both = changed(history_run(TWO, repeats=5, **SMALL), "both", only="all_reduce")
    old = changed(history_run(TWO, repeats=5, planted=slow, **SMALL), "x", only="all_gather")
    parts = [
        dataclasses.replace(
            old,
            run=msgspec.structs.replace(old.run, run_id=version),
            trials=tuple(t for t in old.trials if t.case.setting["nccl"] == version),
        )
        for version in TWO
    ]
    done = asked("check", *kept(tmp_path, both, *parts))

    assert done.return_value == 1
    assert "16 of 32 cases are slower than 2.29.7" in done.output
    assert "not measured in one go" in done.output


def test_one_history_that_cannot_be_judged_does_not_hide_another(tmp_path):
    slower = history_run(
        TWO, repeats=5, planted={("all_reduce", GRAPH, 4**9, "2.30.7"): 1.5}, **SMALL
    )
    other = history_run(
        TWO, run_id="h100", run={"topology": topology_of(model="NVIDIA H100")}, **SMALL
    )
    apart = dataclasses.replace(
        other,
        trials=tuple(
            t
            for t in other.trials
            if (t.case.setting["nccl"] == "2.29.7") is (t.case.collective == "all_reduce")
        ),
    )
    done = asked("check", *kept(tmp_path, slower, apart))

    assert done.return_value == 1
    assert "has no release before it with a case in common" in done.output


def test_a_newest_release_with_cases_of_its_own_alone_is_passed_over(tmp_path):
    own = history_run(
        ("2.31.2",), run_id="own", repeats=5, collectives=("broadcast",), sizes=(4096,)
    )
    slower = history_run(
        TWO, repeats=5, planted={("all_reduce", GRAPH, 4**9, "2.30.7"): 1.5}, **SMALL
    )
    done = asked("check", *kept(tmp_path, slower, own))

    assert done.return_value == 1
    assert done.output.startswith("NCCL 2.30.7, of 3 releases")
    assert "2.31.2 is newer and shares no case with earlier releases" in done.output


def test_a_copied_run_counts_once(tmp_path):
    run = history_run(TWO, repeats=2, **SMALL)
    put(run, tmp_path / "elsewhere")
    done = asked("check", *kept(tmp_path, run))

    assert done.return_value == 4
    assert "left out: 1 run that is there twice" in done.output


def test_two_builds_of_one_release_are_two_releases(tmp_path):
    run = history_run(("2.29.7", "ours"), repeats=5, **SMALL)
    libraries = {name: LibraryVersion(version="2.29.7+cuda13.0") for name in ("2.29.7", "ours")}
    environment = msgspec.structs.replace(run.run.environment, libraries=libraries)
    run = dataclasses.replace(run, run=msgspec.structs.replace(run.run, environment=environment))
    done = asked("check", *kept(tmp_path, run))

    assert done.output.startswith("NCCL 2.29.7 (ours), the newest of 2 releases: 32 cases against")


def test_releases_and_paths_in_one_option_are_told_apart(tmp_path):
    with pytest.raises(UsageError, match=r"write --nccl 2\.29\.7 --nccl ours=PATH"):
        read_sides(["2.29.7,ours=/opt/libnccl.so.2"], tmp_path, "13")


def test_a_library_that_is_not_there_is_said_before_anything_is_installed(tmp_path):
    words = ["--nccl", "2.29.7", "--nccl", "ours=/nowhere/libnccl.so.2"]
    done = asked("run", *words, "--libraries", tmp_path / "n")

    assert str(done.exception).startswith("--nccl: /nowhere/libnccl.so.2 cannot be read")
    assert not (tmp_path / "n").exists()
