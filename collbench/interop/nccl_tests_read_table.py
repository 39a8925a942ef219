"""The text tables of nccl-tests 2.0 to 2.19 and of rccl-tests, a line at a time.

Columns came and went (``redop`` and ``root`` stand everywhere since 2.13, ``error`` became
``#wrong``, ``-I`` added four more): the line with the columns' names says what a row holds. NCCL's
log goes to the same stream and may fall between the halves of a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from collbench.interop.nccl_tests_read_row import Columns, read_row
from collbench.interop.nccl_tests_read_types import Rank, Table, version_text

_LOG = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d [\d:]+\] ?)?[A-Za-z][\w.-]*:\d+:\d+ (?:\[-?\d+\] |NCCL ).*"
)
_DEVICE = re.compile(
    r"#\s+Rank\s+\d+(?:\s+Group\s+(?P<group>\d+))?\s+Pid\s+\d+ on\s+(?P<host>\S+)"
    r" device\s+(?P<device>\d+) \[(?P<bus>[^]]*)\] (?P<model>.*\S)"
)
_PROGRAM = re.compile(r"\b([a-z][a-z_]*_perf)\b")
_LIBRARY = re.compile(r"nccl-library=(\d+)|\b[NR]CCL version ?:? (\d+\.\d+\.\d+)")
_VALUE = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?\*?|nan|inf)|N/A", re.IGNORECASE)
_COUNTS = {
    "iterations": re.compile(r"(?<!warmup )(?<!agg )iters: (\d+)"),
    "aggregated": re.compile(r"agg iters: (\d+)"),
    "warmup": re.compile(r"warmup iters: (\d+)"),
}
_FLAGS = {
    "validation": re.compile(r"validation: (\d+)"),
    "graph": re.compile(r"graph: (\d+)"),
}
_FAILURE = re.compile(r"Test \w+ failure.*|# error: .*\S.*")
_FIRST = re.compile(r"\bnThread \d|Collective test starting|nccl-tests version")
_TIMESTAMP = "timestamp"
_TIMESTAMP_WORDS = 2


class CpuTimes(Exception):
    """The file holds the host's times (``-C``), which are none of the collective."""


class TableReader:
    """Reads the lines of one process; a file may hold several, told apart by mpirun's marks."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.odd: list[tuple[int, str]] = []
        """Line number and text."""
        self.failure: str | None = None
        """What the program said when it ended early."""
        self._table = Table(where="")
        self._columns: Columns | None = None
        self._above = ""
        self._row: tuple[int, list[str]] | None = None
        self._last_row = 0
        self._groups: set[str] = set()

    def feed(self, number: int, line: str) -> None:
        """Takes the next line.

        Args:
            number: of the line in the file.
            line: without marks of who printed it.

        Raises:
            CpuTimes: these are no times of a collective.
        """
        if "nccl-tests version" in line:
            self._new_start()
        version = _LIBRARY.search(line)
        if version is not None:
            self._table.nccl_version = version[2] or version_text(int(version[1]))
        line = _LOG.sub("", line)
        words = line.split()
        if words and not (self._columns is not None and self._take(number, words)):
            self._about(number, line, words)
            self._above = line

    def finish(self) -> None:
        """Takes the end of the file."""
        self._end_row()
        if self._table.rows:
            self.odd.append((self._last_row, "the table ends here without its last lines: cut off"))
        self._end_table()

    def _about(self, number: int, line: str, words: Sequence[str]) -> None:
        """Takes a line that is no row."""
        if {"size", "count", "type", "algbw", "busbw"} <= set(words):
            self._begin_table(number, [word for word in words if word != "#"])
        elif _FIRST.search(line):
            self._new_start()
            self._settings(line)
        elif device := _DEVICE.match(line.strip()):
            self._device(number, device)
        elif "Blocking Enabled" in line:
            self._table.blocking = True
            self._table.header.append(line.strip("# \n"))
        elif "Out of bounds values" in line:
            self._out_of_bounds(number, words)
        elif "Avg bus bandwidth" in line:
            self._end_row()
            self._end_table()
        elif failure := _FAILURE.search(line):
            self.failure = self.failure or failure[0].strip()
        elif "test concluded" not in line and (program := _PROGRAM.search(line)):
            # A command line that a script echoed.
            self._new_start()
            self._table.program = program[1]

    def _new_start(self) -> None:
        """Forgets what was said before, once that has had its table."""
        if self._columns is not None:
            self._end_row()
            self._end_table()

    def _settings(self, line: str) -> None:
        if program := _PROGRAM.search(line):
            self._table.program = program[1]
        for name, pattern in _COUNTS.items():
            if found := pattern.search(line):
                setattr(self._table, name, int(found[1]))
        for name, pattern in _FLAGS.items():
            if found := pattern.search(line):
                setattr(self._table, name, int(found[1]) > 0)
        self._table.header.append(line.strip("# \n"))

    def _device(self, number: int, found: re.Match[str]) -> None:
        self._groups.add(found["group"] or "0")
        if len(self._groups) > 1:
            if len(self._groups) == 2 and found["group"] not in (None, "0"):
                text = "the ranks ran as several groups at once; only group 0 is taken as ranks"
                self.odd.append((number, text))
            if found["group"] != "0":
                return
        rank = Rank(
            host=found["host"],
            device=int(found["device"]),
            bus_id=found["bus"],
            model=found["model"],
        )
        self._table.ranks.append(rank)

    def _begin_table(self, number: int, names: list[str]) -> None:
        if "cputime" in names:
            raise CpuTimes
        self._end_row()
        if self._table.rows:
            self._end_table()
        self._table.where = f"line {number}"
        stamped = _TIMESTAMP in names
        names = [name for name in names if name != _TIMESTAMP]
        starts = [place for place, name in enumerate(names) if name == "time"]
        blocks = [names[a:b] for a, b in zip(starts, [*starts[1:], len(names)], strict=True)]
        both = len(blocks) > 1
        self._columns = Columns(
            leading=names[: starts[0]],
            blocks=blocks,
            placements=[False, True] if both else ["out-of-place" not in self._above],
            words=len(names) + _TIMESTAMP_WORDS * stamped,
        )

    def _end_table(self) -> None:
        """Keeps the table; what follows is another start, which prints its first lines anew."""
        if self._table.rows:
            self.tables.append(self._table)
        self._table, self._columns, self._groups = Table(where=""), None, set()

    def _out_of_bounds(self, number: int, words: Sequence[str]) -> None:
        self._end_row()
        old = self._columns is not None and "error" in self._columns.blocks[0]
        if old and "FAILED" in words:
            text = "values out of bounds, and the table does not say in which rows"
            self.odd.append((number, text))

    def _take(self, number: int, words: list[str]) -> bool:
        """Takes a row or a part of one; returns False where the line is neither."""
        assert self._columns is not None
        values = all(_VALUE.fullmatch(word) for word in words)
        wanted = 0 if self._row is None else self._columns.words - len(self._row[1])
        if self._row is not None and values and len(words) <= wanted:
            self._row[1].extend(words)
            self._close_whole_row()
            return True
        numbers = [word.isdecimal() for word in words[:3]]
        if numbers not in ([True, True, False], [True, True], [True]):
            return False
        if len(words) < len(numbers) or (len(words) > 2 and len(numbers) < 3):
            return False
        self._end_row()
        self._row = (number, words)
        self._close_whole_row()
        return True

    def _close_whole_row(self) -> None:
        assert self._columns is not None
        if self._row is not None and len(self._row[1]) >= self._columns.words:
            self._end_row()

    def _end_row(self) -> None:
        """Turns the words of a row into figures, or says why not."""
        if self._row is None or self._columns is None:
            return
        (number, words), self._row = self._row, None
        self._last_row = number
        if len(words) != self._columns.words:
            text = f"the row has {len(words)} of {self._columns.words} columns; left out"
            self.odd.append((number, text))
            return
        try:
            self._table.rows.append(read_row(f"line {number}", words, self._columns))
        except ValueError as problem:
            self.odd.append((number, f"{problem}; the row is left out"))
