"""One writer a run: a lock that ends with its process, however that ends.

It is held on ``trials.jsonl``: ``run.json`` is replaced as a whole, and a lock would stay behind on
the file that was.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from collbench.errors import UsageError

_LOCKS = Path("/proc/locks")


def hold_for_writing(trials: BinaryIO, folder: Path) -> None:
    """Takes the lock of a run; it is let go when the file is closed.

    On a file system that has no locks nothing is held.

    Args:
        trials: the run's ``trials.jsonl``, open for appending.
        folder: the run's.

    Raises:
        UsageError: somebody else holds it.
    """
    try:
        fcntl.flock(trials.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"run '{folder.name}' is still being written by"
            f" {holder_of(os.fstat(trials.fileno()).st_ino)}; wait until that ends, or end it"
        ) from None
    except OSError:
        return


def holder_of(inode: int, locks: Path = _LOCKS) -> str:
    """Returns who holds the lock of a file, in words; the kernel knows this machine's only.

    Args:
        inode: of the file.
        locks: the kernel's table, for tests.
    """
    with contextlib.suppress(OSError):
        for line in locks.read_text().splitlines():
            # 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF
            words = line.split()
            held = len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{inode}")
            if held and int(words[4]) > 0:
                return f"pid {words[4]}"
    return "a process that is not seen from here"
