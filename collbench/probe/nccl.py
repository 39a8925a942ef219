"""Which NCCL is loaded in this process, and what a library's file says without being loaded.

torch's own answer is the version it was compiled with.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from collbench.errors import UsageError
from collbench.model import LibraryVersion

_MAPS = Path("/proc/self/maps")
_LIBRARY = re.compile(r"/libnccl[^/-]*\.so[.0-9]*( \(deleted\))?$")
"""Plug-ins have a dash: libnccl-net.so."""

_ELF = b"\x7fELF"
_VERSION_TEXT = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")
_NAME = re.compile(rb"NCCL_[A-Z0-9_]+")
_WHEEL_PATH = Path("nvidia/nccl/lib/libnccl.so.2")


def installed_library(search: Sequence[str] | None = None) -> Path | None:
    """Returns the libnccl of the wheel that torch depends on; None where there is no such wheel.

    Args:
        search: folders of packages; Python's own if None.
    """
    folders = sys.path if search is None else search
    found = (Path(folder or ".") / _WHEEL_PATH for folder in folders)
    return next((path for path in found if path.is_file()), None)


def identify_library(path: Path) -> LibraryVersion:
    """Returns the version that stands in a library's file; does not load it.

    Raises:
        UsageError: not readable, or no NCCL library.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(4) != _ELF:
                raise UsageError(f"{path} is no shared library; give the path of a libnccl.so.2")
            with mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as content:
                match = _VERSION_TEXT.search(content)
                version = None if match is None else match[1].decode()
    except OSError as problem:
        raise UsageError(
            f"{path} cannot be read: {problem.strerror}; give the path of a libnccl.so.2"
        ) from None
    if version is None:
        raise UsageError(
            f"{path} is no NCCL library: no NCCL version stands in it; give the path of a"
            " libnccl.so.2"
        )
    found = str(path.resolve())
    if not _LIBRARY.search(found):
        raise UsageError(
            f"{path} is an NCCL library by another name ({found}), which could not be found among"
            " what a process has loaded; call the file libnccl.so.2, in a folder of its own"
        )
    return LibraryVersion(version=version, path=found)


def names_in_library(path: Path) -> frozenset[str]:
    """Returns every NCCL_ name that stands in a library's file: the variables that it knows."""
    with (
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as content,
    ):
        return frozenset(name.decode() for name in _NAME.findall(content))


def version_tuple(version: str) -> tuple[int, int, int] | None:
    """Returns the numbers of a version's text, None where it has none."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


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
