"""``collbench ab``: its sides, its defaults, its answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner
from records import make_run
from setting_trials import TREE, ended, under

from collbench.cli import ab_run, main
from collbench.cli.ab import ab
from collbench.cli.ab_run import _Comparing, with_defaults
from collbench.cli.ab_sides import said_in, sides_lines, threshold_of
from collbench.errors import ExitCode, UsageError
from collbench.model import ReasonCode, Status, Topology
from collbench.store import StoredRun


@pytest.fixture
def tell(capsys):
    def called(*arguments):
        with pytest.raises(SystemExit) as end:
            main.run(["ab", *arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return called


@pytest.fixture
def passed(monkeypatch):
    """Returns what a command line hands to the sweep: its parameters and its conclusion."""
    seen = []
    monkeypatch.setattr(ab_run, "run_sweep", lambda _, given, end: seen.append((given, end)) or 0)

    def given(*arguments):
        result = CliRunner().invoke(ab, list(arguments), standalone_mode=False)
        if result.exception:
            raise result.exception
        return seen.pop()

    return given


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        ((), {"repeats": "5", "via": None}),
        (("--repeats", "3"), {"repeats": "3"}),
        (("--nccl", "old=/a", "--nccl", "new=/b"), {"via": "native"}),
        (("--nccl", "old=/a", "--via", "torch"), {"via": "torch"}),
        (("--nccl", "/a"), {"via": None}),
        (("--resume", "last"), {"repeats": "5"}),
    ],
)
def test_five_repeats_and_the_native_back_end_where_libraries_have_names(
    passed, arguments, changed
):
    given, conclusion = passed(*arguments)

    assert {name: given[name] for name in changed} == changed
    assert conclusion.command == "ab"
    assert not {"threshold", "fail_on"} & given.keys()


def test_a_suite_that_says_its_repeats_keeps_them(tmp_path):
    suite = tmp_path / "mine.toml"
    suite.write_text("[run]\nrepeats = 7\n")
    given = {"suite": str(suite), "repeats": None, "nccl": (), "via": None}

    assert with_defaults(given)["repeats"] is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--threshold", "3x"), "--threshold: share '3x' is not a share; write 2% or 0.02"),
        (("--fail-on", "faster"), "--fail-on: 'faster' is not allowed; allowed: slower"),
        (("--setting", "default"), "ab holds sides against each other and one is given; name two"),
        ((), "ab holds sides against each other and one is given; name two or more"),
        (
            ("--setting", "ib=on", "--setting", "ib=off", "--ib", "on"),
            "--setting and an option of its own both say ib; say it in one place",
        ),
        (("--nccl", "/a", "--nccl", "b=/b"), "--nccl: '/a': several libraries have a name"),
    ],
)
def test_what_cannot_be_gets_one_line(tell, arguments, text):
    status, out, err = tell(*arguments)

    assert (status, out) == (ExitCode.USAGE, "")
    assert err.startswith(f"collbench: {text}")
    assert err.count("\n") == 1


def stored(factor, *, argv=("ab",), repeats=5):
    """A run of two settings, the second ``factor`` times as slow."""
    trials = [
        under(setting, size, times * (10 + size / 1e4) * (1 + 0.002 * repeat), repeat=repeat)
        for size in (2**power for power in range(10, 26, 2))
        for setting, times in (({}, 1.0), (TREE, factor))
        for repeat in range(repeats)
    ]
    run = make_run(
        command="ab",
        argv=list(argv),
        suite={"settings": [{}, TREE]},
        repeats=5,
        seed=7,
        planned_trials=len(trials),
    )
    return StoredRun(
        folder=None, run=run, topology=Topology(nodes=[]), trials=tuple(trials), problems=()
    )


@pytest.mark.parametrize(
    ("factor", "fail_on_slower", "codes", "status"),
    [
        (1.2, True, ["slower"], ExitCode.CONFIRMED_BAD),
        (1.2, False, [], ExitCode.FINE),
        (0.8, True, [], ExitCode.FINE),
    ],
)
def test_slower_is_an_answer_where_it_is_asked_for(factor, fail_on_slower, codes, status):
    conclusion = _Comparing(0.03, fail_on_slower=fail_on_slower)
    found = conclusion.findings(stored(factor))

    assert [finding.code for finding in found] == codes
    assert conclusion.settled(ExitCode.FINE) is status
    assert conclusion.settled(ExitCode.NOTHING_MEASURED) is ExitCode.NOTHING_MEASURED


def test_each_side_is_held_against_the_first():
    lines = _Comparing(0.03, fail_on_slower=False).lines(stored(1.2))

    assert lines[0].startswith("Tree/Simple against default: 8 cases, 5 repeats each: 8 SLOWER")


def test_a_stored_command_line_has_the_defaults_when_it_is_read_again():
    with ab.make_context("ab", ["--nccl", "old=/a", "--nccl", "new=/b"]) as before:
        assert (before.params["repeats"], before.params["via"]) == ("5", "native")


@pytest.mark.parametrize(
    ("argv", "threshold"),
    [
        (["ab"], 0.03),
        (["ab", "--threshold", "5%"], 0.05),
        (["ab", "--threshold=0.1", "-b", "8"], 0.1),
    ],
)
def test_a_stored_run_is_held_to_its_own_threshold(argv, threshold):
    run = stored(1.2, argv=argv)

    assert threshold_of(run) == threshold
    assert _Comparing(None, fail_on_slower=False).lines(run) == sides_lines(run, threshold)


def test_a_run_that_goes_on_fails_on_what_it_was_to_fail_on():
    conclusion = _Comparing(None, fail_on_slower=False)
    found = conclusion.findings(stored(1.2, argv=["ab", "--fail-on", "slower"]))

    assert [finding.code for finding in found] == ["slower"]


@pytest.mark.parametrize(
    ("argv", "value"),
    [([], None), (["--a", "1", "--a", "2"], "2"), (["--ab", "1"], None), (["--a"], None)],
)
def test_the_last_value_of_an_option_counts(argv, value):
    assert said_in(argv, "--a") == value


def test_where_nothing_can_be_told_the_status_is_4():
    conclusion = _Comparing(0.03, fail_on_slower=True)
    run = stored(1.2, repeats=2)

    assert conclusion.findings(run) == []
    assert conclusion.settled(ExitCode.FINE) is ExitCode.INCOMPLETE
    assert conclusion.lines(run) == [
        "needs 3 more repeats: collbench ab --repeats 5 (base and new)"
    ]


def test_a_side_without_times_is_named_with_its_end():
    run = stored(1.2)
    lost = [
        ended(trial, Status.FAILED, ReasonCode.RAISED, "no")
        if trial.case.setting == TREE
        else trial
        for trial in run.trials
    ]

    assert sides_lines(replace(run, trials=tuple(lost)), 0.03) == [
        "Tree/Simple against default: not compared: no case of Tree/Simple is ok (40 failed)"
    ]


def test_a_single_side_is_refused():
    with pytest.raises(UsageError, match="one is given"):
        _Comparing(0.03, fail_on_slower=False).check([{}])
