"""One sweep over four nodes under each launcher: the same cases, at the rate of the links."""

from __future__ import annotations

import pytest
from lab.sweeps import SWEEP, Sweeps

ARGUMENTS = ("--collective", "all_reduce", "--sizes", "8,64K,1M", "-n", "20")
CASES = {
    4: [
        "all_reduce/float32/sum/8B/eager#6d509fa8",
        "all_reduce/float32/sum/64KiB/eager#ff10b272",
        "all_reduce/float32/sum/1MiB/eager#200b71f3",
    ],
    8: [
        "all_reduce/float32/sum/8B/eager#79ff8503",
        "all_reduce/float32/sum/64KiB/eager#244a0566",
        "all_reduce/float32/sum/1MiB/eager#e2cac6e3",
    ],
}
"""By how many nodes take part."""
LINK_MBIT_PER_S = 50
"""So slow that two cores with other work keep up with eight ranks."""
SHARE = 0.94
"""Of a link's rate that TCP's payload gets."""
DEADLINE_S = 120


@pytest.fixture(params=[4, pytest.param(8, marks=pytest.mark.soak)], ids="{} nodes".format)
def nodes(request):
    """How many take part: each imports torch, eight of them keep two cores busy for a minute."""
    return request.param


@pytest.fixture
def sweeps(lab, tmp_path, nodes):
    for index in range(nodes):
        lab.fabric.set_rate(index, LINK_MBIT_PER_S)
    return Sweeps(lab, tmp_path / "sweeps")


def test_plain(sweeps, lab, nodes):
    processes = sweeps.start_plain(nodes, *ARGUMENTS)

    assert_measured(sweeps, nodes, [lab.finish(one, DEADLINE_S) for one in processes])


def test_srun(srun, sweeps, lab, nodes):
    process = srun([*SWEEP, *ARGUMENTS], nodes=nodes, env=sweeps.environ)

    assert_measured(sweeps, nodes, [lab.finish(process, DEADLINE_S)])


def test_torchrun(torchrun, sweeps, lab, nodes):
    agents = torchrun([*SWEEP[1:], *ARGUMENTS], nodes=nodes, env=sweeps.environ)

    assert_measured(sweeps, nodes, [lab.finish(agent, DEADLINE_S) for agent in agents])


def test_mpirun(mpirun, sweeps, lab, nodes):
    """Over MPI itself where mpi4py is installed, else by a file in the results folder."""
    handed_on = [word for name in sweeps.environ for word in ("-x", name)]
    argv = [*SWEEP, *ARGUMENTS]
    process = mpirun(argv, nodes=nodes, options=handed_on, env=sweeps.environ)

    assert_measured(sweeps, nodes, [lab.finish(process, DEADLINE_S)])


def assert_measured(sweeps, nodes, done):
    assert [one.returncode for one in done] == [0] * len(done), done
    stored = sweeps.stored()
    ended = [(str(trial.status), trial.case_id) for trial in stored.trials]
    assert ended == [("ok", case) for case in CASES[nodes]]
    assert stored.run.exit_code == 0
    names = [f"node{index}" for index in range(nodes)]
    assert [node.name for node in stored.topology.nodes] == names
    places = [(place.rank, place.node) for place in stored.topology.ranks]
    assert places == list(enumerate(names))
    found_mbit_per_s = stored.trials[-1].summary.busbw_gb_per_s * 8000
    assert found_mbit_per_s == pytest.approx(SHARE * LINK_MBIT_PER_S, rel=0.1)
    assert sweeps.foreign_files() == []
