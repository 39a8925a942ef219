"""Each finding between settings has a case that it must name and one that it must leave alone."""

from __future__ import annotations

import msgspec
import pytest
from setting_trials import RAN_RING, RING_LL, TREE, ended, under

from collbench.analyze.curves import curves
from collbench.analyze.setting_findings import (
    best_settings_found,
    faster_settings,
    not_proved,
    path_not_used,
    ranks_differ,
)
from collbench.model import Mode, Proof, ReasonCode, Status

MIB = 2**20
IB_ON, IB_OFF = {"ib": "on"}, {"ib": "off"}


def not_used(setting, code, text, size=MIB):
    return ended(under(setting, size, 10.0), Status.PATH_NOT_USED, code, text)


@pytest.mark.parametrize(
    ("code", "next_step"),
    [
        (
            ReasonCode.NO_NETWORK_USED,
            "take two nodes; --fake-hosts 2 exercises the network code on one",
        ),
        (
            ReasonCode.NO_RDMA_DEVICE,
            (
                "ibstat and ls /sys/class/infiniband on each node; is the device in the container,"
                " is the driver loaded?"
            ),
        ),
        (
            ReasonCode.OTHER_NETWORK,
            "look for a network plug-in (libnccl-net.so) and at NCCL_NET",
        ),
        (ReasonCode.OTHER_ALGORITHM, None),
        (ReasonCode.OTHER_PROTOCOL, None),
    ],
)
def test_a_path_that_was_not_used_is_a_warning_with_its_own_advice(code, next_step):
    (finding,) = path_not_used([not_used(IB_ON, code, "something else ran")])

    assert (finding.code, finding.severity) == (str(code), "warning")
    assert finding.text == "ib on: path not used in 1 trial. Something else ran."
    assert finding.next_step == next_step


def test_one_reason_is_told_once_with_its_settings_and_trials():
    text = "all ranks are on one node"
    trials = [
        *(not_used(s, ReasonCode.NO_NETWORK_USED, text, 8 << k)
          for s in (IB_ON, IB_OFF) for k in (0, 1)),
        not_used(TREE, ReasonCode.OTHER_ALGORITHM, "Tree was asked for, Ring ran"),
        under({}, MIB, 10.0),
    ]  # fmt: skip

    assert [finding.text for finding in path_not_used(trials)] == [
        "ib on; ib off: path not used in 4 trials. All ranks are on one node.",
        "Tree/Simple: path not used in 1 trial. Tree was asked for, Ring ran.",
    ]


@pytest.mark.parametrize(
    "trial",
    [
        under({}, MIB, 10.0),
        ended(under(TREE, MIB, 1.0), Status.UNSUPPORTED, ReasonCode.ILLEGAL, "no"),
        ended(under(TREE, MIB, 1.0), Status.DATA_WRONG, ReasonCode.WRONG_ELEMENT, "wrong"),
    ],
    ids=lambda trial: str(trial.status),
)
def test_other_ends_are_no_unused_path(trial):
    assert list(path_not_used([trial])) == []


def differing(*lines):
    proof = msgspec.structs.replace(RAN_RING, odd=list(lines))
    return under({}, MIB, 10.0, proof=proof)


def test_each_difference_between_ranks_is_told_once():
    line = "rank 1: 1 channel; the other 3 have 2"

    findings = list(ranks_differ([differing(line), differing(line, "rank 2: no NVLS")]))

    assert [(f.code, f.severity, f.text) for f in findings] == [
        ("rank_differs", "warning", "Rank 1: 1 channel; the other 3 have 2."),
        ("rank_differs", "warning", "Rank 2: no NVLS."),
    ]
    assert all(f.next_step.startswith("compare that rank's node") for f in findings)


@pytest.mark.parametrize(
    ("count", "last"),
    [
        (3, "Rank 2 differs."),
        (4, "1 more differences between ranks stand below the tables."),
        (21, "18 more differences between ranks stand below the tables."),
    ],
)
def test_many_differences_are_named_three_times_and_then_counted(count, last):
    findings = list(ranks_differ([differing(*(f"rank {k} differs" for k in range(count)))]))

    assert len(findings) == min(count, 4)
    assert findings[-1].text == last


@pytest.mark.parametrize("proof", [None, RAN_RING, Proof(problem="no log")], ids=str)
def test_ranks_that_agree_are_not_told(proof):
    assert list(ranks_differ([under({}, MIB, 10.0, proof=proof)])) == []


def test_each_problem_of_a_proof_is_told_with_its_trials():
    problems = ["rank 1 was killed", "no log", "rank 1 was killed"]
    trials = [under({}, 8 << k, 1.0, proof=Proof(problem=p)) for k, p in enumerate(problems)]

    findings = list(not_proved([*trials, under({}, MIB, 1.0, proof=RAN_RING)]))

    assert [(f.code, f.severity, f.text) for f in findings] == [
        ("not_proved", "warning", "What ran is not proved in 2 trials: rank 1 was killed."),
        ("not_proved", "warning", "What ran is not proved in 1 trial: no log."),
    ]


def test_no_more_than_three_problems_are_told():
    trials = [under({}, 8 << k, 1.0, proof=Proof(problem=f"problem {k}")) for k in range(5)]

    assert len(list(not_proved(trials))) == 3


@pytest.mark.parametrize("proof", [None, RAN_RING], ids=str)
def test_a_proof_without_a_problem_is_not_told(proof):
    assert list(not_proved([under({}, MIB, 10.0, proof=proof)])) == []


def faster(trials):
    return list(faster_settings(curves(trials)))


def test_a_faster_setting_is_told_where_its_gain_is_largest():
    trials = [
        *(under({}, size, 100.0) for size in (8, 64, MIB)),
        under(RING_LL, 8, 90.0),
        under(RING_LL, 64, 100.0),
        under(RING_LL, MIB, 60.0),
        under(TREE, MIB, 70.0),
    ]

    (finding,) = faster(trials)

    assert (finding.code, finding.severity) == ("setting_faster", "info")
    assert finding.text == (
        "Ring/LL is 40% faster than NCCL's own choice in all_reduce 1 MiB: 60.00 against 100.0 us"
        " (2 of 3 sizes have a faster one); seen in too few repeats for a verdict."
    )
    assert finding.next_step == "--repeats 5"


def test_repeats_say_what_the_best_settings_are():
    trials = [
        under(setting, size, factor * (10 + size / 1e4) * (1 + 0.001 * repeat), repeat=repeat)
        for size in (2**power for power in range(10, 26, 2))
        for setting, factor in (({}, 1.0), (TREE, 0.7))
        for repeat in range(5)
    ]

    (finding,) = best_settings_found(trials)

    assert finding.code == "best_settings"
    assert finding.text.startswith("Settings: the default is the best nowhere: all_reduce eager")
    assert "Tree/Simple 30.0 % faster" in finding.text
    assert list(best_settings_found([t for t in trials if not t.case.setting])) == []


def test_each_question_has_its_own_finding():
    trials = [
        under(setting, MIB, time_us, name=name, mode=mode)
        for name in ("all_gather", "all_reduce")
        for mode in (Mode.EAGER, Mode.GRAPH)
        for setting, time_us in (({}, 100.0), (RING_LL, 50.0))
    ]

    places = [
        finding.text.partition("choice in ")[2].partition(":")[0] for finding in faster(trials)
    ]

    assert places == [
        "all_reduce 1 MiB",
        "all_reduce 1 MiB graph",
        "all_gather 1 MiB",
        "all_gather 1 MiB graph",
    ]


@pytest.mark.parametrize(
    "trials",
    [
        [under({}, 8, 100.0), under(RING_LL, 8, 97.5)],
        [under({}, 8, 100.0), under(RING_LL, 8, 120.0)],
        [under(TREE, 8, 100.0), under(RING_LL, 8, 50.0)],
        [under({}, 8, 100.0), under(RING_LL, 64, 50.0)],
        [under({}, 8, 100.0), under(RING_LL, 8, 50.0, rate=False)],
        [under({}, 8, 100.0)],
        [],
    ],
    ids=["2.5 %", "slower", "no reference", "other size", "no rate", "alone", "nothing"],
)
def test_nothing_is_called_faster_without_a_clear_gain_over_the_reference(trials):
    assert faster(trials) == []
