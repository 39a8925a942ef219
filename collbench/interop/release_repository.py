"""A git repository with one commit and one tag a release of NCCL: the axis of asv's histories.

The same releases give the same hashes everywhere: a commit holds nothing but facts of its release
and those before it. A release that comes in between, or a changed date, gives all later commits
new hashes; asv's results are then to be written anew.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from collbench.errors import UsageError
from collbench.nccl.releases import Release, release_order

BRANCH = "main"

_AUTHOR = "collbench <collbench@localhost>"
_MARK = "collbench.releases"
"""The key of the repository's own configuration that says who made it."""


def write_release_repository(
    folder: Path, releases: Sequence[Release], *, package: str = "nvidia-nccl-cu13"
) -> dict[str, str]:
    """Writes the repository; one that stands there is brought up to these releases.

    Commits follow each other on ``main`` in the order of versions, dated by the first upload;
    release X has the lightweight tag ``vX``, its commit the files ``NCCL_VERSION`` and
    ``requirements.txt``.

    Args:
        folder: new, empty, or a repository that this function wrote.
        releases: in any order, each version once.
        package: what ``requirements.txt`` installs the release from.

    Returns:
        The hash of each version's commit, in the order of versions.

    Raises:
        UsageError: no release, or one twice; git is missing or cannot write; the folder holds
            something else.
    """
    ordered = _in_order(releases)
    _prepare(folder)
    old = set(_git(folder, "tag", "--list").split())
    stream = "".join(_commands(ordered, package, old))
    # A stream instead of commits one by one: no work tree, no identity, no setting of the user's
    # has a say in it, and 31 releases take one process.
    _git(folder, "fast-import", "--quiet", "--force", stdin=stream)
    _git(folder, "reset", "--quiet", "--hard", BRANCH)
    hashes = _git(folder, "rev-list", "--reverse", BRANCH).split()
    return {release.version: value for release, value in zip(ordered, hashes, strict=True)}


def _in_order(releases: Sequence[Release]) -> list[Release]:
    if not releases:
        raise UsageError("a repository of releases needs at least one release")
    ordered = sorted(releases, key=lambda one: release_order(one.version))
    version, times = Counter(one.version for one in ordered).most_common(1)[0]
    if times > 1:
        raise UsageError(f"NCCL {version} is there {times} times; give each release once")
    return ordered


def _prepare(folder: Path) -> None:
    """Makes an empty repository, or finds one of ours."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; give a folder for the repository of releases")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / ".git").exists() or not _is_ours(folder):
            raise UsageError(
                f"{folder} holds something else than a repository of releases; give a new folder"
            )
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"{folder} cannot be made: {problem.strerror}") from None
    _git(folder, "init", "--quiet", "--template=")
    _git(folder, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    _git(folder, "config", "--local", _MARK, "true")


def _is_ours(folder: Path) -> bool:
    return _git(folder, "config", "--local", "--default", "", "--get", _MARK).strip() == "true"


def _commands(ordered: Sequence[Release], package: str, old: set[str]) -> Iterator[str]:
    """Gives the commands of ``git fast-import``."""
    for tag in sorted(old - {_tag(one) for one in ordered}):
        yield f"reset refs/tags/{tag}\nfrom {'0' * 40}\n\n"
    # Without a parent: the history begins anew also where the branch is there already.
    yield f"reset refs/heads/{BRANCH}\n"
    for mark, release in enumerate(ordered, 1):
        when = f"{_AUTHOR} {int(release.uploaded.timestamp())} +0000"
        yield f"commit refs/heads/{BRANCH}\nmark :{mark}\nauthor {when}\ncommitter {when}\n"
        yield _data(f"NCCL {release.version}")
        yield "M 644 inline NCCL_VERSION\n" + _data(release.version)
        yield "M 644 inline requirements.txt\n" + _data(f"{package}=={release.version}")
        yield f"reset refs/tags/{_tag(release)}\nfrom :{mark}\n\n"


def _tag(release: Release) -> str:
    return f"v{release.version}"


def _data(line: str) -> str:
    text = f"{line}\n"
    return f"data {len(text.encode())}\n{text}"


def _git(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    # Variables of a hook, or of a script around, would lead git to another repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_DEFAULT_HASH": "sha1",
    }
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 - the user's git
            cwd=folder,
            env=environ,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError(
            "git is not on the PATH; install it (apt-get install git, dnf install git) or load"
            " its module: asv's history is a git repository of releases"
        ) from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise UsageError(f"{folder}: git could not write the repository of releases: {why}")
    return done.stdout
