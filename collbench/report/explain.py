"""What `collbench explain` says: the words of tables and verdicts, as data and as text.

The words stand in ``explain_figures.toml`` and ``explain_verdicts.toml`` beside this file, so that
a test can hold them against every code of the records.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from collbench.errors import UsageError, nearest

_FILES = ("explain_figures.toml", "explain_verdicts.toml")
_LABELS = {"what": "what", "got": "how", "read": "read", "do": "do"}
"""Field -> how its paragraph is labelled."""
_INDENT = 8
"""Columns in front of a paragraph: the longest label and its margins."""
_NEXT = (
    "collbench explain TOPIC says more; any code of an output is a topic too, as no_rdma_device."
)


class Topic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One notion."""

    name: str
    brief: str
    what: str
    got: str
    """How it comes about."""
    read: str
    do: str
    """What a person does about it."""
    also: list[str] = []
    """Other names."""
    words: dict[str, str] = {}
    """Codes that belong to it, each with its meaning."""
    see: list[str] = []
    page: str
    """A page of the docs, from the project's root."""

    def is_called(self, word: str) -> bool:
        """Whether this is one of its names."""
        return _plain(word) in map(_plain, (self.name, *self.also))

    def meaning_of(self, word: str) -> str | None:
        """Returns what a code of it means."""
        return {_plain(code): text for code, text in self.words.items()}.get(_plain(word))


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics that belong together."""

    title: str
    topic: list[Topic]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: list[Group]


@cache
def groups() -> tuple[Group, ...]:
    """Returns all topics, in the order in which they are listed."""
    folder = Path(__file__).parent
    files = [tomllib.loads((folder / name).read_text(encoding="utf-8")) for name in _FILES]
    return tuple(group for file in files for group in msgspec.convert(file, _File).group)


def topics() -> Iterator[Topic]:
    """Yields every topic."""
    for group in groups():
        yield from group.topic


def words() -> list[str]:
    """Returns every word that can be asked for, each once: names, other names, codes."""
    found = [word for one in topics() for word in (one.name, *one.also, *one.words)]
    return list(dict.fromkeys(found))


def explained(word: str, width: int) -> str:
    """Returns what there is to say of a word.

    Args:
        word: a topic, another name of one, or a code; case, ``-``, ``_`` and spaces do not matter.
        width: columns.

    Raises:
        UsageError: no such word.
    """
    called = [one for one in topics() if one.is_called(word)]
    holding = [one for one in topics() if one not in called and one.meaning_of(word) is not None]
    if not called and not holding:
        raise UsageError(
            f"unknown topic '{word}'{nearest(word, words()) or ';'}"
            " 'collbench explain' without a topic lists them all"
        )
    parts = [_topic_text(one, word, width) for one in called or holding]
    if called:
        parts += [
            f"{word} of '{one.name}': {one.meaning_of(word)} (collbench explain {one.name})"
            for one in holding
        ]
    return "\n\n".join(parts)


def list_text(width: int) -> str:
    """Returns all topics by groups, a line each.

    Args:
        width: columns; a line that is longer goes on below itself.
    """
    column = max(len(one.name) for one in topics()) + 4
    parts = [
        "\n".join(
            [
                group.title,
                *(_hung(f"  {one.name}", one.brief, column, width) for one in group.topic),
            ]
        )
        for group in groups()
    ]
    return "\n\n".join([*parts, textwrap.fill(_NEXT, width)])


def _topic_text(topic: Topic, asked: str, width: int) -> str:
    other = f" ({asked})" * (topic.is_called(asked) and _plain(asked) != _plain(topic.name))
    lines = [textwrap.fill(f"{topic.name}{other}: {topic.brief}", width)]
    meaning = topic.meaning_of(asked)
    if meaning is not None and not topic.is_called(asked):
        lines = [textwrap.fill(f"{asked}: {meaning}", width), "", *lines]
    lines += [
        _hung(f"  {label}", getattr(topic, field), _INDENT, width)
        for field, label in _LABELS.items()
    ]
    if topic.words:
        column = max(map(len, topic.words)) + 6
        lines += [_hung(f"    {code}", text, column, width) for code, text in topic.words.items()]
    lines.append(_hung("  see", f"{', '.join(topic.see)}; {topic.page}", _INDENT, width))
    return "\n".join(lines)


def _hung(label: str, text: str, column: int, width: int) -> str:
    """Returns a label and a text beside it that begins at a column in every line."""
    return textwrap.fill(
        text,
        width,
        initial_indent=label.ljust(column),
        subsequent_indent=" " * column,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _plain(word: str) -> str:
    return "_".join(word.lower().replace("-", " ").replace("_", " ").split())
