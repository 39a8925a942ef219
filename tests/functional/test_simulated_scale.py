"""The whole ``scale`` command over fabrics whose uplinks are known: the right answer each time."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from pathlib import Path

import pytest
from course_runs import FABRICS, answer_of, cut

from collbench.model import Status
from collbench.store import read_run

SHORT = ("--patterns", "pairs,inside,half", "--repeats", "2", "--redraws", "3")
PAIRS = ("--patterns", "pairs,inside", "--repeats", "1", "--redraws", "4")


def fabric(nodes: int = 8, *, leaves: object = 2, noise: float = 0.01, more: str = "") -> str:
    """Nodes with one link of 25 MB/s each, as over slow Ethernet; two leaves of equal size."""
    return (
        f"[fabric]\nnodes = {nodes}\ngpus_per_node = 1\nrails = 1\nleaves = {leaves}\n"
        f"rail_gb_per_s = 0.025\nnoise = {{ size = {noise}, jitter = 0.005 }}\n{more}\n"
    )


@pytest.fixture
def scaled(on_fabric):
    """Runs the command on a fabric."""
    return partial(on_fabric, "scale")


@pytest.fixture
def answer(scaled):
    """Returns the exit status and the answer of a run, with whatever is said beside it."""

    def run(asked: str | Path, *options: str):
        return answer_of(scaled(asked, "--json", *options))

    return run


KNEES = {
    # Uplinks of so many node links; nodes of the largest leaf over that.
    "2:1": (fabric(more="oversubscription = 2"), 2.0),
    "4:1": (fabric(more="oversubscription = 4"), 4.0),
    "4 leaves of 2 nodes": (fabric(leaves=4, more="oversubscription = 2"), 2.0),
    "unequal leaves": (
        fabric(11, leaves=[5, 2, 4], more="uplinks = 1\nuplink_gb_per_s = 0.05"),
        2.5,
    ),
    "a leaf with one node": (
        fabric(9, leaves=[4, 1, 4], more="uplinks = 1\nuplink_gb_per_s = 0.05"),
        2.0,
    ),
}


@pytest.mark.parametrize("name", KNEES)
def test_the_ratio_is_found(answer, name):
    text, ratio = KNEES[name]
    status, found, said = answer(text, *SHORT)
    shown = found["oversubscription"]

    assert (status, found["answer"], found["exit"]) == (0, "knee", 0), said
    assert found["simulated"] is True
    assert shown["value"] == pytest.approx(ratio, rel=0.02)
    # Half a per cent of noise in the mean of a step is in no interval.
    assert shown["low"] * 0.99 <= ratio <= shown["high"] * 1.01
    assert found["knee"]["flows_high"] - found["knee"]["flows_low"] < 1
    assert found["slow_nodes"] == []


def test_enough_uplinks_have_no_knee(answer):
    status, found, said = answer(fabric(more="oversubscription = 1"), *SHORT)

    assert (status, found["answer"]) == (0, "no_knee"), said
    assert found["oversubscription"]["value"] is None
    assert found["oversubscription"]["high"] < 1.05


@pytest.mark.parametrize(
    ("ratio", "expected"), [(1, "no_knee"), (2, "knee")], ids=["hashed 1:1", "hashed 2:1"]
)
def test_collisions_are_told_from_oversubscription(answer, ratio, expected):
    more = f"oversubscription = {ratio}\nrouting = 'hashed'"
    status, found, said = answer(
        fabric(16, more=more), "--patterns", "pairs,inside", "--repeats", "1"
    )

    assert (status, found["answer"]) == (0, expected), said
    assert found["collisions"]["there"] is True
    if ratio == 2:
        assert found["oversubscription"]["value"] == pytest.approx(2.0, rel=0.2)
    else:
        assert found["headline"].startswith("No oversubscription; collisions: median ")


def test_a_slow_node_among_healthy_uplinks_is_a_node_and_no_knee(scaled):
    text = fabric(more="oversubscription = 1\n[[slow_node]]\nnode = 5\nfactor = 0.33")
    done = scaled(text, *SHORT)

    assert done.returncode == 0, done.stderr
    assert "\nNo knee up to " in done.stdout
    assert "slow whatever the partner: node 5 (67% slower, " in done.stdout
    assert "  next      look at node 5 first: collbench pairwise\n" in done.stdout


def test_all_patterns_agree_and_the_rings_show_what_jobs_feel(scaled):
    done = scaled(fabric(noise=0.02, more="oversubscription = 2"), "--repeats", "2")
    text = " ".join(done.stdout.split())

    assert done.returncode == 0, done.stderr
    assert re.search(r"Knee: a leaf's uplinks carry (1\.9[5-9]|2\.0[0-5]) ", text)
    # 2 of 4 links of 25 MB/s.
    assert re.search(r" of 10[01] MB/s\)\.", text)
    assert text.count("in agreement") == 3
    assert "disagreement" not in text
    assert "half to the other half on 8 nodes, MB/s: 12." in text
    assert "interleaved" in text
    assert "jitter: none up to 8 nodes, p95 at most 1.0" in text
    assert max(map(len, done.stdout.split("\n\n")[1].splitlines())) <= 120


def test_nodes_of_one_leaf_see_no_uplinks(scaled):
    """8 GPUs a node: one node alone runs too, which has no halves."""
    done = scaled(FABRICS / "healthy_8.toml", "--repeats", "1")

    assert done.returncode == 4, done.stderr
    assert "\nCannot tell: cannot see uplinks: the 8 nodes are in one leaf.\n" in done.stdout
    assert "no host limit: up to 4 pairs at once inside leaves" in " ".join(done.stdout.split())
    for title in ("Pairs inside leaves at once: GB/s", "half to the other half: GB/s"):
        assert title in done.stdout
    assert "\nall_reduce: GB/s busbw" in done.stdout


FEW = {
    "two nodes of two leaves": (fabric(2), 4, "Cannot tell: 1 different numbers of flows"),
    "two nodes of one leaf": (fabric(2, leaves=1), 4, "cannot see uplinks: the 2 nodes"),
    "three nodes": (fabric(3, leaves=[2, 1]), 4, "Cannot tell: 2 different numbers of flows"),
}


@pytest.mark.parametrize("name", FEW)
def test_few_nodes_have_their_rates_and_no_knee(scaled, name):
    text, status, words = FEW[name]
    done = scaled(text, "--repeats", "1", "--redraws", "2")

    assert done.returncode == status, done.stderr
    assert words in done.stdout
    assert "all_reduce: MB/s busbw" in done.stdout
    assert "  2          " in done.stdout


REFUSED = {
    "one node": ((fabric(1, leaves=1),), "1 node cannot be scaled: it takes two and more; start"),
    "an unknown pattern": (
        (fabric(), "--patterns", "pair"),
        "there is no pattern 'pair'; did you mean 'pairs'?;",
    ),
    "a run that is not there": ((fabric(), "--from-pairwise", "nine"), "nine"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_a_line(scaled, collbench, name):
    arguments, words = REFUSED[name]
    done = scaled(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert collbench.folders() == []


CONF = "SwitchName=l0 Nodes=node[0-3]\nSwitchName=l1 Nodes=node[4-{last}]\n{more}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CONF.format(last=7, more="SwitchName=a Switches=b\nSwitchName=b Switches=a\n"), "a"),
        (CONF.format(last=6, more=""), "says no leaf of node7"),
    ],
    ids=["a cycle", "an unknown node"],
)
def test_a_topology_that_cannot_be_is_said_in_a_line(scaled, tmp_path, text, words):
    path = tmp_path / "topology.conf"
    path.write_text(text)
    done = scaled(fabric(more="oversubscription = 2"), "--topology", str(path))

    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("ratio", "bar", "status"),
    [(2, "1.5", 1), (2, "3:1", 0), (2, "2", 4), (1, "1.5", 0), (1, "1", 4)],
    ids=["broken", "kept", "cannot tell", "no knee, kept", "no knee, cannot tell"],
)
def test_a_bar_is_broken_kept_or_cannot_be_told(answer, collbench, ratio, bar, status):
    text = fabric(noise=0.03, more=f"oversubscription = {ratio}")
    code, found, said = answer(text, *PAIRS, "--max-oversubscription", bar)

    assert (code, found["exit"]) == (status, status), said
    (finding,) = collbench.stored().run.findings
    assert finding.severity == ("bad" if status == 1 else "info")


def test_a_node_that_hangs_is_left_out_after_three_rounds(scaled, collbench):
    text = fabric(more="oversubscription = 2\n[[hang]]\nnode = 6")
    done = scaled(text, *SHORT)
    hung = [t for t in collbench.stored().trials if t.status is Status.HUNG]

    assert done.returncode == 4, done.stderr
    assert "\nKnee: a leaf's uplinks carry 2.0" in done.stdout
    assert len({trial.group.round for trial in hung}) == 3
    said = " ".join(done.stdout.split())
    assert "missing node6 lost (3 rounds with it broke off, so it was left out" in said
    assert "collbench pairwise --qualify node6" in said


def test_too_many_failures_say_which(scaled):
    done = scaled(FABRICS / "split_8.toml", *PAIRS)

    assert done.returncode == 4, done.stderr
    # All pairs across: 4 steps x 4 draws, and once more each at the small size.
    said = " ".join(done.stdout.split())
    assert "36 steps have no rate (pairs: 20 hung)." in said


def test_a_dry_run_tells_the_plan_and_keeps_nothing(here, collbench):
    done = here("scale", "--simulate", str(FABRICS / "large_4096.toml"), *PAIRS, "--dry-run")

    assert done.returncode == 0, done.stderr
    assert "plan: 4096 nodes, " in done.stdout
    assert "node-hours    run not started (--dry-run)" in done.stdout
    assert collbench.folders() == []


def test_leaves_come_from_a_run_of_pairwise(here, scaled, answer, collbench):
    text = fabric(more="oversubscription = 2")
    scaled(text, *PAIRS)  # writes the fabric's file
    (other,) = collbench.folders()
    path = str(Path(other).parents[2] / "fabric.toml")
    pairs = here("pairwise", "--simulate", path, "--latency", "0", "--size", "1M", "--rounds", "2")
    run_id = pairs.stdout.split("Kept in ")[1].split("\n")[0].rpartition("/")[2]
    status, found, said = answer(text, *PAIRS, "--from-pairwise", run_id)
    refused = scaled(text, *PAIRS, "--from-pairwise", other.name)

    assert (status, found["answer"]) == (0, "knee"), said
    assert found["leaves_source"] == f"run {run_id} of pairwise"
    assert [len(leaf) for leaf in found["leaves"]] == [4, 4]
    assert refused.returncode == 2
    assert "is a run of 'scale'; give one of 'pairwise'" in refused.stderr


@pytest.mark.parametrize("lines", [3, 31])
def test_a_run_that_was_cut_off_goes_on(answer, here, collbench, lines):
    _, whole, _ = answer(fabric(more="oversubscription = 2"), *SHORT)
    (folder,) = collbench.folders()
    before = {t.trial_id: t.started_at for t in read_run(folder).trials}
    cut(folder, lines)
    done = here("scale", "--resume", "last", "--json")
    found, stored = json.loads(done.stdout), read_run(folder)

    assert done.returncode == 0, done.stderr
    assert f"resuming: {lines} trials are there" in done.stderr
    assert "  with the options of before: collbench scale --simulate " in done.stderr
    assert found["oversubscription"]["value"] == pytest.approx(2.0, rel=0.02)
    assert [len(one["steps"]) for one in found["curves"]] == [
        len(one["steps"]) for one in whole["curves"]
    ]
    assert sum(before.get(t.trial_id) == t.started_at for t in stored.trials) == lines
    assert len(stored.run.resumed_at) == 1


def test_a_run_that_is_whole_says_the_same_again_and_has_a_new_bar(answer, here, collbench):
    _, first, _ = answer(fabric(more="oversubscription = 2"), *PAIRS)
    count = collbench.trials_kept()
    again = here("scale", "--resume", "last", "--json")
    barred = here("scale", "--resume", "last", "--json", "--max-oversubscription", "1.5")

    assert (again.returncode, barred.returncode) == (0, 1)
    assert json.loads(again.stdout)["headline"] == first["headline"]
    assert collbench.trials_kept() == count
    assert collbench.stored().run.suite["max_oversubscription"] == 1.5


def test_another_question_is_not_a_run_that_goes_on(scaled, collbench):
    scaled(fabric(), *PAIRS)
    run_id = collbench.stored().run.run_id
    fewer = scaled(fabric(6), *PAIRS, "--resume", "last")
    other = scaled(fabric(), *PAIRS, "--resume", "last", "--step", "2")

    assert (fewer.returncode, other.returncode) == (2, 2)
    assert fewer.stderr == (
        f"collbench: run {run_id} cannot be resumed: it was of other nodes: 2 missing (node6,"
        " node7); start a new run\n"
    )
    assert other.stderr == (
        f"collbench: run {run_id} cannot be resumed: step was None and is 2; give the options of"
        " before, or --resume alone\n"
    )


def test_what_is_interrupted_has_its_answer_and_goes_on(collbench, tmp_path, here, wait):
    path = tmp_path / "fabric.toml"
    path.write_text(fabric(64, more="oversubscription = 4"))
    process = collbench.start("scale", "--simulate", str(path), "--seed", "3", *PAIRS)
    wait(lambda: collbench.trials_kept() > 40 or process.poll() is not None, "40 trials")
    process.send_signal(signal.SIGINT)
    done = collbench.finish()
    goes_on = here("scale", "--resume", "last", "--json")

    assert done.returncode == 130, done.stderr
    assert "interrupted; kept " in done.stderr
    assert "Kept in " in done.stdout
    assert goes_on.returncode == 0, goes_on.stderr
    assert json.loads(goes_on.stdout)["oversubscription"]["value"] == pytest.approx(4, rel=0.02)
