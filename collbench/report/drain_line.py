"""The line by which a bad node is taken out of service, and the reason that stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeCode, NodeState, NodeVerdict, PairwiseResult
from collbench.errors import UsageError
from collbench.model import Run

LONGEST_REASON = 120

_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LONG_ID = re.compile(r"(\d{8}-\d{4})-[0-9a-f]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9 .,:;%+=/()\[\]@_-]")
"""What is no plain letter, digit or mark: the shell reads some of it inside quotes as well."""


def failing(result: PairwiseResult) -> Iterator[NodeVerdict]:
    """Yields the nodes to be drained: they fail, and that is confirmed."""
    return (node for node in result.of(NodeState.FAIL) if node.confirmed)


def reason_text(run: Run, verdict: NodeVerdict) -> str:
    """Returns one ASCII line of at most 120 characters without quotes.

    ``collbench 20261130-0412 node_slow -66%``, or ``-66% against --min-busbw``; of a run that
    measured no hardware it says so.
    """
    match = _LONG_ID.fullmatch(run.run_id)
    words = ["collbench", match[1] if match else run.run_id]
    words += ["simulated"] * run.simulated + ["emulated"] * run.emulated
    words += ["planted"] * (run.planted is not None)
    if verdict.verdict is not NodeState.FAIL:
        words.append(str(verdict.verdict))
    if verdict.code is not None:
        words.append(str(verdict.code))
    words += _details(verdict)
    return _plain(" ".join(words))[:LONGEST_REASON].rstrip()


def drain_line(name: str, reason: str) -> str:
    """Returns ``scontrol update nodename=NAME state=drain reason="..."``.

    Raises:
        UsageError: the name is no plain host name; Slurm takes ``all`` and brackets for many nodes.
    """
    if not _HOST_NAME.fullmatch(name) or name.lower() == "all":
        raise UsageError(
            f"node {name!a} is not a plain host name (letters, digits, '.', '-', '_'; not 'all');"
            " no line is written for it"
        )
    return f'scontrol update nodename={name} state=drain reason="{_plain(reason)}"'


def drain_line_of(state: PairwiseState, run: Run, verdict: NodeVerdict) -> str:
    """Returns the line for a node's verdict; behind ``#`` if the run measured no hardware.

    Raises:
        UsageError: the node's name is no plain host name.
    """
    line = drain_line(state.names[verdict.node], reason_text(run, verdict))
    return line if measured_hardware(run) else f"# {line}"


def measured_hardware(run: Run) -> bool:
    """Returns whether a run says something of nodes: no model, no fake host, no planted fault."""
    return not (run.simulated or run.emulated or run.planted)


def percent(share: float) -> str:
    """Returns ``-66`` or ``-4.8``: one digit more where it is small."""
    value = 100 * share
    return f"{value:+.0f}" if abs(value) >= 9.95 else f"{value:+.1f}"


def _details(verdict: NodeVerdict) -> list[str]:
    words = []
    if verdict.code is NodeCode.LOSSY and verdict.measured is not None:
        return [f"{100 * verdict.measured:.2g}% {verdict.unit}"]
    if verdict.rail is not None and len(verdict.rails) <= 1:
        words.append(f"rail {verdict.rail}")
    if verdict.effect is not None:
        against = "" if verdict.bar is None else f" against {verdict.bar}"
        return [*words, f"{percent(verdict.effect.share)}%{against}"]
    return [*words, *verdict.evidence[:1]]


def _plain(text: str) -> str:
    """Returns text in which nothing but plain ASCII is left, in one line."""
    return " ".join(_UNSAFE.sub("", " ".join(text.split())).split())
