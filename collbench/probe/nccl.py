"""Which NCCL is loaded in this process; torch's own answer is the one it was compiled with."""

from __future__ import annotations

import ctypes
from pathlib import Path

from collbench.model import LibraryVersion


def mapped_nccl(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """Returns the paths of all libnccl that are mapped, in the order of their mapping."""
    paths = [
        line.split(maxsplit=5)[5]
        for line in maps.read_text().splitlines()
        if "/libnccl.so" in line or "/libnccl-static" in line
    ]
    return list(dict.fromkeys(paths))


def loaded_nccl(maps: Path = Path("/proc/self/maps")) -> LibraryVersion | None:
    """Returns version and path of the loaded NCCL, None where there is none.

    More than one is said in ``path`` (joined by ``;``): the figures of such a process cannot be
    laid to either.
    """
    paths = mapped_nccl(maps)
    if not paths:
        return None
    # Opening a path that is mapped already gives that very library, not a second one.
    library = ctypes.CDLL(paths[0])
    number = ctypes.c_int()
    if library.ncclGetVersion(ctypes.byref(number)) != 0:
        return LibraryVersion(version="unknown", path=";".join(paths))
    return LibraryVersion(version=decode_version(number.value), path=";".join(paths))


def decode_version(number: int) -> str:
    """Returns ``2.28.9`` for 22809, and ``2.7.8`` for 2708 (the scheme before 2.9)."""
    if number < 10000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
