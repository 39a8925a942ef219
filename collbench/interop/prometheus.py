"""Verdicts and rates in Prometheus' text format, for node_exporter's textfile collector.

No metric has a label for a run, job, process or pair: each would start new series with every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from collbench.analyze.pair_verdicts import NodeState as Verdict
from collbench.collectives import COLLECTIVES
from collbench.model import Case, NodeState, Status, Trial
from collbench.units import gb_per_s

HEAD = "# Written by collbench "
"""Every file begins so."""

_UNKNOWN = "unknown"
_Ran = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReading:
    """What a run says of a node."""

    node: str
    verdict: str
    component: str = "node"
    """The part that the verdict means: ``node``, or the name of a NIC or rail."""
    ratio: float | None = None
    """Measured over expected rate; None where the verdict gives no rates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """Everything that is exported."""

    nodes: Sequence[NodeReading]
    """Of the last pairwise run."""
    states: Mapping[str, NodeState]
    """What became of the nodes that were asked for, by name."""
    trials: Sequence[Sequence[Trial]]
    """Of runs over all ranks, the newest run first."""
    last_run_s: float
    last_success_s: float
    """Seconds since 1970; 0: never."""
    comments: Sequence[str] = ()
    """Lines for people, at the head of the file."""


def metrics_text(readings: Readings) -> str:
    """Returns the exposition text, comments first."""
    registry = CollectorRegistry()
    registry.register(_Metrics(readings))
    comments = "".join(f"# {' '.join(line.split())}\n" for line in readings.comments)
    return comments + generate_latest(registry).decode()


class _Metrics(Collector):
    """Yields all metrics once."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields each metric that has a value."""
        readings = self._readings
        verdicts = [
            ((one.node, str(word)), float(one.verdict == word))
            for one in readings.nodes
            for word in Verdict
        ]
        yield from _gauge(
            "collbench_node_verdict",
            "1 for the verdict of the last pairwise run on a node, 0 for the others.",
            ("node", "verdict"),
            verdicts,
        )
        ratios = [
            ((one.node, one.component), one.ratio)
            for one in readings.nodes
            if one.ratio is not None
        ]
        yield from _gauge(
            "collbench_component_ratio",
            "Measured over expected rate of a part of a node that a verdict is about.",
            ("node", "component"),
            ratios,
        )
        yield from _gauge(
            "collbench_bus_bandwidth_bytes_per_second",
            "Bus bandwidth by what ran, from the median over repeats; of several types, modes or"
            " settings the fastest.",
            ("collective", "size_bytes", "algorithm", "protocol"),
            [
                ((name, str(size), *ran), rate)
                for (name, size, ran), rate in sorted(bus_bandwidths(readings.trials).items())
            ],
        )
        states = [
            ((str(state),), float(sum(one is state for one in readings.states.values())))
            for state in NodeState
        ]
        yield from _gauge(
            "collbench_nodes", "Nodes that the last run asked for, by state.", ("state",), states
        )
        yield from _gauge(
            "collbench_last_run_timestamp_seconds",
            "When the last run ended, or began if it has not ended.",
            (),
            [((), readings.last_run_s)],
        )
        yield from _gauge(
            "collbench_last_success_timestamp_seconds",
            "When the last run that came to an answer ended (exit status 0 or 1); 0: none did.",
            (),
            [((), readings.last_success_s)],
        )


def _gauge(
    name: str, words: str, labels: Sequence[str], values: Sequence[tuple[tuple[str, ...], float]]
) -> Iterator[GaugeMetricFamily]:
    """Yields a gauge; none where it has no value."""
    if not values:
        return
    family = GaugeMetricFamily(name, words, labels=labels)
    for own, value in values:
        family.add_metric(own, value)
    yield family


def bus_bandwidths(runs: Iterable[Sequence[Trial]]) -> dict[tuple[str, int, _Ran], float]:
    """Returns bus bandwidth in B/s by collective, size in bytes and (algorithm, protocol).

    A case's rate is that of its median time over the repeats that ran alike. Where several cases
    share a name (other types, modes, settings), the fastest counts; of several runs the first
    that has it.

    Args:
        runs: each run's trials, the newest run first.
    """
    found: dict[tuple[str, int, _Ran], float] = {}
    for trials in runs:
        mine: dict[tuple[str, int, _Ran], float] = {}
        for (case, ran), times_us in _times_us(trials):
            key = (case.collective, case.size_bytes, ran)
            algbw = gb_per_s(case.size_bytes, median(times_us))
            rate = COLLECTIVES[case.collective].busbw(algbw, case.world_size) * 1e9
            mine[key] = max(rate, mine.get(key, 0.0))
        found = mine | found
    return found


def _times_us(trials: Sequence[Trial]) -> Iterable[tuple[tuple[Case, _Ran], list[float]]]:
    """Returns the times of each case in us over its repeats, by what ran."""
    cases: dict[str, Case] = {}
    found: dict[tuple[str, _Ran], list[float]] = {}
    for trial in trials:
        summary, proof = trial.summary, trial.proof
        rated = summary is not None and summary.busbw_gb_per_s is not None
        if trial.status is not Status.OK or not rated or trial.group is not None:
            continue
        assert summary is not None
        ran = (_UNKNOWN, _UNKNOWN)
        if proof is not None:
            ran = (proof.algorithm or _UNKNOWN, proof.protocol or _UNKNOWN)
        cases[trial.case_id] = trial.case
        found.setdefault((trial.case_id, ran), []).append(summary.median_us)
    return [((cases[case_id], ran), times_us) for (case_id, ran), times_us in found.items()]
