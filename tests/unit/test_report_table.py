"""Tables: exact text on made records."""

from collections.abc import Sequence

import msgspec
import pytest

from collbench.analyze.limit import Limit
from collbench.collectives import COLLECTIVES
from collbench.model import (
    Case,
    Check,
    Mode,
    Proof,
    Reason,
    ReasonCode,
    Status,
    StopReason,
    Summary,
    Trial,
)
from collbench.report.table import WIDTH, render_tables


def make_case(size: int, name: str = "all_reduce", mode: Mode = Mode.EAGER, n: int = 2) -> Case:
    row = COLLECTIVES[name]
    count = row.count(size, "float32", n)
    return Case(
        collective=name,
        backend="nccl",
        dtype="float32",
        redop="sum" if row.has_redop else None,
        root=0 if row.has_root else None,
        size_bytes=row.size_bytes(count, "float32", n),
        requested_bytes=size,
        count=count,
        world_size=n,
        in_place=row.natural_in_place,
        mode=mode,
    )


def make_trial(case: Case, time_us: float, repeat: int = 0, samples: int = 40, ops: int = 1):
    algbw = case.size_bytes / time_us / 1e3
    return Trial(
        trial_id=f"{case.case_id}.{repeat}",
        case_id=case.case_id,
        case=case,
        repeat=repeat,
        status=Status.OK,
        stop_reason=StopReason.PRECISE,
        check=Check(checked=True, checked_elements=2 * case.count),
        summary=Summary(
            samples=samples,
            ops_per_sample=ops,
            warmup_samples=5,
            median_us=time_us,
            ci95_us=(time_us * 0.99, time_us * 1.01),
            min_us=time_us * 0.9,
            p5_us=time_us * 0.95,
            p95_us=time_us * 1.1 if samples >= 20 else None,
            mean_over_ranks_us=time_us,
            algbw_gb_per_s=algbw,
            busbw_gb_per_s=COLLECTIVES[case.collective].busbw(algbw, case.world_size),
            skew=0.034,
        ),
        started_at="2026-11-30T04:12:00.000+00:00",
        duration_s=0.5,
    )


def without_result(case: Case, status: Status, code: ReasonCode, text: str) -> Trial:
    ok = make_trial(case, 1.0)
    return msgspec.structs.replace(
        ok,
        status=status,
        reason=Reason(code=code, text=text),
        summary=None,
        check=None,
        stop_reason=None,
    )


def no_limit(_case: Case, _proof: Proof | None) -> Limit | None:
    return None


def lines_of(trials: Sequence[Trial], limit_of=no_limit) -> list[str]:
    return render_tables(trials, limit_of).splitlines()


def test_one_mode_shows_algorithm_and_bus_bandwidth():
    trials = [make_trial(make_case(2**20), 50.0), make_trial(make_case(2**30), 4321.0, samples=12)]

    assert lines_of(trials) == [
        (
            "all_reduce  float32  sum  in place  back to back  2 ranks, slowest rank, median;"
            " busbw = 1 x algbw"
        ),
        "  eager: what a program feels, host launch included",
        "                              algbw busbw",
        " size     count time us   p95  GB/s  GB/s  n stop    skew wrong",
        "1 MiB    262144   50.00 55.00 20.97 20.97 40 precise   3%     0",
        "1 GiB 268435456    4321     - 248.5 248.5 12 precise   3%     0",
    ]


def test_two_modes_stand_side_by_side_with_the_limit():
    trials = [
        make_trial(make_case(2**30), 3268.0),
        make_trial(make_case(2**30, mode=Mode.GRAPH), 3258.0, ops=4),
    ]

    lines = lines_of(trials, lambda _case, _proof: Limit(478.0, "18 NVLinks x 26.6 GB/s"))

    assert lines[1:] == [
        "  eager: what a program feels, host launch included",
        "  graph: device time, captured in a CUDA graph; p95 of batches of up to 4 calls",
        "  limit: busbw as a share of 18 NVLinks x 26.6 GB/s",
        "                | eager      busbw                  | graph      busbw",
        (
            " size     count time us  p95  GB/s limit  n stop    time us  p95  GB/s limit  n stop"
            "    skew wrong"
        ),
        (
            "1 GiB 268435456    3268 3595 328.6   69% 40 precise    3258 3584 329.6   69%"
            " 40 precise   3%     0"
        ),
    ]


def test_rows_are_in_order_of_size_whatever_the_order_of_the_repeats():
    sizes = [2**20, 4, 2**10]
    trials = [make_trial(make_case(size), 10.0 + r, r) for r in (1, 0) for size in sizes]

    lines = lines_of(trials)

    assert [line.split()[0:2] for line in lines[-3:]] == [["4", "B"], ["1", "KiB"], ["1", "MiB"]]
    assert "spread" in lines[3]
    assert lines[-1].split()[3:8] == ["10.50", "11.55", "99.86", "99.86", "10%"]


def test_a_row_without_a_time_says_why():
    good = make_trial(make_case(2**20), 50.0)
    hung = without_result(
        make_case(2**22),
        Status.HUNG,
        ReasonCode.NO_PROGRESS,
        "rank 1 stopped; silent for 60 s",
    )

    lines = lines_of([good, hung])

    assert lines[-2].split() == ["4", "MiB", "1048576", "hung", "-", "-", "-", "-", "-", "-"]
    assert lines[-1] == "  hung: rank 1 stopped; silent for 60 s"


def test_a_table_of_nothing_but_refusals_is_two_lines():
    trials = [
        without_result(
            make_case(size), Status.UNSUPPORTED, ReasonCode.NO_SUCH_DTYPE, "Gloo has no float8"
        )
        for size in (4, 16)
    ]

    lines = lines_of(trials)

    assert len(lines) == 2
    assert lines[1] == "  unsupported: Gloo has no float8 (2 cases)"


def test_refusals_in_several_modes_do_not_break_the_table():
    trials = [
        without_result(make_case(4, mode=mode), Status.UNSUPPORTED, ReasonCode.NO_IN_PLACE, "none")
        for mode in Mode
    ]

    assert lines_of(trials)[1] == "  unsupported: none (3 cases)"


def test_wrong_data_show_the_count_and_no_rate():
    trial = make_trial(make_case(2**20), 50.0)
    assert trial.summary is not None
    wrong = msgspec.structs.replace(
        trial,
        status=Status.DATA_WRONG,
        reason=Reason(code=ReasonCode.WRONG_ELEMENT, text="rank 1, element 5"),
        check=Check(checked=True, checked_elements=10, wrong_elements=3),
    )

    (row,) = [line for line in lines_of([wrong]) if line.startswith("1 MiB")]

    assert row.split() == ["1", "MiB", "262144", "data_wrong", "-", "-", "-", "-", "-", "3"]


def titles(trials):
    lines = [line for line in lines_of(trials) if "back to back" in line]
    return [line.partition("back to back  ")[2].partition(", slowest")[0] for line in lines]


def test_a_setting_stands_in_the_title_of_its_table():
    case = make_case(2**20)
    ring = msgspec.structs.replace(case, setting={"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"})

    assert titles([make_trial(case, 50.0)]) == ["2 ranks"]
    assert titles([make_trial(ring, 60.0)]) == ["Ring/LL  2 ranks"]


def test_several_settings_share_one_table():
    case = make_case(2**20)
    ring = msgspec.structs.replace(case, setting={"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"})

    assert titles([make_trial(case, 50.0), make_trial(ring, 60.0)]) == ["2 ranks"]


def test_unchecked_data_are_not_called_right():
    trial = msgspec.structs.replace(make_trial(make_case(2**20), 50.0), check=Check(checked=False))

    assert lines_of([trial])[-1].split()[-1] == "-"


def test_the_bytes_asked_for_are_told_where_others_moved():
    lines = lines_of([make_trial(make_case(4, "all_gather"), 5.0)])

    assert lines[-2].split()[:3] == ["8", "B", "1"]
    assert lines[-1] == "  4 B asked for: 8 B is what 2 ranks move in whole elements"


@pytest.mark.parametrize("modes", [2, 3])
@pytest.mark.parametrize("repeats", [1, 20])
@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_no_table_is_wider_than_120_columns(name, modes, repeats):
    trials = [
        make_trial(make_case(size, name, mode), 1234567.0 / (r + 1), r, samples=10_000, ops=20)
        for mode in list(Mode)[:modes]
        for size in (3, 1000, 2**35)
        for r in range(repeats)
    ]

    lines = lines_of(trials, lambda _case, _proof: Limit(478.0, "18 NVLinks x 26.6 GB/s"))

    assert max(len(line) for line in lines) <= WIDTH


def test_one_rank_has_no_bus_bandwidth():
    case = make_case(2**20, n=1)
    trial = make_trial(case, 5.0)
    assert trial.summary is not None
    alone = msgspec.structs.replace(
        trial, summary=msgspec.structs.replace(trial.summary, busbw_gb_per_s=None)
    )

    lines = lines_of([alone])

    assert lines[0].endswith("1 rank, median; it communicates with nobody: no busbw")
    assert lines[-1].split() == [
        "1",
        "MiB",
        "262144",
        "5.00",
        "5.50",
        "209.7",
        "-",
        "40",
        "precise",
        "0",
    ]
