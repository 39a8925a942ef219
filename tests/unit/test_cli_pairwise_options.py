"""The options of ``pairwise``: what they mean, what contradicts what, and a run that goes on."""

from __future__ import annotations

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

from collbench.cli.bar_options import bar_options
from collbench.cli.launch_options import launch_options
from collbench.cli.pairwise import pairwise
from collbench.cli.pairwise_options import (
    PairwiseRequest,
    build_pairwise,
    pairwise_options,
    refuse_another_question,
    with_options_of_before,
)
from collbench.errors import RunNotFound
from collbench.suite import Suite


@click.command(name="pairwise")
@pairwise_options
@bar_options
@launch_options
def fake_pairwise(**given):
    """Keeps the request instead of running it."""
    context = click.get_current_context()
    given, argv = with_options_of_before(context, given)
    context.obj.append((build_pairwise(given), argv))


def ask_with(*arguments) -> tuple[PairwiseRequest, str | None]:
    return kept_by(fake_pairwise, *arguments)


def ask(*arguments) -> PairwiseRequest:
    return ask_with(*arguments)[0]


def refusal(*arguments) -> str:
    return refusal_of(ask, *arguments)


OWN = {
    "--topology",
    "--rounds",
    "--serial",
    "--size",
    "--latency",
    "--inside",
    "--qualify",
    "--against",
    "--node-json",
}
SHARED = {
    "--backend",
    "-g/--gpus",
    "--via",
    "--nccl",
    "--fake-hosts",
    "--expect-gpus",
    "--seed",
    "-c/--check",
    "--proof",
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
BARS = {"--baseline", "--tolerance", "--min-busbw", "--min-of-limit"}


def test_the_options_are_these():
    assert names_of(pairwise) == OWN | SHARED | BARS | LAUNCH
    assert [one.name for one in options_of(pairwise) if one.hidden] == ["plant"]


def test_every_shown_option_has_a_help_text():
    text = CliRunner().invoke(pairwise, ["--help"]).output

    for option in (OWN | SHARED | BARS) - {"--plant"}:
        assert option.rpartition("/")[2] in text
    assert "--plant" not in text
    assert all(one.help for one in options_of(pairwise))


def test_without_options_everything_is_chosen_later():
    assert ask() == PairwiseRequest(
        suite=Suite(name="pairwise"),
        topology=None,
        rounds="auto",
        serial=False,
        size_bytes=None,
        latency=None,
        inside=False,
        qualify=None,
        against=None,
        node_json=None,
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
        (["--rounds", "auto"], "rounds", "auto"),
        (["--rounds", "all"], "rounds", "all"),
        (["--rounds", "3"], "rounds", 3),
        (["--serial"], "serial", True),
        (["--size", "64M"], "size_bytes", 64 * 2**20),
        (["--size", "1"], "size_bytes", 1),
        (["--latency", "0"], "latency", False),
        (["--latency", "1"], "latency", True),
        (["--qualify", "node7"], "qualify", "node7"),
        (["--node-json", "out"], "node_json", "out"),
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
        (["--nccl", "/opt/libnccl.so.2"], "run", "nccl", ("/opt/libnccl.so.2",)),
        (["--fake-hosts", "8"], "run", "fake_hosts", 8),
        (["--seed", "17"], "run", "seed", 17),
        (["-c", "0"], "measure", "check", False),
        (["--proof", "0"], "measure", "proof", False),
        (["-T", "30"], "measure", "deadline", "30"),
        (["--init-deadline", "30s"], "measure", "init_deadline", "30s"),
    ],
    ids=words,
)
def test_an_option_of_sweep_goes_over_its_key(arguments, part, field, value):
    suite = ask(*arguments).suite

    assert getattr(getattr(suite, part), field) == value
    assert suite != Suite(name="pairwise")


def test_against_is_of_qualify():
    request = ask("--qualify", "node7", "--against", "leaf1")

    assert (request.qualify, request.against) == ("node7", "leaf1")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--rounds", "some"],
            "--rounds: 'some' is not allowed; allowed: auto, all, or a number of rounds",
        ),
        (
            ["--rounds", "0"],
            "--rounds: '0' is not allowed; allowed: auto, all, or a number of rounds",
        ),
        (
            ["--rounds", "-1"],
            "--rounds: '-1' is not allowed; allowed: auto, all, or a number of rounds",
        ),
        (
            ["--rounds", "1.5"],
            "--rounds: '1.5' is not allowed; allowed: auto, all, or a number of rounds",
        ),
        (
            ["--size", "1MB"],
            (
                "--size: size '1MB' has two meanings; write 1M (or 1MiB) for 1048576 bytes, or"
                " 1000000 for decimal"
            ),
        ),
        (
            ["--size", "big"],
            "--size: size 'big' is not a size; write bytes (8), or 64K, 128M, 1G, 64KiB",
        ),
        (["--size", "0"], "--size: a message has 1 byte or more; write for instance 64M"),
        (["--latency", "2"], "--latency: '2' is not allowed; allowed: 0 (no), 1 (yes)"),
        (["--latency", "yes"], "--latency: 'yes' is not allowed; allowed: 0 (no), 1 (yes)"),
        (
            ["--against", "leaf1"],
            "--against says who a node is judged by; name the node with --qualify",
        ),
        (["--seed", "abc"], "--seed: 'abc' is no whole number; write for instance 5"),
        (["-c", "maybe"], "-c/--check: 'maybe' is not allowed; allowed: 0 (no), 1 (yes)"),
    ],
    ids=words,
)
def test_a_wrong_value_is_said_in_a_line(arguments, text):
    assert refusal(*arguments) == text


@pytest.mark.parametrize(
    "arguments",
    [
        ["--backend", "mpi"],
        ["--via", "ucx"],
        ["-g", "none"],
        ["--expect-gpus", "0"],
        ["--fake-hosts", "-1"],
        ["-T", "soon"],
        ["--init-deadline", "0"],
        ["--proof", "2"],
    ],
    ids=" ".join,
)
def test_options_of_sweep_name_themselves(arguments):
    text = refusal(*arguments)

    assert arguments[0].lstrip("-") in text or "deadline" in text
    assert "\n" not in text


@pytest.fixture
def kept(tmp_path):
    """Writes a run that was started so; returns the options that find it."""

    def write(*argv, command="pairwise"):
        return put_run(tmp_path, command, *argv)

    return write


def test_a_run_goes_on_with_the_options_of_before(kept, tmp_path):
    resume = kept("--simulate", "x.toml", "--rounds", "2", "--seed", "5", "--json", "--node-json=n")
    request, argv = ask_with(*resume)

    assert (request.simulate, request.rounds, request.suite.run.seed) == ("x.toml", 2, 5)
    assert argv == "collbench pairwise --simulate x.toml --rounds 2 --seed 5 --json --node-json=n"
    # Of this call alone.
    assert (request.as_json, request.node_json) == (False, None)
    assert (request.resume, request.results) == ("last", str(tmp_path))


def test_output_may_be_asked_for_beside_it(kept):
    request, _ = ask_with(*kept("--simulate", "x.toml"), "--json", "--node-json", "out")

    assert (request.simulate, request.as_json, request.node_json) == ("x.toml", True, "out")


def test_options_that_are_given_are_taken_alone(kept):
    request, argv = ask_with(*kept("--simulate", "x.toml", "--rounds", "2"), "--rounds", "3")

    assert (request.simulate, request.rounds, argv) == (None, 3, None)


def test_options_of_another_command_are_not_taken(kept):
    request, argv = ask_with(*kept("--sizes", "8", command="sweep"))

    assert (request.simulate, argv) == (None, None)


def test_a_run_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RunNotFound):
        ask("--resume", "nine", "--results", str(tmp_path))


BEFORE = stored_run(
    [],
    command="pairwise",
    suite={"members": ["a", "b", "c", "d"], "rounds": "auto", "serial": False, "size_bytes": None},
).run


def header(*, members=("a", "b", "c", "d"), suite=None, **changes):
    changed = {**BEFORE.suite, "members": list(members), **(suite or {})}
    return msgspec.structs.replace(BEFORE, suite=changed, **changes)


def test_the_same_question_goes_on():
    refuse_another_question(BEFORE, header())
    refuse_another_question(BEFORE, header(members=("d", "b", "c", "a")))


ANOTHER = "give the options of before, or --resume alone"


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (
            header(members=("a", "b")),
            "it was of other nodes: 2 missing (c, d); start a new run",
        ),
        (
            header(members=("a", "b", "c", "d", "e")),
            "it was of other nodes: 1 new (e); start a new run",
        ),
        (
            header(members=("w", "x", "y", "z")),
            (
                "it was of other nodes: 4 missing (a, b, c ...), 4 new (w, x, y ...); start a new"
                " run"
            ),
        ),
        (header(suite={"rounds": 2}), f"rounds was auto and is 2; {ANOTHER}"),
        (header(suite={"size_bytes": 8}), f"size_bytes was None and is 8; {ANOTHER}"),
        (header(seed=9), f"seed was 1 and is 9; {ANOTHER}"),
        (
            header(simulated=True, world_size=64),
            f"world_size was 2 and is 64; simulated was False and is True; {ANOTHER}",
        ),
    ],
)
def test_another_question_is_refused_by_name(now, text):
    told = refusal_of(refuse_another_question, BEFORE, now)

    assert told == f"run {BEFORE.run_id} cannot be resumed: {text}"


def test_gpus_and_one_node_are_not_asked_for_at_once():
    assert ask("--inside").inside
    assert refusal("--inside", "--qualify", "node7") == (
        "--inside pairs GPUs and --qualify judges a node; leave one out"
    )
