"""How a ``pairwise`` run is judged when it ends: findings, nodes' files, exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeVerdict, PairwiseResult
from collbench.cli.nodes_by_leaf import leaves_kept
from collbench.cli.pairwise_output import judged, pairwise_findings
from collbench.cli.pairwise_prepare import Prepared
from collbench.errors import ExitCode, StoreError
from collbench.model import Finding, Run, Topology, Trial
from collbench.report.pairwise_about import PairwiseAbout
from collbench.store import RunWriter, StoredRun


class PairwiseJudge:
    """Judges the pairs when the session ends, however it does.

    Args:
        prepared: what ran.
        writer: where it is kept.
    """

    def __init__(self, prepared: Prepared, writer: RunWriter) -> None:
        self._prepared, self._folder = prepared, writer.folder
        self._result: PairwiseResult | None = None
        self.problem: str | None = None
        """Why the nodes' files could not be written."""

    def judge(self, run: Run, topology: Topology, trials: Sequence[Trial]) -> list[Finding]:
        """Returns who is not well."""
        stored = StoredRun(
            folder=self._folder,
            run=run,
            topology=leaves_kept(topology, self._prepared.ground.topology),
            trials=tuple(trials),
            problems=(),
        )
        state, self._result, about = judged(stored, self._prepared.reference)
        if self._prepared.request.node_json is not None:
            self._write_files(Path(self._prepared.request.node_json), state, self._result, about)
        return pairwise_findings(state, self._result)

    def _write_files(
        self, folder: Path, state: PairwiseState, result: PairwiseResult, about: PairwiseAbout
    ) -> None:
        from collbench.report.verdict_json import write_node_files

        mine = qualified(self._prepared, result)
        said = result if mine is None else replace(result, nodes=(mine,))
        try:
            write_node_files(folder, state, said, about)
        except StoreError as problem:
            self.problem = str(problem)  # the run's own folder still has to be closed

    def settle(self, status: ExitCode) -> ExitCode:
        """Returns what the verdict says, where there is one; 3 if it could not be written."""
        if self.problem is not None:
            return ExitCode.NOTHING_MEASURED
        if self._result is None or status not in (ExitCode.FINE, ExitCode.INCOMPLETE):
            return status
        return _status_of(self._prepared, self._result)


def _status_of(prepared: Prepared, result: PairwiseResult) -> ExitCode:
    """Of a node that is to be qualified only its own verdict counts."""
    mine = qualified(prepared, result)
    if mine is None:
        return result.exit_code
    verdicts = {"pass": ExitCode.FINE, "fail": ExitCode.CONFIRMED_BAD}
    return verdicts.get(mine.verdict, ExitCode.INCOMPLETE)


def qualified(prepared: Prepared, result: PairwiseResult) -> NodeVerdict | None:
    """Returns the verdict on the node that is to be qualified, None where none is."""
    if prepared.request.qualify is None:
        return None
    names = [node.name for node in prepared.ground.topology.nodes]
    return result.nodes[names.index(prepared.request.qualify)]
