"""Waiting for descriptors, whatever their numbers: node 0 of a large run has thousands open."""

from __future__ import annotations

import resource
import select
from collections.abc import Iterable
from typing import Protocol

_MOST_OPEN = 1 << 17


class HasFileno(Protocol):
    """A file or socket."""

    def fileno(self) -> int:
        """Returns its descriptor."""


def readable(files: Iterable[int | HasFileno], timeout_s: float | None) -> list[int]:
    """Returns the descriptors that can be read or have ended; waits for the first of them.

    ``select.select`` would fail for descriptors from 1024 on.

    Args:
        files: to wait for; none: waits for the time alone.
        timeout_s: the longest waiting; None: without end.
    """
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN | select.POLLHUP)
    return [number for number, _ in poll.poll(None if timeout_s is None else timeout_s * 1e3)]


def allow_many_files() -> None:
    """Raises this process's limit of open files as far as it may: a link a station."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN if hard == resource.RLIM_INFINITY else min(hard, _MOST_OPEN)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
