"""The options of ``sweep``: what they mean, and what contradicts what."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from command_options import kept_by, names_of, options_of, refusal_of, words

from collbench.cli.sweep_options import SweepRequest, build_request, sweep_options
from collbench.model import Mode
from collbench.suite import AUTO, Ladder, Suite, load_suite, resolve


@click.command()
@sweep_options()
def fake_sweep(**given):
    """Keeps the request instead of running it."""
    click.get_current_context().obj.append(build_request(**given))


def ask(*arguments) -> SweepRequest:
    """Returns the request that arguments make, the way the command gets them."""
    return kept_by(fake_sweep, *arguments)


def refusal(*arguments) -> str:
    return refusal_of(ask, *arguments)


OPTIONS = {
    "-b/--min-size",
    "-e/--max-size",
    "-f/--factor",
    "-i/--step",
    "--sizes",
    "--collective",
    "-d/--dtype",
    "-o/--redop",
    "-r/--root",
    "--mode",
    "-G/--graph",
    "--pattern",
    "--in-place",
    "--algo",
    "--proto",
    "--reference",
    "--ib/--rdma",
    "--net",
    "--env",
    "--alg-selection",
    "--backend",
    "--ranks",
    "-g/--gpus",
    "--via",
    "--nccl",
    "--setting",
    "--fake-hosts",
    "--expect-gpus",
    "-N/--repeats",
    "--seed",
    "--precision",
    "--max-time",
    "-n/--samples",
    "-w/--warmup",
    "-c/--check",
    "--walk",
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


def test_the_options_are_these():
    assert names_of(fake_sweep) == OPTIONS
    assert [one.name for one in options_of(fake_sweep) if one.hidden] == ["plant"]


def test_every_shown_option_has_a_help_text():
    text = CliRunner().invoke(fake_sweep, ["--help"]).output

    for option in OPTIONS - {"--plant"}:
        assert option.rpartition("/")[2] in text
    assert "--plant" not in text
    assert all(one.help for one in options_of(fake_sweep))


def test_without_options_the_request_is_the_default_suite():
    assert ask() == SweepRequest(
        suite=load_suite("sweep"),
        source="sweep",
        results=None,
        cluster=None,
        as_json=False,
        dry_run=False,
        expect_gpus=None,
        plant=None,
        simulate=None,
        resume=None,
    )


def test_a_suite_is_the_argument():
    request = ask("latency")

    assert request.source == "latency"
    assert request.suite == load_suite("latency")


def test_what_is_for_the_run_alone():
    request = ask(
        *("--results", "out", "--cluster", "blue", "--json", "--dry-run"),
        *("--expect-gpus", "8", "--plant", "stop:rank=1,call=12"),
    )

    assert request == SweepRequest(
        suite=load_suite("sweep"),
        source="sweep",
        results="out",
        cluster="blue",
        as_json=True,
        dry_run=True,
        expect_gpus=8,
        plant="stop:rank=1,call=12",
        simulate=None,
        resume=None,
    )
    assert ask("--simulate", "fabric.toml").simulate == "fabric.toml"


@pytest.mark.parametrize(
    ("arguments", "part", "field", "value"),
    [
        (["--sizes", "8, 64K"], "sweep", "sizes", ("8", "64K")),
        (["--collective", "allreduce,reduce"], "sweep", "collectives", ("allreduce", "reduce")),
        (["--collective", "reduce", "--collective", "gather"], "sweep", "collectives",
         ("reduce", "gather")),
        (["-d", "float,bf16"], "sweep", "dtypes", ("float", "bf16")),
        (["--dtype", "all"], "sweep", "dtypes", ("all",)),
        (["-o", "max"], "sweep", "redops", ("max",)),
        (["--redop", "sum,avg"], "sweep", "redops", ("sum", "avg")),
        (["-r", "-1"], "sweep", "roots", (-1,)),
        (["-r", "all"], "sweep", "roots", (-1,)),
        (["--root", "0,3"], "sweep", "roots", (0, 3)),
        (["--mode", "eager,graph,eager_device"], "sweep", "modes",
         ("eager", "graph", "eager_device")),
        (["--mode", "auto"], "sweep", "modes", AUTO),
        (["-G", "0"], "sweep", "modes", ("eager",)),
        (["-G", "20"], "sweep", "modes", ("graph",)),
        (["--graph", "1"], "sweep", "modes", ("graph",)),
        (["--pattern", "isolated"], "sweep", "pattern", "isolated"),
        (["--in-place", "both"], "sweep", "in_place", "both"),
        (["--algo", "ring,TREE"], "sweep", "algo", ("ring,TREE",)),
        (["--algo", "ring", "--algo", "^tree,nvls"], "sweep", "algo", ("ring", "^tree,nvls")),
        (["--proto", "all"], "sweep", "proto", ("all",)),
        (["--reference"], "sweep", "reference", True),
        (["--ib", "on, off"], "sweep", "ib", ("on", "off")),
        (["--rdma", "off"], "sweep", "ib", ("off",)),
        (["--net", "IB,Socket"], "sweep", "net", ("IB", "Socket")),
        (["--env", "A=1,2=3", "--env", "A="], "sweep", "env", ("A=1,2=3", "A=")),
        (["--alg-selection", "tree,ring"], "sweep", "alg_selection", ("tree,ring",)),
        (["--via", "native"], "run", "via", "native"),
        (["--nccl", "/opt/libnccl.so.2"], "run", "nccl", ("/opt/libnccl.so.2",)),
        (
            ["--nccl", "old=/a/libnccl.so.2", "--nccl", "new=/b/libnccl.so.2"],
            "run",
            "nccl",
            ("old=/a/libnccl.so.2", "new=/b/libnccl.so.2"),
        ),
        (
            ["--setting", "default", "--setting", "NCCL_ALGO=Tree NCCL_PROTO=Simple"],
            "sweep",
            "settings",
            ("default", "NCCL_ALGO=Tree NCCL_PROTO=Simple"),
        ),
        (["--fake-hosts", "8"], "run", "fake_hosts", 8),
        (["--backend", "gloo"], "run", "backend", "gloo"),
        (["--ranks", "4"], "run", "ranks", 4),
        (["--ranks", "auto"], "run", "ranks", AUTO),
        (["-g", "2"], "run", "gpus", 2),
        (["--gpus", "2"], "run", "gpus", 2),
        (["-N", "5"], "run", "repeats", 5),
        (["--repeats", "5"], "run", "repeats", 5),
        (["--seed", "17"], "run", "seed", 17),
        (["--precision", "0.5%"], "measure", "precision", "0.5%"),
        (["--max-time", "200ms"], "measure", "max_time", "200ms"),
        (["--max-time", "auto"], "measure", "max_time", AUTO),
        (["-n", "20"], "measure", "samples", 20),
        (["--samples", "20"], "measure", "samples", 20),
        (["-w", "5"], "measure", "warmup", 5),
        (["--warmup", "auto"], "measure", "warmup", AUTO),
        (["-c", "0"], "measure", "check", False),
        (["--check", "1"], "measure", "check", True),
        (["--walk", "64M"], "measure", "walk", "64M"),
        (["--proof", "0"], "measure", "proof", False),
        (["-T", "30"], "measure", "deadline", "30"),
        (["--deadline", "2m"], "measure", "deadline", "2m"),
        (["--init-deadline", "30s"], "measure", "init_deadline", "30s"),
    ],
    ids=words,
)  # fmt: skip
def test_an_option_goes_over_its_key_and_no_other(arguments, part, field, value):
    suite = ask(*arguments).suite
    changed = {
        (name, key)
        for name in ("sweep", "run", "measure")
        for key in getattr(suite, name).__struct_fields__
        if getattr(getattr(suite, name), key) != getattr(getattr(load_suite("sweep"), name), key)
    }

    assert getattr(getattr(suite, part), field) == value
    assert changed <= {(part, field)}


def test_letters_of_nccl_tests_make_its_ladder():
    suite = resolve(ask("-b", "8", "-e", "128", "-f", "2").suite, gpu=True)

    assert suite.sizes == (8, 16, 32, 64, 128)


def test_a_step_takes_the_place_of_the_suites_factor():
    assert ask("-b", "1K", "-e", "3K", "-i", "1K").suite.sweep.sizes == Ladder(
        min=1024, max=3072, step=1024
    )


def test_a_factor_takes_the_place_of_the_suites_step(tmp_path):
    path = tmp_path / "steps.toml"
    path.write_text("[sweep]\nsizes = { min = '1K', max = '8K', step = '1K' }")

    suite = resolve(ask(str(path), "-f", "2").suite, gpu=False)

    assert suite.sizes == (1024, 2048, 4096, 8192)


def test_a_limit_over_a_list_makes_a_ladder_between_its_ends():
    assert ask("smoke", "-e", "64K").suite.sweep.sizes == Ladder(min=8, max=65536)


def test_options_go_over_a_suites_own_keys():
    suite = resolve(ask("latency", "-e", "1K", "--pattern", "back_to_back").suite, gpu=False)

    assert suite.sizes[-1] == 1024
    assert suite.pattern == "back_to_back"


def test_a_precision_takes_the_place_of_the_suites_number_of_samples(tmp_path):
    path = tmp_path / "fixed.toml"
    path.write_text("[measure]\nsamples = 20")

    assert resolve(ask(str(path)).suite, gpu=False).policy.samples == 20
    assert resolve(ask(str(path), "--precision", "1%").suite, gpu=False).policy.samples is None


def test_graph_launches_are_the_graph_mode():
    assert resolve(ask("-G", "20").suite, gpu=True).modes == (Mode.GRAPH,)


ALL_COLLECTIVES = (
    "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter,"
    " send_recv"
)
ALL_TYPES = (
    "float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, int32, int64, uint8"
)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--collective", "all_reduse"],
            (
                "--collective: unknown collective 'all_reduse'; did you mean 'all_reduce'?"
                f" allowed: {ALL_COLLECTIVES}"
            ),
        ),
        (
            ["--collective", ","],
            "--collective: the list is empty; write for instance all_reduce, all_gather",
        ),
        (
            ["-d", "flot32"],
            f"-d/--dtype: unknown type 'flot32'; did you mean 'float32'? allowed: {ALL_TYPES}",
        ),
        (
            ["-o", "mul"],
            "-o/--redop: unknown operator 'mul'; allowed: sum, prod, min, max, avg",
        ),
        (
            ["-e", "1MB"],
            (
                "-e/--max-size: size '1MB' has two meanings; write 1M (or 1MiB) for 1048576 bytes,"
                " or 1000000 for decimal"
            ),
        ),
        (
            ["-b", "big"],
            "-b/--min-size: size 'big' is not a size; write bytes (8), or 64K, 128M, 1G, 64KiB",
        ),
        (
            ["--sizes", "8,1KB"],
            (
                "--sizes: size '1KB' has two meanings; write 1K (or 1KiB) for 1024 bytes, or 1000"
                " for decimal"
            ),
        ),
        (
            ["--sizes", "0"],
            "--sizes: size 0 is out of range; allowed: 1 byte to 1024T (1 PiB)",
        ),
        (
            ["-b", "1M", "-e", "4K"],
            "sizes: min 1 MiB is above max 4 KiB; take a smaller min (-b) or a larger max (-e)",
        ),
        (
            ["bandwidth", "-e", "4K"],
            "sizes: min 1 MiB is above max 4 KiB; take a smaller min (-b) or a larger max (-e)",
        ),
        (["-b", "0"], "sizes: size 0 is out of range; allowed: 1 byte to 1024T (1 PiB)"),
        (["-i", "0"], "sizes: step 0 is out of range; allowed: 1 byte to 1024T (1 PiB)"),
        (["-f", "1"], "sizes: factor 1 must be above 1, for instance 2 or 4"),
        (["-f", "two"], "-f/--factor: 'two' is no number; write for instance 2"),
        (["-f", "nan"], "sizes: factor nan must be above 1, for instance 2 or 4"),
        (["-r", "first"], "-r/--root: 'first' is no whole number; write for instance 5"),
        (
            ["-r", "-2"],
            "-r/--root: root -2 is no rank; allowed: a rank from 0, or -1 for every rank in turn",
        ),
        (
            ["--mode", "grap"],
            (
                "--mode: unknown mode 'grap'; did you mean 'graph'? allowed: eager, graph,"
                " eager_device"
            ),
        ),
        (["-G", "-1"], "-G/--graph: -1 must be 0 (eager only) or more (CUDA graph only)"),
        (
            ["--pattern", "burst"],
            "--pattern: unknown pattern 'burst'; allowed: back_to_back, isolated",
        ),
        (
            ["--in-place", "maybe"],
            "--in-place: unknown placement 'maybe'; allowed: natural, yes, no, both",
        ),
        (
            ["--backend", "mpi"],
            "--backend: unknown back end 'mpi'; allowed: auto, nccl, gloo",
        ),
        (["--ranks", "0"], "--ranks: 0 is out of range; allowed: 1 to 2147483647"),
        (["-g", "x"], "-g/--gpus: 'x' is no whole number; write for instance 5"),
        (["--expect-gpus", "0"], "--expect-gpus: 0 must be at least 1"),
        (["-N", "0"], "-N/--repeats: 0 is out of range; allowed: 1 to 10000"),
        (["--seed", "-1"], "--seed: -1 is out of range; allowed: 0 to 9223372036854775807"),
        (
            ["--precision", "2"],
            "--precision: share '2' must be above 0% and below 100%; write 2% or 0.02",
        ),
        (
            ["--precision", "0.01%"],
            "--precision: precision '0.01%' is out of range; allowed: 0.1% to 50%",
        ),
        (
            ["--max-time", "long"],
            "--max-time: duration 'long' is not a duration; write 0.5s, 200ms, 2m",
        ),
        (["-n", "0"], "-n/--samples: 0 must be at least 1"),
        (["-w", "0"], "-w/--warmup: 0 is out of range; allowed: 1 to 2147483647"),
        (["-c", "5"], "-c/--check: '5' is not allowed; allowed: 0 (no), 1 (yes)"),
        (["-T", "0"], "-T/--deadline: duration '0' must be above zero; write 0.5s, 200ms, 2m"),
        (
            ["--init-deadline", "25h"],
            "--init-deadline: duration '25h' is out of range; allowed: 100ms to 24h",
        ),
        (
            ["-f", "2", "-i", "1K"],
            (
                "-f/--factor and -i/--step cannot both be given: one makes sizes multiply, the"
                " other makes them add; leave one out"
            ),
        ),
        (
            ["--sizes", "8", "-b", "8"],
            "--sizes and -b/--min-size cannot both be given: a list has no ladder; leave one out",
        ),
        (
            ["--sizes", "8", "-e", "8"],
            "--sizes and -e/--max-size cannot both be given: a list has no ladder; leave one out",
        ),
        (
            ["-G", "0", "--mode", "eager"],
            "-G/--graph and --mode cannot both be given: both choose the mode; leave one out",
        ),
        (
            ["-n", "20", "--precision", "1%"],
            (
                "-n/--samples and --precision cannot both be given: a fixed number of samples does"
                " not stop by precision; leave one out"
            ),
        ),
        (
            ["--backend", "gloo", "-g", "2"],
            (
                "--backend gloo and -g/--gpus cannot both be given: Gloo's ranks are on the CPU;"
                " say how many with --ranks"
            ),
        ),
        (["--walk", "0"], "--walk: walk 0 is out of range; allowed: 1 byte to 1024T (1 PiB)"),
        (["--proof", "on"], "--proof: 'on' is not allowed; allowed: 0 (no), 1 (yes)"),
        (
            ["--algo", "ring,tre"],
            (
                "--algo: unknown algorithm 'tre'; did you mean 'Tree'? allowed: Ring, Tree, NVLS,"
                " NVLSTree, CollNetDirect, CollNetChain, PAT, or default alone"
            ),
        ),
        (
            ["--proto", "ll256"],
            (
                "--proto: unknown protocol 'll256'; did you mean 'LL128'? allowed: LL, LL128,"
                " Simple, or default alone"
            ),
        ),
        (
            ["--ib", "yes"],
            "--ib/--rdma: 'yes' is not allowed; allowed: on, off, on,off for both, or default",
        ),
        (
            ["--ib", "off", "--net", "IB"],
            (
                "--ib/--rdma and --net cannot both be given: --ib sets NCCL_NET itself; leave one"
                " out"
            ),
        ),
        (
            ["--env", "NCCL_ALGO=Tree"],
            "--env: NCCL_ALGO has an option of its own; write --algo Tree",
        ),
        (
            ["--ib", "on", "--env", "NCCL_IB_DISABLE=1"],
            "--ib and NCCL_IB_DISABLE cannot both be given; leave one out",
        ),
        (
            ["--via", "nativ"],
            "--via: unknown way 'nativ'; did you mean 'native'? allowed: torch, native",
        ),
        (["--nccl", " "], "--nccl: ' ' is no path; give the path of a libnccl.so.2, or auto"),
        (["--fake-hosts", "5000"], "--fake-hosts: 5000 is out of range; allowed: 0 to 4096"),
        *(
            (
                ["--simulate", "f.toml", option, value],
                (
                    f"--simulate and {label} cannot both be given: a model answers, no NCCL; leave"
                    " one out"
                ),
            )
            for option, value, label in (
                ("--algo", "ring", "--algo"),
                ("--proto", "LL", "--proto"),
                ("--ib", "on", "--ib/--rdma"),
                ("--net", "IB", "--net"),
                ("--env", "A=1", "--env"),
                ("--via", "native", "--via"),
                ("--nccl", "/x", "--nccl"),
                ("--fake-hosts", "2", "--fake-hosts"),
            )
        ),
        (
            ["--simulate", "f.toml", "--ranks", "4"],
            (
                "--simulate and --ranks cannot both be given: the model's file says how many ranks;"
                " leave one out"
            ),
        ),
        (
            ["nosuch"],
            (
                "suite 'nosuch' is neither a file nor a shipped suite; shipped: bandwidth,"
                " history, ib_on_off, latency, nccl_matrix, smoke, sweep"
            ),
        ),
    ],
    ids=words,
)
def test_what_cannot_be_gets_one_line(arguments, text):
    assert refusal(*arguments) == text


def test_called_from_python_what_is_missing_is_not_given():
    assert build_request("sweep", dtype="int8").suite.sweep.dtypes == ("int8",)
    assert isinstance(build_request("sweep").suite, Suite)
