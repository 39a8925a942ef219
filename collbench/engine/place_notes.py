"""What the first line says before everything else of ranks that say nothing about a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.model import Gpu


def loopback_note(what: str, ranks: int) -> str:
    """Returns what the first line says of ranks on the CPUs of one machine.

    Args:
        what: about its GPUs.
        ranks: of all its processes.
    """
    return (
        f"{what}: CPU loopback over Gloo, {ranks} rank{'s' * (ranks > 1)};"
        " says nothing about a cluster"
    )


def emulation_note(hosts: int, ranks: int, gpus: Sequence[Gpu]) -> str:
    """Returns what the first line says of emulated hosts.

    Args:
        hosts: how many NCCL sees.
        ranks: on all of them.
        gpus: that those share; one may stand there more than once.
    """
    return (
        f"EMULATED: {hosts} fake hosts on one machine, {ranks} ranks on"
        f" {len({gpu.uuid for gpu in gpus})} x {gpus[0].name}; exercises the network code, says"
        " nothing about a network"
    )
