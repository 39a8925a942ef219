"""``collbench.scale/1``: its fields, what they hold, and that every number is one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import pytest
from pair_states import made_node
from scale_fabric import LARGE, SMALL, MadeFabric, leaves_of
from stored_runs import stored_run

from collbench.analyze.scale_verdict import judge_scale
from collbench.model import Topology
from collbench.plan.scale import next_steps
from collbench.plan.scale_design import ScaleDesign
from collbench.report.scale_about import ScaleAbout
from collbench.report.scale_json import scale_document

FIELDS = (
    "schema run_id simulated emulated planted cluster started ended exit nodes_asked"
    " nodes_answered missing leaves leaves_source ran steps answer headline reason knee"
    " oversubscription leaf_size full_gb_per_s uplink_gb_per_s bisection patterns checks collisions"
    " latency_share slow_nodes lost_steps efficiency jitter curves next"
)
PARTS = {
    "knee": "answer flows flows_low flows_high most_flows relative_error points misfit reason",
    "oversubscription": "value low high",
    "bisection": "nodes pairs rails rate_gb_per_s total_gb_per_s",
    "patterns": "pattern fit agrees n rates_gb_per_s",
    "checks": "kind found text",
    "collisions": "there rounds share_full median worst uneven ratio",
    "efficiency": "pattern order nodes rate_gb_per_s against_one_node against_one_leaf as_expected",
    "curves": "pattern order rails steps",
}
STEP = "at groups flows rate low high worst_pair law law_low law_high count"
TWO = leaves_of(4, 4)


@cache
def observed(uplink: float = 20.0, slow: tuple[int, ...] = (), **fields: float):
    fabric = MadeFabric(TWO, uplink, slow=dict.fromkeys(slow, 0.5), alpha_us=5.0, **fields)
    asked = ScaleDesign(leaves=TWO, size_bytes=LARGE, small_bytes=SMALL, repeats=2)
    return tuple(fabric.run(next_steps(asked)))


def about_of(leaves=TWO, **changes: Any) -> ScaleAbout:
    run = stored_run([], "20261130-0412-7f3a").run
    of_run = {name: changes.pop(name) for name in [*changes] if hasattr(run, name)}
    names = tuple(f"gpu{n:04d}" for n in range(8))
    fields: dict[str, Any] = {
        "run": msgspec.structs.replace(run, command="scale", **of_run),
        "topology": Topology(nodes=[made_node(name) for name in names]),
        "asked": names,
        "answered": names,
        "leaves": leaves,
        "leaves_source": "Slurm",
        "ran": "pairs 64 MiB",
        "steps": "213 steps",
        "duration_s": 58.0,
    }
    return ScaleAbout(**(fields | changes))


def document_of(observations, leaves=TWO, exit_code=0, verdict=None, **changes):
    found = verdict or judge_scale(observations, leaves)
    content = scale_document(found, observations, about_of(leaves, **changes), exit_code)
    return json.loads(content, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def test_the_fields_are_those_of_the_schema():
    document = document_of(observed())

    assert list(document) == FIELDS.split()
    for name, fields in PARTS.items():
        part = document[name]
        assert list(part[0] if isinstance(part, list) else part) == fields.split(), name
    assert list(document["curves"][0]["steps"][0]) == STEP.split()
    assert document["schema"] == "collbench.scale/1"


def test_a_knee_has_its_figures():
    document = document_of(observed(), exit_code=1, simulated=True)

    assert document["answer"] == document["knee"]["answer"] == "knee"
    assert document["knee"]["flows"] == pytest.approx(2.0, rel=1e-3)
    ratio = document["oversubscription"]
    assert ratio["value"] == pytest.approx(2.0, rel=1e-3)
    assert 1.9 < ratio["low"] < ratio["value"] < ratio["high"] < 2.1
    assert document["full_gb_per_s"] == pytest.approx(10.0, rel=1e-3)
    assert document["uplink_gb_per_s"] == pytest.approx(20.0, rel=1e-3)
    assert document["bisection"] == {
        "nodes": 8,
        "pairs": 4,
        "rails": 1,
        "rate_gb_per_s": pytest.approx(5.0, rel=1e-3),
        "total_gb_per_s": pytest.approx(20.0, rel=1e-3),
    }
    assert (document["exit"], document["simulated"]) == (1, True)
    assert document["leaves"][1] == ["gpu0004", "gpu0005", "gpu0006", "gpu0007"]


def test_curves_hold_every_step():
    curves = {
        (one["pattern"], one["order"]): one["steps"] for one in document_of(observed())["curves"]
    }

    assert set(curves) == {
        ("pairs", "random"),
        ("inside", "random"),
        ("half", "contiguous"),
        ("all_reduce", "contiguous"),
        ("all_reduce", "round_robin"),
        ("all_reduce", "random"),
        ("all_to_all", "contiguous"),
    }
    assert [step["at"] for step in curves["all_reduce", "round_robin"]] == [5, 6, 7, 8]
    assert [step["flows"] for step in curves["pairs", "random"]] == [1, 2, 3, 4]
    # 8 draws in each of 2 repeats.
    assert [step["count"] for step in curves["pairs", "random"]] == [16] * 4


def steps_of(document, pattern: str):
    return next(one["steps"] for one in document["curves"] if one["pattern"] == pattern)


def test_the_interval_of_the_law_is_that_of_the_knee():
    document = document_of(observed())

    last = steps_of(document, "pairs")[-1]
    knee = [document["knee"][name] for name in ("flows_low", "flows", "flows_high")]
    assert [last["law_low"], last["law"], last["law_high"]] == pytest.approx(
        [document["full_gb_per_s"] * flows / 4 for flows in knee]
    )
    assert last["law_low"] < last["law"] < last["law_high"]


def test_hosts_that_slow_down_take_the_law_down_with_them():
    steps = steps_of(document_of(observed(400.0, host_limit=50.0)), "pairs")

    # Four pairs both ways share 50 GB/s.
    assert steps[-1]["rate"] == pytest.approx(6.25, rel=1e-3)
    assert [step["law"] for step in steps] == pytest.approx([10.0, 10.0, 8.33, 6.25], rel=0.01)


def test_a_slow_node_is_named():
    document = document_of(observed(40.0, (5,)))

    assert document["answer"] == "no_knee"
    assert document["slow_nodes"] == [
        {"number": 5, "node": "gpu0005", "rail": None, "slower": pytest.approx(0.5, abs=0.01)}
    ]


def test_who_is_missing_and_what_to_do_next_are_there():
    document = document_of(
        observed(), excluded={"gpu9": "driver 570 against 575"}, next_commands=("collbench plot",)
    )

    assert document["missing"] == [{"node": "gpu9", "why": "excluded (driver 570 against 575)"}]
    assert document["next"][0].startswith("keep jobs inside a leaf")
    assert document["next"][1:] == ["collbench plot"]


def test_nothing_measured_is_an_object_too():
    document = document_of([], None, exit_code=3)

    assert list(document) == FIELDS.split()
    assert (document["answer"], document["curves"], document["leaves"]) == (
        "inconclusive",
        [],
        None,
    )
    assert document["bisection"] is None


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_is_null(number):
    verdict = replace(judge_scale(observed(), TWO), full_gb_per_s=number)

    assert document_of(observed(), verdict=verdict)["full_gb_per_s"] is None
