"""The table of collectives against figures that nccl-tests printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collbench.collectives import (
    COLLECTIVES,
    DTYPE_ALIASES,
    ITEM_BYTES,
    REDOPS,
    collective_named,
    dtype_named,
    redop_named,
)
from collbench.errors import UsageError
from collbench.units import gb_per_s

RECORDED = sorted((Path(__file__).parents[1] / "data" / "nccl-tests").glob("*.json"))

# The files hold times and rates rounded to 6 decimals; a time of 10 us with half a millionth of
# rounding moves the rate by 5e-8 of itself.
ROUNDING = 5.1e-7


def test_every_collective_has_a_recording():
    recorded = {collective_named(path.name.rpartition("_g")[0]).name for path in RECORDED}

    assert recorded == set(COLLECTIVES)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_rates_are_those_of_nccl_tests_to_six_decimals(path):
    recorded = json.loads(path.read_text())
    collective = collective_named(recorded["args"][0])
    config = recorded["config"]
    world_size = config["nthreads"] * config["ngpus"]
    compared = 0
    for row in recorded["results"]:
        for placement in ("out_of_place", "in_place"):
            printed = row[placement]
            time_us = printed["time"]
            algbw = gb_per_s(row["size"], time_us)
            busbw = collective.busbw(algbw, world_size)
            tolerance = ROUNDING * (1 + algbw / time_us)
            assert abs(algbw - printed["alg_bw"]) <= tolerance
            assert abs(busbw - printed["bus_bw"]) <= tolerance * max(
                1, collective.busbw_factor(world_size)
            )
            compared += 1
    assert compared == 2 * len(recorded["results"]) >= 20


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_sizes_and_counts_are_those_of_nccl_tests(path):
    recorded = json.loads(path.read_text())
    collective = collective_named(recorded["args"][0])
    world_size = recorded["config"]["nthreads"] * recorded["config"]["ngpus"]
    for row in recorded["results"]:
        if row["size"] == 0:
            continue  # nccl-tests rounds small shares down to nothing; here one element remains
        assert collective.count(row["size"], "float32", world_size) == row["count"]
        assert collective.size_bytes(row["count"], "float32", world_size) == row["size"]


def test_busbw_factors_on_8_ranks():
    assert {name: row.busbw_factor(8) for name, row in COLLECTIVES.items()} == {
        "all_reduce": 1.75,
        "all_gather": 0.875,
        "reduce_scatter": 0.875,
        "broadcast": 1.0,
        "reduce": 1.0,
        "all_to_all": 0.875,
        "gather": 0.875,
        "scatter": 0.875,
        "send_recv": 1.0,
    }


def test_one_rank_moves_nothing_over_the_wire():
    assert COLLECTIVES["all_reduce"].busbw(100.0, 1) == 0.0
    assert COLLECTIVES["broadcast"].busbw(100.0, 1) == 100.0


@pytest.mark.parametrize(
    ("collective", "requested", "dtype", "ranks", "count", "size"),
    [
        ("all_reduce", 4, "float32", 8, 1, 4),
        ("all_reduce", 7, "float32", 8, 1, 4),
        ("all_reduce", 1, "float64", 8, 1, 8),
        ("all_gather", 4, "float32", 8, 1, 32),
        ("all_gather", 100, "float32", 3, 8, 96),
        ("reduce_scatter", 2**20, "bfloat16", 6, 87381, 1048572),
        ("send_recv", 10, "int8", 5, 10, 10),
    ],
)
def test_a_share_is_whole_elements_and_at_least_one(
    collective, requested, dtype, ranks, count, size
):
    row = COLLECTIVES[collective]

    assert row.count(requested, dtype, ranks) == count
    assert row.size_bytes(count, dtype, ranks) == size


def test_in_place_is_natural_where_programs_call_it_so():
    natural = {name for name, row in COLLECTIVES.items() if row.natural_in_place}

    assert natural == {"all_reduce", "reduce", "broadcast"}


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("all_reduce_perf", "all_reduce"),
        ("AllReduce", "all_reduce"),
        ("alltoall", "all_to_all"),
        ("sendrecv_perf", "send_recv"),
        ("reducescatter", "reduce_scatter"),
        (" gather ", "gather"),
    ],
)
def test_spellings_of_nccl_tests_are_understood(word, name):
    assert collective_named(word).name == name


def test_type_names_of_nccl_tests_are_understood():
    assert [dtype_named(word) for word in ("float", "half", "double", "f8e4m3", "bf16")] == [
        "float32",
        "float16",
        "float64",
        "float8_e4m3fn",
        "bfloat16",
    ]
    assert set(DTYPE_ALIASES.values()) <= set(ITEM_BYTES)


def test_an_unknown_collective_gets_the_nearest_and_all():
    with pytest.raises(UsageError) as caught:
        collective_named("all_reduse")

    assert str(caught.value) == (
        "unknown collective 'all_reduse'; did you mean 'all_reduce'? allowed: all_reduce,"
        " all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter, send_recv"
    )


def test_an_unknown_type_far_from_all_gets_the_list_alone():
    with pytest.raises(UsageError) as caught:
        dtype_named("quux")

    assert str(caught.value) == (
        "unknown type 'quux'; allowed: float64, float32, float16, bfloat16, float8_e4m3fn,"
        " float8_e5m2, int8, int32, int64, uint8"
    )


def test_an_unknown_operator_gets_the_nearest_and_all():
    with pytest.raises(UsageError) as caught:
        redop_named("summ")

    assert str(caught.value) == (
        "unknown operator 'summ'; did you mean 'sum'? allowed: sum, prod, min, max, avg"
    )
    assert [redop_named(word) for word in REDOPS] == list(REDOPS)
