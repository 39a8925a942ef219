"""Which of this machine's addresses the others are given."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from collbench.errors import UsageError, nearest

_ELSEWHERE = "192.0.2.1"
"""An address that nobody has: what would go there leaves by the default route. Nothing is sent."""
_LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def address_of(interface: str | None, peer: str | None) -> str:
    """Returns the address to listen at and to announce.

    Args:
        interface: ``--interface``; its address, and no other, counts.
        peer: the host that the others listen at, if known: the address is the one that packets to
            it would carry. Without one, that of the host's own name, then of the default route,
            then of any interface. A loopback address is the last choice, unless the peer itself is
            one.

    Raises:
        UsageError: the interface does not exist or has no address.
    """
    interfaces = psutil.net_if_addrs()
    if interface is not None:
        return _address_at(interface, interfaces)
    towards_peer = _source_towards(peer) if peer is not None else None
    if towards_peer is not None and peer is not None and is_loopback(peer):
        return towards_peer
    found = [
        address
        for address in (
            towards_peer,
            *_addresses_of_name(socket.gethostname()),
            _source_towards(_ELSEWHERE),
            *(own for entries in interfaces.values() for own in _usable(entries)),
        )
        if address is not None
    ]
    return next((address for address in found if not is_loopback(address)), None) or "127.0.0.1"


def interface_of(address: str) -> str | None:
    """Returns the name of the interface that has an address, None if none has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if address in _usable(addresses):
            return name
    return None


def _address_at(interface: str, interfaces: Mapping[str, Sequence[Any]]) -> str:
    """Returns an interface's address, IPv4 before IPv6."""
    there = "; ".join(
        f"{name} {', '.join(usable)}"
        for name, addresses in sorted(interfaces.items())
        if (usable := _usable(addresses))
    )
    if interface not in interfaces:
        hint = nearest(interface, interfaces) or ";"
        raise UsageError(f"--interface '{interface}' does not exist here{hint} there are: {there}")
    usable = _usable(interfaces[interface])
    if not usable:
        raise UsageError(f"--interface '{interface}' has no address; those that have: {there}")
    return usable[0]


def _usable(addresses: Sequence[Any]) -> list[str]:
    """Returns the IP addresses of an interface that need no interface beside them."""
    return [
        entry.address
        for family in _FAMILIES
        for entry in addresses
        if entry.family == family and not entry.address.lower().startswith("fe80:")
    ]


def _source_towards(peer: str) -> str | None:
    """Returns the address that packets to a host would carry, None where there is no way to it."""
    try:
        found = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, target in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return None


def _addresses_of_name(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(entry[4][0]) for entry in found]


def is_loopback(host: str) -> bool:
    """Whether a host's name or address says of itself that it is each machine's own."""
    if host.lower().rstrip(".") in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
