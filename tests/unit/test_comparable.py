"""What two sides differ in: shape, software, measuring; which sides are refused."""

from __future__ import annotations

import msgspec
import pytest
from records import make_trial
from setting_trials import RAN_RING, TREE, under
from stored_runs import environment_of, law, stored_run, topology_of, trials_of

from collbench.analyze.comparable import differences
from collbench.errors import UsageError
from collbench.model import LibraryVersion, Nic, Pattern, Policy, Proof

TRIALS = trials_of(law(10, 100), sizes=[8], repeats=1)
IB = [Nic(name=f"mlx5_{k}", kind="infiniband", rate_gbit_per_s=400, state="up") for k in range(4)]
ETHERNET = Nic(name="eth0", kind="ethernet", rate_gbit_per_s=25, state="up")
OVER_IB = Proof(ranks=4, transports=["NET/IB"], network="IB", devices=["mlx5_0", "mlx5_1"])


def proved(proof: Proof):
    return [msgspec.structs.replace(trial, proof=proof) for trial in TRIALS]


def texts(found):
    return [one.text for one in found]


def test_equal_runs_differ_in_nothing_whatever_the_host_is_called():
    base, new = topology_of(), topology_of()
    renamed = msgspec.structs.replace(base.nodes[0], name="other")
    places = [msgspec.structs.replace(place, node="other") for place in base.ranks]
    found = differences(
        [stored_run(TRIALS, topology=msgspec.structs.replace(base, nodes=[renamed], ranks=places))],
        [stored_run(TRIALS, "20261130-0500-bb22", topology=new)],
    )

    assert (found.shape, found.software, found.measuring, found.planted) == ((), (), (), ())


@pytest.mark.parametrize(
    ("base", "new", "lines"),
    [
        (
            {},
            {"topology": topology_of(model="NVIDIA H100")},
            ["hardware: NVIDIA H200 -> NVIDIA H100"],
        ),
        (
            {"topology": topology_of(2, 2)},
            {"topology": topology_of(1, 4)},
            ["placement: 2 nodes x 2 GPUs -> 1 node x 4 GPUs", "NICs: none -> none"],
        ),
        (
            {},
            {"topology": topology_of(gpus=4)},
            ["placement: 1 node x 2 GPUs -> 1 node x 4 GPUs", "ranks: 2 -> 4"],
        ),
        ({}, {"backend": "gloo"}, ["back end: nccl -> gloo"]),
        ({}, {"emulated": True}, ["fake hosts: no -> yes"]),
        (
            {"topology": topology_of(2, 2, nics=IB)},
            {"topology": topology_of(2, 2, nics=[*IB[:2], ETHERNET])},
            ["NICs: 4 x infiniband 400 Gbit/s a node -> 2 x infiniband 400 Gbit/s a node"],
        ),
        # On one node none is in use.
        ({"topology": topology_of(nics=IB)}, {"topology": topology_of()}, []),
    ],
)
def test_shape(base, new, lines):
    found = differences([stored_run(TRIALS, **base)], [stored_run(TRIALS, **new)])

    assert texts(found.shape) == [line for line in lines if not line.endswith("none -> none")]
    assert "secret-host" not in " ".join(texts(found.shape))


def in_leaves(*leaves: str | None):
    place = topology_of(len(leaves), 2)
    nodes = [
        msgspec.structs.replace(node, leaf=leaf)
        for node, leaf in zip(place.nodes, leaves, strict=True)
    ]
    return msgspec.structs.replace(place, nodes=nodes)


@pytest.mark.parametrize(
    ("base", "new", "lines"),
    [
        (("a", "a", "b", "b"), ("x", "y", "y", "x"), []),
        (("a", "a", "b", "b"), ("a", "a", "a", "b"), ["leaf spread: 2 + 2 nodes -> 3 + 1 nodes"]),
        (("a", "a", "b", "b"), ("a", "a", "a", "a"), ["leaf spread: 2 + 2 nodes -> 4 nodes"]),
        # Of one side it is not known.
        (("a", "a", "b", "b"), ("a", "a", "a", None), []),
    ],
)
def test_how_nodes_spread_over_leaves_is_shape_where_it_is_known(base, new, lines):
    sides = [[stored_run(TRIALS, topology=in_leaves(*leaves))] for leaves in (base, new)]

    assert texts(differences(*sides).shape) == lines


def test_a_machine_without_gpus_is_its_cpu():
    cpus = topology_of(gpus=0)
    places = topology_of(gpus=2).ranks
    bare = [msgspec.structs.replace(place, gpu=None) for place in places]
    found = differences(
        [stored_run(TRIALS)],
        [stored_run(TRIALS, topology=msgspec.structs.replace(cpus, ranks=bare))],
    )

    assert texts(found.shape) == [
        "hardware: NVIDIA H200 -> CPU Xeon",
        "placement: 1 node x 2 GPUs -> 1 node x 2 ranks",
    ]


def test_nics_are_those_that_the_log_shows():
    place = topology_of(2, 2, nics=[*IB, ETHERNET])
    half = stored_run(proved(OVER_IB), topology=place)
    every = Proof(ranks=4, transports=["NET/IB"], network="IB", devices=["mlx5_0+mlx5_1", "mlx5_2"])
    sockets = Proof(ranks=4, transports=["NET/Socket"], network="Socket", devices=["eth0"])

    assert differences([half], [half]).shape == ()
    assert texts(differences([half], [stored_run(proved(every), topology=place)]).shape) == [
        "NICs used: 2 x infiniband 400 Gbit/s a node -> 3 x infiniband 400 Gbit/s a node"
    ]
    assert texts(differences([half], [stored_run(proved(sockets), topology=place)]).shape) == [
        "NICs used: 2 x infiniband 400 Gbit/s a node -> none"
    ]


@pytest.mark.parametrize("other", [TRIALS, proved(msgspec.structs.replace(OVER_IB, devices=["x"]))])
def test_nics_in_use_are_not_held_against_nics_that_are_only_there(other):
    place = topology_of(2, 2, nics=IB)
    known = stored_run(proved(OVER_IB), topology=place)

    assert differences([known], [stored_run(other, topology=place)]).shape == ()


def test_software_lists_versions_and_variables_but_no_places():
    base = environment_of(
        variables={"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0", "NCCL_HOSTID": "secret-host"},
        config_files={"/root/.nccl.conf": "A=1\nB=2\n"},
    )
    new = environment_of(
        "2.31.2",
        torch=None,
        variables={"NCCL_BUFFSIZE": "x" * 70},
        config_files={"/home/me/.nccl.conf": "A=1"},
        libraries={"old": LibraryVersion(version="2.29.1")},
    )
    found = differences(
        [stored_run(TRIALS, environment=base)],
        [stored_run(TRIALS, environment=new, via="native")],
    )

    assert found.shape == ()
    assert texts(found.software) == [
        "torch: 2.13.0 -> none",
        "NCCL: 2.30.7 -> 2.31.2",
        "via: torch -> native",
        "NCCL_ALGO: Ring -> not set",
        "~/.nccl.conf: A=1; B=2 -> A=1",
        "NCCL old: not set -> 2.29.1",
        f"NCCL_BUFFSIZE: not set -> {'x' * 60}...",
    ]


def test_a_side_of_several_versions_names_them_all():
    mixed = [
        stored_run(TRIALS, environment=environment_of(version)) for version in ("2.31.2", "2.30.7")
    ]
    found = differences([stored_run(TRIALS)], mixed)

    assert texts(found.software) == ["NCCL: 2.30.7 -> 2.30.7 and 2.31.2"]


def test_measuring():
    isolated = [
        msgspec.structs.replace(
            trial, case=msgspec.structs.replace(trial.case, pattern=Pattern.ISOLATED)
        )
        for trial in TRIALS
    ]
    policy = Policy(precision=0.01, max_time_s=2, samples=50, warmup=3, walk_bytes=2**20)
    found = differences(
        [stored_run(TRIALS)],
        [stored_run(isolated, policy=msgspec.structs.replace(policy, check=False, proof=False))],
    )

    assert texts(found.measuring) == [
        "pattern: back_to_back -> isolated",
        "precision: 0.02 -> 0.01",
        "most time a case: 1 s -> 2 s",
        "samples: as many as needed -> 50",
        "warm-up: detected -> 3",
        "walk: over the cache -> 1 MiB",
        "data checked: yes -> no",
        "what ran proved: yes -> no",
    ]


@pytest.mark.parametrize(
    ("new", "word"),
    [
        ([under(TREE, 8, 9.0)], "Tree/Simple"),
        ([*TRIALS, under(TREE, 8, 9.0, proof=RAN_RING)], "several"),
    ],
)
def test_a_side_of_one_setting_is_told_by_it(new, word):
    found = differences([stored_run(TRIALS)], [stored_run(new)])

    assert texts(found.measuring) == [f"setting: default -> {word}"]


@pytest.mark.parametrize("spelt", [["--simulate", "b.toml"], ["--simulate=b.toml"]])
def test_simulated_runs_are_told_apart_by_their_model(spelt):
    base = stored_run(TRIALS, simulated=True, argv=["sweep", "--simulate", "a.toml"])
    new = stored_run(TRIALS, simulated=True, argv=["sweep", *spelt])

    assert texts(differences([base], [new]).measuring) == ["model: a.toml -> b.toml"]


@pytest.mark.parametrize("sides", [([0], [1]), ([1], [0]), ([0, 1], [0]), ([1, 1], [1, 0])])
def test_simulated_beside_real_is_refused(sides):
    runs = [stored_run(TRIALS, "real"), stored_run(TRIALS, "made", simulated=True)]
    base, new = ([runs[k] for k in side] for side in sides)
    with pytest.raises(UsageError, match=r"^run made is simulated and run real is not: a model"):
        differences(base, new)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_odd_run_of_a_side_is_named(place):
    side = [stored_run(TRIALS, f"good{k}") for k in range(2)]
    side.insert(place, stored_run(TRIALS, "odd", topology=topology_of(model="NVIDIA H100")))
    with pytest.raises(UsageError) as raised:
        differences([stored_run(TRIALS)], side)

    assert str(raised.value) == (
        "run odd has another shape than the 2 other runs of its side (hardware NVIDIA H100, not"
        " NVIDIA H200); a side is runs of one shape: leave it out"
    )


def test_planted_runs_are_said():
    found = differences([stored_run(TRIALS)], [stored_run(TRIALS, "bad", planted="wrong_element")])

    assert found.planted == (
        "run bad has a planted fault (wrong_element): it proves the tool, not the hardware",
    )


def test_a_run_without_a_command_line_has_no_model():
    bare = stored_run([make_trial(2**20, 100.0)], argv=[])

    assert differences([bare], [bare]).measuring == ()
