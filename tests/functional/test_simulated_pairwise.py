"""The whole ``pairwise`` command over fabrics whose faults are known: they alone are named."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collbench.cli.main import run as run_command_line
from collbench.store import read_run

FABRICS = Path(__file__).parents[2] / "suites/fabrics"
NOISE = "noise = { size = 0.005 }\n"
EIGHT = f"[fabric]\nnodes = 8\ngpus_per_node = 1\nrails = 1\n{NOISE}"
RAILS = f"[fabric]\nnodes = 6\ngpus_per_node = 2\nrails = 2\n{NOISE}"
LEAVES = f"[fabric]\nnodes = 12\ngpus_per_node = 1\nrails = 1\nleaves = 4\n{NOISE}"


@pytest.fixture
def here(collbench, monkeypatch, capsys):
    """Runs command lines in this process, which saves a second each: a model starts no other."""
    monkeypatch.delenv("COLLBENCH_RESULTS", raising=False)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [*arguments, "--results", str(collbench.results)]
        monkeypatch.setattr(sys, "argv", ["collbench", *argv])
        with pytest.raises(SystemExit) as end:
            run_command_line(argv)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(argv, end.value.code, said.out, said.err)

    return run


@pytest.fixture
def pairs(here, tmp_path):
    """Runs the command on a fabric: a file shipped, or the text of one."""

    def run(fabric: str | Path, *options: str):
        if not isinstance(fabric, Path):
            path = tmp_path / "fabric.toml"
            path.write_text(fabric)
            fabric = path
        return here("pairwise", "--simulate", str(fabric), "--seed", "3", *options)

    return run


@pytest.fixture
def answer(pairs):
    """Returns the exit status and the verdict of a run, with whatever is said beside it."""

    def run(fabric: str | Path, *options: str):
        done = pairs(fabric, "--json", *options)
        assert done.stdout.count("\n") == 1, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


def nodes_of(verdict) -> dict[str, tuple[str, str | None]]:
    """Every node that does not pass: its verdict and code."""
    return {
        node["node"]: (node["verdict"], node["code"])
        for node in verdict["nodes"]
        if node["verdict"] != "pass"
    }


NODE_FAULTS = {
    "slow node": (
        f"{EIGHT}[[slow_node]]\nnode = 4\nfactor = 0.8\n",
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
    path.write_text(f"{EIGHT}[[slow_node]]\nnode = 4\nfactor = 0.8\n")
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
    fabric, _ = NODE_FAULTS["slow node"]
    _, verdict, _ = answer(fabric, "--latency", "0", "--node-json", str(folder))
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
    fabric, _ = NODE_FAULTS["slow node"]
    pairs(fabric, "--latency", "0")
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


def cut(folder: Path, lines: int) -> list[str]:
    """Leaves the first lines of a run's trials, and a torn one; returns those."""
    path = folder / "trials.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[:lines]) + kept[lines][:40])
    return [json.loads(line)["trial_id"] for line in kept[:lines]]


@pytest.mark.parametrize("lines", [3, 60])
def test_a_run_that_was_cut_off_goes_on(pairs, collbench, lines, here):
    fabric, expected = NODE_FAULTS["slow node"]
    pairs(fabric, "--latency", "0")
    (folder,) = collbench.folders()
    whole = {trial.trial_id: trial for trial in read_run(folder).trials}
    kept = cut(folder, lines)
    done = here("pairwise", "--resume", "last", "--json")

    assert done.returncode == 1, done.stderr
    assert f"resuming: {lines} trials are there" in done.stderr
    assert "  with the options of before: collbench pairwise --simulate " in done.stderr
    assert nodes_of(json.loads(done.stdout)) == expected
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
    fabric, _ = NODE_FAULTS["slow node"]
    folder = tmp_path / "verdicts"
    good = tmp_path / "good"
    good.write_text("node[0-1,3]\n")
    done = pairs(
        fabric, "--latency", "0", "--qualify", node, "--against", str(good), "--node-json",
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
    fabric, _ = NODE_FAULTS["slow node"]
    done = pairs(fabric, "--latency", "0", "--qualify", "node5", "--against", "leaf0")
    # node4 is not among the first three of leaf0.
    assert done.returncode == 0, done.stderr

    bad = f"{EIGHT}[[slow_node]]\nnode = 1\nfactor = 0.8\n"
    done = pairs(bad, "--latency", "0", "--qualify", "node5")
    assert done.returncode == 0, done.stderr
    assert "\nFAIL            1  node1" in done.stdout
    assert "\nQUALIFY node5: pass\n" in done.stdout


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
    slower = EIGHT.replace("rails = 1", "rails = 1\nrail_gb_per_s = 45")
    status, verdict, _ = answer(slower, "--latency", "0", "--baseline", run_id)

    assert status == 1
    assert {node["verdict"] for node in verdict["nodes"]} == {"fail"}
    assert all(f"(baseline {run_id})" in " ".join(node["evidence"]) for node in verdict["nodes"])
    tolerant, verdict, _ = answer(
        slower, "--latency", "0", "--baseline", run_id, "--tolerance", "15%"
    )
    assert (tolerant, nodes_of(verdict)) == (0, {})


def test_a_bar_is_kept_with_the_run(pairs, here):
    done = pairs(EIGHT, "--latency", "0", "--min-busbw", "55")
    again = here("pairwise", "--resume", "last")
    drained = here("drain", "last")

    assert (done.returncode, again.returncode) == (1, 1)
    assert "below 55 GB/s (--min-busbw)" in " ".join(again.stdout.split())
    assert drained.stdout.count("# scontrol update nodename=") == 8


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--baseline", "h100.json"), "pairs are held against an earlier run of 'pairwise', not"),
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
    [(1, 2, "1 node cannot be paired"), (2, 4, "nobody can tell which is the slow one")],
)
def test_few_nodes(pairs, nodes, status, words):
    done = pairs(EIGHT.replace("nodes = 8", f"nodes = {nodes}"), "--latency", "0")

    assert done.returncode == status, done.stderr
    assert words in " ".join((done.stdout + done.stderr).split())


def test_two_nodes_below_a_bar_are_both_below(pairs):
    done = pairs(EIGHT.replace("nodes = 8", "nodes = 2"), "--latency", "0", "--min-busbw", "55")

    assert done.returncode == 1, done.stdout


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
