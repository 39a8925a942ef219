"""From the samples of all ranks to the figures of a trial.

The time of a collective is its slowest rank's, per sample; everything else follows from that
(nccl-tests' default, the mean over ranks, hides a straggler and stands beside it).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collbench.collectives import COLLECTIVES
from collbench.model import Case, Summary
from collbench.stats import SMALLEST_SAMPLE, effective_n, median_interval
from collbench.units import gb_per_s

SAMPLES_FOR_P95 = 20
SAMPLES_FOR_P99 = 100
LATE_SHARE = 0.8
LATE_SKEW = 0.1


def summarise(
    case: Case,
    times_us: NDArray[np.float32],
    *,
    ops_per_sample: int,
    warmup_samples: int,
    show_rate: bool,
    host_us_per_call: float | None = None,
) -> Summary:
    """Returns the figures of a trial.

    Args:
        case: what was measured.
        times_us: float32[rank, sample], us a call.
        ops_per_sample: calls in each sample.
        warmup_samples: samples thrown away before.
        show_rate: False where the data were wrong or the path was not used: no rate then.
        host_us_per_call: of the rank with the costliest host.
    """
    times = times_us.astype(np.float64)
    slowest = times.max(axis=0)
    n = slowest.size
    interval = median_interval(slowest)
    median_us = float(np.median(slowest))
    algbw = gb_per_s(case.size_bytes, median_us)
    busbw = COLLECTIVES[case.collective].busbw(algbw, case.world_size)
    p5, p95, p99 = (float(value) for value in np.quantile(slowest, [0.05, 0.95, 0.99]))
    skew, late_rank, late_share = _skew(case, times)
    return Summary(
        samples=n,
        ops_per_sample=ops_per_sample,
        warmup_samples=warmup_samples,
        median_us=median_us,
        ci95_us=None if interval is None else (interval.low, interval.high),
        effective_samples=effective_n(slowest),
        min_us=float(slowest.min()),
        p5_us=p5,
        p95_us=p95 if n >= SAMPLES_FOR_P95 else None,
        p99_us=p99 if n >= SAMPLES_FOR_P99 else None,
        mean_over_ranks_us=float(times.mean()),
        algbw_gb_per_s=algbw if show_rate else None,
        busbw_gb_per_s=busbw if show_rate and busbw > 0 else None,
        skew=skew,
        late_rank=late_rank,
        late_share=late_share,
        slowest_rank=int(np.argmax(np.median(times, axis=1))) if case.world_size > 1 else None,
        host_us_per_call=host_us_per_call,
    )


def _skew(case: Case, times: NDArray[np.float64]) -> tuple[float, int | None, float | None]:
    """Returns the skew, and the late rank with its share of samples where one can be named.

    In a collective that no rank can finish before all have entered, the rank that enters last
    waits least: it is the one with the shortest time, not the longest.
    """
    if times.shape[0] < 2:
        return 0.0, None, None
    slowest, fastest = times.max(axis=0), times.min(axis=0)
    skew = float(np.median((slowest - fastest) / np.where(slowest > 0, slowest, 1.0)))
    if times.shape[1] < SMALLEST_SAMPLE or skew <= LATE_SKEW:
        return skew, None, None
    if not COLLECTIVES[case.collective].synchronising:
        return skew, None, None
    shortest = np.bincount(times.argmin(axis=0), minlength=times.shape[0]) / times.shape[1]
    rank = int(shortest.argmax())
    share = float(shortest[rank])
    return (skew, rank, share) if share >= LATE_SHARE else (skew, None, None)
