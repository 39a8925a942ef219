"""The measuring loop: one case on one rank, in step with the other ranks.

Order: refusals, memory, fill, one checked call, warm-up, samples, check of the last call. Nothing
but calls and clocks happens inside a sample's window; agreement, checks and counters of other
things stand outside.
"""

from __future__ import annotations

import math
from contextlib import closing

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.measure.protocols import Backend, Buffers, Control, Phase, Progress, Timer, Verified
from collbench.measure.stopping import LOOK_EVERY, MOST_SAMPLES, Stopping, WarmUp
from collbench.measure.walk import needed_bytes, plan_walk
from collbench.model import (
    Case,
    Mode,
    Pattern,
    Policy,
    RankProof,
    Reason,
    ReasonCode,
    Record,
    Status,
    StopReason,
    Window,
    WrongElement,
)
from collbench.stats import SMALLEST_SAMPLE, FloatArray
from collbench.units import approximate_size

MOST_OPS_PER_SAMPLE = 20


class RankResult(Record, frozen=True, kw_only=True):
    """What one rank has to say of one case. Statuses and reasons are equal on all ranks."""

    status: Status
    reason: Reason | None = None
    stop_reason: StopReason | None = None
    times_us: bytes = b""
    """float32 little-endian, one a sample."""
    ops_per_sample: int = 1
    warmup_samples: int = 0
    clock: str = ""
    checked_elements: int = 0
    wrong_elements: int = 0
    first_wrong: WrongElement | None = None
    host_us_per_call: float | None = None
    """Host time of issuing a call, median over samples; None in a graph."""
    proof: RankProof | None = None
    """What this rank's log shows, where it has one."""
    notes: list[str] = []


class _Sampler:
    """Takes chunks of samples and knows what all ranks know of them."""

    def __init__(
        self,
        timer: Timer,
        backend: Backend,
        control: Control,
        progress: Progress,
        start_s: float | None = None,
    ):
        self._timer, self._backend = timer, backend
        self._control, self._progress = control, progress
        self._start_s = backend.now_s() if start_s is None else start_s
        self.elapsed_s = 0.0
        self.ends_s: FloatArray = np.empty(0)
        """When each sample of the last chunk was over on all ranks."""

    def take(self, count: int, ops: int) -> tuple[FloatArray, FloatArray]:
        """Returns this rank's times and the slowest rank's, us a call. Synchronises."""
        mine = self._timer.sample(count, ops)
        elapsed_s = self._backend.now_s() - self._start_s
        later_s = np.append(np.cumsum(mine[:0:-1])[::-1], 0.0) * ops / 1e6
        agreed = self._control.max(np.concatenate([mine, elapsed_s - later_s]))
        slowest, self.ends_s = agreed[:count], agreed[count:]
        self.elapsed_s = float(self.ends_s[-1])
        self._progress.longest(float(slowest.max()) * ops)
        return mine, slowest


def measure_case(
    case: Case, policy: Policy, backend: Backend, control: Control, progress: Progress
) -> RankResult:
    """Measures one case on this rank.

    Collective: every rank of the group calls this with an equal case and policy.

    Returns:
        This rank's times; status and stop reason are agreed between the ranks.
    """
    start_s = backend.now_s()
    progress.phase(Phase.PREPARING)
    reason = backend.refusal(case)
    if reason is not None:
        return RankResult(status=Status.UNSUPPORTED, reason=reason)
    # The largest cache and the least free memory of all ranks: all then walk and decide alike.
    agreed = control.max(np.array([backend.cache_bytes(), -backend.free_bytes()], dtype=np.float64))
    walk = plan_walk(case, int(agreed[0]), policy.walk_bytes)
    needed = needed_bytes(case, walk, check=policy.check)
    free = -float(agreed[1])
    if needed > free:
        text = f"needs {approximate_size(needed)} a rank, {approximate_size(free)} are free"
        return RankResult(
            status=Status.SKIPPED, reason=Reason(code=ReasonCode.NO_MEMORY, text=text)
        )
    with closing(backend.open(case, walk)) as buffers:
        buffers.fill()
        control.barrier()
        with closing(backend.timer(case, walk, buffers)) as timer:
            return _measure(case, policy, backend, buffers, timer, control, progress, start_s)


def call_once(case: Case, backend: Backend, control: Control, progress: Progress) -> None:
    """Runs one call of a case, untimed, on the path that would be timed, if it can be.

    Collective: every rank of the group calls this with an equal case.
    """
    progress.phase(Phase.PREPARING)
    walk = plan_walk(case, cache_bytes=0)
    free = -float(control.max(np.array([-backend.free_bytes()], dtype=np.float64))[0])
    if backend.refusal(case) is not None or needed_bytes(case, walk, check=False) > free:
        return
    with closing(backend.open(case, walk)) as buffers:
        buffers.fill()
        control.barrier()
        with closing(backend.timer(case, walk, buffers)) as timer:
            timer.once()


def _measure(
    case: Case,
    policy: Policy,
    backend: Backend,
    buffers: Buffers,
    timer: Timer,
    control: Control,
    progress: Progress,
    start_s: float,
) -> RankResult:
    checker = _Checker(buffers, control, progress, enabled=policy.check)
    timer.once()
    checker.check(timer.checkable, "first")
    if checker.wrong:
        return checker.result(RankResult(status=Status.OK, clock=timer.clock))
    buffers.poison()
    if policy.window is not None:
        sampler = _Sampler(timer, backend, control, progress, start_s)
        ops, warmup_samples, times = _in_window(policy.window, timer, sampler, progress)
        stop_reason = StopReason.TIME
    else:
        sampler = _Sampler(timer, backend, control, progress)
        progress.phase(Phase.WARMING)
        ops, warmup_samples, sample_us = _warm_up(case, policy, backend, timer, sampler)
        progress.phase(Phase.SAMPLING)
        times, stop_reason = _sample(policy, sampler, ops, sample_us)
    if case.in_place:
        # Repeated reductions in place overflow: the data of the timed calls mean nothing. The
        # same path (the same graph) goes once more over fresh data.
        if policy.check:
            buffers.fill()
            control.barrier()
            timer.once()
            checker.check(timer.checkable, "last")
    else:
        checker.check(timer.checkable, "last")
    notes = [*timer.notes, *(["few_samples"] if times.size < SMALLEST_SAMPLE else [])]
    return checker.result(
        RankResult(
            status=Status.OK,
            stop_reason=stop_reason,
            times_us=times.tobytes(),
            ops_per_sample=ops,
            warmup_samples=warmup_samples,
            clock=timer.clock,
            host_us_per_call=timer.host_us_per_call,
            notes=notes,
        )
    )


def _warm_up(
    case: Case, policy: Policy, backend: Backend, timer: Timer, sampler: _Sampler
) -> tuple[int, int, float]:
    """Warms up; returns calls a sample, samples thrown away, the time of a sample in us."""
    ops = timer.fixed_ops or 1
    _, slowest = sampler.take(1, ops)
    taken = 1
    call_us = float(slowest[-1])
    detector = WarmUp(policy)
    while True:
        if timer.fixed_ops is None:
            ops = _ops_per_sample(case, backend.target_sample_us(), call_us)
        if policy.warmup is not None:
            left = policy.warmup - taken
            count = min(left, LOOK_EVERY)
        else:
            left_s = policy.max_time_s / 10
            count = max(1, min(LOOK_EVERY, math.floor(left_s * 1e6 / (call_us * ops + 1e-9))))
        if count <= 0:
            break
        _, slowest = sampler.take(count, ops)
        taken += count
        call_us = float(np.median(slowest))
        if policy.warmup is None and detector.over(slowest, sampler.elapsed_s):
            break
    return ops, taken, call_us * ops


def _ops_per_sample(case: Case, target_us: float, call_us: float) -> int:
    """Returns how many calls make a sample long enough for its clock."""
    if case.pattern is Pattern.ISOLATED or case.mode is Mode.GRAPH or call_us <= 0:
        return 1
    return max(1, min(MOST_OPS_PER_SAMPLE, math.ceil(target_us / call_us)))


def _sample(
    policy: Policy, sampler: _Sampler, ops: int, sample_us: float
) -> tuple[NDArray[np.float32], StopReason]:
    stopping = Stopping(policy)
    chunks: list[FloatArray] = []
    while True:
        mine, slowest = sampler.take(stopping.next_count(sampler.elapsed_s, sample_us), ops)
        chunks.append(mine)
        sample_us = float(np.median(slowest)) * ops
        stop_reason = stopping.update(slowest, sampler.elapsed_s)
        if stop_reason is not None:
            return np.concatenate(chunks).astype("<f4"), stop_reason


def _in_window(
    window: Window, timer: Timer, sampler: _Sampler, progress: Progress
) -> tuple[int, int, NDArray[np.float32]]:
    """Returns calls a sample, samples before the window, and the times of those that end in it.

    Ranks that stop to agree leave what they share to others, so calls go on from before the
    window until after it in one chunk, where their time can be foreseen.
    """
    ops = timer.fixed_ops or 1
    begin_s, end_s = window.lead_s, window.lead_s + window.timed_s
    over_s = end_s + window.tail_s
    progress.phase(Phase.WARMING)
    times, _ = sampler.take(1, ops)
    first_s, taken = sampler.elapsed_s, 1
    mine, ends_s = [times], [sampler.ends_s]
    progress.phase(Phase.SAMPLING)
    while sampler.elapsed_s < over_s:
        count = 1
        if taken > 1:
            # With the time between chunks: a call that finds a queue empty may be very short.
            each_s = max((sampler.elapsed_s - first_s) / (taken - 1), 1e-9)
            until_s = begin_s / 2 if sampler.elapsed_s < begin_s / 2 else over_s
            count = min(math.ceil((until_s - sampler.elapsed_s) / each_s), MOST_SAMPLES)
        times, _ = sampler.take(count, ops)
        mine.append(times)
        ends_s.append(sampler.ends_s)
        taken += times.size
    at_s = np.concatenate(ends_s)
    inside = (at_s > begin_s) & (at_s <= end_s)
    if not inside.any():
        # A call longer than the window: the one that covers its end.
        inside[min(int(np.searchsorted(at_s, end_s)), taken - 1)] = True
    return ops, int(inside.argmax()), np.concatenate(mine)[inside].astype("<f4")


class _Checker:
    """Adds up what the checks of a trial found; decides alike on all ranks."""

    def __init__(
        self, buffers: Buffers, control: Control, progress: Progress, *, enabled: bool
    ) -> None:
        self._buffers, self._control, self._progress = buffers, control, progress
        self._enabled = enabled
        self._mine: list[Verified] = []
        self.wrong = False
        """Whether any rank has seen a wrong element."""

    def check(self, slots: tuple[int, ...], when: str) -> None:
        """Compares the outputs of some slots. Synchronises."""
        if not self._enabled:
            return
        self._progress.phase(Phase.CHECKING)
        found = [self._buffers.verify(slot, when) for slot in slots]
        self._mine += found
        wrong = sum(part.wrong_elements for part in found)
        worst = self._control.max(np.array([float(wrong)]))
        self.wrong = self.wrong or bool(worst[0] > 0)

    def result(self, measured: RankResult) -> RankResult:
        """Returns the result with what was found in it; ``data_wrong`` where it must be."""
        fields: dict[str, object] = {
            "checked_elements": sum(part.checked_elements for part in self._mine),
            "wrong_elements": sum(part.wrong_elements for part in self._mine),
            "first_wrong": next((p.first_wrong for p in self._mine if p.first_wrong), None),
        }
        if self.wrong:
            fields["status"] = Status.DATA_WRONG
            fields["reason"] = Reason(
                code=ReasonCode.WRONG_ELEMENT, text="the output differs from the known answer"
            )
        return msgspec.structs.replace(measured, **fields)
