"""The text of a scale run: the answer first, figures exact, at most 120 columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pair_states import made_node
from scale_fabric import LARGE, SMALL, MadeFabric, leaves_of
from stored_runs import stored_run

from collbench.analyze.scale_types import Observation, ScalePattern, Step
from collbench.analyze.scale_verdict import judge_scale
from collbench.model import Status, Topology
from collbench.plan.scale import next_steps
from collbench.plan.scale_design import ScaleDesign
from collbench.report.scale import bisection_of, scale_text
from collbench.report.scale_about import ScaleAbout, curves_of

PAGE = Path(__file__).parents[2] / "docs/scale_reading.md"
TWO = leaves_of(4, 4)
LONG = Topology(nodes=[made_node(f"rack{n:02d}-node{n:04d}.example.com") for n in range(64)])
RINGS = (ScalePattern.ALL_REDUCE, ScalePattern.ALL_GATHER, ScalePattern.REDUCE_SCATTER)
FEWER = (ScalePattern.PAIRS, ScalePattern.INSIDE, ScalePattern.HALF, ScalePattern.ALL_REDUCE)


def measured(fabric: MadeFabric, **fields: Any) -> list[Observation]:
    asked = {"leaves": fabric.leaves, "size_bytes": LARGE, "small_bytes": SMALL, "repeats": 2}
    return fabric.run(next_steps(ScaleDesign(**(asked | fields))))


def about_of(observations: Sequence[Observation], leaves=TWO, **changes: Any) -> ScaleAbout:
    run = msgspec.structs.replace(stored_run([], "20261130-0412-7f3a").run, command="scale")
    of_run = {name: changes.pop(name) for name in [*changes] if hasattr(run, name)}
    nodes = sorted({node for one in observations for node in one.step.nodes})
    names = tuple(f"node{node}" for node in nodes)
    fields: dict[str, Any] = {
        "run": msgspec.structs.replace(run, **of_run),
        "topology": Topology(nodes=[made_node(name) for name in names]),
        "asked": names,
        "answered": names,
        "leaves": leaves,
        "leaves_source": None if leaves is None else "--topology leaves.txt",
        "ran": "pairs, inside, half, all_reduce, all_to_all 64 MiB",
        "steps": f"{len(observations)} steps in 2 repeats",
        "duration_s": 58.0,
    }
    return ScaleAbout(**(fields | changes))


def text_of(observations: Sequence[Observation], leaves=TWO, **changes: Any) -> str:
    verdict = judge_scale(observations, leaves)
    return scale_text(verdict, observations, about_of(observations, leaves, **changes))


@cache
def two_to_one() -> tuple[Observation, ...]:
    """Links of 25 MB/s, uplinks of two of them, no noise."""
    fabric = MadeFabric(TWO, 0.05, link=0.025, alpha_us=5.0, algorithm={1: "Ring/Simple"})
    return tuple(measured(fabric))


def curve(observations, pattern, leaves=TWO):
    """The first curve of a pattern."""
    leaf_of = about_of(observations, leaves).leaf_of
    found = curves_of(judge_scale(observations, leaves), observations, leaf_of)
    return next(one for one in found if one.pattern is pattern)


def test_the_page_shows_what_is_printed():
    text = text_of(two_to_one(), next_commands=("collbench plot last",))

    assert text.startswith("Knee: a leaf's uplinks carry 2.00 [")
    assert text in PAGE.read_text()


def test_the_answer_stands_in_its_order():
    lines = text_of(two_to_one(), absent={"gpu9": ""}, lost={"gpu8": "in round 7"}).splitlines()

    labels = [line[2:12].strip() for line in lines[: lines.index("")] if line[2:3].strip()]
    assert labels[1:] == ["seen", "for you", "not it", "next", "missing", "ran"]
    assert "  missing   gpu9 absent, gpu8 lost (in round 7)" in lines


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"simulated": True}, "SIMULATED: a model answered"),
        ({"emulated": True}, "EMULATED: the nodes are fake hosts"),
        ({"planted": "late:rank=1,ms=20"}, "PLANTED FAULT (late:rank=1,ms=20)"),
    ],
)
def test_what_is_not_real_is_said_first(changes, mark):
    assert text_of(two_to_one(), **changes).startswith(mark)


def test_pairs_stand_over_the_flows_that_share_an_uplink():
    text = text_of(two_to_one())

    table = text[text.index("Pairs across") :].splitlines()[1:6]
    assert [line.split() for line in table[1:]] == [
        ["1", "1", "25.0", "25.0", "25.0", "25.0", "25.0"],
        ["2", "2", "25.0", "25.0", "25.0", "25.0", "50.0"],
        ["3", "3", "16.7", "16.7", "16.7", "25.0", "50.0"],
        ["4", "4", "12.5", "12.5", "12.5", "25.0", "50.0"],
    ]


def test_each_order_has_its_rate_flows_and_law():
    text = text_of(two_to_one())

    last = text[text.index("all_reduce: MB/s busbw") :].splitlines()[8].split()
    assert last == ["8", "25.0", "12.5", "4", "12.5", "20.8", "2.5", "20.8"]


def test_efficiency_bisection_and_jitter_close_it():
    text = text_of(two_to_one())

    assert "all_reduce interleaved                   8 12.5        50 %" in text
    assert (
        "bisection bandwidth: 50.0 MB/s one way, halves of 8 nodes (4 pairs x 12.5), 50 %" in text
    )
    assert "jitter: none up to 8 nodes, p95 at most 1.02 of the median" in text


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1.5, "jitter sets in at 6 nodes: p95 is 1.50 of the median there, 1.02 at 2"),
        (None, "jitter: not known, no step has a p95; repeats in leaf order lie within"),
    ],
)
def test_jitter_is_where_calls_differ(factor, words):
    """Only on more than 5 nodes; without a factor nowhere a p95 is known."""
    shaken = [
        msgspec.structs.replace(one, p95_us=factor and factor * one.time_us)
        if factor is None or one.step.n > 5
        else one
        for one in two_to_one()
    ]

    assert words in text_of(shaken)


def test_efficiency_against_one_node_where_it_ran():
    step = Step(pattern=ScalePattern.ALL_REDUCE, nodes=(0,), asked=1, size_bytes=LARGE)
    alone = Observation(step=step, rate_gb_per_s=0.05, time_us=1.0, algorithm="Ring/Simple")

    row = next(
        line
        for line in text_of([*two_to_one(), alone]).splitlines()
        if line.startswith("  all_reduce in leaf order ")
    )
    assert row.split()[-8:] == ["8", "25.0", "100", "%", "50", "%", "8", "nodes"]


@pytest.mark.parametrize(
    ("sizes", "uplink", "link", "unit"),
    [
        ((4, 4), 800.0, 400.0, "GB/s"),
        ((4, 4), 0.05, 0.025, "MB/s"),
        ((2, 2), 4e-5, 2e-5, "KB/s"),
    ],
)
def test_all_tables_share_one_unit(sizes, uplink, link, unit):
    leaves = leaves_of(*sizes)
    text = text_of(measured(MadeFabric(leaves, uplink, link=link)), leaves)

    titles = [line for line in text.splitlines() if "/s busbw" in line or "/s of a " in line]
    assert len(titles) == 4
    assert all(f": {unit} " in line for line in titles)


def test_a_slow_node_has_its_name_and_no_law():
    observations = measured(MadeFabric(TWO, 40.0, slow={5: 0.33}, noise=0.01))
    names = Topology(nodes=[made_node(f"gpu{n:04d}") for n in range(8)])

    text = text_of(observations, topology=names)

    assert "\n            node 5 is gpu0005\n" in text
    half = curve(observations, ScalePattern.HALF)
    assert [step.law is None for step in half.steps] == [False] * 4 + [True] * 3
    assert half.steps[0].law == pytest.approx(9.9, rel=0.02)


def test_collisions_have_no_law_and_are_said_once():
    leaves = leaves_of(8, 8)
    observations = measured(MadeFabric(leaves, 80.0, hashed=8, noise=0.01))

    text = text_of(observations, leaves)

    assert text.startswith("No oversubscription; collisions: median ")
    assert text.lower().count("collisions: median") == 1
    across = curve(observations, ScalePattern.PAIRS, leaves)
    assert {step.law for step in across.steps} == {None}
    assert across.steps[-1].worst_pair < 0.6 * across.steps[-1].high


def test_rails_stand_apart_and_halves_are_summed_over_them():
    rails = [
        msgspec.structs.replace(one, rail=rail)
        for one in two_to_one()
        for rail in range(3)
        if one.step.m or one.step.pattern is ScalePattern.HALF
    ]
    verdict = judge_scale(rails, TWO)

    found = bisection_of(curves_of(verdict, rails, about_of(rails).leaf_of))
    text = text_of(rails)

    assert (found.rails, found.pairs) == (3, 4)
    assert found.total_gb_per_s == pytest.approx(0.15, rel=1e-3)
    assert "MB/s of a pair one way on a rail" in text
    assert "(4 pairs x 12.5 x 3 rails), 50 % of full rate" in text


def test_unknown_leaves_have_nodes_alone():
    fabric = MadeFabric(leaves_of(8, 8), 20.0, noise=0.01)
    observations = measured(fabric, leaves=(), nodes=tuple(range(16)))

    text = text_of(observations, None)

    assert text.startswith("Rates in random order fall from ")
    assert "| leaves unknown |" in text
    assert "  nodes in random order  law" in text
    assert "flows" not in text


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((6,), "Cannot tell: cannot see uplinks"), ((1, 1), "Cannot tell: 1 different numbers")],
)
def test_what_cannot_be_told_has_its_rates_all_the_same(sizes, words):
    leaves = leaves_of(*sizes)

    text = text_of(measured(MadeFabric(leaves, 10.0)), leaves)

    assert text.startswith(words)
    assert "all_reduce: GB/s busbw" in text
    assert {"nan", "inf", "None"}.isdisjoint(text.split())


def test_nothing_measured_is_said_in_few_words():
    assert text_of([]).startswith("Cannot tell: ")
    assert "\n\n" not in text_of([])


def test_failed_steps_are_named():
    lost = [
        msgspec.structs.replace(one, status=Status.HUNG, rate_gb_per_s=None) if k < 5 else one
        for k, one in enumerate(two_to_one())
    ]

    text = text_of(lost)

    assert ": hung\n" in text
    assert "2 more steps without a rate" in text


@pytest.mark.parametrize(
    ("leaves", "fields"),
    [
        (leaves_of(*[50] * 20), {"repeats": 1, "redraws": 2, "patterns": FEWER}),
        (leaves_of(12, 9, 11), {"patterns": (*FEWER, *RINGS, ScalePattern.ALL_TO_ALL)}),
        (leaves_of(2, 2), {}),
    ],
    ids=["thousand", "unequal", "two"],
)
def test_lines_and_rows_are_few_enough(leaves, fields):
    uplink = 5.0 * max(map(len, leaves))
    observations = measured(MadeFabric(leaves, uplink, noise=0.01), **fields)

    text = text_of(observations, leaves, topology=LONG, absent={f"gone{n}": "" for n in range(300)})

    assert max(map(len, text.splitlines())) <= 120
    assert "and 290 more" in text
    blocks = text.split("\n\n")[1:]
    assert max(sum(line.split()[0].isdigit() for line in b.splitlines()) for b in blocks) <= 20


def test_of_many_steps_those_at_the_knee_are_kept():
    leaves = leaves_of(*[50] * 4)
    observations = measured(
        MadeFabric(leaves, 250.0, noise=0.005), repeats=1, redraws=2, patterns=FEWER
    )

    table = text_of(observations, leaves).split("Pairs across")[1].split("\n\n")[0]

    shown = [int(line.split()[0]) for line in table.splitlines() if line.split()[0].isdigit()]
    assert {1, 20, 25, 31, 50} <= set(shown)
    assert "steps, with those nearest the knee; all of them: --json" in table
