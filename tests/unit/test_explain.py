"""`collbench explain`: every word that is printed is a topic, and each topic says what to do."""

import re
from enum import IntEnum, StrEnum
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_lines import commands_in, refuse_what_cannot_be, without_remark

from collbench import model
from collbench.analyze import (
    bars,
    compare,
    false_knees,
    knee,
    located,
    pair_confirm,
    pair_types,
    pair_verdicts,
    scale_types,
)
from collbench.cli.main import cli
from collbench.errors import ExitCode, UsageError
from collbench.notes import NOTES
from collbench.report.explain import explained, groups, list_text, topics, words

ROOT = Path(__file__).parents[2]
MODULES = (
    model,
    bars,
    compare,
    false_knees,
    knee,
    located,
    pair_confirm,
    pair_types,
    pair_verdicts,
    scale_types,
)
ENUMS = sorted(
    {
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, StrEnum | IntEnum)
        and value not in (StrEnum, IntEnum)
    },
    key=lambda one: (one.__module__, one.__name__),
)
TOPICS = list(topics())


def found_codes():
    """Every code that a conclusion is given in so many words."""
    modules = [
        *(ROOT / "collbench/analyze").glob("*.py"),
        *(ROOT / "collbench/report").glob("*.py"),
    ]
    modules += (ROOT / "collbench/cli").glob("*.py")
    return {
        code for module in modules for code in re.findall(r'\bcode="([a-z_]+)"', module.read_text())
    }


def explain(*topic):
    return CliRunner().invoke(cli, ["explain", *topic], standalone_mode=False)


def test_the_enums_that_are_printed_are_all_looked_at():
    names = {one.__name__ for one in ENUMS}

    assert names >= {
        *("Status", "ReasonCode", "StopReason", "Mode", "Pattern", "NodeState"),
        *("NodeCode", "FabricCode", "Verdict", "Doubt", "BarVerdict", "PairKind"),
        *("ScalePattern", "NodeOrder", "FalseKneeKind", "KneeAnswer", "Kind", "Outcome"),
    }


@pytest.mark.parametrize("enum", ENUMS, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_every_word_of_the_records_and_verdicts_is_a_topic(enum):
    for member in enum:
        assert str(member.value) in explained(str(member.value), 100)


@pytest.mark.parametrize("code", [*NOTES, *map(str, map(int, ExitCode))])
def test_every_note_and_exit_status_is_a_topic(code):
    assert code in explained(code, 100)


def test_every_code_of_a_conclusion_is_a_topic():
    codes = found_codes()

    assert {"host_bound", "ib_off_faster", "late_rank"} <= codes
    assert codes <= {word.lower().replace(" ", "_") for word in words()}


@pytest.mark.parametrize(
    ("word", "topic", "meaning"),
    [
        ("no_rdma_device", "path_not_used", "IB was asked for and there is none"),
        ("no-rdma device", "path_not_used", "IB was asked for and there is none"),
        ("Killed", "crashed", "the process was ended by a signal"),
        ("at_threshold", "UNCLEAR", "a sure change, about as large as the threshold"),
    ],
)
def test_a_code_is_found_in_any_spelling_with_its_own_meaning(word, topic, meaning):
    first, blank, second, *_ = explained(word, 200).splitlines()

    assert first.startswith(f"{word}: {meaning}")
    assert blank == ""
    assert second.startswith(f"{topic}: ")


def test_a_name_goes_before_a_code_that_is_spelt_alike():
    text = explained("time", 100)

    assert text.startswith("time: the slowest rank's, per sample")
    assert text.endswith("time of 'stop': --max-time was over (collbench explain stop)")


def test_another_name_of_a_topic_stands_in_its_first_line():
    assert explained("wrong_element", 100).startswith("data_wrong (wrong_element): a wrong element")


def test_a_code_of_two_topics_shows_both():
    text = explained("latency", 100)

    assert "\npair kinds: " in text
    assert "\nfalse knees: " in text


@pytest.mark.parametrize("topic", TOPICS, ids=lambda one: one.name)
def test_a_topic_says_what_how_and_what_to_do_in_a_few_lines(topic):
    lines = explained(topic.name, 100).split("\n\n")[0].splitlines()
    own = [line for line in lines if not line.startswith("    ") or line.startswith("        ")]
    labels = [line[2:6].strip() for line in lines if re.match(r"  \S", line)]

    assert lines[0] == f"{topic.name}: {topic.brief}"
    assert labels == ["what", "how", "read", "do", "see"]
    assert 3 <= len([line for line in own if line[8:9] != " "]) <= 16
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("topic", TOPICS, ids=lambda one: one.name)
def test_what_a_topic_points_at_is_there(topic):
    page, _, heading = topic.page.partition("#")
    text = (ROOT / page).read_text()
    anchors = {
        re.sub(r"[^\w -]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }

    assert not heading or heading in anchors
    for other in topic.see:
        assert explained(other, 100)
        assert other != topic.name


def test_a_name_belongs_to_one_topic():
    names = [re.sub("[-_ ]", "_", name.lower()) for one in TOPICS for name in {one.name, *one.also}]

    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("width", [80, 100])
def test_the_list_holds_every_topic_in_its_group(width):
    text = list_text(width)

    assert max(map(len, text.splitlines())) <= width
    for group in groups():
        part = next(part for part in text.split("\n\n") if part.startswith(group.title))
        assert [
            line.strip().startswith(one.name)
            for one, line in zip(
                group.topic, [line for line in part.splitlines()[1:] if line[2] != " "], strict=True
            )
        ] == [True] * len(group.topic)


def test_without_a_topic_all_are_listed():
    done = explain()

    assert done.exit_code == 0
    assert done.output.startswith("What is asked\n  case ")


def test_a_topic_may_be_several_words():
    done = explain("no", "absolute", "reference")

    assert done.exit_code == 0
    assert done.output.startswith("no absolute reference: ")


def test_an_unknown_topic_names_the_nearest():
    done = explain("buswb")

    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == (
        "unknown topic 'buswb'; did you mean 'busbw'?"
        " 'collbench explain' without a topic lists them all"
    )


def test_a_topic_like_nothing_says_where_the_list_is():
    done = explain("xyzzy")

    assert str(done.exception) == (
        "unknown topic 'xyzzy'; 'collbench explain' without a topic lists them all"
    )


# The examples of every command's help


def commands_of(group, *path):
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from commands_of(found, *path, name)


def examples_of(command):
    """The lines of a help's block of examples."""
    block = re.search(r"(?:Examples|Start here):\n((?: +\S.*\n?)+)", command.help or "")
    return [] if block is None else block[1].splitlines()


COMMANDS = dict(commands_of(cli))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_has_examples_that_are_commands(path):
    # A command of a group may have its example in the group's help.
    lines = examples_of(COMMANDS[path]) or examples_of(COMMANDS[path[:1]])
    own = [call for line in lines for call in commands_in(without_remark(line))]

    assert any(tuple(call[: len(path)]) == path for call in own)
    for call in own:
        refuse_what_cannot_be(call)
