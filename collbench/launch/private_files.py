"""Small files that only this user may read: where to meet, and the secret."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

MEETING_FOLDER = ".meeting"
"""In the folder of all runs."""
_LARGEST_BYTES = 16 * 1024


def write_new(path: Path, data: bytes) -> None:
    """Writes a file that must not exist yet, mode 0600.

    Raises:
        FileExistsError: it exists.
        OSError: it cannot be written; nothing is left behind then.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def replace_whole(path: Path, data: bytes) -> None:
    """Writes a file, mode 0600, so that a reader finds all of it or what was there before.

    Raises:
        OSError: it cannot be written.
    """
    made = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    write_new(made, data)
    try:
        made.replace(path)
    except OSError:
        made.unlink(missing_ok=True)
        raise


def read_own(path: Path) -> bytes | None:
    """Returns what a file holds; None if it is not there, or somebody else's.

    Root may be told that its own file belongs to nobody (NFS with root_squash), so it reads all.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        owner, user = os.fstat(descriptor).st_uid, os.geteuid()
        return file.read(_LARGEST_BYTES) if user in (0, owner) else None


def make_folder(folder: Path) -> None:
    """Makes the folder for such files, for this user alone, where it is not there yet.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
