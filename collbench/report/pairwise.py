"""The text of a pairwise run: first the answer, then the matrix, then nodes from the lowest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeState, NodeVerdict, PairwiseResult
from collbench.report.closing import wrapped
from collbench.report.pair_component import Hardware
from collbench.report.pair_matrix_text import matrix_lines
from collbench.report.pair_ranks import Ranks, all_ranks, lowest, spread_within
from collbench.report.pairwise_about import PairwiseAbout, mark_words, not_tested
from collbench.report.pairwise_fabric import fabric_lines
from collbench.report.pairwise_next import next_lines
from collbench.report.pairwise_words import Words, gravest_first, listed
from collbench.report.text_table import new_table, table_text
from collbench.units import format_duration

_MOST_NODES = 20
"""Of a verdict with a line of their own, and of the ranked list."""
_MOST_NAMES = 40
_LABEL = 12
_INDENT = _LABEL + 7
_LABELS = {
    NodeState.FAIL: "FAIL",
    NodeState.SUSPECT: "SUSPECT",
    NodeState.INCONCLUSIVE: "INCONCLUSIVE",
}


def pairwise_text(state: PairwiseState, result: PairwiseResult, about: PairwiseAbout) -> str:
    """Returns the whole report: lines of at most 120 columns, but for names longer than that."""
    words = Words(state, Hardware(about.topology))
    ranks = all_ranks(state, [node.node for node in result.of(NodeState.FAIL)])
    lines = [*answer_lines(state, result, about, words, ranks), ""]
    matrix = matrix_lines(state, result)
    if matrix:
        lines += [*matrix, ""]
    return "\n".join([*lines, *_ranked(state, result, words, ranks)]).rstrip("\n")


def answer_lines(
    state: PairwiseState,
    result: PairwiseResult,
    about: PairwiseAbout,
    words: Words,
    ranks: Sequence[Ranks],
) -> list[str]:
    """Returns the answer: who was asked, who is bad and why, the fabric, what to do next."""
    mark = mark_words(about.run)
    lines = wrapped(mark, "", "  ") if mark else []
    lines += wrapped(_heading(state, about), "", "  ")
    for verdict, label in _LABELS.items():
        nodes = result.of(verdict)
        lines += _block(label, len(nodes), _nodes(nodes, words))
    lines += _not_tested(not_tested(state, result, about))
    lost = [f"{name}  {why}" for name, why in about.lost.items()]
    lines += _block("LOST", len(lost), lost)
    passed = result.of(NodeState.PASS)
    lines += _block("PASS", len(passed), [_passed(result, passed, ranks)], always=True)
    lines += _block("FABRIC", len(result.fabric), fabric_lines(state, result, about, words))
    return [*lines, *next_lines(state, result, about, words.hardware)]


def _heading(state: PairwiseState, about: PairwiseAbout) -> str:
    missing = [
        f"{len(nodes)} {word}"
        for word, nodes in (
            ("absent", about.absent),
            ("excluded", about.excluded),
            ("lost", about.lost),
        )
        if nodes
    ]
    answered = f"{len(about.asked)} asked, {len(about.answered)} answered"
    count = len(state.leaf_names)
    leaves = f"{count} lea{'f' if count == 1 else 'ves'}"
    leaves += f" from {about.leaves_source}" if about.leaves_source else ""
    parts = [
        f"{answered}: {', '.join(missing)}" if missing else answered,
        leaves if state.leaves is not None else "leaves unknown",
        about.ran,
        f"{about.rounds}, {format_duration(about.duration_s)}",
        f"run {about.run.run_id}",
    ]
    return " | ".join(parts)


def _nodes(nodes: Sequence[NodeVerdict], words: Words) -> list[str]:
    """Returns a line a node, the most slowed first, and the names of those beyond 20."""
    ordered = gravest_first(nodes)
    lines = [words.node(node) for node in ordered[:_MOST_NODES]]
    rest = [f"{words.state.names[node.node]} {node.code or ''}".rstrip() for node in ordered]
    if len(rest) > _MOST_NODES:
        lines.append(f"and {listed(rest[_MOST_NODES:], _MOST_NAMES)}")
    return lines


def _not_tested(nodes: dict[str, str]) -> list[str]:
    """Returns the block of nodes without a verdict, those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, why in nodes.items():
        by_reason.setdefault(why, []).append(name)
    lines = [f"{listed(names, _MOST_NODES)}  {why}" for why, names in by_reason.items()]
    if len(lines) > _MOST_NODES:
        lines = [*lines[:_MOST_NODES], f"and nodes with {len(lines) - _MOST_NODES} more reasons"]
    return _block("NOT TESTED", len(nodes), lines)


def _passed(result: PairwiseResult, nodes: Sequence[NodeVerdict], ranks: Sequence[Ranks]) -> str:
    spread = spread_within(ranks, [node.node for node in nodes])
    within = "" if spread is None else f"within {100 * spread:.2g} % of each other; "
    if result.reference is not None:
        return f"{within}held against {result.reference}"
    return f"{within}{result.words_on_reference} (--baseline RUN)"


def _ranked(
    state: PairwiseState, result: PairwiseResult, words: Words, ranks: Sequence[Ranks]
) -> Iterator[str]:
    """Yields the table of the lowest nodes and rails."""
    found = lowest(ranks, _MOST_NODES)
    if not found:
        return
    rails = any(rank.rail is not None for rank in found)
    kinds = len({rank.kind for rank in found}) > 1
    table = new_table()
    table.add_column("node")
    for shown, name in ((rails, "rail"), (kinds, "ran")):
        if shown:
            table.add_column(name)
    for name in (words.unit.name, "relative", "pairs"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for rank in found:
        verdict = result.nodes[rank.node]
        cells = [state.names[rank.node]]
        cells += ["all" if rank.rail is None else str(rank.rail)] * rails
        cells += [str(rank.kind)] * kinds
        cells += [words.unit.text(rank.value), f"{100 * rank.share:.1f} %", str(rank.pairs)]
        cells.append("" if verdict.verdict is NodeState.PASS else f"{verdict.verdict}")
        table.add_row(*map(Text, cells))
    what = f"{'rates of ' * kinds}nodes{' and rails' * rails}"
    total = sum(int((one.pairs > 0).sum()) for one in ranks)
    yield f"The lowest {len(found)} of {total} {what}, by their better pairs"
    yield from table_text(table).splitlines()


def _block(label: str, count: int, lines: Sequence[str], *, always: bool = False) -> list[str]:
    """Returns lines behind a label and a count; nothing without lines, or for nobody."""
    if not lines or (not count and not always and label != "FABRIC"):
        return []
    number = str(count) if count or always else ""
    found: list[str] = []
    for line in lines:
        first = f"{label:<{_LABEL}} {number:>4}  " if not found else " " * _INDENT
        found += wrapped(line, first, " " * (_INDENT + 2))
    return found
