"""What NCCL can run, release by release."""

from __future__ import annotations

import re

import pytest

from collbench.collectives import COLLECTIVES, ITEM_BYTES, REDOPS
from collbench.nccl.grammar import ALGORITHMS, PROTOCOLS, ignores_choice
from collbench.nccl.legality import (
    LIMITS,
    ROWS,
    Place,
    falls_back_silently,
    legal_pairs,
    ll128_is_automatic,
    why_illegal,
)

RELEASES = (
    (2, 18, 6), (2, 19, 4), (2, 20, 5), (2, 21, 5), (2, 22, 3), (2, 23, 4), (2, 24, 3), (2, 25, 1),
    (2, 26, 6), (2, 27, 7), (2, 28, 9), (2, 29, 7), (2, 30, 7), (2, 31, 2), (2, 32, 3),
)  # fmt: skip

HOPPER = {"compute_capability": (9, 0), "dtype": "bfloat16", "redop": "sum"}
SHAPES = {
    "one node of 8": {"nodes": 1, "ranks": 8},
    "one node of 2": {"nodes": 1, "ranks": 2},
    "2 nodes of 8": {"nodes": 2, "ranks": 16},
    "2 nodes of 8, CollNet": {"nodes": 2, "ranks": 16, "collnet": True},
    "4 nodes of 1": {"nodes": 4, "ranks": 4},
}

# Shape, collectives, and what runs from a minor release on until the next entry.
SHARES = ("all_gather", "reduce_scatter")
EXPECTED = [
    ("one node of 8", ("all_reduce",), {18: "Ring Tree NVLS"}),
    ("one node of 8", SHARES, {18: "Ring", 19: "Ring NVLS"}),
    ("one node of 2", ("all_reduce",), {18: "Ring Tree", 28: "Ring Tree NVLS"}),
    ("one node of 2", SHARES, {18: "Ring", 28: "Ring NVLS"}),
    ("2 nodes of 8", ("all_reduce",), {18: "Ring Tree NVLSTree"}),
    ("2 nodes of 8", SHARES, {18: "Ring"}),
    (
        "2 nodes of 8, CollNet",
        ("all_reduce",),
        {18: "Ring Tree NVLS NVLSTree CollNetDirect CollNetChain"},
    ),
    (
        "2 nodes of 8, CollNet",
        SHARES,
        {18: "Ring", 20: "Ring CollNetDirect", 27: "Ring NVLS CollNetDirect"},
    ),
    ("4 nodes of 1", ("all_reduce",), {18: "Ring Tree"}),
    ("4 nodes of 1", SHARES, {18: "Ring", 23: "Ring PAT"}),
    *((shape, ("broadcast", "reduce"), {18: "Ring"}) for shape in SHAPES),
]


def place(version=(2, 28, 9), **facts):
    return Place(version=version, **{"nodes": 1, "ranks": 8, **facts})


def algorithms(collective, where):
    return list(dict.fromkeys(name for name, _ in legal_pairs(collective, where)))


@pytest.mark.parametrize("version", RELEASES, ids=lambda version: ".".join(map(str, version)))
@pytest.mark.parametrize(
    ("shape", "collectives", "since"), EXPECTED, ids=lambda item: str(item).partition("{")[0]
)
def test_algorithms_of_every_release(version, shape, collectives, since):
    expected = since[max(minor for minor in since if minor <= version[1])].split()
    where = Place(version=version, **SHAPES[shape], **HOPPER)

    for collective in collectives:
        assert algorithms(collective, where) == expected
        for name in ALGORITHMS:
            refused = why_illegal(collective, name, "default", where)
            assert (refused is None) == (name in expected)


@pytest.mark.parametrize("version", RELEASES, ids=lambda version: ".".join(map(str, version)))
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_pair_is_refused_exactly_where_it_is_not_listed(version, shape):
    where = Place(version=version, **SHAPES[shape], **HOPPER)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"):
        pairs = legal_pairs(collective, where)
        assert len(set(pairs)) == len(pairs)
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                refused = why_illegal(collective, algorithm, protocol, where)
                assert (refused is None) == ((algorithm, protocol) in pairs)


def test_ring_and_tree_alone_have_ll_and_ll128():
    where = place(nodes=2, ranks=16, collnet=True, **HOPPER)

    assert legal_pairs("all_reduce", where) == (
        ("Ring", "LL"),
        ("Ring", "LL128"),
        ("Ring", "Simple"),
        ("Tree", "LL"),
        ("Tree", "LL128"),
        ("Tree", "Simple"),
        ("NVLS", "Simple"),
        ("NVLSTree", "Simple"),
        ("CollNetDirect", "Simple"),
        ("CollNetChain", "Simple"),
    )


@pytest.mark.parametrize("version", [(2, 14, 3), (2, 17, 1), (2, 33, 0), (3, 0, 0)])
def test_a_release_outside_the_table_is_judged_as_the_nearest(version):
    nearest = RELEASES[0] if version < RELEASES[0] else RELEASES[-1]

    for collective in COLLECTIVES:
        assert legal_pairs(collective, place(version)) == legal_pairs(collective, place(nearest))


@pytest.mark.parametrize(
    ("collective", "algorithm", "protocol", "where", "words"),
    [
        (
            "all_gather",
            "Tree",
            "default",
            place(nodes=1, ranks=2, nvls=False),
            "all_gather has no Tree in NCCL 2.28.9; legal: Ring",
        ),
        (
            "all_gather",
            "PAT",
            "default",
            place((2, 22, 3), ranks=2),
            "all_gather has no PAT (new in 2.23) in NCCL 2.22.3; legal: Ring",
        ),
        (
            "broadcast",
            "Tree,NVLS",
            "default",
            place(),
            "broadcast has no Tree, NVLS in NCCL 2.28.9; legal: Ring",
        ),
        (
            "all_reduce",
            "NVLS",
            "LL",
            place(compute_capability=(9, 0)),
            "NVLS runs Simple only, not LL; legal: Ring, Tree",
        ),
        (
            "all_reduce",
            "NVLS",
            "LL",
            place(compute_capability=(8, 0)),
            (
                "NVLS needs sm_90 or newer; here NCCL 2.28.9, 8 ranks on 1 node, sm_80;"
                " legal: Ring, Tree"
            ),
        ),
        (
            "all_gather",
            "PAT",
            "default",
            place(ranks=2, nvls=False),
            "PAT needs one GPU a node; here NCCL 2.28.9, 2 ranks on 1 node; legal: Ring",
        ),
        (
            "all_reduce",
            "NVLSTree,CollNetChain",
            "Simple",
            place(dtype="float32", redop="sum"),
            (
                "NVLSTree needs at least 2 nodes; CollNetChain needs CollNet (NCCL_COLLNET_ENABLE=1"
                " and a plug-in); here NCCL 2.28.9, 8 ranks on 1 node, float32, sum;"
                " legal: Ring, Tree, NVLS"
            ),
        ),
        (
            "all_reduce",
            "allreduce:Tree",
            "default",
            place((2, 23, 4)),
            (
                "NCCL_ALGO and NCCL_PROTO take no function before NCCL 2.24; here NCCL 2.23.4;"
                " write a plain list"
            ),
        ),
        (
            "all_reduce",
            "default",
            "^LL,LL128,Simple",
            place(),
            "the value leaves no protocol on for all_reduce",
        ),
        (
            "reduce",
            f"^{','.join(ALGORITHMS)}",
            "default",
            place(),
            "the value leaves no algorithm on for reduce",
        ),
    ],
)
def test_the_reason_names_the_cause_and_what_is_legal(
    collective, algorithm, protocol, where, words
):
    assert why_illegal(collective, algorithm, protocol, where) == words


@pytest.mark.parametrize(
    ("collective", "algorithm", "last_legal", "first_illegal"),
    [
        ("all_reduce", "NVLS", {"compute_capability": (9, 0)}, {"compute_capability": (8, 9)}),
        ("all_reduce", "NVLS", {"nvls": True}, {"nvls": False}),
        ("all_reduce", "NVLS", {"ranks": 2}, {"ranks": 2, "version": (2, 28, 3)}),
        ("all_reduce", "NVLS", {"version": (2, 28, 7), "ranks": 2}, {"nodes": 2, "ranks": 16}),
        ("all_reduce", "NVLSTree", {"nodes": 2, "ranks": 4}, {"nodes": 2, "ranks": 3}),
        ("all_reduce", "NVLS", {"redop": "max", "dtype": "float16"}, {"redop": "avg"}),
        (
            "all_reduce",
            "NVLS",
            {"redop": "sum", "dtype": "float32"},
            {"redop": "max", "dtype": "float32"},
        ),
        ("reduce_scatter", "NVLS", {"redop": "sum", "dtype": "int64"}, {"dtype": "int8"}),
        (
            "all_gather",
            "NVLS",
            {"version": (2, 22, 3), "dtype": "uint8"},
            {"version": (2, 21, 5), "dtype": "uint8"},
        ),
        ("all_gather", "NVLS", {"ranks": 32}, {"ranks": 33}),
        (
            "all_reduce",
            "CollNetDirect",
            {"collnet": True, "nodes": 2, "ranks": 16},
            {"collnet": True, "nodes": 2, "ranks": 17},
        ),
        (
            "all_reduce",
            "CollNetChain",
            {"collnet": True, "nodes": 2, "ranks": 18, "version": (2, 27, 7)},
            {"collnet": True, "nodes": 2, "ranks": 18, "version": (2, 28, 3)},
        ),
        (
            "all_reduce",
            "CollNetChain",
            {"collnet": True, "nodes": 2, "ranks": 18, "version": (2, 23, 4)},
            {"collnet": True, "nodes": 2, "ranks": 18, "version": (2, 22, 3)},
        ),
        ("all_reduce", "CollNetDirect", {"collnet": True, "nodes": 2}, {"nodes": 2}),
        ("all_reduce", "CollNetDirect", {"collnet": True, "nodes": 2}, {"collnet": True}),
        (
            "reduce_scatter",
            "PAT",
            {"nodes": 8, "redop": "max"},
            {"nodes": 8, "redop": "avg"},
        ),
    ],
)
def test_each_limit_begins_where_the_source_has_it(
    collective, algorithm, last_legal, first_illegal
):
    assert why_illegal(collective, algorithm, "default", place(**last_legal)) is None
    assert why_illegal(collective, algorithm, "default", place(**first_illegal)) is not None


@pytest.mark.parametrize("version", RELEASES, ids=lambda version: ".".join(map(str, version)))
def test_tree_and_named_ll128_are_legal_on_one_node(version):
    assert why_illegal("all_reduce", "Tree", "LL128", place(version, ranks=2)) is None


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
@pytest.mark.parametrize("redop", REDOPS)
def test_ring_runs_every_type_and_operator(dtype, redop):
    assert why_illegal("reduce", "Ring", "LL", place(dtype=dtype, redop=redop)) is None


def test_what_nccl_does_not_choose_is_never_illegal():
    ignoring = [name for name in COLLECTIVES if ignores_choice(name)]

    assert [why_illegal(name, "PAT", "LL", place()) for name in ignoring] == [None] * 4
    assert [legal_pairs(name, place()) for name in ignoring] == [()] * 4
    assert [legal_pairs(name, place(ranks=1)) for name in ignoring] == [()] * 4


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_illegal_on_one_rank(algorithm):
    assert why_illegal("all_gather", algorithm, "LL", place(ranks=1)) is None
    assert legal_pairs("all_gather", place(ranks=1)) == (("Ring", "Simple"),)


def test_a_function_that_is_not_meant_leaves_the_collective_alone():
    assert why_illegal("all_gather", "allreduce:Tree", "default", place()) is None


def test_every_row_names_a_file_and_a_release_of_the_source():
    named = re.compile(r"\bsrc/[a-z_/]+\.(cc|h) 2\.\d+\.\d+")

    assert [row for row in (*ROWS, *LIMITS) if not named.search(row.source)] == []


@pytest.mark.parametrize("version", RELEASES, ids=lambda version: ".".join(map(str, version)))
def test_before_2_24_something_else_runs(version):
    assert falls_back_silently(version) == (version[1] < 24)


@pytest.mark.parametrize(
    ("version", "capability", "intra", "inter", "automatic"),
    [
        ((2, 28, 9), (9, 0), "NVL", "PIX", True),
        ((2, 28, 9), (9, 0), "NVB", "PXN", True),
        ((2, 28, 9), (9, 0), "NVL", "P2C", True),
        ((2, 28, 9), (9, 0), "NVL", "PHB", False),
        ((2, 28, 9), (9, 0), "C2C", "PIX", False),
        ((2, 28, 9), (9, 0), "SYS", "PIX", False),
        ((2, 28, 9), (8, 0), "NVL", "PXB", True),
        ((2, 28, 9), (8, 0), "NVL", "PXN", False),
        ((2, 28, 9), (8, 0), "NVL", "P2C", False),
        ((2, 28, 9), (8, 9), "NVL", "PIX", True),
        ((2, 28, 9), (6, 0), "NVL", "PIX", False),
        ((2, 26, 6), (8, 6), "NVL", "PIX", False),
        ((2, 27, 3), (8, 6), "NVL", "PIX", True),
        ((2, 25, 1), (10, 0), "NVL", "PIX", True),
        ((2, 25, 1), (10, 3), "NVL", "PIX", False),
        ((2, 24, 3), (10, 0), "NVL", "PIX", False),
        ((2, 18, 1), (9, 0), "NVB", "PIX", False),
        ((2, 18, 3), (9, 0), "NVB", "PIX", True),
        ((2, 18, 1), (7, 0), "NVL", "PIX", True),
        ((2, 28, 9), None, "NVL", "PIX", None),
        ((2, 28, 9), (9, 0), None, "PIX", None),
        ((2, 28, 9), (9, 0), "NVL", None, None),
        ((2, 28, 9), (9, 0), "NVL", "XYZ", None),
        ((2, 28, 9), None, "PHB", None, False),
        ((2, 28, 9), None, "NVL", "SYS", False),
    ],
)
def test_where_nccl_turns_ll128_on_by_itself(version, capability, intra, inter, automatic):
    assert ll128_is_automatic(version, capability, intra, inter) is automatic
