"""asv's page of an export, made to work without the internet and to speak of releases.

asv's own page loads its scripts from elsewhere, and calls a release by the hash of its commit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from collbench.errors import EngineError, UsageError
from collbench.interop.asv_benchmarks import TIME
from collbench.interop.asv_check import has_asv, load, result_files, values_of
from collbench.interop.asv_files import CONFIGURATION, HTML, MARKER, RESULTS
from collbench.interop.asv_scripts import find_scripts, script_name

VENDOR = "vendor"

_SUMMARY = "summary"
_HASH_SHOWN = 8
"""Characters of a hash in asv's feed."""
_LOADING_TAG = re.compile(r"<(?:script|link|img|iframe)\b[^>]*>", re.IGNORECASE)
_ADDRESS = re.compile(r"""\b(?P<what>src|href)=(?P<quote>["'])(?P<url>(?:https?:)?//[^"']*)\2""")
_ADDRESS_CHECKS = re.compile(r"""\s+(?:integrity|crossorigin|referrerpolicy)=(["'])[^"']*\1""")


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What the page shows."""

    html: Path
    graphs: int
    """One a benchmark of a series."""
    values: int
    regressions: tuple[str, ...]
    """The cases that asv lists, in its words."""


def publish_page(folder: Path, *, scripts: Path | None = None) -> Published:
    """Makes the page of an export in its folder ``html``.

    Args:
        folder: of an export.
        scripts: the folder of scripts that the page needs; by default they come from the page
            that was here before, else from npm.

    Raises:
        UsageError: no export; asv or a script is missing.
        EngineError: asv fails, or the page does not show what was exported.
    """
    _refuse(folder)
    found = find_scripts(scripts, folder / HTML / VENDOR)
    new = folder / f".{HTML}.new"
    _run_asv(folder, new)
    _put_beside(new, found)
    _name_releases(new)
    _leave_rates_unjudged(new)
    published = _checked(folder, new)
    old = folder / f".{HTML}.old"
    shutil.rmtree(old, ignore_errors=True)
    if published.html.exists():
        published.html.rename(old)
    new.rename(published.html)
    shutil.rmtree(old, ignore_errors=True)
    return published


def _refuse(folder: Path) -> None:
    if not (folder / MARKER).is_file() or not (folder / CONFIGURATION).is_file():
        raise UsageError(
            f"'{folder}' is no folder for asv; 'collbench history export {folder}' makes one"
        )
    require_asv()


def require_asv() -> None:
    """Makes sure that asv is installed.

    Raises:
        UsageError: it is not; says how to install it.
    """
    if not has_asv():
        raise UsageError("asv makes the page and is not here: pip install 'collbench[history]'")


def _run_asv(folder: Path, target: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = [sys.executable, "-m", "asv", "publish", "--config", CONFIGURATION, "--no-pull"]
    done = subprocess.run(
        [*command, "--html-dir", str(target.resolve())],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = f"{done.stdout}\n{done.stderr}".strip().splitlines()
        raise EngineError(f"asv publish failed: {lines[-1] if lines else done.returncode}")


def _put_beside(html: Path, scripts: Mapping[str, bytes]) -> None:
    """Puts scripts and styles beside the page and lets the page load them from there."""
    (html / VENDOR).mkdir()
    for name, content in scripts.items():
        (html / VENDOR / name).write_bytes(content)
    for page in sorted(html.glob("*.html")):
        text = page.read_text(encoding="utf-8")
        text = _LOADING_TAG.sub(partial(_local, scripts, page), text)
        page.write_text(text, encoding="utf-8")


def _local(scripts: Mapping[str, bytes], page: Path, found: re.Match[str]) -> str:
    tag = found[0]
    address = _ADDRESS.search(tag)
    if address is None:
        return tag
    name = script_name(PurePosixPath(urlsplit(address["url"]).path).name)
    if name not in scripts:
        raise EngineError(
            f"{page.name} of this asv loads {address['url']}, which is not known; use asv 0.6"
        )
    tag = tag.replace(address[0], f'{address["what"]}="{VENDOR}/{name}"')
    return _ADDRESS_CHECKS.sub("", tag)


def _name_releases(html: Path) -> None:
    """Lets the page call releases as NCCL's own repository does, which its links lead to."""
    path = html / "index.json"
    index = load(path)
    tags = {str(revision): tag for tag, revision in index["tags"].items()}
    hashes = index["revision_to_hash"]
    names = {revision: f"{tags[revision]}-1" for revision in hashes}
    index["revision_to_hash"] = names
    index["hash_length"] = max(map(len, names.values()))
    path.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")
    feed = html / "regressions.xml"
    text = feed.read_text(encoding="utf-8")
    for revision, full in hashes.items():
        # The short form alone could be a part of the feed's own digests.
        short = rf"(?<![0-9a-f]){full[:_HASH_SHOWN]}(?![0-9a-f])"
        text = re.sub(short, names[revision], text.replace(full, names[revision]))
    feed.write_text(text, encoding="utf-8")
    # What a link to a span of two releases is read by: it expects hashes.
    script = html / "graphdisplay.js"
    text = script.read_text(encoding="utf-8")
    script.write_text(
        text.replace("/^([a-z0-9]+)-([a-z0-9]+)$/", "/^(v[0-9.]+-1)-(v[0-9.]+-1)$/"),
        encoding="utf-8",
    )


def _leave_rates_unjudged(html: Path) -> None:
    """Takes the last change of a rate out of asv's list, which paints a higher one red."""
    for path in (html / "graphs").rglob(f"{_SUMMARY}.json"):
        rows = load(path)
        for row in rows:
            if not _is_time(row["name"]):
                row["change_rev"] = row["prev_value"] = None
        path.write_text(json.dumps(rows, separators=(",", ":")), encoding="utf-8")


def _checked(folder: Path, html: Path) -> Published:
    """Counts what the page shows: asv leaves out what it does not like, and ends with 0."""
    for page in html.glob("*.html"):
        for tag in _LOADING_TAG.findall(page.read_text(encoding="utf-8")):
            if _ADDRESS.search(tag):
                raise EngineError(f"{page.name} would load something from elsewhere: {tag}")
    exported = [found for path in result_files(folder / RESULTS) for found in _exported(path)]
    wanted = {series for series, _ in exported}, sum(count for _, count in exported)
    shown = {path: _points(load(path)) for path in _graph_files(html)}
    if (len(wanted[0]), wanted[1]) != (len(shown), sum(shown.values())):
        raise EngineError(
            f"asv shows {len(shown)} graphs with {sum(shown.values())} values, and"
            f" {len(wanted[0])} with {wanted[1]} were exported"
        )
    listed = [entry[0] for entry in load(html / "regressions.json")["regressions"]]
    for name in listed:
        if not _is_time(name):
            raise EngineError(f"asv lists {name} as a regression, and only times are to be judged")
    return Published(
        html=folder / HTML,
        graphs=len(shown),
        values=sum(shown.values()),
        regressions=tuple(listed),
    )


def _is_time(name: str) -> bool:
    """Whether a benchmark, or a case of one, is of times."""
    return name.partition("(")[0].endswith(f".{TIME}")


def _exported(path: Path) -> Iterator[tuple[tuple[str, str], int]]:
    """Gives for each benchmark of a result file its series, and how many values it has."""
    document = load(path)
    series = json.dumps(document["params"], sort_keys=True)
    for name, values in values_of(document):
        yield (series, name), sum(value is not None for value in values)


def _graph_files(html: Path) -> Iterator[Path]:
    """Gives the file of each graph, without asv's summaries of several."""
    for path in sorted((html / "graphs").rglob("*.json")):
        if path.stem != _SUMMARY and path.parent.name != _SUMMARY:
            yield path


def _points(graph: Any) -> int:
    return sum(value is not None for _, values in graph for value in values)
