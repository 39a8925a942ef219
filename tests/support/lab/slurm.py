"""A real Slurm on a fabric: munged, a slurmctld on the controller, a slurmd on every node."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.fabric import Fabric
from lab.processes import Processes, wait_until

START_S = 30.0
CONTROLLER_PORT = 6817
NODE_PORT = 6818

CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={controller}({controller_address})
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
TopologyPlugin=topology/tree
TreeWidth=65533
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


class Slurm:
    """Runs from construction to ``close``."""

    PROGRAMS = {
        "munged": "munge",
        "slurmctld": "slurmctld",
        "slurmd": "slurmd",
        "srun": "slurm-client",
    }
    """Each program that this needs and Debian's package of it."""

    def __init__(self, fabric: Fabric, folder: Path) -> None:
        self._fabric, self._folder = fabric, folder
        self._daemons = Processes(fabric, folder)
        self.environ = {"SLURM_CONF": str(folder / "slurm.conf")}
        """What every command of Slurm needs."""
        self._configure()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def start_srun(
        self,
        processes: Processes,
        argv: Sequence[str],
        *,
        nodes: int,
        options: Sequence[str] = (),
        env: Mapping[str, str | None] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a step of one task a node, in an allocation of its own, from the controller.

        Wait for it with a deadline: srun may never notice that it lost a node.

        Args:
            processes: Owns srun; the tasks are Slurm's.
            argv: The command.
            nodes: How many.
            options: More of srun's.
            env: Variables of srun, which hands all of them on.

        Returns:
            The process of srun.
        """
        command = ["srun", f"--nodes={nodes}", "--ntasks-per-node=1", *options, *argv]
        return processes.run_in(
            self._fabric.controller, command, env={**self.environ, **(env or {})}
        )

    def control(self, *argv: str) -> str:
        """Returns what a command of Slurm says on the controller."""
        done = self._daemons.finish(
            self._daemons.run_in(self._fabric.controller, argv, env=self.environ), START_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def settle(self) -> None:
        """Cancels all jobs and waits until every node is free again."""
        self.control("scancel", "--partition=main")
        wait_until(self._is_idle, f"every node of Slurm idle ({self._folder})", START_S)

    def close(self) -> None:
        """Kills all daemons."""
        self._daemons.end()

    def _configure(self) -> None:
        fabric, folder = self._fabric, self._folder
        (folder / "state").mkdir()
        for node in fabric.nodes:
            (folder / f"spool-{node.name}").mkdir()
        nodes = [
            f"NodeName={node.name} NodeAddr={node.address} CPUs=2 RealMemory=1000 State=UNKNOWN"
            for node in fabric.nodes
        ]
        text = CONFIGURATION.format(
            controller=fabric.controller.name,
            controller_address=fabric.controller.address,
            controller_port=CONTROLLER_PORT,
            node_port=NODE_PORT,
            folder=folder,
            nodes="\n".join(nodes),
        )
        (folder / "slurm.conf").write_text(text)
        switches = [
            f"SwitchName=leaf{index} Nodes={','.join(node.name for node in leaf)}"
            for index, leaf in enumerate(fabric.leaves)
        ]
        names = ",".join(f"leaf{index}" for index in range(len(fabric.leaves)))
        switches.append(f"SwitchName=spine Switches={names}")
        (folder / "topology.conf").write_text("\n".join(switches) + "\n")
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))

    def _start(self) -> None:
        folder, controller = self._folder, self._fabric.controller
        start = self._daemons.run_in
        munged = [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={folder}/munge.key",
            f"--socket={folder}/munge.sock",
            f"--pid-file={folder}/munge.pid",
            f"--log-file={folder}/munge.log",
            f"--seed-file={folder}/munge.seed",
        ]
        start(controller, munged)
        wait_until((folder / "munge.sock").exists, "munged listens", START_S)
        configuration = str(folder / "slurm.conf")
        start(controller, ["slurmctld", "-D", "-f", configuration])
        for node in self._fabric.nodes:
            start(node, ["slurmd", "-D", "-f", configuration, "-N", node.name])
        wait_until(self._is_idle, f"every node of Slurm idle ({folder})", START_S)

    def _is_idle(self) -> bool:
        asked = self._daemons.run_in(
            self._fabric.controller, ["sinfo", "--noheader", "--format=%T %D"], env=self.environ
        )
        said = self._daemons.finish(asked, START_S).stdout
        return said.split() == ["idle", str(len(self._fabric.nodes))]
