"""The text of a ``scale`` run: the answer first, what it rests on, then rates step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile

import numpy as np

from collbench.analyze.scale_types import PAIRED, RINGS, NodeOrder, Observation, ScalePattern
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
from collbench.report.rate_unit import RateUnit
from collbench.report.scale_about import Curve, LeafOf, ScaleAbout, curves_of, measured, unit_of
from collbench.report.sections import Section, sections_text
from collbench.units import format_duration

ORDER_WORDS = {
    NodeOrder.CONTIGUOUS: "in leaf order",
    NodeOrder.ROUND_ROBIN: "interleaved",
    NodeOrder.RANDOM: "in random order",
}
PATTERN_WORDS = {ScalePattern.HALF: "half to the other half"}

_MOST_ROWS = 20
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
    """Of the slowest node, on one rail."""

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
        *_pair_sections(verdict, curves, unit),
        *_collective_sections(verdict, curves, unit, leaves=about.leaves is not None),
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


def _pair_sections(
    verdict: ScaleVerdict, curves: Sequence[Curve], unit: RateUnit
) -> Iterator[Section]:
    by_pattern = {curve.pattern: curve for curve in curves if curve.pattern in PAIRED}
    across = by_pattern.get(ScalePattern.PAIRS)
    inside = by_pattern.get(ScalePattern.INSIDE)
    if across is None:
        return
    control = {step.at: step for step in inside.steps} if inside else {}
    kept = _kept([step.flows for step in across.steps], verdict.fit.flows)
    rows = []
    for step in (across.steps[k] for k in kept):
        beside = control.get(step.at)
        rates = (step.rate, step.law, step.worst_pair, beside.rate if beside else None)
        cells = [_cell(rate, unit) for rate in (*rates, step.flows * step.rate)]
        rows.append([f"{step.flows:g}", str(step.groups), *cells])
    rail = " on a rail" if across.rails > 1 else ""
    yield Section(
        title=f"Pairs across leaves at once: {unit.name} of a pair one way{rail}"
        f"{_corrected(verdict)}; inside: as many pairs inside leaves",
        head=("flows an uplink", "pairs", "mean", "law", "worst", "inside", "uplink carries"),
        rows=rows,
        lines=_left_out(kept, len(across.steps)),
    )


def _collective_sections(
    verdict: ScaleVerdict, curves: Sequence[Curve], unit: RateUnit, *, leaves: bool
) -> Iterator[Section]:
    for pattern in ScalePattern:
        mine = [curve for curve in curves if curve.pattern is pattern]
        if not mine or pattern in PAIRED:
            continue
        loads: dict[int, float] = {}
        for step in (step for curve in mine for step in curve.steps):
            loads[step.at] = max(loads.get(step.at, 0.0), step.flows)
        places = sorted(loads)
        kept = _kept([loads[at] for at in places], verdict.fit.flows)
        shown = [places[k] for k in kept]
        columns = [_columns(curve, shown, unit, leaves=leaves) for curve in mine]
        lines = [list(chain.from_iterable(cells)) for cells in zip(*columns, strict=True)]
        halves = pattern is ScalePattern.HALF
        what = "of a node one way" if halves else "busbw"
        what += " on a rail" if halves and mine[0].rails > 1 else ""
        yield Section(
            title=f"{PATTERN_WORDS.get(pattern, pattern)}: {unit.name} {what}{_corrected(verdict)}",
            head=["nodes", *lines[0]],
            rows=[[str(at), *cells] for at, cells in zip(shown, lines[1:], strict=True)],
            lines=_left_out(kept, len(places)),
        )


def _columns(
    curve: Curve, places: Sequence[int], unit: RateUnit, *, leaves: bool
) -> list[list[str]]:
    """Returns an order's columns, head first: rate, flows an uplink where leaves are known, law."""
    # Rings in leaf order are what the others are held against: their law says nothing.
    baseline = curve.pattern in RINGS and curve.order is NodeOrder.CONTIGUOUS
    head = [ORDER_WORDS[curve.order], *["flows"] * leaves, "law"][: 1 if baseline else None]
    steps = {step.at: step for step in curve.steps}
    found = [head]
    for step in map(steps.get, places):
        if step is None:
            found.append([_NONE] * len(head))
            continue
        flows = [f"{step.flows:.3g}"] * leaves
        found.append([_cell(step.rate, unit), *flows, _cell(step.law, unit)][: len(head)])
    return found


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


def _kept(loads: Sequence[float], knee: float | None) -> list[int]:
    """Returns which rows to show: all, or those nearest the knee and some over the whole range."""
    count = len(loads)
    if count <= _MOST_ROWS:
        return list(range(count))
    edge = next((k for k, load in enumerate(loads) if knee and load > knee), count - 1)
    nearest = sorted(range(count), key=lambda k: abs(k + 0.5 - edge))[: _MOST_ROWS // 2]
    spread = np.linspace(0, count - 1, _MOST_ROWS // 2).round().astype(int).tolist()
    return sorted({*nearest, *spread})


def _left_out(kept: Sequence[int], count: int) -> list[str]:
    words = f"{len(kept)} of {count} steps, with those nearest the knee; all of them: --json"
    return [words] * (len(kept) < count)


def _corrected(verdict: ScaleVerdict) -> str:
    return ", latency taken out" if verdict.latency.corrected else ""


def _cell(rate: float | None, unit: RateUnit) -> str:
    return _NONE if rate is None else unit.text(rate)
