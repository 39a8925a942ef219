"""``collbench import nccl-tests``: what is refused, each in one line, and nothing is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from collbench.errors import UsageError

DATA = Path(__file__).parents[1] / "data" / "nccl-tests"
WANTED = "give what nccl-tests printed, or its -J file"
AS_TEXT = "give what it printed as text instead"


BAD = {
    "empty": (b" \n", "is empty; " + WANTED),
    "binary": (b"\x7fELF\0\0", "is binary; " + WANTED),
    "damaged UTF-16": (
        b"\xff\xfea",
        "begins as utf-16 and is damaged further on; " + WANTED,
    ),
    "a log": (b"# hello\nNCCL INFO nothing\n", "looks like a log without a table; " + WANTED),
    "brackets": (b"[2026] a log\n", "looks like a log without a table; " + WANTED),
    "other JSON": (
        b'{"run_id": 1, "trials": [], "a": 1, "b": 2, "c": 3}',
        "looks like JSON of 'run_id', 'trials', 'a', 'b', ...; " + WANTED,
    ),
    "no object": (b"[1, 2]", "looks like JSON of a list; " + WANTED),
    "damaged JSON": (
        b'{"version": 3, "config": {\n"nthreads": ',
        "is damaged JSON at line 2, column 13: the program may have ended early; " + AS_TEXT,
    ),
    "no results": (
        b'{"config": {}, "results": [], "errors": ["out of memory"]}',
        'has no row with figures: the program ended with "out of memory"; '
        + WANTED
        + " of a run that measured",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_result_of_nccl_tests_is_named_in_a_line(called, tmp_path, name):
    content, text = BAD[name]
    path = tmp_path / "bad"
    path.write_bytes(content)

    result = called("import", "nccl-tests", DATA / "all_reduce_g0_1.txt", path)

    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == f"'{path}' {text}"
    assert not (tmp_path / "runs").exists()


def test_a_file_that_is_not_there_or_given_twice_is_refused(called, tmp_path):
    path = DATA / "all_reduce_g0_1.txt"
    none = tmp_path / "none"

    assert str(called("import", "nccl-tests", none).exception) == (
        f"cannot read '{none}': No such file or directory"
    )
    assert str(called("import", "nccl-tests", path, path).exception) == (
        f"'{path}' is given twice; a file is one repeat: give each once"
    )


def test_an_unknown_collective_is_refused_with_ours(called):
    result = called("import", "nccl-tests", DATA / "all_reduce_g0_1.txt", "--collective", "allred")

    assert str(result.exception).startswith(
        "--collective: unknown collective 'allred'; did you mean 'allreduce'? allowed: all_reduce,"
    )
    assert "all_to_all, gather, scatter, send_recv" in str(result.exception)
