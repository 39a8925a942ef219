"""``pairwise`` over a model: plans, runs that go on, one node, GPUs inside, leaves of a file."""

from __future__ import annotations

import json
import signal
import time

import pytest
from course_runs import EIGHT, FABRICS, SLOW_NODE, cut, nodes_of

from collbench.store import read_run


def test_a_dry_run_tells_the_plan_and_keeps_nothing(collbench):
    done = collbench.run(
        "pairwise", "--simulate", str(FABRICS / "large_4096.toml"), "--dry-run", "--size", "64M"
    )

    assert done.returncode == 0, done.stderr
    # 3 x 2,048 of 8,386,560 paths.
    assert "plan: 4096 nodes, 3 rounds of up to 2048 pairs, 0.0733% of the paths," in done.stdout
    assert "messages of 64 MiB, about " in done.stdout
    assert "run not started (--dry-run)" in done.stdout
    assert collbench.folders() == []


def test_a_dry_run_of_several_nodes_says_why_it_has_no_plan(here, collbench, tmp_path):
    meeting = ("--nodes", "2", "--node-rank", "0", "--rendezvous", f"file:{tmp_path}/meeting")
    done = here("pairwise", "--dry-run", "--backend", "gloo", *meeting)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "collbench: --dry-run does not wait for the other nodes, and of one alone there is no plan;"
        " take it with --simulate and a fabric of as many nodes\n"
    )
    assert collbench.folders() == []


@pytest.mark.parametrize("lines", [3, 60])
def test_a_run_that_was_cut_off_goes_on(pairs, collbench, lines, here):
    pairs(SLOW_NODE, "--latency", "0")
    (folder,) = collbench.folders()
    whole = {trial.trial_id: trial for trial in read_run(folder).trials}
    kept = cut(folder, lines)
    done = here("pairwise", "--resume", "last", "--json")

    assert done.returncode == 1, done.stderr
    assert f"resuming: {lines} trials are there" in done.stderr
    assert "  with the options of before: collbench pairwise --simulate " in done.stderr
    assert nodes_of(json.loads(done.stdout)) == {"node4": ("fail", "node_slow")}
    stored = read_run(folder)
    again = {trial.trial_id: trial for trial in stored.trials}
    assert all(again[name].started_at == whole[name].started_at for name in kept)
    assert {name for name in again if "confirm/" not in name} == {
        name for name in whole if "confirm/" not in name
    }
    assert len(stored.run.resumed_at) == 1
    assert stored.run.exit_code == 1


def test_a_run_that_is_whole_says_the_same_again(pairs, here):
    first = pairs(EIGHT, "--latency", "0", "--size", "1M")
    again = here("pairwise", "--resume", "last")

    assert (first.returncode, again.returncode) == (0, 0)
    before, after = (one.stdout.split("8 asked")[1].split("Kept in")[0] for one in (first, again))
    assert before == after


def test_another_question_is_not_a_run_that_goes_on(pairs, collbench, tmp_path, here):
    pairs(EIGHT, "--latency", "0", "--size", "1M", "--rounds", "1")
    kept = collbench.trials_kept()
    run_id = collbench.stored().run.run_id
    six = tmp_path / "six.toml"
    six.write_text(EIGHT.replace("nodes = 8", "nodes = 6"))
    fewer = here(
        "pairwise", "--resume", "last", "--simulate", str(six), "--size", "1M", "--rounds", "1"
    )
    other = pairs(EIGHT, "--resume", "last", "--size", "2M", "--rounds", "1", "--latency", "0")

    assert (fewer.returncode, other.returncode) == (2, 2)
    assert fewer.stderr == (
        f"collbench: run {run_id} cannot be resumed: it was of other nodes: 2 missing (node6,"
        " node7); start a new run\n"
    )
    assert other.stderr == (
        f"collbench: run {run_id} cannot be resumed: size_bytes was 1048576 and is 2097152; give"
        " the options of before, or --resume alone\n"
    )
    assert collbench.trials_kept() == kept


def test_a_run_of_another_command_is_refused(pairs, here):
    sweep = here("sweep", "--simulate", str(FABRICS / "healthy_8.toml"), "--sizes", "1M")
    assert sweep.returncode == 0, sweep.stderr
    done = pairs(EIGHT, "--resume", "last")

    assert done.returncode == 2
    assert "is of 'sweep', not of 'pairwise'" in done.stderr


def test_what_is_interrupted_has_its_verdicts_and_goes_on(collbench, tmp_path, here):
    path, folder = tmp_path / "fabric.toml", tmp_path / "verdicts"
    path.write_text(EIGHT.replace("nodes = 8", "nodes = 48"))
    process = collbench.start(
        *("pairwise", "--simulate", str(path), "--seed", "3", "--node-json", str(folder)),
        *("--size", "1M", "--rounds", "8"),
    )
    limit = time.monotonic() + 60
    while collbench.trials_kept() < 40:
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    done = collbench.finish()

    assert done.returncode == 143
    assert "interrupted; kept " in done.stderr
    assert len(list(folder.iterdir())) == 48
    (run,) = collbench.folders()
    skipped = [trial.trial_id for trial in read_run(run).trials if trial.status == "skipped"]
    again = here("pairwise", "--resume", "last", "--latency", "0")
    assert "is simulated and this call is measured; give the options of before" in again.stderr
    again = here("pairwise", "--resume", "last", "--json")
    assert (again.returncode, nodes_of(json.loads(again.stdout))) == (0, {})
    by_name = {trial.trial_id: trial.status for trial in read_run(run).trials}
    assert {by_name[name] for name in skipped} <= {"ok"}
    assert set(by_name.values()) == {"ok"}


@pytest.mark.parametrize(
    ("node", "status", "verdict"), [("node4", 1, "fail"), ("node2", 0, "pass")]
)
def test_one_node_is_qualified_by_three_others(pairs, collbench, tmp_path, node, status, verdict):
    folder = tmp_path / "verdicts"
    good = tmp_path / "good"
    good.write_text("node[0-1,3]\n")
    done = pairs(
        SLOW_NODE, "--latency", "0", "--qualify", node, "--against", str(good), "--node-json",
        str(folder),
    )  # fmt: skip

    assert done.returncode == status, done.stderr
    assert f"\nQUALIFY {node}: {verdict}\n" in done.stdout
    assert "plan: 4 nodes, 6 rounds of 1 pair, " in done.stdout
    assert sorted(collbench.stored().run.suite["members"]) == sorted(
        {node, "node0", "node1", "node3"}
    )
    assert [path.name for path in folder.iterdir()] == [f"{node}.json"]


def test_of_a_node_to_be_qualified_only_its_own_verdict_counts(pairs):
    done = pairs(SLOW_NODE, "--latency", "0", "--qualify", "node5", "--against", "leaf0")
    # node4 is not among the first three of leaf0.
    assert done.returncode == 0, done.stderr

    bad = f"{EIGHT}[[slow_node]]\nnode = 1\nfactor = 0.8\n"
    done = pairs(bad, "--latency", "0", "--qualify", "node5")
    assert done.returncode == 0, done.stderr
    assert "\nFAIL            1  node1" in done.stdout
    assert "\nQUALIFY node5: pass\n" in done.stdout


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--baseline", "h100.json"), "h100.json: no such file; 'collbench baseline RUN' writes"),
        (("--baseline", "nine"), "no run 'nine'"),
        (("--tolerance", "5%"), "--tolerance is of a baseline; give --baseline as well"),
        (("--min-busbw", "all_gather=3"), "pairs do not run it; allowed: send_recv, all_reduce"),
        (("--min-busbw", "fast"), "--min-busbw: 'fast' is no rate in GB/s"),
        (("--min-busbw", "3", "--min-of-limit", "9%"), "are three bars; give one"),
        (("--qualify", "node9"), "--qualify node9: no such node takes part; did you mean"),
        (("--plant", "nonsense"), "--plant 'nonsense': unknown fault 'nonsense'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_refused_in_a_line_and_leaves_no_run(pairs, collbench, options, text):
    done = pairs(EIGHT, *options)

    assert done.returncode == 2
    assert text in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert collbench.folders() == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("node0 a\nnode1 a\nnode2 b\n", "says no leaf of node3, node4, node5 and 2 more"),
        ("a: node[0-3]\nb: node[3-7]\n", "node3 is in"),
        ("a: node[0-3]\na: node[4-7]\n", "a is there already, in line 1"),
        ("SwitchName=a Nodes=node[0-7]\nSwitchName=a Nodes=node8\n", "a is there already"),
        ("what is this\n", "line 1"),
        ("", "names no node"),
    ],
    ids=["missing", "duplicate", "a leaf in two lines", "a switch twice", "no words", "empty"],
)
def test_a_topology_file_that_cannot_be_is_refused(pairs, collbench, tmp_path, content, words):
    path = tmp_path / "leaves"
    path.write_text(content)
    done = pairs(EIGHT, "--topology", str(path), "--latency", "0", "--size", "1M", "--rounds", "1")

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"--topology {path}" in done.stderr
    assert words in done.stderr
    assert collbench.folders() == []


def test_a_topology_file_makes_the_leaves_of_the_run(pairs, collbench, tmp_path, here):
    path = tmp_path / "leaves"
    path.write_text("left: node[0-3]\nright: node[4-7]\nother: gpu[1-9]\n")
    done = pairs(EIGHT, "--topology", str(path), "--latency", "0", "--size", "1M")

    assert done.returncode == 0, done.stderr
    assert "2 leaves from --topology " in " ".join(done.stdout.split())
    stored = collbench.stored()
    assert [node.leaf for node in stored.topology.nodes] == ["left"] * 4 + ["right"] * 4
    again = here("pairwise", "--resume", "last")
    assert "2 leaves from --topology " in " ".join(again.stdout.split())


INSIDE = """[fabric]
nodes = 2
gpus_per_node = 4
rails = 4
nvlink_gb_per_s = 400
noise = { kind = "normal", size = 0.01 }
"""


def test_inside_gpus_are_paired_with_those_of_their_own_node(pairs, here, collbench):
    done = pairs(INSIDE, "--inside")

    assert done.returncode == 0, done.stderr
    assert "plan: 8 GPUs inside nodes, 3 rounds of up to 4 pairs, 100% of the paths" in done.stdout
    assert "PASS            8" in done.stdout
    assert "100 % of all paths tried" in done.stdout
    stored = collbench.stored()
    for trial in stored.trials:
        assert len({stored.topology.ranks[rank].node for rank in trial.group.ranks}) == 1
        assert trial.case.nodes == 1
    drained = here("drain", stored.run.run_id)
    assert drained.returncode == 2
    assert "is of GPUs inside nodes (--inside), and Slurm drains nodes" in drained.stderr
    shown = here("show", stored.run.run_id)
    assert "node0:gpu3" in shown.stdout


def test_inside_has_no_bar_of_the_nics(pairs):
    done = pairs(INSIDE, "--inside", "--min-of-limit", "80%")

    assert done.returncode == 2
    assert done.stderr.startswith("collbench: --min-of-limit is of the NICs, and --inside goes")
