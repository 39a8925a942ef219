"""How large a message should be, by what a short probe reached; and for how long it is sent."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from collbench.model import Status, Trial, Window

_SMALLEST_BYTES, _LARGEST_BYTES = 2**18, 2**30
PROBE_BYTES = {"gloo": 2**20}
PROBE_BYTES_ELSE = 2**26
"""Of the probe, by back end."""
AIM_S = {"gloo": 0.04}
AIM_S_ELSE = 0.02
"""How long a message should take: long enough for the bandwidth to show, no longer."""
_GUARD_SHARE, _MOST_GUARD_S = 0.5, 0.3
"""Of the window, before and after it: groups do not begin within the same millisecond, and what a
queue holds when the last one joins, or the first one leaves, is not to be counted."""


def fitting_size_bytes(probes: Iterable[Trial], backend: str) -> int:
    """Returns a power of two that takes about as long as is aimed at, by the probes' median.

    Args:
        probes: trials of the probe; where none is ok its own size stands.
        backend: that ran them.
    """
    rates = [
        probe.summary.busbw_gb_per_s
        for probe in probes
        if probe.status is Status.OK and probe.summary is not None and probe.summary.busbw_gb_per_s
    ]
    if not rates:
        return PROBE_BYTES.get(backend, PROBE_BYTES_ELSE)
    wanted = float(np.median(rates)) * 1e9 * AIM_S.get(backend, AIM_S_ELSE)
    fitting = int(2 ** math.ceil(math.log2(max(wanted, 1.0))))
    return min(max(fitting, _SMALLEST_BYTES), _LARGEST_BYTES)


def window(backend: str, messages: int, message_s: float = 0.0) -> Window:
    """Returns when groups that run at once are timed: all in the same window.

    With a fixed number of samples the fast ones would end early, and what shares a link with them
    would have it to itself.

    Args:
        backend: that runs them.
        messages: of the time that is aimed at, which fill the window.
        message_s: how long a message takes where nothing shares its way, if it is known to take
            longer than is aimed at. Where few end in the window, what they moved is not known: the
            rates of groups that take turns would add up to more than they share.
    """
    timed_s = messages * max(AIM_S.get(backend, AIM_S_ELSE), message_s)
    # The groups of a model do not wait for each other: each has its rate from the first call on.
    guard_s = 0.0 if backend == "simulated" else min(_GUARD_SHARE * timed_s, _MOST_GUARD_S)
    return Window(lead_s=guard_s, timed_s=timed_s, tail_s=guard_s)
