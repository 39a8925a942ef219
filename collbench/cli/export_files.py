"""What exports have in common: reading a run with a word on its state, and writing a file."""

from __future__ import annotations

import os
from pathlib import Path

from collbench.cli.output import say
from collbench.cli.runs import kept_words
from collbench.errors import UsageError
from collbench.store import StoredRun, find_run, read_run, results_root


def read_told(name: str, results: str | None) -> StoredRun:
    """Returns the run that a person names; what it lacks is said on stderr.

    Args:
        name: a folder, an id, a unique beginning of one, or ``last``.
        results: the folder of all runs, if it is given.

    Raises:
        RunNotFound: no such run.
        RecordError: it cannot be read.
    """
    return told(read_run(find_run(name, results_root(results, os.environ))))


def told(stored: StoredRun) -> StoredRun:
    """Returns a run; that it is damaged or partial is said on stderr."""
    run = stored.run
    for problem in stored.problems:
        say(f"collbench: {problem}", err=True)
    if run.exit_code is None:
        kept = kept_words(len(stored.trials), run.planned_trials)
        say(
            f"collbench: run {run.run_id} is partial, {kept} trials: it goes on, or ended without"
            " a chance to say so",
            err=True,
        )
    return stored


def put(content: str | bytes, output: str | None, *, force: bool, earlier: str = "") -> None:
    """Writes an export, whole or not at all; into a file by a rename.

    Args:
        content: text, or bytes for a file.
        output: the file; None: text goes to stdout.
        force: replace a file that exists.
        earlier: what begins with it is an earlier export, which is replaced anyway.

    Raises:
        UsageError: the file exists, is no plain file, or cannot be written.
    """
    if output is None:
        assert isinstance(content, str)
        say(content.removesuffix("\n"))
        return
    path = Path(output)
    # The name must not end like the file's: the collector of Prometheus reads all *.prom.
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    data = content.encode() if isinstance(content, str) else content
    try:
        refuse_taken(output, force=force, earlier=earlier)
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as problem:
        raise UsageError(
            f"cannot write '{output}': {problem.strerror}; give another file with -o"
        ) from None
    say(f"Kept in {output}", err=True)


def refuse_taken(output: str, *, force: bool, earlier: str = "") -> None:
    """Refuses a target that is there: also before the work, which may be long.

    Args:
        output: the file.
        force: replace a file that exists.
        earlier: what begins with it is replaced anyway.

    Raises:
        UsageError: it exists, or is no plain file.
        OSError: it cannot be read.
    """
    path, beginning = Path(output), earlier.encode()
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise UsageError(f"'{output}' exists and is no plain file; give another name with -o")
    if force:
        return
    with path.open("rb") as stream:
        if beginning and stream.read(len(beginning)) == beginning:
            return
    raise UsageError(f"'{output}' exists; give another name with -o, or --force")
