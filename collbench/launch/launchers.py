"""What each launcher says in its variables, and nothing else.

A reader returns what one launcher claims, or None where its variables are not there. Which claim
holds, if several stand in the environment, is decided in ``detect``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from collbench.errors import UsageError
from collbench.launch.hostlist import expand_counts


class Launcher(StrEnum):
    """What started the processes."""

    BARE = "bare"
    """Nothing: one process on one node."""
    PLAIN = "plain"
    """A person or a script, who said who is who."""
    TORCHRUN = "torchrun"
    SRUN = "srun"
    MPIRUN = "mpirun"
    KUBERNETES = "kubernetes"
    """An indexed Job."""
    KUBEFLOW = "kubeflow"
    """A PyTorchJob or a TrainJob."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What one launcher says of this process."""

    launcher: Launcher
    process: int
    processes: int
    local_process: int = 0
    local_processes: int = 1
    nodes: int | None = None
    agents: int | None = None
    """How many processes the launcher itself has, one a node, where it says so."""
    job: str | None = None
    variables: dict[str, str]


class Variables:
    """An environment that remembers what was read of it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.read: dict[str, str] = {}

    def text(self, name: str) -> str | None:
        """Returns a variable's text; one that is empty is not there."""
        value = self.environ.get(name)
        if not value:
            return None
        self.read[name] = value
        return value

    def whole(self, name: str) -> int | None:
        """Returns a variable as a whole number from 0.

        Raises:
            UsageError: it is none.
        """
        value = self.text(name)
        if value is None:
            return None
        if not value.isdecimal():
            raise UsageError(f"{name}='{value}' is no whole number; a launcher sets it to one")
        return int(value)

    def all_there(self, *names: str) -> bool:
        """Whether every one of these is set."""
        return all(self.environ.get(name) for name in names)


def read_kubernetes(environ: Mapping[str, str], nodes: int | None) -> Claim | None:
    """Returns what an indexed Job says; the count of its pods comes from elsewhere.

    Args:
        environ: this process's variables.
        nodes: ``--nodes``; without it COLLBENCH_NODES counts.
    """
    variables = Variables(environ)
    index = variables.whole("JOB_COMPLETION_INDEX")
    count = nodes if nodes is not None else variables.whole("COLLBENCH_NODES")
    if index is None or count is None or nodes == 1:
        return None  # --nodes 1: the pods of this Job have nothing to do with each other
    # The pods of an indexed Job are called JOB-INDEX, as host name, or JOB-INDEX-xxxxx.
    job = variables.text("JOB_NAME")
    if job is None:
        job = (variables.text("HOSTNAME") or "").rpartition(f"-{index}")[0] or None
    return Claim(
        launcher=Launcher.KUBERNETES,
        process=index,
        processes=count,
        nodes=count,
        job=job,
        variables=variables.read,
    )


def read_kubeflow(environ: Mapping[str, str], nodes: int | None) -> Claim | None:
    """Returns what a TrainJob or PyTorchJob says: one process a pod.

    Outside Kubernetes the same variables are somebody's own (RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT are torch.distributed's), and LOCAL_RANK counts too.
    """
    del nodes
    variables = Variables(environ)
    if variables.all_there("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"):
        return _read_pet(variables)
    if variables.all_there("TORCHELASTIC_RUN_ID") or not variables.all_there(
        "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"
    ):
        return None
    rank, world_size = variables.whole("RANK"), variables.whole("WORLD_SIZE")
    assert rank is not None
    assert world_size is not None
    address = variables.text("MASTER_ADDR")
    variables.text("MASTER_PORT")
    if not variables.all_there("KUBERNETES_SERVICE_HOST"):
        return _named_by_hand(variables, rank, world_size)
    per_node = variables.text("PET_NPROC_PER_NODE") or ""
    if per_node.isdecimal() and int(per_node) > 1 and world_size % int(per_node) == 0:
        # WORLD_SIZE counts the ranks that torchrun would start, RANK the pods.
        world_size //= int(per_node)
    return Claim(
        launcher=Launcher.KUBEFLOW,
        process=rank,
        processes=world_size,
        nodes=world_size,
        job=address,
        variables=variables.read,
    )


def _read_pet(variables: Variables) -> Claim:
    """Reads the variables that torchrun would take its options from."""
    nodes_text = variables.text("PET_NNODES") or ""
    least, _, most = nodes_text.partition(":")
    if not least.isdecimal() or (most or least) != least:
        raise UsageError(
            f"PET_NNODES='{nodes_text}' is no fixed number of nodes; a run needs one, so ask for"
            " as many at least as at most"
        )
    rank = variables.whole("PET_NODE_RANK")
    assert rank is not None
    variables.text("PET_MASTER_PORT")
    return Claim(
        launcher=Launcher.KUBEFLOW,
        process=rank,
        processes=int(least),
        nodes=int(least),
        job=variables.text("PET_MASTER_ADDR"),
        variables=variables.read,
    )


def _named_by_hand(variables: Variables, rank: int, world_size: int) -> Claim:
    local_rank = variables.whole("LOCAL_RANK")
    local_size = variables.whole("LOCAL_WORLD_SIZE")
    return Claim(
        launcher=Launcher.PLAIN,
        process=rank,
        processes=world_size,
        local_process=local_rank or 0,
        local_processes=local_size or 1,
        nodes=world_size if local_size in (None, 1) else None,
        variables=variables.read,
    )


def read_srun(environ: Mapping[str, str], nodes: int | None) -> Claim | None:
    """Returns what a Slurm step says. A batch script is in no step: it has no count of tasks."""
    del nodes
    if not Variables(environ).all_there("SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"):
        return None
    variables = Variables(environ)
    process = variables.whole("SLURM_PROCID")
    processes = variables.whole("SLURM_STEP_NUM_TASKS")
    assert process is not None
    assert processes is not None
    node = variables.whole("SLURM_NODEID") or 0
    local_process = variables.whole("SLURM_LOCALID") or 0
    per_node = expand_counts(variables.text("SLURM_STEP_TASKS_PER_NODE") or "1")
    local_processes = per_node[node] if node < len(per_node) else 1
    if process < processes == sum(per_node) and local_process < local_processes:
        # --distribution=cyclic numbers the tasks across the nodes; ranks follow the nodes.
        process = sum(per_node[:node]) + local_process
    for name in ("SLURM_STEP_NODELIST", "SLURMD_NODENAME"):
        variables.text(name)
    job, step = variables.text("SLURM_JOB_ID"), variables.text("SLURM_STEP_ID")
    restart = variables.text("SLURM_RESTART_COUNT")
    return Claim(
        launcher=Launcher.SRUN,
        process=process,
        processes=processes,
        local_process=local_process,
        local_processes=local_processes,
        nodes=variables.whole("SLURM_STEP_NUM_NODES"),
        job=".".join(word for word in (job, step, restart) if word) if job else None,
        variables=variables.read,
    )


def read_mpirun(environ: Mapping[str, str], nodes: int | None) -> Claim | None:
    """Returns what Open MPI's, MPICH's or Intel's mpirun says."""
    del nodes
    variables = Variables(environ)
    if variables.all_there("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"):
        names = ["OMPI_COMM_WORLD_" + word for word in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
        job_names = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]
    elif variables.all_there("PMI_RANK", "PMI_SIZE") and not _is_slurms_own_pmi(variables):
        names = ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"]
        job_names = []
    else:
        return None
    process, processes, local_process, local_processes = map(variables.whole, names)
    assert process is not None
    assert processes is not None
    return Claim(
        launcher=Launcher.MPIRUN,
        process=process,
        processes=processes,
        local_process=local_process or 0,
        local_processes=local_processes or 1,
        nodes=1 if local_processes == processes else None,
        job=next((text for name in job_names if (text := variables.text(name))), None),
        variables=variables.read,
    )


def _is_slurms_own_pmi(variables: Variables) -> bool:
    """Whether PMI_RANK is srun's (--mpi=pmi2), which tells no more than SLURM_PROCID."""
    return (
        variables.all_there("SLURM_STEP_ID", "SLURM_PROCID")
        and not variables.all_there("MPI_LOCALNRANKS")
        and variables.environ["PMI_SIZE"] == variables.environ.get("SLURM_STEP_NUM_TASKS")
    )


def read_torchrun(environ: Mapping[str, str], nodes: int | None) -> Claim | None:
    """Returns what torchrun says."""
    del nodes
    variables = Variables(environ)
    run_id = variables.text("TORCHELASTIC_RUN_ID")
    process, processes = variables.whole("RANK"), variables.whole("WORLD_SIZE")
    if run_id is None or process is None or processes is None:
        return None
    local_process = variables.whole("LOCAL_RANK") or 0
    local_processes = variables.whole("LOCAL_WORLD_SIZE") or 1
    variables.text("GROUP_RANK")
    agents = variables.whole("GROUP_WORLD_SIZE")
    for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"):
        variables.text(name)
    variables.text("TORCHELASTIC_RESTART_COUNT")
    return Claim(
        launcher=Launcher.TORCHRUN,
        process=process,
        processes=processes,
        local_process=local_process,
        local_processes=local_processes,
        nodes=agents if agents is not None else -(-processes // local_processes),
        agents=agents,
        # "none" is what every run without --rdzv-id is called.
        job=None if run_id == "none" else run_id,
        variables=variables.read,
    )


READERS = (read_kubernetes, read_kubeflow, read_srun, read_mpirun, read_torchrun)
"""From the outermost to the innermost: torchrun may stand in a Slurm step or a pod."""
