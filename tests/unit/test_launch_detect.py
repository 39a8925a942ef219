"""Who started us: a table of the variables that each launcher really sets."""

from __future__ import annotations

import re

import pytest

from collbench.errors import UsageError
from collbench.launch.detect import Launch, Launcher, detect, expand_hostlist
from collbench.launch.hostlist import MOST_HOSTS, expand_counts
from collbench.launch.options import LaunchOptions

SRUN_A_NODE = {
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "node[0-3]",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "node[0-3]",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
    "SLURMD_NODENAME": "node2",
}
SRUN_A_GPU = SRUN_A_NODE | {
    "CUDA_VISIBLE_DEVICES": "0",
    "SLURM_GPUS_PER_TASK": "1",
    "SLURM_LOCALID": "3",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "7",
    "SLURM_STEP_GPUS": "0,1,2,3",
    "SLURM_STEP_NODELIST": "node[0-1]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURMD_NODENAME": "node1",
}
BATCH_SCRIPT = {
    "SLURM_JOB_ID": "7",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURMD_NODENAME": "node0",
}
ONE_TASK = SRUN_A_NODE | {
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURM_STEP_NODELIST": "node0",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURMD_NODENAME": "node0",
}
TORCHRUN = {
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "LOCAL_RANK": "3",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "RANK": "7",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_RUN_ID": "qualify-12",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "WORLD_SIZE": "8",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "PMIX_NAMESPACE": "3217358849",
    "PMIX_RANK": "3",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
INDEXED_JOB = {
    "COLLBENCH_NODES": "4",
    "HOSTNAME": "qualify-2",
    "JOB_COMPLETION_INDEX": "2",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
}
PYTORCHJOB = {
    "HOSTNAME": "qualify-worker-0",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "MASTER_ADDR": "qualify-master-0",
    "MASTER_PORT": "23456",
    "RANK": "1",
    "WORLD_SIZE": "3",
}
TRAINJOB = {
    "HOSTNAME": "qualify-node-0-1",
    "JOB_COMPLETION_INDEX": "1",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "PET_MASTER_ADDR": "qualify-node-0-0.qualify",
    "PET_MASTER_PORT": "29500",
    "PET_NNODES": "3",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "8",
}


def found(environ, **options):
    return detect(environ, LaunchOptions(**options), "here")


def summary(launch: Launch) -> tuple:
    return (
        launch.launcher.value,
        (launch.process, launch.processes),
        (launch.local_process, launch.local_processes),
        launch.node_name,
        launch.nodes,
        launch.job,
    )


@pytest.mark.parametrize(
    ("environ", "options", "expected"),
    [
        pytest.param({}, {}, ("bare", (0, 1), (0, 1), "here", 1, None), id="bare"),
        pytest.param({}, {"nodes": 1}, ("bare", (0, 1), (0, 1), "here", 1, None), id="one node"),
        pytest.param(
            {},
            {"nodes": 3, "node_rank": 2, "rendezvous": "a:1", "node_name": "mine"},
            ("plain", (2, 3), (0, 1), "mine", 3, None),
            id="plain",
        ),
        pytest.param(
            {},
            {"nodes": 3, "node_rank": 2, "rendezvous": "file:/shared/here"},
            ("plain", (2, 3), (0, 1), "here", 3, None),
            id="plain, by a file",
        ),
        pytest.param(
            SRUN_A_NODE, {}, ("srun", (2, 4), (0, 1), "node2", 4, "7.3"), id="srun, one a node"
        ),
        pytest.param(
            SRUN_A_GPU, {}, ("srun", (7, 8), (3, 4), "node1", 2, "7.3"), id="srun, one a GPU"
        ),
        pytest.param(
            SRUN_A_NODE | {"SLURM_RESTART_COUNT": "2"},
            {},
            ("srun", (2, 4), (0, 1), "node2", 4, "7.3.2"),
            id="a job that was queued again",
        ),
        pytest.param(
            # Tasks dealt out over the nodes: the second of node 0 is task 2.
            SRUN_A_GPU
            | {
                "SLURM_LOCALID": "1",
                "SLURM_NODEID": "0",
                "SLURM_PROCID": "2",
                "SLURM_STEP_NUM_TASKS": "3",
                "SLURM_STEP_TASKS_PER_NODE": "2,1",
            },
            {},
            ("srun", (1, 3), (1, 2), "node1", 2, "7.3"),
            id="srun --distribution=cyclic",
        ),
        pytest.param(
            SRUN_A_NODE | {"PMI_RANK": "2", "PMI_SIZE": "4"},
            {},
            ("srun", (2, 4), (0, 1), "node2", 4, "7.3"),
            id="srun --mpi=pmi2",
        ),
        pytest.param(
            BATCH_SCRIPT, {}, ("bare", (0, 1), (0, 1), "node0", 1, None), id="a batch script"
        ),
        pytest.param(ONE_TASK, {}, ("srun", (0, 1), (0, 1), "node0", 1, "7.3"), id="one task"),
        pytest.param(
            SRUN_A_NODE,
            {"nodes": 4, "node_rank": 1, "node_name": "x"},
            ("plain", (1, 4), (0, 1), "x", 4, "7.3"),
            id="options over srun",
        ),
        pytest.param(
            TORCHRUN, {}, ("torchrun", (7, 8), (3, 4), "here", 2, "qualify-12"), id="torchrun"
        ),
        pytest.param(
            TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"},
            {},
            ("torchrun", (7, 8), (3, 4), "here", 2, None),
            id="torchrun without an id",
        ),
        pytest.param(
            ONE_TASK | TORCHRUN | {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "WORLD_SIZE": "8"},
            {},
            ("torchrun", (7, 8), (3, 4), "node0", 1, "qualify-12"),
            id="torchrun in one task",
        ),
        pytest.param(
            SRUN_A_NODE
            | TORCHRUN
            | {
                "GROUP_RANK": "2",
                "GROUP_WORLD_SIZE": "4",
                "RANK": "11",
                "WORLD_SIZE": "16",
                "TORCHELASTIC_RUN_ID": "none",
            },
            {},
            ("torchrun", (11, 16), (3, 4), "node2", 4, "7.3"),
            id="torchrun in a task a node",
        ),
        pytest.param(
            OPEN_MPI, {}, ("mpirun", (3, 4), (1, 2), "here", None, "3217358849"), id="Open MPI"
        ),
        pytest.param(
            OPEN_MPI,
            {"nodes": 2},
            ("mpirun", (3, 4), (1, 2), "here", 2, "3217358849"),
            id="Open MPI with --nodes",
        ),
        pytest.param(
            # mpirun starts its daemons, one a remote node, in a step of their own.
            SRUN_A_NODE | OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "10"},
            {},
            ("mpirun", (3, 10), (1, 2), "node2", None, "3217358849"),
            id="Open MPI in a Slurm job",
        ),
        pytest.param(HYDRA, {}, ("mpirun", (3, 4), (1, 2), "here", None, None), id="MPICH, Intel"),
        pytest.param(
            ONE_TASK | {"PMI_RANK": "1", "PMI_SIZE": "2"},
            {},
            ("mpirun", (1, 2), (0, 1), "node0", None, None),
            id="MPICH in one task",
        ),
        pytest.param(
            INDEXED_JOB,
            {},
            ("kubernetes", (2, 4), (0, 1), "qualify-2", 4, "qualify"),
            id="indexed Job",
        ),
        pytest.param(
            INDEXED_JOB | {"JOB_NAME": "mine", "POD_NAME": "qualify-2-x7k2p"},
            {"nodes": 3},
            ("kubernetes", (2, 3), (0, 1), "qualify-2-x7k2p", 3, "mine"),
            id="indexed Job, count by option",
        ),
        pytest.param(
            INDEXED_JOB,
            {"nodes": 1},
            ("bare", (0, 1), (0, 1), "qualify-2", 1, None),
            id="indexed Job, each pod by itself",
        ),
        pytest.param(
            PYTORCHJOB,
            {},
            ("kubeflow", (1, 3), (0, 1), "qualify-worker-0", 3, "qualify-master-0"),
            id="PyTorchJob",
        ),
        pytest.param(
            PYTORCHJOB | {"PET_NPROC_PER_NODE": "8", "WORLD_SIZE": "24"},
            {},
            ("kubeflow", (1, 3), (0, 1), "qualify-worker-0", 3, "qualify-master-0"),
            id="PyTorchJob that counts ranks",
        ),
        pytest.param(
            TRAINJOB,
            {},
            ("kubeflow", (1, 3), (0, 1), "qualify-node-0-1", 3, "qualify-node-0-0.qualify"),
            id="TrainJob",
        ),
        pytest.param(
            TRAINJOB | TORCHRUN | {"GROUP_WORLD_SIZE": "3", "WORLD_SIZE": "12"},
            {},
            ("torchrun", (7, 12), (3, 4), "qualify-node-0-1", 3, "qualify-12"),
            id="torchrun in a TrainJob",
        ),
        pytest.param(
            {
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "a",
                "MASTER_PORT": "1",
                "RANK": "3",
                "WORLD_SIZE": "4",
            },
            {},
            ("plain", (3, 4), (1, 2), "here", None, None),
            id="torch's variables set by hand",
        ),
    ],
)
def test_every_launcher_is_known_by_its_variables(environ, options, expected):
    assert summary(found(environ, **options)) == expected


UNSET = ": unset what another job left behind, or start it with srun, torchrun or mpirun"


@pytest.mark.parametrize(
    ("environ", "options", "text"),
    [
        pytest.param(
            TORCHRUN | {"RANK": "8"},
            {},
            "the variables of torchrun contradict each other: TORCHELASTIC_RUN_ID=qualify-12,"
            " RANK=8, WORLD_SIZE=8, LOCAL_RANK=3, LOCAL_WORLD_SIZE=4, GROUP_RANK=1,"
            " GROUP_WORLD_SIZE=2, MASTER_ADDR=node0, MASTER_PORT=29500,"
            " TORCHELASTIC_USE_AGENT_STORE=True, TORCHELASTIC_RESTART_COUNT=0; processes count"
            " from 0 and are fewer than their number" + UNSET,
            id="RANK is WORLD_SIZE",
        ),
        pytest.param(
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "2"},
            {},
            "the variables of mpirun contradict each other: OMPI_COMM_WORLD_RANK=3,"
            " OMPI_COMM_WORLD_SIZE=4, OMPI_COMM_WORLD_LOCAL_RANK=2, OMPI_COMM_WORLD_LOCAL_SIZE=2,"
            " PMIX_NAMESPACE=3217358849; processes count from 0 and are fewer than their number"
            + UNSET,
            id="LOCAL_RANK is LOCAL_SIZE",
        ),
        pytest.param(
            HYDRA | {"PMI_RANK": "x"},
            {},
            "PMI_RANK='x' is no whole number; a launcher sets it to one",
            id="no number",
        ),
        pytest.param(
            HYDRA | {"MPI_LOCALNRANKS": "5"},
            {},
            "the variables of mpirun contradict each other: PMI_RANK=3, PMI_SIZE=4,"
            " MPI_LOCALRANKID=1, MPI_LOCALNRANKS=5; processes count from 0 and are fewer than"
            " their number" + UNSET,
            id="more on the node than in all",
        ),
        pytest.param(
            SRUN_A_NODE
            | {
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "2",
                "RANK": "0",
                "TORCHELASTIC_RUN_ID": "none",
                "WORLD_SIZE": "2",
            },
            {},
            "each of 4 processes of srun has started torchrun by itself: srun's 4 processes on 4"
            " nodes (SLURM_PROCID=2, SLURM_STEP_NUM_TASKS=4, SLURM_NODEID=2, SLURM_LOCALID=0,"
            " SLURM_STEP_TASKS_PER_NODE=1(x4), SLURM_STEP_NODELIST=node[0-3],"
            " SLURMD_NODENAME=node2, SLURM_JOB_ID=7, SLURM_STEP_ID=3, SLURM_STEP_NUM_NODES=4), but"
            " torchrun's 2 processes on 1 node (TORCHELASTIC_RUN_ID=none, RANK=0, WORLD_SIZE=2,"
            " LOCAL_RANK=0, LOCAL_WORLD_SIZE=2); let torchrun span all nodes (torchrun: --nnodes,"
            " --node-rank) or leave it out",
            id="torchrun on each node by itself",
        ),
        pytest.param(
            PYTORCHJOB
            | HYDRA
            | {"PMI_SIZE": "2", "PMI_RANK": "0", "MPI_LOCALNRANKS": "1", "MPI_LOCALRANKID": "0"},
            {},
            "two launchers disagree: kubeflow's 3 processes on 3 nodes (RANK=1, WORLD_SIZE=3,"
            " MASTER_ADDR=qualify-master-0, MASTER_PORT=23456), but mpirun's 2 processes"
            " (PMI_RANK=0, PMI_SIZE=2, MPI_LOCALRANKID=0, MPI_LOCALNRANKS=1); unset the variables"
            " of the one that is not used",
            id="two that disagree",
        ),
        pytest.param(
            {"JOB_COMPLETION_INDEX": "0"},
            {},
            "JOB_COMPLETION_INDEX=0 says that this is a pod of an indexed Job, but not how many"
            " there are; set COLLBENCH_NODES or give --nodes (--nodes 1: each by itself)",
            id="a pod of how many",
        ),
        pytest.param(
            TRAINJOB | {"PET_NNODES": "2:4"},
            {},
            "PET_NNODES='2:4' is no fixed number of nodes; a run needs one, so ask for as many at"
            " least as at most",
            id="an elastic TrainJob",
        ),
        pytest.param(
            PYTORCHJOB,
            {"nodes": 2},
            "--nodes 2 contradicts kubeflow's 3 processes on 3 nodes (RANK=1, WORLD_SIZE=3,"
            " MASTER_ADDR=qualify-master-0, MASTER_PORT=23456); leave out --nodes",
            id="--nodes against the launcher",
        ),
        pytest.param(
            HYDRA,
            {"nodes": 5},
            "--nodes 5 contradicts mpirun's 4 processes (PMI_RANK=3, PMI_SIZE=4,"
            " MPI_LOCALRANKID=1, MPI_LOCALNRANKS=2); leave out --nodes",
            id="more nodes than processes",
        ),
        pytest.param(
            HYDRA,
            {"nodes": 2, "node_rank": 0},
            "--nodes 2 with --node-rank 0, one process a node, contradicts mpirun's 4 processes"
            " (PMI_RANK=3, PMI_SIZE=4, MPI_LOCALRANKID=1, MPI_LOCALNRANKS=2); leave out"
            " --node-rank or start one process a node",
            id="--node-rank against the launcher",
        ),
        pytest.param(
            {},
            {"nodes": 2, "node_rank": 2},
            "--node-rank 2 and --nodes 2 contradict each other; allowed: 0 to 1",
            id="--node-rank is --nodes",
        ),
        pytest.param(
            {},
            {"node_rank": 0},
            "--node-rank 0 needs --nodes N: how many nodes there are",
            id="--node-rank alone",
        ),
        pytest.param(
            {},
            {"nodes": 2},
            "--nodes 2, but no launcher says which one this is; give each node its --node-rank"
            " from 0, or start it with srun, torchrun or mpirun",
            id="--nodes alone",
        ),
        pytest.param(
            {},
            {"rendezvous": "a:1"},
            "--rendezvous a:1 is for several nodes and no launcher says how many; give --nodes N"
            " and, on each, --node-rank R",
            id="--rendezvous alone",
        ),
        pytest.param(
            {},
            {"nodes": 2, "node_rank": 0, "min_nodes": 3},
            "--min-nodes 3 is more than there are nodes (2); allowed: 1 to 2",
            id="--min-nodes",
        ),
    ],
)
def test_contradictions_are_shown(environ, options, text):
    with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
        found(environ, **options)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "here"),
        ({"HOSTNAME": "of-the-login-node"}, "here"),
        ({"HOSTNAME": "pod", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "pod"),
        ({"HOSTNAME": "pod", "POD_NAME": "x", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "x"),
        ({"POD_NAME": "x", "SLURMD_NODENAME": "node1"}, "node1"),
    ],
)
def test_a_node_is_called_by_slurm_then_its_pod_then_its_host(environ, name):
    assert found(environ).node_name == name
    assert found(environ, node_name="given").node_name == "given"


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({}, True),
        ({"SLURM_GPU_BIND": "none"}, False),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, False),
        ({"CUDA_VISIBLE_DEVICES": ""}, False),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": ""}, True),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_STEP_GPUS": "0,1,2,3,4,5,6,7"}, True),
    ],
)
def test_gpus_are_bound_if_fewer_are_visible_than_the_tasks_would_share(changes, bound):
    assert found(SRUN_A_GPU | changes).gpus_bound is bound


def test_one_process_a_node_has_what_it_sees():
    assert not found(SRUN_A_NODE | {"CUDA_VISIBLE_DEVICES": "0"}).gpus_bound


def test_it_says_from_which_variables():
    assert found(HYDRA | {"PATH": "/bin", "POD_NAME": "x"}).variables == {**HYDRA, "POD_NAME": "x"}


@pytest.mark.parametrize(
    ("launch", "many"),
    [
        ({"processes": 4, "nodes": 1, "local_processes": 4}, False),
        ({"processes": 4, "nodes": 2, "local_processes": 2}, True),
        ({"processes": 4, "local_processes": 2}, True),
        ({"processes": 4, "local_processes": 4}, False),
    ],
)
def test_whether_there_may_be_several_nodes(launch, many):
    made = Launch(launcher=Launcher.MPIRUN, process=0, node_name="here", **launch)
    assert made.on_many_nodes is many


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("gpu[001-003,7],login", ["gpu001", "gpu002", "gpu003", "gpu7", "login"]),
        ("rack[0-1]n[08-10]", [f"rack{r}n{n}" for r in "01" for n in ("08", "09", "10")]),
        ("a[1,3]-ib, b", ["a1-ib", "a3-ib", "b"]),
        ("[1-2].lab", ["1.lab", "2.lab"]),
    ],
)
def test_compressed_lists_are_expanded(text, names):
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    "text", ["a[1-2", "a]", "a[2-1]", "a[x]", "a[]", "a,,b", "a,", ",a", "a[1-2]]", "a[[1]]"]
)
def test_what_is_no_list_of_nodes_is_refused(text):
    with pytest.raises(UsageError, match=re.escape(f"'{text}' is no list of nodes")):
        expand_hostlist(text)


@pytest.mark.parametrize("text", ["a[0-100000]", "a[0-999]b[0-999]", "a[1-99999],b[1-2]"])
def test_a_list_without_end_is_refused(text):
    with pytest.raises(UsageError, match=f"more than {MOST_HOSTS} nodes"):
        expand_hostlist(text)


def test_counts_are_expanded():
    assert expand_counts("2(x3),1") == [2, 2, 2, 1]


@pytest.mark.parametrize("text", ["", "x", "2(x", "1(x999999)"])
def test_what_is_no_list_of_counts_is_refused(text):
    with pytest.raises(UsageError, match="is no list of counts"):
        expand_counts(text)
