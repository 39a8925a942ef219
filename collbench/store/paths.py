"""Where runs lie, what they are called, and how a person names one."""

from __future__ import annotations

import os
import re
import secrets
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from collbench.errors import RunNotFound, UsageError

RUN_FILE = "run.json"
TOPOLOGY_FILE = "topology.json"
TRIALS_FILE = "trials.jsonl"
SAMPLES_FILE = "samples.bin"
LOGS_FOLDER = "logs"

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHOWN_CANDIDATES = 5
_BUFFER_BYTES = 1 << 17


class RunHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The few fields of ``run.json`` that a list of runs needs."""

    schema: int
    run_id: str
    command: str
    cluster: str
    backend: str
    world_size: int
    planned_trials: int
    started_at: str
    simulated: bool = False
    planted: str | None = None
    exit_code: int | None = None


class _ReasonHead(msgspec.Struct, frozen=True):
    code: str


class _TrialHead(msgspec.Struct, frozen=True):
    trial_id: str
    status: str
    reason: _ReasonHead | None = None


_HEADER_DECODER = msgspec.json.Decoder(RunHeader)
_TRIAL_HEAD_DECODER = msgspec.json.Decoder(_TrialHead)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """A run in a list: its folder, and as much of ``run.json`` as a list needs."""

    folder: Path
    header: RunHeader | None
    """None where ``run.json`` cannot be read."""

    def kept_trials(self) -> int:
        """Counts the trials in the folder; what an interruption left out does not count."""
        kept: dict[str, bool] = {}
        try:
            with open(f"{self.folder}/{TRIALS_FILE}", "rb", _BUFFER_BYTES) as lines:  # noqa: PTH123
                for line in lines:
                    try:
                        head = _TRIAL_HEAD_DECODER.decode(line)
                    except (msgspec.MsgspecError, RecursionError):
                        continue  # torn or foreign: reading the run reports it
                    interrupted = head.reason is not None and head.reason.code == "interrupted"
                    kept[head.trial_id] = not interrupted
        except OSError:
            return 0
        return sum(kept.values())


def results_root(option: str | None, environ: Mapping[str, str]) -> Path:
    """Returns the folder of all runs: ``--results``, else COLLBENCH_RESULTS, else ``results``."""
    return Path(option or environ.get("COLLBENCH_RESULTS") or "results")


def cluster_name(option: str | None, environ: Mapping[str, str]) -> str:
    """Returns the cluster's name: ``--cluster``, else Slurm's, else this host's.

    What a person typed is taken as it is or refused; what was found is made safe, other
    characters becoming ``_``.

    Raises:
        UsageError: it cannot be a folder's name.
    """
    if option is not None:
        name, source = option, "--cluster"
    elif environ.get("SLURM_CLUSTER_NAME"):
        name, source = environ["SLURM_CLUSTER_NAME"], "SLURM_CLUSTER_NAME"
    else:
        name, source = socket.gethostname().partition(".")[0], "host name"
    safe = name if option is not None else re.sub(r"[^A-Za-z0-9._-]", "_", name)
    if not _SAFE.fullmatch(safe):
        raise UsageError(
            f"{source} '{name}' cannot be a folder's name; give --cluster up to 100 letters,"
            " digits, '.', '_' or '-', a letter or digit first"
        )
    return safe


def new_run_id(now: datetime | None = None) -> str:
    """Returns a run's name that sorts by time (UTC, 4 random digits): ``20261130-0412-7f3a``."""
    moment = now or datetime.now(UTC)
    return f"{moment:%Y%m%d-%H%M}-{secrets.token_hex(2)}"


def check_writable(root: Path) -> None:
    """Makes sure that runs can be kept under ``root``; leaves nothing behind.

    Where ``root`` is yet to be made, the nearest folder above it is tried.

    Raises:
        UsageError: they cannot.
    """
    place = root.absolute()
    while not os.path.lexists(place):
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as problem:
        raise UsageError(
            f"results folder '{root}' is not writable: {problem.strerror};"
            " give another with --results"
        ) from None


def runs_inside(folder: Path) -> list[Path]:
    """Returns the run folders right in a folder, none where it is a run itself, or no folder."""
    try:
        if (folder / RUN_FILE).exists():
            return []
        return sorted(path for path in folder.iterdir() if (path / RUN_FILE).exists())
    except OSError:
        return []  # an id, or `last`


def list_runs(root: Path) -> list[ListedRun]:
    """Returns all runs under ``root``, the newest first; those without a date come last."""
    found = [ListedRun(folder=folder, header=_header(folder)) for folder in _run_folders(root)]
    return sorted(
        found,
        key=lambda listed: (listed.header.started_at if listed.header else "", listed.folder.name),
        reverse=True,
    )


def _run_folders(root: Path) -> Iterator[Path]:
    """Yields every CLUSTER/RUN_ID that has a run.json."""
    for cluster in _folders_in(root):
        for run in _folders_in(cluster):
            if os.path.exists(f"{run}/{RUN_FILE}"):  # noqa: PTH110  1,000 runs within a second
                yield Path(run)


def _folders_in(path: str | Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []  # not there, or somebody else's: no runs for us


def _header(folder: Path) -> RunHeader | None:
    try:
        return _HEADER_DECODER.decode((folder / RUN_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def find_run(name: str, root: Path) -> Path:
    """Returns the folder of the run that a person names.

    Args:
        name: a run's folder, its id, a unique beginning of its id, or ``last``: the newest run
            under ``root`` that belongs to this user, whatever its cluster (the newest of all
            where none does).
        root: the folder of all runs.

    Raises:
        RunNotFound: no such run, or several.
    """
    as_folder = Path(name)
    if os.path.isfile(as_folder / RUN_FILE):  # noqa: PTH113  Path.is_file raises on long names
        return as_folder
    if name == "last":
        return _last(root)
    folders = list(_run_folders(root))
    exact = [folder for folder in folders if folder.name == name]
    matching = exact or [folder for folder in folders if name and folder.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        candidates = [str(run.folder) for run in list_runs(root) if run.folder in matching]
        raise RunNotFound(
            f"run '{name}' may be any of {len(matching)}: {_first_of(candidates)};"
            " give more of its id, or its folder"
        )
    newest = [listed.folder.name for listed in list_runs(root)]
    if not newest:
        raise _no_runs(root, name)
    raise RunNotFound(
        f"no run '{name}' in '{root}'; the newest are {_first_of(newest)};"
        " 'collbench runs' lists all"
    )


def _last(root: Path) -> Path:
    runs = [listed for listed in list_runs(root) if listed.header is not None]
    if not runs:
        raise _no_runs(root, "last")
    mine = [listed for listed in runs if listed.folder.stat().st_uid == os.getuid()]
    return (mine or runs)[0].folder


def _no_runs(root: Path, name: str) -> RunNotFound:
    return RunNotFound(
        f"no run '{name}': there are no runs in '{root}'; measure with 'collbench sweep', or give"
        " another folder with --results"
    )


def _first_of(names: list[str]) -> str:
    more = ", ..." if len(names) > _SHOWN_CANDIDATES else ""
    return ", ".join(names[:_SHOWN_CANDIDATES]) + more
