"""Best settings: who wins, by how much, and that equal settings have no winner."""

from __future__ import annotations

import numpy as np
import pytest
from noise import equal_settings

from collbench.analyze.best import best_settings
from collbench.analyze.keys import CaseKey
from collbench.errors import UsageError
from collbench.model import Mode


def key(k: int = 0) -> CaseKey:
    return CaseKey(question=("all_reduce", k), mode=Mode.GRAPH, size_bytes=1024)


def quiet(repeats: int, level: float, turn: int = 0) -> list[float]:
    """Repeats within 0.1 %, in an order of their own."""
    return list(np.roll(level * (1 + 0.0005 * np.linspace(-1, 1, repeats)), turn))


def rows(repeats: int, levels: dict[str, float], count: int = 12):
    return {
        key(k): {
            name: quiet(repeats, level, turn + k)
            for turn, (name, level) in enumerate(levels.items())
        }
        for k in range(count)
    }


@pytest.mark.parametrize("repeats", [3, 4, 5, 10])
def test_a_faster_setting_wins_with_its_gap(repeats):
    found = best_settings(rows(repeats, {"default": 104, "ring": 110, "tree": 100}), "default")

    for row in found.values():
        assert (row.winner, row.claimed, row.reason) == ("tree", True, None)
        assert row.gap == pytest.approx(0.04, abs=0.001)
        assert 0 < row.low < 0.04 < row.high
        assert row.p < 0.01


def test_the_default_can_be_the_best():
    found = best_settings(rows(4, {"default": 100, "tree": 104}), "default")

    assert {(row.winner, row.claimed, row.reason) for row in found.values()} == {
        ("default", False, "the default is the best")
    }


def test_a_small_gap_is_told_and_not_claimed():
    found = best_settings(rows(5, {"default": 100.5, "tree": 100}), "default")[key()]

    assert (found.winner, found.claimed, found.reason) == ("tree", False, "the gap is within 1%")
    assert found.gap == pytest.approx(0.005, abs=0.001)


@pytest.mark.parametrize("repeats", [1, 2])
def test_too_few_repeats_claim_nothing(repeats):
    found = best_settings(rows(repeats, {"default": 200, "tree": 100}), "default")[key()]

    assert (found.winner, found.claimed, found.gap) == ("tree", False, None)
    assert found.reason == f"too few repeats: {repeats}, needs 3"


def test_a_repeat_that_is_slow_for_all_settings_cancels():
    measured = rows(4, {"default": 104, "tree": 100})
    slow = {
        row: {name: [times[0] * 1.5, *times[1:]] for name, times in settings.items()}
        for row, settings in measured.items()
    }

    assert best_settings(slow, "default")[key()].claimed


def test_where_other_rows_jump_as_far_nothing_is_claimed():
    measured = rows(3, {"default": 104, "tree": 100})
    measured[key(99)] = {"default": [100, 100.1, 110], "tree": [100, 100.1, 100.2]}
    found = best_settings(measured, "default")[key()]

    assert not found.claimed
    assert found.reason is not None
    assert found.reason.startswith("repeats of other rows jump by")


def test_a_setting_with_fewer_repeats_takes_no_part():
    measured = rows(4, {"default": 104, "tree": 100})
    measured[key()]["broken"] = [1.0, 1.0, 1.0]

    assert best_settings(measured, "default")[key()].winner == "tree"


def test_rows_may_differ_in_repeats():
    measured = rows(4, {"default": 104, "tree": 100})
    measured[key(50)] = {"default": quiet(2, 104), "tree": quiet(2, 100)}
    found = best_settings(measured, "default")

    assert list(found) == list(measured)
    assert (found[key()].claimed, found[key(50)].claimed) == (True, False)


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize("kind", ["recorded", "one per cent", "skewed", "bimodal, half"])
def test_of_15_equal_settings_none_is_claimed(kind, repeats):
    random = np.random.default_rng([21, repeats])
    claimed = 0
    for _ in range(12):
        found = best_settings(equal_settings(kind, random, repeats), "0")
        claimed += any(row.claimed for row in found.values())

    assert claimed == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tree": [1.0]}, "all_reduce of 1024 B has no setting 'default'"),
        ({"default": [1.0], "tree": [0.0]}, "a time that is not above zero"),
    ],
)
def test_bad_input_is_said(settings, words):
    with pytest.raises(UsageError) as raised:
        best_settings({key(): settings}, "default")

    assert words in str(raised.value)
