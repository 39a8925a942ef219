import pytest

from collbench.model import LibraryVersion
from collbench.probe.nccl import decode_version, loaded_nccl, mapped_nccl

ONE = "/v/nvidia/nccl/lib/libnccl.so.2"
OTHER = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.32.3"


def maps_of(tmp_path, *paths):
    file = tmp_path / "maps"
    lines = [f"7f00-7f01 r-xp 00000000 08:01 42                 {path}" for path in paths]
    file.write_text("\n".join(["7ffc-7ffd rw-p 00000000 00:00 0 ", *lines]) + "\n")
    return file


@pytest.mark.parametrize(
    ("number", "text"),
    [(22809, "2.28.9"), (23203, "2.32.3"), (20900, "2.9.0"), (2708, "2.7.8"), (2804, "2.8.4")],
)
def test_ncclgetversion_is_decoded_in_the_new_and_the_old_scheme(number, text):
    assert decode_version(number) == text


def test_a_process_without_nccl_has_none(tmp_path):
    maps = maps_of(tmp_path, "/lib/libc.so.6", "/opt/libnccl-net.so", "/opt/libnccl.so.old/x")

    assert loaded_nccl(maps) is None


def test_the_mapped_library_is_asked_for_its_version_once(tmp_path):
    asked = []

    def version_of(path):
        asked.append(path)
        return 22809

    found = loaded_nccl(maps_of(tmp_path, ONE, ONE, "/lib/libc.so.6", ONE), version_of)

    assert found == LibraryVersion(version="2.28.9", path=ONE)
    assert asked == [ONE]


def test_a_path_with_a_space_is_read_whole(tmp_path):
    assert mapped_nccl(maps_of(tmp_path, "/my v/libnccl.so.2")) == ["/my v/libnccl.so.2"]


def test_two_loaded_libraries_are_both_named_and_the_version_says_so(tmp_path):
    found = loaded_nccl(maps_of(tmp_path, ONE, OTHER), {ONE: 22809, OTHER: 23203}.get)

    assert found == LibraryVersion(version="2.28.9 (the first of 2 loaded)", path=f"{ONE};{OTHER}")


def test_a_library_that_cannot_be_opened_any_more_is_unknown(tmp_path):
    gone = f"{tmp_path}/libnccl.so.2 (deleted)"

    assert loaded_nccl(maps_of(tmp_path, gone)) == LibraryVersion(version="unknown", path=gone)
