"""Signals that ask a command to end, held back where half a step would do harm."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Handler = Callable[[int, FrameType | None], None]


@contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """Hands the signals to a handler, and back to those before at the end."""
    previous = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def raise_outside_tasks(problem: BaseException) -> None:
    """Raises now, or, if an event loop is running, as its next callback.

    A task in which a signal's handler raises is dead, and what it was doing half done: a station
    would obey no more orders, such as those to tidy up.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise problem from None

    def raise_it() -> None:
        raise problem

    loop.call_soon_threadsafe(raise_it)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Holds signals back while something must be done whole: a trial stored, a process started.

    By handlers that keep them, not by a mask: the kernel would hand a masked signal to another
    thread (a progress line has one), and Python runs its handler in this one all the same.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)

    try:
        with handling(hold):
            yield
    finally:
        for late in held:
            signal.raise_signal(late)
