"""Made records, for tests of what is computed from records."""

from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.model import (
    Case,
    Environment,
    Mode,
    Policy,
    Run,
    Status,
    StopReason,
    Summary,
    Trial,
)


def make_trial(
    size: int,
    time_us: float,
    *,
    name: str = "all_reduce",
    mode: Mode = Mode.EAGER,
    dtype: str = "float32",
    repeat: int = 0,
    rate: bool = True,
    skew: float = 0.0,
    late_rank: int | None = None,
    late_share: float | None = None,
    **changes: Any,
) -> Trial:
    """Returns an ok trial of 2 ranks whose median is ``time_us``, with an interval of 10 %."""
    case = Case(
        collective=name,
        backend="nccl",
        dtype=dtype,
        size_bytes=size,
        requested_bytes=size,
        count=size // 4,
        world_size=2,
        in_place=True,
        mode=mode,
    )
    algbw = size / time_us / 1e3
    return Trial(
        trial_id=f"{case.case_id}.{repeat}",
        case_id=case.case_id,
        case=case,
        repeat=repeat,
        status=Status.OK,
        stop_reason=StopReason.PRECISE,
        summary=Summary(
            samples=40,
            ops_per_sample=1,
            warmup_samples=1,
            median_us=time_us,
            ci95_us=(0.9 * time_us, 1.1 * time_us),
            min_us=time_us,
            p5_us=time_us,
            mean_over_ranks_us=time_us,
            algbw_gb_per_s=algbw if rate else None,
            busbw_gb_per_s=COLLECTIVES[name].busbw(algbw, 2) if rate else None,
            skew=skew,
            late_rank=late_rank,
            late_share=late_share,
        ),
        started_at="2026-11-30T00:00:00.000+00:00",
        duration_s=0.1,
        **changes,
    )


def make_run(**changes: Any) -> Run:
    """Returns the header of a sweep of 2 ranks that has not ended."""
    fields: dict[str, Any] = {
        "run_id": "20261130-0412-7f3a",
        "command": "sweep",
        "argv": ["sweep"],
        "cluster": "lab",
        "suite": {},
        "policy": Policy(),
        "repeats": 1,
        "seed": 1,
        "planned_trials": 1,
        "backend": "nccl",
        "world_size": 2,
        "environment": Environment(collbench="0.1.0", python="3.11", kernel="6", os="test"),
        "started_at": "2026-11-30T04:12:00.000+00:00",
    }
    return Run(**(fields | changes))
