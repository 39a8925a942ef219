"""Which libnccl may be measured: the one asked for, and it alone."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

from collbench.errors import NothingMeasured, UsageError
from collbench.measure import native_library
from collbench.measure.native_library import check_library, import_extras, load_library


@pytest.fixture
def bindings(monkeypatch):
    """Stands for nccl4py; ``number`` is what its library answers."""
    found = SimpleNamespace(number=22809)
    found.get_version = lambda: found.number
    monkeypatch.setattr(native_library, "import_extra", lambda name: found)
    return found


def test_the_library_that_is_found_is_loaded_and_known(bindings, tmp_path):
    (tmp_path / "libnccl.so.2.28.9").touch()
    link = tmp_path / "libnccl.so.2"
    link.symlink_to("libnccl.so.2.28.9")
    library = load_library(None, lambda: [str(link)])

    assert (library.version.version, library.version.path) == ("2.28.9", str(link))
    assert library.numbers == (2, 28, 9)
    assert library.bindings is bindings
    assert library.path == str(tmp_path / "libnccl.so.2.28.9")


def test_a_second_library_that_comes_later_is_seen(bindings):
    mapped = ["/a/libnccl.so.2"]
    library = load_library(None, lambda: mapped)
    library.check()
    mapped.append("/b/libnccl.so.2")
    with pytest.raises(NothingMeasured, match="2 libnccl are mapped"):
        library.check()


@pytest.mark.parametrize(
    ("mapped", "text"),
    [
        ([], "0 libnccl are mapped (none), exactly one is allowed; remove what loads the other"),
        (
            ["/a/libnccl.so.2", "/b/libnccl.so.2"],
            (
                "2 libnccl are mapped (/a/libnccl.so.2; /b/libnccl.so.2), exactly one is allowed;"
                " remove what loads the other"
            ),
        ),
        (
            ["/b/libnccl.so.2"],
            (
                "libnccl '/b/libnccl.so.2' is mapped, '/a/libnccl.so.2' was asked for;"
                " remove what loads the other"
            ),
        ),
        (
            ["/a/libnccl.so.2 (deleted)"],
            (
                "libnccl '/a/libnccl.so.2 (deleted)' is mapped, '/a/libnccl.so.2' was asked for;"
                " remove what loads the other"
            ),
        ),
    ],
)
def test_any_other_process_is_refused(mapped, text):
    with pytest.raises(NothingMeasured) as refused:
        check_library("/a/libnccl.so.2", mapped)
    assert str(refused.value) == text


def test_too_old_a_library_is_refused(bindings):
    bindings.number = 21803
    with pytest.raises(NothingMeasured) as refused:
        load_library(None, lambda: ["/a/libnccl.so.2"])
    assert str(refused.value) == (
        "libnccl '/a/libnccl.so.2' is version 2.18.3; --via native needs 2.19 or newer"
    )


def test_a_path_that_is_no_library_is_refused(bindings, tmp_path):
    path = tmp_path / "libnccl.so.2"
    path.write_text("not a library")
    with pytest.raises(NothingMeasured, match=f"cannot load libnccl '{path}': .*; name a libnccl"):
        load_library(str(path), list)


def test_no_library_at_all_is_said_in_a_line(bindings):
    def fail():
        raise RuntimeError('Failure finding "libnccl.so.2":\n  No such file\n')

    bindings.get_version = fail
    with pytest.raises(NothingMeasured) as refused:
        load_library(None, list)
    assert str(refused.value) == (
        'no libnccl is found (Failure finding "libnccl.so.2": No such file);'
        " install nvidia-nccl-cu13 or name the library's path"
    )


def test_a_missing_extra_is_said_in_a_line(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UsageError) as refused:
        import_extras()
    assert str(refused.value) == (
        "--via native needs nccl4py: pip install 'collbench[native]', in a clone pip install"
        " -c constraints.txt -e '.[native]' (No module named 'cuda.core')"
    )
