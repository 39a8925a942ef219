"""Each node's last verdict, in words and for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from collbench.analyze.pair_verdicts import NodeState
from collbench.report.text_table import new_table, table_text

NODES_SCHEMA = "collbench.nodes/1"

_BAD_FIRST = (
    NodeState.FAIL,
    NodeState.SUSPECT,
    NodeState.INCONCLUSIVE,
    NodeState.NOT_TESTED,
    NodeState.PASS,
)
_COLUMNS = ("node", "cluster", "verdict", "code", "age", "run", "")


class ListedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node's last verdict; what is not known is None."""

    node: str
    cluster: str
    verdict: str
    confirmed: bool
    code: str | None
    effect_pct: float | None
    """Negative: slower than expected."""
    why: str | None
    """Why a node that was not tested was not."""
    run_id: str
    at: str
    """When that run ended, or began if it has not ended: UTC, ISO 8601."""
    age_s: float | None
    mark: str | None
    """What shows no hardware: ``SIMULATED``, ``EMULATED`` or ``PLANTED``."""


class NodesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``nodes --json`` prints."""

    schema: str = NODES_SCHEMA
    nodes: list[ListedNode]


def nodes_json(nodes: Sequence[ListedNode]) -> str:
    """Returns ``collbench.nodes/1``: the nodes, bad ones first."""
    return msgspec.json.encode(NodesDocument(nodes=bad_first(nodes))).decode()


def nodes_text(nodes: Sequence[ListedNode]) -> str:
    """Returns a table, bad nodes first, and a line that counts verdicts.

    The cluster is a column where there are several.
    """
    ordered = bad_first(nodes)
    rows = [_row(node) for node in ordered]
    shown = [
        index
        for index, name in enumerate(_COLUMNS)
        if (name != "cluster" or len({node.cluster for node in nodes}) > 1)
        and (name != "" or any(row[index] for row in rows))
    ]
    table = new_table()
    for index in shown:
        table.add_column(_COLUMNS[index], justify="right" if _COLUMNS[index] == "age" else "left")
    for row in rows:
        table.add_row(*(row[index] for index in shown))
    counts = Counter(node.verdict for node in ordered)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{table_text(table)}\n\n{len(nodes)} node{'s' * (len(nodes) != 1)}: {words}"


def bad_first(nodes: Sequence[ListedNode]) -> list[ListedNode]:
    """Returns nodes by verdict, the worst first, then by name; numbers in names count as such."""
    return sorted(
        nodes,
        key=lambda one: (
            _BAD_FIRST.index(NodeState(one.verdict)),
            _by_number(one.node),
            one.cluster,
            one.mark or "",
        ),
    )


def age_s(moment: str, now: datetime) -> float | None:
    """Returns how long ago a stored moment is, in seconds; None for what is no moment.

    A clock that is behind makes it 0.
    """
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(0.0, (now - then).total_seconds())


def age_text(seconds: float | None) -> str:
    """Returns an age in its largest whole unit: ``40 s``, ``12 min``, ``3 h``, ``9 d``."""
    if seconds is None:
        return "-"
    for unit, unit_s, below_s in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 2 * 86400)):
        if seconds < below_s:
            return f"{int(seconds // unit_s)} {unit}"
    return f"{int(seconds // 86400)} d"


def _row(node: ListedNode) -> tuple[str, ...]:
    effect = None if node.effect_pct is None else f"{node.effect_pct:+.1f} %"
    return (
        node.node,
        node.cluster,
        node.verdict,
        node.code or "-",
        age_text(node.age_s),
        node.run_id,
        ", ".join(word for word in (effect, node.why, node.mark) if word),
    )


def _by_number(name: str) -> list[tuple[int, str]]:
    """Returns a name as text and numbers by turns, in which node2 comes before node10."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
