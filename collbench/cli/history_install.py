"""``collbench history install``: releases of NCCL, each into a folder of its own."""

from __future__ import annotations

import click

from collbench.cli.context import CONTEXT
from collbench.errors import UsageError


@click.command(context_settings=dict(CONTEXT))
@click.argument("versions", metavar="VERSION,...")
@click.option("--libraries", metavar="DIR", help="Where to [~/.cache/collbench/nccl].")
@click.option("--cuda", default="13", metavar="12|13", help="The CUDA they are built for [13].")
def install(versions: str, libraries: str | None, cuda: str) -> None:
    """Install releases of NCCL for `history run`: 200 to 350 MB each, and torch's stays as it is.

    On a cluster once, where the folder is shared; `history run` on one node does it by itself.

    \b
    Examples:
      collbench history install 2.28.9,2.29.7
      collbench history install 2.30.7 --libraries /shared/nccl
    """  # noqa: D301  click's mark for "do not rewrap"
    import os

    from collbench.cli.history_sides import read_cuda, read_versions
    from collbench.cli.library_folders import install_release, libraries_folder
    from collbench.cli.output import say

    found = read_versions(versions)
    if not found:
        raise UsageError("no release is named; write for instance 2.28.9,2.29.7")
    folder = libraries_folder(libraries, os.environ)
    for version in found:
        say(str(install_release(folder, version, read_cuda(cuda))))
