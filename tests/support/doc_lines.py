"""Lines of a shell taken apart, and what can be said of other programs' words without them."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import yaml
from command_lines import refuse_what_cannot_be

ROOT = Path(__file__).parents[2]
BEGINS = re.compile(
    r"(collbench|python3? -m (collbench|venv)|srun|sbatch|torchrun|mpirun|pip|pytest|kubectl"
    r"|eval|export|asv|jupyter|python3?|examples/\S+|\./build/\w+_perf|\w+_perf|cp|mksquashfs|mount"
    r"|enroot|apptainer|grep|sed|echo|for|\(umask|/opt/\S+/python|_?[A-Z_]+=\S* (collbench|srun))"
    r"(?= |$)"
)
"""What a line begins with that somebody could type in."""

_SHELL = re.compile(r"[|<>()]|^for |^eval |^export ")
"""What takes a shell to run: pipes, loops, substitutions."""

_ENDS = {"&&", ";"}
_ASSIGNED = re.compile(r"\w+=.*", re.DOTALL)

_SRUN = re.compile(
    r"-[NAw]\d*|--(nodes|ntasks-per-node|gpus-per-task|cpus-per-task)=\d+|--cpu-bind=none"
    r"|--kill-on-bad-exit=0|--export=ALL|--switches=\d+"
)
_OPEN_MPI = {"--hostfile": 1, "-n": 1, "--map-by": 1, "--bind-to": 1, "-x": 1, "--tag-output": 0}
_HYDRA = {"-f": 1, "-n": 1, "-ppn": 1, "-bind-to": 1, "-genvlist": 1}


class WrongLine(ValueError):
    """A line that cannot be what it is meant to be."""


def needs_shell(text: str) -> bool:
    """Says whether a line is more than programs one behind the other."""
    return bool(_SHELL.search(re.sub(r"'[^']*'|\"[^\"]*\"|\$\(\(.*?\)\)|>=", "", text)))


def programs(text: str) -> list[list[str]]:
    """Returns the words of each program of a line, without what is set before them.

    Variables that a page leaves open (``$R``) are 0; what may be left out (``[SUITE]``) is.
    """
    text = re.sub(r"\$\(\(.*?\)\)|\$[A-Z]\b", "0", text.removesuffix(' "$@"'))
    text = re.sub(r"\s\[[^\]]*\](?=\s|$)", "", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars="&;")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word in _ENDS:
            found.append([])
        elif found[-1] or not _ASSIGNED.fullmatch(word):
            found[-1].append(word)
    return [words for words in found if words]


def collbench_words(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Returns what stands before collbench's arguments, and these; None: it is not called."""
    for at, word in enumerate(words):
        if word == "collbench" and (at == 0 or words[at - 1] == "-m" or words[0] == "srun"):
            return list(words[: at + 1]), list(words[at + 1 :])
    return None


def check_launcher(before: Sequence[str]) -> None:
    """Refuses a launcher's options that are not those which the lab and the examples start it with.

    Args:
        before: the words up to collbench: ``srun -N 8 --ntasks-per-node=1 python -m collbench``.
    """
    words = [word for word in before if word != "..."]
    launcher = Path(words[0]).name
    end = next((k for k, w in enumerate(words) if re.search(r"(^|/)python$|^collbench$", w)), 0)
    if launcher == "srun":
        unknown = [
            word
            for at, word in enumerate(words[1:end], start=1)
            if not _SRUN.fullmatch(word) and not re.fullmatch(r"-[NAw]", words[at - 1])
        ]
        if unknown and unknown[0] != "apptainer":
            raise WrongLine(f"srun has no {unknown[0]} in the lab or the examples")
    elif launcher == "mpirun":
        known = _HYDRA if "-f" in words else _OPEN_MPI
        at = 1
        while at < end:
            if words[at] not in known:
                raise WrongLine(f"mpirun: {words[at]}")
            at += 1 + known[words[at]]
    elif launcher == "torchrun":
        from torch.distributed.run import get_args_parser

        _parse(get_args_parser(), [*words[1:-1], "collbench"])
    elif launcher not in ("collbench", "python"):
        raise WrongLine(f"not a launcher: {launcher}")


def check_other(words: Sequence[str]) -> None:
    """Refuses a line of another program whose files, options or names are not there.

    Raises:
        WrongLine: what is wrong.
    """
    name = Path(words[0]).name or words[0]
    if words[0].startswith("examples/"):
        _script(words)
        return
    check = _OTHERS.get(name)
    if check is None:
        raise WrongLine(f"no rule for {name}")
    check([word for word in words[1:] if word != "..."])


def _parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    try:
        parser.parse_args(words)
    except SystemExit:
        raise WrongLine(f"not parsed: {' '.join(words)}") from None


def _script(words: Sequence[str]) -> None:
    """Holds a script of the examples: it is there, and a sweep takes the options behind it."""
    _is_file(words[0])
    at = next((k for k, word in enumerate(words) if word.startswith("-")), len(words))
    refuse_what_cannot_be(["sweep", *words[at:]])


def _is_file(path: str) -> None:
    if not (ROOT / path).exists():
        raise WrongLine(f"no file {path}")


def _pip(words: Sequence[str]) -> None:
    if find_spec("pip") is None:  # an environment that another program fills
        return
    from pip._internal.commands import create_command

    command = create_command(words[0])
    try:
        options, targets = command.parse_args(list(words[1:]))
    except SystemExit:
        raise WrongLine(f"pip does not take {' '.join(words)}") from None
    for path in options.constraints:
        _is_file(path)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for target in [*targets, *getattr(options, "editables", [])]:
        for extra in re.findall(r"\[(.*)\]", target):
            unknown = set(extra.split(",")) - set(project["optional-dependencies"])
            if unknown:
                raise WrongLine(f"no extra {unknown}")


def _pytest(words: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    marks = [mark.partition(":")[0] for mark in project["tool"]["pytest"]["markers"]]
    at = 0
    while at < len(words):
        word = words[at]
        if word == "-m":
            at += 1
            if words[at] not in marks:
                raise WrongLine(f"no mark {words[at]}")
        elif word == "-n":
            at += 1
        elif not word.startswith("-"):
            _is_file(word.partition("::")[0])
        elif not re.fullmatch(r"-s|--benchmark-(only|autosave|compare(=\d+)?)", word):
            raise WrongLine(f"pytest {word}")
        at += 1


def _kubectl(words: Sequence[str]) -> None:
    if words[:2] == ["create", "secret"]:
        _secret_is_used(words[3])
    elif words[0] in ("apply", "delete"):
        for path in words[words.index("-f") + 1 :]:
            _is_file(path)
    elif words[0] != "logs":
        raise WrongLine(f"kubectl {words[0]}")


def _secret_is_used(name: str) -> None:
    for path in (ROOT / "examples/kubernetes").glob("*.yaml"):
        text = yaml.dump_all(yaml.safe_load_all(path.read_text()))
        if f"name: {name}\n" not in text or "secretKeyRef" not in text:
            raise WrongLine(f"{path.name} does not use the secret {name}")


def _sbatch(words: Sequence[str]) -> None:
    files = [word for word in words if word.endswith(".sbatch")]
    if len(files) != 1:
        raise WrongLine("sbatch takes one script")
    if "/" in files[0]:
        _script(words[words.index(files[0]) :])


def _asv(words: Sequence[str]) -> None:
    if find_spec("asv") is None:  # of the extra "history"
        return
    from asv.commands import make_argparser

    parser, known = make_argparser()
    if len(words) > 1:
        _parse(parser, words)
    elif words[0] not in known.choices:
        raise WrongLine(f"asv has no command {words[0]}")


def _jupyter(words: Sequence[str]) -> None:
    _is_file(words[1])


def _python(words: Sequence[str]) -> None:
    if words[:2] != ["-m", "venv"] and not list(ROOT.glob(f"suites/*/{words[0]}")):
        raise WrongLine(f"no script {words[0]}")


def _as_it_is(words: Sequence[str]) -> None:
    """Says nothing of programs that no test can hold: of the kernel, of containers, of NCCL."""


_OTHERS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "pip": _pip,
    "pytest": _pytest,
    "kubectl": _kubectl,
    "sbatch": _sbatch,
    "asv": _asv,
    "jupyter": _jupyter,
    "python": _python,
    "python3": _python,
    **dict.fromkeys(
        ["srun", "torchrun", "mpirun", "mksquashfs", "mount", "enroot", "apptainer", "."], _as_it_is
    ),
    **dict.fromkeys(["all_reduce_perf", "cp", "cd"], _as_it_is),
}
"""Programs that cannot run in a test, or not without a network."""
