"""Verdicts of comparisons: what is claimed, what is not, and in which words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collbench.analyze.compare import Doubt, Verdict, compare_cases
from collbench.analyze.keys import CaseKey, case_key
from collbench.errors import UsageError
from collbench.model import Case, Mode


def key(k: int = 0, mode: Mode = Mode.GRAPH) -> CaseKey:
    return CaseKey(question=("all_reduce", k), mode=mode, size_bytes=8)


def quiet(repeats: int, level: float = 100.0) -> list[float]:
    """Repeats that differ by 0.2 % and less, evenly around a level."""
    return list(level * (1 + 0.001 * np.linspace(-1, 1, repeats)))


def pair(base: list[float], new: list[float], others: int = 20):
    """One case among others that are quiet and the same."""
    rest = {key(k): quiet(len(base), 90.0 + k) for k in range(1, others + 1)}
    rest_new = {key(k): quiet(len(new), 90.0 + k) for k in range(1, others + 1)}
    return compare_cases({key(): base} | rest, {key(): new} | rest_new)


@pytest.mark.parametrize("repeats", [3, 4, 5, 8])
@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (1.0, Verdict.SAME),
        (1.02, Verdict.SAME),
        (1 / 1.02, Verdict.SAME),
        (1.05, Verdict.SLOWER),
        (1 / 1.05, Verdict.FASTER),
        (2.0, Verdict.SLOWER),
        (0.5, Verdict.FASTER),
    ],
)
def test_verdicts_of_quiet_repeats(repeats, factor, verdict):
    found = pair(quiet(repeats), quiet(repeats, 100 * factor))
    case = found.cases[0]

    assert case.verdict is verdict
    assert case.ratio == pytest.approx(factor, rel=1e-9)
    assert case.low < factor < case.high
    assert case.reason is None
    assert found.of(Verdict.SAME)[-20:] == found.cases[1:]
    claimed = verdict is not Verdict.SAME
    assert (case.p < 0.01) is (claimed or factor != 1.0)
    size = abs(math.log(factor))
    assert (0.8 * math.expm1(size) < case.surely < math.expm1(size)) is claimed


def test_one_large_change_hides_no_small_one():
    base = {key(k): quiet(5, 50.0 + k) for k in range(20)}
    new = base | {key(0): quiet(5, 500.0), key(1): quiet(5, 51 * 1.05)}
    found = compare_cases(base, new)

    assert [case.verdict for case in found.cases[:3]] == ["SLOWER", "SLOWER", "SAME"]


def test_ratio_and_times_are_geometric():
    case = compare_cases({key(): [1, 10, 100]}, {key(): [4, 40, 400]}).cases[0]

    assert (case.base_us, case.new_us) == pytest.approx((10, 40))
    assert case.ratio == pytest.approx(4)


@pytest.mark.parametrize(
    ("base", "new", "doubt", "words"),
    [
        # In 3 + 3 one case alone: Student's t of its own.
        ([100, 80, 120], [101, 79, 125], Doubt.NOISY, "noisy: the interval spans"),
        ([100, 100.1, 125, 125.1], [100, 112, 118, 124], Doubt.BIMODAL, "bimodal: repeats dis"),
        ([100, 102, 104], [106, 109, 111], Doubt.NOT_SURE, "not sure over 1 cases"),
    ],
)
def test_unclear_says_why(base, new, doubt, words):
    case = compare_cases({key(): base}, {key(): new}).cases[0]

    assert (case.verdict, case.doubt) == (Verdict.UNCLEAR, doubt)
    assert case.reason is not None
    assert words in case.reason
    assert case.surely == 0


def test_a_change_as_large_as_the_threshold_is_unclear():
    random = np.random.default_rng(1)
    noise = 0.01 * random.standard_normal((10, 40))
    noise[:, 0] -= noise[:, 0].mean()
    noise[:5, 0] -= noise[:5, 0].mean()
    noise[5:, 0] -= noise[5:, 0].mean()
    base = {key(k): list(100 * np.exp(noise[:5, k])) for k in range(40)}
    new = {key(k): list(100 * np.exp(noise[5:, k])) for k in range(40)}
    new[key()] = [1.0295 * one for one in new[key()]]
    case = compare_cases(base, new).cases[0]

    assert (case.verdict, case.doubt) == (Verdict.UNCLEAR, Doubt.AT_THRESHOLD)
    assert "about as large as the threshold" in (case.reason or "")


def test_few_repeats_are_not_believed_where_other_cases_jump_as_far():
    calm = {key(k): quiet(3, 90.0 + k) for k in range(1, 30)}
    jumping = {key(k): [100.0, 100.1, 120.0] for k in range(30, 33)}
    base = {key(): quiet(3)} | calm
    new = {key(): quiet(3, 120.0)} | calm
    without = compare_cases(base, new).cases[0]
    among = compare_cases(base | jumping, new | jumping).cases[0]

    assert without.verdict is Verdict.SLOWER
    assert (among.verdict, among.doubt) == (Verdict.UNCLEAR, Doubt.JUMPS)
    assert "jump by 19.9% in other cases; needs more repeats" in (among.reason or "")


def test_jumps_of_another_mode_do_not_matter():
    jumping = {key(k, Mode.EAGER): [100.0, 100.1, 120.0] for k in range(30, 33)}
    base = {key(k): quiet(3, 90.0 + k) for k in range(30)} | jumping
    new = base | {key(0): quiet(3, 108.0)}

    assert compare_cases(base, new).cases[0].verdict is Verdict.SLOWER


@pytest.mark.parametrize("shared", [True, False])
def test_repeats_that_are_slow_as_a_whole_are_one_piece_of_evidence(shared):
    random = np.random.default_rng(1)
    # 6 % with an error of 1.2 %: one case's own t of 4 degrees of freedom has p = 0.008.
    base_drift, new_drift = np.array([-0.015, 0.0, 0.015]), np.array([0.015, -0.015, 0.0])
    base, new = {}, {}
    for k in range(84):
        if not shared:
            base_drift, new_drift = random.permutation(base_drift), random.permutation(new_drift)
        base[key(k)] = list((100 + k) * np.exp(base_drift))
        new[key(k)] = list((100 + k) * np.exp(0.06 + new_drift))
    found = compare_cases(base, new)

    # The same differences and variances, and another answer.
    assert found.cases[0].ratio == pytest.approx(np.exp(0.06))
    assert [case.p == 1 for case in found.cases] == [shared] * 84
    assert shared or found.cases[0].p < 0.1


@pytest.mark.parametrize(
    ("base", "new", "needs"),
    [(1, 1, "needs 4 more repeats"), (2, 9, "needs 3 more repeats"), (3, 3, None), (5, 5, None)],
)
def test_too_few_repeats_are_one_line(base, new, needs):
    found = compare_cases({key(): quiet(base)}, {key(): quiet(new, 200.0)})

    assert found.needs == needs
    assert (found.base_repeats, found.new_repeats) == (base, new)
    if needs is not None:
        assert found.cases[0].doubt is Doubt.TOO_FEW
        assert found.cases[0].ratio == pytest.approx(2, rel=0.01)
        assert found.cases[0].reason == f"too few repeats: {base} + {new} repeats, needs 3 + 3"
        assert found.test.startswith("none")


def test_a_case_that_lacks_a_repeat_is_unclear_and_the_others_are_not():
    base = {key(k): quiet(5, 90.0 + k) for k in range(20)}
    new = base | {key(3): quiet(4, 300.0), key(4): quiet(5, 300.0)}
    found = compare_cases(base, new)

    assert found.cases[3].doubt is Doubt.MISSING
    assert found.cases[3].reason == "repeats are missing: 5 + 4 repeats of 5 + 5"
    assert found.cases[4].verdict is Verdict.SLOWER


@pytest.mark.parametrize(
    ("base", "new", "test"),
    [
        (3, 3, "moderated t"),
        (4, 4, "moderated t"),
        (3, 8, "permutation"),
        (5, 5, "permutation"),
    ],
)
def test_the_test_is_said(base, new, test):
    found = compare_cases({key(): quiet(base)}, {key(): quiet(new)})

    assert found.test.startswith(test)
    assert f"{base} + {new} repeats" in found.test


def test_cases_of_one_side_alone_are_told():
    base = {key(0): quiet(3), key(1): quiet(3)}
    new = {key(1): quiet(3), key(2): quiet(3)}
    found = compare_cases(base, new)

    assert [case.key for case in found.cases] == [key(1)]
    assert (found.only_base, found.only_new) == ((key(0),), (key(2),))


@pytest.mark.parametrize(
    ("base", "new", "more", "words"),
    [
        ({0: [1.0]}, {1: [1.0]}, {}, "no case in common (1 and 1 cases)"),
        ({0: [1.0, 0.0]}, {0: [1.0]}, {}, "all_reduce of 8 B has the times [1.0, 0.0]"),
        ({0: [1.0]}, {0: [math.nan]}, {}, "needs times above zero"),
        ({0: [1.0]}, {0: []}, {}, "has the times []"),
        ({0: [1.0]}, {0: [1.0]}, {"threshold": -0.1}, "the threshold -0.1 is not a share"),
        ({0: [1.0]}, {0: [1.0]}, {"alpha": 0.0}, "alpha 0 is not a chance"),
    ],
)
def test_bad_input_is_said(base, new, more, words):
    sides = [{key(k): times for k, times in side.items()} for side in (base, new)]
    with pytest.raises(UsageError) as raised:
        compare_cases(*sides, **more)

    assert words in str(raised.value)


def test_keys_tell_settings_apart_unless_they_are_the_sides():
    def case(**fields):
        return Case(
            collective="all_reduce",
            backend="nccl",
            dtype="float32",
            size_bytes=8,
            requested_bytes=8,
            count=2,
            world_size=2,
            in_place=True,
            **fields,
        )

    ring, tree = case(setting={"NCCL_ALGO": "Ring"}), case(setting={"NCCL_ALGO": "Tree"})

    assert case_key(ring) != case_key(tree)
    assert case_key(ring, setting=False) == case_key(tree, setting=False) != case_key(ring)
    assert case_key(case()) != case_key(case(mode=Mode.GRAPH))
