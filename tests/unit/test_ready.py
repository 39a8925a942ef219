"""Waiting for descriptors of any number, and the limit of open files."""

import os
import resource
import socket

import pytest

from collbench.engine.ready import allow_many_files, readable


@pytest.fixture
def file_limit():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_descriptor_beyond_1024_is_waited_for(file_limit):
    allow_many_files()
    high = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1, 3000)
    assert high > 1024
    mine, theirs = socket.socketpair()
    with mine, theirs:
        os.dup2(theirs.fileno(), high)
        try:
            assert readable([high], 0) == []
            mine.send(b"x")
            assert readable([high, mine], 1.0) == [high]
        finally:
            os.close(high)


def test_an_ended_other_end_is_readable():
    mine, theirs = socket.socketpair()
    with mine:
        theirs.close()
        assert readable([mine], 1.0) == [mine.fileno()]


def test_a_low_limit_is_raised_and_a_high_one_stays(file_limit):
    _, hard = file_limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    allow_many_files()
    raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raised > 1024
    allow_many_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (raised, hard)
