"""Which libnccl the native back end calls: loaded by name, and the only one in the process.

nccl4py's bindings take a libnccl that is mapped already; so the one asked for is mapped before the
bindings look. Two of them in one process would leave open which one a figure belongs to: that is
refused, before a group forms and before each case.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from collbench.errors import NothingMeasured, UsageError, install_words
from collbench.model import LibraryVersion

_OLDEST = (2, 19, 0)
"""The first NCCL with an allocator of its own (ncclMemAlloc)."""

VersionNumbers = tuple[int, int, int]


def import_extra(name: str) -> ModuleType:
    """Returns a module that the extra ``native`` brings.

    Raises:
        UsageError: it is not installed; the text says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise UsageError(
            f"--via native needs nccl4py: {install_words('native')} ({problem})"
        ) from problem


def import_extras() -> None:
    """Imports all that a rank needs of the extra, half a second of work; starts no CUDA.

    For the process that ranks are forked from. No libnccl is looked for before its first call.

    Raises:
        UsageError: the extra is not installed.
    """
    for name in ("cuda.core", "cuda.bindings.driver", "nccl.bindings.nccl"):
        import_extra(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeLibrary:
    """The NCCL of this process with its low-level bindings."""

    bindings: ModuleType
    """``nccl.bindings.nccl``: NCCL's functions on plain pointers."""
    version: LibraryVersion
    numbers: VersionNumbers
    """The version to compare with."""
    path: str
    """Where it lies on disk, links resolved."""
    mapped: Callable[[], list[str]]

    def check(self) -> None:
        """Looks again whether this is the one libnccl in the process; reads the mappings only.

        Raises:
            NothingMeasured: another one is mapped, beside it or in its place.
        """
        check_library(self.path, self.mapped())


def check_library(asked: str, mapped: list[str]) -> None:
    """Accepts a process in which the libnccl asked for is mapped and no other.

    Raises:
        NothingMeasured: any other process; the text has the paths.
    """
    if len(mapped) != 1:
        found = "; ".join(mapped) or "none"
        raise NothingMeasured(
            f"{len(mapped)} libnccl are mapped ({found}), exactly one is allowed;"
            " remove what loads the other"
        )
    if os.path.realpath(mapped[0]) != os.path.realpath(asked):
        raise NothingMeasured(
            f"libnccl '{mapped[0]}' is mapped, '{asked}' was asked for; remove what loads the other"
        )


def load_library(path: str | None, mapped: Callable[[], list[str]]) -> NativeLibrary:
    """Loads NCCL into this process, once.

    Args:
        path: the libnccl to load; None: the one that cuda.pathfinder finds.
        mapped: tells the paths of all libnccl that are mapped.

    Raises:
        UsageError: nccl4py is not installed.
        NothingMeasured: no such library, too old a one, or another one is mapped.
    """
    if path is not None:
        try:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError as problem:
            raise NothingMeasured(
                f"cannot load libnccl '{path}': {problem}; name a libnccl.so of this machine"
            ) from problem
    bindings = import_extra("nccl.bindings.nccl")
    try:
        number = int(bindings.get_version())
    except RuntimeError as problem:
        raise NothingMeasured(
            f"no libnccl is found ({' '.join(str(problem).split())});"
            " install nvidia-nccl-cu13 or name the library's path"
        ) from problem
    paths = mapped()
    asked = path if path is not None else paths[0] if paths else "libnccl.so.2"
    check_library(asked, paths)
    numbers = (number // 10000, number // 100 % 100, number % 100)
    version = ".".join(str(part) for part in numbers)
    if numbers < _OLDEST:
        oldest = ".".join(str(part) for part in _OLDEST[:2])
        raise NothingMeasured(
            f"libnccl '{paths[0]}' is version {version}; --via native needs {oldest} or newer"
        )
    return NativeLibrary(
        bindings=bindings,
        version=LibraryVersion(version=version, path=paths[0]),
        numbers=numbers,
        path=os.path.realpath(paths[0]),
        mapped=mapped,
    )
