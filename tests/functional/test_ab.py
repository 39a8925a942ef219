"""``collbench ab`` over real Gloo processes: all sides in each repeat, and the comparison."""

from __future__ import annotations

from collections import defaultdict

import pytest

GLOOS = "GLOO_COLLBENCH_NOTHING"
"""Nobody reads it; in Gloo's name it takes fresh workers, but no import of torch, for each side."""
SIDES = ("--setting", "default", "--setting", "OMP_NUM_THREADS=1")


@pytest.mark.timeout(180)
def test_sides_are_interleaved_and_compared(collbench):
    done = collbench.run(
        "ab",
        *("--collective", "all_reduce", "--sizes", "1K,64K", "--repeats", "3", "-n", "10"),
        *("--setting", "default", "--setting", f"{GLOOS}=1"),
    )

    # Loopback is noisy: 4 where no case can be told.
    assert done.returncode in (0, 4), done.stderr
    stored = collbench.stored()
    assert (stored.run.command, stored.run.repeats) == ("ab", 3)
    sides = defaultdict(set)
    for trial in stored.trials:
        assert trial.status == "ok"
        sides[trial.repeat].add(trial.case.setting.get(GLOOS))
    assert dict(sides) == {repeat: {None, "1"} for repeat in range(3)}
    assert f"{GLOOS}=1 against default: 2 cases, 3 repeats each:" in done.stdout
    assert "faster than NCCL's own choice" not in done.stdout


def test_a_run_goes_on_with_its_own_repeats_and_threshold(here, collbench, tmp_path):
    model = tmp_path / "model.toml"
    model.write_text("ranks = 4\nalpha_us = 10.0\nbandwidth_gb_per_s = 100.0\nnoise = 0.01\n")
    question = ("--simulate", str(model), "--collective", "all_reduce", "--sizes", "1K,1M")
    whole = here("ab", *question, *SIDES, "--threshold", "7%")
    assert whole.returncode == 0, whole.stderr
    (folder,) = collbench.folders()
    lines = (folder / "trials.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "trials.jsonl").write_bytes(b"".join(lines[:-3]))

    done = here("ab", "--resume", str(folder))

    assert done.returncode == 0, done.stderr
    assert "OMP_NUM_THREADS=1 against default: 2 cases, 5 repeats each:" in done.stdout
    assert "SAME: the case's own 95 % interval lies within 7 %" in done.stdout
    assert len(collbench.stored().trials) == len(lines) == 20
