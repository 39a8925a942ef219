"""Workers as the controller knows them, for tests of what is concluded from them."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.engine.lineup import Kind
from collbench.engine.orders import Died, SeatLook
from collbench.engine.seats import Berth, Post, Progress, Seat
from collbench.measure.protocols import Phase

LINES = [f"line {number}" for number in range(5, 15)]


def post(node: str = "here", *, shown: bool = False, lost: str | None = None) -> Post:
    """Returns where orders go that nobody obeys."""
    return Post(node, "198.18.0.1", lambda order: None, shown=shown, lost=lost)


HERE = post()


def worker(
    rank: int,
    calls: int = 0,
    phase: Phase = Phase.SAMPLING,
    *,
    gpu: int | None = None,
    state: str = "S",
    at: Post = HERE,
    evidence: Sequence[str] = (),
) -> Seat:
    """Returns a worker that has been looked at."""
    berth = Berth(
        rank=rank,
        post=at,
        local_rank=rank,
        gpu=gpu,
        cuda_index=None,
        cpuset="",
        ranks_on_device=1,
        fake_host=None,
    )
    return Seat(
        number=100 + rank,
        berth=berth,
        kind=Kind.QUIET,
        zygote_part=(0, ()),
        worker_part=(),
        pid=1000 + rank,
        progress=Progress(calls, phase),
        seen=SeatLook(seat=100 + rank, state=state, log_tail=LINES),
        evidence=list(evidence),
    )


def dead(rank: int, calls: int, exit_status: int | None, at: Post = HERE) -> Seat:
    """Returns a worker that has ended."""
    seat = worker(rank, at=at)
    seat.lost(Died(seat=seat.number, exit_status=exit_status, calls=calls, log_tail=["last"]))
    return seat
