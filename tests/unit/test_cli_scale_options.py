"""The options of ``scale``: what they mean, what contradicts what, and a run that goes on."""

from __future__ import annotations

from types import SimpleNamespace

import click
import msgspec
import pytest
from click.testing import CliRunner
from command_options import (
    LAUNCH,
    changed_in,
    kept_by,
    names_of,
    options_of,
    put_run,
    refusal_of,
    words,
)
from stored_runs import stored_run

from collbench.cli.launch_options import launch_options
from collbench.cli.scale import scale
from collbench.cli.scale_options import (
    ScaleRequest,
    build_scale,
    refuse_another_question,
    scale_options,
    with_options_of_before,
)
from collbench.cli.scale_prepare import refuse_long
from collbench.errors import RunNotFound
from collbench.plan.scale_design import Estimate
from collbench.suite import Suite


@click.command(name="scale")
@scale_options
@launch_options
def fake_scale(**given):
    """Keeps the request instead of running it."""
    context = click.get_current_context()
    given, argv = with_options_of_before(context, given)
    context.obj.append((build_scale(given), argv))


def ask_with(*arguments) -> tuple[ScaleRequest, str | None]:
    return kept_by(fake_scale, *arguments)


def ask(*arguments) -> ScaleRequest:
    return ask_with(*arguments)[0]


OWN = {
    "--topology",
    "--from-pairwise",
    "--patterns",
    "--step",
    "--redraws",
    "--size",
    "--max-oversubscription",
    "--yes",
}
SHARED = {
    "-N/--repeats",
    "--backend",
    "-g/--gpus",
    "--via",
    "--nccl",
    "--fake-hosts",
    "--expect-gpus",
    "--seed",
    "-c/--check",
    "-T/--deadline",
    "--init-deadline",
    "--cluster",
    "--results",
    "--json",
    "--dry-run",
    "--resume",
    "--simulate",
    "--plant",
}


def test_the_options_are_these():
    assert names_of(scale) == OWN | SHARED | LAUNCH
    assert [one.name for one in options_of(scale) if one.hidden] == ["plant"]


def test_every_shown_option_has_a_help_text():
    text = CliRunner().invoke(scale, ["--help"]).output

    for option in (OWN | SHARED) - {"--plant"}:
        assert option.rpartition("/")[2] in text
    assert all(one.help for one in options_of(scale))


def test_without_options_everything_is_chosen_later():
    assert ask() == ScaleRequest(
        suite=Suite(name="scale"),
        topology=None,
        from_pairwise=None,
        patterns=None,
        step=None,
        repeats=None,
        redraws=None,
        size_bytes=None,
        max_oversubscription=None,
        yes=False,
        expect_gpus=None,
        simulate=None,
        plant=None,
        resume=None,
        results=None,
        cluster=None,
        as_json=False,
        dry_run=False,
    )


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--topology", "leaves.txt"], "topology", "leaves.txt"),
        (["--from-pairwise", "last"], "from_pairwise", "last"),
        (["--patterns", "pairs,half"], "patterns", ("pairs", "half")),
        (["--step", "auto"], "step", None),
        (["--step", "4"], "step", 4),
        (["--redraws", "3"], "redraws", 3),
        (["--size", "64M"], "size_bytes", 64 * 2**20),
        (["--max-oversubscription", "2"], "max_oversubscription", 2.0),
        (["--max-oversubscription", "1.5:1"], "max_oversubscription", 1.5),
        (["--yes"], "yes", True),
        (["--expect-gpus", "8"], "expect_gpus", 8),
        (["--simulate", "fabric.toml"], "simulate", "fabric.toml"),
        (["--plant", "stop:rank=1,call=12"], "plant", "stop:rank=1,call=12"),
        (["--results", "out"], "results", "out"),
        (["--cluster", "blue"], "cluster", "blue"),
        (["--json"], "as_json", True),
        (["--dry-run"], "dry_run", True),
    ],
    ids=words,
)
def test_an_option_says_one_thing(arguments, field, value):
    request, without = ask(*arguments), ask()

    assert getattr(request, field) == value
    assert changed_in(request, without) <= {field}


@pytest.mark.parametrize(
    ("arguments", "part", "field", "value"),
    [
        (["--backend", "gloo"], "run", "backend", "gloo"),
        (["-g", "2"], "run", "gpus", 2),
        (["--via", "native"], "run", "via", "native"),
        (["--seed", "17"], "run", "seed", 17),
        (["-N", "2"], "run", "repeats", 2),
        (["-c", "0"], "measure", "check", False),
        (["-T", "30"], "measure", "deadline", "30"),
    ],
    ids=words,
)
def test_an_option_of_sweep_goes_over_its_key(arguments, part, field, value):
    request = ask(*arguments)

    assert getattr(getattr(request.suite, part), field) == value
    assert request.repeats == (2 if field == "repeats" else None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--step", "some"], "--step: 'some' is not allowed; allowed: auto, or a number of nodes"),
        (["--step", "0"], "--step: '0' is not allowed; allowed: auto, or a number of nodes"),
        (
            ["--max-oversubscription", "0.5"],
            "--max-oversubscription: '0.5' is no oversubscription; write 2, or 2:1",
        ),
        (
            ["--max-oversubscription", "1:2"],
            "--max-oversubscription: '1:2' is no oversubscription; write 2, or 2:1",
        ),
        (
            ["--max-oversubscription", "inf"],
            "--max-oversubscription: 'inf' is no oversubscription; write 2, or 2:1",
        ),
        (["--size", "0"], "--size: a message has 1 byte or more; write for instance 64M"),
        (
            ["--topology", "a", "--from-pairwise", "b"],
            "--topology and --from-pairwise both say the leaves; leave one out",
        ),
    ],
    ids=words,
)
def test_a_wrong_value_is_said_in_a_line(arguments, text):
    assert refusal_of(ask, *arguments) == text


@pytest.fixture
def kept(tmp_path):
    """Writes a run that was started so; returns the options that find it."""

    def write(*argv, command="scale"):
        return put_run(tmp_path, command, *argv)

    return write


def test_a_run_goes_on_with_the_options_of_before(kept, tmp_path):
    resume = kept("--simulate", "x.toml", "--redraws", "2", "--seed", "5", "--json", "--yes")
    request, argv = ask_with(*resume)

    assert (request.simulate, request.redraws, request.suite.run.seed) == ("x.toml", 2, 5)
    assert argv == "collbench scale --simulate x.toml --redraws 2 --seed 5 --json --yes"
    # Of this call alone.
    assert (request.as_json, request.yes) == (False, False)
    assert (request.resume, request.results) == ("last", str(tmp_path))


@pytest.mark.parametrize(("given", "bar"), [((), 2.0), (("--max-oversubscription", "3"), 3.0)])
def test_a_bar_of_before_stays_unless_another_is_given(kept, given, bar):
    resume = kept("--simulate", "x.toml", "--max-oversubscription", "2")
    request, argv = ask_with(*resume, *given)

    assert (request.simulate, request.max_oversubscription) == ("x.toml", bar)
    assert argv is not None


def test_options_that_are_given_are_taken_alone(kept):
    request, argv = ask_with(*kept("--simulate", "x.toml", "--step", "2"), "--step", "3")

    assert (request.simulate, request.step, argv) == (None, 3, None)


def test_options_of_another_command_are_not_taken(kept):
    request, argv = ask_with(*kept("--rounds", "2", command="pairwise"))

    assert (request.simulate, argv) == (None, None)


def test_a_run_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RunNotFound):
        ask("--resume", "nine", "--results", str(tmp_path))


BEFORE = stored_run(
    [],
    command="scale",
    suite={
        "members": ["a", "b", "c"],
        "leaf_of": {"a": "x", "b": "x", "c": "y"},
        "patterns": ["pairs"],
        "step": None,
        "redraws": 8,
        "size_bytes": None,
    },
).run
ANOTHER = "give the options of before, or --resume alone"


def header(*, suite=None, **changes):
    return msgspec.structs.replace(BEFORE, suite={**BEFORE.suite, **(suite or {})}, **changes)


def test_the_same_question_goes_on():
    refuse_another_question(BEFORE, header())


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (
            header(suite={"members": ["a", "b"]}),
            "it was of other nodes: 1 missing (c); start a new run",
        ),
        (
            header(suite={"members": ["a", "b", "c", "d"]}),
            "it was of other nodes: 1 new (d); start a new run",
        ),
        (
            header(suite={"members": ["b", "a", "c"]}),
            "it was of these nodes in another order; start a new run",
        ),
        (
            header(suite={"leaf_of": {"a": "x", "b": "y", "c": "y"}}),
            "it was of other leaves; start a new run",
        ),
        (header(suite={"redraws": 2}), f"redraws was 8 and is 2; {ANOTHER}"),
        (header(suite={"step": 4}), f"step was None and is 4; {ANOTHER}"),
        (header(seed=9), f"seed was 1 and is 9; {ANOTHER}"),
        (header(repeats=7), f"repeats was {BEFORE.repeats} and is 7; {ANOTHER}"),
    ],
)
def test_another_question_is_refused_by_name(now, text):
    told = refusal_of(refuse_another_question, BEFORE, now)

    assert told == f"run {BEFORE.run_id} cannot be resumed: {text}"


def prepared(seconds: float, *, yes: bool = False, simulation: object = None):
    cost = Estimate(steps=1200, seconds=seconds, node_hours=64 * seconds / 3600)
    return SimpleNamespace(
        cost=cost, request=SimpleNamespace(yes=yes), ground=SimpleNamespace(simulation=simulation)
    )


@pytest.mark.parametrize(
    "meant", [prepared(1800), prepared(1801, yes=True), prepared(1e5, simulation=object())]
)
def test_what_is_short_meant_or_a_model_begins(meant):
    refuse_long(meant)


def test_above_30_minutes_it_asks():
    assert refusal_of(refuse_long, prepared(3600)) == (
        "this takes about 1 h 00 min (64.0 node-hours); say --yes, or ask for less: fewer"
        " --patterns, --repeats, --redraws, a larger --step"
    )
