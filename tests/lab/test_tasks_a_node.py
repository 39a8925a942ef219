"""Two tasks a node, as one a GPU: they find each other, and stand together."""

from __future__ import annotations

from lab.sweeps import SWEEP, Sweeps

NODES = 2
A_NODE = 2
ARGUMENTS = ("--collective", "all_reduce", "--sizes", "1K", "-n", "20")


def test_torchrun_with_two_tasks_a_node(torchrun, lab, tmp_path):
    sweeps = Sweeps(lab, tmp_path / "sweeps")
    argv = [*SWEEP[1:], *ARGUMENTS]
    agents = torchrun(argv, nodes=NODES, ranks_a_node=A_NODE, env=sweeps.environ)

    done = [lab.finish(agent) for agent in agents]

    assert [one.returncode for one in done] == [0] * NODES, done
    assert done[0].stdout.startswith("NO GPU: CPUs over Gloo, 4 ranks on 2 nodes | ")
    stored = sweeps.stored()
    assert [str(trial.status) for trial in stored.trials] == ["ok"]
    assert [(p.rank, p.node, p.local_rank) for p in stored.topology.ranks] == [
        (0, "node0", 0),
        (1, "node0", 1),
        (2, "node1", 0),
        (3, "node1", 1),
    ]
    assert sweeps.foreign_files() == []
