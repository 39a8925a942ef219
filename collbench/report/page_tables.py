"""What a page tells of any run: what failed, what ran, nodes, software, how to repeat it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from collbench.model import Culprit, Gpu, Nic, Run, Status, Topology, Trial
from collbench.report.album import Table
from collbench.report.page import Failure
from collbench.report.proof import ran_text
from collbench.store import StoredRun
from collbench.store.paths import LOGS_FOLDER
from collbench.units import approximate_size, format_size

_FINE = (Status.OK, Status.UNSUPPORTED)
_MOST_FAILURES = 100
_MOST_ROWS = 2000
_MOST_CULPRITS = 20
_TAIL_LINES = 20
_TAIL_BYTES = 16 * 1024


def failures_of(stored: StoredRun) -> tuple[list[Failure], int]:
    """Returns what did not end well, alike ones together, and how many kinds are left out."""
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in stored.trials:
        if trial.status not in _FINE:
            reason = "" if trial.reason is None else trial.reason.text
            groups.setdefault((trial.case.collective, str(trial.status), reason), []).append(trial)
    found = [_failure(stored, trials) for trials in list(groups.values())[:_MOST_FAILURES]]
    return found, max(0, len(groups) - _MOST_FAILURES)


def _failure(stored: StoredRun, trials: Sequence[Trial]) -> Failure:
    first = trials[0]
    found = {_culprit_text(one): one for trial in trials for one in trial.culprits}
    culprits = list(found.values())
    log = next((path for one in culprits if (path := _log_of(stored.folder, one))), None)
    size = format_size(first.case.size_bytes)
    status = str(first.status).replace("_", " ")
    where = "" if first.group is None else f", {first.group.name}"
    return Failure(
        title=f"{first.case.collective} {size}{where}: {status}",
        count=len(trials),
        reason="no reason is recorded" if first.reason is None else first.reason.text,
        culprits=list(found)[:_MOST_CULPRITS],
        log_name=None if log is None else str(log.relative_to(stored.folder)),
        log_tail="" if log is None else _tail(log),
    )


def _culprit_text(one: Culprit) -> str:
    gpu = "" if one.gpu is None else f", GPU {one.gpu}"
    return f"rank {one.rank} on {one.node}{gpu}: {one.what}"


def _log_of(folder: Path, culprit: Culprit) -> Path | None:
    """Returns the newest log of a culprit's rank: a run that went on has logs-2 beside logs."""
    found = [*folder.glob(f"{LOGS_FOLDER}*/rank{culprit.rank}.log")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - _TAIL_BYTES))
        text = stream.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def asked_table(trials: Sequence[Trial]) -> Table | None:
    """Returns what was asked against what ran, a row a setting; None where neither is known."""
    rows: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in trials:
        setting = " ".join(f"{name}={value}" for name, value in sorted(trial.case.setting.items()))
        rows.setdefault((trial.case.collective, str(trial.case.mode), setting), []).append(trial)
    if not any(t.proof is not None or t.case.setting for found in rows.values() for t in found):
        return None
    shown = [
        (collective, mode, setting or "default", _ran(found), _endings(found))
        for (collective, mode, setting), found in rows.items()
    ]
    return Table(
        columns=("collective", "mode", "asked", "ran", "trials"),
        rows=shown[:_MOST_ROWS],
        left_out=max(0, len(shown) - _MOST_ROWS),
    )


def _ran(trials: Sequence[Trial]) -> str:
    counts = Counter(text for trial in trials if (text := ran_text(trial.proof)))
    return ", ".join(f"{text} ({count})" for text, count in counts.most_common()) or "not proved"


def _endings(trials: Sequence[Trial]) -> str:
    counts = Counter(str(trial.status).replace("_", " ") for trial in trials)
    return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def nodes_table(topology: Topology) -> Table:
    """Returns a row a node."""
    ranks = Counter(place.node for place in topology.ranks)
    rows = [
        (
            node.name,
            str(node.state).replace("_", " "),
            node.leaf or "",
            f"{node.cpu_model}, {node.cpus} cores, {approximate_size(node.memory_bytes)}",
            _gpus(node.gpus),
            _nics(node.nics),
            str(ranks[node.name]),
        )
        for node in topology.nodes[:_MOST_ROWS]
    ]
    return Table(
        columns=("node", "state", "leaf", "CPU and memory", "GPUs", "NICs", "ranks"),
        rows=rows,
        left_out=max(0, len(topology.nodes) - _MOST_ROWS),
    )


def _gpus(gpus: Sequence[Gpu]) -> str:
    counts = Counter(gpu.name for gpu in gpus)
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _nics(nics: Sequence[Nic]) -> str:
    counts = Counter((nic.kind, nic.rate_gbit_per_s or 0.0) for nic in nics)
    return ", ".join(
        f"{count} x {kind} {f'{rate:g} Gbit/s' if rate else 'of unknown rate'}"
        for (kind, rate), count in counts.items()
    )


def software_table(run: Run) -> Table:
    """Returns a row a piece of software, then the variables that were set."""
    one = run.environment
    rows = [("collbench", one.collbench), ("Python", one.python), ("torch", one.torch or "none")]
    rows += [("CUDA", one.cuda)] if one.cuda else []
    libraries = {"NCCL": one.nccl} if one.nccl else {}
    for name, library in {**libraries, **one.libraries}.items():
        rows.append((name, f"{library.version} ({library.path})"))
    rows += [("driver", one.driver)] if one.driver else []
    rows += [("kernel", one.kernel), ("system", one.os)]
    rows += [(name, value) for name, value in sorted(one.variables.items())]
    rows += [(name, text) for name, text in sorted(one.config_files.items())]
    return Table(columns=("what", "value"), rows=rows)


def command_of(run: Run) -> str:
    """Returns the command that made a run."""
    return shlex.join(["python", "-m", "collbench", *run.argv])


def suite_text(run: Run) -> str:
    """Returns the resolved suite as JSON."""
    return msgspec.json.format(msgspec.json.encode(run.suite), indent=2).decode()
