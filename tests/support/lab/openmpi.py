"""Open MPI's mpirun on a fabric: started on the first node, with a stand-in for ssh."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

from lab.processes import ENTER, Processes

PROGRAMS = {"mpirun": "openmpi-bin"}
"""Each program that this needs and Debian's package of it."""


def start_mpirun(
    processes: Processes,
    argv: Sequence[str],
    *,
    nodes: int,
    slots: int = 1,
    options: Sequence[str] = (),
    env: Mapping[str, str | None] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a command on the first nodes.

    Args:
        processes: Owns mpirun; what it starts on other nodes is in sessions of their own.
        argv: The command.
        nodes: How many; mpirun runs on the first.
        slots: Ranks a node.
        options: More of mpirun's, such as ``-x NAME``.
        env: Variables of mpirun; they reach the other nodes only by ``-x``, as over ssh.

    Returns:
        The process of mpirun.
    """
    folder, hosts = processes.folder, processes.fabric.nodes[:nodes]
    table = folder / "nodes.json"
    table.write_text(json.dumps({host.name: (host.namespace, str(host.hosts)) for host in hosts}))
    agent = folder / "agent"
    agent.write_text(
        "#!/bin/sh\n"
        f"exec {shlex.join([sys.executable, '-I', '-S', str(ENTER), '--as-ssh', str(table)])} "
        '"$@"\n'
    )
    agent.chmod(0o755)
    settings = {
        "orte_tmpdir_base": str(folder),
        "plm_rsh_agent": str(agent),
        "plm_rsh_no_tree_spawn": "1",
        "oob_tcp_if_include": "eth0",
        "btl": "tcp,self",
        "btl_tcp_if_include": "eth0",
    }
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
    for name, value in settings.items():
        command += ["--mca", name, value]
    command += ["--host", ",".join(f"{host.name}:{slots}" for host in hosts)]
    command += ["-n", str(nodes * slots), *options, *argv]
    return processes.run_in(hosts[0], command, env=env)
