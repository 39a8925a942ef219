"""From the samples of all ranks to the figures of a trial."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.measure.summary import summarise
from collbench.model import Case, Summary


def a_case(collective: str = "all_reduce", world_size: int = 2) -> Case:
    return Case(
        collective=collective,
        backend="gloo",
        dtype="float32",
        size_bytes=10**6,
        requested_bytes=10**6,
        count=250_000,
        world_size=world_size,
        in_place=False,
    )


def summary_of(times, case: Case | None = None, show_rate: bool = True) -> Summary:
    times = np.array(times, dtype=np.float32)
    return summarise(
        case or a_case(world_size=times.shape[0]),
        times,
        ops_per_sample=4,
        warmup_samples=11,
        show_rate=show_rate,
    )


def test_slowest_rank_first_then_the_median():
    found = summary_of([[10, 30, 20], [40, 10, 50]])

    # Slowest of each sample: 40, 30, 50.
    assert (found.median_us, found.min_us) == (40, 30)
    assert found.p5_us == pytest.approx(31)
    assert found.mean_over_ranks_us == pytest.approx(160 / 6)
    assert (found.samples, found.ops_per_sample, found.warmup_samples) == (3, 4, 11)
    assert found.slowest_rank == 1


def test_rates_come_from_the_median_time():
    found = summary_of(np.full((4, 3), 50.0))

    # 1 MB in 50 us is 20 GB/s; all_reduce over 4: x 2 x 3/4.
    assert found.algbw_gb_per_s == pytest.approx(20)
    assert found.busbw_gb_per_s == pytest.approx(30)


def test_no_rate_where_none_may_be_shown():
    found = summary_of(np.full((4, 3), 50.0), show_rate=False)

    assert (found.algbw_gb_per_s, found.busbw_gb_per_s) == (None, None)
    assert found.median_us == 50


def test_no_bus_rate_where_its_factor_is_zero():
    found = summary_of(np.full((1, 3), 50.0))

    assert found.algbw_gb_per_s == pytest.approx(20)
    assert found.busbw_gb_per_s is None
    assert (found.skew, found.late_rank, found.slowest_rank) == (0, None, None)


@pytest.mark.parametrize(
    ("samples", "interval", "p95", "p99"),
    [
        (1, False, False, False),
        (9, False, False, False),
        (10, True, False, False),
        (19, True, False, False),
        (20, True, True, False),
        (99, True, True, False),
        (100, True, True, True),
    ],
)
def test_what_needs_more_samples_is_absent_below(samples, interval, p95, p99):
    found = summary_of(np.full((2, samples), 8.0))

    assert (found.ci95_us == (8, 8)) is interval
    assert (found.ci95_us is None) is not interval
    assert (found.p95_us, found.p99_us) == (8 if p95 else None, 8 if p99 else None)
    assert found.effective_samples == samples


def test_percentiles_interpolate_between_the_slowest_times():
    times = np.stack([np.arange(1.0, 101.0), np.full(100, 0.5)])
    found = summary_of(np.random.default_rng(2).permuted(times, axis=1))

    assert found.p5_us == pytest.approx(5.95)
    assert found.p95_us == pytest.approx(95.05)
    assert found.p99_us == pytest.approx(99.01)


def late(share: float, shortest_us: float, samples: int = 20) -> np.ndarray:
    """Three ranks at 100 us; rank 1 is the shortest in a share of the samples, rank 2 else."""
    times = np.full((3, samples), 100.0)
    times[1, : round(share * samples)] = shortest_us
    times[2, round(share * samples) :] = shortest_us
    return times


def test_the_rank_that_is_the_shortest_enters_late():
    found = summary_of(late(0.9, 60))

    assert found.late_rank == 1
    assert found.late_share == pytest.approx(0.9)
    assert found.skew == pytest.approx(0.4)
    assert found.median_us == 100


@pytest.mark.parametrize(
    ("share", "shortest_us", "rank"), [(0.8, 60, 1), (0.75, 60, None), (0.9, 91, None), (1, 89, 1)]
)
def test_a_late_rank_is_named_from_80_percent_and_above_10_percent_skew(share, shortest_us, rank):
    found = summary_of(late(share, shortest_us))

    assert found.late_rank == rank
    assert (found.late_share is None) is (rank is None)
    assert found.skew == pytest.approx(1 - shortest_us / 100)


@pytest.mark.parametrize(
    ("collective", "named"),
    [
        ("all_reduce", True),
        ("all_gather", True),
        ("reduce_scatter", True),
        ("all_to_all", True),
        ("broadcast", False),
        ("reduce", False),
        ("gather", False),
        ("scatter", False),
        ("send_recv", False),
    ],
)
def test_lateness_is_only_told_where_all_wait_for_all(collective, named):
    found = summary_of(late(1.0, 60), a_case(collective, world_size=3))

    assert found.late_rank == (1 if named else None)
    assert found.skew == pytest.approx(0.4)


def test_times_of_zero_are_no_error():
    found = summary_of(np.zeros((2, 3)))

    assert (found.median_us, found.skew, found.algbw_gb_per_s) == (0, 0, 0)
    assert found.busbw_gb_per_s is None
