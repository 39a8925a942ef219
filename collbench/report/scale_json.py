"""The verdict on a fabric for programs: ``collbench.scale/1``, one object."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collbench.analyze.collisions import Collisions
from collbench.analyze.false_knees import FalseKnee
from collbench.analyze.knee import KneeFit, Ratio
from collbench.analyze.scale_types import Observation
from collbench.analyze.scale_verdict import ScaleVerdict
from collbench.analyze.scale_witness import Witness
from collbench.analyze.scale_words import headline, next_step
from collbench.analyze.scaling import Jitter, efficiencies, jitter, jitter_sets_in
from collbench.report.scale import bisection_of
from collbench.report.scale_about import Curve, ScaleAbout, curves_of, measured

SCALE_SCHEMA = "collbench.scale/1"


class MissingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was asked for and is not there to the end."""

    node: str
    why: str


class SlowNodeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is slow by itself."""

    number: int
    node: str | None
    """The scheduler's name."""
    rail: int | None
    slower: float
    """As a share."""


class BisectionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What half of the nodes sends to the other half, one way."""

    nodes: int
    pairs: int
    rails: int
    rate_gb_per_s: float
    """Of the slowest node, on one rail."""
    total_gb_per_s: float


class EfficiencyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern's rate on so many nodes as a share of that on fewer."""

    pattern: str
    order: str
    nodes: int
    rate_gb_per_s: float
    against_one_node: float | None
    against_one_leaf: float | None
    as_expected: bool | None
    """Whether it is at least 80 % of one leaf's."""


class JitterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """From how many nodes on calls of one step differ."""

    sets_in_at: int | None
    steps: list[Jitter]


class ScaleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The whole object; what is not known is None."""

    schema: str = SCALE_SCHEMA
    run_id: str
    simulated: bool
    emulated: bool
    planted: str | None
    cluster: str
    started: str
    """UTC, ISO 8601."""
    ended: str | None
    exit: int
    nodes_asked: int
    nodes_answered: int
    missing: list[MissingNode]
    leaves: list[list[str]] | None
    """Names by leaf."""
    leaves_source: str | None
    ran: str
    steps: str
    answer: str
    """``knee``, ``no_knee`` or ``inconclusive``."""
    headline: str
    reason: str | None
    knee: KneeFit
    oversubscription: Ratio
    leaf_size: int
    full_gb_per_s: float | None
    uplink_gb_per_s: float | None
    bisection: BisectionDocument | None
    patterns: list[Witness]
    checks: list[FalseKnee]
    collisions: Collisions | None
    latency_share: float | None
    """None: one size alone was measured."""
    slow_nodes: list[SlowNodeDocument]
    lost_steps: list[str]
    efficiency: list[EfficiencyDocument]
    jitter: JitterDocument
    curves: list[Curve]
    next: list[str]


def scale_document(
    verdict: ScaleVerdict,
    observations: Sequence[Observation],
    about: ScaleAbout,
    exit_code: int,
) -> bytes:
    """Returns the verdict and all curves as JSON; a number that is not finite is null."""
    return msgspec.json.encode(_document(verdict, observations, about, exit_code))


def _document(
    verdict: ScaleVerdict,
    observations: Sequence[Observation],
    about: ScaleAbout,
    exit_code: int,
) -> ScaleDocument:
    run = about.run
    curves = curves_of(verdict, observations, about.leaf_of)
    return ScaleDocument(
        run_id=run.run_id,
        simulated=run.simulated,
        emulated=run.emulated,
        planted=run.planted,
        cluster=run.cluster,
        started=run.started_at,
        ended=run.ended_at,
        exit=exit_code,
        nodes_asked=len(about.asked),
        nodes_answered=len(about.answered),
        missing=[MissingNode(node=name, why=why) for name, why in about.missing.items()],
        leaves=_leaves(about),
        leaves_source=about.leaves_source,
        ran=about.ran,
        steps=about.steps,
        answer=str(verdict.answer),
        headline=headline(verdict),
        reason=verdict.reason,
        knee=verdict.fit,
        oversubscription=verdict.ratio,
        leaf_size=verdict.leaf_size,
        full_gb_per_s=verdict.full_gb_per_s,
        uplink_gb_per_s=verdict.capacity_gb_per_s,
        bisection=_bisection(curves),
        patterns=list(verdict.witnesses),
        checks=list(verdict.checks),
        collisions=verdict.collisions,
        latency_share=verdict.latency.share if verdict.latency.corrected else None,
        slow_nodes=[
            SlowNodeDocument(
                number=one.node, node=about.name(one.node), rail=one.rail, slower=one.slower
            )
            for one in verdict.slow_nodes
        ],
        lost_steps=list(verdict.lost.steps),
        efficiency=_efficiencies(observations, about),
        jitter=_jitter(observations),
        curves=curves,
        next=[next_step(verdict), *about.next_commands],
    )


def _leaves(about: ScaleAbout) -> list[list[str]] | None:
    if about.leaves is None:
        return None
    return [[about.name(node) or f"node {node}" for node in leaf] for leaf in about.leaves]


def _bisection(curves: Sequence[Curve]) -> BisectionDocument | None:
    found = bisection_of(curves)
    if found is None:
        return None
    return BisectionDocument(
        nodes=found.nodes,
        pairs=found.pairs,
        rails=found.rails,
        rate_gb_per_s=found.rate_gb_per_s,
        total_gb_per_s=found.total_gb_per_s,
    )


def _efficiencies(
    observations: Sequence[Observation], about: ScaleAbout
) -> list[EfficiencyDocument]:
    return [
        EfficiencyDocument(
            pattern=str(one.pattern),
            order=str(one.order),
            nodes=one.n,
            rate_gb_per_s=one.rate_gb_per_s,
            against_one_node=one.against_one_node,
            against_one_leaf=one.against_one_leaf,
            as_expected=one.expected,
        )
        for one in efficiencies(measured(observations), about.leaf_of)
    ]


def _jitter(observations: Sequence[Observation]) -> JitterDocument:
    found = jitter(measured(observations))
    return JitterDocument(sets_in_at=jitter_sets_in(found), steps=found)
