"""Max-min fair rates, by hand and by their definition."""

from __future__ import annotations

import numpy as np
import pytest

from collbench.engine.fabric_share import max_min_rates

HAND = [
    # What stands in a row: rate of each link; the links of each call; the rates by hand.
    ("one call has the whole link", [10], [[0]], [10]),
    ("two share it: half each", [10], [[0], [0]], [5, 5]),
    ("what one cannot use the other gets", [10, 2], [[0], [0, 1]], [8, 2]),
    ("three calls, two links", [10, 4], [[0], [0, 1], [1]], [8, 2, 2]),
    ("a chain of bottlenecks", [2, 5, 9], [[0], [0, 1], [1, 2], [2]], [1, 1, 4, 5]),
    ("nobody to share with", [3, 7], [[0], [1]], [3, 7]),
    ("a link that nobody crosses", [3, 7], [[0]], [3]),
    ("no link at all", [3], [[0], []], [3, np.inf]),
]


def rates_of(capacity, calls, weights=None):
    call = [number for number, links in enumerate(calls) for _ in links]
    link = [one for links in calls for one in links]
    return max_min_rates(
        np.array(call, dtype=np.int64),
        np.array(link, dtype=np.int64),
        np.ones(len(call)) if weights is None else np.array(weights, dtype=np.float64),
        np.array(capacity, dtype=np.float64),
        len(calls),
    )


@pytest.mark.parametrize(("capacity", "calls", "expected"), [row[1:] for row in HAND])
def test_rates_are_those_found_by_hand(capacity, calls, expected):
    assert rates_of(capacity, calls).tolist() == pytest.approx(expected)


def test_a_call_that_loads_a_link_twice_as_much_has_the_same_rate():
    # 2 x rate + 1 x rate = 9.
    assert rates_of([9], [[0], [0]], [2, 1]).tolist() == [3, 3]


def test_a_call_that_is_held_elsewhere_leaves_its_weight_to_the_others():
    # The first is held at 1 by link 1 and takes 2 x 1 of link 0; the second has the other 7.
    assert rates_of([9, 1], [[0, 1], [0]], [2, 1, 1]).tolist() == [1, 7]


@pytest.mark.parametrize("seed", range(20))
def test_no_call_can_be_faster_without_slowing_one_that_is_no_faster(seed):
    """The definition: each call crosses a full link on which nobody is faster."""
    random = np.random.default_rng(seed)
    capacity = random.uniform(1, 10, 12)
    calls = [random.choice(12, random.integers(1, 5), replace=False).tolist() for _ in range(40)]
    weights = random.uniform(0.5, 3, sum(map(len, calls)))
    found = rates_of(capacity, calls, weights)

    crossing = iter(weights)
    matrix = np.zeros((40, 12))
    for number, links in enumerate(calls):
        for link in links:
            matrix[number, link] = next(crossing)
    load = found @ matrix
    assert (load <= capacity * (1 + 1e-9)).all()
    for number, links in enumerate(calls):
        assert any(
            load[link] == pytest.approx(capacity[link])
            and found[number] == pytest.approx(found[matrix[:, link] > 0].max())
            for link in links
        )
