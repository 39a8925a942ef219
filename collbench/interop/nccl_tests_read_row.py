"""The words of one row in a text table of nccl-tests, and how exact its numbers are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from collbench.interop.nccl_tests_read_types import Figures, Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """What the words of a row are."""

    leading: list[str]
    blocks: list[list[str]]
    placements: list[bool]
    """Of each block: in place?"""
    words: int
    """That a whole row has."""


def read_row(where: str, words: list[str], columns: Columns) -> Row:
    """Returns a whole row.

    Raises:
        ValueError: says which word is no number.
    """
    names = columns.leading
    given = dict(zip(names, words, strict=False))
    figures, start = [], len(names)
    for block, in_place in zip(columns.blocks, columns.placements, strict=True):
        cells = dict(zip(block, words[start : start + len(block)], strict=True))
        start += len(block)
        if cells["time"] != "N/A":
            figures.append(_figures(cells, in_place=in_place))
    root = given.get("root")
    return Row(
        where=where,
        size_bytes=int(given["size"]),
        count=int(given["count"]),
        type_name=given["type"],
        redop=given.get("redop"),
        root=None if root is None else _whole("root", root),
        figures=tuple(figures),
    )


def _figures(cells: dict[str, str], *, in_place: bool) -> Figures:
    time_us, time_within_us = _number("time", cells["time"])
    algbw, _ = _number("algbw", cells["algbw"])
    busbw, busbw_within = _number("busbw", cells["busbw"])
    return Figures(
        in_place=in_place,
        time_us=time_us,
        time_within_us=time_within_us,
        algbw_gb_per_s=algbw,
        busbw_gb_per_s=busbw,
        busbw_within_gb_per_s=busbw_within,
        wrong=_wrong(cells),
    )


def _wrong(cells: dict[str, str]) -> int | None:
    """Returns the wrong elements; before 2.13 the largest error stands there instead.

    rccl-tests then marks an error that is too large by an asterisk, nccl-tests does not.
    """
    old = "error" in cells
    text = cells["error" if old else "#wrong"]
    if text == "N/A":
        return None
    number, _ = _number("error" if old else "#wrong", text.rstrip("*"))
    if old:
        return int(text.endswith("*"))
    return math.ceil(number)


def _number(name: str, text: str) -> tuple[float, float]:
    """Returns a printed number, and half a unit of its last digit."""
    try:
        value = Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{name} '{text}' is no number") from None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{name} is {text}")
    return float(value), 0.5 * 10.0**exponent


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} '{text}' is no whole number") from None
