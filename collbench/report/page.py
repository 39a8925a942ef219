"""Stored runs as one HTML file that can be handed over: nothing in it comes from the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from collbench.report.album import Table
from collbench.report.inline_svg import InlinePicture
from collbench.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Trials that ended alike."""

    title: str
    count: int
    reason: str
    culprits: Sequence[str]
    log_name: str | None = None
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """All of one run."""

    anchor: str
    title: str
    marks: Sequence[str]
    """What shows no network or no hardware, or is not whole."""
    heading: str
    conclusion: Sequence[str]
    pictures: Sequence[InlinePicture]
    text: str
    """As its command printed it."""
    asked: Table | None
    """What was asked against what ran; None where nothing was swept or proved."""
    failures: Sequence[Failure]
    failures_left_out: int
    environment: Table
    topology: Table
    command: str
    suite: str
    problems: Sequence[str] = ()


def page_html(title: str, parts: Sequence[RunPart], made_at: str) -> str:
    """Returns the page.

    Args:
        title: of the window.
        parts: the runs, in order.
        made_at: a moment, in words.
    """
    import jinja2
    from markupsafe import Markup

    # The files of the package alone are trusted; every word of a run is escaped.
    folder = resources.files("collbench.report") / "templates"
    style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((folder / "page.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        parts=parts,
        made_at=made_at,
        version=__version__,
        style=Markup(style),  # noqa: S704  a file of this package
        script=Markup(script),  # noqa: S704  likewise
        script_digest=digest,
        trusted=Markup,
    )
