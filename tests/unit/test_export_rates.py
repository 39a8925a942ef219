"""Which bus bandwidths ``collbench export prometheus`` makes of trials."""

from __future__ import annotations

import msgspec
from records import make_trial

from collbench.interop.prometheus import bus_bandwidths
from collbench.model import GroupPlace, Proof, Status


def ran(trial, algorithm, protocol):
    return msgspec.structs.replace(trial, proof=Proof(algorithm=algorithm, protocol=protocol))


def test_a_rate_is_of_the_median_over_repeats_that_ran_alike():
    trials = [
        ran(make_trial(6000, time_us, repeat=k), "Ring", "LL")
        for k, time_us in enumerate((2.0, 4.0, 3.0))
    ]
    trials.append(ran(make_trial(6000, 1.0, repeat=3), "Tree", "LL"))

    assert bus_bandwidths([trials]) == {
        ("all_reduce", 6000, ("Ring", "LL")): 2e9,
        ("all_reduce", 6000, ("Tree", "LL")): 6e9,
    }


def test_of_several_cases_the_fastest_counts_and_of_several_runs_the_newest():
    slow, fast = make_trial(8000, 4.0), make_trial(8000, 2.0, dtype="float16")
    old = [make_trial(8000, 1.0), make_trial(16000, 1.0)]

    assert bus_bandwidths([[slow, fast], old]) == {
        ("all_reduce", 8000, ("unknown", "unknown")): 4e9,
        ("all_reduce", 16000, ("unknown", "unknown")): 16e9,
    }


def test_what_shows_no_rate_and_pairs_have_no_series():
    trials = [
        make_trial(8, 1.0, rate=False),
        msgspec.structs.replace(make_trial(16, 1.0), status=Status.PATH_NOT_USED),
        make_trial(32, 1.0, group=GroupPlace(name="a-b", round=0, ranks=[0, 1])),
    ]

    assert bus_bandwidths([trials]) == {}
