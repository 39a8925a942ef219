"""``collbench nodes``: each node's last verdict, out of all pairwise runs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from collbench.cli.context import CONTEXT
from collbench.errors import ExitCode, RecordError
from collbench.model import NodeState
from collbench.store import list_runs, results_root
from collbench.store.paths import RUN_FILE, TOPOLOGY_FILE

if TYPE_CHECKING:
    from collbench.report.node_list import ListedNode
    from collbench.report.verdict_fields import NodeDocument, VerdictDocument
    from collbench.store import StoredRun

_NOT_TESTED = "not_tested"
_Key = tuple[str, str, bool]
"""Cluster, node, and whether hardware was measured: none of these stands for another."""


class _SuiteHead(msgspec.Struct, frozen=True):
    inside: Any = None
    """GPUs of a node were paired."""


class RunHead(msgspec.Struct, frozen=True, kw_only=True):
    """The few fields of ``run.json`` that tell what a run is worth."""

    run_id: str
    command: str
    cluster: str
    started_at: str
    ended_at: str | None = None
    exit_code: int | None = None
    simulated: bool = False
    emulated: bool = False
    planted: str | None = None
    suite: _SuiteHead = _SuiteHead()

    @property
    def moment(self) -> str:
        """When it ended; of one that has not, when it began."""
        return self.ended_at or self.started_at

    @property
    def mark(self) -> str | None:
        """What shows no hardware, in a word; None for a measurement."""
        if self.simulated:
            return "SIMULATED"
        if self.planted is not None:
            return "PLANTED"
        return "EMULATED" if self.emulated else None


class _NodeHead(msgspec.Struct, frozen=True):
    name: str
    state: str = str(NodeState.PRESENT)


class _TopologyHead(msgspec.Struct, frozen=True):
    nodes: list[_NodeHead]


_RUN_DECODER = msgspec.json.Decoder(RunHead)
_TOPOLOGY_DECODER = msgspec.json.Decoder(_TopologyHead)
_UNREADABLE = (OSError, msgspec.MsgspecError, RecursionError)


@click.command(context_settings=dict(CONTEXT))
@click.option("--results", metavar="DIR", help="All runs' folder [$COLLBENCH_RESULTS, results].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option(
    "--simulated", is_flag=True, help="Simulated, emulated and planted runs as well, marked."
)
def node_list(results: str | None, as_json: bool, simulated: bool) -> ExitCode:
    """List each node's last verdict by a pairwise run, its age and the run; bad nodes first.

    The newest run counts, also where a node was absent or excluded. A node that a run did not get
    to keeps the verdict that it had.

    \b
    Examples:
      collbench nodes
      collbench nodes --results /shared/results --json
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.cli.output import say
    from collbench.report.node_list import nodes_json, nodes_text

    root = results_root(results, os.environ)
    found, problems = last_verdicts(root, datetime.now(UTC), simulated=simulated)
    for problem in problems:
        say(f"collbench: {problem}; left out", err=True)
    if as_json:
        say(nodes_json(found))
    elif found:
        say(nodes_text(found))
    else:
        hint = "" if simulated else "; --simulated shows those of runs without hardware"
        say(f"no verdict on a node in '{root}'; 'collbench pairwise' gives one{hint}")
    return ExitCode.FINE


def run_head(folder: Path) -> RunHead | None:
    """Returns the head of a run's ``run.json``; None where it cannot be read."""
    try:
        return _RUN_DECODER.decode((folder / RUN_FILE).read_bytes())
    except _UNREADABLE:
        return None


def verdicts_of(stored: StoredRun) -> VerdictDocument:
    """Returns the verdicts of a stored pairwise run, made anew."""
    from collbench.cli.pairwise_output import judged
    from collbench.report.verdict_fields import VerdictDocument
    from collbench.report.verdict_json import verdict_document

    return msgspec.json.decode(verdict_document(*judged(stored)), type=VerdictDocument)


def last_verdicts(
    root: Path, now: datetime, *, simulated: bool = False
) -> tuple[list[ListedNode], list[str]]:
    """Returns each node's last verdict, and a line for each run that cannot be read.

    A run is judged only if it has a node of which no newer run says something. Runs of GPUs
    inside nodes are left out.

    Args:
        root: the folder of all runs.
        now: what ages are counted to, with a time zone.
        simulated: take runs that measured no hardware as well; they stand beside the others.
    """
    from collbench.store import read_run

    settled: dict[_Key, ListedNode] = {}
    untried: dict[_Key, ListedNode] = {}
    problems: list[str] = []
    for listed in list_runs(root):
        if listed.header is None:
            problems.append(f"{listed.folder / RUN_FILE} is damaged")
        if listed.header is None or listed.header.command != "pairwise":
            continue
        head = run_head(listed.folder)
        if head is None or head.suite.inside or (head.mark is not None and not simulated):
            continue
        try:
            states = _states(listed.folder)
            if all(_key(head, name) in settled for name in states):
                continue
            nodes = verdicts_of(read_run(listed.folder)).nodes
        except RecordError as problem:
            problems.append(str(problem))
            continue
        for node in nodes:
            # Of a node that was there and was not tried an older run knows more.
            untold = node.verdict == _NOT_TESTED and states.get(node.node) == NodeState.PRESENT
            found = untried if untold else settled
            found.setdefault(_key(head, node.node), _listed(head, node, now))
    return list((untried | settled).values()), problems


def _states(folder: Path) -> dict[str, str]:
    """Returns what became of a run's nodes, by name.

    Raises:
        RecordError: its topology cannot be read.
    """
    path = folder / TOPOLOGY_FILE
    try:
        nodes = _TOPOLOGY_DECODER.decode(path.read_bytes()).nodes
    except _UNREADABLE as problem:
        raise RecordError(f"{path} cannot be read: {problem}") from None
    return {node.name: node.state for node in nodes}


def _key(head: RunHead, name: str) -> _Key:
    return head.cluster, name, head.mark is None


def _listed(head: RunHead, node: NodeDocument, now: datetime) -> ListedNode:
    from collbench.report.node_list import ListedNode, age_s

    return ListedNode(
        node=node.node,
        cluster=head.cluster,
        verdict=node.verdict,
        confirmed=node.confirmed,
        code=node.code,
        effect_pct=node.effect_pct,
        why=node.evidence[0] if node.verdict == _NOT_TESTED and node.evidence else None,
        run_id=head.run_id,
        at=head.moment,
        age_s=age_s(head.moment, now),
        mark=head.mark,
    )
