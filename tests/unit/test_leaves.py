"""Which leaf a node is in: files, the nodes' own variables, scontrol, and which of them counts."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from collbench.errors import UsageError
from collbench.launch.leaves import (
    SIMULATED,
    SLURM_ADDRESS,
    SLURM_SCONTROL,
    Leaves,
    ask_scontrol,
    by_leaf,
    find_leaves,
    leaves_from_file,
    leaves_from_scontrol,
    own_leaf,
)

NODES = ["node0", "node1", "node2", "node3"]
TWO_LEAVES = {"node0": "leaf0", "node1": "leaf0", "node2": "leaf1", "node3": "leaf1"}
IN_SLURM = {"SLURM_JOB_ID": "7"}

TOPOLOGY_CONF = """\
# two leaves under one spine
SwitchName=leaf0 Nodes=node[0-1]   # the first rack
switchname=leaf1 LinkSpeed=400 NODES="node2,node3"
SwitchName=leaf9
SwitchName=spine \\
    Switches=leaf[0-1],leaf9
"""
SCONTROL = """\
SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=node[0-1]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[2-3]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[0-3] Switches=leaf[0-1]
"""


def never_asked():
    raise AssertionError("scontrol was asked")


@pytest.fixture
def write(tmp_path):
    def write_file(text: str) -> Path:
        path = tmp_path / "topology"
        path.write_text(text)
        return path

    return write_file


@pytest.mark.parametrize(
    "text",
    [
        TOPOLOGY_CONF,
        SCONTROL,
        "node0 leaf0\nnode1\tleaf0\n\nnode2 leaf1  # moved\nnode3 leaf1\n",
        "node[0-1] leaf0\nnode[2-3] leaf1\n",
        "leaf0: node[0-1]\nleaf1: node2 node3\n",
        "leaf0:node0, node1\nleaf1 : node[2,3]",
        "leaf0: node0 \\\n  node1\nnode[2-3] leaf1\n",
        "leaf0: node[0-1]\nleaf1: node[2-3] \\",
    ],
    ids=[
        "topology.conf",
        "scontrol's",
        "a node a line",
        "several nodes a line",
        "a leaf a line",
        "commas",
        "a line that goes on",
        "a line that goes on at the end",
    ],
)
def test_every_form_of_file_is_read(write, text):
    path = write(text)
    expected = Leaves(source=f"--topology {path}", leaf_of=TWO_LEAVES)
    assert leaves_from_file(path, NODES) == expected


def test_a_file_may_describe_more_nodes_than_are_asked_for(write):
    path = write("a: gpu[001-512]\nb: gpu[513-1024]\n")
    assert leaves_from_file(path, ["gpu600", "gpu001"]) == Leaves(
        source=f"--topology {path}", leaf_of={"gpu600": "b", "gpu001": "a"}
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "topology names no node; write 'leaf0: node[0-3]'"),
        ("# nothing\n", "names no node"),
        ("SwitchName=leaf0\n", "names no node"),
        ("leaf0: node[0-2]\n", "says no leaf of node3;"),
        ("leaf0: node[00-09]\n", "says no leaf of node0, node1, node2 and 1 more;"),
        ("leaf0: node[0-2] node03\n", "; did you mean 'node03'?"),
        ("node0 leaf0\nnode0 leaf1\n", "line 2: node0 is in leaf1, and in leaf0 by line 1;"),
        ("leaf0: node[0-3] node1\n", "line 1: node1 is in leaf0, and in leaf0 by line 1;"),
        (
            "SwitchName=a Nodes=x[1-9]\nSwitchName=b Nodes=x[9-11]\n",
            "line 2: x9 is in b, and in a by line 1;",
        ),
        ("leaf0: node0\n\nleaf0: node1\n", "line 3: leaf0 is there already, in line 1;"),
        (
            "SwitchName=a Nodes=x1\nSwitchName=a Nodes=x2\n",
            "line 2: a is there already, in line 1;",
        ),
        (
            "SwitchName=leaf0 Nodes=node0\nSwitchName=spine Switches=leaf[0-1]\n",
            "line 2: switch spine is above leaf1, which no line describes; add SwitchName=leaf1 or",
        ),
        (
            "SwitchName=leaf0 Nodes=node0\nSwitchName=spine Switches=leaf[0-1]\n",
            " or take it out; did you mean 'leaf0'?",
        ),
        (
            "SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n",
            "are joined in a circle; Switches= names those below",
        ),
        (
            "SwitchName=a Switches=a\n",
            "line 1: the switches a > a are joined in a circle",
        ),
        (
            "SwitchName=a Nodes=x\nnode0 leaf0\n",
            "line 2: 'node0 leaf0' is not understood; a switch",
        ),
        ("SwitchName=a Nodes=x Color=red\n", "'SwitchName=a Nodes=x Color=red' is not understood"),
        ("SwitchName=a Nodes=x Nodes=y\n", "line 1: 'SwitchName=a Nodes=x Nodes=y' is not under"),
        ("SwitchName= Nodes=x\n", "line 1: 'SwitchName= Nodes=x' is not understood"),
        ("SwitchName=a Nodes=x[1-\n", "line 1: 'x[1-' is no list of nodes"),
        ("BlockName=b Nodes=node[0-3]\n", "'BlockName=b Nodes=node[0-3]' is not understood; write"),
        ("node0\n", "line 1: 'node0' is not understood"),
        ("node0 node1 leaf0\n", "line 1: 'node0 node1 leaf0' is not understood"),
        ("leaf0:\n", "line 1: 'leaf0:' is not understood"),
        (": node0\n", "line 1: ': node0' is not understood"),
        ("my leaf: node0\n", "line 1: 'my leaf: node0' is not understood"),
        ("leaf0: node[3-0]\n", "line 1: 'node[3-0]' is no list of nodes"),
        ("# tree\n---\n- topology: tree\n", "line 2: topology.yaml is not read; write what"),
        ("- topology: tree\n", "line 1: topology.yaml is not read"),
        (f"{'x' * 500}\n", f"line 1: '{'x' * 80}...' is not understood"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_one_line(write, text, said):
    path = write(text)
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        leaves_from_file(path, NODES)
    assert str(caught.value).startswith(f"--topology {path}")
    assert "\n" not in str(caught.value)


def test_a_circle_is_shown_from_above(write):
    path = write("SwitchName=top Switches=low\nSwitchName=low Switches=top\n")
    with pytest.raises(UsageError, match=r"the switches (top > low > top|low > top > low) are"):
        leaves_from_file(path, NODES)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is no text"),
    ],
    ids=["missing", "a folder", "binary"],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, make, said):
    path = tmp_path / "topology"
    make(path)
    with pytest.raises(UsageError, match=re.escape(f"--topology {path} {said}")):
        leaves_from_file(path, NODES)


@pytest.mark.parametrize(
    ("address", "pattern", "name", "leaf"),
    [
        ("spine.leaf0.node0", "switch.switch.node", "node0", "leaf0"),
        ("leaf0.node0", "switch.node", "node0", "leaf0"),
        ("core.spine[0-1].leaf3.node7", "switch.switch.switch.node", "node7", "leaf3"),
        ("spine.leaf[0-7].node0", "switch.switch.node", "node0", "leaf[0-7]"),
        ("spine.leaf0.node0", "switch.switch.node", None, "leaf0"),
        ("spine.leaf0.node0.site.org", "switch.switch.node", "node0.site.org", "leaf0"),
        ("node0", "node", "node0", None),
        (None, None, "node0", None),
        ("spine.leaf0.node0", None, "node0", None),
        (None, "switch.switch.node", "node0", None),
        ("leaf0.node0", "switch.switch.node", None, None),
        ("spine..node0", "switch.switch.node", "node0", None),
        ("block0.node0", "block.node", "node0", None),
        ("torus:0:1:2.node0", "torus:x:y:z.node", "node0", None),
        ("spine.leaf0.node0", "switch.switch.node", "node1", None),
        ("spine.row.1.leaf0.node0", "switch.switch.node", "node0", None),
    ],
    ids=[
        "two tiers",
        "one tier",
        "three tiers",
        "a leaf a rail",
        "no name to hold it against",
        "dots in the node's name",
        "no plug-in",
        "no Slurm",
        "no pattern",
        "no address",
        "too short",
        "in no leaf",
        "blocks",
        "a torus",
        "of another node",
        "dots in a switch's name",
    ],
)
def test_a_node_reads_its_leaf_from_its_address(address, pattern, name, leaf):
    variables = {
        "SLURM_TOPOLOGY_ADDR": address,
        "SLURM_TOPOLOGY_ADDR_PATTERN": pattern,
        "SLURMD_NODENAME": name,
    }
    assert own_leaf({key: text for key, text in variables.items() if text is not None}) == leaf


@pytest.mark.parametrize(
    ("text", "leaf_of", "problem"),
    [
        (SCONTROL, TWO_LEAVES, None),
        (f"a banner of the site\n{SCONTROL}", TWO_LEAVES, None),
        (SCONTROL.replace("[2-3]", "2"), {}, "no leaf of node3;"),
        (SCONTROL.replace("node", "gpu"), {}, "no leaf of node0, node1, node2 and 1 more;"),
        (SCONTROL.replace("[2-3]", "[1-3]"), {}, "node1 is in leaf1, and in leaf0 by line 1;"),
    ],
    ids=["whole", "with a banner", "one is missing", "other names", "a node in two leaves"],
)
def test_scontrol_is_believed_whole_or_not_at_all(text, leaf_of, problem):
    found = leaves_from_scontrol(text, NODES)
    assert found is not None
    assert found.source == SLURM_SCONTROL
    assert found.leaf_of == leaf_of
    assert len(found.problems) == (problem is not None)
    if problem is not None:
        assert found.problems[0].startswith(f"leaves are not known from {SLURM_SCONTROL}: ")
        assert problem in found.problems[0]
        assert found.problems[0].endswith("; --topology FILE names them")


@pytest.mark.parametrize("text", ["", "No topology information available\n", "BlockName=b\n"])
def test_scontrol_may_have_nothing_to_say(text):
    assert leaves_from_scontrol(text, NODES) is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('echo "SwitchName=leaf0 $*"', "SwitchName=leaf0 show topology\n"),
        ("echo SwitchName=leaf0; exit 1", None),
        ("exec sleep 60", None),
    ],
    ids=["answers", "fails", "takes too long"],
)
def test_scontrol_is_called_from_the_path(tmp_path, monkeypatch, script, said):
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert ask_scontrol(0.5 if "sleep" in script else 30.0) == said


def test_a_scontrol_that_cannot_be_started_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_scontrol() is None
    program = tmp_path / "scontrol"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    assert ask_scontrol() is None


def test_the_file_goes_over_all_else(write):
    path = write("other: node[0-3]\n")
    found = find_leaves(NODES, TWO_LEAVES, file=path, environ=IN_SLURM, ask=never_asked)
    assert found == Leaves(source=f"--topology {path}", leaf_of=dict.fromkeys(NODES, "other"))


def test_the_nodes_own_words_go_over_scontrol():
    records = {**TWO_LEAVES, "node9": None}
    found = find_leaves(NODES, records, file=None, environ=IN_SLURM, ask=never_asked)
    assert found == Leaves(source=SLURM_ADDRESS, leaf_of=TWO_LEAVES)


@pytest.mark.parametrize(
    "records", [{}, dict.fromkeys(NODES), TWO_LEAVES | {"node2": None}], ids=["no", "none", "some"]
)
def test_scontrol_is_asked_where_a_node_says_nothing(records):
    found = find_leaves(NODES, records, file=None, environ=IN_SLURM, ask=lambda: SCONTROL)
    assert found == Leaves(source=SLURM_SCONTROL, leaf_of=TWO_LEAVES)


@pytest.mark.parametrize(
    ("environ", "ask"),
    [({}, never_asked), (IN_SLURM, lambda: None), (IN_SLURM, lambda: "No topology\n")],
    ids=["outside Slurm", "no scontrol", "no plug-in"],
)
def test_where_nobody_says_anything_nothing_is_known(environ, ask):
    assert find_leaves(NODES, {}, file=None, environ=environ, ask=ask) is None


def test_leaves_of_some_nodes_are_not_used():
    records = TWO_LEAVES | {"node2": None}
    found = find_leaves(NODES, records, file=None, environ={}, ask=never_asked)
    line = (
        f"leaves are not known from {SLURM_ADDRESS}: no leaf of node2; --topology FILE names them"
    )
    assert found == Leaves(source=SLURM_ADDRESS, leaf_of={}, problems=(line,))


def test_what_cannot_be_used_is_said_of_both():
    found = find_leaves(
        NODES,
        TWO_LEAVES | {"node2": None},
        file=None,
        environ=IN_SLURM,
        ask=lambda: SCONTROL.replace("[2-3]", "2"),
    )
    assert found is not None
    assert found.source == f"{SLURM_ADDRESS} and {SLURM_SCONTROL}"
    assert found.leaf_of == {}
    assert ["node2" in line for line in found.problems] == [True, False]
    assert ["node3" in line for line in found.problems] == [False, True]


def test_a_model_knows_its_own_leaves():
    found = find_leaves(
        NODES, TWO_LEAVES, file=None, environ=IN_SLURM, ask=never_asked, simulated=True
    )
    assert found == Leaves(source=SIMULATED, leaf_of=TWO_LEAVES)


def test_places_are_put_together_by_leaf_in_the_order_of_first_nodes():
    nodes = ["node3", "node0", "node2", "node1"]
    assert by_leaf(nodes, TWO_LEAVES) == [[0, 2], [1, 3]]
    assert by_leaf([], TWO_LEAVES) == []
