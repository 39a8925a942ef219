"""Which of a machine's addresses the others are given."""

from __future__ import annotations

import re
import socket
from types import SimpleNamespace

import psutil
import pytest

from collbench.errors import UsageError
from collbench.launch import interface
from collbench.launch.interface import address_of, interface_of, is_loopback


def entry(family, address):
    return SimpleNamespace(family=family, address=address)


INTERFACES = {
    "lo": [entry(socket.AF_INET, "127.0.0.1"), entry(socket.AF_INET6, "::1")],
    "eth0": [
        entry(socket.AF_PACKET, "02:00:00:00:00:01"),
        entry(socket.AF_INET6, "fd00::1"),
        entry(socket.AF_INET, "198.18.0.1"),
        entry(socket.AF_INET6, "fe80::1%eth0"),
    ],
    "ib0": [entry(socket.AF_PACKET, "80:00"), entry(socket.AF_INET6, "fe80::2%ib0")],
    "ib1": [entry(socket.AF_INET6, "fd00::2")],
}
THERE = "eth0 198.18.0.1, fd00::1; ib1 fd00::2; lo 127.0.0.1, ::1"


@pytest.fixture
def machine(monkeypatch):
    """Returns what sets the machine: the host name's addresses, the sources towards peers."""

    def put(named=(), sources=None, interfaces=INTERFACES):
        monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces)
        monkeypatch.setattr(interface, "_addresses_of_name", lambda name: list(named))
        monkeypatch.setattr(interface, "_source_towards", (sources or {}).get)

    put()
    return put


@pytest.mark.parametrize(
    ("name", "address"), [("eth0", "198.18.0.1"), ("ib1", "fd00::2"), ("lo", "127.0.0.1")]
)
def test_the_interface_that_is_asked_for_counts(machine, name, address):
    machine(named=["198.18.9.9"], sources={"node0": "198.18.8.8"})

    assert address_of(name, "node0") == address


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "eth1",
            f"--interface 'eth1' does not exist here; did you mean 'eth0'? there are: {THERE}",
        ),
        ("x", f"--interface 'x' does not exist here; there are: {THERE}"),
        ("ib0", f"--interface 'ib0' has no address; those that have: {THERE}"),
    ],
)
def test_an_interface_that_cannot_be_used_is_refused(machine, name, text):
    with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
        address_of(name, None)


@pytest.mark.parametrize(
    ("peer", "named", "sources", "address"),
    [
        pytest.param(
            "node0", ["198.18.9.9"], {"node0": "198.18.0.1"}, "198.18.0.1", id="towards the peer"
        ),
        pytest.param(None, ["198.18.9.9"], {}, "198.18.9.9", id="by the host name"),
        pytest.param("gone", ["198.18.9.9"], {}, "198.18.9.9", id="no way to the peer"),
        pytest.param(
            "node0",
            ["127.0.1.1", "198.18.9.9"],
            {"node0": "127.0.1.1"},
            "198.18.9.9",
            id="the own name is loopback",
        ),
        pytest.param(
            None, ["127.0.1.1"], {"192.0.2.1": "198.18.7.7"}, "198.18.7.7", id="by default route"
        ),
        pytest.param(None, [], {}, "198.18.0.1", id="by any interface"),
        pytest.param(
            "127.0.0.1", ["198.18.9.9"], {"127.0.0.1": "127.0.0.1"}, "127.0.0.1", id="loopback"
        ),
    ],
)
def test_without_one_the_way_to_the_peer_tells(machine, peer, named, sources, address):
    machine(named=named, sources=sources)

    assert address_of(None, peer) == address


def test_a_machine_without_a_network_has_loopback(machine):
    machine(interfaces={"lo": INTERFACES["lo"]})

    assert address_of(None, None) == "127.0.0.1"


def test_the_real_way_to_loopback_is_loopback():
    assert address_of(None, "127.0.0.1") == "127.0.0.1"
    assert address_of("lo", None) == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"


def test_the_real_address_is_one_of_this_machines():
    assert interface_of(address_of(None, None)) in psutil.net_if_addrs()


def test_an_interface_is_found_by_its_address(machine):
    assert interface_of("fd00::2") == "ib1"
    assert interface_of("198.18.9.9") is None


@pytest.mark.parametrize("host", ["localhost", "LocalHost.", "127.1.2.3", "::1"])
def test_what_is_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["node0", "198.18.0.1", "fd00::1", "localhost.lab", ""])
def test_what_is_not(host):
    assert not is_loopback(host)
