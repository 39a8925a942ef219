"""What ``collbench history run`` is told to measure: releases by number, libraries by path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.cli.library_folders import CUDA_MAJORS, is_version, library_path
from collbench.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """The libraries of a history's run."""

    versions: tuple[str, ...]
    """Releases by number."""
    texts: tuple[str, ...]
    """All of them as ``sweep --nccl`` takes them: NAME=PATH."""


def read_cuda(text: str) -> str:
    """Returns the CUDA's major version.

    Raises:
        UsageError: there are no wheels for it.
    """
    if text not in CUDA_MAJORS:
        raise UsageError(f"--cuda '{text}' is not allowed; allowed: {', '.join(CUDA_MAJORS)}")
    return text


def read_versions(text: str) -> tuple[str, ...]:
    """Returns releases' numbers from a list at commas.

    Raises:
        UsageError: one is no such number, or stands there twice.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not is_version(word):
            raise UsageError(
                f"'{word}' is no release of NCCL; write for instance 2.29.7, or NAME=/path/to/"
                "libnccl.so.2 for a library of your own"
            )
        if words.count(word) > 1:
            raise UsageError(f"release {word} is given twice; give each once")
    return tuple(words)


def read_sides(texts: Sequence[str], folder: Path, cuda: str) -> Sides:
    """Returns the libraries that the texts of ``--nccl`` name.

    Args:
        texts: ``2.28.9,2.29.7`` or ``NAME=PATH[,plugin=PATH]``, any number of them.
        folder: where releases by number are installed.
        cuda: the CUDA that they are built for.

    Raises:
        UsageError: a text that is neither, or fewer than two libraries.
    """
    versions: list[str] = []
    found: list[str] = []
    for text in texts:
        first, equals, _ = text.partition("=")
        if equals:
            if "," in first:
                others, _, name = first.rpartition(",")
                raise UsageError(
                    f"'{text}': releases and NAME=PATH take an option each; write --nccl"
                    f" {others} --nccl {name}=PATH"
                )
            found.append(text)
            continue
        numbers = read_versions(text)
        versions += numbers
        found += [f"{number}={library_path(folder, number, cuda)}" for number in numbers]
    if len(found) < 2:
        raise UsageError(
            f"a history takes two releases or more, and {len(found)} is given; write for instance"
            " --nccl 2.28.9,2.29.7"
        )
    return Sides(versions=tuple(versions), texts=tuple(found))
