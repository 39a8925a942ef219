"""About how long a plan takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.engine.lineup import Starts
from collbench.model import Case, Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cost:
    """Rough costs of a back end, for the estimate alone: right within a factor of about two."""

    zygote_s: float
    """Of a zygote: its imports."""
    worker_s: float
    """Of a set of workers: forking, opening devices, meeting."""
    communicator_s: float
    case_s: float
    """Of a case: taking memory, agreeing."""
    call_us: float
    """Of an empty call."""
    wire_gb_per_s: float
    check_gb_per_s: float
    """Filling and comparing."""
    samples: float
    """Until precise; the host's noise keeps a CPU from it as a rule, so its time runs out."""


_COSTS = {
    "nccl": _Cost(
        zygote_s=4.5,
        worker_s=1.5,
        communicator_s=0.5,
        case_s=0.06,
        call_us=40.0,
        wire_gb_per_s=100.0,
        check_gb_per_s=20.0,
        samples=60,
    ),
    "gloo": _Cost(
        zygote_s=1.8,
        worker_s=0.2,
        communicator_s=0.0,
        case_s=0.06,
        call_us=100.0,
        wire_gb_per_s=1.0,
        check_gb_per_s=1.0,
        samples=10_000,
    ),
    "simulated": _Cost(
        zygote_s=0.0,
        worker_s=0.0,
        communicator_s=0.0,
        case_s=0.005,
        call_us=0.0,
        wire_gb_per_s=1e9,
        check_gb_per_s=1e9,
        samples=0,
    ),
}
_TWIN_S = 0.05
"""Of proving a case in other processes than those that time it."""
_SHORTEST_SAMPLE_US = 200.0
"""Small calls are timed in batches of about so long."""


def estimate_s(cases: Sequence[Case], repeats: int, policy: Policy, starts: Starts) -> float:
    """Returns about how many seconds a plan takes: starts, sampling, checking, proving.

    Sampling ends by the number of samples or by time. The data are filled, compared, filled and
    compared again.
    """
    if not cases:
        return 0.0
    cost = _COSTS[cases[0].backend]
    teams = starts.workers / cases[0].world_size
    total_s = starts.zygotes * cost.zygote_s + teams * cost.worker_s
    total_s += starts.communicators * cost.communicator_s + starts.twins * _TWIN_S
    return total_s + repeats * sum(_case_s(case, policy, cost) for case in cases)


def _case_s(case: Case, policy: Policy, cost: _Cost) -> float:
    call_us = cost.call_us + case.size_bytes / cost.wire_gb_per_s / 1e3
    sample_s = max(call_us, _SHORTEST_SAMPLE_US) / 1e6
    if policy.window is not None:
        total_s = policy.window.total_s
    elif policy.samples is not None:
        total_s = policy.samples * sample_s
    else:
        total_s = min(policy.max_time_s, cost.samples * sample_s)
    if policy.check:
        total_s += 4 * case.size_bytes / cost.check_gb_per_s / 1e9
    return total_s + cost.case_s
