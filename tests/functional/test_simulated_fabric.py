"""The whole command on a fabric of nodes."""

from pathlib import Path

import pytest

FABRICS = Path(__file__).parents[2] / "suites/fabrics"


def test_a_sweep_over_512_ranks_has_the_fabrics_figures(here, collbench, tmp_path):
    path = tmp_path / "fabric.toml"
    text = (FABRICS / "leaf_spine_64.toml").read_text()
    path.write_text(text.replace("noise = { size = 0.005 }\n", ""))
    done = here(
        "sweep", "--simulate", str(path), "--collective", "all_to_all,all_reduce", "--sizes", "1G"
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "SIMULATED: a model answered, no hardware was measured | 64 nodes x 8 GPUs, 8 rails of"
        " 50 GB/s, 4 leaves (2:1, adaptive) |"
    )
    stored = collbench.stored()
    assert stored.run.simulated
    assert [node.leaf for node in stored.topology.nodes[::16]] == [
        "leaf0", "leaf1", "leaf2", "leaf3",
    ]  # fmt: skip
    by_name = {trial.case.collective: trial for trial in stored.trials}
    # Ring: 8 NICs x 50 GB/s, and a round of 64 x (7 hops of 1 us, 60 of 3 us or 4 of 5 us).
    latency_us = 5 + 2 * 511 / 512 * (64 * 7 * 1 + 60 * 3 + 4 * 5)
    ring_us = latency_us + 2 * 511 / 512 * 2**30 / 400e3
    assert by_name["all_reduce"].summary.median_us == pytest.approx(ring_us)
    # A leaf's 16 GPUs of a rail send 3/4 of what they have over 16 / 2 x 50 GB/s.
    across_us = 5 + 5 + 16 * 0.75 * 2**30 / 400e3
    assert by_name["all_to_all"].summary.median_us == pytest.approx(across_us)


def test_a_run_can_be_resumed_and_shown(here, collbench):
    fabric = str(FABRICS / "healthy_8.toml")
    done = here("sweep", "--simulate", fabric, "--sizes", "1M", "--repeats", "2")
    assert done.returncode == 0, done.stderr
    kept = [trial.summary.median_us for trial in collbench.stored().trials]
    again = here("sweep", "--resume", "last")

    assert again.returncode == 0, again.stderr
    assert [trial.summary.median_us for trial in collbench.stored().trials] == kept
    assert len(set(kept)) == len(kept) == 6


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("hang_8", "rank 48, 49, 50, 51, 52, 53, 54, 55 (on node6) stopped"),
        ("split_8", "not ready: rank 0 and 63 more; their nodes are split"),
    ],
)
def test_a_fault_ends_the_command_with_its_words(here, name, word):
    done = here("sweep", "--simulate", str(FABRICS / f"{name}.toml"), "--sizes", "1M")

    assert done.returncode == 4, done.stderr
    assert word in " ".join(done.stdout.split())


def test_who_is_left_out_is_named(here):
    done = here(
        "sweep", "--simulate", str(FABRICS / "faults_16.toml"), "--sizes", "1M", "--dry-run"
    )

    assert done.returncode == 0, done.stderr
    assert "  node04 is left out: driver 570.86.15 against 575.51.03" in done.stdout


def test_a_fabric_that_cannot_be_is_refused_in_a_line(here, tmp_path):
    path = tmp_path / "fabric.toml"
    path.write_text("[fabric]\nnodes = 2\nrail = 8\n")
    done = here("sweep", "--simulate", str(path))

    assert done.returncode == 2
    assert done.stdout == ""
    assert "unknown key fabric.rail; did you mean 'rails'? allowed: nodes, names" in done.stderr
    assert len(done.stderr.splitlines()) == 1
