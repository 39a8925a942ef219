"""The verdict on nodes for programs: ``collbench.verdict/1``, one object, and a file a node."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import (
    Effect,
    FabricCode,
    FabricVerdict,
    NodeCode,
    NodeState,
    NodeVerdict,
    PairwiseResult,
)
from collbench.errors import StoreError
from collbench.report.drain_line import measured_hardware, reason_text
from collbench.report.pair_component import Hardware
from collbench.report.pairwise_about import PairwiseAbout, not_tested
from collbench.report.pairwise_fabric import counters_unreadable
from collbench.report.pairwise_words import Words
from collbench.report.verdict_fields import (
    FabricDocument,
    NodeDocument,
    NotTested,
    VerdictDocument,
)

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_FILE_NAME = 200


def verdict_document(state: PairwiseState, result: PairwiseResult, about: PairwiseAbout) -> bytes:
    """Returns the verdict as JSON; every node that was asked is in it, and no NaN."""
    return msgspec.json.encode(_document(state, result, about))


def write_node_files(
    folder: Path, state: PairwiseState, result: PairwiseResult, about: PairwiseAbout
) -> list[Path]:
    """Writes ``NODE.json`` for each node and returns the files.

    Each is a ``collbench.verdict/1`` object with that one node and the faults of the fabric that
    touch it, and takes its place by a rename:
    a reader finds the old one or the new one, whole. What is not a letter, a digit, ``.``, ``-`` or
    ``_`` in a name is ``_``; a name that is taken by then gets a number.

    Raises:
        StoreError: the folder cannot be written to.
    """
    document = _document(state, result, about)
    names = _file_names([node.node for node in document.nodes])
    touching: dict[str, list[FabricDocument]] = {}
    for fault, said in zip(result.fabric, document.fabric, strict=True):
        for number in _touched(state, fault):
            touching.setdefault(state.names[number], []).append(said)
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for node, name in zip(document.nodes, names, strict=True):
            rest = [item for item in document.not_tested if item.what == node.node]
            faults = touching.get(node.node, [])
            one = msgspec.structs.replace(document, nodes=[node], fabric=faults, not_tested=rest)
            paths.append(_write(folder, name, msgspec.json.encode(one)))
    except OSError as problem:
        raise StoreError(
            f"cannot write verdicts into '{folder}': {problem.strerror}; give another folder with"
            " --node-json"
        ) from None
    return paths


def _write(folder: Path, name: str, content: bytes) -> Path:
    path, temporary = folder / f"{name}.json", folder / f".{name}.{os.getpid()}.tmp"
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _file_names(nodes: Sequence[str]) -> list[str]:
    """Returns a different file name for each node; none begins with a dot."""
    found: dict[str, None] = {}
    right = set(nodes)
    for node in nodes:
        name = _UNSAFE.sub("_", node)[:_LONGEST_FILE_NAME]
        name = "_" + name[1:] if name.startswith(".") or not name else name
        number, free = 2, name
        # Names that are right as they are keep them, whoever comes first.
        while free in found or (free != node and free in right):
            free, number = f"{name}-{number}", number + 1
        found[free] = None
    return list(found)


def _document(
    state: PairwiseState, result: PairwiseResult, about: PairwiseAbout
) -> VerdictDocument:
    run = about.run
    untested = not_tested(state, result, about)
    makes = _NodeDocuments(state, result, about)
    nodes = [makes.node(verdict) for verdict in result.nodes]
    known = set(state.names)
    nodes += [makes.stranger(name, why) for name, why in untested.items() if name not in known]
    exit_code = result.exit_code if run.exit_code is None else run.exit_code
    return VerdictDocument(
        run_id=run.run_id,
        simulated=run.simulated,
        cluster=run.cluster,
        job_id=about.job_id,
        user=about.user,
        started=_utc(run.started_at),
        ended=_utc(run.ended_at or _after(run.started_at, about.duration_s)),
        exit=int(exit_code),
        nodes_asked=len(about.asked),
        nodes_answered=len(about.answered),
        nodes=nodes,
        fabric=[_fault(state, fault) for fault in result.fabric],
        not_tested=[
            *(NotTested(what=name, why=why) for name, why in untested.items()),
            *_gaps(state, result, about),
        ],
    )


class _NodeDocuments:
    """Makes the nodes of a document."""

    def __init__(self, state: PairwiseState, result: PairwiseResult, about: PairwiseAbout) -> None:
        self._state, self._run = state, about.run
        self._hardware = Hardware(about.topology)
        self._words = Words(state, self._hardware)
        self._faults: dict[int, list[str]] = {}
        for fault in result.fabric:
            for node in _touched(state, fault):
                self._faults.setdefault(node, []).append(self._words.fault(fault))

    def node(self, verdict: NodeVerdict) -> NodeDocument:
        """Returns a node's document."""
        name = self._state.names[verdict.node]
        measured, expected = _number(verdict.measured), _number(verdict.expected)
        return NodeDocument(
            node=name,
            verdict=str(verdict.verdict),
            confirmed=verdict.confirmed,
            code=None if verdict.code is None else str(verdict.code),
            component=self._hardware.component(name, verdict),
            measured=measured,
            expected=expected,
            expected_from=None if expected is None else _expected_from(verdict),
            unit=None if measured is None else verdict.unit,
            effect_pct=_effect_pct(verdict.effect),
            ci95_pct=_ci95_pct(verdict.effect),
            partners=verdict.partners,
            rounds=verdict.rounds,
            evidence=[*verdict.evidence, *self._faults.get(verdict.node, [])],
            action=self._action(verdict),
            reason=reason_text(self._run, verdict),
        )

    def stranger(self, name: str, why: str) -> NodeDocument:
        """Returns the document of a node that was asked for and is not among those measured."""
        verdict = NodeVerdict(node=-1, verdict=NodeState.NOT_TESTED, evidence=(why,))
        return NodeDocument(
            node=name,
            verdict=str(verdict.verdict),
            evidence=[why],
            action=self._action(verdict),
            reason=reason_text(self._run, verdict),
        )

    def _action(self, verdict: NodeVerdict) -> str:
        """Returns what to do with a node.

        Fake hosts and planted faults ask for nothing: no field of the document tells of them, as
        ``simulated`` tells of a model.
        """
        real = measured_hardware(self._run) or self._run.simulated
        if not real or verdict.verdict is NodeState.PASS or verdict.cleared:
            return "none"
        drained = verdict.verdict is NodeState.FAIL and verdict.confirmed
        return "drain" if drained else "retest"


def _expected_from(verdict: NodeVerdict) -> str:
    if verdict.code is NodeCode.LOSSY:
        return "no loss"
    return verdict.bar or "the other nodes of this run"


def _touched(state: PairwiseState, fault: FabricVerdict) -> list[int]:
    """Returns the nodes at a fault of the fabric, which is none of theirs."""
    if fault.code is FabricCode.LEAF_UPLINK_SLOW and state.leaves is not None:
        return [node for node, leaf in enumerate(state.leaves) if leaf in fault.leaves]
    return list(fault.nodes)


def _fault(state: PairwiseState, fault: FabricVerdict) -> FabricDocument:
    measured = _number(fault.measured)
    return FabricDocument(
        code=str(fault.code),
        nodes=[state.names[node] for node in sorted(fault.nodes)],
        leaves=list(fault.leaves),
        rail=fault.rail,
        measured=measured,
        expected=_number(fault.expected),
        unit=None if measured is None else fault.unit,
        effect_pct=_effect_pct(fault.effect),
        ci95_pct=_ci95_pct(fault.effect),
        pairs=fault.pairs,
        confirmed=fault.confirmed,
        evidence=list(fault.evidence),
    )


def _effect_pct(effect: Effect | None) -> float | None:
    return None if effect is None else _percent(effect.share)


def _ci95_pct(effect: Effect | None) -> tuple[float, float] | None:
    if effect is None:
        return None
    low, high = _percent(effect.low), _percent(effect.high)
    return None if low is None or high is None else (low, high)


def _gaps(state: PairwiseState, result: PairwiseResult, about: PairwiseAbout) -> list[NotTested]:
    """Returns what else was not looked at, and why."""
    found = []
    for what, share in (
        ("paths", about.share_tried),
        ("paths across leaves", about.share_across_tried),
    ):
        if share is not None and share < 1:
            words = f"{100 * (1 - share):.3g} % of {what}"
            found.append(NotTested(what=words, why=f"not in the plan: {about.rounds}"))
    if result.smallest_loss is None:
        found.append(NotTested(what="loss", why="no latency pass"))
    elif counters_unreadable(state):
        found.append(NotTested(what="retransmissions", why="counters unreadable"))
    if state.leaves is None:
        found.append(NotTested(what="uplinks of leaves", why="leaves are unknown"))
    if result.reference is None:
        found.append(NotTested(what="absolute rates", why=result.words_on_reference))
    return found


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _percent(share: float) -> float | None:
    return round(100 * share, 2) if math.isfinite(share) else None


def _after(moment: str, seconds: float) -> str:
    try:
        return (datetime.fromisoformat(moment) + timedelta(seconds=seconds)).isoformat()
    except ValueError:
        return moment


def _utc(moment: str) -> str:
    """Returns a stored moment in UTC: ``2026-11-30T04:12:00.000+00:00``."""
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return found.astimezone(UTC).isoformat(timespec="milliseconds")
