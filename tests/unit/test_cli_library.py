"""Settings and libraries on the command line: what is refused, and what is said before the run."""

from __future__ import annotations

from importlib.machinery import ModuleSpec

import pytest

from collbench.cli import ground, library, main, sweep_run
from collbench.cli.library import NEWEST_KNOWN, Libraries, find_libraries, nccl_place, warnings_of
from collbench.engine.placement import Slots
from collbench.errors import UsageError
from collbench.model import Gpu, LibraryVersion, Node, Topology
from collbench.probe.gpu import GpuSurvey
from collbench.suite import Suite, override, resolve

GPUS = tuple(
    Gpu(
        index=index,
        name="NVIDIA H200",
        uuid=f"GPU-{index}",
        pci_bus_id=f"0000:{index}a:00.0",
        memory_bytes=1,
        compute_capability="9.0",
    )
    for index in range(2)
)
NEEDS_EXTRA = (
    "--via native needs nccl4py: pip install 'collbench[native]', in a clone"
    " pip install -c constraints.txt -e '.[native]'"
)


@pytest.fixture
def nccl_file(tmp_path):
    """A file that NCCL 2.28.9 can be read from."""
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(b"\x7fELF\0NCCL version 2.28.9+cuda13.0\0NCCL_ALGO\0NCCL_IB_TIMEOUT\0")
    return path


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine without GPUs, nccl4py, NCCL or its variables; returns what gives it some."""

    def gives(*, gpus=(), modules=(), installed=None):
        survey = GpuSurvey(gpus=gpus, on_pci=tuple(gpu.pci_bus_id for gpu in gpus), driver="580")
        monkeypatch.setattr(ground, "survey_gpus", lambda: survey)
        specs = {name: ModuleSpec(name, None) for name in modules}
        monkeypatch.setattr(library, "find_spec", specs.get)
        monkeypatch.setattr(library, "installed_library", lambda: installed)

    monkeypatch.setattr("os.environ", {"HOME": str(tmp_path), "PATH": ""})
    gives()
    return gives


@pytest.fixture
def tell(capsys):
    """Returns what runs a dry sweep: (status, lines of stdout, stderr)."""

    def called(*arguments):
        with pytest.raises(SystemExit) as end:
            main.run(["sweep", "--dry-run", *arguments])
        written = capsys.readouterr()
        return end.value.code, written.out.splitlines(), written.err

    return called


def suite(**options):
    return override(Suite(), **options)


# Refusals


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--via", "native"], NEEDS_EXTRA),
        (
            ["--nccl", "/opt/libnccl.so.2"],
            (
                "--nccl /opt/libnccl.so.2 needs --via native: torch loads the library that it was"
                " installed with"
            ),
        ),
        (
            ["--alg-selection", "tree"],
            "--alg-selection needs --via native: torch does not pass it on",
        ),
        (
            ["--algo", "ring"],
            (
                "--algo steers NCCL, and here Gloo communicates, which has no such choice; leave"
                " it out, or run on a machine with NVIDIA GPUs"
            ),
        ),
        (
            ["--net", "IB", "--proto", "ll", "--algo", "ring"],
            (
                "--algo, --proto, --net steer NCCL, and here Gloo communicates, which has no such"
                " choice; leave them out, or run on a machine with NVIDIA GPUs"
            ),
        ),
        (
            ["--ib", "off"],
            (
                "--ib steers NCCL, and here Gloo communicates, which has no such choice; leave it"
                " out, or run on a machine with NVIDIA GPUs"
            ),
        ),
        (
            ["--setting", "default", "--setting", "NCCL_ALGO=Tree"],
            (
                "--setting NCCL_ALGO steers NCCL, and here Gloo communicates, which has no such"
                " choice; leave it out, or run on a machine with NVIDIA GPUs"
            ),
        ),
        (
            ["--setting", "ib=off NCCL_ALGO=Tree", "--proto", "LL"],
            (
                "--setting NCCL_ALGO, --proto, --setting ib steer NCCL, and here Gloo"
                " communicates, which has no such choice; leave them out, or run on a machine with"
                " NVIDIA GPUs"
            ),
        ),
        (
            ["--algo", "tre"],
            (
                "--algo: unknown algorithm 'tre'; did you mean 'Tree'? allowed: Ring, Tree, NVLS,"
                " NVLSTree, CollNetDirect, CollNetChain, PAT, or default alone"
            ),
        ),
        (
            ["--env", "HF_TOKEN=x"],
            (
                "--env: HF_TOKEN looks like a secret, and settings are stored with the results;"
                " set it in the environment of the command instead"
            ),
        ),
        (
            ["--fake-hosts", "2"],
            (
                "--fake-hosts 2 works through NCCL_HOSTID, which Gloo does not know; it needs an"
                " NVIDIA GPU"
            ),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("backend", [[], ["--backend", "gloo"]], ids=["as it comes", "gloo"])
def test_what_cannot_be_without_nccl_is_one_line_and_exit_2(tell, backend, arguments, text):
    assert tell(*backend, *arguments) == (2, [], f"collbench: {text}\n")


@pytest.mark.parametrize("modules", [(), ("nccl",), ("cuda",)], ids=str)
def test_native_needs_all_of_its_extra(machine, modules):
    machine(modules=modules)

    with pytest.raises(UsageError, match="needs nccl4py"):
        find_libraries(suite(via="native"))


def test_native_on_gloo_is_refused(machine, tell, nccl_file):
    machine(modules=("nccl", "cuda"))

    assert tell("--via", "native", "--nccl", str(nccl_file)) == (
        2,
        [],
        (
            "collbench: --via native, --nccl steer NCCL, and here Gloo communicates, which has no"
            " such choice; leave them out, or run on a machine with NVIDIA GPUs\n"
        ),
    )


def test_a_path_that_is_no_library_is_refused(machine, tell, tmp_path):
    machine(gpus=GPUS, modules=("nccl", "cuda"))
    path = tmp_path / "notes.txt"
    path.write_text("NCCL version 2.28.9")

    assert tell("--via", "native", "--nccl", str(path)) == (
        2,
        [],
        f"collbench: {path} is no shared library; give the path of a libnccl.so.2\n",
    )


def test_settings_that_nccl_can_never_run_are_refused(machine, tell):
    machine(gpus=GPUS)

    status, out, err = tell("--algo", "NVLSTree", "--collective", "all_reduce", "--sizes", "8")

    assert (status, out) == (2, [])
    assert err.startswith(
        "collbench: nothing of what is asked can be: NVLSTree: NVLSTree needs at least 2 nodes;"
    )


# What is found


def test_the_library_is_the_one_named_else_the_installed_one(machine, nccl_file, tmp_path):
    other = tmp_path / "libnccl_other.so"
    other.write_bytes(b"\x7fELF NCCL version 2.32.3")
    assert find_libraries(suite()) == Libraries(first=None)

    machine(installed=nccl_file, modules=("nccl", "cuda"))
    found = LibraryVersion(version="2.28.9", path=str(nccl_file))
    assert find_libraries(suite()).first == found
    assert find_libraries(suite(via="native")).first == found
    assert find_libraries(suite(via="native", nccl=str(other))).first == LibraryVersion(
        version="2.32.3", path=str(other)
    )
    both = find_libraries(suite(via="native", nccl=("old=auto", f"new={other}")))
    assert both.first == found
    assert {name: library.version for name, library in both.named.items()} == {
        "old": "2.28.9",
        "new": "2.32.3",
    }
    assert both.all == list(both.named.values())


def place_of(asked, found, environ):
    resolved = resolve(asked, gpu=True)
    node = Node(name="n", cpu_model="", cpus=1, numa_nodes=1, memory_bytes=1, gpus=list(GPUS))
    slots = Slots(backend="nccl", world_size=4, gpus=GPUS * 2, fake_hosts=("a", "a", "b", "b"))
    return nccl_place(resolved, slots, Topology(nodes=[node]), Libraries(first=found), environ)


def test_the_place_is_that_of_the_library_the_hosts_and_the_variables():
    environ = {"NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "Tree", "HOME": "/root", "NCCL_KEY": "x"}
    place = place_of(suite(algo=("ring",)), LibraryVersion(version="2.28.9"), environ)

    assert (place.version, place.nodes, place.ranks) == ((2, 28, 9), 2, 4)
    assert place.compute_capability == (9, 0)
    assert place.variables == {"NCCL_NVLS_ENABLE": "0"}, "what is swept is not the environment's"


@pytest.mark.parametrize("found", [None, LibraryVersion(version="unknown")], ids=str)
def test_a_library_of_no_known_release_is_taken_for_the_newest(found):
    assert place_of(suite(), found, {}).version == NEWEST_KNOWN


def test_variables_without_effect_and_those_that_are_swept_are_said(nccl_file):
    resolved = resolve(suite(algo=("ring",), env=("NCCL_TREE_THRESHOLD=0",)), gpu=True)
    found = LibraryVersion(version="2.28.9", path=str(nccl_file))
    environ = {"NCCL_ALGO": "Tree", "NCCL_TIMEOUT": "22", "NCCL_BLOCKING_WAIT": "1", "HOME": "/"}

    assert warnings_of(resolved, Libraries(first=found), environ) == [
        "NCCL_ALGO=Tree of the environment is not used: this variable is swept",
        "NCCL_TIMEOUT has no effect: NCCL 2.28.9 does not know it; did you mean 'NCCL_IB_TIMEOUT'?",
        "NCCL_TREE_THRESHOLD has no effect: NCCL 2.28.9 does not know it",
    ]


def test_without_a_library_only_what_is_swept_is_said():
    resolved = resolve(suite(algo=("ring",)), gpu=True)
    environ = {"NCCL_ALGO": "Tree", "NCCL_TIMEOUT": "22"}

    assert warnings_of(resolved, Libraries(first=None), environ) == [
        "NCCL_ALGO=Tree of the environment is not used: this variable is swept"
    ]


def test_a_dry_run_says_what_is_left_out_and_what_has_no_effect(
    machine, tell, nccl_file, monkeypatch
):
    machine(gpus=GPUS, installed=nccl_file)
    monkeypatch.setitem(sweep_run.os.environ, "NCCL_TIMEOUT", "22")

    status, out, err = tell(
        *("--algo", "ring,nvlstree", "--collective", "all_reduce", "--sizes", "8"),
        *("--mode", "graph", "--fake-hosts", "2"),
    )

    assert (status, err) == (0, "")
    assert out[0].startswith("EMULATED: 2 fake hosts on one machine, 2 ranks on 2 x NVIDIA H200; ")
    assert out[1].startswith("plan: 1 collective x 1 size: 1 case, 1 repeat, 1 zygote, 2 workers,")
    assert out[2] == "  run not started (--dry-run)"
    assert out[3] == "  cannot be, not run: all_reduce with NVLSTree"
    assert out[4] == (
        "  NCCL_TIMEOUT has no effect: NCCL 2.28.9 does not know it; did you mean"
        " 'NCCL_IB_TIMEOUT'?"
    )
    assert [line.partition("#")[0] for line in out[5:]] == ["  all_reduce/float32/sum/8B/graph"]
