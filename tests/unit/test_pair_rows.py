"""From trials of named groups to the values that verdicts are made of."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from pair_states import made_node
from records import make_trial

from collbench.analyze.pair_rows import kind_of, state_of
from collbench.analyze.pair_types import KINDS, NO_RAIL, STATUSES, UNREADABLE, PairKind
from collbench.model import GroupPlace, NodeState, Pattern, RankPlace, Status, Topology
from collbench.probe.watch import RDMA_ERRORS, TCP_RETRANSMISSIONS

MB = 2**20


def a_topology(nodes=4, gpus=1, leaves=None, states=None) -> Topology:
    """Nodes with so many GPUs; those that are not present have no rank."""
    states = states or {}
    machines = [
        made_node(
            f"node{n}",
            leaf=leaves[n] if leaves else None,
            state=states.get(n, NodeState.PRESENT),
        )
        for n in range(nodes)
    ]
    slots = [(n, g) for n in range(nodes) if n not in states for g in range(gpus)]
    places = [
        RankPlace(rank=rank, node=f"node{n}", local_rank=g, gpu=g)
        for rank, (n, g) in enumerate(slots)
    ]
    return Topology(nodes=machines, ranks=places)


def a_trial(name, ranks, number=0, *, collective="send_recv", size=64 * MB, root=None, **changes):
    """A trial of a group whose rate is 10 GB/s."""
    pattern = changes.pop("pattern", Pattern.BACK_TO_BACK)
    busbw = changes.pop("busbw", 10.0)
    trial = make_trial(size, 100.0, name=collective)
    summary = msgspec.structs.replace(
        trial.summary, busbw_gb_per_s=busbw, samples=changes.pop("samples_n", 10), p99_us=300.0
    )
    return msgspec.structs.replace(
        trial,
        trial_id=f"{collective}{size}.0@{number}:{name}",
        case=msgspec.structs.replace(trial.case, root=root, pattern=pattern),
        group=GroupPlace(name=name, round=number, ranks=list(ranks)),
        **{"summary": summary, **changes},
    )


def latency(name="node0-node1", ranks=(0, 1), **changes):
    fields = {"size": 8, "pattern": Pattern.ISOLATED, "samples_n": 1000, "busbw": 0.001}
    return a_trial(name, ranks, **(fields | changes))


class Samples:
    """Stands in for a stored run: times of the slowest rank."""

    def __init__(self, slow: int, of: int = 1000) -> None:
        self.times_us = np.full(of, 50.0, np.float32)
        self.times_us[:slow] = 200_050.0

    def over_ranks_us(self, _trial):
        return np.stack([self.times_us] * 3)


def rows(state) -> list[tuple]:
    """a, b, kind, rail and value of each."""
    return [
        (int(v["a"]), int(v["b"]), str(KINDS[v["kind"]]), int(v["rail"]), float(v["value"]))
        for v in state.values
    ]


def only(state) -> dict:
    (row,) = state.values
    return {name: row[name].item() for name in state.values.dtype.names}


@pytest.mark.parametrize(
    ("collective", "size", "pattern", "kind"),
    [
        ("all_reduce", 64 * MB, Pattern.BACK_TO_BACK, PairKind.ALL_REDUCE),
        ("all_reduce", 8, Pattern.ISOLATED, PairKind.ALL_REDUCE),
        ("broadcast", 64 * MB, Pattern.BACK_TO_BACK, PairKind.SEND),
        ("send_recv", 64 * MB, Pattern.BACK_TO_BACK, PairKind.SEND_RECV),
        ("send_recv", 64 * MB, Pattern.ISOLATED, PairKind.SEND_RECV),
        ("send_recv", 64, Pattern.ISOLATED, PairKind.LATENCY),
        ("send_recv", 68, Pattern.ISOLATED, PairKind.SEND_RECV),
        ("send_recv", 8, Pattern.BACK_TO_BACK, PairKind.SEND_RECV),
    ],
)
def test_what_a_pair_ran(collective, size, pattern, kind):
    trial = a_trial("node0-node1", (0, 1), collective=collective, size=size, pattern=pattern)

    assert kind_of(trial) is kind


def test_with_one_gpu_a_node_there_are_no_rails():
    state = state_of(
        a_topology(),
        [
            a_trial("node2-node1", (2, 1), 3, busbw=12.0),
            a_trial("node2-node1", (2, 1), 4, collective="all_reduce", busbw=9.0),
        ],
        None,
    )

    assert state.names == ("node0", "node1", "node2", "node3")
    assert rows(state) == [
        (2, 1, "send_recv", NO_RAIL, 12.0),
        (2, 1, "all_reduce", NO_RAIL, 9.0),
    ]
    assert state.values["round"].tolist() == [3, 4]


def test_with_several_gpus_two_ranks_are_a_rail_and_all_are_the_node():
    state = state_of(
        a_topology(gpus=3),
        [
            a_trial("node0-node2/rail0", (0, 6), busbw=50.0),
            a_trial("node0-node2/rail2", (2, 8), busbw=45.0),
            a_trial("node0-node2", (0, 1, 2, 6, 7, 8), collective="all_reduce", busbw=140.0),
            a_trial("x/rail1", (1, 7), collective="broadcast", root=0, busbw=48.0),
            latency(ranks=(0, 6)),
        ],
        None,
    )

    assert rows(state)[:4] == [
        (0, 2, "send_recv", 0, 50.0),
        (0, 2, "send_recv", 2, 45.0),
        (0, 2, "all_reduce", NO_RAIL, 140.0),
        (0, 2, "send", 1, 48.0),
    ]
    assert rows(state)[4][:4] == (0, 2, "latency", NO_RAIL)
    assert np.isnan(rows(state)[4][4])


@pytest.mark.parametrize(("root", "ends"), [(0, (3, 1)), (1, (1, 3)), (None, (3, 1))])
def test_one_way_is_from_its_root(root, ends):
    trial = a_trial("confirm/node3-node1", (3, 1), collective="broadcast", root=root)
    row = only(state_of(a_topology(), [trial], None))

    assert (row["a"], row["b"]) == ends
    assert KINDS[row["kind"]] is PairKind.SEND


@pytest.mark.parametrize("status", [Status.HUNG, Status.CRASHED, Status.FAILED, Status.NODE_LOST])
def test_what_gave_no_value_keeps_its_status_and_is_no_zero(status):
    row = only(state_of(a_topology(), [a_trial("x", (0, 1), status=status, summary=None)], None))

    assert STATUSES[row["status"]] is status
    assert np.isnan(row["value"])
    assert np.isnan(row["median_us"])


def test_wrong_data_have_no_rate():
    trial = a_trial("x", (0, 1), status=Status.DATA_WRONG, busbw=None)
    state = state_of(a_topology(), [trial], None)

    assert STATUSES[only(state)["status"]] is Status.DATA_WRONG
    assert not state.measured.any()


@pytest.mark.parametrize(
    "trial",
    [
        a_trial("x", (0, 1), status=Status.SKIPPED, summary=None),
        a_trial("probe/node0-node1", (0, 1)),
        a_trial("inside", (0, 1, 2), collective="all_reduce"),
        a_trial("one", (2,)),
        msgspec.structs.replace(a_trial("x", (0, 1)), group=None),
    ],
    ids=["skipped", "a probe", "three nodes", "one node", "the whole run's"],
)
def test_what_is_no_pairs_value_is_left_out(trial):
    state = state_of(a_topology(), [trial, a_trial("y", (2, 3), 1)], None)

    assert [row[:2] for row in rows(state)] == [(2, 3)]


def test_ranks_of_one_node_are_no_pair():
    state = state_of(a_topology(gpus=2), [a_trial("inside", (0, 1))], None)

    assert state.values.size == 0


def test_rounds_that_confirm_are_known_by_their_names():
    state = state_of(
        a_topology(),
        [a_trial("node0-node1", (0, 1), 0), a_trial("confirm/node0-node2", (0, 2), 7)],
        None,
    )

    assert state.confirming == {7}
    assert state.again.tolist() == [False, True]


def test_a_pair_on_several_rails_is_alone_where_no_other_pair_runs():
    trials = [
        a_trial("a/rail0", (0, 2), 0),
        a_trial("a/rail1", (1, 3), 0),
        a_trial("b/rail0", (0, 2), 1),
        a_trial("c/rail0", (4, 6), 1, status=Status.SKIPPED, summary=None),
    ]
    state = state_of(a_topology(gpus=2), trials, None)

    assert state.values["alone"].tolist() == [True, True, False]


def test_a_latency_pass_has_round_trips_with_their_tail_and_no_rate():
    row = only(state_of(a_topology(), [latency()], Samples(slow=3)))

    assert (row["round_trips"], row["slow_round_trips"]) == (1000, 3)
    assert (row["median_us"], row["p99_us"]) == (100.0, 300.0)
    assert row["retransmits"] == UNREADABLE
    assert np.isnan(row["value"])


def test_round_trips_of_100_ms_are_not_yet_slow():
    samples = Samples(slow=0)
    samples.times_us[:4] = [99_999.0, 100_000.0, 100_008.0, 250_000.0]

    assert only(state_of(a_topology(), [latency()], samples))["slow_round_trips"] == 2


def test_without_samples_no_round_trip_is_known_to_be_slow():
    assert only(state_of(a_topology(), [latency()], None))["slow_round_trips"] == 0


@pytest.mark.parametrize(
    ("counters", "retransmits", "slow"),
    [
        # Nobody sent anything again: a busy host made them wait.
        ({"node0": {TCP_RETRANSMISSIONS: 0}, "node1": {TCP_RETRANSMISSIONS: 0}}, 0, 0),
        ({"node0": {TCP_RETRANSMISSIONS: 2}, "node1": {TCP_RETRANSMISSIONS: 0}}, 2, 2),
        ({"node0": {TCP_RETRANSMISSIONS: 4}, "node1": {TCP_RETRANSMISSIONS: 5}}, 9, 6),
        ({"node0": {RDMA_ERRORS: 1}, "node1": {RDMA_ERRORS: 3}}, 4, 4),
        ({"node0": {RDMA_ERRORS: 1, TCP_RETRANSMISSIONS: 2}, "node1": {RDMA_ERRORS: 0}}, 3, 3),
        # One end cannot be read: what its side sent again is not known.
        ({"node0": {TCP_RETRANSMISSIONS: 0}}, UNREADABLE, 6),
        ({"node0": {TCP_RETRANSMISSIONS: 0}, "node1": {"other": 7}}, UNREADABLE, 6),
        ({}, UNREADABLE, 6),
        # Of a node that is no end of the pair.
        ({"node0": {RDMA_ERRORS: 1}, "node1": {RDMA_ERRORS: 1}, "node2": {RDMA_ERRORS: 50}}, 2, 2),
    ],
)
def test_slow_round_trips_count_only_where_something_was_sent_again_or_nobody_knows(
    counters, retransmits, slow
):
    row = only(state_of(a_topology(), [latency(counters=counters)], Samples(slow=6)))

    assert (row["retransmits"], row["slow_round_trips"]) == (retransmits, slow)


def test_counters_around_bandwidth_say_nothing_of_loss():
    counters = {"node0": {TCP_RETRANSMISSIONS: 9}, "node1": {TCP_RETRANSMISSIONS: 9}}
    row = only(state_of(a_topology(), [a_trial("x", (0, 1), counters=counters)], Samples(slow=5)))

    assert (row["retransmits"], row["slow_round_trips"], row["round_trips"]) == (UNREADABLE, 0, 0)


@pytest.mark.parametrize(
    ("leaves", "states", "found"),
    [
        (["x", "x", "y", "y"], {}, ("x", "x", "y", "y")),
        ([None] * 4, {}, None),
        # Of a node that takes part it has to be known.
        (["x", "x", None, "y"], {}, None),
        # A node that does not take part would else be one more leaf.
        (["x", "x", None, "y"], {2: NodeState.EXCLUDED}, ("x", "x", "x", "y")),
        ([None, "x", "y", "y"], {0: NodeState.ABSENT}, ("x", "x", "y", "y")),
        (["x", "x", "y", "z"], {3: NodeState.EXCLUDED}, ("x", "x", "y", "z")),
    ],
)
def test_leaves_are_known_if_all_that_take_part_have_one(leaves, states, found):
    assert state_of(a_topology(leaves=leaves, states=states), [], None).leaves == found


def test_who_was_not_tested_is_named_with_the_reason():
    states = {
        0: NodeState.ABSENT,
        1: NodeState.EXCLUDED,
        3: NodeState.GPU_MISSING,
    }

    assert state_of(a_topology(5, states=states), [], None).not_tested == {
        0: "absent",
        1: "excluded",
        3: "a GPU is missing",
    }
