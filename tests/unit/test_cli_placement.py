"""What ``placement`` shows of a process, and the options about nodes."""

from __future__ import annotations

import json
import os
import re

import pytest
from click.testing import CliRunner

from collbench.cli.launch_options import LAUNCH_OPTIONS, read_launch_options
from collbench.cli.main import cli
from collbench.cli.placement import Placement, placement_text
from collbench.errors import UsageError
from collbench.launch.detect import Launch, Launcher
from collbench.launch.meeting import Meeting, MeetingKind
from collbench.launch.options import LaunchOptions
from collbench.launch.share import core_warning, own_core_count, own_gpus
from collbench.model import Gpu
from collbench.probe.gpu import GpuSurvey

LAUNCHED = re.compile(r"^(SLURM|OMPI_|PMI_|PMIX_|MPI_|PET_|TORCHELASTIC_|KUBERNETES_|COLLBENCH_)")
STEP = {
    "CUDA_VISIBLE_DEVICES": "0,1",
    "SLURM_JOB_ID": "7",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURMD_NODENAME": "node0",
}


@pytest.fixture
def shown(monkeypatch):
    """Returns what runs ``placement`` on a machine of two GPUs and four cores, two of them ours."""
    gpus = tuple(
        Gpu(index=i, name="NVIDIA H200", uuid=f"GPU-{i}", pci_bus_id="0", memory_bytes=1)
        for i in range(2)
    )
    survey = GpuSurvey(on_pci=("0", "1"), gpus=gpus)

    def called(*arguments, environ=None, survey=survey):
        for name in [name for name in os.environ if LAUNCHED.match(name)]:
            monkeypatch.delenv(name)
        for name in ("RANK", "WORLD_SIZE", "JOB_COMPLETION_INDEX", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (environ or {}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("collbench.cli.placement.survey_gpus", lambda: survey)
        monkeypatch.setattr("collbench.cli.placement.usable_cores", lambda: frozenset({2, 3}))
        monkeypatch.setattr("collbench.cli.placement.os.cpu_count", lambda: 4)
        monkeypatch.setattr("collbench.cli.placement.address_of", lambda *_: "198.18.0.1")
        monkeypatch.setattr("collbench.cli.placement.interface_of", lambda _: "eth0")
        monkeypatch.setattr("collbench.cli.placement.socket.gethostname", lambda: "here")
        return CliRunner().invoke(cli, ["placement", *arguments])

    return called


def test_a_bare_process_says_so(shown):
    result = shown(survey=GpuSurvey())

    assert result.exit_code == 0
    assert result.stdout == (
        "launcher  bare\n"
        "process   0 of 1, 1 node\n"
        "node      here, process 0 of 1 on it\n"
        "job       -\n"
        "from      no variable of a launcher\n"
        "meets     nobody: there is one process\n"
        "address   198.18.0.1 (eth0)\n"
        "cores     2-3, 2 for this process\n"
        "GPUs      none\n"
        "ranks     1\n"
    )


def test_a_task_of_a_step_says_from_what_it_knows(shown):
    result = shown(environ=STEP | {"SLURM_STEP_TASKS_PER_NODE": "2(x1)"})

    ports = "22849, 48537, 28462, 31074, 54262, 36706, 42462, 31194"
    assert result.exit_code == 0
    assert result.stdout == (
        "launcher  srun\n"
        "process   1 of 2, 1 node\n"
        "node      node0, process 1 of 2 on it\n"
        "job       7.3\n"
        "from      SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_NODEID=0 SLURM_LOCALID=1"
        " SLURM_STEP_TASKS_PER_NODE=2(x1) SLURM_STEP_NODELIST=localhost SLURMD_NODENAME=node0"
        " SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_STEP_NUM_NODES=1\n"
        f"meets     localhost, ports {ports}: the first host of Slurm's step 7.3\n"
        "address   198.18.0.1 (eth0)\n"
        "cores     2-3, 2 for this process\n"
        "GPUs      1 NVIDIA H200\n"
        "ranks     1\n"
    )


def test_too_few_cores_are_said_with_the_launchers_option(shown):
    alone = {"SLURM_LOCALID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    result = shown(environ=STEP | alone | {"SLURM_STEP_TASKS_PER_NODE": "1"})

    assert result.stdout.splitlines()[-1] == (
        "warning   fewer than 2 cores a rank: 2 for 2; times of small messages will be worse than"
        " they need to be; srun --cpus-per-task=N gives a task more (--cpu-bind=none: all)"
    )


def test_gpus_that_the_launcher_has_bound_are_said(shown):
    result = shown(environ=STEP | {"CUDA_VISIBLE_DEVICES": "1", "SLURM_STEP_GPUS": "0,1"})

    assert "GPUs      1 NVIDIA H200, bound by the launcher\n" in result.stdout


def test_a_gpu_that_does_not_open_is_said(shown):
    result = shown(survey=GpuSurvey(on_pci=("0",), error="NVML: Driver Not Loaded"))

    assert "GPUs      NVML: Driver Not Loaded\nranks     0\n" in result.stdout


def test_where_they_cannot_meet_the_rest_is_shown_all_the_same(shown):
    result = shown("--nodes", "2", "--node-rank", "1")

    assert isinstance(result.exception, UsageError)
    assert "have no place to meet" in str(result.exception)
    lines = result.stdout.splitlines()
    assert lines[0] == "launcher  plain"
    assert lines[4] == "from      --nodes and --node-rank"
    assert lines[5] == "meets     nowhere: see the error"


def test_json_is_one_object_and_holds_no_secret(shown):
    secret = "never to be seen anywhere"
    environ = STEP | {"COLLBENCH_SECRET": secret}
    result = shown("--json", "--rendezvous", "localhost:29400", environ=environ)

    found = json.loads(result.stdout)
    assert secret not in result.stdout
    assert found["meeting"] == {
        "kind": "address",
        "host": "localhost",
        "ports": [29400],
        "path": None,
        "key": "",
        "why": "--rendezvous localhost:29400",
    }
    assert found["launch"]["launcher"] == "srun"
    assert {name: found[name] for name in found if name not in ("launch", "meeting")} == {
        "problem": None,
        "interface": "eth0",
        "address": "198.18.0.1",
        "cores": "2-3",
        "own_cores": 2,
        "gpus": ["1 NVIDIA H200"],
        "gpu_problem": None,
        "ranks": 1,
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("meeting", "text"),
    [
        (Meeting(kind=MeetingKind.FILE, path="/shared/x", why="a file"), "/shared/x: a file"),
        (Meeting(kind=MeetingKind.MPI, why="over MPI"), "over MPI"),
        (
            Meeting(kind=MeetingKind.ADDRESS, host="a", ports=(1,), why="an address"),
            "a, port 1: an address",
        ),
    ],
)
def test_how_they_meet_stands_in_one_line(meeting, text):
    launch = Launch(launcher=Launcher.MPIRUN, process=0, processes=2, node_name="here")
    found = Placement(
        launch=launch,
        meeting=meeting,
        problem=None,
        interface=None,
        address="198.18.0.1",
        cores="0",
        own_cores=1,
        gpus=[],
        gpu_problem=None,
        ranks=1,
        warnings=[],
    )

    lines = placement_text(found).splitlines()

    assert lines[1] == "process   0 of 2, nodes not known"
    assert lines[5:7] == [f"meets     {text}", "address   198.18.0.1"]


def given(**values):
    return {option.param: None for option in LAUNCH_OPTIONS} | {"strict": False} | values


def test_options_that_are_not_given_leave_it_to_the_launcher():
    assert read_launch_options(given()) == LaunchOptions()


def test_options_make_a_record():
    values = given(
        nodes="8",
        node_rank="0",
        node_name=" mine ",
        rendezvous="node0:29400",
        interface="eth0",
        wait="2m",
        min_nodes="6",
        exclude="gpu[01-02],x",
        strict=True,
        secret_file="/s",
        other="not looked at",
    )

    assert read_launch_options(values) == LaunchOptions(
        nodes=8,
        node_rank=0,
        node_name="mine",
        rendezvous="node0:29400",
        interface="eth0",
        wait_s=120.0,
        min_nodes=6,
        exclude=("gpu01", "gpu02", "x"),
        strict=True,
        secret_file="/s",
    )


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("nodes", "0", "--nodes: 0 must be at least 1"),
        ("node_rank", "-1", "--node-rank: -1 must be at least 0"),
        ("node_rank", "x", "--node-rank: 'x' is no whole number; write for instance 5"),
        ("node_name", " ", "--node-name: the value is empty; leave the option out"),
        ("exclude", "", "--exclude: the value is empty; leave the option out"),
        ("min_nodes", "0", "--min-nodes: 0 must be at least 1"),
        (
            "wait",
            "soon",
            "--wait: duration 'soon' is not a duration; write 0.5s, 200ms, 2m",
        ),
        (
            "exclude",
            "a[",
            "--exclude: 'a[' is no list of nodes; write for instance gpu[001-003,7],login",
        ),
        (
            "rendezvous",
            "node0",
            (
                "--rendezvous: 'node0' is no place to meet; write HOST:PORT with a port from 1 to"
                " 65535, for instance node0:29400, or file:PATH on a folder that all nodes share"
            ),
        ),
    ],
)
def test_a_value_that_cannot_be_names_its_option(option, value, text):
    with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
        read_launch_options(given(**{option: value}))


@pytest.mark.parametrize(
    ("local", "bound", "expected"),
    [
        ((0, 1), False, "abcdefgh"),
        ((0, 2), False, "abcd"),
        ((1, 2), False, "efgh"),
        ((7, 8), False, "h"),
        ((2, 3), False, "ef"),
        ((8, 9), False, ""),
        ((1, 2), True, "abcdefgh"),
    ],
)
def test_processes_of_a_node_share_what_they_see(local, bound, expected):
    launch = Launch(
        launcher=Launcher.TORCHRUN,
        process=local[0],
        processes=16,
        local_process=local[0],
        local_processes=local[1],
        node_name="here",
        gpus_bound=bound,
    )

    assert own_gpus(launch, "abcdefgh") == tuple(expected)


@pytest.mark.parametrize(("usable", "of_machine", "own"), [(2, 64, 2), (64, 64, 16), (3, 3, 0)])
def test_cores_that_all_may_use_are_shared(usable, of_machine, own):
    launch = Launch(
        launcher=Launcher.TORCHRUN, process=0, processes=8, local_processes=4, node_name="here"
    )

    assert own_core_count(launch, usable, of_machine) == own


@pytest.mark.parametrize(
    ("launcher", "remedy"),
    [
        (Launcher.MPIRUN, "mpirun --map-by slot:PE=N gives a process more (--bind-to none: all)"),
        (Launcher.KUBERNETES, "ask for more in the pod's resources (cpu)"),
        (Launcher.TORCHRUN, "no option gives more"),
    ],
)
def test_the_warning_of_too_few_cores_names_what_helps(launcher, remedy):
    launch = Launch(launcher=launcher, process=0, processes=2, node_name="here")

    assert core_warning(launch, 4, 2) is None
    assert core_warning(launch, 3, 2) == (
        "fewer than 2 cores a rank: 3 for 2; times of small messages will be worse than they need"
        f" to be; {remedy}"
    )
