"""What pairs are held against: rates, a share of the NICs', an earlier run."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from pair_states import made_node
from records import make_trial
from stored_runs import stored_run

from collbench.analyze.baseline import (
    Baseline,
    baseline_bytes,
    class_of,
    hardware_class,
    read_baseline,
)
from collbench.analyze.pair_levels import baseline_of
from collbench.analyze.pair_reference import (
    bar_of_baseline,
    bar_of_limit,
    bar_of_rates,
    questions_of,
)
from collbench.analyze.pair_types import PairKind
from collbench.errors import RecordError, UsageError
from collbench.model import GroupPlace, Nic, RankPlace, Status, Topology

ONE = questions_of(1)
TWO = questions_of(2)
SEND_RECV, ALL_REDUCE = PairKind.SEND_RECV, PairKind.ALL_REDUCE


def refusal(call) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_questions_are_by_rail_where_a_node_has_several_ranks():
    assert ONE == [(SEND_RECV, None), (ALL_REDUCE, None)]
    assert questions_of(3) == [
        (SEND_RECV, 0), (SEND_RECV, 1), (SEND_RECV, 2), (ALL_REDUCE, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "everything", "by_collective", "at_least"),
    [
        (ONE, 40.0, {}, {(SEND_RECV, None): 40.0, (ALL_REDUCE, None): 40.0}),
        (ONE, None, {"send_recv": 40.0}, {(SEND_RECV, None): 40.0}),
        (
            TWO,
            None,
            {"send_recv": 40.0, "all_reduce": 70.0},
            {(SEND_RECV, 0): 40.0, (SEND_RECV, 1): 40.0, (ALL_REDUCE, None): 70.0},
        ),
        (
            TWO,
            40.0,
            {"all_reduce": 70.0},
            {(SEND_RECV, 0): 40.0, (SEND_RECV, 1): 40.0, (ALL_REDUCE, None): 70.0},
        ),
    ],
)
def test_rates_are_for_all_or_by_collective(asked, everything, by_collective, at_least):
    bar = bar_of_rates(asked, everything, by_collective)

    assert (bar.source, bar.at_least) == ("--min-busbw", at_least)


def test_a_rate_of_what_pairs_do_not_run_is_refused():
    assert refusal(lambda: bar_of_rates(ONE, 40.0, {"all_gather": 3.0})) == (
        "--min-busbw all_gather: pairs do not run it; allowed: send_recv, all_reduce"
    )


def nics(*rates, kind="infiniband") -> list[Nic]:
    return [
        Nic(name=f"nic{n}", kind=kind, rate_gbit_per_s=rate, state="ACTIVE")
        for n, rate in enumerate(rates)
    ]


def a_place(*of_nodes, without_ranks=()) -> Topology:
    return Topology(
        nodes=[made_node(f"node{n}", nics=one) for n, one in enumerate(of_nodes)],
        ranks=[
            RankPlace(rank=n, node=f"node{n}", local_rank=0, gpu=0)
            for n in range(len(of_nodes))
            if n not in without_ranks
        ],
    )


@pytest.mark.parametrize(
    ("asked", "place", "at_least"),
    [
        # 400 Gbit/s are 50 GB/s.
        (
            ONE,
            a_place(nics(400), nics(400)),
            {(SEND_RECV, None): 45.0, (ALL_REDUCE, None): 45.0},
        ),
        # The slowest node's count, rail by rail; all_reduce goes over all of them.
        (
            TWO,
            a_place(nics(400, 200), nics(200, 400)),
            {(SEND_RECV, 0): 22.5, (SEND_RECV, 1): 22.5, (ALL_REDUCE, None): 45.0},
        ),
        # More ranks than NICs: a rail without one of its own has no bar.
        (
            questions_of(3),
            a_place(nics(400, 400), nics(400, 400)),
            {(SEND_RECV, 0): 45.0, (SEND_RECV, 1): 45.0, (ALL_REDUCE, None): 90.0},
        ),
        # RDMA devices count, Ethernet only where there are none.
        (
            ONE,
            a_place(
                [*nics(400), *nics(10, kind="ethernet")], [*nics(400), *nics(25, kind="ethernet")]
            ),
            {(SEND_RECV, None): 45.0, (ALL_REDUCE, None): 45.0},
        ),
        (
            ONE,
            a_place(nics(80, kind="ethernet"), nics(80, kind="ethernet")),
            {(SEND_RECV, None): 9.0, (ALL_REDUCE, None): 9.0},
        ),
        # A node that does not take part.
        (
            ONE,
            a_place(nics(400), nics(400), nics(None), without_ranks=(2,)),
            {(SEND_RECV, None): 45.0, (ALL_REDUCE, None): 45.0},
        ),
    ],
)
def test_a_share_of_the_nics_rates(asked, place, at_least):
    bar = bar_of_limit(asked, place, 0.9)

    assert bar.source == "--min-of-limit 90%"
    assert bar.at_least == {key: pytest.approx(rate) for key, rate in at_least.items()}


@pytest.mark.parametrize(
    "place",
    [
        a_place(nics(400), []),
        a_place(nics(400), nics(400, None)),
        a_place(nics(400), nics(400), without_ranks=(0, 1)),
    ],
    ids=["a node without a NIC", "a NIC without a rate", "no node"],
)
def test_a_limit_that_is_not_known_is_refused(place):
    assert refusal(lambda: bar_of_limit(ONE, place, 0.9)) == (
        "--min-of-limit: the rates of the NICs are not known on all nodes; say the bar in GB/s with"
        " --min-busbw"
    )


def an_earlier_run(
    rate=lambda _a, _b: 50.0,
    *,
    nodes=6,
    command="pairwise",
    simulated=True,
    run_id="20261130-0412-aa11",
    inside=False,
    rate_of_nic=400,
):
    """All pairs once in one round a pair of nodes, and all_reduce at twice the rate."""
    trials = []
    for number, (a, b) in enumerate(combinations(range(nodes), 2)):
        for collective, factor in (("send_recv", 1.0), ("all_reduce", 2.0)):
            trial = make_trial(2**26, 100.0, name=collective)
            busbw = rate(a, b)
            ok = not isinstance(busbw, Status)
            summary = msgspec.structs.replace(
                trial.summary, busbw_gb_per_s=factor * busbw if ok else None
            )
            trials.append(
                msgspec.structs.replace(
                    trial,
                    trial_id=f"{collective}.0@{number}:{a}-{b}",
                    status=Status.OK if ok else busbw,
                    summary=summary if ok else None,
                    group=GroupPlace(name=f"node{a}-node{b}", round=number, ranks=[a, b]),
                )
            )
    place = a_place(*[nics(rate_of_nic)] * nodes)
    return stored_run(
        trials,
        run_id,
        topology=place,
        command=command,
        simulated=simulated,
        suite={"inside": inside},
    )


def of_run(stored, tolerance=0.1, asked=ONE, *, simulated=True, inside=False, nodes=4):
    made = stored if isinstance(stored, Baseline) else baseline_of([stored])
    here = class_of(a_place(*[nics(400)] * nodes), backend="nccl", emulated=False)
    return bar_of_baseline(asked, made, "last", tolerance, here, simulated=simulated, inside=inside)


def test_a_run_is_what_its_pairs_reached_less_the_tolerance():
    bar = of_run(an_earlier_run())

    assert bar.at_least == {
        (SEND_RECV, None): pytest.approx(45.0),
        (ALL_REDUCE, None): pytest.approx(90.0),
    }


def test_a_run_is_named_by_its_id_since_last_is_another_one_tomorrow():
    assert of_run(an_earlier_run()).source == "baseline 20261130-0412-aa11"


def test_pairs_of_a_node_that_was_not_good_do_not_count():
    hung = an_earlier_run(lambda a, b: Status.HUNG if 0 in (a, b) else 50.0 + b)
    bar = of_run(hung, 0.0)

    # The 10 pairs of nodes 1 to 5: the median of 52, 53 53, 54 54 54, 55 55 55 55.
    assert bar.at_least[SEND_RECV, None] == 54.0


def test_a_rail_that_the_run_did_not_ask_for_has_no_bar():
    bar = of_run(an_earlier_run(), asked=TWO)

    assert set(bar.at_least) == {(ALL_REDUCE, None)}


@pytest.mark.parametrize(
    ("stored", "simulated", "text"),
    [
        (
            an_earlier_run(command="sweep"),
            True,
            (
                "--baseline last holds cases of a sweep; pairs are held against a run of"
                " 'pairwise', or what 'collbench baseline' writes of one"
            ),
        ),
        (
            an_earlier_run(rate_of_nic=200),
            True,
            (
                "--baseline last is for other hardware: NICs 1 x infiniband 200 Gbit/s there and"
                " 1 x infiniband 400 Gbit/s here"
            ),
        ),
        (
            an_earlier_run(),
            False,
            (
                "--baseline last is simulated and this run is measured: a model says nothing of"
                " hardware"
            ),
        ),
        (
            an_earlier_run(simulated=False),
            True,
            (
                "--baseline last is measured and this run is simulated: a model says nothing of"
                " hardware"
            ),
        ),
        (
            an_earlier_run(lambda _a, _b: Status.HUNG),
            True,
            (
                "no good pair in 20261130-0412-aa11: nothing to make a baseline of; 'collbench"
                " show' tells why"
            ),
        ),
        (
            an_earlier_run(inside=True),
            True,
            "--baseline last has no good pair of what is asked; take another run",
        ),
    ],
    ids=["a sweep", "other NICs", "a model's", "a real one", "nothing good", "inside nodes"],
)
def test_a_run_that_is_no_bar_is_refused(stored, simulated, text):
    assert refusal(lambda: of_run(stored, simulated=simulated)) == text


def test_a_baseline_of_pairs_reads_back_from_its_file(tmp_path):
    made = baseline_of([an_earlier_run(), an_earlier_run(run_id="20261130-0413-bb22")])
    path = tmp_path / "pairs.json"
    path.write_bytes(baseline_bytes(made))

    assert read_baseline(path) == made
    assert [(level.collective, level.busbw_gb_per_s, level.pairs) for level in made.pairs] == [
        ("send_recv", 50.0, 30),
        ("all_reduce", 100.0, 30),
    ]
    assert of_run(read_baseline(path)).source == ("baseline 20261130-0412-aa11, 20261130-0413-bb22")


@pytest.mark.parametrize("nodes", [2, 40])
def test_a_baseline_of_pairs_serves_any_number_of_nodes(nodes):
    assert of_run(an_earlier_run(), nodes=nodes).at_least


def test_pairs_inside_nodes_are_held_against_pairs_inside_nodes():
    assert of_run(an_earlier_run(inside=True), inside=True).at_least


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (
            [an_earlier_run(), an_earlier_run(command="sweep", run_id="other")],
            "a baseline holds cases or pairs, and the runs are of both",
        ),
        ([an_earlier_run(), an_earlier_run()], "a run is given twice"),
        (
            [an_earlier_run(), an_earlier_run(rate_of_nic=200, run_id="other")],
            "are of different hardware: NICs",
        ),
    ],
    ids=["two kinds", "twice", "two classes"],
)
def test_runs_that_make_no_baseline_of_pairs(runs, text):
    assert text in refusal(lambda: baseline_of(runs))


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([], "it has neither cases nor pairs"),
        ([{"collective": "send_recv", "busbw_gb_per_s": -1.0, "pairs": 3}], "busbw_gb_per_s -1.0"),
        ([{"collective": "send_recv"}], "missing required field"),
    ],
)
def test_a_damaged_file_of_pairs_is_refused(tmp_path, pairs, text):
    stored = an_earlier_run()
    hardware = msgspec.to_builtins(hardware_class(stored.run, stored.topology))
    content = {
        "schema": "collbench.baseline/1",
        "hardware": hardware,
        "software": [],
        "run_ids": [],
        "pairs": pairs,
    }
    path = tmp_path / "pairs.json"
    path.write_bytes(msgspec.json.encode(content))

    with pytest.raises(RecordError, match=text):
        read_baseline(path)
