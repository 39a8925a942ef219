"""Who this process is among those that were started together, from variables and options.

Launchers stand inside each other (torchrun in a Slurm step, mpirun in a pod): the innermost one
knows the processes. Variables that contradict each other are an error that shows them, since each
process would otherwise measure by itself and disturb the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from collbench.errors import UsageError
from collbench.launch.hostlist import expand_hostlist
from collbench.launch.launchers import READERS, Claim, Launcher
from collbench.launch.options import LaunchOptions
from collbench.model import Record

__all__ = ["Launch", "Launcher", "detect", "expand_hostlist"]

_NAMING_VARIABLES = ("SLURMD_NODENAME", "POD_NAME")


class Launch(Record, frozen=True, kw_only=True):
    """This process's place among all that were started together."""

    launcher: Launcher
    process: int
    """Among all processes, in the order of nodes, then local ones, as far as the launcher says."""
    processes: int
    local_process: int = 0
    local_processes: int = 1
    """On this node; 1 where the launcher does not say."""
    node_name: str
    nodes: int | None = None
    """None: known when all have met."""
    job: str | None = None
    """Common to all processes of this start and to no other."""
    gpus_bound: bool = False
    """The launcher leaves only this process's GPUs visible to it."""
    variables: dict[str, str] = {}
    """What all this was read from."""

    @property
    def on_many_nodes(self) -> bool:
        """Whether there are, or may be, several nodes."""
        if self.nodes is not None:
            return self.nodes > 1
        return self.processes > self.local_processes


def detect(environ: Mapping[str, str], options: LaunchOptions, hostname: str) -> Launch:
    """Returns who this process is.

    Args:
        environ: this process's variables.
        options: by the user; they win over variables.
        hostname: this machine's, for the node's name where nothing else gives it one.

    Raises:
        UsageError: the variables, or the options and the variables, contradict each other.
    """
    claims = [claim for read in READERS if (claim := read(environ, options.nodes))]
    for claim in claims:
        _refuse_impossible(claim)
    for outer, inner in pairwise(claims):
        _refuse_disagreement(outer, inner)
    claim = _claim_of_options(options, claims) or _innermost(claims, environ, options)
    nodes = _count_of_nodes(claim, options)
    naming = {name: environ[name] for name in _NAMING_VARIABLES if environ.get(name)}
    return Launch(
        launcher=claim.launcher,
        process=claim.process,
        processes=claim.processes,
        local_process=claim.local_process,
        local_processes=claim.local_processes,
        node_name=options.node_name or _node_name(environ, hostname),
        nodes=nodes,
        job=claim.job,
        gpus_bound=_gpus_bound(environ, claim),
        variables=claim.variables | naming,
    )


def _innermost(
    claims: Sequence[Claim], environ: Mapping[str, str], options: LaunchOptions
) -> Claim:
    """Returns the claim that holds where the options do not say who is who."""
    if claims:
        several = [claim for claim in claims if claim.processes > 1]
        inner = (several or claims)[-1]
        if inner.job is not None or len(several) < 2:
            return inner
        outer_jobs = [claim.job for claim in several if claim.job is not None]
        return inner if not outer_jobs else replace(inner, job=outer_jobs[-1])
    if "JOB_COMPLETION_INDEX" in environ and options.nodes is None:
        raise UsageError(
            f"JOB_COMPLETION_INDEX={environ['JOB_COMPLETION_INDEX']} says that this is a pod of an"
            " indexed Job, but not how many there are; set COLLBENCH_NODES or give --nodes"
            " (--nodes 1: each by itself)"
        )
    if options.nodes is not None and options.nodes > 1:
        raise UsageError(
            f"--nodes {options.nodes}, but no launcher says which one this is; give each node its"
            " --node-rank from 0, or start it with srun, torchrun or mpirun"
        )
    if options.rendezvous is not None and options.nodes is None:
        raise UsageError(
            f"--rendezvous {options.rendezvous} is for several nodes and no launcher says how many;"
            " give --nodes N and, on each, --node-rank R"
        )
    return Claim(launcher=Launcher.BARE, process=0, processes=1, nodes=1, variables={})


def _claim_of_options(options: LaunchOptions, claims: Sequence[Claim]) -> Claim | None:
    """Returns what ``--node-rank`` says, None where it is not given."""
    rank, nodes = options.node_rank, options.nodes
    if rank is None:
        return None
    if nodes is None:
        raise UsageError(f"--node-rank {rank} needs --nodes N: how many nodes there are")
    if not 0 <= rank < nodes:
        raise UsageError(
            f"--node-rank {rank} and --nodes {nodes} contradict each other;"
            f" allowed: 0 to {nodes - 1}"
        )
    for claim in claims:
        if claim.processes > 1 and claim.processes != nodes:
            raise UsageError(
                f"--nodes {nodes} with --node-rank {rank}, one process a node, contradicts"
                f" {_shown(claim)}; leave out --node-rank or start one process a node"
            )
    return Claim(
        launcher=Launcher.PLAIN,
        process=rank,
        processes=nodes,
        nodes=nodes,
        job=next((claim.job for claim in claims if claim.processes == nodes > 1), None),
        variables={},
    )


def _refuse_impossible(claim: Claim) -> None:
    """Refuses numbers of one launcher that cannot stand together."""
    if (
        claim.process >= claim.processes
        or claim.local_process >= claim.local_processes
        or claim.local_processes > claim.processes
        or (claim.nodes is not None and not 1 <= claim.nodes <= claim.processes)
    ):
        plain = claim.launcher is Launcher.PLAIN
        raise UsageError(
            f"the variables of {'torch.distributed' if plain else claim.launcher} contradict each"
            " other:"
            f" {_shown_variables(claim)}; processes count from 0 and are fewer than their number:"
            " unset what another job left behind, or start it with srun, torchrun or mpirun"
        )


def _refuse_disagreement(outer: Claim, inner: Claim) -> None:
    """Refuses two launchers of which the outer has not started the inner one's agents."""
    if outer.processes == 1:
        return
    if (outer.process, outer.processes) == (inner.process, inner.processes):
        return
    if inner.processes <= inner.local_processes:
        raise UsageError(
            f"each of {outer.processes} processes of {outer.launcher} has started {inner.launcher}"
            f" by itself: {_shown(outer)}, but {_shown(inner)}; let {inner.launcher} span all nodes"
            f" (torchrun: --nnodes, --node-rank) or leave it out"
        )
    if (
        inner.agents not in (None, outer.processes)
        or inner.processes < outer.processes
        or outer.local_processes > 1
    ):
        raise UsageError(
            f"two launchers disagree: {_shown(outer)}, but {_shown(inner)}; unset the variables of"
            " the one that is not used"
        )


def _count_of_nodes(claim: Claim, options: LaunchOptions) -> int | None:
    nodes = options.nodes
    if nodes is not None:
        wrong = claim.nodes != nodes if claim.nodes is not None else nodes > claim.processes
        if wrong:
            raise UsageError(f"--nodes {nodes} contradicts {_shown(claim)}; leave out --nodes")
    else:
        nodes = claim.nodes
    if options.min_nodes is not None and nodes is not None and options.min_nodes > nodes:
        raise UsageError(
            f"--min-nodes {options.min_nodes} is more than there are nodes ({nodes});"
            f" allowed: 1 to {nodes}"
        )
    return nodes


def _shown(claim: Claim) -> str:
    """Returns ``srun's 4 processes on 2 nodes (SLURM_PROCID=0, ...)``."""
    nodes = f" on {claim.nodes} node{'s' * (claim.nodes != 1)}" if claim.nodes is not None else ""
    count = f"{claim.processes} process{'es' * (claim.processes != 1)}"
    shown = _shown_variables(claim)
    return f"{claim.launcher}'s {count}{nodes}" + (f" ({shown})" if shown else "")


def _shown_variables(claim: Claim) -> str:
    return ", ".join(f"{name}={value}" for name, value in claim.variables.items())


def _node_name(environ: Mapping[str, str], hostname: str) -> str:
    """Returns Slurm's name, else the pod's, else the host's."""
    named = environ.get("SLURMD_NODENAME") or environ.get("POD_NAME")
    if named is None and environ.get("KUBERNETES_SERVICE_HOST"):
        named = environ.get("HOSTNAME")
    return named or hostname


def _gpus_bound(environ: Mapping[str, str], claim: Claim) -> bool:
    """Whether the visible GPUs are this process's alone.

    No variable says so for all launchers and releases. The visible ones are a part if they are
    fewer than those of the step on this node, or fewer than the processes that would share them.
    """
    if claim.local_processes == 1 or environ.get("SLURM_GPU_BIND") == "none":
        return False
    visible = _count_of_gpus(environ.get("CUDA_VISIBLE_DEVICES"))
    of_step = _count_of_gpus(environ.get("SLURM_STEP_GPUS"))
    if visible is None:
        return False
    return visible < claim.local_processes or (of_step is not None and visible < of_step)


def _count_of_gpus(text: str | None) -> int | None:
    """Returns how many GPUs a list names, None where there is no list."""
    return None if not text else len(text.split(","))
