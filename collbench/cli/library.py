"""The NCCL library that a sweep will measure, and what can be said of it before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from collbench.engine.placement import Slots
from collbench.errors import UsageError, install_words
from collbench.model import LibraryVersion, Topology
from collbench.nccl.legality import lowest_capability
from collbench.nccl.settings import ALG_SELECTION, IB, LIBRARY
from collbench.nccl.variables import quiet_variables, without_effect
from collbench.plan.legality import NcclPlace
from collbench.probe.environment import recorded_variables
from collbench.probe.nccl import (
    identify_library,
    installed_library,
    names_in_library,
    version_tuple,
)
from collbench.suite import ResolvedSuite, Suite, read_libraries, settings_of
from collbench.suite.axes import read_settings

NEWEST_KNOWN = (2, 32, 0)
"""Stands for a library whose release is not known: what it may refuse it will refuse itself."""
_AXES = {
    "NCCL_ALGO": "--algo",
    "NCCL_PROTO": "--proto",
    "NCCL_NET": "--net",
    IB: "--ib",
    ALG_SELECTION: "--alg-selection",
    LIBRARY: "--nccl",
}

_WHO = {"gloo": "Gloo communicates", "simulated": "a model answers"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Libraries:
    """The NCCL libraries of a run, as their files say."""

    first: LibraryVersion | None
    """The one that is loaded, or the first of several; None where it is not found."""
    named: Mapping[str, LibraryVersion] = field(default_factory=dict)
    """Those that settings call by name."""

    @property
    def all(self) -> list[LibraryVersion]:
        """All that were found."""
        return list(self.named.values()) or ([] if self.first is None else [self.first])


def find_libraries(suite: Suite) -> Libraries:
    """Returns the libraries that will be loaded, from their files.

    Raises:
        UsageError: the native back end is not installed, a path is no NCCL library, or a library
            is named for torch, which loads its own.
    """
    place = suite.run
    paths = read_libraries(place.nccl)
    refuse_for_torch(suite)
    if place.via == "native" and (find_spec("nccl") is None or find_spec("cuda") is None):
        raise UsageError(f"--via native needs nccl4py: {install_words('native')}")
    found = {name: _identified(path) for name, path in paths.items()}
    named = {name: library for name, library in found.items() if name and library is not None}
    return Libraries(first=next(iter(found.values())), named=named)


def refuse_for_torch(suite: Suite) -> None:
    """Refuses what only the native back end can do where it is not asked for.

    Raises:
        UsageError: a library or NCCL's choice per call is named for torch.
    """
    if suite.run.via == "native":
        return
    paths = read_libraries(suite.run.nccl)
    if any(path is not None for path in paths.values()) or len(paths) > 1:
        asked = " ".join(path or "auto" for path in paths.values())
        raise UsageError(
            f"--nccl {asked} needs --via native: torch loads the library that it was installed with"
        )
    if suite.sweep.alg_selection:
        raise UsageError("--alg-selection needs --via native: torch does not pass it on")


def _identified(path: str | None) -> LibraryVersion | None:
    if path is not None:
        return identify_library(Path(path))
    installed = installed_library()
    return None if installed is None else identify_library(installed)


def refuse_without_nccl(suite: Suite, slots: Slots) -> None:
    """Refuses the axes of NCCL where it is not NCCL that communicates.

    Raises:
        UsageError: one of them is asked for.
    """
    if slots.backend == "nccl":
        return
    names = {name for setting in settings_of(suite) for name in setting}
    whole = {name for setting in read_settings(suite.sweep.settings) for name in setting}
    options = [
        f"--setting {name}" if name in whole else option
        for name, option in _AXES.items()
        if name in names
    ]
    options += ["--via native"] if suite.run.via == "native" else []
    if suite.run.nccl not in ("auto", ("auto",)) and "--nccl" not in options:
        options += ["--nccl"]
    if options:
        raise UsageError(
            f"{', '.join(options)} steer{'s' * (len(options) == 1)} NCCL, and here"
            f" {_WHO[slots.backend]}, which has no such choice; leave"
            f" {'it' if len(options) == 1 else 'them'} out, or run on a machine with NVIDIA GPUs"
        )


def nccl_place(
    suite: ResolvedSuite,
    slots: Slots,
    topology: Topology,
    libraries: Libraries,
    environ: Mapping[str, str],
) -> NcclPlace:
    """Returns what decides which settings can be."""
    first = libraries.first
    version = None if first is None else version_tuple(first.version)
    return NcclPlace(
        version=version or NEWEST_KNOWN,
        versions={
            name: version_tuple(library.version) or NEWEST_KNOWN
            for name, library in libraries.named.items()
        },
        nodes=slots.hosts,
        ranks=slots.world_size,
        compute_capability=lowest_capability(topology.nodes),
        variables={k: v for k, v in recorded_variables(environ).items() if k not in suite.swept},
    )


def warnings_of(
    suite: ResolvedSuite, libraries: Libraries, environ: Mapping[str, str]
) -> Sequence[str]:
    """Returns what is wrong with the variables that are set, a line each."""
    swept = set(suite.swept)
    found = [
        f"{name}={environ[name]} of the environment is not used: this variable is swept"
        for name in sorted(swept & environ.keys())
    ]
    if suite.policy.proof and quiet_variables(environ):
        found.append(
            f"NCCL_DEBUG={environ['NCCL_DEBUG']} of the environment is not used where a time is"
            " taken: what NCCL writes for the proof is in the run's logs"
        )
    set_names = {name for name in (*environ, *swept) if name.startswith("NCCL_")}
    for library in libraries.all:
        if library.path is not None and set_names:
            known = names_in_library(Path(library.path))
            found += without_effect(set_names, known, library.version)
    return found
