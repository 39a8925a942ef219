"""From the trials of a ``scale`` run to its observations: a step's name holds what it asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from collbench.analyze.scale_types import NodeOrder, Observation, ScalePattern, Step
from collbench.model import Proof, RankPlace, Status, Topology, Trial

_NAME = re.compile(
    r"(?P<pattern>\w+)/(?P<order>\w+)\.(?P<seed>\d+)/grown(?P<growth>\d+)/at(?P<asked>\d+)"
    r"/(?P<size>\d+)B/(?P<place>\d+)\.rail(?P<rail>\d+)\.of(?P<groups>\d+)"
)


_ENOUGH_FAULTS = 3
_COMES_AGAIN = (Status.SKIPPED, Status.NODE_LOST)

Question = tuple[str, int]


def group_name(step: Step, place: int, rail: int, groups: int) -> str:
    """Returns the name of a group of a step: of its pair number ``place``, on a rail.

    Args:
        step: what it is of.
        place: the pair's, from 0; of a collective 0.
        rail: from 0.
        groups: of the round in all, so that a round that was torn off is known.
    """
    return (
        f"{step.pattern}/{step.order}.{step.seed}/grown{step.growth}/at{step.asked}"
        f"/{step.size_bytes}B/{place}.rail{rail}.of{groups}"
    )


def observations_of(topology: Topology, trials: Iterable[Trial]) -> list[Observation]:
    """Returns what every step gave, one observation a rail, in the order of the rounds.

    What ran again counts as it came out last.
    """
    number_of = {node.name: number for number, node in enumerate(topology.nodes)}
    last: dict[Question, list[Observation]] = {}
    for named in _rounds_of(trials).values():
        asked = _question(named)
        last.pop(asked, None)
        last[asked] = _of_round(named, topology.ranks, number_of)
    return [observation for those in last.values() for observation in those]


def unfinished_rounds(trials: Iterable[Trial]) -> frozenset[int]:
    """Returns numbers of rounds that say nothing: interrupted, torn off, or without a node."""
    return frozenset(
        number
        for number, named in _rounds_of(trials).items()
        if not _is_whole(named) or any(trial.status in _COMES_AGAIN for _, trial in named)
    )


def breaking_nodes(trials: Iterable[Trial]) -> dict[str, int]:
    """Returns the nodes that are not to be asked again, with how many rounds are laid to each.

    A round that hangs costs its deadline; three say enough.
    """
    rounds: dict[str, set[int]] = {}
    for trial in trials:
        if trial.group is not None:
            for culprit in trial.culprits:
                rounds.setdefault(culprit.node, set()).add(trial.group.round)
    return {node: len(found) for node, found in rounds.items() if len(found) >= _ENOUGH_FAULTS}


def _rounds_of(trials: Iterable[Trial]) -> dict[int, list[tuple[re.Match[str], Trial]]]:
    """Returns the trials of steps with their names, by the number of their round, in order."""
    rounds: dict[int, list[tuple[re.Match[str], Trial]]] = {}
    for trial in trials:
        match = None if trial.group is None else _NAME.fullmatch(trial.group.name)
        if match is not None and trial.group is not None:
            rounds.setdefault(trial.group.round, []).append((match, trial))
    return dict(sorted(rounds.items()))


def _question(named: Sequence[tuple[re.Match[str], Trial]]) -> Question:
    """Returns what a round asks; its nodes may change when one is lost."""
    match, trial = named[0]
    return match.string[: match.start("place")], trial.repeat


def _is_whole(named: Sequence[tuple[re.Match[str], Trial]]) -> bool:
    return len(named) == int(named[0][0]["groups"])


def _of_round(
    named: Sequence[tuple[re.Match[str], Trial]],
    ranks: Sequence[RankPlace],
    number_of: Mapping[str, int],
) -> list[Observation]:
    """Returns a step's observations, one a rail."""
    by_rail: dict[int, dict[int, Trial]] = {}
    for match, trial in named:
        by_rail.setdefault(int(match["rail"]), {})[int(match["place"])] = trial
    step = _step(named[0], by_rail[min(by_rail)], ranks, number_of)
    several = len(by_rail) > 1
    if not _is_whole(named):
        # Fewer pairs than ran: their flows cannot be counted any more.
        return [Observation(step=step, status=Status.SKIPPED)]
    return [
        _observation(step, [mine[place] for place in sorted(mine)], rail if several else None)
        for rail, mine in sorted(by_rail.items())
    ]


def _step(
    named: tuple[re.Match[str], Trial],
    of_a_rail: Mapping[int, Trial],
    ranks: Sequence[RankPlace],
    number_of: Mapping[str, int],
) -> Step:
    match, trial = named
    groups = [of_a_rail[place].group for place in sorted(of_a_rail)]
    ends = [
        list(dict.fromkeys(number_of[ranks[rank].node] for rank in group.ranks))
        for group in groups
        if group is not None
    ]
    pattern = ScalePattern(match["pattern"])
    if pattern is ScalePattern.HALF:
        nodes = [pair[0] for pair in ends] + [pair[1] for pair in ends]
    else:
        nodes = [node for pair in ends for node in pair]
    return Step(
        pattern=pattern,
        order=NodeOrder(match["order"]),
        seed=int(match["seed"]),
        growth=int(match["growth"]),
        asked=int(match["asked"]),
        nodes=tuple(nodes),
        size_bytes=int(match["size"]),
        repeat=trial.repeat,
    )


def _observation(step: Step, trials: Sequence[Trial], rail: int | None) -> Observation:
    bad = next((t.status for t in trials if t.status is not Status.OK), None)
    if bad is not None:
        return Observation(step=step, status=bad, rail=rail)
    summaries = [trial.summary for trial in trials if trial.summary is not None]
    rates = [s.busbw_gb_per_s for s in summaries if s.busbw_gb_per_s is not None]
    slowest = max(summaries, key=lambda summary: summary.median_us, default=None)
    if len(rates) < len(trials) or slowest is None:
        return Observation(step=step, status=Status.FAILED, rail=rail)
    return Observation(
        step=step,
        rate_gb_per_s=min(rates),
        pair_rates_gb_per_s=tuple(rates) if step.pairs else (),
        time_us=slowest.median_us,
        p95_us=slowest.p95_us,
        algorithm=_ran(trials[0].proof),
        rail=rail,
    )


def _ran(proof: Proof | None) -> str | None:
    if proof is None or proof.algorithm is None:
        return None
    return f"{proof.algorithm}/{proof.protocol}"
