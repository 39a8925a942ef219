"""``collbench ab`` over real Gloo processes: all sides in each repeat, and the comparison."""

from __future__ import annotations

from collections import defaultdict

import pytest

SIDES = ("--setting", "default", "--setting", "OMP_NUM_THREADS=1")


@pytest.mark.timeout(180)
def test_sides_are_interleaved_and_compared(collbench):
    done = collbench.run(
        "ab",
        *("--collective", "all_reduce", "--sizes", "1K,64K", "--repeats", "3", "-n", "10"),
        *SIDES,
    )

    # Loopback is noisy: 4 where no case can be told.
    assert done.returncode in (0, 4), done.stderr
    stored = collbench.stored()
    assert (stored.run.command, stored.run.repeats) == ("ab", 3)
    sides = defaultdict(set)
    for trial in stored.trials:
        assert trial.status == "ok"
        sides[trial.repeat].add(trial.case.setting.get("OMP_NUM_THREADS"))
    assert dict(sides) == {repeat: {None, "1"} for repeat in range(3)}
    assert "OMP_NUM_THREADS=1 against default: 2 cases, 3 repeats each:" in done.stdout
    assert "faster than NCCL's own choice" not in done.stdout
