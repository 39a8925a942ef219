"""``collbench compare``: which runs it takes, which it refuses, its exit status, its outputs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from setting_trials import RING_LL, TREE, ended, under
from stored_runs import environment_of, law, put, stored_run, topology_of, trials_of

from collbench.cli import main
from collbench.model import ReasonCode, Status

BASE, SLOW = law(10, 100), law(10, 88)
RESULTS = Path(__file__).parents[2] / "results"
RING = {"NCCL_ALGO": "Ring"}


@pytest.fixture
def root(tmp_path) -> Path:
    """A cluster's runs: before, after, alike, single repeats, other hardware, another question."""
    lab = tmp_path / "lab"
    put(stored_run(trials_of(BASE), "before"), lab)
    slow = environment_of("2.31.2")
    put(stored_run(trials_of(SLOW), "after", environment=slow), lab)
    put(stored_run(trials_of(BASE), "alike"), lab)
    put(stored_run(trials_of(BASE, repeats=1), "once"), lab)
    put(stored_run(trials_of(BASE), "h100", topology=topology_of(model="NVIDIA H100")), lab)
    put(stored_run(trials_of(BASE, name="broadcast"), "other"), lab)
    put(stored_run(trials_of(BASE), "model", simulated=True), lab)
    put(stored_run(trials_of(BASE), "planted", planted="wrong_element"), lab)
    for k in range(5):
        put(stored_run(trials_of(SLOW, repeats=1), f"slow{k}"), tmp_path / "slow")
    return tmp_path


@pytest.fixture
def settings(tmp_path) -> Path:
    """A run of three settings, of which the last cannot be."""
    trials = [
        *trials_of(BASE),
        *(
            under(TREE, trial.case.size_bytes, 2 * trial.summary.median_us, repeat=trial.repeat)
            for trial in trials_of(BASE)
            if trial.summary is not None
        ),
    ]
    illegal = [
        ended(under({"NCCL_ALGO": "PAT"}, 8, 1.0), Status.UNSUPPORTED, ReasonCode.ILLEGAL, "no")
    ]
    return put(stored_run([*illegal, *trials], "settings"), tmp_path / "lab")


def compared(*arguments, root=None):
    words = ["compare", *map(str, arguments)]
    words += ["--results", str(root)] if root is not None else []
    return CliRunner().invoke(main.cli, words, standalone_mode=False)


@pytest.fixture
def run(capsys):
    """Returns what runs the command line as a user does: (status, stdout, stderr)."""

    def called(*arguments):
        with pytest.raises(SystemExit) as end:
            main.run(["compare", *map(str, arguments)])
        written = capsys.readouterr()
        return end.value.code, written.out, written.err

    return called


@pytest.mark.parametrize(
    ("arguments", "status", "counts"),
    [
        (["before", "alike"], 0, "0 SLOWER, 0 FASTER, 10 SAME, 0 UNCLEAR"),
        (["before", "after"], 0, "2 SLOWER, 0 FASTER, 8 SAME, 0 UNCLEAR"),
        (["before", "after", "--fail-on", "slower"], 1, "2 SLOWER, 0 FASTER, 8 SAME, 0 UNCLEAR"),
        (["after", "before", "--fail-on", "slower"], 0, "0 SLOWER, 2 FASTER, 8 SAME, 0 UNCLEAR"),
        (["before", "after", "--threshold", "15%"], 0, "0 SLOWER, 0 FASTER, 10 SAME, 0 UNCLEAR"),
        (["before", "after", "--threshold", "0.15"], 0, "0 SLOWER, 0 FASTER, 10 SAME, 0 UNCLEAR"),
        (["before", "planted"], 0, "0 SLOWER, 0 FASTER, 10 SAME, 0 UNCLEAR"),
        (["before", "h100", "--force"], 0, "0 SLOWER, 0 FASTER, 10 SAME, 0 UNCLEAR"),
    ],
)
def test_verdicts_and_exit_status(run, root, arguments, status, counts):
    code, out, err = run(*arguments, "--results", root)

    assert (code, err) == (status, "")
    assert out.splitlines()[0].endswith(f": 10 cases, 5 repeats each: {counts}")


def test_a_folder_of_runs_adds_its_repeats(run, root):
    code, out, _ = run(root / "lab" / "before", root / "slow", "--fail-on", "slower")

    assert code == 1
    assert out.startswith(f"5 runs in {root / 'slow'} against run before: 10 cases, 5 repeats each")


@pytest.mark.parametrize("format_", [[], ["--markdown"]])
def test_too_few_repeats_are_one_line_and_status_4(run, root, format_):
    code, out, err = run("before", "once", "--results", root, "--fail-on", "slower", *format_)

    assert (code, err) == (4, "")
    assert out == "needs 4 more repeats: collbench sweep --repeats 5 (new)\n"


def test_nothing_told_is_status_4(run, tmp_path):
    wild = trials_of(BASE, noise=0.3)
    put(stored_run(wild, "a"), tmp_path / "lab")
    put(stored_run(wild, "b"), tmp_path / "lab")
    code, out, _ = run("a", "b", "--results", tmp_path)

    assert code == 4
    assert "0 SLOWER, 0 FASTER, 0 SAME, 10 UNCLEAR (noisy)" in out


def test_json_is_one_object_and_carries_the_exit_status(run, root):
    code, out, err = run("before", "after", "--json", "--fail-on", "slower", "--results", root)
    document = json.loads(out)

    assert (code, err) == (1, "")
    assert document["schema"] == "collbench.comparison/1"
    assert document["exit_code"] == 1
    assert document["counts"]["SLOWER"] == 2


def test_markdown(run, root):
    _, out, _ = run("before", "after", "--markdown", "--results", root)

    assert out.startswith("**NCCL 2.31.2 against 2.30.7: 10 cases, 5 repeats each: 2 SLOWER")
    assert "## SLOWER (2)" in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["before", "nowhere"], "no run 'nowhere' in '"),
        (["before", "before"], "run before is on both sides; give two runs, or leave NEW out"),
        (["before", "h100"], "have different shapes: hardware: NVIDIA H200 -> NVIDIA H100;"),
        (["before", "other"], "no case in common: collective is all_reduce against broadcast;"),
        (["before", "model"], "run model is simulated and run before is not"),
        (["before", "model", "--force"], "run model is simulated and run before is not"),
        (["before", "other", "--markdown", "--json"], "--markdown and --json were both given"),
        (
            ["before", "after", "--threshold", "3 percent"],
            "--threshold: share '3 percent' is not a share",
        ),
        (["before", "after", "--new", "Ring"], "--new 'Ring' is no setting of run after; allowed"),
        (["before"], "run before has 1 setting; give a second run as NEW"),
        (["before", "after", "--fail-on", "faster"], "'faster' is not 'slower'"),
        ([], "missing argument 'BASE'"),
    ],
)
def test_bad_input_is_one_line(run, root, arguments, words):
    code, out, err = run(*arguments, "--results", root)

    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_a_setting_without_times_is_named_with_its_end(run, tmp_path):
    lost = [
        ended(under(RING_LL, 1024, 9.0, repeat=repeat), Status.FAILED, ReasonCode.RAISED, "no")
        for repeat in range(5)
    ]
    put(stored_run([*trials_of(BASE), *lost], "half"), tmp_path / "lab")
    code, _, err = run("half", "--results", tmp_path)

    assert code == 2
    assert "run half has 1 setting (no case of Ring/LL is ok: 5 failed); give a second" in err


def test_a_side_of_unlike_runs_names_the_odd_one(run, root):
    put(stored_run(trials_of(SLOW), "odd", backend="gloo"), root / "slow")
    code, _, err = run("before", root / "slow", "--results", root)

    assert code == 2
    assert "run odd has another shape than the 5 other runs of its side (back end gloo" in err


@pytest.mark.parametrize(
    "options", [[], ["--new", "Tree/Simple"], ["--base", "default"], ["--base=default"]]
)
def test_the_two_settings_of_a_run(settings, options):
    result = compared(settings, *options)

    assert result.return_value == 0
    assert result.stdout.startswith("Tree/Simple against default: 10 cases, 5 repeats each: 10 SL")


def test_settings_the_other_way_round(settings):
    result = compared(settings, "--base", "Tree/Simple", "--new", "default")

    assert result.stdout.startswith("default against Tree/Simple: 10 cases, 5 repeats each: 0 SLO")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--new", "Tree/Simpl"], "no setting of run settings; did you mean 'Tree/Simple'?"),
        (["--base", "default", "--new", "default"], "--base and --new are both 'default'"),
        (["--new", "PAT"], "--new 'PAT' is no setting of run settings; allowed: 'default', 'Tree"),
    ],
)
def test_settings_that_cannot_be(settings, options, words):
    assert words in str(compared(settings, *options).exception)


def test_of_more_than_two_settings_both_are_named(tmp_path):
    trials = [under(one, 8, 9.0 + r, repeat=r) for one in ({}, RING, TREE) for r in range(3)]
    folder = put(stored_run(trials, "three"), tmp_path / "lab")
    problem = str(compared(folder).exception)

    assert problem == (
        "run three has 3 settings; name two with --base and --new, of: 'default', 'Ring',"
        " 'Tree/Simple'"
    )
    assert compared(folder, "--new", "Ring").return_value == 4
    assert compared(folder, "--base", "Ring").exception is not None


def test_a_setting_of_each_of_two_runs(settings, root):
    result = compared("before", settings, "--new", "Tree/Simple", root=root)

    assert result.return_value == 0
    assert "10 SLOWER" in result.stdout.splitlines()[0]


def test_what_is_damaged_is_said_and_the_rest_is_compared(run, root):
    with (root / "lab/after/trials.jsonl").open("ab") as lines:
        lines.write(b'{"schema": 1, "trial_')
    code, out, err = run("before", "after", "--results", root)

    assert code == 0
    assert err.startswith("collbench: after: trials.jsonl line 51: cut off")
    assert "2 SLOWER" in out


def test_one_kind_of_gpu_on_other_hosts_is_one_shape(run, root):
    place = topology_of()
    there = [msgspec.structs.replace(node, name="elsewhere") for node in place.nodes]
    ranks = [msgspec.structs.replace(rank, node="elsewhere") for rank in place.ranks]
    moved = msgspec.structs.replace(place, nodes=there, ranks=ranks)
    put(stored_run(trials_of(BASE), "moved", topology=moved), root / "lab")
    code, out, _ = run("before", "moved", "--results", root)

    assert code == 0
    assert "  nothing that was recorded: shape, software and measuring are the same" in out
    assert "elsewhere" not in out
    assert "secret-host" not in out


def test_reference_runs_through_torch_and_native():
    runs = RESULTS / "2xh200"
    result = compared(runs / "20261130-0635-3947", runs / "20261130-0929-1943")
    lines = result.stdout.splitlines()

    assert result.return_value == 0
    assert lines[0].startswith(
        "run 20261130-0929-1943 against run 20261130-0635-3947: 45 cases, 20 and 3 repeats: "
    )
    # NCCL's own buffers are registered, torch's are not.
    row = next(line for line in lines if "all_gather graph" in line and " 256 MiB " in line)
    assert row.split()[4:8] == ["550.3", "->", "440.0", "-20.0"]
    assert "  software: via torch -> native" in lines
