"""The sizes of a suite: ladders, lists, and those that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.errors import UsageError
from collbench.suite import Ladder, Suite, override, resolve

MIB = 2**20


def sizes(asked, *, gpu=False):
    return resolve(override(Suite(), sizes=asked), gpu=gpu).sizes


def test_a_ladder_always_ends_at_its_maximum():
    assert sizes(Ladder(min="8", max="100", factor=3)) == (8, 24, 72, 100)


def test_a_step_adds():
    assert sizes(Ladder(min="4", max="4M", step="1M")) == (
        4,
        MIB + 4,
        2 * MIB + 4,
        3 * MIB + 4,
        4 * MIB,
    )


def test_a_factor_need_not_be_whole():
    assert sizes(Ladder(min=4, max=32, factor=1.5)) == (4, 6, 9, 14, 20, 30, 32)


def test_a_factor_close_to_1_gives_no_size_twice():
    assert sizes(Ladder(min=4, max=8, factor=1.1)) == (4, 5, 6, 7, 8)


def test_a_minimum_above_the_automatic_maximum_is_the_only_size():
    assert sizes(Ladder(min="64M"), gpu=False) == (64 * MIB,)


def test_a_ladder_of_one_size():
    assert sizes(Ladder(min="1K", max="1K")) == (1024,)


@given(
    st.integers(1, 2**20),
    st.integers(0, 2**30),
    st.floats(1.01, 100, allow_nan=False) | st.integers(2, 16),
)
def test_every_ladder_rises_from_min_to_max(smallest, more, factor):
    found = sizes(Ladder(min=smallest, max=smallest + more, factor=factor))

    assert found[0] == smallest
    assert found[-1] == smallest + more
    assert list(found) == sorted(set(found))


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            Ladder(min="1M", max="4K"),
            "min 1 MiB is above max 4 KiB; take a smaller min (-b) or a larger max (-e)",
        ),
        (Ladder(min="0"), "size 0 is out of range; allowed: 1 byte to 1024T (1 PiB)"),
        (Ladder(min=-4), "size -4 is out of range; allowed: 1 byte to 1024T (1 PiB)"),
        (Ladder(max="2000T"), "size 2000T is out of range; allowed: 1 byte to 1024T (1 PiB)"),
        (Ladder(step="0"), "step 0 is out of range; allowed: 1 byte to 1024T (1 PiB)"),
        (Ladder(factor=1), "factor 1 must be above 1, for instance 2 or 4"),
        (Ladder(factor=float("nan")), "factor nan must be above 1, for instance 2 or 4"),
        (Ladder(factor=float("inf")), "factor inf must be above 1, for instance 2 or 4"),
        (
            Ladder(factor=2, step="1K"),
            "factor and step cannot both be; take factor (-f) or step (-i)",
        ),
        ((), "the list is empty; write for instance 8, 64K, 1M"),
        (
            ("1MB",),
            (
                "size '1MB' has two meanings; write 1M (or 1MiB) for 1048576 bytes, or 1000000 for"
                " decimal"
            ),
        ),
    ],
)
def test_sizes_that_cannot_be(asked, text):
    with pytest.raises(UsageError) as caught:
        sizes(asked)

    assert str(caught.value) == f"sweep.sizes: {text}"


def test_a_ladder_too_fine_is_refused():
    with pytest.raises(UsageError) as caught:
        sizes(Ladder(step=1))

    assert str(caught.value) == (
        "more than 4096 sizes from 4 B to 16 MiB; take a larger factor (-f) or step (-i)"
    )


# What cannot be in a file
