"""The whole ``pairwise`` command over fabrics whose faults are known: they alone are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from course_runs import EIGHT, FABRICS, NOISE, SLOW_NODE, answer_of, nodes_of

RAILS = f"[fabric]\nnodes = 6\ngpus_per_node = 2\nrails = 2\n{NOISE}"
LEAVES = f"[fabric]\nnodes = 12\ngpus_per_node = 1\nrails = 1\nleaves = 4\n{NOISE}"


@pytest.fixture
def answer(pairs):
    """Returns the exit status and the verdict of a run, with whatever is said beside it."""

    def run(fabric: str | Path, *options: str):
        return answer_of(pairs(fabric, "--json", *options))

    return run


NODE_FAULTS = {
    "slow node": (
        SLOW_NODE,
        {"node4": ("fail", "node_slow")},
    ),
    "slow to send": (
        f"{EIGHT}[[slow_node]]\nnode = 4\nfactor = 0.8\ndirection = 'send'\n",
        {"node4": ("fail", "slow_send")},
    ),
    "slow to receive": (
        f"{EIGHT}[[slow_node]]\nnode = 4\nfactor = 0.8\ndirection = 'receive'\n",
        {"node4": ("fail", "slow_receive")},
    ),
    "slow rail": (
        f"{RAILS}[[slow_rail]]\nnode = 2\nrail = 1\nfactor = 0.8\n",
        {"node2": ("fail", "rail_slow")},
    ),
    "two that meet each other": (
        f"{EIGHT}[[slow_node]]\nnode = 2\nfactor = 0.7\n[[slow_node]]\nnode = 5\nfactor = 0.6\n",
        {"node2": ("fail", "node_slow"), "node5": ("fail", "node_slow")},
    ),
    "a node that hangs": (
        f"{EIGHT}[[hang]]\nnode = 5\n",
        {"node5": ("fail", "hangs")},
    ),
}


@pytest.mark.parametrize("name", NODE_FAULTS)
def test_exactly_the_bad_node_is_named(answer, name):
    fabric, expected = NODE_FAULTS[name]
    status, verdict, said = answer(fabric, "--latency", "0")

    assert nodes_of(verdict) == expected, said
    assert (status, verdict["exit"]) == (1, 1)
    assert all(node["confirmed"] for node in verdict["nodes"] if node["node"] in expected)
    assert {node["action"] for node in verdict["nodes"] if node["node"] in expected} == {"drain"}


def test_a_rail_is_named_with_its_nic(answer):
    fabric, _ = NODE_FAULTS["slow rail"]
    _, verdict, _ = answer(fabric, "--latency", "0")
    (node,) = [node for node in verdict["nodes"] if node["verdict"] == "fail"]

    assert (node["component"]["kind"], node["component"]["name"]) == ("rail", "mlx5_1")
    assert node["effect_pct"] == pytest.approx(-20, abs=1.5)
    low, high = node["ci95_pct"]
    assert low <= node["effect_pct"] <= high
    assert (node["measured"], node["expected"]) == (
        pytest.approx(40, rel=0.02),
        pytest.approx(50, rel=0.02),
    )


FABRIC_FAULTS = {
    "slow path": (
        f"{EIGHT}[[slow_path]]\na = 1\nb = 4\nfactor = 0.7\n",
        "slow_path node1-node4",
    ),
    "slow uplink": (
        f"{LEAVES}[[slow_uplink]]\nleaf = 1\nfactor = 0.4\n",
        "leaf_uplink_slow leaf1",
    ),
    "split": (
        f"{LEAVES}[[split]]\ngroups = [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9, 10, 11]]\n",
        "split_fabric node00, node01, node02",
    ),
}


@pytest.mark.parametrize("name", FABRIC_FAULTS)
def test_a_fault_between_nodes_is_named_and_no_node(pairs, collbench, name):
    fabric, words = FABRIC_FAULTS[name]
    done = pairs(fabric, "--latency", "0")

    assert done.returncode == 1, done.stderr
    (line,) = [text for text in done.stdout.splitlines() if text.startswith("FABRIC")]
    assert line.split()[:2] == ["FABRIC", "1"]
    assert words in line
    assert "FAIL" not in done.stdout
    assert "SUSPECT" not in done.stdout
    (finding,) = collbench.stored().run.findings
    assert (finding.code, finding.severity) == (words.split()[0], "bad")


@pytest.mark.parametrize("routing", ["hashed", "static", "adaptive"])
def test_an_oversubscribed_spine_is_nobodys_fault(answer, routing):
    fabric = LEAVES.replace(NOISE, f"oversubscription = 4\nrouting = '{routing}'\n{NOISE}")
    status, verdict, said = answer(fabric, "--latency", "0")

    assert (status, nodes_of(verdict)) == (0, {}), said


def test_a_fault_inside_a_leaf_is_found_below_an_oversubscribed_spine(answer):
    fabric = LEAVES.replace(NOISE, f"oversubscription = 4\nrouting = 'hashed'\n{NOISE}")
    fabric += "[[slow_node]]\nnode = 7\nfactor = 0.85\n"
    status, verdict, said = answer(fabric, "--latency", "0")

    assert (status, nodes_of(verdict)) == (1, {"node07": ("fail", "node_slow")}), said


def test_loss_is_seen_in_the_small_exchanges(pairs):
    done = pairs(f"{EIGHT}[[loss]]\nnode = 1\nshare = 0.01\n", "--size", "1M")
    assert done.returncode == 1, done.stderr

    (line,) = [text for text in done.stdout.splitlines() if text.startswith("FAIL")]
    assert line.split()[:4] == ["FAIL", "1", "node1", "lossy:"]
    assert "1,000 x 8 B" in done.stdout
    assert "smallest loss that could be seen" in done.stdout


def test_without_a_latency_pass_it_is_said_that_loss_was_not_looked_for(pairs):
    done = pairs(EIGHT, "--latency", "0", "--size", "1M", "--rounds", "1")

    assert done.returncode == 0, done.stderr
    assert "loss not looked for" in done.stdout


SHIPPED = {
    "healthy_8": (0, {}, []),
    "slow_node_8": (1, {"node5": ("fail", "node_slow")}, []),
    "loss_8": (1, {"node3": ("fail", "lossy")}, []),
    "hang_8": (1, {"node6": ("fail", "hangs")}, []),
    "split_8": (1, {}, ["split_fabric"]),
    "hashed_4_to_1": (0, {}, []),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_fabrics(answer, collbench, name):
    wanted = SHIPPED[name]
    # Bandwidth shows no loss; only where it is looked for is the pass worth its time.
    latency = ("--latency", "1" if name == "loss_8" else "0")
    status, verdict, said = answer(FABRICS / f"{name}.toml", *latency)
    codes = {finding.code for finding in collbench.stored().run.findings}

    assert (status, nodes_of(verdict)) == wanted[:2], said
    assert codes >= set(wanted[2])
    assert verdict["simulated"] is True


def test_who_differs_is_left_out_and_the_leaves_stay_known(answer, collbench):
    status, verdict, said = answer(
        FABRICS / "faults_16.toml", "--latency", "0", "--size", "64M", "--rounds", "3"
    )

    assert nodes_of(verdict) == {"node04": ("not_tested", None)}
    assert status == verdict["exit"] == 4
    assert (verdict["nodes_asked"], verdict["nodes_answered"]) == (16, 15)
    assert verdict["not_tested"][0] == {
        "what": "node04",
        "why": "excluded (driver 570.86.15 against 575.51.03)",
    }
    assert "node04 is left out: driver 570.86.15 against 575.51.03" in said
    stored = collbench.stored()
    assert len({node.leaf for node in stored.topology.nodes if node.leaf}) == 4
    assert "node04" not in stored.run.suite["members"]


def test_what_is_printed_first_is_the_answer(collbench, tmp_path):
    path = tmp_path / "fabric.toml"
    path.write_text(SLOW_NODE)
    done = collbench.run("pairwise", "--simulate", str(path), "--latency", "0")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()

    assert lines[0].startswith("SIMULATED: a model answered, no hardware was measured | 8 nodes")
    assert lines[1].startswith(
        "plan: 8 nodes, 7 rounds of up to 4 pairs, 100% of the paths, messages of a size to be"
        " found, about "
    )
    text = done.stdout
    answer = text.index("8 asked, 8 answered | 1 leaf from the simulated fabric")
    assert answer < text.index("\nFAIL            1  node4  node_slow") < text.index("\nPASS ")
    assert text.index("\nPASS ") < text.index("\nFABRIC") < text.index("\nNEXT") < len(text)
    assert "no absolute reference: equal is not fast" in text
    assert "7 rounds of up to 4 pairs + " in text
    assert max(map(len, text[answer:].split("\n\nKept in")[0].splitlines())) <= 120
    assert not done.stderr


def test_what_hangs_at_one_time_takes_its_time_once(pairs):
    done = pairs(f"{RAILS}[[hang]]\nnode = 5\n", "--latency", "0", "--size", "1M")

    # 5 rounds of two questions, each of which waits for 60 s once: both rails hang together.
    assert "| 5 rounds of up to 3 pairs, 10 min 00 s |" in " ".join(done.stdout.split())


def test_nodes_files_hold_one_node_each(answer, tmp_path):
    folder = tmp_path / "new" / "verdicts"
    _, verdict, _ = answer(SLOW_NODE, "--latency", "0", "--node-json", str(folder))
    files = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}

    assert sorted(files) == [f"node{n}.json" for n in range(8)]
    by_name = {node["node"]: node for node in verdict["nodes"]}
    for name, one in files.items():
        assert one["schema"] == "collbench.verdict/1"
        assert one["nodes"] == [by_name[name.removesuffix(".json")]]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(pairs, collbench):
    done = pairs(EIGHT, "--node-json", "/proc/verdicts")

    assert done.returncode == 2
    assert done.stderr == (
        "collbench: --node-json /proc/verdicts: cannot be written to; give another folder\n"
    )
    assert collbench.folders() == []


def test_drain_prints_the_line_of_the_bad_node(pairs, collbench, here):
    pairs(SLOW_NODE, "--latency", "0")
    done = here("drain", "last")
    run_id = collbench.stored().run.run_id

    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        (
            "# scontrol update nodename=node4 state=drain"
            f' reason="collbench {run_id[:13]} simulated node_slow -20%"'
        )
    ]


def test_drain_of_a_good_run_says_that_there_is_nothing(pairs, here):
    pairs(EIGHT, "--latency", "0", "--size", "1M")
    done = here("drain", "last")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("nothing to drain: no node of run ")


@pytest.mark.parametrize(
    ("bar", "status"),
    [
        (("--min-busbw", "45"), 0),
        (("--min-busbw", "55"), 1),
        (("--min-busbw", "send_recv=45,all_reduce=55"), 1),
        (("--min-of-limit", "90%"), 0),
    ],
)
def test_bars_are_held_against_all(answer, bar, status):
    got, verdict, said = answer(EIGHT, "--latency", "0", *bar)

    assert got == status, said
    bad = {node["node"] for node in verdict["nodes"] if node["verdict"] == "fail"}
    assert bad == ({f"node{n}" for n in range(8)} if status else set())


def test_a_bar_finds_what_is_too_little_to_stand_out(answer):
    fabric = EIGHT.replace(NOISE, "") + "[[slow_node]]\nnode = 4\nfactor = 0.97\n"
    equal, without, _ = answer(fabric, "--latency", "0")
    status, verdict, said = answer(fabric, "--latency", "0", "--min-of-limit", "98%")

    assert (equal, nodes_of(without)) == (0, {})
    assert (status, nodes_of(verdict)) == (1, {"node4": ("fail", "node_slow")}), said


def test_a_run_is_held_against_an_earlier_one(answer, pairs, collbench):
    pairs(EIGHT, "--latency", "0")
    run_id = collbench.stored().run.run_id
    slower = EIGHT + "".join(f"[[slow_node]]\nnode = {n}\nfactor = 0.9\n" for n in range(8))
    status, verdict, _ = answer(slower, "--latency", "0", "--baseline", run_id)

    assert status == 1
    assert {node["verdict"] for node in verdict["nodes"]} == {"fail"}
    assert all(f"(baseline {run_id})" in " ".join(node["evidence"]) for node in verdict["nodes"])
    tolerant, verdict, _ = answer(
        slower, "--latency", "0", "--baseline", run_id, "--tolerance", "15%"
    )
    assert (tolerant, nodes_of(verdict)) == (0, {})


def test_a_baseline_is_a_file_for_other_clusters_of_such_nodes(answer, pairs, here, tmp_path):
    pairs(EIGHT, "--latency", "0")
    kept = str(tmp_path / "kept.json")
    written = here("baseline", "last", "-o", kept)
    ten = EIGHT.replace("nodes = 8", "nodes = 10")
    slower = ten + "".join(f"[[slow_node]]\nnode = {n}\nfactor = 0.9\n" for n in range(10))
    status, verdict, said = answer(slower, "--latency", "0", "--baseline", kept)
    of_cases = here("sweep", "--backend", "gloo", "--baseline", kept)

    assert "send_recv: " in written.stdout
    assert "\n  collbench pairwise --simulate " in written.stdout
    assert written.stdout.endswith(f" --baseline {kept}\n")
    assert status == 1, said
    assert [node["verdict"] for node in verdict["nodes"]] == ["fail"] * 10
    assert of_cases.returncode == 2
    assert "holds pairs of nodes, for 'pairwise'" in of_cases.stderr


def test_a_bar_is_kept_with_the_run(pairs, here):
    done = pairs(EIGHT, "--latency", "0", "--min-busbw", "55")
    again = here("pairwise", "--resume", "last")
    drained = here("drain", "last")

    assert (done.returncode, again.returncode) == (1, 1)
    assert "below 55 GB/s (--min-busbw)" in " ".join(again.stdout.split())
    assert drained.stdout.count("# scontrol update nodename=") == 8


def test_a_models_run_says_nothing_of_hardware(pairs, collbench):
    pairs(EIGHT, "--latency", "0", "--size", "1M", "--rounds", "1")
    (folder,) = collbench.folders()
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, "simulated": False}))
    done = pairs(EIGHT, "--baseline", "last")

    assert done.returncode == 2
    assert "is measured and this run is simulated: a model says nothing of hardware" in done.stderr


@pytest.mark.parametrize(
    ("nodes", "status", "words"),
    [(1, 2, "1 node cannot be paired"), (2, 4, "nobody can tell which would be the slow one")],
)
def test_few_nodes(pairs, nodes, status, words):
    done = pairs(EIGHT.replace("nodes = 8", f"nodes = {nodes}"), "--latency", "0")

    assert done.returncode == status, done.stderr
    assert words in " ".join((done.stdout + done.stderr).split())


def test_two_nodes_below_a_bar_are_both_below(pairs):
    done = pairs(EIGHT.replace("nodes = 8", "nodes = 2"), "--latency", "0", "--min-busbw", "55")

    assert done.returncode == 1, done.stdout
