"""Times of two kinds, times that drift: what is said, and what is left alone."""

import msgspec
import numpy as np
import pytest
from records import make_trial

from collbench.analyze.oddities import (
    drifting_repeats,
    drifting_samples,
    oddities,
    two_kinds_of_samples,
)
from collbench.model import Mode, Status

STEADY = 100 + np.random.default_rng(3).standard_normal(400)


def no_times(_trial):
    return None


def times_of(values, ranks=2):
    """Samples whose slowest rank has the values."""
    block = np.stack([np.asarray(values, "f4") * (1 - 0.1 * rank) for rank in range(ranks)])
    return lambda _trial: block


def test_samples_of_two_kinds_are_one_finding():
    two = np.tile([100.0, 150.0], 50) + np.random.default_rng(1).standard_normal(100)

    (finding,) = two_kinds_of_samples([make_trial(64, 100.0)] * 3, times_of(two))

    assert (finding.code, finding.severity) == ("bimodal", "warning")
    assert finding.text.startswith("3 of 3 trials have two kinds of samples; plainest in")
    assert "all_reduce 64 B eager: about" in finding.text


def test_steady_samples_are_not_odd():
    assert oddities([make_trial(64, 100.0)], times_of(STEADY)) == []


def test_samples_that_get_slower_are_told_with_both_ends():
    slower = STEADY * np.linspace(0.95, 1.05, 400)

    (finding,) = drifting_samples([make_trial(64, 100.0)], times_of(slower))

    assert finding.code == "samples_drift"
    assert finding.text.startswith("Samples drift in 1 of 1 trials that have 100 or more; most in")
    assert "all_reduce 64 B eager, repeat 0: from about 95." in finding.text
    assert finding.evidence[0].endswith("us (+10%)")


@pytest.mark.parametrize(
    "values",
    [
        STEADY * np.linspace(0.99, 1.01, 400),
        (STEADY * np.linspace(0.95, 1.05, 400))[::5],
        np.tile([100.0, 150.0], 100),
    ],
    ids=["a drift of 2 %", "80 samples", "two kinds"],
)
def test_what_is_small_or_few_or_has_no_direction_is_no_drift(values):
    assert not list(drifting_samples([make_trial(64, 100.0)], times_of(values)))


def repeats(factors, *, size=64, mode=Mode.EAGER, time_us=100.0):
    """A trial a repeat, a minute apart."""
    return [
        msgspec.structs.replace(
            make_trial(size, time_us * factor, mode=mode, repeat=repeat),
            started_at=f"2026-11-30T00:{repeat:02d}:00.000+00:00",
        )
        for repeat, factor in enumerate(factors)
    ]


RISING = np.linspace(0.95, 1.05, 12)
LEVEL = 1 + 0.01 * np.array([0, 3, -2, 1, -1, 2, 0, -3, 1, -1, 2, -2])


def test_a_case_whose_repeats_get_slower_is_named():
    trials = repeats(RISING) + repeats(LEVEL, size=1024) + repeats(LEVEL[::-1], size=4096)

    cases, *modes = drifting_repeats(trials)

    assert cases.code == "repeats_drift"
    assert cases.text == (
        "Repeats drift in 1 of 3 cases; most in all_reduce 64 B eager: from about 95.00 to 105.0"
        " us (+10%)."
    )
    assert not [finding for finding in modes if "graph" in finding.text]


def test_a_mode_that_drifts_as_a_whole_is_named():
    trials = repeats(RISING) + repeats(RISING, size=1024)
    trials += repeats(LEVEL, mode=Mode.GRAPH)

    findings = list(drifting_repeats(trials))

    assert [finding.code for finding in findings] == ["repeats_drift", "run_drifts"]
    assert findings[1].text == (
        "All eager cases together get slower by 10.0% from the first to the last repeat."
    )


def test_the_order_is_that_of_time_not_of_numbers():
    backwards = [
        msgspec.structs.replace(trial, started_at=f"2026-11-30T01:{59 - k:02d}:00.000+00:00")
        for k, trial in enumerate(repeats(RISING))
    ]

    cases, mode = drifting_repeats(backwards)

    assert cases.text.endswith("from about 105.0 to 95.00 us (-10%).")
    assert "get faster by 10.0%" in mode.text


def test_p_is_corrected_over_all_cases():
    seven = repeats(np.linspace(0.95, 1.05, 7))
    others = [trial for size in range(10) for trial in repeats(LEVEL[:7], size=128 + 4 * size)]

    codes = {finding.code for finding in drifting_repeats(seven)}
    among_others = {finding.code for finding in drifting_repeats(seven + others)}

    assert "repeats_drift" in codes
    assert "repeats_drift" not in among_others


def test_six_repeats_are_too_few():
    assert not list(drifting_repeats(repeats(RISING[:6])))


def test_trials_that_failed_do_not_count():
    failed = [
        msgspec.structs.replace(trial, status=Status.FAILED, summary=None)
        for trial in repeats(RISING)
    ]

    assert oddities(failed, no_times) == []
