"""torchrun on a fabric: one agent a node, as an operator starts it by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from lab.processes import Processes


def start_torchrun(
    processes: Processes,
    argv: Sequence[str],
    *,
    nodes: int,
    ranks_a_node: int = 1,
    rendezvous: str = "static",
    env: Mapping[str, str | None] | None = None,
) -> list[subprocess.Popen[bytes]]:
    """Starts an agent on each of the first nodes.

    Args:
        processes: Owns the agents; their workers are in sessions of their own.
        argv: A Python script or ``-m MODULE``, and its arguments.
        nodes: How many.
        ranks_a_node: Workers that each agent starts.
        rendezvous: "static" or "c10d".
        env: Variables over those of the caller.

    Returns:
        The agents, in the order of the nodes.
    """
    fabric = processes.fabric
    first, port = fabric.node(0).name, fabric.fresh_port()
    common = [sys.executable, "-m", "torch.distributed.run"]
    common += ["--nnodes", str(nodes), "--nproc-per-node", str(ranks_a_node)]
    if rendezvous == "static":
        common += ["--master-addr", first, "--master-port", str(port)]
    else:
        endpoint = f"{first}:{port}"
        common += ["--rdzv-backend", rendezvous, "--rdzv-endpoint", endpoint, "--rdzv-id", "lab"]
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    started = []
    for index, node in enumerate(fabric.nodes[:nodes]):
        own = ["--local-addr", node.address]
        if rendezvous == "static":
            own += ["--node-rank", str(index)]
        command = [*common, *own, *argv]
        started.append(processes.run_in(node, command, env={**quiet, **(env or {})}))
    return started
