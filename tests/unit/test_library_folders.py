"""Releases by number are installed whole, each into a folder of its own, by pip itself."""

from __future__ import annotations

import pytest
from made_wheels import write_wheel

from collbench.cli.library_folders import install_release, library_path
from collbench.errors import NothingMeasured, UsageError

LIBRARY = "nvidia/nccl/lib/libnccl.so.2"


@pytest.fixture
def wheelhouse(tmp_path, monkeypatch):
    """Two releases as wheels; nothing else can be had."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("2.28.9", "2.29.7"):
        write_wheel(folder, "nvidia-nccl-cu13", version, {LIBRARY: version.encode()})
    write_wheel(folder, "nvidia-nccl-cu13", "2.27.7", {"nvidia/empty": b""})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_each_release_has_a_folder_of_its_own_and_is_installed_once(wheelhouse, tmp_path):
    place = tmp_path / "shared" / "nccl"
    paths = [install_release(place, version, "13") for version in ("2.28.9", "2.29.7")]

    assert paths == [library_path(place, version, "13") for version in ("2.28.9", "2.29.7")]
    assert [path.read_bytes() for path in paths] == [b"2.28.9", b"2.29.7"]
    paths[0].write_bytes(b"as it was")
    assert install_release(place, "2.28.9", "13").read_bytes() == b"as it was"
    assert sorted(path.name for path in place.iterdir()) == ["cu13-2.28.9", "cu13-2.29.7"]
    assert all(path.stat().st_mode & 0o055 == 0o055 for path in place.iterdir())


def test_what_a_kill_left_behind_gives_way(wheelhouse, tmp_path):
    (tmp_path / "cu13-2.28.9" / "nvidia").mkdir(parents=True)

    assert install_release(tmp_path, "2.28.9", "13").read_bytes() == b"2.28.9"


def test_a_release_that_cannot_be_had_leaves_nothing_and_says_what_else(wheelhouse, tmp_path):
    with pytest.raises(NothingMeasured) as caught:
        install_release(tmp_path / "n", "2.99.1", "13")

    assert "pip could not install nvidia-nccl-cu13==2.99.1: " in str(caught.value)
    assert str(caught.value).endswith("give the library's path: --nccl NAME=/path/libnccl.so.2")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "n").iterdir())


def test_a_wheel_without_the_library_is_no_release(wheelhouse, tmp_path):
    with pytest.raises(NothingMeasured, match=f"the wheel of NCCL 2.27.7 holds no {LIBRARY}"):
        install_release(tmp_path / "n", "2.27.7", "13")

    assert not list((tmp_path / "n").iterdir())


def test_a_folder_that_cannot_be_made_is_named(wheelhouse, tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="--libraries"):
        install_release(tmp_path / "file" / "n", "2.28.9", "13")
