"""NCCL itself, without torch: collectives straight on the library. Only workers import this."""

from __future__ import annotations

import time
from collections.abc import Callable

from collbench.collectives import COLLECTIVES
from collbench.measure.calls import Calls
from collbench.measure.cuda_timers import EagerTimer, GraphTimer, QueuedTimer
from collbench.measure.native_buffers import Arena, NativeBuffers
from collbench.measure.native_calls import FIRST_WITH_CALL_CONFIG, Communicator
from collbench.measure.native_device import NativeDevice
from collbench.measure.native_library import NativeLibrary, load_library
from collbench.measure.plant import Plant, plant_in
from collbench.measure.protocols import Buffers, Phase, Progress, Timer
from collbench.measure.socket_control import SocketControl
from collbench.measure.walk import Walk
from collbench.model import Case, LibraryVersion, Mode, Reason, ReasonCode
from collbench.nccl.settings import ALG_SELECTION

_TIMERS: dict[Mode, type[EagerTimer]] = {
    Mode.EAGER: EagerTimer,
    Mode.GRAPH: GraphTimer,
    Mode.EAGER_DEVICE: QueuedTimer,
}


class NativeBackend:
    """One rank's end of an NCCL communicator, with its GPU."""

    name = "nccl"

    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        device: NativeDevice,
        library: NativeLibrary,
        control: SocketControl,
        progress: Progress,
        ranks_on_device: int,
        plant: Plant | None,
    ) -> None:
        self._rank, self._world_size = rank, world_size
        self._device, self._library = device, library
        self._control, self._progress = control, progress
        self._ranks_on_device, self._plant = ranks_on_device, plant
        self._arena, self._tables = Arena(library.bindings), Arena(library.bindings)
        self._communicator: Communicator | None = None

    @property
    def library(self) -> LibraryVersion:
        """The NCCL that is loaded."""
        return self._library.version

    def new_communicator(self) -> None:
        """Puts a new communicator in the place of the present one.

        Collective: every rank. Synchronises. NCCL reads NCCL_ALGO and its like from the
        environment here. No timer may be open.
        """
        self._end_communicator()
        self._communicator = form_communicator(
            self._control, self._rank, self._world_size, self._device, self._library
        )

    def _end_communicator(self) -> None:
        if self._communicator is not None:
            self._device.synchronize()
            self._library.bindings.comm_destroy(self._communicator.handle)
            self._communicator = None

    def close(self) -> None:
        """Ends the communicator and frees the memory. Collective: every rank.

        No timer may be open: a graph that is alive blocks the end of its communicator.
        """
        self._end_communicator()
        self._arena.close()
        self._tables.close()

    def refusal(self, case: Case) -> Reason | None:
        """Returns why a case cannot be, equal on all ranks, or None."""
        row = COLLECTIVES[case.collective]
        if case.in_place and not row.in_place_defined:
            return _reason(ReasonCode.NO_IN_PLACE, f"{row.name} in place is not defined")
        if case.collective == "send_recv" and case.world_size < 2:
            return _reason(ReasonCode.NEEDS_TWO_RANKS, "send_recv needs 2 ranks or more")
        if ALG_SELECTION not in case.setting:
            return None
        if self._library.numbers < FIRST_WITH_CALL_CONFIG:
            needed = ".".join(str(part) for part in FIRST_WITH_CALL_CONFIG[:2])
            return _reason(
                ReasonCode.NEEDS_NEWER_NCCL,
                f"{ALG_SELECTION} needs NCCL {needed} or newer;"
                f" loaded is {self._library.version.version}",
            )
        if case.collective == "send_recv":
            return _reason(ReasonCode.ILLEGAL, f"NCCL's send and receive take no {ALG_SELECTION}")
        return None

    def free_bytes(self) -> int:
        """Returns the bytes this rank may take for buffers, on its device."""
        return self._device.free_bytes() // self._ranks_on_device + self._arena.capacity_bytes

    def cache_bytes(self) -> int:
        """Returns the size of the last cache before memory."""
        return self._device.cache_bytes()

    def target_sample_us(self) -> float:
        """CUDA events tick in half microseconds and cost the host some."""
        return 200.0

    def open(self, case: Case, walk: Walk) -> Buffers:
        """Takes the memory of a case.

        Raises:
            NothingMeasured: the NCCL of this process is not the one it was.
        """
        self._library.check()
        assert self._communicator is not None
        buffers = NativeBuffers(
            case,
            walk,
            self._rank,
            self._communicator,
            self._device,
            self._arena,
            self._tables,
        )
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
        return _TIMERS[case.mode](calls, self._device)

    def now_s(self) -> float:
        """Returns a monotonic time in seconds."""
        return time.monotonic()


def join_native(
    *,
    rank: int,
    world_size: int,
    gpu: int,
    library: str | None,
    mapped: Callable[[], list[str]],
    control: SocketControl,
    progress: Progress,
    plant: Plant | None,
    ranks_on_device: int,
) -> NativeBackend:
    """Returns a rank's back end with its communicator formed. Collective; synchronises.

    Args:
        rank: this rank.
        world_size: ranks of the group.
        gpu: CUDA's index of this rank's GPU.
        library: path of the libnccl to load; None: the one that cuda.pathfinder finds.
        mapped: tells the paths of all libnccl that are mapped.
        control: agreement between the ranks of the group.
        progress: where calls are counted.
        plant: a planted fault.
        ranks_on_device: how many ranks share the GPU's memory.

    Raises:
        UsageError: nccl4py is not installed.
        NothingMeasured: no such library, or another one is mapped.
    """
    loaded = load_library(library, mapped)
    progress.phase(Phase.JOINING)
    device = NativeDevice(gpu)
    progress.phase(Phase.JOINING)
    backend = NativeBackend(
        rank=rank,
        world_size=world_size,
        device=device,
        library=loaded,
        control=control,
        progress=progress,
        ranks_on_device=ranks_on_device,
        plant=plant,
    )
    backend.new_communicator()
    # What NCCL loads by itself while it starts (plug-ins) may bring another libnccl along.
    loaded.check()
    return backend


def form_communicator(
    control: SocketControl,
    rank: int,
    world_size: int,
    device: NativeDevice,
    library: NativeLibrary,
) -> Communicator:
    """Returns a communicator over all ranks of a control. Collective; synchronises.

    NCCL connects later, at the first call of each algorithm.
    """
    nccl = library.bindings
    unique_id = control.broadcast(bytes(nccl.get_unique_id()) if rank == 0 else b"")
    return Communicator(
        bindings=nccl,
        numbers=library.numbers,
        handle=nccl.comm_init_rank(world_size, bytearray(unique_id), rank),
        stream=device.stream,
    )


def _reason(code: ReasonCode, text: str) -> Reason:
    return Reason(code=code, text=text)
