"""A client of torchrun's store, run as a process of its own: the only part here that takes torch.

    python -m collbench.launch.torchrun_store set|get HOST PORT KEY SECONDS

``set`` takes the value from stdin; ``get`` waits for it and writes it to stdout. Exit status 3 and
a line on stderr where the store is not there or nobody sets the value in time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta

from collbench.errors import ExitCode


def main(arguments: Sequence[str]) -> int:
    """Sets or gets one value; returns the exit status."""
    verb, host, port, key, seconds = arguments
    # Set before the import: a client on its way in warns of every name that has no reverse entry.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from torch.distributed import DistError, TCPStore

    try:
        store = TCPStore(
            host_name=host,
            port=int(port),
            is_master=False,
            timeout=timedelta(seconds=float(seconds)),
            wait_for_workers=False,
        )
        if verb == "set":
            store.set(key, sys.stdin.read())
        else:
            sys.stdout.write(store.get(key).decode())
    except DistError as problem:
        first_line = str(problem).partition("\n")[0]
        sys.stderr.write(f"{type(problem).__name__}: {first_line}\n")
        return int(ExitCode.NOTHING_MEASURED)
    return int(ExitCode.FINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
