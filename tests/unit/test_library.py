"""What an NCCL library's file says, without loading it."""

from __future__ import annotations

import re

import pytest

from collbench.errors import UsageError
from collbench.model import LibraryVersion
from collbench.probe.nccl import (
    identify_library,
    installed_library,
    mapped_nccl,
    names_in_library,
    version_tuple,
)

ELF = b"\x7fELF\x02\x01\x01\0"


def library(folder, *, content=b"\0NCCL version 2.28.9+cuda13.0\0", name="libnccl.so.2"):
    path = folder / name
    path.write_bytes(ELF + content)
    return path


def says(text):
    return f"^{re.escape(text)}$"


def test_a_library_has_its_version_and_its_real_path(tmp_path):
    path = library(tmp_path, name="libnccl.so.2.28.9")
    link = tmp_path / "libnccl.so.2"
    link.symlink_to(path.name)

    assert identify_library(link) == LibraryVersion(version="2.28.9", path=str(path))


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (b"\0" * 100_000 + b"NCCL version 2.32.3+cuda13.1\0", "2.32.3"),
        (b"NCCL version 2.18.5+cuda12.2 compiled with\0", "2.18.5"),
        (b"NCCL version %d.%d.%d\0NCCL version 2.30.7\0", "2.30.7"),
    ],
)
def test_the_version_is_found_wherever_it_stands(tmp_path, content, version):
    assert identify_library(library(tmp_path, content=content)).version == version


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is no shared library; give the path of a libnccl.so.2"),
        (b"\x7fEL", "is no shared library; give the path of a libnccl.so.2"),
        (
            b"#!/bin/sh\nNCCL version 2.28.9",
            "is no shared library; give the path of a libnccl.so.2",
        ),
        (
            ELF,
            ("is no NCCL library: no NCCL version stands in it; give the path of a libnccl.so.2"),
        ),
        (
            ELF + b"NCCL version unknown",
            ("is no NCCL library: no NCCL version stands in it; give the path of a libnccl.so.2"),
        ),
    ],
)
def test_a_file_that_is_no_nccl_library_is_refused(tmp_path, content, text):
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(UsageError, match=says(f"{path} {text}")):
        identify_library(path)


def test_a_path_without_a_file_is_refused(tmp_path):
    path = tmp_path / "missing.so"

    with pytest.raises(
        UsageError,
        match=says(
            f"{path} cannot be read: No such file or directory; give the path of a libnccl.so.2"
        ),
    ):
        identify_library(path)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(
        UsageError,
        match=says(f"{tmp_path} cannot be read: Is a directory; give the path of a libnccl.so.2"),
    ):
        identify_library(tmp_path)


def test_the_variables_that_a_library_knows_stand_in_its_file(tmp_path):
    content = b"\0NCCL_ALGO\0NCCL_ALGO\0set by NCCL_IB_TIMEOUT to %d\0nccl_proto\0XNCCL_\0"

    assert names_in_library(library(tmp_path, content=content)) == {"NCCL_ALGO", "NCCL_IB_TIMEOUT"}


def test_the_installed_library_is_that_of_the_first_folder_that_has_it(tmp_path):
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder in folders[1:]:
        inside = folder / "nvidia/nccl/lib"
        inside.mkdir(parents=True)
        library(inside)

    search = [str(folder) for folder in folders]
    assert installed_library(search) == folders[1] / "nvidia/nccl/lib/libnccl.so.2"
    assert installed_library(search[:1]) is None


def test_an_empty_word_of_the_search_path_is_the_current_folder(tmp_path, monkeypatch):
    inside = tmp_path / "nvidia/nccl/lib"
    inside.mkdir(parents=True)
    library(inside)
    monkeypatch.chdir(tmp_path)

    assert installed_library([""]).resolve() == inside / "libnccl.so.2"


def test_without_a_search_path_pythons_own_is_looked_through(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert installed_library() is None

    inside = tmp_path / "nvidia/nccl/lib"
    inside.mkdir(parents=True)
    assert installed_library() is None, "a folder without the file"
    path = library(inside)
    assert installed_library() == path


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.28.9", (2, 28, 9)),
        ("2.28.9+cuda13.0", (2, 28, 9)),
        ("2.28.9 (the first of 2 loaded)", (2, 28, 9)),
        ("unknown", None),
        ("2.28", None),
        ("", None),
    ],
)
def test_the_numbers_of_a_version(text, numbers):
    assert version_tuple(text) == numbers


def test_a_library_by_another_name_is_refused_before_it_is_loaded(tmp_path):
    path = tmp_path / "nccl_new.so"
    path.write_bytes(b"\x7fELF NCCL version 2.32.3")

    with pytest.raises(UsageError, match=r"call the file libnccl\.so\.2, in a folder"):
        identify_library(path)


@pytest.mark.parametrize(
    ("name", "is_nccl"),
    [
        ("libnccl.so.2", True),
        ("libnccl232.so.2.32.3", True),
        ("libnccl-net.so", False),
        ("libnccl-tuner.so.1", False),
        ("libncclx", False),
    ],
)
def test_which_mapped_files_are_nccl(tmp_path, name, is_nccl):
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 08:01 42 /opt/{name}\n")

    assert mapped_nccl(maps) == ([f"/opt/{name}"] if is_nccl else [])
