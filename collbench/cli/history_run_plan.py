"""What ``collbench history run`` does: a sweep over libraries, and what the newest changed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from collbench.analyze.history import Histories, Loaded, histories_of
from collbench.analyze.history_verdict import SeriesCheck, check_series
from collbench.cli.conclusion import Comparing
from collbench.cli.history_sides import read_cuda, read_sides
from collbench.cli.launch_options import read_launch_options
from collbench.cli.library_folders import (
    install_command,
    install_release,
    libraries_folder,
    library_path,
    missing_releases,
)
from collbench.cli.output import say
from collbench.cli.request import named
from collbench.cli.sweep_run import run_sweep
from collbench.errors import UsageError
from collbench.launch.detect import detect
from collbench.model import Finding
from collbench.probe.nccl import identify_library
from collbench.report.history import check_text
from collbench.store import StoredRun
from collbench.suite import read_libraries, read_plugins

COMMAND = "history run"
_NAMES = "nccl"


def with_libraries(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters with libraries in place of releases, called straight.

    Args:
        given: parameters as click gives them.

    Raises:
        UsageError: what is named is no release and no library.
    """
    folder, cuda = libraries_folder(given["libraries"], os.environ), read_cuda(given["cuda"])
    changes: dict[str, Any] = {"via": given["via"] or "native"}
    if given[_NAMES] or given["resume"] is None:
        with named("--nccl"):
            changes[_NAMES] = read_sides(given[_NAMES], folder, cuda).texts
    return {**given, **changes}


def run_history(context: click.Context, given: dict[str, Any]) -> int:
    """Runs the command; returns its exit status.

    Args:
        context: of the command line.
        given: its parameters, from ``with_libraries``.
    """
    folder, cuda = libraries_folder(given.pop("libraries"), os.environ), given.pop("cuda")
    with named("--nccl"):
        _refuse_missing_files(given[_NAMES], folder)
    wanted = _by_number(given[_NAMES], folder, cuda)
    missing = missing_releases(folder, wanted, cuda)
    if missing and not given["dry_run"]:
        launch = detect(os.environ, read_launch_options(given), socket.gethostname())
        if launch.processes > 1:
            raise UsageError(
                f"NCCL {', '.join(missing)} is not installed in '{folder}'; install it once, where"
                f" all nodes see it: {install_command(folder, missing, cuda)}"
            )
        for version in missing:
            say(f"installing NCCL {version} into {folder}", err=True)
            install_release(folder, version, cuda)
    if missing and given["dry_run"]:
        raise UsageError(
            f"NCCL {', '.join(missing)} is not installed in '{folder}', so that nothing is known of"
            f" it; first {install_command(folder, missing, cuda)}"
        )
    for version in wanted:
        _refuse_other(version, library_path(folder, version, cuda))
    return run_sweep(context, given, _Judging())


def _by_number(texts: Sequence[str], folder: Path, cuda: str) -> list[str]:
    """Returns the releases among the libraries that stand where releases by number do."""
    pairs = [text.partition("=")[::2] for text in texts]
    return [name for name, path in pairs if path == str(library_path(folder, name, cuda))]


def _refuse_missing_files(texts: Sequence[str], folder: Path) -> None:
    """A release is installed only once the rest of the command line can be."""
    for name, path in read_libraries(texts).items():
        if path is not None and not Path(path).is_relative_to(folder):
            identify_library(Path(path))
        plugin = read_plugins(texts).get(name, "")
        if "/" in plugin and not Path(plugin).exists():
            raise UsageError(f"the plug-in '{plugin}' of {name} is not there; give its path")


def _refuse_other(version: str, path: Path) -> None:
    """A folder that holds another release than it is named after would falsify the history."""
    found = identify_library(path).version
    if found.partition("+")[0] != version.partition(".post")[0]:
        raise UsageError(
            f"'{path}' is NCCL {found}, not {version}; remove that folder, and it is installed anew"
        )


class _Judging(Comparing):
    """The newest release against those before it, over this run alone."""

    command = COMMAND

    def check(self, settings: Sequence[Mapping[str, str]]) -> None:
        """Anything may be swept beside the libraries."""

    def findings(self, stored: StoredRun) -> list[Finding]:
        """Returns whether anything got slower, and where the releases are not told apart."""
        checks = checks_of(stored)
        self._told = bool(checks) and all(one.told for one in checks)
        found = []
        for one in checks:
            if one.regressed:
                self._slower = True
                found.append(Finding(code="slower", severity="bad", text=_words(one)))
        return found

    def lines(self, stored: StoredRun) -> list[str]:
        """Returns what the newest release changed."""
        return check_lines(stored)


def _words(found: SeriesCheck) -> str:
    count = len(found.checked.slower) + len(found.checked.below_best)
    lost = f", and {len(found.lost)} are not ok any more" if found.lost else ""
    return (
        f"{found.new.side.name} is slower in {count} of {len(found.before.comparison.cases)} cases"
        f" than earlier releases{lost}."
    )


def histories_in(stored: StoredRun) -> Histories:
    """Returns the histories of one run, by itself; its libraries may have plug-ins of their own."""
    return histories_of([stored], across=[Loaded.PLUGIN])


def checks_of(stored: StoredRun) -> list[SeriesCheck]:
    """Returns what the newest release of each history of a run changed, where that can be told."""
    found = []
    for one in histories_in(stored).series:
        if len(one.releases) > 1:
            with suppress(UsageError):
                found.append(check_series(one))
    return found


def check_lines(stored: StoredRun) -> list[str]:
    """Returns the answers of a run as lines; where there is none, why."""
    texts = [check_text(one) for one in checks_of(stored)]
    if not texts:
        timed = [
            one.version for s in histories_in(stored).series for one in s.releases if one.times
        ]
        have = ", ".join(dict.fromkeys(timed)) or "none"
        return [f"no two releases have a case in common that is ok; those with times: {have}"]
    return "\n\n".join(texts).splitlines()
