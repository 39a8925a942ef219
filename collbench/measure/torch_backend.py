"""NCCL and Gloo through torch.distributed. Only workers import this."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from collbench.collectives import COLLECTIVES
from collbench.measure.calls import Calls
from collbench.measure.cuda_timers import EagerTimer, GraphTimer, QueuedTimer
from collbench.measure.host_timer import HostTimer, PerfCounter
from collbench.measure.plant import Plant, plant_in
from collbench.measure.protocols import Buffers, Control, Progress, Timer
from collbench.measure.torch_buffers import Arena, TorchBuffers
from collbench.measure.torch_device import TorchDevice
from collbench.measure.walk import Walk
from collbench.model import Case, Mode, Reason, ReasonCode
from collbench.stats import FloatArray

_MOST_HOST_CACHE_BYTES = 32 * 2**20
NEVER = timedelta(days=7)
"""Time-out of the groups: hanging is the supervisor's to judge, by its own deadline."""


class TorchControl:
    """Agreement over a Gloo group of its own: only the case uses the measured group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def barrier(self) -> None:
        """Returns when every rank has called it. Synchronises."""
        dist.barrier(group=self._group)

    def max(self, values: FloatArray) -> FloatArray:
        """Returns the element-wise largest over ranks. Synchronises."""
        shared = torch.from_numpy(np.array(values, dtype=np.float64))
        dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=self._group)
        return shared.numpy()


class TorchBackend:
    """One rank's end of a process group, with its device."""

    def __init__(
        self,
        *,
        name: str,
        rank: int,
        group: dist.ProcessGroup,
        control: Control,
        progress: Progress,
        device: torch.device,
        ranks_on_device: int,
        host_free_bytes: Callable[[], int],
        host_cache_bytes: int,
        plant: Plant | None,
    ) -> None:
        self.name = name
        self._host_free_bytes, self._host_cache_bytes = host_free_bytes, host_cache_bytes
        self._rank, self.group = rank, group
        self._control, self._progress = control, progress
        self.device, self._ranks_on_device = device, ranks_on_device
        self._plant = plant
        self._arena = Arena(device)

    def refusal(self, case: Case) -> Reason | None:
        """Returns why a case cannot be, equal on all ranks, or None."""
        row = COLLECTIVES[case.collective]
        if case.in_place and not row.in_place_defined:
            return _reason(ReasonCode.NO_IN_PLACE, f"{row.name} in place is not defined")
        if not case.in_place and row.natural_in_place:
            return _reason(
                ReasonCode.NO_OUT_OF_PLACE, f"torch.distributed has {row.name} in place only"
            )
        if case.collective == "send_recv" and case.world_size < 2:
            return _reason(ReasonCode.NEEDS_TWO_RANKS, "send_recv needs 2 ranks or more")
        if self.device.type == "cpu":
            return _refused_by_gloo(case)
        return None

    def free_bytes(self) -> int:
        """Returns the bytes this rank may take for buffers, on its device."""
        free = torch.cuda.mem_get_info()[0] if self._on_gpu else self._host_free_bytes()
        return free // self._ranks_on_device + self._arena.capacity_bytes

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def cache_bytes(self) -> int:
        """Returns the size of the last cache before memory.

        Of a CPU at most ``_MOST_HOST_CACHE_BYTES``: a virtual machine reports the whole socket's.
        """
        if self._on_gpu:
            l2_bytes: int = torch.cuda.get_device_properties(self.device).L2_cache_size
            return l2_bytes
        return min(self._host_cache_bytes, _MOST_HOST_CACHE_BYTES)

    def target_sample_us(self) -> float:
        """CUDA events tick in half microseconds and cost the host some; perf_counter does not."""
        return 200.0 if self._on_gpu else 100.0

    def open(self, case: Case, walk: Walk) -> Buffers:
        """Takes the memory of a case."""
        buffers = TorchBuffers(case, walk, self._rank, self.group, self._arena)
        return plant_in(buffers, case, self._rank, self._plant)

    def timer(self, case: Case, walk: Walk, buffers: Buffers) -> Timer:
        """Returns what times this case's mode and pattern."""
        calls = Calls(
            buffers=buffers,
            slots=walk.slots,
            pattern=case.pattern,
            control=self._control,
            progress=self._progress,
        )
        if not self._on_gpu:
            return HostTimer(PerfCounter(), calls)
        kinds: dict[Mode, type[EagerTimer]] = {
            Mode.EAGER: EagerTimer,
            Mode.GRAPH: GraphTimer,
            Mode.EAGER_DEVICE: QueuedTimer,
        }
        return kinds[case.mode](calls, TorchDevice())

    def now_s(self) -> float:
        """Returns a monotonic time in seconds."""
        return time.monotonic()


def _reason(code: ReasonCode, text: str) -> Reason:
    return Reason(code=code, text=text)


def _refused_by_gloo(case: Case) -> Reason | None:
    if case.mode is not Mode.EAGER:
        return _reason(ReasonCode.NO_SUCH_MODE, f"mode {case.mode} needs a GPU")
    if case.redop == "avg":
        return _reason(ReasonCode.NO_SUCH_REDOP, "Gloo has no avg")
    if case.dtype.startswith("float8"):
        return _reason(ReasonCode.NO_SUCH_DTYPE, f"Gloo has no {case.dtype}")
    return None


def form_control(store: dist.Store, rank: int, world_size: int) -> TorchControl:
    """Returns the agreement between all ranks of the store.

    Collective: every rank. Synchronises.
    """
    # Gloo takes the address of the host name unless told; a host name that does not resolve, or
    # resolves to a wrong interface, is the commonest way for it to fail on one machine.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=NEVER)
    group = dist.group.WORLD
    assert group is not None
    return TorchControl(group)


def form_measured(backend: str, device: torch.device) -> dist.ProcessGroup:
    """Returns the measured group over all ranks. Collective: every rank. Synchronises.

    Gloo connects here, by a first call of one element. NCCL connects at the first call of each
    algorithm, which has to be one that the setting allows: a refusal spoils the communicator.
    """
    # With a device NCCL starts its communicator now, and not at the first collective.
    at_once = device if backend == "nccl" else None
    group: dist.ProcessGroup = dist.new_group(backend=backend, timeout=NEVER, device_id=at_once)
    if backend == "gloo":
        dist.all_reduce(torch.ones(1), group=group)
    return group
