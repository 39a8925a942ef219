"""Bars in words: the section of a report, and the findings."""

from __future__ import annotations

import msgspec
import pytest
from records import make_trial
from setting_trials import RING_LL

from collbench.analyze.bars import BarReport, Bars, BarVerdict, CaseBar, PeakBar
from collbench.analyze.baseline import Baseline, BaselineCase, HardwareClass, Software
from collbench.model import Mode
from collbench.report.bars import (
    BAR_CODES,
    MOST_ROWS,
    bar_findings,
    bar_lines,
    case_words,
    hardware_words,
    repeats_words,
    software_words,
)

CASE = make_trial(64 * 2**20, 500.0, name="all_gather", mode=Mode.GRAPH).case
HERE = Software(collbench="0.1.0", nccl="2.30.7", torch="2.13.0", driver="580.1")
BASELINE = Baseline(
    hardware=HardwareClass(
        models=["NVIDIA H200"], nodes=1, gpus_per_node=[2], ranks=2, nics=[], backend="nccl"
    ),
    software=[msgspec.structs.replace(HERE, nccl="2.28.9")],
    run_ids=["20261130-0412-7f3a"],
    cases=[BaselineCase(case=CASE, time_us=500.0, repeats=5, times_us=[500.0] * 5)],
)
BARS = Bars(baseline=BASELINE, source="baseline-2xH200.json")
NEVER_BELOW = Bars(min_busbw_gb_per_s=300.0, min_of_limit=0.85)


def case_bar(verdict: BarVerdict, ratio: float | None = 1.0, **changes) -> CaseBar:
    time_us = None if ratio is None else 500.0 * ratio
    values = {"case": CASE, "reference_us": 500.0, "time_us": time_us, "ratio": ratio}
    return CaseBar(verdict=verdict, **(values | changes))


def peak_bar(verdict: BarVerdict, option: str = "--min-busbw", **changes) -> PeakBar:
    values = {"busbw_gb_per_s": 287.0, "bar_gb_per_s": 300.0, "text": "300 GB/s"}
    return PeakBar(option=option, case=CASE, verdict=verdict, **(values | changes))


def test_the_section_names_what_is_below_what_cannot_be_told_and_what_to_do():
    report = BarReport(
        cases=(
            case_bar(BarVerdict.MET),
            case_bar(BarVerdict.BELOW, 1.115, low=1.098, high=1.131),
            case_bar(BarVerdict.UNCLEAR, 1.08, reason="noisy: the interval spans -2 % to +20 %"),
            case_bar(BarVerdict.NO_BAR, None),
        ),
        not_measured=3,
        software=HERE,
    )

    assert bar_lines(report, BARS) == [
        "Bars",
        (
            "  baseline baseline-2xH200.json (5 repeats; NCCL 2.28.9, torch 2.13.0, driver 580.1,"
            " collbench 0.1.0)"
        ),
        "    1 pass, 1 below, 1 unclear, 1 no bar; tolerance 5 %",
        "    BELOW   all_gather float32 64 MiB graph  500.0 -> 557.5 us  +11.5% [+9.8%, +13.1%]",
        (
            "    unclear all_gather float32 64 MiB graph  500.0 -> 540.0 us  +8.0%  noisy: the"
            " interval spans -2 % to +20 %"
        ),
        "    3 cases of the baseline not in this run",
        "    other software: NCCL 2.28.9 there, 2.30.7 here",
        (
            "  Bars missed: 1 below, 1 unclear. Next: measure again; what stays, compare with"
            " 20261130-0412-7f3a (collbench compare)."
        ),
    ]


def test_the_slowest_stand_first_and_the_rest_is_counted():
    cases = tuple(case_bar(BarVerdict.BELOW, 1.1 + k / 100) for k in range(MOST_ROWS + 2))
    lines = bar_lines(BarReport(cases=cases, software=BASELINE.software[0]), BARS)
    rows = [line for line in lines if "BELOW" in line]

    assert len(rows) == MOST_ROWS
    assert "+31.0%" in rows[0]
    assert "+12.0%" in rows[-1]
    assert lines[lines.index(rows[-1]) + 1].strip() == "and 2 more"
    assert not any("other software" in line for line in lines)


@pytest.mark.parametrize(
    ("peak", "line"),
    [
        (
            peak_bar(BarVerdict.BELOW),
            "  BELOW   all_gather float32 64 MiB graph  287 GB/s, --min-busbw 300 GB/s",
        ),
        (
            peak_bar(BarVerdict.MET, busbw_gb_per_s=329.6),
            "  pass    all_gather float32 64 MiB graph  329.6 GB/s, --min-busbw 300 GB/s",
        ),
        (
            peak_bar(
                BarVerdict.BELOW,
                "--min-of-limit",
                bar_gb_per_s=406.98,
                text="85 % of 18 NVLinks x 26.6 GB/s, Ring",
            ),
            (
                "  BELOW   all_gather float32 64 MiB graph  287 GB/s, --min-of-limit 407 GB/s"
                " (85 % of 18 NVLinks x 26.6 GB/s, Ring)"
            ),
        ),
        (
            peak_bar(
                BarVerdict.UNCLEAR,
                "--min-of-limit",
                bar_gb_per_s=None,
                text="85 %",
                reason="the limit of this wire is not known",
            ),
            (
                "  unclear all_gather float32 64 MiB graph  287 GB/s, --min-of-limit 85 %: the"
                " limit of this wire is not known"
            ),
        ),
        (
            peak_bar(BarVerdict.UNCLEAR, busbw_gb_per_s=None, reason="no bus bandwidth"),
            "  unclear all_gather float32 graph  --min-busbw 300 GB/s: no bus bandwidth",
        ),
    ],
)
def test_a_peak_is_a_line(peak, line):
    assert bar_lines(BarReport(peaks=(peak,)), NEVER_BELOW)[1] == line


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (BarReport(cases=(case_bar(BarVerdict.MET),), software=HERE), "Every bar is met."),
        (
            BarReport(cases=(case_bar(BarVerdict.NO_BAR, None),), software=HERE),
            "Cannot tell: no case was held against a bar.",
        ),
        (
            BarReport(cases=(case_bar(BarVerdict.UNCLEAR, 1.2),), software=HERE),
            (
                "Cannot tell: 1 unclear. Next: measure with --repeats 5; a baseline needs 3 repeats"
                " or more as well."
            ),
        ),
        (
            BarReport(cases=(case_bar(BarVerdict.UNCLEAR, 1.2, low=0.9, high=1.4),), software=HERE),
            (
                "Cannot tell: 1 unclear. Next: measure with more --repeats, on nodes without other"
                " load."
            ),
        ),
        (
            BarReport(cases=(case_bar(BarVerdict.UNCLEAR, None, reason="hung"),), software=HERE),
            "Cannot tell: 1 unclear. Next: see in the tables why cases were not measured.",
        ),
        (
            BarReport(peaks=(peak_bar(BarVerdict.UNCLEAR),)),
            "Cannot tell: 1 unclear. Next: measure with --repeats 5.",
        ),
        (
            BarReport(peaks=(peak_bar(BarVerdict.UNCLEAR, bar_gb_per_s=None),)),
            "Cannot tell: 1 unclear. Next: give --min-busbw where no limit is known.",
        ),
        (
            BarReport(peaks=(peak_bar(BarVerdict.BELOW),)),
            (
                "Bars missed: 1 below. Next: look at links and their rates: nvidia-smi nvlink -s,"
                " ibstat."
            ),
        ),
    ],
)
def test_the_conclusion_says_what_to_do_next(report, words):
    bars = BARS if report.software else NEVER_BELOW

    assert bar_lines(report, bars)[-1] == f"  {words}"


def test_findings_hold_the_verdicts_the_gravest_first():
    report = BarReport(
        cases=(
            case_bar(BarVerdict.BELOW, 1.2),
            case_bar(BarVerdict.BELOW, 1.1),
            case_bar(BarVerdict.UNCLEAR, 1.06, reason="noisy"),
        ),
        peaks=(peak_bar(BarVerdict.BELOW),),
        software=HERE,
    )
    found = bar_findings(report, BARS)

    assert [(one.code, one.severity) for one in found] == [
        ("below_baseline", "bad"),
        ("below_min_busbw", "bad"),
        ("bar_unclear", "warning"),
    ]
    assert {one.code for one in found} <= BAR_CODES
    assert found[0].text == (
        "Slower than the baseline baseline-2xH200.json by more than 5 %: 2 of 3 cases."
    )
    # The slowest last: where evidence is cut, its end is shown.
    assert ["+10.0%" in found[0].evidence[0], "+20.0%" in found[0].evidence[1]] == [True, True]
    assert [bool(one.next_step) for one in found] == [True, False, False]
    assert found[2].text == "Cannot tell whether 1 bar is met."


def test_a_run_that_meets_its_bars_has_a_finding_too():
    report = BarReport(cases=(case_bar(BarVerdict.MET),), software=HERE)
    (found,) = bar_findings(report, BARS)

    assert (found.code, found.severity, found.text) == ("bars_met", "info", "Every bar is met.")


def test_a_baseline_without_a_case_in_common_is_unclear():
    (found,) = bar_findings(BarReport(cases=(case_bar(BarVerdict.NO_BAR, None),)), BARS)

    assert (found.code, found.severity) == ("bar_unclear", "warning")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "all_gather float32 64 MiB graph"),
        ({"setting": RING_LL}, "all_gather float32 64 MiB graph (Ring/LL)"),
        (
            {"collective": "reduce", "redop": "max", "root": 1},
            "reduce float32 max root 1 64 MiB graph",
        ),
    ],
)
def test_a_case_has_words(changes, words):
    assert case_words(msgspec.structs.replace(CASE, **changes)) == words


def test_a_baseline_has_words():
    many = msgspec.structs.replace(
        BASELINE.hardware, nodes=4, ranks=32, nics=["8 x infiniband 400 Gbit/s"]
    )
    assert hardware_words(many) == (
        "2 x NVIDIA H200 a node, 4 nodes, 32 ranks nccl, 8 x infiniband 400 Gbit/s"
    )
    cpus = HardwareClass(
        models=["EPYC"], nodes=1, gpus_per_node=[0], ranks=2, nics=[], backend="gloo"
    )
    assert hardware_words(cpus) == "CPUs (EPYC), 1 node, 2 ranks gloo"
    both = msgspec.structs.replace(BASELINE, software=[*BASELINE.software, HERE])
    assert software_words(both).startswith("NCCL 2.28.9 and 2.30.7, torch 2.13.0, ")
    three = msgspec.structs.replace(BASELINE.cases[0], repeats=3)
    torn = msgspec.structs.replace(BASELINE, cases=[three, *BASELINE.cases])
    assert repeats_words(torn) == "3 to 5 repeats"
