"""The sweep's plan: which cases, in which order, how long."""

from __future__ import annotations

import random

import pytest

from collbench.collectives import COLLECTIVES
from collbench.engine.lineup import Starts
from collbench.errors import UsageError
from collbench.model import Mode, Pattern
from collbench.nccl.settings import setting_text
from collbench.plan.sweep import plan_sweep
from collbench.suite import Ladder, Suite, override, resolve


def plan(*, backend="gloo", world_size=2, seed=1, gpu=False, nodes=1, emulated=False, **options):
    suite = resolve(override(Suite(), **options), gpu=gpu)
    return plan_sweep(
        suite, backend=backend, world_size=world_size, seed=seed, nodes=nodes, emulated=emulated
    )


def test_the_default_on_a_cpu_is_36_cases_in_reading_order():
    found = plan()

    assert found.trials == len(found.cases) == 36
    assert [case.collective for case in found.cases[::12]] == [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
    ]
    assert [case.size_bytes for case in found.cases[:3]] == [4, 16, 64]
    assert found.cases[35].size_bytes == 16 * 2**20
    assert {case.mode for case in found.cases} == {Mode.EAGER}


def test_a_row_is_out_of_place_then_in_place_then_the_modes():
    found = plan(
        gpu=True, backend="nccl", collectives=("all_reduce",), sizes=("8", "64"), in_place="both"
    )

    assert [(case.size_bytes, case.in_place, str(case.mode)) for case in found.cases] == [
        (8, False, "eager"),
        (8, False, "graph"),
        (8, True, "eager"),
        (8, True, "graph"),
        (64, False, "eager"),
        (64, False, "graph"),
        (64, True, "eager"),
        (64, True, "graph"),
    ]


def test_settings_stand_in_the_row_before_the_modes():
    found = plan(
        gpu=True,
        backend="nccl",
        collectives=("all_reduce",),
        sizes=("8", "64"),
        proto=("LL", "Simple"),
        reference=True,
    )

    assert [
        (case.size_bytes, setting_text(case.setting), str(case.mode)) for case in found.cases
    ] == [
        (size, setting, mode)
        for size in (8, 64)
        for setting in ("default", "LL", "Simple")
        for mode in ("eager", "graph")
    ]


def test_settings_that_share_a_communicator_run_together():
    found = plan(
        gpu=True,
        backend="nccl",
        collectives=("all_reduce",),
        sizes=("8", "64"),
        modes=("graph",),
        proto=("LL", "Simple"),
        env=("NCCL_BUFFSIZE=1", "NCCL_BUFFSIZE=2"),
    )

    assert [
        (case.setting["NCCL_BUFFSIZE"], case.setting["NCCL_PROTO"], case.size_bytes)
        for case in found.rounds[0].groups[0].cases
    ] == [
        (buffer, protocol, size)
        for buffer in "12"
        for protocol in ("LL", "Simple")
        for size in (8, 64)
    ]
    # Two sets of 2 workers, each with a communicator for LL and one for Simple.
    assert found.starts == Starts(zygotes=1, workers=4, communicators=4)


def test_tables_come_by_type_then_operator_then_root():
    found = plan(
        collectives=("reduce",),
        dtypes=("float32", "int8"),
        redops=("sum", "max"),
        roots=(-1,),
        sizes=("8",),
    )

    assert [(case.dtype, case.redop, case.root) for case in found.cases] == [
        ("float32", "sum", 0),
        ("float32", "sum", 1),
        ("float32", "max", 0),
        ("float32", "max", 1),
        ("int8", "sum", 0),
        ("int8", "sum", 1),
        ("int8", "max", 0),
        ("int8", "max", 1),
    ]


def test_operators_and_roots_stand_only_where_a_collective_has_them():
    found = plan(collectives=tuple(COLLECTIVES), redops=("sum", "max"), roots=(1,), sizes=("64",))

    axes = {}
    for case in found.cases:
        axes.setdefault(case.collective, []).append((case.redop, case.root))
    assert axes == {
        "all_reduce": [("sum", None), ("max", None)],
        "all_gather": [(None, None)],
        "reduce_scatter": [("sum", None), ("max", None)],
        "broadcast": [(None, 1)],
        "reduce": [("sum", 1), ("max", 1)],
        "all_to_all": [(None, None)],
        "gather": [(None, 1)],
        "scatter": [(None, 1)],
        "send_recv": [(None, None)],
    }


@pytest.mark.parametrize(
    ("in_place", "placements"),
    [
        ("natural", [True, False]),
        ("yes", [True, True]),
        ("no", [False, False]),
        ("both", [False, True, False, True]),
    ],
)
def test_placements(in_place, placements):
    found = plan(collectives=("all_reduce", "all_to_all"), sizes=("64",), in_place=in_place)

    assert [case.in_place for case in found.cases] == placements


def test_a_case_carries_all_that_was_asked():
    (case,) = plan(
        backend="nccl",
        world_size=8,
        nodes=2,
        emulated=True,
        via="native",
        algo=("ring",),
        collectives=("all_gather",),
        dtypes=("bfloat16",),
        sizes=("1000",),
        modes=("eager_device",),
        pattern="isolated",
    ).cases

    assert case.backend == "nccl"
    assert (case.world_size, case.nodes) == (8, 2)
    assert (case.requested_bytes, case.count, case.size_bytes) == (1000, 62, 992)
    assert (case.mode, case.pattern) == (Mode.EAGER_DEVICE, Pattern.ISOLATED)
    assert (case.setting, case.via, case.emulated) == ({"NCCL_ALGO": "Ring"}, "native", True)


def test_what_a_back_end_cannot_do_stays_in_the_plan():
    found = plan(backend="gloo", modes=("graph",), dtypes=("float8_e5m2",), sizes=("64",))

    assert len(found.cases) == 3


def test_sizes_that_move_the_same_bytes_are_one_row_and_said_once():
    found = plan(world_size=8)

    assert found.collapsed == (
        "4 B and 16 B both move 32 B on 8 ranks (all_gather, reduce_scatter): one row",
    )
    gathered = [case for case in found.cases if case.collective == "all_gather"]
    assert [(case.requested_bytes, case.size_bytes) for case in gathered[:2]] == [
        (16, 32),
        (64, 64),
    ]
    assert len(gathered) == 11
    assert len(found.cases) == 12 + 11 + 11


def test_the_row_is_called_by_the_size_nearest_to_what_moves():
    found = plan(world_size=8, collectives=("all_gather",), sizes=("20", "32", "36", "40"))

    assert [case.requested_bytes for case in found.cases] == [32]
    assert found.collapsed == (
        "20 B, 32 B, 36 B and 40 B all move 32 B on 8 ranks (all_gather): one row",
    )


def test_of_two_sizes_equally_near_the_smaller_names_the_row():
    found = plan(world_size=8, collectives=("all_gather",), sizes=("28", "36"))

    assert [case.requested_bytes for case in found.cases] == [28]


def test_case_ids_are_unique():
    found = plan(
        world_size=6,
        gpu=True,
        backend="nccl",
        collectives=tuple(COLLECTIVES),
        dtypes=("all",),
        redops=("all",),
        roots=(-1,),
        in_place="both",
        sizes=Ladder(min=1, max="1K", factor=1.5),
    )

    assert len(found.cases) > 10_000
    assert len({case.case_id for case in found.cases}) == len(found.cases)


def test_one_repeat_runs_in_reading_order_on_all_ranks():
    found = plan(world_size=4)

    (only,) = found.rounds
    (group,) = only.groups
    assert only.repeat == 0
    assert group.ranks == (0, 1, 2, 3)
    assert group.cases == found.cases


def test_several_repeats_have_orders_of_their_own_drawn_from_the_seed():
    found = plan(repeats=3, seed=7)

    assert found.repeats == 3
    assert found.trials == 108
    assert [round_.repeat for round_ in found.rounds] == [0, 1, 2]
    orders = [round_.groups[0].cases for round_ in found.rounds]
    for repeat, order in enumerate(orders):
        expected = list(found.cases)
        random.Random(7 + repeat).shuffle(expected)
        assert order == tuple(expected)
    assert len(set(map(str, orders))) == 3


def test_a_seed_gives_the_same_plan_again_and_another_seed_another():
    assert plan(repeats=2, seed=7) == plan(repeats=2, seed=7)
    assert plan(repeats=2, seed=7).rounds != plan(repeats=2, seed=9).rounds


def test_a_root_that_is_no_rank_is_refused():
    with pytest.raises(UsageError) as caught:
        plan(collectives=("broadcast",), roots=(0, 2))

    assert str(caught.value) == (
        "root 2 is not among 2 ranks; allowed: 0 to 1, or -1 for every rank in turn"
    )


def test_a_root_that_no_collective_uses_is_no_matter():
    assert len(plan(collectives=("all_reduce",), roots=(7,), sizes=("8",)).cases) == 1


def test_on_a_cpu_the_time_limit_is_the_estimate():
    found = plan(collectives=("all_reduce",), sizes=("8", "64"), check=False)

    # A start of 2 s, and for each of 2 cases 0.5 s of samples and 0.06 s around them.
    assert found.estimate_s == pytest.approx(2 + 2 * (0.5 + 0.06))


def test_the_default_sweep_is_estimated_within_its_30_seconds():
    assert 20 < plan().estimate_s < 30


def test_on_gpus_small_cases_are_precise_long_before_the_limit():
    found = plan(
        backend="nccl", gpu=True, collectives=("all_reduce",), sizes=("8",), modes=("graph",)
    )

    # A zygote of 4.5 s, workers of 1.5 s, a communicator of 0.5 s; 60 samples of 200 us.
    assert found.estimate_s == pytest.approx(6.5 + 60 * 200e-6 + 0.06, rel=1e-6)


def test_proving_an_eager_case_apart_is_in_the_estimate():
    asked = {"collectives": ("all_reduce",), "sizes": ("8",), "modes": ("eager",)}
    quiet = plan(backend="nccl", gpu=True, proof=False, **asked)
    proved = plan(backend="nccl", gpu=True, **asked)

    assert quiet.starts == Starts(zygotes=1, workers=2, communicators=1)
    assert proved.starts == Starts(zygotes=1, workers=4, communicators=2, twins=1)
    # The twin's workers, their communicator, and the case in them.
    assert proved.estimate_s - quiet.estimate_s == pytest.approx(1.5 + 0.5 + 0.05)


def test_a_fixed_number_of_samples_is_what_the_estimate_counts():
    found = plan(collectives=("all_reduce",), sizes=("100M",), samples=50, check=True)

    # A call of 100 us and 100 MiB at 1 GB/s, and its data four times at 1 GB/s.
    mib_100 = 100 * 2**20 / 1e9
    assert found.estimate_s == pytest.approx(2 + 50 * (100e-6 + mib_100) + 4 * mib_100 + 0.06)


def test_every_repeat_costs_a_start():
    one = plan().estimate_s

    assert plan(repeats=3).estimate_s == pytest.approx(3 * one)


def test_a_model_answers_at_once():
    assert plan(backend="simulated").estimate_s < 1
