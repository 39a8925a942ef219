"""The NCCL library that a sweep will measure, and what can be said of it before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from collbench.engine.placement import Slots
from collbench.errors import UsageError
from collbench.model import LibraryVersion, Topology, lowest_capability
from collbench.nccl.settings import ALG_SELECTION, IB
from collbench.nccl.variables import quiet_variables, without_effect
from collbench.plan.legality import NcclPlace
from collbench.probe.environment import recorded_variables
from collbench.probe.nccl import (
    identify_library,
    installed_library,
    names_in_library,
    version_tuple,
)
from collbench.suite import ResolvedSuite, Suite, settings_of

NEWEST_KNOWN = (2, 32, 0)
"""Stands for a library whose release is not known: what it may refuse it will refuse itself."""
_AXES = {
    "NCCL_ALGO": "--algo",
    "NCCL_PROTO": "--proto",
    "NCCL_NET": "--net",
    IB: "--ib",
    ALG_SELECTION: "--alg-selection",
}


_WHO = {"gloo": "Gloo communicates", "simulated": "a model answers"}


def find_library(suite: Suite) -> LibraryVersion | None:
    """Returns the library that will be loaded, from its file; None where it is not found.

    Raises:
        UsageError: the native back end is not installed, the path is no NCCL library, or a library
            is named for torch, which loads its own.
    """
    place = suite.run
    named = None if place.nccl == "auto" else Path(place.nccl)
    if place.via != "native":
        if named is not None:
            raise UsageError(
                f"--nccl {named} needs --via native: torch loads the library that it was installed"
                " with"
            )
        if suite.sweep.alg_selection:
            raise UsageError("--alg-selection needs --via native: torch does not pass it on")
    elif find_spec("nccl") is None or find_spec("cuda") is None:
        raise UsageError("--via native needs nccl4py: pip install 'collbench[native]'")
    if named is not None:
        return identify_library(named)
    installed = installed_library()
    return None if installed is None else identify_library(installed)


def refuse_without_nccl(suite: Suite, slots: Slots) -> None:
    """Refuses the axes of NCCL where it is not NCCL that communicates.

    Raises:
        UsageError: one of them is asked for.
    """
    if slots.backend == "nccl":
        return
    names = {name for setting in settings_of(suite.sweep) for name in setting}
    options = [option for name, option in _AXES.items() if name in names]
    options += ["--via native"] if suite.run.via == "native" else []
    options += ["--nccl"] if suite.run.nccl != "auto" else []
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
    library: LibraryVersion | None,
    environ: Mapping[str, str],
) -> NcclPlace:
    """Returns what decides which settings can be."""
    version = None if library is None else version_tuple(library.version)
    return NcclPlace(
        version=version or NEWEST_KNOWN,
        nodes=slots.hosts,
        ranks=slots.world_size,
        compute_capability=lowest_capability(topology.nodes),
        variables={k: v for k, v in recorded_variables(environ).items() if k not in suite.swept},
    )


def warnings_of(
    suite: ResolvedSuite, library: LibraryVersion | None, environ: Mapping[str, str]
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
    if library is not None and library.path is not None and set_names:
        known = names_in_library(Path(library.path))
        found += without_effect(set_names, known, library.version)
    return found
