"""Suite files: what they mean, and what is said of those that cannot be."""

from __future__ import annotations

import json
import tomllib

import msgspec
import pytest

from collbench.collectives import COLLECTIVES, ITEM_BYTES, REDOPS
from collbench.errors import ExitCode, SuiteError, UsageError
from collbench.model import Mode, Pattern, Policy
from collbench.suite import (
    SUITE_SCHEMA,
    Ladder,
    Measure,
    Place,
    Questions,
    Suite,
    find_suite,
    load_suite,
    override,
    resolve,
    shipped_suites,
    suite_as_dict,
)

MIB = 2**20


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Returns what writes my.toml into the current folder."""
    monkeypatch.chdir(tmp_path)

    def to_file(text):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "my.toml").write_bytes(content)
        return "my.toml"

    return to_file


# Shipped suites


def test_the_shipped_suites_are_these():
    assert list(shipped_suites()) == [
        "bandwidth",
        "history",
        "ib_on_off",
        "latency",
        "nccl_matrix",
        "smoke",
        "sweep",
    ]


@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", list(shipped_suites()))
def test_every_shipped_suite_loads_and_resolves(name, gpu):
    suite = resolve(load_suite(name), gpu=gpu)

    assert suite.name == name
    assert suite.description
    assert suite.collectives
    assert suite.sizes


def test_the_suite_sweep_is_the_default_written_out():
    written = load_suite("sweep")
    raw = tomllib.loads(find_suite("sweep").read_text())

    assert msgspec.structs.replace(
        written, name="unnamed", description=""
    ) == msgspec.structs.replace(Suite(), sweep=Questions(sizes=Ladder(factor=4.0)))
    assert set(raw) == set(Suite.__struct_fields__)
    assert set(raw["sweep"]) == set(Questions.__struct_fields__)
    assert set(raw["run"]) == set(Place.__struct_fields__)
    assert set(raw["measure"]) == set(Measure.__struct_fields__)


@pytest.mark.parametrize("name", ["bandwidth", "smoke"])
def test_suites_of_all_collectives_have_them_all(name):
    assert load_suite(name).sweep.collectives == tuple(COLLECTIVES)


def test_latency_is_isolated_and_ends_at_64_kib():
    suite = resolve(load_suite("latency"), gpu=True)

    assert suite.pattern is Pattern.ISOLATED
    assert suite.modes == (Mode.EAGER, Mode.GRAPH)
    assert suite.sizes == tuple(4 * 2**k for k in range(15))


def test_smoke_ends_in_seconds():
    suite = resolve(load_suite("smoke"), gpu=False)

    assert len(suite.sizes) == 3
    assert len(suite.sizes) * len(suite.collectives) * suite.policy.max_time_s < 2


# Autos


def test_autos_on_a_cpu():
    suite = resolve(Suite(), gpu=False)

    assert suite.sizes == (
        4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, MIB, 4 * MIB, 16 * MIB
    )  # fmt: skip
    assert suite.modes == (Mode.EAGER,)
    assert suite.policy == Policy(max_time_s=0.5)
    assert (suite.backend, suite.ranks, suite.gpus) == ("auto", None, None)
    assert (suite.via, suite.nccl, suite.fake_hosts) == ("torch", None, None)
    assert suite.settings == ({},)


def test_autos_on_gpus():
    suite = resolve(Suite(), gpu=True)

    assert suite.sizes[-1] == 2**30
    assert len(suite.sizes) == 15
    assert suite.modes == (Mode.EAGER, Mode.GRAPH)
    assert suite.policy == Policy(max_time_s=1.0)


def test_every_key_reaches_the_resolved_suite(write):
    path = write(
        """
        schema = 1
        name = "mine"
        description = "words"
        [sweep]
        collectives = ["alltoall", "all_reduce_perf", "all_to_all"]
        dtypes = ["half", "bf16"]
        redops = ["max", "avg"]
        roots = [1, -1]
        sizes = ["64K", 8, "8"]
        modes = ["graph", "eager_device"]
        pattern = "isolated"
        in_place = "both"
        algo = ["ring", "tree,default"]
        proto = ["ll"]
        net = ["Socket"]
        env = ["NCCL_BUFFSIZE=8388608"]
        alg_selection = ["tree"]
        settings = ["NCCL_NTHREADS=256 NCCL_MAX_CTAS=4"]
        reference = true
        [run]
        backend = "nccl"
        ranks = 4
        gpus = 4
        via = "native"
        nccl = "/opt/libnccl.so.2"
        fake_hosts = 2
        repeats = 5
        seed = 17
        [measure]
        max_time = "200ms"
        samples = 20
        warmup = 3
        check = false
        walk = "64M"
        proof = false
        deadline = "5s"
        init_deadline = "2m"
        """
    )

    rest = {
        "NCCL_NET": "Socket",
        "alg_selection": "tree",
        "NCCL_NTHREADS": "256",
        "NCCL_MAX_CTAS": "4",
        "NCCL_BUFFSIZE": "8388608",
    }
    assert suite_as_dict(resolve(load_suite(path), gpu=True)) == {
        "name": "mine",
        "description": "words",
        "collectives": ["all_to_all", "all_reduce"],
        "dtypes": ["float16", "bfloat16"],
        "redops": ["max", "avg"],
        "roots": [1, -1],
        "sizes": [8, 65536],
        "modes": ["graph", "eager_device"],
        "pattern": "isolated",
        "in_place": "both",
        "settings": [
            rest,
            {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", **rest},
            {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL", **rest},
            {"NCCL_PROTO": "LL", **rest},
        ],
        "swept": [
            "NCCL_ALGO",
            "NCCL_BUFFSIZE",
            "NCCL_MAX_CTAS",
            "NCCL_NET",
            "NCCL_NTHREADS",
            "NCCL_PROTO",
        ],
        "backend": "nccl",
        "via": "native",
        "nccl": "/opt/libnccl.so.2",
        "libraries": {},
        "fake_hosts": 2,
        "ranks": 4,
        "gpus": 4,
        "repeats": 5,
        "seed": 17,
        "policy": {
            "precision": 0.02,
            "max_time_s": 0.2,
            "samples": 20,
            "warmup": 3,
            "check": False,
            "proof": False,
            "walk_bytes": 64 * MIB,
            "window": None,
            "deadline_s": 5.0,
            "init_deadline_s": 120.0,
        },
    }


def test_the_record_of_a_suite_is_plain_json():
    plain = suite_as_dict(resolve(Suite(), gpu=False))

    assert json.loads(json.dumps(plain)) == plain


def test_all_is_every_type_and_operator():
    suite = resolve(override(Suite(), dtypes=("all",), redops=("avg", "all")), gpu=True)

    assert suite.dtypes == tuple(ITEM_BYTES)
    assert suite.redops == ("avg", *(redop for redop in REDOPS if redop != "avg"))


# Options over a suite


def test_options_that_are_not_given_change_nothing():
    assert override(Suite(), dtypes=None, repeats=None, check=None) == Suite()


def test_options_reach_their_part_of_the_suite():
    suite = override(Suite(), dtypes=("int8",), repeats=5, check=False)

    assert suite == Suite(
        sweep=Questions(dtypes=("int8",)), run=Place(repeats=5), measure=Measure(check=False)
    )


def test_an_option_that_no_suite_has_is_a_programming_error():
    with pytest.raises(TypeError, match="a suite has no dtype"):
        override(Suite(), dtype=("int8",))


# Sizes


UNKNOWN_IN_SWEEP = (
    "allowed: collectives, dtypes, redops, roots, sizes, modes, pattern, in_place, algo, proto, ib,"
    " net, env, alg_selection, settings, reference"
)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            "[sweep]\ncolectives = []",
            f"unknown key sweep.colectives; did you mean 'collectives'? {UNKNOWN_IN_SWEEP}",
        ),
        (
            "[sweep]\nrepeats = 5",
            f"unknown key sweep.repeats; it belongs in run; {UNKNOWN_IN_SWEEP}",
        ),
        (
            "[sweep]\nname = 'x'",
            f"unknown key sweep.name; it belongs at the top; {UNKNOWN_IN_SWEEP}",
        ),
        (
            "sizes = ['8']",
            (
                "unknown key sizes; it belongs in sweep; allowed: schema, name, description, sweep,"
                " run, measure"
            ),
        ),
        (
            "[sweep]\nsizes = { minimum = '8' }",
            "unknown key sweep.sizes.minimum; did you mean 'min'? allowed: min, max, factor, step",
        ),
        (
            "[run]\nrepeats = 'three'",
            'run.repeats is "three"; it must be a whole number',
        ),
        (
            "[run]\nranks = 2.5",
            "run.ranks is 2.5; it must be a whole number or text",
        ),
        (
            "[measure]\ncheck = 1",
            "measure.check is 1; it must be true or false",
        ),
        (
            "[sweep]\ncollectives = ['all_reduce', 7]",
            "sweep.collectives[1] is 7; it must be text",
        ),
        (
            "[sweep]\ncollectives = 'all_reduce'",
            'sweep.collectives is "all_reduce"; it must be a list',
        ),
        (
            "[sweep]\nsizes = { factor = 'two' }",
            'sweep.sizes.factor is "two"; it must be a number',
        ),
        ("[sweep]\nsizes = '8'", 'sweep.sizes is "8"; it must be a table or a list'),
        ("sweep = 1", "sweep is 1; it must be a table"),
        (
            f"name = {list(range(30))}",
            "name is [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,1...; it must be text",
        ),
        ("schema = true", "schema is true; it must be a whole number"),
        ("schema = 0", "schema 0 does not exist; allowed: 1"),
        (
            "[sweep]\ncollectives = ['allreduc']",
            (
                "sweep.collectives: unknown collective 'allreduc'; did you mean 'allreduce'?"
                " allowed: all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all,"
                " gather, scatter, send_recv"
            ),
        ),
        (
            "[sweep]\ncollectives = []",
            "sweep.collectives: the list is empty; write for instance all_reduce, all_gather",
        ),
        (
            "[sweep]\ndtypes = ['flot32']",
            (
                "sweep.dtypes: unknown type 'flot32'; did you mean 'float32'? allowed: float64,"
                " float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, int32, int64, uint8"
            ),
        ),
        (
            "[sweep]\nredops = ['mulsum']",
            (
                "sweep.redops: unknown operator 'mulsum'; did you mean 'sum'? allowed: sum, prod,"
                " min, max, avg"
            ),
        ),
        (
            "[sweep]\nroots = [-2]",
            "sweep.roots: root -2 is no rank; allowed: a rank from 0, or -1 for every rank in turn",
        ),
        (
            "[sweep]\nmodes = ['grap']",
            (
                "sweep.modes: unknown mode 'grap'; did you mean 'graph'? allowed: eager, graph,"
                " eager_device"
            ),
        ),
        (
            "[sweep]\npattern = 'alone'",
            "sweep.pattern: unknown pattern 'alone'; allowed: back_to_back, isolated",
        ),
        (
            "[sweep]\nin_place = 'maybe'",
            "sweep.in_place: unknown placement 'maybe'; allowed: natural, yes, no, both",
        ),
        (
            "[run]\nbackend = 'ncll'",
            "run.backend: unknown back end 'ncll'; did you mean 'nccl'? allowed: auto, nccl, gloo",
        ),
        (
            "[sweep]\nalgo = ['rin']",
            (
                "sweep.algo: unknown algorithm 'rin'; did you mean 'Ring'? allowed: Ring, Tree,"
                " NVLS, NVLSTree, CollNetDirect, CollNetChain, PAT, or default alone"
            ),
        ),
        (
            "[sweep]\nproto = ['LL129']",
            (
                "sweep.proto: unknown protocol 'LL129'; did you mean 'LL128'? allowed: LL, LL128,"
                " Simple, or default alone"
            ),
        ),
        (
            "[sweep]\nib = ['auto']",
            "sweep.ib: 'auto' is not allowed; allowed: on, off, on,off for both, or default",
        ),
        (
            "[sweep]\nnet = ['']",
            "sweep.net: '' names no network; write for instance IB, Socket or default",
        ),
        (
            "[sweep]\nenv = ['NCCL_BUFFSIZE']",
            (
                "sweep.env: 'NCCL_BUFFSIZE' is no KEY=VALUE; write for instance"
                " NCCL_BUFFSIZE=8388608"
            ),
        ),
        (
            "[sweep]\nalg_selection = ['']",
            "sweep.alg_selection: an empty choice; write for instance ring, or tree,ring",
        ),
        ("[run]\nvia = 'mpi'", "run.via: unknown way 'mpi'; allowed: torch, native"),
        ("[run]\nnccl = ''", "run.nccl: '' is no path; give the path of a libnccl.so.2, or auto"),
        (
            "[run]\nranks = 'two'",
            "run.ranks: 'two' is no number; allowed: a whole number from 1, or auto",
        ),
        ("[run]\ngpus = 0", "run.gpus: 0 is out of range; allowed: 1 to 2147483647"),
        ("[run]\nrepeats = 0", "run.repeats: 0 is out of range; allowed: 1 to 10000"),
        ("[run]\nseed = -1", "run.seed: -1 is out of range; allowed: 0 to 9223372036854775807"),
        (
            "[measure]\nprecision = '60%'",
            "measure.precision: precision '60%' is out of range; allowed: 0.1% to 50%",
        ),
        (
            "[measure]\nmax_time = '2h'",
            "measure.max_time: duration '2h' is out of range; allowed: 1ms to 1h",
        ),
        (
            "[measure]\ndeadline = '1ms'",
            "measure.deadline: duration '1ms' is out of range; allowed: 100ms to 24h",
        ),
        (
            "[measure]\nsamples = -1",
            "measure.samples: -1 is out of range; allowed: 0 to 1000000",
        ),
        (
            "[measure]\nsamples = 20\nprecision = '1%'",
            (
                "measure.samples and measure.precision cannot both be; a fixed number of samples"
                " has no precision to stop at: leave one out"
            ),
        ),
        (
            "[sweep]\nsizes = { min = '1M', max = '4K' }",
            (
                "sweep.sizes: min 1 MiB is above max 4 KiB; take a smaller min (-b) or a larger max"
                " (-e)"
            ),
        ),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_file_key_and_value(write, content, text):
    with pytest.raises(SuiteError) as caught:
        load_suite(write(content))

    assert str(caught.value) == f"my.toml: {text}"
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_newer_file_is_refused_before_its_unknown_keys(write):
    with pytest.raises(SuiteError) as caught:
        load_suite(write(f"schema = {SUITE_SCHEMA + 1}\nnew_key = 1"))

    assert str(caught.value) == (
        "my.toml: schema 2 is newer than 1, the newest that collbench 0.1.0 reads;"
        " upgrade collbench"
    )


def test_a_file_that_is_not_toml_is_refused_with_its_line(write):
    with pytest.raises(SuiteError) as caught:
        load_suite(write("schema = 1\nname = sweep\n"))

    assert str(caught.value) == (
        "my.toml is not TOML: Invalid value (at line 2, column 8); an example:"
        f" {find_suite('sweep')}"
    )


def test_a_binary_file_is_refused(write):
    with pytest.raises(SuiteError) as caught:
        load_suite(write(b"name = '\xff'"))

    assert str(caught.value) == "my.toml is not TOML: byte 8 is not UTF-8 text"


@pytest.mark.parametrize(
    "content", ["x = " + "[" * 50_000, "x = 1" + "0" * 5000], ids=["nested", "long number"]
)
def test_a_file_made_to_break_the_parser_is_refused(write, content):
    with pytest.raises(SuiteError, match=r"^my\.toml is not TOML: "):
        load_suite(write(content))


def test_an_unknown_suite_gets_the_nearest_and_all():
    with pytest.raises(SuiteError) as caught:
        load_suite("latncy")

    assert str(caught.value) == (
        "suite 'latncy' is neither a file nor a shipped suite; did you mean 'latency'?"
        " shipped: bandwidth, history, ib_on_off, latency, nccl_matrix, smoke, sweep"
    )


@pytest.mark.parametrize("name", ["", "\0", "x" * 5000, "/"])
def test_what_can_be_no_file_is_an_unknown_suite(name):
    with pytest.raises(SuiteError, match="is neither a file nor a shipped suite"):
        find_suite(name)


def test_a_file_comes_before_a_shipped_suite_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smoke").write_text("name = 'mine'")

    assert load_suite("smoke").name == "mine"


def test_a_value_set_in_python_is_named_by_its_key():
    with pytest.raises(UsageError) as caught:
        resolve(Suite(run=Place(repeats=0)), gpu=False)

    assert str(caught.value) == "run.repeats: 0 is out of range; allowed: 1 to 10000"
