"""``collbench.verdict/1``: its fields, what they hold, and the files a node."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from pair_states import Pairs, about_of, made_node, slow_uplinks

from collbench.analyze.pair_state import Reference
from collbench.analyze.pair_types import PairKind
from collbench.analyze.pair_verdicts import (
    Effect,
    FabricCode,
    FabricVerdict,
    NodeCode,
    NodeState,
    NodeVerdict,
)
from collbench.analyze.pairwise import judge
from collbench.errors import StoreError, UsageError
from collbench.model import Gpu, Nic, RankPlace, Topology
from collbench.report.drain_line import drain_line, reason_text
from collbench.report.pair_component import Hardware
from collbench.report.verdict_json import verdict_document, write_node_files

FIELDS = [
    "schema",
    "run_id",
    "simulated",
    "cluster",
    "job_id",
    "user",
    "started",
    "ended",
    "exit",
    "nodes_asked",
    "nodes_answered",
    "nodes",
    "fabric",
    "not_tested",
]
FAULT_FIELDS = [
    "code",
    "nodes",
    "leaves",
    "rail",
    "measured",
    "expected",
    "unit",
    "effect_pct",
    "ci95_pct",
    "pairs",
    "confirmed",
    "evidence",
]
NODE_FIELDS = [
    "node",
    "verdict",
    "confirmed",
    "code",
    "component",
    "measured",
    "expected",
    "expected_from",
    "unit",
    "effect_pct",
    "ci95_pct",
    "partners",
    "rounds",
    "evidence",
    "action",
    "reason",
]


def document_of(state, topology=None, **changes):
    content = verdict_document(state, judge(state), about_of(state, topology, **changes))
    return json.loads(content, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def test_the_fields_are_those_of_the_schema():
    document = document_of(
        Pairs(leaf=4, slow={5: 0.5}).state(), job_id="4711", user="ann", simulated=True
    )

    assert list(document) == FIELDS
    assert all(list(node) == NODE_FIELDS for node in document["nodes"])
    assert document["schema"] == "collbench.verdict/1"
    assert document["run_id"] == "20261130-0412-7f3a"
    assert (document["cluster"], document["job_id"], document["user"]) == ("lab", "4711", "ann")
    assert document["simulated"] is True
    assert (document["nodes_asked"], document["nodes_answered"]) == (8, 8)
    assert document["exit"] == 1


def test_a_slow_node_is_to_be_drained_and_the_others_are_left_alone():
    nodes = document_of(Pairs(leaf=4, slow={5: 0.5}).state())["nodes"]

    bad = nodes.pop(5)
    evidence = bad.pop("evidence")
    assert bad == {
        "node": "node5",
        "verdict": "fail",
        "confirmed": True,
        "code": "node_slow",
        "component": {
            "kind": "node",
            "name": "node5",
            "pci": None,
            "guid": None,
            "gpu_uuid": None,
        },
        "measured": pytest.approx(24.0),
        "expected": pytest.approx(48.0),
        "expected_from": "the other nodes of this run",
        "unit": "GB/s",
        "effect_pct": -50.0,
        "ci95_pct": [pytest.approx(-50, abs=0.1), pytest.approx(-50, abs=0.1)],
        "partners": 7,
        "rounds": bad["rounds"],
        "action": "drain",
        "reason": "collbench 20261130-0412 node_slow -50%",
    }
    assert evidence[0].startswith("send_recv: ")
    assert {(node["verdict"], node["action"], node["code"]) for node in nodes} == {
        ("pass", "none", None)
    }


@pytest.mark.parametrize(
    ("started", "ended", "told"),
    [
        ("2026-11-30T05:12:00.000+01:00", None, ("2026-11-30T04:12:00", "2026-11-30T04:12:58")),
        (
            "2026-11-30T04:12:00.000+00:00",
            "2026-11-30T04:13:00.500+00:00",
            ("2026-11-30T04:12:00", "2026-11-30T04:13:00"),
        ),
    ],
)
def test_moments_are_utc(started, ended, told):
    document = document_of(Pairs(4).state(), started_at=started, ended_at=ended)

    moments = document["started"], document["ended"]
    assert tuple(moment[:19] for moment in moments) == told
    assert all(moment.endswith("+00:00") for moment in moments)


def test_how_a_run_ended_counts_more_than_what_it_found():
    state = Pairs(leaf=4, slow={5: 0.5}).state()

    assert document_of(state, exit_code=143)["exit"] == 143


def test_every_node_that_was_asked_is_there():
    state = Pairs(leaf=4).state(not_tested={7: "lost in round 0"})
    document = document_of(
        state,
        asked=(*state.names, "gpu0044", "gpu0391"),
        absent={"gpu0044": ""},
        excluded={"gpu0391": "driver 570 against 575"},
        share_tried=0.25,
    )

    untested = {
        node["node"]: node["reason"]
        for node in document["nodes"]
        if (node["verdict"], node["action"]) == ("not_tested", "retest")
    }
    assert untested == {
        "node7": "collbench 20261130-0412 not_tested lost in round 0",
        "gpu0044": "collbench 20261130-0412 not_tested absent",
        "gpu0391": "collbench 20261130-0412 not_tested excluded (driver 570 against 575)",
    }
    assert {(item["what"], item["why"]) for item in document["not_tested"]} == {
        ("node7", "lost in round 0"),
        ("gpu0044", "absent"),
        ("gpu0391", "excluded (driver 570 against 575)"),
        ("75 % of paths", "not in the plan: 7 rounds of 4 pairs + 2 to confirm"),
        ("loss", "no latency pass"),
        ("absolute rates", "no absolute reference: equal is not fast"),
    }


def test_a_fault_between_nodes_is_evidence_at_both_and_accuses_neither():
    document = document_of(Pairs(leaf=4, paths={(1, 6): 0.5}).state())

    touched = [node for node in document["nodes"] if node["evidence"]]
    assert [node["node"] for node in touched] == ["node1", "node6"]
    assert all(node["verdict"] == "pass" and node["action"] == "none" for node in touched)
    assert touched[0]["evidence"][0].startswith("slow_path node1-node6: 24.0 of 48.0 GB/s")
    assert document["exit"] == 1


def test_a_slow_path_stands_among_the_faults_of_the_fabric():
    (fault,) = document_of(Pairs(leaf=4, paths={(1, 6): 0.5}).state())["fabric"]

    assert list(fault) == FAULT_FIELDS
    evidence = fault.pop("evidence")
    pairs = fault.pop("pairs")
    assert fault == {
        "code": "slow_path",
        "nodes": ["node1", "node6"],
        "leaves": [],
        "rail": None,
        "measured": pytest.approx(24.0),
        "expected": pytest.approx(48.0),
        "unit": "GB/s",
        "effect_pct": -50.0,
        "ci95_pct": [pytest.approx(-50, abs=1), pytest.approx(-50, abs=1)],
        "confirmed": True,
    }
    assert evidence[0] == "both nodes give full rate with others"
    assert pairs > 1


def test_slow_uplinks_name_their_leaf():
    state = Pairs(12, leaf=3, paths=slow_uplinks(12, 3, 1, 0.4)).state()

    (fault,) = document_of(state)["fabric"]

    assert (fault["code"], fault["nodes"], fault["leaves"]) == (
        "leaf_uplink_slow",
        [],
        ["leaf1"],
    )
    assert fault["effect_pct"] == -60.0


def test_a_fabric_without_faults_has_an_empty_list():
    assert document_of(Pairs(leaf=4).state())["fabric"] == []


def test_figures_of_a_fault_that_are_none_stay_out_of_json():
    state = Pairs(4).state()
    fault = FabricVerdict(
        code=FabricCode.SLOW_PATH,
        nodes=(1, 0),
        measured=math.nan,
        expected=math.inf,
        effect=Effect(share=-0.5, low=-math.inf, high=math.nan),
    )

    document = json.loads(
        verdict_document(state, replace(judge(state), fabric=(fault,)), about_of(state))
    )

    (said,) = document["fabric"]
    assert said["nodes"] == ["node0", "node1"]
    assert (said["measured"], said["expected"], said["unit"], said["ci95_pct"]) == (None,) * 4
    assert said["effect_pct"] == -50.0


def test_a_node_has_the_faults_that_touch_it_in_its_file(tmp_path):
    state = Pairs(leaf=4, paths={(1, 6): 0.5}).state()

    paths = write_node_files(tmp_path, state, judge(state), about_of(state))

    counts = {path.stem: len(json.loads(path.read_bytes())["fabric"]) for path in paths}
    assert counts == {f"node{n}": int(n in (1, 6)) for n in range(8)}


def bar_at(gb_per_s):
    return Reference(source="--min-busbw", at_least={(PairKind.SEND_RECV, None): gb_per_s})


def test_what_all_nodes_miss_is_the_bar_and_not_the_other_nodes():
    nodes = document_of(Pairs(leaf=4).state(reference=bar_at(60.0)))["nodes"]

    for node in nodes:
        assert (node["verdict"], node["confirmed"]) == ("fail", True)
        assert node["measured"] == pytest.approx(48.0)
        assert node["expected"] == pytest.approx(60.0)
        assert node["expected_from"] == "--min-busbw"
        assert node["effect_pct"] == -20.0
        assert node["reason"] == "collbench 20261130-0412 node_slow -20% against --min-busbw"
        assert node["evidence"] == [
            "send_recv: 7 of 7 values low: 48 of 60 GB/s",
            "below 60 GB/s (--min-busbw)",
            "no node is known to be good, to run it again with",
        ]


def test_a_node_that_is_slower_than_the_others_is_held_against_them_whatever_the_bar():
    bad = document_of(Pairs(leaf=4, slow={5: 0.5}).state(reference=bar_at(40.0)))["nodes"][5]

    assert bad["expected_from"] == "the other nodes of this run"
    assert bad["effect_pct"] == -50.0
    assert bad["reason"] == "collbench 20261130-0412 node_slow -50%"


@pytest.mark.parametrize(
    ("changes", "action", "words"),
    [
        ({}, "drain", ""),
        ({"simulated": True}, "drain", " simulated"),
        ({"emulated": True}, "none", " emulated"),
        ({"planted": "stop:5"}, "none", " planted"),
    ],
)
def test_what_no_hardware_did_is_said_in_the_reason(changes, action, words):
    node = document_of(Pairs(leaf=4, slow={5: 0.5}).state(), **changes)["nodes"][5]

    assert node["action"] == action
    assert node["reason"] == f"collbench 20261130-0412{words} node_slow -50%"


def test_an_open_suspect_is_to_be_tested_again():
    node = document_of(Pairs(leaf=4, slow={5: 0.5}).state(confirm=False))["nodes"][5]

    assert (node["verdict"], node["confirmed"], node["action"]) == ("suspect", False, "retest")
    assert node["reason"] == "collbench 20261130-0412 suspect node_slow -50%"


def test_figures_that_are_none_stay_out_of_json():
    state = Pairs(4).state()
    result = judge(state)
    verdict = NodeVerdict(
        node=0,
        verdict=NodeState.FAIL,
        code=NodeCode.NODE_SLOW,
        measured=math.nan,
        expected=math.inf,
        effect=Effect(share=-0.5, low=-math.inf, high=math.nan),
    )
    changed = type(result)(
        nodes=(verdict, *result.nodes[1:]),
        fabric=(),
        reference=None,
        smallest_fault=None,
        smallest_loss=None,
        across_share=None,
        throttled_share=None,
        collisions=None,
    )

    node = json.loads(verdict_document(state, changed, about_of(state)))["nodes"][0]

    assert (node["measured"], node["expected"], node["ci95_pct"]) == (None, None, None)
    assert node["effect_pct"] == -50.0


def topology(nics: int = 2, *, addresses: bool = True) -> Topology:
    """Returns a node whose NICs' slots run against their numbers."""
    devices = [
        Nic(
            name=f"mlx5_{n}",
            kind="infiniband",
            state="ACTIVE",
            pci_bus_id=f"0000:{0x9A - n:02x}:00.0" if addresses else None,
        )
        for n in range(nics)
    ]
    eth = Nic(name="eth0", kind="ethernet", state="up", pci_bus_id="0000:01:00.0")
    gpus = [
        Gpu(
            index=n, name="H", uuid=f"GPU-{n}", pci_bus_id=f"00000000:{n + 1}B:00.0", memory_bytes=1
        )
        for n in range(2)
    ]
    places = [RankPlace(rank=n, node="node0", local_rank=n, gpu=n) for n in range(2)]
    return Topology(nodes=[made_node("node0", gpus=gpus, nics=[eth, *devices])], ranks=places)


@pytest.mark.parametrize(
    ("place", "rails", "expected"),
    [
        (topology(), (0,), ("rail", "mlx5_1", "0000:99:00.0", "GPU-0")),
        (topology(addresses=False), (0,), ("rail", "mlx5_0", None, "GPU-0")),
        (topology(3), (0,), ("rail", "rail 0", None, "GPU-0")),
        (Topology(nodes=[]), (0,), ("rail", "rail 0", None, None)),
        (topology(), (0, 1), ("node", "node0", None, None)),
    ],
    ids=["by-slot", "by-number", "more-nics-than-ranks", "unknown", "all-rails"],
)
def test_a_rail_is_its_nic_and_gpu_where_they_are_known(place, rails, expected):
    verdict = NodeVerdict(
        node=0, verdict=NodeState.FAIL, code=NodeCode.RAIL_SLOW, rail=0, rails=rails
    )

    found = Hardware(place).component("node0", verdict)

    assert found is not None
    assert (found.kind, found.name, found.pci, found.gpu_uuid) == expected
    assert found.guid is None


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (
            NodeVerdict(
                node=0,
                verdict=NodeState.FAIL,
                code=NodeCode.RAIL_SLOW,
                rail=5,
                rails=(5,),
                effect=Effect(share=-0.048, low=-0.05, high=-0.04),
            ),
            "rail_slow rail 5 -4.8%",
        ),
        (
            NodeVerdict(
                node=0,
                verdict=NodeState.FAIL,
                code=NodeCode.LOSSY,
                measured=0.0123,
                unit="of round trips above 100 ms",
            ),
            "lossy 1.2% of round trips above 100 ms",
        ),
        (
            NodeVerdict(
                node=0,
                verdict=NodeState.FAIL,
                code=NodeCode.CONFIG_DIFFERS,
                evidence=("NVLS \"off\" $(reboot) `x`\n\u00fcber \\ 'it'", "more"),
            ),
            "config_differs NVLS off (reboot) x ber it",
        ),
        (NodeVerdict(node=0, verdict=NodeState.PASS), "pass"),
    ],
)
def test_reasons_are_one_plain_line(verdict, words):
    run = about_of(Pairs(4).state()).run

    assert reason_text(run, verdict) == f"collbench 20261130-0412 {words}"


def test_reasons_have_at_most_120_characters():
    run = about_of(Pairs(4).state()).run
    verdict = NodeVerdict(
        node=0, verdict=NodeState.FAIL, code=NodeCode.CONFIG_DIFFERS, evidence=("driver 570 " * 40,)
    )

    reason = reason_text(run, verdict)

    assert len(reason) == 120
    assert reason.endswith(" driver 570 driv")


@pytest.mark.parametrize("name", ["all", "ALL", "node[1-4]", "a,b", "a b", "$(x)", "-n", "", "n\n"])
def test_names_that_scontrol_or_a_shell_could_take_for_more_are_refused(name):
    with pytest.raises(UsageError, match="not a plain host name"):
        drain_line(name, "why")


def test_each_node_has_a_file_that_is_whole(tmp_path):
    state = Pairs(leaf=4, slow={5: 0.5}).state()
    folder = tmp_path / "new" / "verdicts"

    paths = write_node_files(folder, state, judge(state), about_of(state))

    assert sorted(folder.iterdir()) == sorted(paths)
    assert [path.name for path in paths] == [f"node{n}.json" for n in range(8)]
    for number, path in enumerate(paths):
        document = json.loads(path.read_bytes())
        assert list(document) == FIELDS
        assert [node["node"] for node in document["nodes"]] == [f"node{number}"]
        assert document["not_tested"] == []
    umask = os.umask(0)
    os.umask(umask)
    assert paths[0].stat().st_mode & 0o777 == 0o666 & ~umask


def test_names_of_files_are_safe_and_different(tmp_path):
    names = ("a/b", "a_b", "../up", "n\u00f6de", ".hidden", "x" * 300, "a:b", "plain-1.x")
    state = Pairs(leaf=4, names=names).state()

    paths = write_node_files(tmp_path, state, judge(state), about_of(state))

    assert [path.name for path in paths] == [
        "a_b-2.json",
        "a_b.json",
        "_._up.json",
        "n_de.json",
        "_hidden.json",
        "x" * 200 + ".json",
        "a_b-3.json",
        "plain-1.x.json",
    ]
    assert {path.parent for path in paths} == {tmp_path}
    assert json.loads(paths[0].read_bytes())["nodes"][0]["node"] == "a/b"


def test_a_file_is_replaced_at_once_and_nothing_is_left_behind(tmp_path, monkeypatch):
    state = Pairs(4).state()
    (tmp_path / "node0.json").write_text("old")
    seen = []
    replace = Path.replace

    def watched(self, target):
        seen.append((self.parent, Path(target).name, Path(target).exists()))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_node_files(tmp_path, state, judge(state), about_of(state))

    assert seen[0] == (tmp_path, "node0.json", True)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path):
    state = Pairs(4).state()
    blocked = tmp_path / "file"
    blocked.write_text("")

    with pytest.raises(StoreError, match=r"cannot write verdicts into .*; give another folder"):
        write_node_files(blocked, state, judge(state), about_of(state))


def test_a_failed_rename_leaves_the_old_file_and_no_other(tmp_path):
    state = Pairs(4).state()
    (tmp_path / "node0.json" / "in-the-way").mkdir(parents=True)

    with pytest.raises(StoreError, match="cannot write verdicts into"):
        write_node_files(tmp_path, state, judge(state), about_of(state))

    assert [path.name for path in tmp_path.iterdir()] == ["node0.json"]
