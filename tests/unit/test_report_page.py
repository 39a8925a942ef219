"""A run as one HTML file: what stands in it, and where it goes."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import msgspec
import pytest
from bar_runs import place
from click.testing import CliRunner
from records import make_trial
from stored_runs import put, stored_run

from collbench.cli.main import cli
from collbench.errors import UsageError
from collbench.model import Culprit, Proof, Reason, ReasonCode, Status
from collbench.report.page_tables import asked_table, failures_of

GOOD = [make_trial(size, 100.0) for size in (2**20, 2**24)]


def hung(rank: int, repeat: int = 0):
    trial = make_trial(2**26, 1.0)
    return msgspec.structs.replace(
        trial,
        trial_id=f"{trial.trial_id}-{rank}-{repeat}",
        repeat=repeat,
        status=Status.HUNG,
        reason=Reason(code=ReasonCode.NO_PROGRESS, text="no progress for 60 s"),
        summary=None,
        samples=None,
        culprits=[
            Culprit(rank=rank, node="a", local_rank=rank, pid=7, gpu=0, calls=3, what="is stopped")
        ],
    )


def report(*arguments):
    return CliRunner().invoke(cli, ["report", *map(str, arguments)])


@pytest.fixture
def written(tmp_path):
    """Writes a run and its report; returns the page."""

    def write(trials=GOOD, logs=None, **changes) -> str:
        folder = put(stored_run(trials, topology=place("a"), **changes), tmp_path / "runs")
        for name, text in (logs or {}).items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        target = tmp_path / "page.html"
        done = report(folder, "-o", target)
        assert done.exit_code == 0, done.output
        assert done.output.endswith(f"Kept in {target}\n")
        return target.read_text()

    return write


def test_a_page_holds_its_parts_and_asks_for_nothing(written):
    page = written()

    assert page.index('class="conclusion"') < page.index("<figure")
    for words in ("Everything that ran ended well", "How to repeat it", "Nodes", "Software"):
        assert words in page
    assert "python -m collbench sweep --repeats 5" in page
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page) == []
    assert "@import" not in page


def test_only_the_page_s_own_script_may_run(written):
    page = written()
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"simulated": True}, "SIMULATED: a model answered"),
        ({"emulated": True}, "EMULATED: several nodes on one machine"),
        ({"planted": "stop:rank=1,call=3"}, "PLANTED FAULT: stop:rank=1,call=3"),
        ({"exit_code": None, "planned_trials": 5}, "PARTIAL: the run goes on"),
        ({}, None),
    ],
)
def test_what_no_hardware_showed_is_marked(written, changes, mark):
    marks = re.findall(r'<p class="mark">([^<]*)</p>', written(**changes))

    assert len(marks) == (mark is not None)
    assert mark is None or marks[0].startswith(mark)


def test_a_failure_has_its_culprit_and_the_end_of_its_log(written):
    log = "".join(f"line {number}\n" for number in range(100))
    page = written([*GOOD, hung(1), hung(1, 1)], {"logs/rank1.log": log, "logs/rank0.log": "other"})

    assert "all_reduce 64 MiB: hung (2 times)" in page
    assert "no progress for 60 s" in page
    assert "rank 1 on a, GPU 0: is stopped" in page
    assert "The end of logs/rank1.log" in page
    assert "line 99" in page
    assert "line 79" not in page
    assert "other" not in page


def test_alike_failures_stand_together_and_many_kinds_are_counted():
    trials = [
        msgspec.structs.replace(hung(0, n), reason=Reason(code=ReasonCode.NO_PROGRESS, text=f"{n}"))
        for n in range(103)
    ]
    found, left_out = failures_of(stored_run([*trials, hung(1), hung(2)], topology=place("a")))

    assert (len(found), left_out) == (100, 4)
    found, left_out = failures_of(stored_run([hung(1), hung(2)], topology=place("a")))
    assert [(one.count, len(one.culprits)) for one in found] == [(2, 2)]
    assert left_out == 0


def test_what_was_asked_stands_beside_what_ran():
    ring = Proof(algorithm="Ring", protocol="LL", channels=2)
    trials = [
        msgspec.structs.replace(GOOD[0], proof=ring),
        msgspec.structs.replace(
            GOOD[1], case=msgspec.structs.replace(GOOD[1].case, setting={"NCCL_ALGO": "Tree"})
        ),
    ]
    table = asked_table(trials)

    assert [row[2:] for row in table.rows] == [
        ("default", "Ring/LL 2 ch (1)", "1 ok"),
        ("NCCL_ALGO=Tree", "not proved", "1 ok"),
    ]
    assert asked_table(GOOD) is None


def test_a_run_without_any_time_has_a_page_without_a_picture(written):
    page = written([hung(0)])

    assert "<figure" not in page
    assert "all_reduce 64 MiB: hung" in page


def test_a_file_that_is_there_stays_unless_it_is_forced(tmp_path):
    folder = put(stored_run(GOOD, topology=place("a")), tmp_path)
    (folder / "report.html").write_text("mine")

    with pytest.raises(UsageError, match=r"report.html' exists; give another name with -o"):
        raise report(folder).exception
    assert (folder / "report.html").read_text() == "mine"
    assert report(folder, "--force").exit_code == 0
    assert "<!doctype html>" in (folder / "report.html").read_text()
    assert [path.name for path in folder.glob(".*")] == []


def test_a_place_that_cannot_be_written_is_said_in_a_line(tmp_path):
    folder = put(stored_run(GOOD, topology=place("a")), tmp_path)

    with pytest.raises(UsageError, match="No such file or directory; give another file"):
        raise report(folder, "-o", Path(tmp_path, "none", "r.html")).exception


def test_damaged_lines_are_said_in_the_page(tmp_path):
    folder = put(stored_run(GOOD, topology=place("a")), tmp_path)
    with (folder / "trials.jsonl").open("ab") as stream:
        stream.write(b'{"torn')
    report(folder)

    assert "damaged and left out: " in (folder / "report.html").read_text()
