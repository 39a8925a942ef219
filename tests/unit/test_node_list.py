"""``collbench nodes``: each node's last verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from records import make_trial
from stored_runs import put, stored_run

from collbench.cli import node_list as command
from collbench.cli.main import cli
from collbench.cli.node_list import last_verdicts
from collbench.model import NodeState
from collbench.store import read_run

REFERENCE = Path(__file__).parents[2] / "results/2xh200/20261130-1319-63a8"
"""Eight nodes, node5 fails; its nodes are fake hosts."""
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
NODES = [f"node{k}" for k in range(8)]


def pairwise_run(root, day, *, cluster="lab", names=None, states=None, keep=None, **changes):
    """Writes the reference run as one of real nodes, begun at 04:00 of a day of November.

    ``names`` calls nodes otherwise, ``states`` says what became of some, ``keep`` leaves the first
    trials alone.
    """
    stored = read_run(REFERENCE)
    renamed, became = names or {}, states or {}
    topology = msgspec.structs.replace(
        stored.topology,
        nodes=[
            msgspec.structs.replace(
                node,
                name=renamed.get(node.name, node.name),
                state=became.get(node.name, node.state),
            )
            for node in stored.topology.nodes
        ],
        ranks=[
            msgspec.structs.replace(place, node=renamed.get(place.node, place.node))
            for place in stored.topology.ranks
        ],
    )
    fields = {
        "run_id": f"202611{day:02}-0400-aa{day:02}",
        "cluster": cluster,
        "emulated": False,
        "started_at": f"2026-11-{day:02}T04:00:00+00:00",
        "ended_at": f"2026-11-{day:02}T04:10:00+00:00",
    }
    run = msgspec.structs.replace(stored.run, **(fields | changes))
    made = replace(stored, run=run, topology=topology, trials=stored.trials[:keep])
    return put(made, root / cluster)


def listed(*arguments):
    return CliRunner().invoke(cli, ["nodes", *map(str, arguments)], catch_exceptions=False)


def verdicts(root, **options):
    found, problems = last_verdicts(root, NOW, **options)
    assert problems == []
    return {node.node: (node.verdict, node.run_id) for node in found}


def test_the_newest_run_gives_a_nodes_verdict(tmp_path):
    pairwise_run(tmp_path, 28)
    pairwise_run(tmp_path, 29, names={"node5": "node1", "node1": "node5"})

    found = verdicts(tmp_path)

    assert {name for name, (verdict, _) in found.items() if verdict == "fail"} == {"node1"}
    assert set(found.values()) == {
        ("fail", "20261129-0400-aa29"),
        ("pass", "20261129-0400-aa29"),
    }


def test_a_node_of_an_older_run_keeps_its_verdict(tmp_path):
    pairwise_run(tmp_path, 28, names={"node5": "old"})
    pairwise_run(tmp_path, 29)

    found = verdicts(tmp_path)

    assert found["old"] == ("fail", "20261128-0400-aa28")
    assert found["node5"] == ("fail", "20261129-0400-aa29")
    assert sorted(found) == [*NODES, "old"]


def test_a_run_with_nothing_new_is_not_judged(tmp_path, monkeypatch):
    pairwise_run(tmp_path, 27, names={"node5": "old"})
    pairwise_run(tmp_path, 28)
    pairwise_run(tmp_path, 29)
    put(stored_run([make_trial(8, 1.0)], "20261130-0000-bbbb"), tmp_path / "lab")
    judged = []
    judge = command.verdicts_of
    monkeypatch.setattr(
        command, "verdicts_of", lambda run: judged.append(run.run.run_id) or judge(run)
    )

    last_verdicts(tmp_path, NOW)

    assert judged == ["20261129-0400-aa29", "20261127-0400-aa27"]


def test_absent_and_excluded_nodes_are_listed_as_such(tmp_path):
    pairwise_run(tmp_path, 28)
    pairwise_run(
        tmp_path,
        29,
        keep=0,
        states={"node5": NodeState.ABSENT, "node6": NodeState.EXCLUDED},
        suite={"left_out": {"node6": "other driver"}},
    )

    found = {one.node: one for one in last_verdicts(tmp_path, NOW)[0]}

    assert (found["node5"].verdict, found["node5"].why) == ("not_tested", "absent")
    assert found["node5"].run_id == found["node6"].run_id == "20261129-0400-aa29"
    assert found["node6"].verdict == "not_tested"
    assert found["node6"].why.startswith("excluded")


def test_a_run_that_did_not_get_to_a_node_leaves_its_verdict(tmp_path):
    pairwise_run(tmp_path, 28)
    pairwise_run(tmp_path, 29, keep=0, exit_code=None, ended_at=None)

    found = verdicts(tmp_path)

    assert found["node5"] == ("fail", "20261128-0400-aa28")
    assert found["node0"] == ("pass", "20261128-0400-aa28")


def test_a_node_that_no_run_got_to_was_not_tested(tmp_path):
    pairwise_run(tmp_path, 29, keep=0)

    assert verdicts(tmp_path) == dict.fromkeys(NODES, ("not_tested", "20261129-0400-aa29"))


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"simulated": True}, "SIMULATED"),
        ({"emulated": True}, "EMULATED"),
        ({"planted": "slow"}, "PLANTED"),
    ],
)
def test_runs_without_hardware_are_listed_beside_others_only_when_asked(tmp_path, changes, mark):
    pairwise_run(tmp_path, 28)
    pairwise_run(tmp_path, 29, **changes)

    plain, asked = (last_verdicts(tmp_path, NOW, simulated=asked)[0] for asked in (False, True))

    assert {(one.run_id, one.mark) for one in plain} == {("20261128-0400-aa28", None)}
    assert len(asked) == 16
    assert {(one.run_id, one.mark) for one in asked} == {
        ("20261128-0400-aa28", None),
        ("20261129-0400-aa29", mark),
    }


def test_gpus_inside_a_node_are_no_nodes(tmp_path):
    pairwise_run(tmp_path, 29, suite={"inside": True})

    assert verdicts(tmp_path) == {}


def test_nodes_of_one_name_in_two_clusters_are_two(tmp_path):
    pairwise_run(tmp_path, 28, cluster="east")
    pairwise_run(tmp_path, 29, cluster="west")

    lines = listed("--results", tmp_path).stdout.splitlines()

    assert lines[0].split() == ["node", "cluster", "verdict", "code", "age", "run"]
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["node5", "east", "fail"],
        ["node5", "west", "fail"],
    ]
    assert lines[-1] == "16 nodes: 2 fail, 14 pass"


def test_damaged_runs_are_said_and_left_out(tmp_path):
    pairwise_run(tmp_path, 28)
    (pairwise_run(tmp_path, 29) / "topology.json").write_text("{")
    (pairwise_run(tmp_path, 30) / "run.json").write_text("{")

    result = listed("--results", tmp_path)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "8 nodes: 1 fail, 7 pass"
    said = result.stderr.splitlines()
    assert said[0].startswith(f"collbench: {tmp_path}/lab/20261129-0400-aa29/topology.json cannot")
    assert said[1].endswith("/20261130-0400-aa30/run.json is damaged; left out")


def test_json_is_one_object_bad_nodes_first(tmp_path):
    pairwise_run(tmp_path, 29)

    found = json.loads(listed("--results", tmp_path, "--json").stdout)

    assert found["schema"] == "collbench.nodes/1"
    assert [one["node"] for one in found["nodes"]] == [
        "node5",
        *(name for name in NODES if name != "node5"),
    ]
    age = found["nodes"][0].pop("age_s")
    assert age > 0
    assert found["nodes"][0] == {
        "node": "node5",
        "cluster": "lab",
        "verdict": "fail",
        "confirmed": True,
        "code": "node_slow",
        "effect_pct": -63.64,
        "why": None,
        "run_id": "20261129-0400-aa29",
        "at": "2026-11-29T04:10:00+00:00",
        "mark": None,
    }


def test_no_verdict_is_an_answer_and_says_how_to_get_one(tmp_path):
    result = listed("--results", tmp_path)

    assert result.exit_code == 0
    assert result.stdout == (
        f"no verdict on a node in '{tmp_path}'; 'collbench pairwise' gives one; --simulated shows"
        " those of runs without hardware\n"
    )
    assert json.loads(listed("--results", tmp_path, "--json").stdout)["nodes"] == []
