"""Becomes a command on a node: its network, its host name, its /etc/hosts; nothing else changes.

Run as a script, before the command, in a process of its own: ``enter.py NAMESPACE HOST_NAME HOSTS
COMMAND...``. The command ends when the process that started it does.

``enter.py --as-ssh TABLE HOST_NAME COMMAND...`` stands in for ssh, as mpirun's ``plm_rsh_agent``;
the table is a JSON file, host name -> namespace and hosts file.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

NEW_MOUNTS = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_NETWORK = 0x40000000
MOUNT_BIND = 4096
MOUNT_REACHES_ALL = 16384
MOUNT_TAKES_BUT_GIVES_NOT = 1 << 19
SET_DEATH_SIGNAL = 1
LOGIN_VARIABLES = ("HOME", "LANG", "PATH", "USER")


def checked(status: int, what: str) -> None:
    """Raises the C library's error if a call failed."""
    if status != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def enter(namespace: str, host_name: str, hosts: str) -> None:
    """Moves this process to a node."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    checked(libc.setns(handle, NEW_NETWORK), "setns")
    checked(libc.unshare(NEW_HOST_NAME | NEW_MOUNTS), "unshare")
    socket.sethostname(host_name)
    # Mounts of others that go must go here too: a private copy would hold their namespaces.
    flags = MOUNT_TAKES_BUT_GIVES_NOT | MOUNT_REACHES_ALL
    checked(libc.mount(None, b"/", None, flags, None), "mount /")
    checked(
        libc.mount(os.fsencode(hosts), b"/etc/hosts", None, MOUNT_BIND, None), "mount /etc/hosts"
    )


def main(arguments: list[str]) -> None:
    """Never returns."""
    if arguments[0] == "--as-ssh":
        table, host_name, *words = arguments[1:]
        namespace, hosts = json.loads(Path(table).read_text())[host_name]
        # The words are joined and a shell takes them apart; a login's variables are all it has.
        command = ["/bin/sh", "-c", " ".join(words)]
        environ = {name: os.environ[name] for name in LOGIN_VARIABLES if name in os.environ}
    else:
        namespace, host_name, hosts, *command = arguments
        environ = dict(os.environ)
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    enter(namespace, host_name, hosts)
    os.execvpe(command[0], command, environ)


if __name__ == "__main__":
    main(sys.argv[1:])
