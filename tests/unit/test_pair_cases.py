"""What a pair of nodes runs: which ranks, which cases, which names, in which rounds."""

from __future__ import annotations

import pytest

from collbench.model import Case, Mode, Pattern, Policy
from collbench.plan.pair_cases import MESSAGES, ROUND_TRIPS, PairPlace, PairRounds, case_between

SIZE = 64 * 2**20
POLICY = Policy(max_time_s=3.0, precision=0.01)


def a_place(nodes: int = 4, gpus: int = 1, **changes) -> PairPlace:
    fields = {
        "names": [f"node{n}" for n in range(nodes)],
        "ranks": {n: range(n * gpus, (n + 1) * gpus) for n in range(nodes)},
        "backend": "nccl",
        "via": "torch",
        "policy": POLICY,
        "setting": {"NCCL_ALGO": "Ring"},
    }
    return PairPlace(**(fields | changes))


def groups(rounds) -> list[list[tuple[str, str, tuple[int, ...]]]]:
    """Each round's groups: collective, name, ranks."""
    return [
        [(group.cases[0].collective, group.name, tuple(group.ranks)) for group in round_.groups]
        for round_ in rounds
    ]


def only_case(round_) -> Case:
    (case,) = {case.case_id: case for group in round_.groups for case in group.cases}.values()
    return case


def test_with_one_gpu_a_pair_runs_all_reduce_then_send_recv_then_small_exchanges():
    rounds = list(PairRounds(a_place(), SIZE).of([(0, 1), (3, 2)]))

    assert groups(rounds) == [
        [("all_reduce", "node0-node1", (0, 1)), ("all_reduce", "node3-node2", (3, 2))],
        [("send_recv", "node0-node1", (0, 1)), ("send_recv", "node3-node2", (3, 2))],
        [("send_recv", "node0-node1", (0, 1)), ("send_recv", "node3-node2", (3, 2))],
    ]
    assert [only_case(one).size_bytes for one in rounds] == [SIZE, SIZE, 8]


def test_with_several_gpus_all_rails_exchange_at_once_then_all_ranks_reduce():
    rounds = list(PairRounds(a_place(gpus=3), SIZE).of([(0, 2)]))

    assert groups(rounds) == [
        [
            ("send_recv", "node0-node2/rail0", (0, 6)),
            ("send_recv", "node0-node2/rail1", (1, 7)),
            ("send_recv", "node0-node2/rail2", (2, 8)),
        ],
        [("all_reduce", "node0-node2", (0, 1, 2, 6, 7, 8))],
        [("send_recv", "node0-node2", (0, 6))],
    ]
    assert [one.groups[0].cases[0].world_size for one in rounds] == [2, 6, 2]


def test_nodes_with_unlike_numbers_of_gpus_share_the_rails_that_both_have():
    place = a_place(nodes=2, ranks={0: (0, 1, 2), 1: (3, 4)})
    exchange, whole, _ = PairRounds(place, SIZE).of([(0, 1)])

    assert [group.ranks for group in exchange.groups] == [(0, 3), (1, 4)]
    assert whole.groups[0].ranks == (0, 1, 2, 3, 4)


def test_one_gpu_beside_several_is_one_exchange():
    place = a_place(nodes=2, ranks={0: (0, 1), 1: (2,)})
    exchange, whole, _ = PairRounds(place, SIZE).of([(0, 1)])

    assert groups([exchange, whole]) == [
        [("send_recv", "node0-node1", (0, 2))],
        [("all_reduce", "node0-node1", (0, 1, 2))],
    ]


def test_rounds_are_numbered_through_the_run():
    rounds = PairRounds(a_place(), SIZE, first_number=5)
    pairs = [(0, 1)]
    found = [*rounds.of(pairs), *rounds.one_way(pairs), rounds.probe(pairs, 8), *rounds.of(pairs)]

    assert [one.number for one in found] == list(range(5, 14))
    assert {one.repeat for one in found} == {0}
    names = [one.trial_id(group, group.cases[0]) for one in found for group in one.groups]
    assert len(set(names)) == len(names)


def test_bandwidth_takes_the_same_time_for_each_pair_and_small_exchanges_are_not_checked():
    big, other, small = PairRounds(a_place(), SIZE).of([(0, 1)])

    assert big.policy == other.policy
    assert big.policy.window.timed_s == pytest.approx(MESSAGES * 0.02)
    assert (big.policy.check, big.policy.proof) == (True, True)
    assert (small.policy.samples, small.policy.warmup) == (ROUND_TRIPS, 10)
    assert (small.policy.check, small.policy.proof) == (False, False)
    assert small.policy.window is None


def test_data_are_checked_only_where_the_user_has_it_so():
    place = a_place(policy=Policy(check=False))

    assert [one.policy.check for one in PairRounds(place, SIZE).of([(0, 1)])] == [False] * 3


@pytest.mark.parametrize(
    ("gpus", "latency", "trials"), [(1, True, 3), (1, False, 2), (8, True, 10), (8, False, 9)]
)
def test_it_is_known_beforehand_how_many_trials_a_pair_has(gpus, latency, trials):
    place = a_place(gpus=gpus, latency=latency)
    rounds = list(PairRounds(place, SIZE).of([(0, 1)]))

    assert place.trials_a_pair([0, 1]) == trials == sum(len(one.groups) for one in rounds)


def test_without_a_latency_pass_two_rounds_are_left():
    rounds = PairRounds(a_place(latency=False), SIZE).of([(0, 1)])

    assert [only_case(one).collective for one in rounds] == ["all_reduce", "send_recv"]


def test_what_confirms_is_named_so():
    rounds = PairRounds(a_place(gpus=2), SIZE).of([(1, 0)], confirm=True)

    assert {group.name for one in rounds for group in one.groups} == {
        "confirm/node1-node0/rail0",
        "confirm/node1-node0/rail1",
        "confirm/node1-node0",
    }


@pytest.mark.parametrize(("gpus", "names"), [
    (1, ["confirm/node2-node0"]),
    (2, ["confirm/node2-node0/rail0", "confirm/node2-node0/rail1"]),
])  # fmt: skip
def test_one_way_is_a_broadcast_from_the_first_then_from_the_second(gpus, names):
    there, back = PairRounds(a_place(gpus=gpus), SIZE).one_way([(2, 0)])

    assert [group.name for group in there.groups] == names
    assert [group.ranks for group in there.groups] == [group.ranks for group in back.groups]
    assert there.groups[0].ranks == (2 * gpus, 0)
    assert (only_case(there).collective, only_case(there).root) == ("broadcast", 0)
    assert (only_case(back).collective, only_case(back).root) == ("broadcast", 1)
    assert there.policy.window.timed_s == pytest.approx(MESSAGES * 0.02)


def test_a_probe_is_short_and_of_its_own_size():
    probe = PairRounds(a_place(gpus=2), SIZE).probe([(0, 1), (2, 3)], 2**20)

    assert groups([probe]) == [
        [
            ("send_recv", "probe/node0-node1", (0, 2)),
            ("send_recv", "probe/node2-node3", (4, 6)),
        ]
    ]
    assert only_case(probe).size_bytes == 2**20
    assert (probe.policy.samples, probe.policy.warmup, probe.policy.proof) == (3, 1, False)


def test_a_case_says_where_and_how():
    place = a_place(gpus=2, via="native", emulated=True)
    big, _, small = (one.groups[0].cases[0] for one in PairRounds(place, SIZE).of([(0, 1)]))

    assert (big.backend, big.via, big.emulated, big.nodes) == ("nccl", "native", True, 2)
    assert (big.dtype, big.redop, big.mode) == ("float32", None, Mode.EAGER)
    assert (big.pattern, small.pattern) == (Pattern.BACK_TO_BACK, Pattern.ISOLATED)
    assert (small.requested_bytes, small.size_bytes, small.count) == (8, 8, 2)


def test_all_cases_of_a_pair_have_one_setting_so_that_they_share_a_communicator():
    rounds = PairRounds(a_place(gpus=2), SIZE)
    cases = [
        group.cases[0]
        for one in [*rounds.of([(0, 1)]), *rounds.one_way([(0, 1)])]
        for group in one.groups
    ]

    assert all(case.setting == {"NCCL_ALGO": "Ring"} for case in cases)


def test_a_case_between_more_nodes_says_how_many():
    case = case_between(a_place(), "all_to_all", 6, 1000, nodes=3)

    assert (case.nodes, case.world_size, case.pattern) == (3, 6, Pattern.BACK_TO_BACK)
    # 1000 / (6 x 4) = 41.7 elements a rank.
    assert (case.count, case.requested_bytes, case.size_bytes) == (41, 1000, 984)
