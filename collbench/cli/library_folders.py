"""NCCL releases by number: the folders that they are installed into, each with a library alone.

A release is the wheel ``nvidia-nccl-cu13`` (or ``-cu12``) of that version without what it depends
on; torch's own library is not touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from collbench.errors import NothingMeasured, UsageError

FOLDER_VARIABLE = "COLLBENCH_NCCL_FOLDER"
CUDA_MAJORS = ("12", "13")
_VERSION = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")
_LIBRARY = Path("nvidia/nccl/lib/libnccl.so.2")
_LAST_LINES = 3


def libraries_folder(option: str | None, environ: Mapping[str, str]) -> Path:
    """Returns where releases are installed: ``--libraries``, the variable, or the user's cache."""
    given = option or environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "collbench" / "nccl"


def is_version(text: str) -> bool:
    """Whether a text is a release's number: ``2.29.7``."""
    return _VERSION.fullmatch(text) is not None


def library_path(folder: Path, version: str, cuda: str) -> Path:
    """Returns where a release's library is, or would be.

    Args:
        folder: of all releases.
        version: ``2.29.7``.
        cuda: major version that it is built for.
    """
    return folder / f"cu{cuda}-{version}" / _LIBRARY


def missing_releases(folder: Path, versions: Iterable[str], cuda: str) -> list[str]:
    """Returns the releases that are not installed.

    Raises:
        UsageError: the folder cannot be looked into.
    """
    try:
        return [one for one in versions if not library_path(folder, one, cuda).exists()]
    except OSError as problem:
        raise UsageError(
            f"'{folder}' cannot be read: {problem.strerror}; give another folder with --libraries"
        ) from None


def install_command(folder: Path, versions: Sequence[str], cuda: str) -> str:
    """Returns the command line that installs releases there."""
    also = "" if cuda == CUDA_MAJORS[-1] else f" --cuda {cuda}"
    return f"collbench history install {','.join(versions)}{also} --libraries {folder}"


def install_release(folder: Path, version: str, cuda: str) -> Path:
    """Installs a release and returns its library's path; one that is there is left as it is.

    It is made beside its place and moved there whole: of several processes that install it at the
    same time one wins.

    Args:
        folder: of all releases; made if it is missing.
        version: ``2.29.7``.
        cuda: major version that it is built for.

    Raises:
        UsageError: the folder cannot be written.
        NothingMeasured: pip could not get it; with pip's words.
    """
    path = library_path(folder, version, cuda)
    if path.exists():
        return path
    place = folder / f"cu{cuda}-{version}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=folder))
    except OSError as problem:
        raise UsageError(
            f"releases cannot be installed into '{folder}': {problem.strerror}; give another"
            " folder with --libraries"
        ) from None
    try:
        _pip(scratch, f"nvidia-nccl-cu{cuda}=={version}")
        if not (scratch / _LIBRARY).exists():
            raise NothingMeasured(f"the wheel of NCCL {version} holds no {_LIBRARY}")
        # What mkdtemp makes is the maker's alone; a shared folder is for all.
        mask = os.umask(0)
        os.umask(mask)
        scratch.chmod(0o777 & ~mask)
        if place.exists() and not path.exists():
            shutil.rmtree(place)
        try:
            scratch.rename(place)
        except OSError:
            if not path.exists():  # else another process was first
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return path


def _pip(target: Path, requirement: str) -> None:
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    environ = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [sys.executable, *words, "--target", str(target), requirement],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    if done.returncode:
        said = " ".join(done.stderr.strip().splitlines()[-_LAST_LINES:]) or "no word"
        raise NothingMeasured(
            f"pip could not install {requirement}: {said}; without a way to it give the library's"
            " path: --nccl NAME=/path/libnccl.so.2"
        )
