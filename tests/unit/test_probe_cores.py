import pytest

from collbench.probe.cores import format_cores, parse_cores


@pytest.mark.parametrize(
    ("cores", "text"),
    [
        (set(), ""),
        ({3}, "3"),
        ({0, 1, 2, 3, 4, 5, 6, 7, 16}, "0-7,16"),
        ({0, 2, 3}, "0,2-3"),
    ],
)
def test_cores_are_written_as_the_kernel_writes_them_and_read_back(cores, text):
    assert format_cores(cores) == text
    assert parse_cores(text) == cores


def test_a_core_list_file_ends_in_a_newline():
    assert parse_cores("0-1,4\n") == {0, 1, 4}
