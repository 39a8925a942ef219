"""Which cases NCCL cannot run: decided by the table, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping

from collbench.errors import UsageError
from collbench.model import Case, Reason, ReasonCode, Record
from collbench.nccl.grammar import DEFAULT, Kind, canonical_choice, ignores_choice
from collbench.nccl.legality import Place, why_illegal
from collbench.nccl.settings import ALG_SELECTION, LIBRARY, variables_of

_PER_CALL_CHOICE = (2, 31, 0)


class NcclPlace(Record, frozen=True, kw_only=True):
    """Where NCCL is to run, as far as it decides what can be."""

    version: tuple[int, int, int]
    versions: dict[str, tuple[int, int, int]] = {}
    """Of the libraries that settings call by name."""
    nodes: int
    ranks: int
    compute_capability: tuple[int, int] | None = None
    variables: dict[str, str] = {}
    """The environment's."""

    def refusal(self, case: Case) -> Reason | None:
        """Returns why a case cannot be, or None."""
        version = self._version(case)
        if ALG_SELECTION in case.setting and version < _PER_CALL_CHOICE:
            return Reason(
                code=ReasonCode.NEEDS_NEWER_NCCL,
                text=f"alg_selection needs NCCL 2.31 or newer, not {_text(version)}",
            )
        if ignores_choice(case.collective):
            swept = {"NCCL_ALGO", "NCCL_PROTO"} & case.setting.keys()
            return (
                None
                if not swept
                else _illegal(
                    f"NCCL builds {case.collective} of sends and receives, for which"
                    f" {' and '.join(sorted(swept))} {'does' if len(swept) == 1 else 'do'} nothing"
                )
            )
        algorithm = self._chosen("algorithm", "NCCL_ALGO", case)
        protocol = self._chosen("protocol", "NCCL_PROTO", case)
        why = why_illegal(case.collective, algorithm, protocol, self._place(case))
        return None if why is None else _illegal(why)

    def _version(self, case: Case) -> tuple[int, int, int]:
        return self.versions.get(case.setting.get(LIBRARY, ""), self.version)

    def _chosen(self, kind: Kind, name: str, case: Case) -> str:
        """Returns what a variable says, from the setting or else the environment.

        What the environment says and NCCL's grammar does not know is left to NCCL's own words.
        """
        value = case.setting.get(name) or self.variables.get(name)
        try:
            return canonical_choice(kind, value) if value else DEFAULT
        except UsageError:
            return DEFAULT

    def _place(self, case: Case) -> Place:
        variables = _effective(self.variables, case.setting)
        return Place(
            version=self._version(case),
            nodes=self.nodes,
            ranks=self.ranks,
            compute_capability=self.compute_capability,
            nvls=False if variables.get("NCCL_NVLS_ENABLE") == "0" else None,
            collnet=variables.get("NCCL_COLLNET_ENABLE") == "1",
            dtype=case.dtype,
            redop=case.redop,
        )


def _effective(variables: Mapping[str, str], setting: Mapping[str, str]) -> dict[str, str]:
    changed = {**variables, **variables_of(setting)}
    return {name: value for name, value in changed.items() if value is not None}


def _illegal(text: str) -> Reason:
    return Reason(code=ReasonCode.ILLEGAL, text=text)


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
