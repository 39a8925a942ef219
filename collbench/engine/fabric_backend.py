"""A back end for the measuring loop whose calls take the time that a fabric's model gives.

One rank stands for its whole group: the calls of a group begin and end together, so there is
nobody to agree with and no thread is needed, however many ranks there are.
"""

from __future__ import annotations

from collections.abc import Callable

from collbench.measure.calls import Calls
from collbench.measure.fake import FakeBuffers, FakeClock, NoProgress
from collbench.measure.host_timer import HostTimer
from collbench.measure.protocols import Buffers, Control
from collbench.measure.walk import Walk
from collbench.model import Case, Mode, Reason, ReasonCode
from collbench.stats import FloatArray

_FREE_BYTES = 64 * 2**30
_CACHE_BYTES = 32 * 2**20


def refusal(case: Case) -> Reason | None:
    """Returns why a case cannot be: all modes but eager, a pair of one."""
    if case.mode is not Mode.EAGER:
        text = f"mode {case.mode} is not simulated"
        return Reason(code=ReasonCode.NO_SUCH_MODE, text=text)
    if case.collective == "send_recv" and case.world_size < 2:
        return Reason(code=ReasonCode.NEEDS_TWO_RANKS, text="send_recv needs 2 ranks or more")
    return None


class _Alone:
    """Agreement of one."""

    def barrier(self) -> None:
        """Does nothing."""

    def max(self, values: FloatArray) -> FloatArray:
        """Returns the values."""
        return values


class FabricBackend:
    """Eager calls on a clock that only they move.

    Args:
        call_us: returns the time of the next call.
    """

    name = "simulated"

    def __init__(self, call_us: Callable[[], float]) -> None:
        self._call_us = call_us
        self._clock = FakeClock()
        self._control = _Alone()

    @property
    def control(self) -> Control:
        """Agrees with itself."""
        return self._control

    def refusal(self, case: Case) -> Reason | None:
        """Refuses what the model cannot answer."""
        return refusal(case)

    def free_bytes(self) -> int:
        """Returns the memory of a GPU."""
        return _FREE_BYTES

    def cache_bytes(self) -> int:
        """Returns the last cache of a GPU."""
        return _CACHE_BYTES

    def target_sample_us(self) -> float:
        """The clock is exact: one call a sample."""
        return 0.0

    def open(self, case: Case, walk: Walk) -> Buffers:
        """Returns buffers without memory."""
        del walk
        return FakeBuffers(case, 0, self._call)

    def timer(self, case: Case, walk: Walk, buffers: Buffers) -> HostTimer:
        """Returns the host timer on the fake clock."""
        calls = Calls(
            buffers=buffers,
            slots=walk.slots,
            pattern=case.pattern,
            control=self._control,
            progress=NoProgress(),
        )
        return HostTimer(self._clock, calls)

    def now_s(self) -> float:
        """Returns the clock's time."""
        return self._clock.time_us / 1e6

    def _call(self, case: Case) -> None:
        del case
        self._clock.time_us += self._call_us()
