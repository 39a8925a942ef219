"""Ten wrong first tries: each ends in words after which one knows what to do, and in its status.

Those that need no process are tried here as a user does, message and status. The others take
processes, nodes or a full disk, and are held where they are made:

| first try | here | with processes |
|---|---|---|
| no GPU, and one was promised or asked for | yes | |
| a GPU that does not open | yes | |
| the wrong interface | --interface | test_settings.py: test_an_interface_that_is_not_there_... |
| too few nodes | yes | tests/lab/test_node_faults.py: test_a_node_that_is_not_reached_is_named |
| ranks that contradict each other | yes | tests/lab/test_node_faults.py: test_two_of_the_same_... |
| results of a newer version | yes | |
| a suite or an option with a typo | yes | |
| a stopped node | a model's | test_faults.py: test_a_rank_stopped_from_outside_is_hung_and_named; |
| | | tests/lab/test_pairwise.py: test_a_stopped_worker_is_named |
| IB asked for and absent | a stored run | tests/gpu/test_sweep_gpu.py |
| a size that does not fit | a model's | |
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from setting_trials import ended, under
from stored_runs import put, stored_run

from collbench.analyze.findings import sweep_findings
from collbench.cli import ground, placement
from collbench.model import Gpu, ReasonCode, Status
from collbench.probe.gpu import GpuSurvey

ROOT = Path(__file__).parents[2]
FABRICS = ROOT / "suites/fabrics"
NO_NVML = "NVML: NVML Shared Library Not Found"
PROMISES = ("SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "SLURM_GPUS")
ON_PCI = ("0000:19:00.0", "0000:3b:00.0")
ONE_OPENS = (Gpu(index=0, name="NVIDIA H200", uuid="GPU-0", pci_bus_id=ON_PCI[0], memory_bytes=1),)


@pytest.fixture
def machine(monkeypatch):
    """Makes the machine one with these GPUs, and no variable of a launcher."""

    def make(survey, **variables):
        for name in (*PROMISES, "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for module in (ground, placement):
            monkeypatch.setattr(module, "survey_gpus", lambda: survey)

    return make


def ends(done, status, text):
    """The command said one line, this one, and left nothing behind."""
    assert (done.returncode, done.stderr) == (status, f"collbench: {text}\n")
    assert done.stdout == ""


# No GPU


@pytest.mark.parametrize(
    ("options", "variables", "status", "text"),
    [
        (
            ("--backend", "nccl"),
            {},
            2,
            (
                "--backend nccl needs an NVIDIA GPU and none is on PCI here; leave it out to"
                " measure the CPU over Gloo"
            ),
        ),
        (
            (),
            {"SLURM_JOB_GPUS": "0,1"},
            3,
            (
                f"a GPU is promised but none can be used: on PCI: none; {NO_NVML}; promised by"
                " SLURM_JOB_GPUS=0,1; look at nvidia-smi on this node; to measure the CPU on"
                " purpose: --backend gloo"
            ),
        ),
        (
            ("--expect-gpus", "8"),
            {},
            3,
            (
                f"--expect-gpus 8, but 0 can be used: on PCI: none; {NO_NVML}; nvidia-smi on this"
                " node says which open, the job's request which it has"
            ),
        ),
        (
            ("--ib", "on,off"),
            {},
            2,
            (
                "--ib steers NCCL, and here Gloo communicates, which has no such choice; leave it"
                " out, or run on a machine with NVIDIA GPUs"
            ),
        ),
    ],
    ids=["asked for", "promised", "expected", "IB"],
)
def test_no_gpu(here, machine, options, variables, status, text):
    machine(GpuSurvey(error=NO_NVML), **variables)

    ends(here("sweep", *options), status, text)


# A GPU that does not open


@pytest.mark.parametrize(
    ("survey", "variables", "text"),
    [
        (
            GpuSurvey(on_pci=ON_PCI, error="NVML: Driver Not Loaded"),
            {},
            (
                "a GPU is present but none can be used: on PCI: 0000:19:00.0, 0000:3b:00.0; the"
                " NVIDIA driver is not loaded; NVML: Driver Not Loaded; look at nvidia-smi on this"
                " node; to measure the CPU on purpose: --backend gloo"
            ),
        ),
        (
            GpuSurvey(
                on_pci=ON_PCI,
                gpus=ONE_OPENS,
                driver="580.95",
                error="NVML does not open GPU 1: GPU is lost",
            ),
            {},
            (
                "NVML does not open GPU 1: GPU is lost, while 1 other opens; to measure without it"
                " name those by UUID in CUDA_VISIBLE_DEVICES"
            ),
        ),
        (
            GpuSurvey(on_pci=ON_PCI[:1], gpus=ONE_OPENS, driver="580.95"),
            {"CUDA_VISIBLE_DEVICES": "-1"},
            (
                "a GPU is present but none can be used: on PCI: 0000:19:00.0;"
                " CUDA_VISIBLE_DEVICES='-1' leaves 0 of 1; look at nvidia-smi on this node; to"
                " measure the CPU on purpose: --backend gloo"
            ),
        ),
    ],
    ids=["no driver", "one is lost", "hidden"],
)
def test_a_gpu_that_does_not_open(here, machine, survey, variables, text):
    machine(survey, **variables)

    ends(here("sweep"), 3, text)


# Several nodes


def test_a_single_node_where_several_are_needed(here, machine):
    machine(GpuSurvey(error=NO_NVML))

    ends(
        here("pairwise"),
        2,
        "1 node cannot be paired; start it on several: srun -N8 --ntasks-per-node=1 collbench"
        " pairwise",
    )
    ends(
        here("scale"),
        2,
        "1 node cannot be scaled: it takes two and more; start it on several: srun -N8"
        " --ntasks-per-node=1 collbench scale",
    )


@pytest.fixture
def two_nodes(here, machine, tmp_path):
    """Starts a command as node 0 of two."""
    machine(GpuSurvey(error=NO_NVML))
    where = f"file:{tmp_path / 'meeting.json'}"

    def start(*options):
        return here("sweep", "--nodes", "2", *options, "--rendezvous", where, "--wait", "1s")

    return start


def test_the_wrong_interface(two_nodes):
    done = two_nodes("--node-rank", "0", "--interface", "ib7")

    assert done.returncode == 2
    assert re.fullmatch(
        r"collbench: --interface 'ib7' does not exist here;( did you mean '\w+'\?)? there are: .*"
        r"lo 127\.0\.0\.1.*\n",
        done.stderr,
    )


def test_an_address_that_nobody_else_can_reach(here, machine):
    machine(GpuSurvey(error=NO_NVML))
    where = ("--nodes", "2", "--node-rank", "0", "--rendezvous", "127.0.0.1:29400")

    ends(
        here("sweep", *where),
        2,
        "127.0.0.1 is each node's own loopback address and cannot be the place where 2 nodes meet;"
        " give --rendezvous HOST:PORT with a name or address of node 0 that every node knows",
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            (),
            (
                "1 of 2 did not come within 1 s: process 1; look at their output, wait longer"
                " (--wait), or begin without them (--min-nodes)"
            ),
        ),
        (
            ("--min-nodes", "2"),
            (
                "1 node is here, --min-nodes asks for 2; absent: process 1; look at their output,"
                " wait longer (--wait), or ask for fewer"
            ),
        ),
    ],
    ids=["all", "the fewest"],
)
def test_too_few_nodes(two_nodes, options, text):
    ends(two_nodes("--node-rank", "0", *options), 3, text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ("--node-rank", "2"),
            "--node-rank 2 and --nodes 2 contradict each other; allowed: 0 to 1",
        ),
        (
            (),
            (
                "--nodes 2, but no launcher says which one this is; give each node its --node-rank"
                " from 0, or start it with srun, torchrun or mpirun"
            ),
        ),
    ],
    ids=["beyond", "none"],
)
def test_a_rank_that_cannot_be(two_nodes, options, text):
    ends(two_nodes(*options), 2, text)


def test_variables_of_a_launcher_that_contradict_each_other(here, machine):
    left = {"RANK": "5", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    machine(GpuSurvey(error=NO_NVML), **left, MASTER_ADDR="node0", MASTER_PORT="29500")

    ends(
        here("sweep"),
        2,
        "the variables of torch.distributed contradict each other: RANK=5, WORLD_SIZE=4,"
        " MASTER_ADDR=node0, MASTER_PORT=29500, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4; processes count"
        " from 0 and are fewer than their number: unset what another job left behind, or start it"
        " with srun, torchrun or mpirun",
    )


# Results, suites, options


@pytest.mark.parametrize("command", ["show", "plot", "report", "analyze", "compare"])
def test_results_of_a_newer_version(here, tmp_path, command):
    folder = tmp_path / "newer"
    shutil.copytree(ROOT / "tests/data/golden/v1", folder)
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 2}))

    ends(
        here(command, str(folder)),
        2,
        f"{path} is of schema 2; this collbench reads up to 1: upgrade collbench",
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--colective", "all_reduce"),
            "no such option --colective; did you mean '--collective'? see collbench sweep --help",
        ),
        (
            ("--sizes", "10MB"),
            (
                "--sizes: size '10MB' has two meanings; write 10M (or 10MiB) for 10485760 bytes, or"
                " 10000000 for decimal"
            ),
        ),
    ],
    ids=["option", "size"],
)
def test_a_typo(here, words, text):
    ends(here("sweep", *words), 2, text)


def test_a_shipped_suite_with_a_typo(here):
    done = here("sweep", "nccl_matirx")

    assert done.returncode == 2
    assert done.stderr.startswith(
        "collbench: suite 'nccl_matirx' is neither a file nor a shipped suite; did you mean"
        " 'nccl_matrix'? shipped: bandwidth, "
    )


def test_a_suite_with_a_typo(here, tmp_path):
    suite = tmp_path / "mine.toml"
    suite.write_text('[sweep]\ncolectives = ["all_reduce"]\n')

    done = here("sweep", str(suite))

    assert done.returncode == 2
    assert done.stderr.startswith(
        f"collbench: {suite}: unknown key sweep.colectives; did you mean 'collectives'? allowed:"
    )


def test_a_run_that_is_not_there(here, collbench):
    ends(
        here("show", "2026"),
        2,
        f"no run '2026': there are no runs in '{collbench.results}'; measure with 'collbench"
        " sweep', or give another folder with --results",
    )


# A stopped node


def test_a_node_that_is_stopped_is_named_with_what_to_do(pairs):
    done = pairs(FABRICS / "hang_8.toml")

    assert done.returncode == 1
    assert re.search(r"^FAIL +1  node6  hangs: ", done.stdout, re.MULTILINE)
    assert re.search(r"^NEXT +on node6: ", done.stdout, re.MULTILINE)


# IB asked for and absent


@pytest.mark.parametrize(
    ("code", "text", "next_step"),
    [
        (
            ReasonCode.NO_RDMA_DEVICE,
            "IB was asked for, the data went over NET/Socket: no IB device found",
            "ibstat and ls /sys/class/infiniband on each node",
        ),
        (
            ReasonCode.NO_NETWORK_USED,
            (
                "all ranks are on one node; the data went over NVLink (P2P/CUMEM) whatever IB was"
                " set to"
            ),
            "take two nodes",
        ),
    ],
    ids=["no device", "one node"],
)
def test_ib_that_did_not_carry_the_data(here, tmp_path, code, text, next_step):
    on = {"ib": "on"}
    trials = [under({"ib": "off"}, 2**20, 100.0)]
    trials += [ended(under(on, 2**20, 100.0), Status.PATH_NOT_USED, code, text)]
    made = stored_run(trials)
    found = sweep_findings(made.run, trials, lambda _: None)
    folder = put(stored_run(trials, findings=found), tmp_path / "lab")

    done = here("show", str(folder))

    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "path_not_used: ib on: " in said
    assert text in said
    assert next_step in said


# A size that does not fit


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.toml"
    path.write_text("ranks = 4\nalpha_us = 10.0\nbandwidth_gb_per_s = 100.0\n")
    return str(path)


@pytest.mark.parametrize(("sizes", "status"), [("1M,1T", 0), ("1T", 3)])
def test_a_size_that_does_not_fit_is_skipped(here, model, sizes, status):
    done = here("sweep", "--simulate", model, "--collective", "all_reduce", "--sizes", sizes)

    assert done.returncode == status, done.stderr
    assert re.search(r"skipped: needs \S+ TiB a rank, \S+ GiB are free", done.stdout)
    said = " ".join(done.stdout.split())
    assert re.search(r"1 case skipped \(no_memory\): needs .* are free\. Next: a smaller -e", said)


def test_pairs_whose_message_does_not_fit_have_not_passed(pairs):
    done = pairs(FABRICS / "healthy_8.toml", "--size", "1T")

    assert done.returncode == 4
    assert "INCONCLUSIVE    8  node0  its pairs lost nothing, and none gave a rate" in done.stdout
    assert re.search(
        r"^NEXT +--size below 1 TiB: needs \S+ TiB a rank, \S+ GiB are free$",
        done.stdout,
        re.MULTILINE,
    )


def test_steps_whose_message_does_not_fit_say_so(on_fabric):
    fabric = "[fabric]\nnodes = 4\ngpus_per_node = 1\nrails = 1\nleaves = 2\n"
    done = on_fabric("scale", fabric, "--patterns", "pairs,inside", "--size", "1T")

    assert done.returncode == 3
    said = " ".join(done.stdout.split())
    assert "70 of 70 steps have no rate" in said
    assert re.search(
        r"next see first why steps have no rate: below, and in the run's logs/"
        r" --size below 1 TiB: needs 2 TiB a rank, \S+ GiB are free ran ",
        said,
    )
