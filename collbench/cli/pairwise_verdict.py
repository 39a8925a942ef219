"""How a ``pairwise`` run is judged when it ends: findings, nodes' files, exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from collbench.analyze.pair_state import PairwiseState
from collbench.analyze.pair_verdicts import NodeVerdict, PairwiseResult
from collbench.cli.pairwise_output import judged, pairwise_findings, qualified
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
        self._status: ExitCode | None = None
        self.problem: str | None = None
        """Why the nodes' files could not be written."""

    def judge(self, run: Run, topology: Topology, trials: Sequence[Trial]) -> list[Finding]:
        """Returns who is not well."""
        located = topology.with_leaves(self._prepared.ground.topology.leaf_of)
        stored = StoredRun(folder=self._folder, run=run, topology=located, trials=tuple(trials))
        state, result, about = judged(stored, self._prepared.reference)
        mine = qualified(run, state, result)
        self._status = _status_of(result, mine)
        if self._prepared.request.node_json is not None:
            said = result if mine is None else replace(result, nodes=(mine,))
            self._write_files(Path(self._prepared.request.node_json), state, said, about)
        return pairwise_findings(state, result)

    def _write_files(
        self, folder: Path, state: PairwiseState, result: PairwiseResult, about: PairwiseAbout
    ) -> None:
        from collbench.report.verdict_json import write_node_files

        try:
            write_node_files(folder, state, result, about)
        except StoreError as problem:
            self.problem = str(problem)  # the run's own folder still has to be closed

    def settle(self, status: ExitCode) -> ExitCode:
        """Returns what the verdict says, where there is one; 3 if it could not be written."""
        if self.problem is not None:
            return ExitCode.NOTHING_MEASURED
        if self._status is None or status not in (ExitCode.FINE, ExitCode.INCOMPLETE):
            return status
        return self._status


def _status_of(result: PairwiseResult, mine: NodeVerdict | None) -> ExitCode:
    """Of a node that is to be qualified only its own verdict counts."""
    if mine is None:
        return result.exit_code
    verdicts = {"pass": ExitCode.FINE, "fail": ExitCode.CONFIRMED_BAD}
    return verdicts.get(mine.verdict, ExitCode.INCOMPLETE)
