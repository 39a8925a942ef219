"""The text of a ``scale`` run: the answer first, what it rests on, then rates step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from collbench.analyze.rate_unit import RateUnit
from collbench.analyze.scale_types import NodeOrder, Observation, ScalePattern
from collbench.analyze.scale_verdict import ScaleVerdict
from collbench.analyze.scale_words import also, for_you, headline, next_step, not_it, seen
from collbench.analyze.scaling import (
    EXPECTED_EFFICIENCY,
    Efficiency,
    efficiencies,
    jitter,
    jitter_sets_in,
)
from collbench.report.closing import wrapped
from collbench.report.pairwise_about import mark_words
from collbench.report.pairwise_words import listed
from collbench.report.scale_about import Curve, LeafOf, ScaleAbout, curves_of, measured, unit_of
from collbench.report.scale_tables import (
    ORDER_WORDS,
    PATTERN_WORDS,
    collective_sections,
    pair_sections,
)
from collbench.report.sections import Section, sections_text
from collbench.units import format_duration

_MOST_NAMES = 10
_LABEL = 10
_NONE = "-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bisection:
    """What half of the nodes sends to the other half, one way."""

    nodes: int
    pairs: int
    rails: int
    rate_gb_per_s: float
    """Of a node, on one rail: the mean of those that share the most loaded uplink."""

    @property
    def total_gb_per_s(self) -> float:
        """Of all pairs and rails."""
        return self.pairs * self.rails * self.rate_gb_per_s


def scale_text(
    verdict: ScaleVerdict, observations: Sequence[Observation], about: ScaleAbout
) -> str:
    """Returns the whole report: lines of at most 120 columns, but for names longer than that."""
    curves = curves_of(verdict, observations, about.leaf_of)
    unit = unit_of(curves)
    sections = [
        *pair_sections(verdict, curves, unit),
        *collective_sections(verdict, curves, unit, leaves=about.leaves is not None),
        *_beside(verdict, observations, about.leaf_of, curves, unit),
    ]
    return sections_text(["\n".join(_answer(verdict, about))], sections)


def bisection_of(curves: Iterable[Curve]) -> Bisection | None:
    """Returns the bisection bandwidth on the most nodes, None where halves were not run."""
    for curve in curves:
        if curve.pattern is ScalePattern.HALF:
            last = curve.steps[-1]
            return Bisection(
                nodes=last.at, pairs=last.groups, rails=curve.rails, rate_gb_per_s=last.rate
            )
    return None


def _answer(verdict: ScaleVerdict, about: ScaleAbout) -> list[str]:
    mark = mark_words(about.run)
    said = headline(verdict)
    lines = wrapped(mark, "", "  ") if mark else []
    lines += wrapped(said, "", "  ")
    lines += _block("seen", filter(None, [seen(verdict)]))
    lines += _block("for you", for_you(verdict))
    lines += _block("not it", filter(None, ["; ".join(not_it(verdict))]))
    lines += _block("also", (text for text in also(verdict) if text[1:] not in said))
    names = {one.name: about.name(one.node) for one in verdict.slow_nodes}
    if verdict.lost.node is not None:
        names[f"node {verdict.lost.node}"] = about.name(verdict.lost.node)
    told = listed([f"{one} is {name}" for one, name in names.items() if name], _MOST_NAMES)
    lines += _block("next", filter(None, [next_step(verdict), told, *about.next_commands]))
    missing = listed([f"{name} {what}" for name, what in about.missing.items()], _MOST_NAMES)
    return [*lines, *_block("missing", filter(None, [missing])), *_block("ran", [_ran(about)])]


def _block(label: str, lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        first = f"  {'' if found else label:<{_LABEL}}"
        found += wrapped(line, first, " " * (_LABEL + 4))
    return found


def _ran(about: ScaleAbout) -> str:
    answered = f"{len(about.asked)} asked, {len(about.answered)} answered"
    leaves = "leaves unknown"
    if about.leaves is not None:
        sizes = sorted({len(leaf) for leaf in about.leaves})
        leaves = f"{len(about.leaves)} lea{'f' if len(about.leaves) == 1 else 'ves'} of"
        leaves += f" {' to '.join(map(str, dict.fromkeys([sizes[0], sizes[-1]])))}"
        leaves += f" node{'s' * (sizes[-1] > 1)}"
        leaves += f" from {about.leaves_source}" if about.leaves_source else ""
    took = f"{about.steps}, {format_duration(about.duration_s)} | run {about.run.run_id}"
    return " | ".join([answered, leaves, about.ran, took])


def _beside(
    verdict: ScaleVerdict,
    observations: Sequence[Observation],
    leaf_of: LeafOf | None,
    curves: Sequence[Curve],
    unit: RateUnit,
) -> Iterator[Section]:
    """Yields parallel efficiency, bisection bandwidth and jitter."""
    kinds: dict[tuple[str, str], list[Efficiency]] = {}
    for one in efficiencies(measured(observations), leaf_of):
        kinds.setdefault((one.pattern, one.order), []).append(one)
    lines = [*_bisection(verdict, curves, unit), *_jitter(observations)]
    if not kinds and not lines:
        return
    yield Section(
        title="Parallel efficiency as measured;"
        f" {100 * EXPECTED_EFFICIENCY:.0f} % of one leaf is expected",
        head=("<", "nodes", unit.name, "of one leaf", "of one node", "expected up to"),
        rows=[
            _efficiency(kinds[pattern, order], unit)
            for pattern in ScalePattern
            for order in NodeOrder
            if (pattern, order) in kinds
        ],
        lines=lines,
    )


def _efficiency(rows: Sequence[Efficiency], unit: RateUnit) -> list[str]:
    last = rows[-1]
    kept = list(takewhile(lambda one: one.expected is not False, rows))
    up_to = kept[-1].n if kept and last.expected is not None else None
    name = PATTERN_WORDS.get(last.pattern, str(last.pattern))
    shares = (last.against_one_leaf, last.against_one_node)
    return [
        f"{name} {ORDER_WORDS[last.order]}",
        str(last.n),
        unit.text(last.rate_gb_per_s),
        *(_NONE if share is None else f"{100 * share:.3g} %" for share in shares),
        _NONE if up_to is None else f"{up_to} nodes",
    ]


def _bisection(verdict: ScaleVerdict, curves: Sequence[Curve], unit: RateUnit) -> Iterator[str]:
    found = bisection_of(curves)
    if found is None:
        return
    rails = f" x {found.rails} rails" if found.rails > 1 else ""
    pairs = f"{found.pairs} pair{'s' * (found.pairs > 1)} x {unit.text(found.rate_gb_per_s)}"
    words = f"bisection bandwidth: {unit.text(found.total_gb_per_s)} {unit.name} one way, halves of"
    words += f" {found.nodes} nodes ({pairs}{rails})"
    if verdict.full_gb_per_s is not None:
        words += f", {100 * found.rate_gb_per_s / verdict.full_gb_per_s:.3g} % of full rate"
    yield words


def _jitter(observations: Sequence[Observation]) -> Iterator[str]:
    found = jitter(measured(observations))
    if not found:
        return
    # In other orders each repeat draws anew, which differs by more than repeats do.
    alike = [
        one
        for one in measured(observations)
        if one.step.order is NodeOrder.CONTIGUOUS and one.step.growth == 0
    ]
    spreads = [one.repeat_spread for one in jitter(alike)]
    spreads *= len({one.step.repeat for one in alike}) > 1
    spread = f"; repeats in leaf order lie within {100 * max(spreads):.2g} %" if spreads else ""
    tails = {one.n: one.p95_over_median for one in found if one.p95_over_median is not None}
    first = jitter_sets_in(found)
    if not tails:
        yield f"jitter: not known, no step has a p95{spread}"
    elif first is None:
        yield (
            f"jitter: none up to {max(tails)} nodes, p95 at most {max(tails.values()):.2f} of the"
            f" median{spread}"
        )
    else:
        yield (
            f"jitter sets in at {first} nodes: p95 is {tails[first]:.2f} of the median there,"
            f" {tails[min(tails)]:.2f} at {min(tails)}{spread}"
        )
