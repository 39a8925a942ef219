"""The scripts and styles that asv's page loads from elsewhere, to be put beside it.

They come from a folder given, from an earlier page, or from npm's packages; what comes from the
last two is the very bytes that were tested.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import UsageError

_DOWNLOAD_S = 300


@dataclass(frozen=True, slots=True)
class _Script:
    """A file of a package of npm."""

    package: str
    file: str
    """In the package."""
    sha256: str


_SCRIPTS: Mapping[str, _Script] = {
    "jquery.js": _Script(
        "jquery@3.3.1",
        "dist/jquery.min.js",
        "160a426ff2894252cd7cebbdd6d6b7da8fcd319c65b70468f10b6690c45d02ef",
    ),
    "jquery.flot.js": _Script(
        "flot@0.8.3",
        "jquery.flot.js",
        "b7b931f273c38b1277b9c6c1f4e05c4ec09885a487bddaf3279e2d7e49a38e12",
    ),
    "jquery.flot.time.js": _Script(
        "flot@0.8.3",
        "jquery.flot.time.js",
        "a582c832adc7138a6b05aaf61f16ebac274701f1be4afea77e739a1c34b9c41a",
    ),
    "jquery.flot.selection.js": _Script(
        "flot@0.8.3",
        "jquery.flot.selection.js",
        "e6c85f6c1ebe4b4da29d8ae238c7c5060283f05f7ef054f6b91817d02c092918",
    ),
    "jquery.flot.categories.js": _Script(
        "flot@0.8.3",
        "jquery.flot.categories.js",
        "6e81664b28ea795c734906f4aa15614640a75ac7fbd399a7fb9084040698351a",
    ),
    "jquery.flot.orderbars.js": _Script(
        "flot-orderbars@1.0.0",
        "js/jquery.flot.orderBars.js",
        "39735b4f46f96ff4e082572401f47c55a2767b366fd1d1e821e44a8d830a12bf",
    ),
    "stupidtable.js": _Script(
        "stupid-table-plugin@1.1.3",
        "stupidtable.min.js",
        "4642380f28ebe9ed7cac251793b281ef8620c4386205d92788f9b12f5cceb4e0",
    ),
    "md5.js": _Script(
        "blueimp-md5@2.19.0",
        "js/md5.min.js",
        "64d7ded388c562e4bde9e58ce205e5fa01b9734fcd434d496eb7b4fbfe9b927d",
    ),
    "bootstrap.js": _Script(
        "bootstrap@3.1.1",
        "dist/js/bootstrap.min.js",
        "898d05a17f2cfc5120ddcdba47a885c378c0b466f30f0700e502757e24b403a1",
    ),
    "bootstrap.css": _Script(
        "bootstrap@3.1.1",
        "dist/css/bootstrap.min.css",
        "e9503448692b738dd260fbd7f7cabf2e11f09b600fa97e6eb3a56eba5b1a7e9b",
    ),
}
"""By the name that a file has beside the page."""


def script_name(file_name: str) -> str:
    """Returns a script's name without version and ``.min``: ``jquery-3.3.1.min.js`` is jquery.js.

    Args:
        file_name: of a file, or the last part of an address.
    """
    return re.sub(r"(-\d[\d.]*)?(\.min)?\.(js|css)$", r".\3", file_name.lower())


def find_scripts(given: Path | None, earlier: Path) -> dict[str, bytes]:
    """Returns the content of every script by its name.

    Args:
        given: a folder that holds all of them; None: those of an earlier page, else npm's.
        earlier: the folder of scripts of an earlier page, which need not exist.

    Raises:
        UsageError: the folder lacks one; npm is missing, or cannot fetch them.
    """
    if given is not None:
        return _from_folder(given)
    return _from_earlier(earlier) or _from_npm()


def _from_folder(folder: Path) -> dict[str, bytes]:
    try:
        files = {script_name(path.name): path for path in sorted(folder.iterdir())}
        missing = [name for name in _SCRIPTS if name not in files]
        if missing:
            raise UsageError(
                f"--scripts '{folder}' lacks {', '.join(missing)}; docs/history_publish.md says"
                " where each comes from"
            )
        return {name: files[name].read_bytes() for name in _SCRIPTS}
    except OSError as problem:
        raise UsageError(f"--scripts '{folder}' cannot be read: {problem.strerror}") from None


def _from_earlier(folder: Path) -> dict[str, bytes] | None:
    try:
        found = {name: (folder / name).read_bytes() for name in _SCRIPTS}
    except OSError:
        return None
    return found if all(_is_tested(name, content) for name, content in found.items()) else None


def _from_npm() -> dict[str, bytes]:
    otherwise = (
        "; or give a folder that holds them with --scripts DIR (docs/history_publish.md lists them)"
    )
    if shutil.which("npm") is None:
        raise UsageError(
            "the page's scripts come from npm's packages, and npm is not on the PATH; install it"
            f" (apt-get install npm, dnf install npm){otherwise}"
        )
    with tempfile.TemporaryDirectory(prefix="collbench-") as name:
        packages = _packed(Path(name), otherwise)
        found = {}
        for name_, script in _SCRIPTS.items():
            with tarfile.open(packages[script.package]) as archive:
                member = archive.extractfile(f"package/{script.file}")
                assert member is not None
                found[name_] = member.read()
    changed = [name for name, content in found.items() if not _is_tested(name, content)]
    if changed:
        raise UsageError(
            f"npm's {_SCRIPTS[changed[0]].package} holds another {changed[0]} than the one that was"
            f" tested; nothing of it is used: check npm's registry{otherwise}"
        )
    return found


def _packed(folder: Path, otherwise: str) -> dict[str, Path]:
    """Fetches the packages into a folder and returns the archive of each; runs nothing of them."""
    wanted = list(dict.fromkeys(script.package for script in _SCRIPTS.values()))
    command = ["npm", "pack", "--json", "--ignore-scripts", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(
            [*command, *wanted],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DOWNLOAD_S,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"npm fetched nothing within {_DOWNLOAD_S} s{otherwise}") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        why = lines[0] if lines else f"it ended with {done.returncode}"
        raise UsageError(f"npm cannot fetch the page's scripts: {why}{otherwise}")
    return {one["id"]: folder / one["filename"] for one in json.loads(done.stdout)}


def _is_tested(name: str, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == _SCRIPTS[name].sha256
