"""Writes the git repository of NCCL's releases that asv walks over: `python make_releases.py`."""

from pathlib import Path

import click

from collbench.errors import UsageError
from collbench.interop.release_repository import write_release_repository
from collbench.nccl.releases import known_releases, read_releases


@click.command(help=__doc__)
@click.argument("folder", type=Path, default=Path(__file__).resolve().parent / "releases")
@click.option("--releases", type=Path, help="CSV of more releases: version,uploaded.")
@click.option("--package", default="nvidia-nccl-cu13", show_default=True, help="What to install.")
def main(folder: Path, releases: Path | None, package: str) -> None:
    """Writes it and says what it holds."""
    try:
        known = read_releases(releases) if releases else known_releases()
        versions = list(write_release_repository(folder, known, package=package))
    except UsageError as problem:
        raise click.UsageError(str(problem)) from None
    click.echo(f"{folder}: {len(versions)} releases, v{versions[0]} to v{versions[-1]}")


if __name__ == "__main__":
    main()
