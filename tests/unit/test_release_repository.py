"""The repository of releases: the same everywhere, in version order, nobody else's touched."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime

import pytest

from collbench.errors import UsageError
from collbench.interop.release_repository import write_release_repository
from collbench.nccl.releases import Release

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

OLD = Release("2.9.9", datetime(2021, 5, 1, 12, 0, 5, tzinfo=UTC))
LATE = Release("2.10.3", datetime(2021, 7, 1, tzinfo=UTC))
NEW = Release("2.11.4", datetime(2021, 6, 1, tzinfo=UTC))  # a later version, dated before


def git(folder, *words):
    done = subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_a_commit_and_a_tag_for_each_release_in_version_order(tmp_path):
    hashes = write_release_repository(tmp_path / "hist", [NEW, OLD, LATE])

    assert list(hashes) == ["2.9.9", "2.10.3", "2.11.4"]
    log = git(tmp_path / "hist", "log", "--reverse", "--format=%H %P %an %s %aI %cI", "main")
    first, late, new = hashes.values()
    assert log == [
        f"{first}  collbench NCCL 2.9.9 2021-05-01T12:00:05+00:00 2021-05-01T12:00:05+00:00",
        f"{late} {first} collbench NCCL 2.10.3 2021-07-01T00:00:00+00:00 2021-07-01T00:00:00+00:00",
        f"{new} {late} collbench NCCL 2.11.4 2021-06-01T00:00:00+00:00 2021-06-01T00:00:00+00:00",
    ]
    tags = git(tmp_path / "hist", "for-each-ref", "--format=%(refname) %(objecttype) %(objectname)")
    assert tags == [
        f"refs/heads/main commit {hashes['2.11.4']}",
        f"refs/tags/v2.10.3 commit {hashes['2.10.3']}",
        f"refs/tags/v2.11.4 commit {hashes['2.11.4']}",
        f"refs/tags/v2.9.9 commit {hashes['2.9.9']}",
    ]


def test_a_commit_holds_the_version_and_what_to_install(tmp_path):
    write_release_repository(tmp_path, [OLD, LATE], package="nvidia-nccl-cu12")

    assert git(tmp_path, "show", "v2.9.9:NCCL_VERSION") == ["2.9.9"]
    assert git(tmp_path, "show", "v2.9.9:requirements.txt") == ["nvidia-nccl-cu12==2.9.9"]
    assert git(tmp_path, "status", "--porcelain") == []
    assert (tmp_path / "requirements.txt").read_text() == "nvidia-nccl-cu12==2.10.3\n"


def test_the_same_releases_give_the_same_hashes_whatever_is_set(tmp_path, monkeypatch):
    settings = tmp_path / "gitconfig"
    settings.write_text(
        "[user]\nname = Somebody\nemail = some@body\n[commit]\ngpgsign = true\n"
        "[core]\nautocrlf = true\n[init]\ndefaultBranch = trunk\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
    monkeypatch.setenv("TZ", "Asia/Tokyo")

    hashes = write_release_repository(tmp_path / "hist", [OLD, LATE])

    # Exact: results that were kept somewhere name these.
    assert hashes == {
        "2.9.9": "6bbdb019543c1f38cf87e57e1b28294e56cc2646",
        "2.10.3": "90c5eb5553f1059f7b07347bdc503b81bc14e1e7",
    }
    assert not (tmp_path / "elsewhere").exists()
    assert write_release_repository(tmp_path / "hist", [OLD, LATE]) == hashes


def test_a_new_newest_release_keeps_all_hashes(tmp_path):
    first = write_release_repository(tmp_path, [OLD, LATE])

    assert write_release_repository(tmp_path, [OLD, LATE, NEW]).items() > first.items()
    assert git(tmp_path, "tag") == ["v2.10.3", "v2.11.4", "v2.9.9"]


def test_a_release_that_is_taken_out_is_gone(tmp_path):
    write_release_repository(tmp_path / "hist", [OLD, LATE, NEW])
    hashes = write_release_repository(tmp_path / "hist", [OLD, NEW])

    assert hashes == write_release_repository(tmp_path / "fresh", [OLD, NEW])
    assert git(tmp_path / "hist", "tag") == ["v2.11.4", "v2.9.9"]
    assert git(tmp_path / "hist", "rev-list", "main") == [hashes["2.11.4"], hashes["2.9.9"]]
    assert git(tmp_path / "hist", "status", "--porcelain") == []


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True, timeout=60)

    for folder in (tmp_path, repository):
        before = sorted(path.name for path in folder.iterdir())
        with pytest.raises(UsageError, match="holds something else than a repository of releases"):
            write_release_repository(folder, [OLD])
        assert sorted(path.name for path in folder.iterdir()) == before


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")

    with pytest.raises(UsageError, match=r"file is a file; give a folder"):
        write_release_repository(tmp_path / "file", [OLD])
    with pytest.raises(UsageError, match=r"file/hist cannot be made: Not a directory"):
        write_release_repository(tmp_path / "file" / "hist", [OLD])


def test_no_release_or_one_twice_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(UsageError, match="needs at least one release"):
        write_release_repository(tmp_path / "hist", [])
    with pytest.raises(UsageError, match=r"^NCCL 2\.10\.3 is there 2 times"):
        write_release_repository(tmp_path / "hist", [OLD, LATE, LATE])
    assert not (tmp_path / "hist").exists()


def test_git_that_fails_is_named_with_its_own_words(tmp_path):
    write_release_repository(tmp_path, [OLD])
    (tmp_path / ".git" / "index.lock").touch()

    with pytest.raises(UsageError, match=r"git could not write the repository of releases: .+"):
        write_release_repository(tmp_path, [OLD, LATE])


def test_without_git_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UsageError, match="git is not on the PATH; install it"):
        write_release_repository(tmp_path / "hist", [OLD])
