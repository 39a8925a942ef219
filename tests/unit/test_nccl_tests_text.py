"""Texts of older nccl-tests, of rccl-tests, and texts that something else was printed into."""

from __future__ import annotations

import re

import pytest

from collbench.errors import UsageError
from collbench.interop.nccl_tests_read_file import read_file
from collbench.interop.nccl_tests_read_runs import make_runs
from collbench.model import Mode, Pattern, ReasonCode, Status

NOW = "2026-11-30T04:12:00.000+00:00"
FIRST = """\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 2 nGpus 1 minBytes 1024 maxBytes 4096 step: 4(factor) warmup iters: 5 iters: 20 agg \
iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   1360 on       n001 device  0 [0000:00:06] NVIDIA H200
#  Rank  1 Group  0 Pid   1360 on       n001 device  1 [0000:00:07] NVIDIA H200
#
#                                            out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   \
algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  \
(GB/s)  (GB/s)
"""
ROW_1K = "        1024           256     float     sum      -1    10.00    0.10    0.10       0"
IN_1K = "    20.00    0.05    0.05       0\n"
ROW_4K = (
    "        4096          1024     float     sum      -1    16.00    0.26    0.26       0"
    "    32.00    0.13    0.13     N/A\n"
)
LAST = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.135
#
# Collective test concluded: all_reduce_perf
"""
WHOLE = FIRST + ROW_1K + IN_1K + ROW_4K + LAST
TIMES = {(1024, False): 10.0, (1024, True): 20.0, (4096, False): 16.0, (4096, True): 32.0}


@pytest.fixture
def made(tmp_path):
    """Returns what texts become, each a file: ``0.txt``, ``1.txt``."""

    def make(*texts, collective=None, encoding="utf-8"):
        paths = [tmp_path / f"{number}.txt" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode(encoding))
        return make_runs(
            [read_file(path) for path in paths],
            collective=collective,
            cluster="lab",
            argv=["import"],
            now=NOW,
        )

    return make


def times(run):
    return {
        (trial.case.size_bytes, trial.case.in_place): trial.summary.median_us
        for trial in run.trials
    }


def odd(made):
    """Returns the lines without the folder of each file."""
    return [re.sub(r"\S*/(\d\.txt)", r"\1", line) for line in made.odd]


def test_both_placements_are_read_and_nothing_is_odd(made):
    found = made(WHOLE)

    assert found.odd == ()
    assert times(found.runs[0]) == TIMES
    checked = {(t.case.size_bytes, t.case.in_place): t.check.checked for t in found.runs[0].trials}
    assert checked == {key: key != (4096, True) for key in TIMES}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_text_with_a_byte_order_mark_is_read(made, encoding):
    assert times(made(WHOLE, encoding=encoding).runs[0]) == TIMES


def test_lines_may_end_as_in_windows(made):
    assert times(made(WHOLE.replace("\n", "\r\n")).runs[0]) == TIMES


@pytest.mark.parametrize(
    "mark", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: "], ids=["mpirun 4", "mpirun 5", "srun"]
)
def test_marks_of_who_printed_are_taken_off(made, mark):
    found = made("".join(f"{mark}{line}\n" for line in WHOLE.splitlines()))

    assert (found.odd, times(found.runs[0])) == ((), TIMES)


def test_two_processes_whose_lines_mix_are_told_apart(made):
    """Without MPI in the build, each process of mpirun prints a table of its own."""
    other = WHOLE.replace("n001", "n002").replace("10.00 ", "12.80 ").replace("0.10", "0.08")
    lines = zip(WHOLE.splitlines(), other.splitlines(), strict=True)
    text = "".join(f"[1,0]<stdout>:{a}\n[1,1]<stdout>:{b}\n" for a, b in lines)

    found = made(text)

    (run,) = found.runs
    assert run.run.repeats == 2
    assert [t.summary.median_us for t in run.trials if t.case.size_bytes == 1024] == [
        10.0,
        20.0,
        12.8,
        20.0,
    ]
    assert odd(found) == [
        "0.txt: ran on other hosts, which topology.json does not name; otherwise than 0.txt"
    ]


LOG = "n001:1360:1372 [1] NCCL INFO Channel 00/24 : 0 1\n"
WARNING = "[2026-11-30 03:28:25] n001:1360:1372 [1] transport.cc:1 NCCL WARN odd\n"


def test_the_log_of_nccl_may_stand_anywhere(made):
    text = (
        FIRST
        + LOG
        + ROW_1K[:-1].rpartition(" ")[0].rstrip()  # the #wrong of the first half comes later
        + LOG
        + WARNING
        + "       0"
        + LOG
        + IN_1K
        + ROW_4K
        + LOG
        + LAST
    )

    found = made(text)

    assert (found.odd, times(found.runs[0])) == ((), TIMES)


def test_the_row_that_the_end_of_the_file_cuts_off_is_left_out_and_said(made):
    found = made(FIRST + ROW_1K + IN_1K + ROW_4K[:70])

    assert times(found.runs[0]) == {key: TIMES[key] for key in TIMES if key[0] == 1024}
    assert odd(found) == [
        "0.txt: line 13: the row has 7 of 13 columns; left out",
        "0.txt: line 13: the table ends here without its last lines: cut off",
    ]


def test_a_number_that_does_not_parse_is_said(made):
    found = made(WHOLE.replace("32.00", "3x.00"))

    assert odd(found) == ["0.txt: line 13: time '3x.00' is no number; the row is left out"]
    assert len(found.runs[0].trials) == 2


def test_a_rate_that_is_not_that_of_its_time_is_said_and_the_time_counts(made):
    found = made(WHOLE.replace("   0.26    0.26", "   0.26    0.29"))

    (line,) = odd(found)
    assert line == (
        "0.txt: line 13: out of place busbw 0.29 GB/s, but its time gives 0.26 on 2 ranks; the"
        " time counts"
    )
    trial = found.runs[0].trials[2]
    assert trial.summary.busbw_gb_per_s == pytest.approx(0.256)
    assert trial.summary.reported_busbw_gb_per_s == 0.29


def test_the_printed_rounding_is_no_disagreement(made):
    # 1024 B in 0.04 us, which may be anything from 0.035 to 0.045: 22.8 to 29.3 GB/s.
    row = "   {time}   {rate}   {rate}       0"
    near = FIRST + ROW_1K.partition("   10.00")[0] + row.format(time="0.04", rate="22.80")
    far = FIRST + ROW_1K.partition("   10.00")[0] + row.format(time="0.04", rate="22.70")

    assert made(near + IN_1K + LAST).odd == ()
    assert len(made(far + IN_1K + LAST).odd) == 1


def test_wrong_elements_take_the_rates_away(made):
    found = made(WHOLE.replace("0.26       0 ", "0.26       3 "))

    trial = found.runs[0].trials[2]
    assert (trial.status, trial.reason.code) == (Status.DATA_WRONG, ReasonCode.WRONG_ELEMENT)
    assert trial.reason.text == "nccl-tests found 3 wrong elements"
    assert trial.check.wrong_elements == 3
    assert (trial.summary.busbw_gb_per_s, trial.summary.median_us) == (None, 16.0)


def test_a_row_of_a_type_that_is_unknown_here_is_said(made):
    found = made(WHOLE.replace("256     float", "256    uint32"))

    assert odd(found) == [
        "0.txt: line 12: type 'uint32' is unknown here; the row is left out",
    ]


def test_a_size_that_its_count_does_not_make_is_said(made):
    found = made(WHOLE.replace("4096          1024", "4096           512"))

    assert odd(found) == ["0.txt: line 13: 4096 B are not 512 x float; the row is left out"]


def test_cycles_print_their_rows_again_and_the_first_counts(made):
    again = "# Testing 2 cycle.\n" + (ROW_1K + IN_1K).replace("10.00", "10.01")

    found = made(FIRST + ROW_1K + IN_1K + again + LAST)

    assert odd(found) == [
        "0.txt: line 14: the case of line 12 once more; left out",
        "0.txt: line 14: the case of line 12 once more; left out",
    ]
    assert times(found.runs[0]) == {key: TIMES[key] for key in TIMES if key[0] == 1024}


def test_several_tables_in_one_file_are_repeats_or_runs_of_their_own(made):
    graph = WHOLE.replace("graph: 0", "graph: 1")

    found = made(WHOLE + "some words of a script\n" + WHOLE + graph)

    assert [(one.run.repeats, len(one.trials)) for one in found.runs] == [(2, 8), (1, 4)]
    assert {t.case.mode for t in found.runs[1].trials} == {Mode.GRAPH}


def test_another_version_of_nccl_is_another_run(made):
    found = made(WHOLE, WHOLE.replace("22809", "23007"))

    versions = [one.run.environment.nccl.version for one in found.runs]
    assert versions == ["2.28.9", "2.30.7"]


def test_ranks_of_another_layout_are_another_run(made):
    found = made(WHOLE, WHOLE.replace("n001 device  1", "n002 device  0"))

    assert [len(one.topology.nodes) for one in found.runs] == [1, 2]
    assert {t.case.nodes for t in found.runs[1].trials} == {2}


def test_blocking_calls_are_isolated(made):
    mark = "# Blocking Enabled: wait for completion and barrier after each collective \n#\n"

    found = made(WHOLE.replace("#\n", mark, 1))

    assert {t.case.pattern for t in found.runs[0].trials} == {Pattern.ISOLATED}


VERSION_2_0 = """\
$ mpirun -np 2 ./build/all_gather_perf -b 64 -e 1M
# nThread 1 nGpus 2 minBytes 64 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  99120 on     dgx-01 device  0 [0x06] Tesla V100-SXM2-16GB
#   Rank  1 Pid  99120 on     dgx-01 device  1 [0x07] Tesla V100-SXM2-16GB
NCCL version 2.4.8+cuda10.0
#
#                                     out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
          64             8   float    16.00    0.00    0.00  0e+00    16.00    0.00    0.00  0e+00
     1048576        131072    char    131.1    4.00    4.00    N/A   131072    0.00    0.00  1e-07
# Out of bounds values : {bounds}
# Avg bus bandwidth    : 1.00
#
"""


def test_a_table_of_2_0_has_neither_root_nor_operator_and_errors_instead_of_counts(made):
    found = made(
        VERSION_2_0.replace("{bounds}", "0 OK").replace("131072    char", "524288    char")
    )

    (one,) = found.runs
    assert found.odd == ()
    assert one.run.environment.nccl.version == "2.4.8"
    assert one.topology.nodes[0].gpus[1].name == "Tesla V100-SXM2-16GB"
    asked = [(t.case.collective, t.case.dtype, t.case.count, t.check.checked) for t in one.trials]
    assert asked == [
        ("all_gather", "float32", 8, True),
        ("all_gather", "float32", 8, True),
        ("all_gather", "int8", 524288, False),
        ("all_gather", "int8", 524288, True),
    ]
    # Its algbw was that of a share; ours is of the whole message, and busbw is the same.
    summary = one.trials[2].summary
    assert (summary.median_us, summary.reported_algbw_gb_per_s) == (131.1, 4.0)
    assert summary.algbw_gb_per_s == pytest.approx(2**20 / 131.1e3)
    assert summary.busbw_gb_per_s == pytest.approx(2**19 / 131.1e3)


def test_an_old_table_that_failed_does_not_say_where(made):
    found = made(VERSION_2_0.replace("{bounds}", "1 FAILED"))

    assert odd(found)[0] == (
        "0.txt: line 14: values out of bounds, and the table does not say in which rows"
    )


RCCL = (
    WHOLE.replace("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809\n", "")
    .replace("# Collective test starting: all_reduce_perf\n", "")
    .replace("# Using", "rccl-tests: Version 3c6c2c1\n# Using")
    .replace("Rank  0 Group  0", "  Rank  0")
    .replace("Rank  1 Group  0", "  Rank  1")
    .replace("NVIDIA H200", "AMD Instinct MI300X")
    .replace("# Collective test concluded: all_reduce_perf\n", "")
    .replace("#\n#    ", "RCCL version 2.18.3+hip6.0 HEAD:2f6d59e\n#\n#    ", 1)
)


def test_a_table_of_rccl_tests_is_read_the_same(made):
    found = made(RCCL, collective="all_reduce")

    (one,) = found.runs
    assert (found.odd, times(one)) == ((), TIMES)
    assert one.words == "NCCL 2.18.3, eager, 2 ranks on 1 node, AMD Instinct MI300X"


def test_rccl_tests_may_leave_the_out_of_place_half_out(made):
    text = RCCL.replace("out-of-place                       in-place", "in-place")
    head = "     time   algbw   busbw  #wrong"
    text = text.replace(head + head, head).replace(IN_1K, "\n").replace(ROW_4K, "")

    found = made(text, collective="all_reduce")

    assert (found.odd, times(found.runs[0])) == ((), {(1024, True): 10.0})


def test_a_table_that_names_no_program_asks_for_the_collective(made):
    with pytest.raises(UsageError) as refused:
        made(RCCL)

    assert str(refused.value).partition("' ")[2] == (
        "line 10 does not say which collective it measured; give --collective, allowed: all_reduce,"
        " all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter, send_recv"
    )


def test_a_program_that_is_no_collective_here_asks_too(made):
    text = WHOLE.replace("all_reduce_perf", "alltoallv_perf")

    with pytest.raises(UsageError, match="is of 'alltoallv_perf', which is no collective here;"):
        made(text)
    assert len(made(text, collective="all_reduce").runs[0].trials) == 4


def test_times_of_the_host_are_refused(made):
    with pytest.raises(UsageError, match=r"holds the host's times \(-C\), which are none of a"):
        made(WHOLE.replace("     time ", "  cputime "))


def test_a_table_without_its_devices_is_refused(made):
    text = "".join(line for line in WHOLE.splitlines(True) if "Rank" not in line)

    with pytest.raises(UsageError, match=r"names no ranks \('Using devices' is missing\)"):
        made(text)


def test_a_file_whose_rows_all_misfit_is_refused(made):
    with pytest.raises(UsageError, match=r"has no row that fits .*type 'uint32' is unknown here"):
        made(WHOLE.replace(" float", "uint32"))
