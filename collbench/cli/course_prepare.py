"""What commands that run courses prepare alike: ``pairwise`` and ``scale``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collbench.cli.earlier import Earlier
from collbench.cli.ground import Ground
from collbench.cli.output import say
from collbench.cli.request import RunRequest
from collbench.cli.resume_options import resuming_lines
from collbench.launch.leaves import Leaves
from collbench.measure.plant import Plant
from collbench.model import Run
from collbench.plan.pair_cases import PairPlace

ALGORITHM = "Ring"
"""Forced, so that it cannot change between pairs, or with n."""


@dataclass(frozen=True, kw_only=True)
class PreparedCourse:
    """Everything decided and nothing started."""

    request: RunRequest
    ground: Ground
    """With the leaves in its topology."""
    leaves: Leaves | None
    place: PairPlace
    run: Run
    plant: Plant | None
    earlier: Earlier | None

    def tell(self, text: str) -> None:
        """Prints for people: on stderr where stdout is for JSON."""
        say(text, err=self.request.as_json)

    def tell_remarks(self) -> None:
        """Prints what stands below the plan: of the run that goes on, of nodes and leaves."""
        problems = self.leaves.problems if self.leaves is not None else ()
        said = [f"  {text}" for text in (*self.ground.remarks, *problems)]
        for text in (*resuming_lines(self.earlier), *said):
            self.tell(text)


def place_of(
    ground: Ground,
    names: list[str],
    ranks: Mapping[int, list[int]],
    *,
    latency: bool,
    inside: bool = False,
) -> PairPlace:
    """Returns where groups run.

    Args:
        ground: the nodes have met.
        names: of the nodes, or of the GPUs that are paired inside them.
        ranks: of each, by its number.
        latency: whether small exchanges are run.
        inside: both of a pair are on one node.
    """
    return PairPlace(
        names=names,
        ranks=ranks,
        backend=ground.slots.backend,
        via=ground.suite.via,
        policy=ground.suite.policy,
        setting={"NCCL_ALGO": ALGORITHM} if ground.on_nccl else {},
        emulated=bool(ground.slots.fake_hosts),
        nodes=1 if inside else 2,
        latency=latency,
    )
