"""Which NCCL is loaded in this process; torch's own answer is the one it was compiled with."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

from collbench.model import LibraryVersion

_MAPS = Path("/proc/self/maps")
_LIBRARY = re.compile(r"/libnccl\.so[.0-9]*( \(deleted\))?$")


def mapped_nccl(maps: Path = _MAPS) -> list[str]:
    """Returns the paths of all libnccl that are mapped, in the order of their mapping.

    The plug-ins (libnccl-net.so, libnccl-tuner.so) are none of them.
    """
    columns = [line.split(maxsplit=5) for line in maps.read_text().splitlines()]
    paths = [words[5] for words in columns if len(words) == 6]
    return list(dict.fromkeys(path for path in paths if _LIBRARY.search(path)))


def loaded_nccl(
    maps: Path = _MAPS, version_of: Callable[[str], int | None] | None = None
) -> LibraryVersion | None:
    """Returns version and path of the loaded NCCL, None where there is none.

    More than one is said in the version, with all paths joined by ``;``: the figures of such a
    process cannot be laid to either.

    Args:
        maps: the process's mappings.
        version_of: asks a library of a path for its number; the library itself if None.
    """
    paths = mapped_nccl(maps)
    if not paths:
        return None
    number = (version_of or _ask_library)(paths[0])
    version = "unknown" if number is None else decode_version(number)
    if len(paths) > 1:
        version += f" (the first of {len(paths)} loaded)"
    return LibraryVersion(version=version, path=";".join(paths))


def decode_version(number: int) -> str:
    """Returns ``2.28.9`` for 22809, and ``2.7.8`` for 2708 (the scheme before 2.9)."""
    if number < 10000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def _ask_library(path: str) -> int | None:
    """Opening a path that is mapped already gives that very library, not a second copy."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None  # replaced on disk since it was mapped
    number = ctypes.c_int()
    return number.value if library.ncclGetVersion(ctypes.byref(number)) == 0 else None
