"""``pairwise --qualify``: which nodes one node is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collbench.errors import UsageError, nearest
from collbench.launch.hostlist import expand_hostlist
from collbench.model import Node

PARTNERS = 3


def chosen_members(
    qualify: str | None, against: str | None, nodes: Sequence[Node], able: Sequence[int]
) -> list[int]:
    """Returns the numbers of the nodes that take part: all that can, or one and three others.

    Args:
        qualify: the node to be judged; None: all are.
        against: a file with a node a line, or a leaf; None: any of those that are here.
        nodes: all that were asked.
        able: numbers of those that have ranks.

    Raises:
        UsageError: the node is not here, or fewer than three others are.
    """
    if qualify is None:
        return list(able)
    names = [nodes[number].name for number in able]
    if qualify not in names:
        raise UsageError(
            f"--qualify {qualify}: no such node takes part{nearest(qualify, names) or ';'} here are"
            f" {', '.join(names[:8])}{' ...' * (len(names) > 8)}"
        )
    allowed = set(names) if against is None else _allowed(against, nodes)
    others = [number for number in able if nodes[number].name in allowed - {qualify}]
    if len(others) < PARTNERS:
        where = "" if against is None else f" of --against {against}"
        one = len(others) == 1
        raise UsageError(
            f"--qualify {qualify}: {len(others)} other node{'' if one else 's'}{where}"
            f" {'is' if one else 'are'} here, {PARTNERS} that are known to be good are needed;"
            " start it on them as well"
        )
    (mine,) = [number for number in able if nodes[number].name == qualify]
    leaf = nodes[mine].leaf
    # Of its own leaf first: then no uplink is between them.
    others.sort(key=lambda number: (leaf is not None and nodes[number].leaf != leaf, number))
    return sorted([mine, *others[:PARTNERS]])


def _allowed(against: str, nodes: Sequence[Node]) -> set[str]:
    path = Path(against)
    if path.is_file():
        try:
            words = path.read_text().split()
            return {name for word in words for name in expand_hostlist(word)}
        except (OSError, UnicodeDecodeError, UsageError) as problem:
            raise UsageError(f"--against {against}: {problem}") from None
    leaves = {node.leaf for node in nodes if node.leaf is not None}
    if against in leaves:
        return {node.name for node in nodes if node.leaf == against}
    raise UsageError(
        f"--against {against} is neither a file nor a leaf"
        f"{nearest(against, leaves) or ';'} leaves: {', '.join(sorted(leaves)) or 'not known'}"
    )
