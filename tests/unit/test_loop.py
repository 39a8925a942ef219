"""The measuring loop on fake ranks: every figure follows from the model, to the last digit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES
from collbench.measure import stopping
from collbench.measure.fake import FakeBackend, FakeBuffers, FakeClock, FakeWorld, LinkModel
from collbench.measure.loop import RankResult, measure_case
from collbench.measure.plant import Plant, plant_in
from collbench.measure.protocols import Buffers, Phase
from collbench.measure.walk import Walk
from collbench.model import (
    Case,
    Mode,
    Pattern,
    Policy,
    ReasonCode,
    Status,
    StopReason,
    Window,
)

MIB = 2**20
PATIENCE_S = 20
TWENTY_US = LinkModel(alpha_us=10, bandwidth_gb_per_s=100)
"""10 us + 1 MB / 100 GB/s: a broadcast of the case below takes 20 us."""


def a_case(collective: str = "broadcast", size_bytes: int = 10**6, **changes) -> Case:
    row = COLLECTIVES[collective]
    fields = {
        "collective": collective,
        "backend": "simulated",
        "dtype": "float32",
        "redop": "sum" if row.has_redop else None,
        "root": 0 if row.has_root else None,
        "size_bytes": size_bytes,
        "requested_bytes": size_bytes,
        "count": row.count(size_bytes, "float32", 2),
        "world_size": 2,
        "in_place": False,
    }
    return Case(**{**fields, **changes})


@dataclass
class Counted:
    """A rank's progress, kept."""

    calls: int = 0
    phases: list[Phase] = field(default_factory=list)
    longest_us: float = 0.0

    def tick(self) -> None:
        self.calls += 1

    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    def longest(self, time_us: float) -> None:
        self.longest_us = max(self.longest_us, time_us)


class BatchingBackend(FakeBackend):
    """Its clock needs 100 us."""

    def target_sample_us(self) -> float:
        return 100.0


class PlantedBackend(FakeBackend):
    """Has a fault in front of its buffers."""

    plant: Plant

    def open(self, case: Case, walk: Walk) -> Buffers:
        return plant_in(super().open(case, walk), case, self._rank, self.plant)


class LateBackend(FakeBackend):
    """Rank 1 begins every sample 20 ms late."""

    def open(self, case: Case, walk: Walk) -> Buffers:
        return LateBuffers(case, self._rank, self._call, self._clock)


class LateBuffers(FakeBuffers):
    def __init__(self, case: Case, rank: int, call, clock: FakeClock) -> None:
        super().__init__(case, rank, call)
        self._late_us, self._clock = 20_000 * (rank == 1), clock

    def enter(self) -> None:
        self._clock.time_us += self._late_us


class Warming(LinkModel):
    """The first calls are slow."""

    calls = 0

    def time_us(self, case: Case) -> float:
        type(self).calls += 1
        return 1000.0 if self.calls <= 2 * 15 else 100.0  # two ranks count together


def measure(
    case: Case,
    policy: Policy | None = None,
    model: Callable[[int], LinkModel] | LinkModel = TWENTY_US,
    backend_class: type[FakeBackend] = FakeBackend,
) -> tuple[list[RankResult], list[Counted]]:
    """Measures on one thread a rank; returns each rank's result and progress."""
    world = FakeWorld(case.world_size)
    progress = [Counted() for _ in range(case.world_size)]

    def one(rank: int) -> RankResult:
        mine = model if isinstance(model, LinkModel) else model(rank)
        backend = backend_class(mine, world, rank, FakeClock(), progress[rank], seed=1)
        try:
            return measure_case(case, policy or Policy(), backend, backend.control, progress[rank])
        except BaseException:
            world.abort()
            raise

    with ThreadPoolExecutor(max_workers=case.world_size) as pool:
        ranks = [pool.submit(one, rank) for rank in range(case.world_size)]
        try:
            return [rank.result(timeout=PATIENCE_S) for rank in ranks], progress
        finally:
            world.abort()  # ranks that disagree would wait for each other for ever


def times_of(result: RankResult) -> list[float]:
    return np.frombuffer(result.times_us, "<f4").tolist()


def test_times_are_the_models_and_stop_when_precise():
    results, progress = measure(a_case())

    for result, counted in zip(results, progress, strict=True):
        assert (result.status, result.reason) == (Status.OK, None)
        assert result.stop_reason is StopReason.PRECISE
        assert times_of(result) == [20.0] * 20
        assert result.ops_per_sample == 1
        # One call to know its length, a chunk of ten, a second that is no faster.
        assert result.warmup_samples == 1 + 10 + 10
        assert (result.clock, result.notes) == ("fake", [])
        # The checked call, warm-up, samples; the last call is checked where it stands.
        assert counted.calls == 1 + 21 + 20
        assert counted.longest_us == 20
        assert counted.phases == [
            Phase.PREPARING,
            Phase.CHECKING,
            Phase.WARMING,
            Phase.SAMPLING,
            Phase.CHECKING,
        ]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_every_collective_takes_alpha_and_its_bytes_on_the_wire(collective, world_size):
    size_bytes = 3 * MIB
    case = a_case(collective, size_bytes, world_size=world_size)
    results, _ = measure(case, Policy(samples=3))

    factor = COLLECTIVES[collective].busbw_factor(world_size)
    for result in results:
        expected_us = 10 + size_bytes * factor / 100 / 1e3
        assert times_of(result) == pytest.approx([expected_us] * 3, rel=1e-6)


def test_an_in_place_case_ends_with_one_more_call_over_fresh_data():
    results, progress = measure(a_case(in_place=True))

    assert [result.status for result in results] == [Status.OK] * 2
    assert [counted.calls for counted in progress] == [1 + 21 + 20 + 1] * 2


def test_every_call_of_a_sample_counts_and_its_time_is_a_call():
    results, progress = measure(a_case(), backend_class=BatchingBackend)

    # 100 us / 20 us = 5 calls a sample.
    for result, counted in zip(results, progress, strict=True):
        assert result.ops_per_sample == 5
        assert times_of(result) == pytest.approx([20.0] * 20)
        assert counted.calls == 1 + 1 + 5 * 20 + 5 * 20
        assert counted.longest_us == pytest.approx(100)


def test_a_sample_holds_at_most_twenty_calls():
    results, _ = measure(
        a_case(size_bytes=4), model=LinkModel(alpha_us=1.0), backend_class=BatchingBackend
    )

    assert results[0].ops_per_sample == 20


def test_isolated_calls_stand_alone_in_their_sample():
    case = a_case(pattern=Pattern.ISOLATED)
    results, _ = measure(case, backend_class=BatchingBackend)

    assert results[0].ops_per_sample == 1
    assert times_of(results[0]) == [20.0] * 20


def test_warm_up_lasts_while_times_fall():
    Warming.calls = 0
    results, _ = measure(a_case(), model=Warming())

    # Call 1 is checked, 2 is timed alone; chunks of ten: slow; 3 slow 7 fast; fast.
    assert results[0].warmup_samples == 1 + 10 + 10 + 10
    assert set(times_of(results[0])) == {100.0}


def test_a_fixed_number_of_samples_and_of_warm_up():
    results, progress = measure(a_case(), Policy(samples=7, warmup=3))

    assert results[0].stop_reason is StopReason.FIXED
    assert times_of(results[0]) == [20.0] * 7
    assert results[0].warmup_samples == 3
    assert results[0].notes == ["few_samples"]
    assert progress[0].calls == 1 + 3 + 7


def test_more_fixed_warm_up_than_one_look_is_taken_whole():
    assert measure(a_case(), Policy(samples=10, warmup=25))[0][0].warmup_samples == 25


def test_time_ends_sampling_at_most_one_sample_late():
    # 60 ms a call: warm-up takes 1, 1 and 1 calls, then 10 samples until 0.78 s, then 4.
    results, _ = measure(a_case(), Policy(max_time_s=1.0), LinkModel(alpha_us=59_990))

    assert results[0].stop_reason is StopReason.TIME
    assert results[0].warmup_samples == 3
    assert times_of(results[0]) == pytest.approx([60_000.0] * 14)


class SlowClockBackend(FakeBackend):
    """Its clock needs 400 ms."""

    def target_sample_us(self) -> float:
        return 400_000.0


def test_time_counts_whole_samples_of_several_calls():
    # 7 calls of 60 ms a sample: warm-up until 0.9 s, 10 samples until 5.1 s, 3 until 6.36 s.
    results, _ = measure(
        a_case(), Policy(max_time_s=6.0), LinkModel(alpha_us=59_990), SlowClockBackend
    )

    assert (results[0].stop_reason, results[0].ops_per_sample) == (StopReason.TIME, 7)
    assert len(times_of(results[0])) == 13


def test_a_call_longer_than_the_whole_time_is_sampled_once():
    results, _ = measure(a_case(), Policy(max_time_s=1.0), LinkModel(alpha_us=5e6))

    assert results[0].stop_reason is StopReason.TIME
    assert len(times_of(results[0])) == 1
    assert results[0].notes == ["few_samples"]


def test_full_after_the_most_samples(monkeypatch):
    monkeypatch.setattr(stopping, "MOST_SAMPLES", 40)
    results, _ = measure(a_case(), Policy(precision=1e-9), LinkModel(noise=0.3))

    assert results[0].stop_reason is StopReason.FULL
    assert len(times_of(results[0])) == 40


def test_all_ranks_stop_alike_though_their_times_differ():
    results, _ = measure(a_case(), Policy(precision=0.05), lambda rank: LinkModel(noise=0.2 * rank))

    assert len({len(result.times_us) for result in results}) == 1
    assert len({result.stop_reason for result in results}) == 1
    assert results[0].times_us != results[1].times_us


def test_a_late_rank_lengthens_the_others_times_by_its_lateness():
    results, _ = measure(a_case("all_gather"), Policy(samples=20), backend_class=LateBackend)

    # all_gather of 1 MB over 2 ranks: 10 + 10 x 1/2.
    assert times_of(results[0]) == pytest.approx([20_015.0] * 20)
    assert times_of(results[1]) == pytest.approx([15.0] * 20)


def test_too_little_memory_on_one_rank_skips_the_case_on_all():
    results, progress = measure(
        a_case(), model=lambda rank: LinkModel(free_bytes=(1000, 100)[rank] * MIB)
    )

    # 64 slots, 1 MiB apart, on either side, 32 x 250,000 to check, 256 MiB in reserve.
    for result in results:
        assert result.status is Status.SKIPPED
        assert result.reason.code is ReasonCode.NO_MEMORY
        assert result.reason.text == "needs 392 MiB a rank, 100 MiB are free"
        assert (result.times_us, result.checked_elements) == (b"", 0)
    assert [counted.calls for counted in progress] == [0, 0]


def test_memory_that_just_suffices_is_enough():
    needed = 2 * 64 * MIB + 32 * 250_000 + 256 * MIB

    assert measure(a_case(), model=LinkModel(free_bytes=needed))[0][0].status is Status.OK
    less = measure(a_case(), model=LinkModel(free_bytes=needed - 1))[0][0]
    assert less.status is Status.SKIPPED


class WalkingBackend(FakeBackend):
    """Keeps each rank's walk."""

    walks: dict[int, Walk] = {}

    def open(self, case: Case, walk: Walk) -> Buffers:
        self.walks[self._rank] = walk
        return super().open(case, walk)


def test_ranks_with_different_caches_walk_alike_over_the_largest():
    measure(
        a_case(),
        Policy(samples=1),
        lambda rank: LinkModel(cache_bytes=(8, 32)[rank] * MIB),
        WalkingBackend,
    )

    assert WalkingBackend.walks[0] == WalkingBackend.walks[1]
    assert WalkingBackend.walks[0].slots == 64  # of 1 MB, as many as there may be


@pytest.mark.parametrize("mode", [Mode.GRAPH, Mode.EAGER_DEVICE])
def test_a_mode_that_the_back_end_has_not_is_unsupported(mode):
    results, progress = measure(a_case(mode=mode))

    for result in results:
        assert result.status is Status.UNSUPPORTED
        assert result.reason.code is ReasonCode.NO_SUCH_MODE
        assert result.reason.text == f"mode {mode} is not simulated"
    assert progress[0].calls == 0


def spoilt(call: str) -> type[PlantedBackend]:
    number = {"first": 1, "last": 2}[call]
    plant = Plant(kind="wrong", rank=1, call=number, index=5)
    return type("Spoilt", (PlantedBackend,), {"plant": plant})


@pytest.mark.parametrize("in_place", [False, True])
def test_a_wrong_element_at_the_first_call_ends_the_case_on_all_ranks(in_place):
    results, progress = measure(a_case(in_place=in_place), backend_class=spoilt("first"))

    for result in results:
        assert result.status is Status.DATA_WRONG
        assert result.reason.code is ReasonCode.WRONG_ELEMENT
        assert result.times_us == b""
    assert [result.wrong_elements for result in results] == [0, 1]
    assert results[0].first_wrong is None
    wrong = results[1].first_wrong
    assert (wrong.rank, wrong.index, wrong.when) == (1, 5, "first")
    assert [counted.calls for counted in progress] == [1, 1]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_wrong_element_at_the_last_call_is_found_after_the_samples(in_place):
    results, _ = measure(a_case(in_place=in_place), backend_class=spoilt("last"))

    for result in results:
        assert result.status is Status.DATA_WRONG
        assert result.reason.code is ReasonCode.WRONG_ELEMENT
        assert times_of(result) == [20.0] * 20
        assert result.stop_reason is StopReason.PRECISE
    wrong = results[1].first_wrong
    assert (wrong.rank, wrong.index, wrong.when) == (1, 5, "last")


def test_what_was_checked_is_counted():
    results, _ = measure(a_case("all_gather"))

    # The output of 2 x 125,000 elements, at the first and at the last call.
    assert [result.checked_elements for result in results] == [500_000, 500_000]


class RecordingBackend(FakeBackend):
    """Keeps what is done with rank 0's buffers."""

    done: list[str] = []

    def open(self, case: Case, walk: Walk) -> Buffers:
        buffers = super().open(case, walk)
        if self._rank == 0:
            self.done.clear()
            for name in ("fill", "poison", "call", "verify", "close"):
                setattr(buffers, name, self._kept(name, getattr(buffers, name)))
        return buffers

    def _kept(self, name: str, method: Callable) -> Callable:
        def keep(*arguments):
            self.done.append(name)
            return method(*arguments)

        return keep


@pytest.mark.parametrize(
    ("in_place", "after_the_samples"), [(False, ["verify"]), (True, ["fill", "call", "verify"])]
)
def test_outputs_are_poisoned_before_and_checked_after_the_samples(in_place, after_the_samples):
    measure(a_case(in_place=in_place), Policy(samples=2, warmup=1), backend_class=RecordingBackend)

    # A call that leaves its output alone cannot pass on the answer of the one before.
    before = ["fill", "call", "verify", "poison"]
    assert RecordingBackend.done == [*before, "call", "call", "call", *after_the_samples, "close"]


@pytest.mark.parametrize("in_place", [False, True])
def test_without_checks_nothing_is_compared_nor_called_again(in_place):
    results, progress = measure(
        a_case(in_place=in_place), Policy(check=False), backend_class=spoilt("last")
    )

    assert [result.status for result in results] == [Status.OK] * 2
    assert [result.checked_elements for result in results] == [0, 0]
    assert progress[0].calls == 1 + 21 + 20
    assert Phase.CHECKING not in progress[0].phases


class Crowded(LinkModel):
    """Another group comes and goes: calls take 100 us between 2,000 and 12,000 us, 20 us else."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "passed_us", [])

    def time_us(self, case: Case) -> float:
        took_us = 100.0 if 2_000 <= sum(self.passed_us) < 12_000 else 20.0
        self.passed_us.append(took_us)
        return took_us


WINDOW = Policy(window=Window(lead_s=0.003, timed_s=0.008, tail_s=0.003))


def test_in_a_window_only_calls_that_end_in_it_are_timed():
    models = [Crowded(), Crowded()]
    results, progress = measure(a_case(), WINDOW, model=models.__getitem__)

    for result, counted in zip(results, progress, strict=True):
        # The calls that end after 3,000 and up to 11,000 us, all while the other group was there.
        assert times_of(result) == [100.0] * 80
        assert result.stop_reason is StopReason.TIME
        assert result.warmup_samples >= 100
        assert counted.calls > 1 + result.warmup_samples + 80
    assert [sum(model.passed_us) >= 14_000 for model in models] == [True, True]


def test_a_window_is_left_in_one_chunk():
    """Ranks that stop to agree leave the link to others: no agreement stands within the window."""
    asked: list[float] = []

    class Listening(FakeBackend):
        @property
        def control(self):
            listening = super().control
            agree = listening.max

            def heard(values):
                if self._rank == 0:
                    asked.append(self._clock.time_us)
                return agree(values)

            listening.max = heard
            return listening

    measure(a_case(), WINDOW, backend_class=Listening)

    assert [at for at in asked if 3_000 < at < 11_000] == []
    assert max(asked) >= 14_000


def test_a_call_longer_than_the_window_is_timed_alone():
    results, _ = measure(a_case(), Policy(window=Window(lead_s=1e-6, timed_s=3e-6, tail_s=1e-6)))

    assert [times_of(result) for result in results] == [[20.0], [20.0]]


def test_ranks_agree_on_the_calls_of_a_window():
    results, _ = measure(a_case(), WINDOW, model=lambda rank: LinkModel(alpha_us=10 + 20 * rank))

    assert results[0].warmup_samples == results[1].warmup_samples
    assert len(times_of(results[0])) == len(times_of(results[1])) > 100
