"""``collbench drain``: a line for each node that fails for certain; nothing is run."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from click.testing import CliRunner
from pair_states import Pairs
from stored_runs import put, stored_run

from collbench.analyze import pair_rows
from collbench.analyze.pair_state import Reference
from collbench.analyze.pair_types import PairKind
from collbench.cli.drain import drain

RUN_ID = "20261130-0412-7f3a"
LINE = (
    "scontrol update nodename=node5 state=drain"
    ' reason="collbench 20261130-0412{mark} node_slow -50%"'
)


@pytest.fixture
def drained(tmp_path, monkeypatch):
    """Returns what the command says of a run with a state."""
    # Modules that take the function's name when they are imported must not keep the stand-in.
    for name in ("analyze.pair_levels", "cli.pairwise_output"):
        import_module(f"collbench.{name}")

    def say(state, *arguments, **changes):
        monkeypatch.setattr(pair_rows, "state_of_run", lambda stored, reference=None: state)
        fields = {"command": "pairwise", "exit_code": 1} | changes
        if not (tmp_path / "lab").exists():
            put(stored_run([], RUN_ID, **fields), tmp_path / "lab")
        return CliRunner().invoke(
            drain, [RUN_ID, "--results", str(tmp_path), *arguments], standalone_mode=False
        )

    return say


def test_a_failing_node_has_its_line(drained):
    result = drained(Pairs(leaf=4, slow={5: 0.5}).state())

    assert result.stdout == LINE.format(mark="") + "\n"
    assert result.return_value == 0


@pytest.mark.parametrize(
    "state",
    [Pairs(leaf=4).state(), Pairs(leaf=4, slow={5: 0.5}).state(confirm=False)],
    ids=["none", "not-confirmed"],
)
def test_nothing_to_drain_is_said(drained, state):
    result = drained(state)

    assert result.stdout == f"nothing to drain: no node of run {RUN_ID} fails for certain\n"
    assert result.return_value == 0


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"simulated": True}, " simulated"),
        ({"emulated": True}, " emulated"),
        ({"planted": "stop:5"}, " planted"),
    ],
)
def test_lines_of_what_is_no_hardware_are_comments(drained, changes, mark):
    result = drained(Pairs(leaf=4, slow={5: 0.5}).state(), **changes)

    assert result.stdout == "# " + LINE.format(mark=mark) + "\n"


def test_json_is_one_object(drained):
    result = drained(Pairs(leaf=4, slow={5: 0.5}).state(), "--json")

    assert json.loads(result.stdout) == {
        "run_id": RUN_ID,
        "simulated": False,
        "drain": [
            {
                "node": "node5",
                "reason": "collbench 20261130-0412 node_slow -50%",
                "line": LINE.format(mark=""),
            }
        ],
        "refused": [],
    }
    assert json.loads(drained(Pairs(4).state(), "--json").stdout)["drain"] == []


def test_of_nodes_below_a_bar_the_line_says_the_bar(drained):
    bar = Reference(source="--min-busbw", at_least={(PairKind.SEND_RECV, None): 60.0})

    lines = drained(Pairs(4).state(reference=bar)).stdout.splitlines()

    assert lines == [
        f"scontrol update nodename=node{n} state=drain"
        ' reason="collbench 20261130-0412 node_slow -20% against --min-busbw"'
        for n in range(4)
    ]


def test_a_name_that_is_no_host_name_is_refused_and_the_others_are_not(drained):
    names = tuple("all" if n == 3 else f"node{n}" for n in range(8))
    state = Pairs(leaf=4, slow={3: 0.5, 5: 0.5}, names=names).state()

    result = drained(state)

    assert result.stdout == LINE.format(mark="") + "\n"
    assert result.stderr == (
        "collbench: node 'all' is not a plain host name (letters, digits, '.', '-', '_'; not"
        " 'all'); no line is written for it\n"
    )
    assert result.return_value == 4
    assert json.loads(drained(state, "--json").stdout)["refused"][0]["node"] == "all"


def test_a_run_of_another_command_is_refused(drained):
    result = drained(Pairs(4).state(), command="sweep")

    assert str(result.exception) == (
        f"run '{RUN_ID}' is of 'sweep', which 'drain' does not read; these do: show, plot,"
        " report, compare, analyze, baseline, export"
    )
