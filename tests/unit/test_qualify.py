"""``--qualify NODE``: which nodes it is judged by."""

from __future__ import annotations

import pytest
from pair_states import made_node

from collbench.cli.qualify import chosen_members
from collbench.errors import UsageError

LEAVES = ["leaf0"] * 5 + ["leaf1"] * 4 + ["leaf2"]
NODES = [made_node(f"node{n}", leaf=leaf) for n, leaf in enumerate(LEAVES)]
ALL = range(len(NODES))


def refusal(*arguments) -> str:
    with pytest.raises(UsageError) as caught:
        chosen_members(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_without_it_all_that_can_take_part():
    assert chosen_members(None, None, NODES, [0, 2, 5]) == [0, 2, 5]


def test_three_others_of_its_own_leaf_come_first():
    assert chosen_members("node7", None, NODES, ALL) == [5, 6, 7, 8]
    assert chosen_members("node0", None, NODES, ALL) == [0, 1, 2, 3]


def test_where_its_leaf_is_small_others_fill_up():
    assert chosen_members("node9", None, NODES, ALL) == [0, 1, 2, 9]
    assert chosen_members("node7", None, NODES, [0, 1, 2, 7, 8]) == [0, 1, 7, 8]


def test_where_leaves_are_unknown_the_first_three():
    nodes = [made_node(f"node{n}") for n in range(6)]

    assert chosen_members("node1", None, nodes, range(6)) == [0, 1, 2, 3]


def test_against_a_leaf():
    assert chosen_members("node9", "leaf1", NODES, ALL) == [5, 6, 7, 9]
    assert chosen_members("node6", "leaf1", NODES, ALL) == [5, 6, 7, 8]


@pytest.mark.parametrize("text", ["node2\nnode3\nnode8\n", "node[2-3] node8", "node[2-3,8-9]\n"])
def test_against_the_nodes_in_a_file(tmp_path, text):
    path = tmp_path / "good"
    path.write_text(text)

    assert chosen_members("node9", str(path), NODES, ALL) == [2, 3, 8, 9]


def test_nodes_in_the_file_that_are_not_here_do_not_count(tmp_path):
    path = tmp_path / "good"
    path.write_text("gpu17\nnode1\nnode2\nnode3\n")

    assert chosen_members("node0", str(path), NODES, ALL) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("qualify", "against", "able", "text"),
    [
        (
            "nodes7",
            None,
            range(3),
            (
                "--qualify nodes7: no such node takes part; did you mean 'node2'? here are node0,"
                " node1, node2"
            ),
        ),
        (
            "gpu",
            None,
            ALL,
            (
                "--qualify gpu: no such node takes part; here are node0, node1, node2, node3,"
                " node4, node5, node6, node7 ..."
            ),
        ),
        (
            "node1",
            None,
            range(3),
            (
                "--qualify node1: 2 other nodes are here, 3 that are known to be good are needed;"
                " start it on them as well"
            ),
        ),
        (
            "node1",
            None,
            range(2),
            (
                "--qualify node1: 1 other node is here, 3 that are known to be good are needed;"
                " start it on them as well"
            ),
        ),
        (
            "node0",
            "leaf2",
            ALL,
            (
                "--qualify node0: 1 other node of --against leaf2 is here, 3 that are known to be"
                " good are needed; start it on them as well"
            ),
        ),
        (
            "node0",
            "leaf7",
            ALL,
            (
                "--against leaf7 is neither a file nor a leaf; did you mean 'leaf2'? leaves: leaf0,"
                " leaf1, leaf2"
            ),
        ),
        (
            "node0",
            "rack/x",
            ALL,
            "--against rack/x is neither a file nor a leaf; leaves: leaf0, leaf1, leaf2",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_line(qualify, against, able, text):
    assert refusal(qualify, against, NODES, able) == text


def test_leaves_that_are_not_known_are_said():
    nodes = [made_node(f"node{n}") for n in range(6)]

    assert refusal("node1", "leaf1", nodes, range(6)) == (
        "--against leaf1 is neither a file nor a leaf; leaves: not known"
    )


@pytest.mark.parametrize("content", [b"node[3-", b"\xff\xfe\x00", b"node[5-1]"])
def test_a_file_that_cannot_be_read_is_said_in_a_line(tmp_path, content):
    path = tmp_path / "good"
    path.write_bytes(content)

    assert refusal("node1", str(path), NODES, ALL).startswith(f"--against {path}: ")


def test_an_empty_file_is_nobody(tmp_path):
    path = tmp_path / "good"
    path.write_text("")

    assert "0 other nodes of --against" in refusal("node1", str(path), NODES, ALL)
