"""What commands say of a ``pairwise`` run, live or stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from collbench.analyze.pair_inside import as_paired
from collbench.analyze.pair_rows import PROBES, kind_of, state_of_run
from collbench.analyze.pair_state import PairwiseState, Reference
from collbench.analyze.pair_types import PairKind
from collbench.analyze.pair_verdicts import NodeState as Verdict
from collbench.analyze.pair_verdicts import NodeVerdict, PairwiseResult
from collbench.analyze.pairwise import judge
from collbench.cli.course_output import duration_s, what_did_not_fit, who_came
from collbench.model import Finding, Run, Trial
from collbench.report.pairwise_about import PairwiseAbout
from collbench.store import StoredRun
from collbench.units import format_size

_LEAVES = "leaves_source"
_JOB_ID, _USER = "job_id", "user"


def judged(
    stored: StoredRun, reference: Reference | None = None
) -> tuple[PairwiseState, PairwiseResult, PairwiseAbout]:
    """Returns all that reports of a run need.

    Args:
        stored: the run; its header may say that it goes on.
        reference: an absolute bar; without, the one that the run was made with.
    """
    state = state_of_run(stored, reference or reference_of(stored))
    return state, judge(state), about_of(as_paired(stored), state)


def reference_of(stored: StoredRun) -> Reference | None:
    """Returns the bar that a run was made with."""
    kept = stored.run.suite.get("reference")
    if not isinstance(kept, dict):
        return None
    return Reference(
        source=str(kept["source"]),
        at_least={(PairKind(kind), rail): rate for kind, rail, rate in kept["at_least"]},
    )


def reference_as_dict(reference: Reference) -> dict[str, object]:
    """Returns a bar as the run's header keeps it."""
    rows = [[str(kind), rail, rate] for (kind, rail), rate in reference.at_least.items()]
    return {"source": reference.source, "at_least": rows}


def about_of(stored: StoredRun, state: PairwiseState) -> PairwiseAbout:
    """Returns what a report says of a run beside its verdicts."""
    run = stored.run
    trials = [trial for trial in stored.trials if trial.group is not None]
    source = _text_of(run, _LEAVES)
    return PairwiseAbout(
        run=run,
        topology=stored.topology,
        **who_came(stored),
        leaves_source=source,
        ran=ran_words(trials),
        rounds=rounds_words(trials),
        share_tried=_share(state, across=False if run.suite.get("inside") else None),
        share_across_tried=_share_across(run, state),
        duration_s=duration_s(trials),
        next_commands=what_did_not_fit(trials),
        job_id=_text_of(run, _JOB_ID),
        user=_text_of(run, _USER),
    )


def who_started(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Returns what a run's header keeps of who started it: Slurm's job and the user's name."""
    return {_JOB_ID: environ.get("SLURM_JOB_ID"), _USER: environ.get("USER")}


def _text_of(run: Run, key: str) -> str | None:
    value = run.suite.get(key)
    return value if isinstance(value, str) else None


def qualified(run: Run, state: PairwiseState, result: PairwiseResult) -> NodeVerdict | None:
    """Returns the verdict on the node that is to be qualified, None where none is."""
    name = _text_of(run, "qualify")
    return None if name is None else result.nodes[state.names.index(name)]


def qualify_line(run: Run, state: PairwiseState, result: PairwiseResult) -> str | None:
    """Returns the last line of a run with ``--qualify``: the verdict on that node; else None."""
    mine = qualified(run, state, result)
    return None if mine is None else f"QUALIFY {state.names[mine.node]}: {mine.verdict}"


def ran_words(trials: Sequence[Trial]) -> str:
    """Returns what pairs ran: ``send_recv + all_reduce 64 MiB, 1,000 x 8 B``."""
    sizes: Counter[int] = Counter()
    names: dict[str, None] = {}
    exchanges = 0
    for trial in trials:
        if trial.group is None or trial.group.name.startswith(PROBES):
            continue
        kind = kind_of(trial)
        if kind is PairKind.LATENCY:
            exchanges = max(exchanges, trial.summary.samples if trial.summary else 0)
        elif kind is not PairKind.SEND:
            sizes[trial.case.requested_bytes] += 1
            names[trial.case.collective] = None
    if not sizes:
        return "nothing"
    words = f"{' + '.join(names)} {format_size(sizes.most_common(1)[0][0])}"
    return f"{words}, {exchanges:,} x 8 B" if exchanges else words


def rounds_words(trials: Sequence[Trial]) -> str:
    """Returns how often pairs met: ``7 rounds of 4 pairs + 2 to confirm``."""
    first: dict[int, set[frozenset[int]]] = {}
    again: set[int] = set()
    for trial in trials:
        group = trial.group
        if group is None or kind_of(trial) is not PairKind.ALL_REDUCE:
            continue
        if group.name.startswith("confirm/"):
            again.add(group.round)
        else:
            first.setdefault(group.round, set()).add(frozenset(group.ranks))
    most = max(map(len, first.values()), default=0)
    words = counted_rounds(len(first), most)
    return f"{words} + {len(again)} to confirm" if again else words


def counted_rounds(count: int, most: int) -> str:
    """Returns so many rounds of so many pairs in words."""
    rounds = f"{count} round{'s' * (count != 1)} of {'up to ' * (most > 1)}"
    return f"{rounds}{most} pair{'s' * (most != 1)}"


def _share_across(run: Run, state: PairwiseState) -> float | None:
    asked = state.leaves is not None and not run.suite.get("inside")
    return _share(state, across=True) if asked else None


def _share(state: PairwiseState, across: bool | None) -> float | None:
    """Returns the share of paths that was tried: of those across leaves, inside them, or of all."""
    a, b = state.ends
    size = state.size
    wanted = np.ones(len(a), bool) if across is None else state.across == across
    tried = len(np.unique(np.minimum(a, b)[wanted] * size + np.maximum(a, b)[wanted]))
    members = np.bincount(state.leaf_numbers)
    every, inside = size * (size - 1) // 2, int((members * (members - 1) // 2).sum())
    paths = {None: every, False: inside, True: every - inside}[across]
    return tried / paths if paths else None


def pairwise_findings(state: PairwiseState, result: PairwiseResult) -> list[Finding]:
    """Returns the verdicts that a run's header keeps: whoever is not well."""
    found = []
    for node in result.nodes:
        if node.verdict in (Verdict.PASS, Verdict.NOT_TESTED):
            continue
        effect = "" if node.effect is None else f" {node.effect.share:+.0%}"
        rail = "" if node.rail is None else f" rail {node.rail}"
        confirmed = ", confirmed" if node.confirmed else ""
        found.append(
            Finding(
                code=str(node.code or node.verdict),
                severity="bad" if node.verdict is Verdict.FAIL else "warning",
                text=f"{node.verdict} {state.names[node.node]}:"
                f" {node.code or 'unclear'}{rail}{effect}{confirmed}.",
                evidence=list(node.evidence),
            )
        )
    for fault in result.fabric:
        where = "-".join((*(state.names[n] for n in fault.nodes[:2]), *fault.leaves))
        found.append(
            Finding(
                code=str(fault.code),
                severity="bad" if fault.confirmed else "warning",
                text=f"{fault.code} {where}{', confirmed' if fault.confirmed else ''}.",
                evidence=list(fault.evidence),
            )
        )
    return found
