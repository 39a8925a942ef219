"""Which runs ``collbench export prometheus`` tells of, and what it takes from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from collbench.cli.export_files import told
from collbench.cli.node_list import RunHead, run_head, verdicts_of
from collbench.cli.output import say
from collbench.errors import ExitCode, RunNotFound, UsageError
from collbench.interop.prometheus import HEAD, NodeReading, Readings
from collbench.report.pairwise_about import mark_words
from collbench.report.verdict_fields import NodeDocument
from collbench.store import StoredRun, find_run, list_runs, read_run
from collbench.version import __version__

_RATE_UNIT = "GB/s"
_ANSWERED = (ExitCode.FINE, ExitCode.CONFIRMED_BAD)


def readings_of(names: Sequence[str], root: Path, *, force: bool) -> Readings:
    """Returns what is exported.

    Args:
        names: of runs; none: the newest of each command that has ended.
        root: the folder of all runs.
        force: take runs that measured no hardware as well.

    Raises:
        RunNotFound: no such run, or none at all.
        UsageError: a run that is named measured no hardware, or GPUs inside nodes.
        RecordError: a run cannot be read.
    """
    if names:
        folders = dict.fromkeys(find_run(name, root) for name in names)
        runs = sorted((read_run(folder) for folder in folders), key=_started, reverse=True)
        _refuse(runs, force=force)
        heads = [head for one in runs if (head := run_head(one.folder)) is not None]
    else:
        listed = [(run, run_head(run.folder)) for run in list_runs(root)]
        usable = [
            (run.folder, head)
            for run, head in listed
            if head is not None and (force or head.mark is None)
        ]
        heads = [head for _, head in usable]
        runs = [read_run(folder) for folder in _newest(usable).values()]
        if not runs:
            raise RunNotFound(
                f"no run in '{root}' that has ended and measured hardware; name runs, or give"
                " another folder with --results"
            )
    for one in runs:
        told(one)
    return _readings(runs, heads)


def _started(stored: StoredRun) -> str:
    return stored.run.started_at


def _newest(usable: Sequence[tuple[Path, RunHead]]) -> dict[str, Path]:
    """Returns the newest run of each command that has ended; of GPUs inside a node none."""
    found: dict[str, Path] = {}
    for folder, head in usable:
        if head.exit_code is not None and not head.suite.inside:
            found.setdefault(head.command, folder)
    return found


def _refuse(runs: Sequence[StoredRun], *, force: bool) -> None:
    for run in (one.run for one in runs):
        words = mark_words(run)
        if words is not None and not force:
            raise UsageError(
                f"run {run.run_id} is no measurement of hardware ({words}); name another, or"
                " --force"
            )
        if run.suite.get("inside"):
            raise UsageError(
                f"run {run.run_id} is of GPUs inside nodes (--inside), and this is about nodes;"
                " name another"
            )


def _readings(runs: Sequence[StoredRun], heads: Sequence[RunHead]) -> Readings:
    """Returns what runs, the newest first, say; and when any of ``heads`` ended."""
    pairwise = next((one for one in runs if one.run.command == "pairwise"), None)
    of_nodes = pairwise or runs[0]
    verdicts = [] if pairwise is None else verdicts_of(pairwise).nodes
    answered = [head for head in heads if head.exit_code in _ANSWERED]
    comments = [f"{HEAD[2:]}{__version__}: runs {', '.join(one.run.run_id for one in runs)}"]
    for run in (one.run for one in runs):
        words = mark_words(run)
        if words is not None:
            comments.append(f"{run.run_id} {words}")
            say(f"collbench: run {run.run_id} is exported all the same; {words}", err=True)
    return Readings(
        nodes=[reading(node) for node in verdicts],
        states={node.name: node.state for node in of_nodes.topology.nodes},
        trials=[one.trials for one in runs],
        last_run_s=max((_unix_s(head.moment) for head in heads), default=0.0),
        last_success_s=max((_unix_s(head.moment) for head in answered), default=0.0),
        comments=comments,
    )


def reading(node: NodeDocument) -> NodeReading:
    """Returns what is exported of a node's verdict; a share of lost messages is no rate."""
    part, ratio = node.component, None
    if node.unit == _RATE_UNIT and node.measured is not None and node.expected:
        ratio = node.measured / node.expected
    return NodeReading(
        node=node.node,
        verdict=node.verdict,
        component="node" if part is None or part.kind == "node" else part.name,
        ratio=ratio,
    )


def _unix_s(moment: str) -> float:
    """Returns a stored moment in seconds since 1970; 0 for what is none."""
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        return 0.0
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
