"""The file of a simulated fabric: what it may say, and how it is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from collbench.engine import fabric_file
from collbench.engine.fabric_engine import FabricEngine
from collbench.engine.fabric_layout import lay_out
from collbench.engine.simulated import SimulatedEngine
from collbench.engine.simulation import read_layout, read_simulation
from collbench.errors import UsageError
from collbench.model import NodeState, Policy

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "suites/fabrics").glob("*.toml"))


def written(tmp_path, text: str) -> Path:
    path = tmp_path / "fabric.toml"
    path.write_text(text)
    return path


def test_a_file_with_the_table_is_a_fabric(tmp_path):
    simulation = read_simulation(written(tmp_path, "[fabric]\nnodes = 3\ngpus_per_node = 2\n"))

    assert isinstance(simulation.make_executor(Policy()), FabricEngine)
    assert [place.node for place in simulation.topology.ranks] == [
        "node0", "node0", "node1", "node1", "node2", "node2",
    ]  # fmt: skip
    assert simulation.note == "3 nodes x 2 GPUs, 8 rails of 50 GB/s"
    assert simulation.remarks == ()


def test_a_file_without_it_is_the_small_model(tmp_path):
    simulation = read_simulation(written(tmp_path, "ranks = 3\n"))

    assert isinstance(simulation.make_executor(Policy()), SimulatedEngine)
    assert len(simulation.topology.ranks) == 3
    assert simulation.note is None


@pytest.mark.parametrize(
    ("table", "note"),
    [
        (
            "leaves = 2\noversubscription = 4",
            "4 nodes x 8 GPUs, 8 rails of 50 GB/s, 2 leaves (4:1,",
        ),
        ("leaves = 2\nrouting = 'none'", "2 leaves (no limit between them)"),
        ("leaves = [3, 1]\nuplinks = 2\nuplink_gb_per_s = 25", "2 leaves (3:1, adaptive)"),
        ("leaves = 2\ngpus_per_node = 1\nrails = 1", "4 nodes x 1 GPU, 1 rail of 50 GB/s, 2"),
    ],
)
def test_the_fabric_is_named_in_a_line(tmp_path, table, note):
    assert note in read_simulation(written(tmp_path, f"[fabric]\nnodes = 4\n{table}\n")).note


def test_nodes_have_what_a_topology_needs(tmp_path):
    text = (
        "[fabric]\nnames = ['a', 'b', 'c']\nleaves = [2, 1]\nrails = 2\ngpus_per_node = 1\n"
        "[[differs]]\nnode = 'b'\nwhat = 'driver 570 against 575'\n"
    )
    simulation = read_simulation(written(tmp_path, text))
    topology = simulation.topology

    assert [node.leaf for node in topology.nodes] == ["leaf0", "leaf0", "leaf1"]
    assert [nic.name for nic in topology.nodes[0].nics] == ["mlx5_0", "mlx5_1"]
    assert topology.nodes[0].nics[0].rate_gbit_per_s == 400
    assert [node.state for node in topology.nodes] == [
        NodeState.PRESENT, NodeState.EXCLUDED, NodeState.PRESENT,
    ]  # fmt: skip
    assert [(place.rank, place.node) for place in topology.ranks] == [(0, "a"), (1, "c")]
    assert simulation.remarks == ("b is left out: driver 570 against 575",)


TABLE = "[fabric]\nnodes = 4\nleaves = 2\n"

REFUSED = [
    ("[fabric]\n", "fabric needs nodes = COUNT, or names = [...]: one of the two"),
    ("[fabric]\nnodes = 2\nnames = ['a', 'b']\n", "one of the two"),
    ("[fabric]\nnames = ['a', 'a']\n", "fabric.names has a name twice, or an empty one"),
    ("[fabric]\nnodes = 0\n", "fabric.nodes is 0; it must be 1 or more"),
    ("[fabric]\nnodes = 20000\n", "fabric has 20000 nodes; allowed: 1 to 16384"),
    ("[fabric]\nnodes = 'two'\n", "Expected `int | null`, got `str` - at `$.fabric.nodes`"),
    ("[fabric]\nnodes = 2\nnode = 2\n", "unknown key fabric.node; did you mean 'nodes'? allowed"),
    ("ranks = 2\n[fabric]\nnodes = 2\n", "unknown key ranks; allowed: fabric, slow_node"),
    ("[fabric]\nnodes = 2\nalpha_us = { spin = 1 }\n", "unknown key fabric.alpha_us.spin;"),
    ("[fabric]\nnodes = 2\nalpha_us = { call = 0 }\n", "alpha_us.call is 0"),
    ("[fabric]\nnodes = 2\nrail_gb_per_s = inf\n", "rail_gb_per_s is inf; it must be above 0 and"),
    ("[fabric]\nnodes = 2\nseed = -1\n", "fabric.seed is -1; it must be 0 or more"),
    (
        "[fabric]\nnodes = 2\nrouting = 'ecmp'\n",
        "Invalid enum value 'ecmp' - at `$.fabric.routing`",
    ),
    ("[fabric]\nnodes = 2\nnoise = { size = nan }\n", "fabric.noise.size is nan"),
    (
        "[fabric]\nnodes = 2\nnoise = { kind = 'bimodal', size = 1 }\n",
        "fabric.noise.size is 1.0; it must be below 1",
    ),
    (TABLE + "nodes_a_leaf = 2\n", "fabric.leaves and fabric.nodes_a_leaf both say it"),
    ("[fabric]\nnodes = 4\nleaves = [2, 1]\n", "must be sizes above 0 that sum to 4"),
    ("[fabric]\nnodes = 4\nleaves = 5\n", "fabric.leaves is 5; allowed: 1 to 4, the nodes"),
    (TABLE + "uplink_gb_per_s = 10\n", "goes with uplinks = COUNT and without oversubscription"),
    (TABLE + "[[slow_node]]\nnode = 'node9'\nfactor = 0.5\n", "no node 'node9'; did you mean"),
    (TABLE + "[[slow_node]]\nnode = 4\nfactor = 0.5\n", "no node 4; allowed: 0 to 3"),
    (TABLE + "[[slow_node]]\nnode = 1\nfactor = 0\n", "factor 0.0 must be above 0 and at most 1"),
    (TABLE + "[[slow_node]]\nnode = 1\n", "missing required field `factor` - at `$.slow_node[0]`"),
    (TABLE + "[[slow_node]]\nnode = 1\nfactor = 1\ndir = 1\n", "unknown key slow_node.dir;"),
    (TABLE + "[[slow_rail]]\nnode = 1\nrail = 8\nfactor = 0.5\n", "no rail 8; allowed: 0 to 7"),
    (TABLE + "[[slow_path]]\na = 1\nb = 'node1'\nfactor = 0.5\n", "a and b are both node1"),
    (TABLE + "[[slow_uplink]]\nleaf = 2\nfactor = 0.5\n", "no leaf 2; allowed: 0 to 1"),
    (TABLE + "[[foreign]]\nleaf = 2\nshare = 0.5\n", "no leaf 2; allowed: 0 to 1"),
    (TABLE + "[[foreign]]\nleaf = 1\nshare = 1\n", "share 1.0 must be 0 or more and below 1"),
    (TABLE + "[[loss]]\nshare = 0.1\n", "names node, or a and b: one of the two"),
    (TABLE + "[[loss]]\nshare = 0.1\nnode = 1\na = 2\n", "names node, or a and b"),
    (TABLE + "[[hang]]\na = 1\n", "names node, or a and b: one of the two"),
    (TABLE + "[[split]]\ngroups = [[0], [1, 0]]\n", "node0 is in two groups of one split"),
    (
        "[fabric]\nnodes = 1\n[[differs]]\nnode = 0\nwhat = 'x'\n",
        "every node differs; leave one out",
    ),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_cannot_be_is_refused_in_a_line(tmp_path, text, why):
    path = written(tmp_path, text)

    with pytest.raises(UsageError) as refused:
        read_simulation(path)
    assert str(refused.value).startswith(f"--simulate {path}: ")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_fabrics_can_be_laid_out_and_say_what_they_are(path):
    assert path.read_text().startswith("# ")
    layout = read_layout(path)

    assert layout is not None
    assert len(layout.names) >= 8


def test_the_page_names_every_table_key_and_shipped_file():
    page = (ROOT / "docs/simulated_fabric.md").read_text()
    tables = [
        kind
        for kind in vars(fabric_file).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ]
    words = {field for kind in tables for field in kind.__struct_fields__}

    assert [word for word in sorted(words) if f"`{word}`" not in page] == []
    assert [path.stem for path in SHIPPED if f"`{path.stem}`" not in page] == []


def test_the_pages_example_is_a_fabric(tmp_path):
    page = (ROOT / "docs/simulated_fabric.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)

    file = fabric_file.parse_fabric_file(tmp_path, tomllib.loads(example))
    assert len(lay_out(file).names) == 64
