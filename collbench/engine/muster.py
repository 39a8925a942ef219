"""Forking the workers of a group and bringing them together."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from collbench.engine.placement import Slots
from collbench.engine.processes import WorkerProcess, Zygote
from collbench.engine.team import Team
from collbench.engine.wire import Join
from collbench.measure.plant import Plant
from collbench.nccl.variables import LOG_VARIABLES

_LOOPBACK = "127.0.0.1"


class Muster:
    """Forms the teams of a run.

    Args:
        slots: back end, ranks, GPUs, cores, fake hosts.
        library: path of the NCCL library to load; None: the installed one.
        quiet: variables of workers whose time is taken without NCCL's log.
        node: this node's name, for culprits.
        logs: folder for NCCL's logs.
        plant: a fault to plant, or None.
        glance: called now and then while a case runs.
    """

    def __init__(
        self,
        *,
        slots: Slots,
        library: str | None,
        quiet: Mapping[str, str],
        node: str,
        logs: Path,
        plant: Plant | None,
        glance: Callable[[], None],
    ) -> None:
        self._slots, self._library, self._node = slots, library, node
        self._quiet = quiet
        self._logs = logs
        self._plant, self._glance = plant, glance
        self._formed = 0

    def fork(
        self, zygote: Zygote, variables: Mapping[str, str | None], *, logged: bool
    ) -> tuple[Team, list[Join]]:
        """Returns workers that have not joined yet, and the orders by which they will.

        Args:
            zygote: their parent.
            variables: of the setting, for every rank.
            logged: whether NCCL writes its log.
        """
        self._formed += 1
        workers: list[WorkerProcess] = []
        team = Team(workers, zygote, self._node, glance=self._glance)
        token = secrets.token_hex(16)
        orders = []
        try:
            for rank in range(self._slots.world_size):
                log = self._log_of(rank) if logged else None
                workers.append(self._worker(zygote, rank, variables, log))
                orders.append(self._order(rank, token, log))
        except BaseException:
            team.end()
            raise
        return team, orders

    def _worker(
        self, zygote: Zygote, rank: int, variables: Mapping[str, str | None], log: Path | None
    ) -> WorkerProcess:
        slots = self._slots
        mine = {**self._quiet, **variables}
        if slots.fake_hosts:
            mine["NCCL_HOSTID"] = slots.fake_hosts[rank]
        if log is not None:
            mine |= {**LOG_VARIABLES, "NCCL_DEBUG_FILE": str(log)}
        cpuset = slots.cpusets[rank] if slots.cpusets else ""
        gpu = slots.gpus[rank].index if slots.gpus else None
        return zygote.fork(rank, gpu=gpu, variables=mine, cpuset=cpuset)

    def _order(self, rank: int, token: str, log: Path | None) -> Join:
        slots = self._slots
        return Join(
            rank=rank,
            world_size=slots.world_size,
            backend=slots.backend,
            gpu=slots.cuda_index(rank),
            ranks_on_device=slots.ranks_on_device(rank),
            store_host=_LOOPBACK,
            store_port=None,
            prefix=f"group{self._formed}",
            token=token,
            library=self._library,
            log=None if log is None else str(log),
            plant=self._plant,
        )

    def _log_of(self, rank: int) -> Path:
        """NCCL empties the file that it opens: each process gets one of its own."""
        return (self._logs / f"nccl-group{self._formed}-rank{rank}.log").absolute()
