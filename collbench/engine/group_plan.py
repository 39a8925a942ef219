"""How the workers of a run form groups: what each is told when it is forked and when it joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from collbench.engine.lineup import Kind
from collbench.engine.orders import SeatOrder
from collbench.engine.seats import Seat
from collbench.engine.wire import Join
from collbench.measure.plant import Plant
from collbench.nccl.settings import LIBRARY_VARIABLE, Needs


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """How the workers of a run form groups."""

    backend: str
    library: str | None
    """Path of the NCCL library to load; None: the installed one."""
    plant: Plant | None
    quiet: dict[str, str]
    """Variables of workers whose time is taken without NCCL's log."""
    init_deadline_s: float
    libraries: Mapping[str, str | None] = field(default_factory=dict)
    """Paths of the libraries that settings call by name."""

    def library_of(self, seat: Seat) -> str | None:
        """Returns the path of the library that a worker's processes are for."""
        name = dict(seat.zygote_part[1]).get(LIBRARY_VARIABLE)
        return self.library if name is None else self.libraries[name]

    def seat_order(self, seat: Seat, needs: Needs) -> SeatOrder:
        """Returns how a worker is forked for what a setting needs."""
        berth = seat.berth
        logged = seat.kind is Kind.LOGGED
        variables: dict[str, str | None] = {} if logged else {**self.quiet}
        variables |= dict((*needs.worker, *needs.communicator))
        if berth.fake_host is not None:
            variables["NCCL_HOSTID"] = berth.fake_host
        return SeatOrder(
            seat=seat.number,
            rank=seat.rank,
            gpu=berth.gpu,
            cpuset=berth.cpuset,
            variables=variables,
            logged=logged,
        )

    def join_order(
        self, seats: Sequence[Seat], place: int, group: int, token: str, host: str, port: int | None
    ) -> Join:
        """Returns how a worker joins its group.

        Args:
            seats: the group's workers.
            place: of this one among them.
            group: the group's number.
            token: what its workers show each other.
            host: where the first one's store is.
            port: of the store; None: this is the first, which opens it.
        """
        berth = seats[place].berth
        return Join(
            rank=place,
            world_size=len(seats),
            backend=self.backend,
            gpu=berth.cuda_index,
            ranks_on_device=berth.ranks_on_device,
            store_host=host,
            store_port=port,
            prefix=f"group{group}",
            token=token,
            library=self.library_of(seats[place]),
            logged=seats[place].kind is Kind.LOGGED,
            plant=_plant_at(self.plant, seats[place].rank, place),
        )


def _plant_at(plant: Plant | None, rank: int, place: int) -> Plant | None:
    """Returns the fault with the rank's place in its group, None where it is another rank's."""
    if plant is None or plant.rank != rank:
        return None
    return msgspec.structs.replace(plant, rank=place)
