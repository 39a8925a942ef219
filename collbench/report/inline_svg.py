"""Pictures inside a page: matplotlib's SVG with words under the pointer."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from collbench.report.album import Details, Spot, Table

MOST_SPOTS = 5000
"""Of a picture; the table has all of them."""
_POINTS_A_INCH = 72
_RADIUS = 7.0
_IDS = re.compile(r'(\bid="|url\(#|href="#)')
_PROLOG = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_SIZE = re.compile(r'\s(?:width|height)="[^"]*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinePicture:
    """A picture with the table behind it."""

    anchor: str
    title: str
    svg: str
    """Trusted markup: words from outside are escaped in it."""
    table: Table
    unmarked: int = 0
    """Points without words of their own."""


@dataclass
class InlineAlbum:
    """Keeps pictures as markup instead of files.

    Args:
        prefix: of all ids, so that several runs stand in one page.
    """

    prefix: str
    pictures: list[InlinePicture] = field(default_factory=list)

    def add(self, figure: Any, name: str, title: str, details: Details) -> list[Path]:
        """Keeps the picture; no file is written."""
        del name
        anchor = f"{self.prefix}-{len(self.pictures) + 1}"
        spots, table = details()
        shown = spots[:MOST_SPOTS]
        self.pictures.append(
            InlinePicture(
                anchor=anchor,
                title=title,
                svg=_inline(figure, anchor, title, shown),
                table=table,
                unmarked=len(spots) - len(shown),
            )
        )
        return []


def _inline(figure: Any, anchor: str, title: str, spots: Sequence[Spot]) -> str:
    # One unit of the picture is then one point of the figure, for both of them.
    figure.set_dpi(_POINTS_A_INCH)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", dpi=_POINTS_A_INCH)
    markup = _METADATA.sub("", _PROLOG.sub("", stream.getvalue(), count=1), count=1)
    begin, end = markup.index("<svg"), markup.index(">", markup.index("<svg"))
    root = _SIZE.sub("", markup[begin:end])
    label = f' role="img" aria-label="{escape(title)}: the table below has its figures"'
    body = _IDS.sub(rf"\g<1>{anchor}-", markup[end:])
    body = body[: body.rindex("</svg>")]
    return f"{root}{label}{body}{_overlay(figure, spots)}</svg>"


def _overlay(figure: Any, spots: Sequence[Spot]) -> str:
    height = figure.get_figheight() * _POINTS_A_INCH
    parts = ['<g class="spots">']
    for spot in spots:
        words = f"<title>{escape(spot.text)}</title>"
        if spot.width:
            ends = [
                (spot.x - spot.width / 2, spot.y - spot.height / 2),
                (spot.x + spot.width / 2, spot.y + spot.height / 2),
            ]
            (left, low), (right, high) = spot.axes.transData.transform(ends).tolist()
            left, right = sorted((left, right))
            low, high = sorted((low, high))
            parts.append(
                f'<rect x="{left:.1f}" y="{height - high:.1f}" width="{right - left:.1f}"'
                f' height="{high - low:.1f}">{words}</rect>'
            )
        else:
            x, y = spot.axes.transData.transform((spot.x, spot.y)).tolist()
            at = f'cx="{x:.1f}" cy="{height - y:.1f}" r="{_RADIUS}"'
            parts.append(f"<circle {at}>{words}</circle>")
    return "".join([*parts, "</g>"])
