"""The table of NCCL's releases, and more of them from a file."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from collbench.errors import UsageError
from collbench.nccl.releases import Release, known_releases, read_releases, release_order


def date_of(releases, version):
    return {one.version: one.uploaded for one in releases}[version]


@pytest.fixture
def written(tmp_path):
    """Writes a file of releases below its line of names."""

    def write(*lines):
        path = tmp_path / "more.csv"
        path.write_text("\n".join(["version,uploaded", *lines]) + "\n")
        return path

    return write


def test_known_releases_stand_in_the_order_of_their_versions():
    versions = [one.version for one in known_releases()]

    assert versions == sorted(set(versions), key=release_order)
    assert (versions[0], versions[-1], len(versions)) == ("2.16.2", "2.32.3", 30)


@pytest.mark.parametrize(
    ("version", "moment"),
    [
        # cu12 alone; a rebuild later (2.25.1.post1, 2025-04-08) does not count
        ("2.25.1", datetime(2025, 1, 24, 1, 21, 27, tzinfo=UTC)),
        # cu12, seven weeks before cu13
        ("2.27.7", datetime(2025, 8, 4, 20, 26, 0, tzinfo=UTC)),
        # cu13, a minute before cu12
        ("2.30.7", datetime(2026, 6, 9, 3, 23, 15, tzinfo=UTC)),
    ],
)
def test_a_release_is_dated_by_the_first_upload_of_either_package(version, moment):
    assert date_of(known_releases(), version) == moment


def test_versions_are_ordered_as_numbers():
    assert sorted(["2.10.3", "2.9.9", "2.9.10"], key=release_order) == [
        "2.9.9",
        "2.9.10",
        "2.10.3",
    ]


@pytest.mark.parametrize("version", ["2.30", "v2.30.7", "2.30.7.post1", "2.30.x", ""])
def test_what_is_no_release_is_named(version):
    with pytest.raises(UsageError, match=rf"^NCCL version '{version}': three numbers are meant"):
        release_order(version)


def test_a_file_adds_releases_and_goes_over_known_dates(written):
    releases = read_releases(
        written("2.33.1,2026-12-24", "", "2.28.10, 2026-01-02T01:30:00+02:00", "2.30.7,2026-06-10")
    )

    added = set(releases) - set(known_releases())
    assert added == {
        Release("2.28.10", datetime(2026, 1, 1, 23, 30, tzinfo=UTC)),
        Release("2.30.7", datetime(2026, 6, 10, tzinfo=UTC)),
        Release("2.33.1", datetime(2026, 12, 24, tzinfo=UTC)),
    }
    versions = [one.version for one in releases]
    assert len(versions) == 32
    assert versions.index("2.28.10") == versions.index("2.28.9") + 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["2.30,2026-06-09"], "line 2: NCCL version '2.30': three numbers are meant"),
        (["2.33.1,2026-12-24", "2.33.2,soon"], "line 3: 'soon' is no moment; 2026-06-09T03:23:15Z"),
        (["2.33.1"], "line 2: 1 fields; two are meant"),
        (["2.33.1,2026-12-24", "", "2.33.1,2026-12-25"], "line 4: 2.33.1 stands on line 2 already"),
    ],
)
def test_a_bad_line_is_named_with_its_number(written, lines, words):
    path = written(*lines)

    with pytest.raises(UsageError) as caught:
        read_releases(path)

    assert str(caught.value).startswith(f"{path} {words}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "2.33.1,2026-12-24\n"])
def test_a_file_without_the_line_of_names_is_refused(tmp_path, text):
    path = tmp_path / "more.csv"
    path.write_text(text)

    with pytest.raises(UsageError, match=r"line 1: '.*'; the line of names is meant: version,upl"):
        read_releases(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(UsageError, match=r"none\.csv: the releases cannot be read: No such file"):
        read_releases(tmp_path / "none.csv")
    with pytest.raises(UsageError, match=r"binary\.csv: the releases cannot be read: it is not UT"):
        read_releases(binary)
