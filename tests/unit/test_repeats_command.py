"""The command that measures a run again, with repeats enough."""

from __future__ import annotations

import pytest

from collbench.report.repeats_command import repeats_command


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["sweep"], "collbench sweep --repeats 7"),
        (["sweep", "a b"], "collbench sweep 'a b' --repeats 7"),
        (["sweep", "--repeats", "3", "-e", "1G"], "collbench sweep -e 1G --repeats 7"),
        (["sweep", "--repeats=3", "--repeats"], "collbench sweep --repeats 7"),
        (["ab", "-N", "3", "-n", "10"], "collbench ab -n 10 --repeats 7"),
        (["sweep", "-N3", "-e", "1G"], "collbench sweep -e 1G --repeats 7"),
        (
            ["import", "nccl-tests", "a.txt"],
            "collbench import nccl-tests FILE..., of 7 runs of nccl-tests",
        ),
        (["sweep", "-e", "1G", "--json"], "collbench sweep -e 1G --repeats 7"),
    ],
)
def test_it_is_the_runs_own_with_other_repeats(argv, command):
    assert repeats_command(argv, 7) == command


def test_enough_repeats_are_five():
    assert repeats_command(["sweep"]) == "collbench sweep --repeats 5"
