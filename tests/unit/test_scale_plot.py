"""The picture of a scale run: what is drawn, and that it can be drawn of whatever was measured."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from scale_fabric import LARGE, SMALL, MadeFabric, leaves_of
from stored_runs import stored_run

from collbench.analyze.scale_types import Observation, ScalePattern, Step
from collbench.analyze.scale_verdict import judge_scale
from collbench.model import Topology
from collbench.plan.scale import next_steps
from collbench.plan.scale_design import ScaleDesign
from collbench.report.album import FilesAlbum
from collbench.report.scale_about import ScaleAbout
from collbench.report.scale_plot import draw_scale

TWO = leaves_of(4, 4)


def measured(fabric: MadeFabric, **fields: Any) -> list[Observation]:
    asked = {"leaves": fabric.leaves, "size_bytes": LARGE, "small_bytes": SMALL, "repeats": 2}
    return fabric.run(next_steps(ScaleDesign(**(asked | fields))))


@pytest.fixture
def draw(tmp_path):
    """Draws observations; returns the text of the SVG."""

    def drawn(observations, leaves=TWO, **changes: Any) -> str:
        run = stored_run([], "20261130-0412-7f3a").run
        about = ScaleAbout(
            run=msgspec.structs.replace(run, command="scale", **changes),
            topology=Topology(nodes=[]),
            asked=(),
            answered=(),
            leaves=leaves,
            ran="pairs, inside, half, all_reduce, all_to_all 64 MiB",
            steps="213 steps",
            duration_s=58.0,
        )
        png, svg = draw_scale(
            judge_scale(observations, leaves), observations, about, FilesAlbum(tmp_path)
        )
        assert (png.name, svg.name) == (
            "20261130-0412-7f3a-scale.png",
            "20261130-0412-7f3a-scale.svg",
        )
        assert png.read_bytes().startswith(b"\x89PNG")
        return svg.read_text()

    return drawn


def words_of(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_a_knee_has_law_limit_and_every_pattern(draw):
    words = words_of(draw(measured(MadeFabric(TWO, 0.05, link=0.025))))

    assert any(word.startswith("law: full rate up to 2.00 [1.9") for word in words)
    assert words.count("full rate of a pair: 25.0 MB/s") == 2
    assert "MB/s of a pair, one way" in words
    assert "4 nodes a leaf: 1:1 " in words
    for pattern in ("half to the other half", "all_reduce", "all_to_all"):
        assert pattern in words
        assert f"{pattern} in leaf order" in words
    assert {"all_reduce interleaved", "all_reduce in random order"} <= set(words)
    assert "what the knee lets expect" in words
    assert "uplinks carry 2.00 [" in " ".join(words)


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"simulated": True}, "SIMULATED"),
        ({"emulated": True}, "EMULATED"),
        ({"planted": "late:rank=1,ms=20"}, "PLANTED FAULT"),
        ({}, None),
    ],
)
def test_what_is_not_real_has_a_watermark(draw, changes, mark):
    words = words_of(draw(measured(MadeFabric(leaves_of(2, 2), 10.0)), leaves_of(2, 2), **changes))

    marks = {"SIMULATED", "EMULATED", "PLANTED FAULT"} & set(words)
    assert marks == ({mark} if mark else set())


def test_many_nodes_have_powers_of_two_below_them(draw):
    leaves = leaves_of(16, 16, 16, 16)
    words = words_of(draw(measured(MadeFabric(leaves, 80.0, noise=0.03), repeats=1), leaves))

    assert {"2", "4", "8", "16", "32", "64"} <= set(words)
    assert any(re.match(r"law: full rate up to (7\.9|8\.0)\d ", word) for word in words)


def test_what_is_no_knee_is_said_above(draw):
    svg = draw(measured(MadeFabric(TWO, 40.0, slow={5: 0.33}, noise=0.01)))

    words = " ".join(words_of(svg))
    assert "Slow whatever the partner: node 5" in words
    assert "none seen; at least" in words
    assert "law: full rate" not in words


def test_collisions_show_each_pair_and_no_knee(draw):
    leaves = leaves_of(8, 8)
    words = words_of(draw(measured(MadeFabric(leaves, 80.0, hashed=8, noise=0.01)), leaves))

    assert "each pair" in words
    assert "the knee by each pattern alone [95 %]" not in words
    assert not any(word.startswith("law") for word in words)
    assert " ".join(words).lower().count("collisions: median") == 1


@pytest.mark.parametrize(
    ("leaves", "fields", "shown"),
    [
        (None, {"leaves": (), "nodes": tuple(range(8))}, False),
        (TWO, {"patterns": (ScalePattern.ALL_REDUCE, ScalePattern.HALF)}, False),
        (TWO, {"patterns": (ScalePattern.PAIRS, ScalePattern.INSIDE)}, True),
    ],
    ids=["leaves-unknown", "no-pairs", "pairs-alone"],
)
def test_what_was_not_run_has_no_panel(draw, leaves, fields, shown):
    words = words_of(draw(measured(MadeFabric(TWO, 20.0, noise=0.01), **fields), leaves))

    assert ("Pairs across leaves at once" in words) is shown
    assert ("Bandwidth over nodes" in words) is not shown


def test_rails_are_drawn_together(draw):
    rails = [
        msgspec.structs.replace(one, rail=rail)
        for one in measured(MadeFabric(TWO, 20.0))
        for rail in range(2)
        if one.step.m or one.step.pattern is ScalePattern.HALF
    ]

    words = words_of(draw(rails))

    assert "half to the other half in leaf order, 2 rails together" in words
    assert "full rate of 2 rails: 20.0 GB/s" in words


def test_one_node_alone_does_not_press_the_others_down(draw):
    observations = measured(MadeFabric(TWO, 20.0))
    alone = Step(pattern=ScalePattern.ALL_REDUCE, nodes=(0,), asked=1, size_bytes=LARGE)
    fast = Observation(step=alone, rate_gb_per_s=400.0, time_us=1.0)

    assert words_of(draw([*observations, fast])) == words_of(draw(observations))


def test_nothing_measured_can_be_drawn(draw):
    assert any("Cannot tell" in word for word in words_of(draw([])))
