"""What of a page could be typed in or saved: its blocks, its code spans, and commands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

INDENTED = "indented"
SPAN = "span"
REMARK = "remark"
"""Where a text without a language stands: four spaces in, in a line, in a comment of a script."""

_FENCE = re.compile(r"^```(?P<language>\w*)\s*$")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LISTED = re.compile(r"\s*([*-]|\d+\.)\s")
_BEHIND = re.compile(r"\s{2,}#\s.*$")
"""A remark behind a command: two spaces before it, so that a quoted # stays."""


@dataclass(frozen=True)
class Block:
    """A text that stands out from the prose."""

    page: str
    line: int
    language: str
    """As fenced ("" for none), or one of the words above."""
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_session(self) -> bool:
        return any(line.startswith("$ ") for line in self.text.splitlines())


@dataclass(frozen=True)
class Command:
    """A line of a shell, joined where it goes on, and what the page shows below it."""

    page: str
    line: int
    text: str
    shown: tuple[str, ...] = ()
    is_span: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(path: Path, root: Path) -> list[Block]:
    """Returns the fenced and indented blocks of a page of Markdown, then its code spans."""
    page = str(path.relative_to(root))
    found: list[Block] = []
    prose: list[tuple[int, str]] = []
    inside: list[str] = []
    language: str | None = None
    start, in_list, before = 0, False, ""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        fence = _FENCE.match(line)
        if language is not None:
            if fence and not fence["language"]:
                found.append(Block(page, start, language, "\n".join(inside)))
                language, inside = None, []
            else:
                inside.append(line)
        elif fence:
            start, language = number, fence["language"]
        elif line.startswith("    ") and not in_list and (_goes_on(found, number) or not before):
            if _goes_on(found, number):
                last = found.pop()
                text = f"{last.text}\n{line[4:]}"
                found.append(Block(page, last.line, INDENTED, text))
            else:
                found.append(Block(page, number, INDENTED, line[4:]))
        else:
            in_list = bool(_LISTED.match(line)) or (in_list and line.startswith(" "))
            prose.append((number, line))
        before = line.strip()
    if language is not None:
        raise ValueError(f"{page}:{start}: the block has no end")
    return found + list(_spans(page, prose))


def _goes_on(found: list[Block], number: int) -> bool:
    """Says whether a line follows the last block, which is an indented one, at once."""
    last = found[-1] if found else None
    return (
        last is not None
        and last.language == INDENTED
        and last.line + last.text.count("\n") + 1 == number
    )


def _spans(page: str, prose: list[tuple[int, str]]) -> Iterator[Block]:
    """Yields the spans of paragraphs; one may go on in the next line."""
    numbers = [number for number, _ in prose]
    for paragraph in re.finditer(r"(?:.+\n)+", "".join(f"{line.strip()}\n" for _, line in prose)):
        before = paragraph.string.count("\n", 0, paragraph.start())
        for span in _SPAN.finditer(paragraph[0]):
            number = numbers[before + paragraph[0].count("\n", 0, span.start())]
            yield Block(page, number, SPAN, span[1].replace("\n", " "))


def remarks_of(path: Path, root: Path) -> list[Block]:
    """Returns what stands three spaces in, in the comments of a script or manifest."""
    page = str(path.relative_to(root))
    return [
        Block(page, number, REMARK, line.removeprefix("#   ").rstrip())
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.match(r"#   \S", line)
    ]


def commands_of(block: Block) -> list[Command]:
    """Returns the command lines of a block; in a session what follows each is shown by it."""
    if block.language in (SPAN, REMARK):
        text = re.sub(r"^[\w ,]+:\s+", "", block.text)
        return [Command(block.page, block.line, _BEHIND.sub("", text), is_span=True)]
    found: list[tuple[int, str, list[str]]] = []
    goes_on = False
    first = block.line + (block.language != INDENTED)
    for number, line in enumerate(block.text.splitlines(), start=first):
        line = line.rstrip() if block.is_session else _BEHIND.sub("", line.rstrip())
        if goes_on:
            at, before, shown = found[-1]
            found[-1] = (at, f"{before.removesuffix(chr(92))}{line.strip()}", shown)
        elif block.is_session and not line.startswith("$ "):
            found[-1][2].append(line)
            continue
        elif line and not line.startswith("#"):
            found.append((number, line.removeprefix("$ "), []))
        goes_on = line.endswith("\\")
    return [
        Command(block.page, at, _BEHIND.sub("", text), tuple(shown)) for at, text, shown in found
    ]
