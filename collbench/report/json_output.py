"""``--json``: one object a command, the same shape for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collbench.model import SCHEMA_VERSION, Finding, Trial


class JsonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints."""

    schema: int = SCHEMA_VERSION
    run_id: str
    exit_code: int
    trials: list[Trial]
    verdicts: list[Finding]


def json_document(
    run_id: str, exit_code: int, trials: Sequence[Trial], verdicts: Sequence[Finding]
) -> bytes:
    """Returns ``{schema, run_id, exit_code, trials, verdicts}`` as JSON; no NaN can be in it."""
    return msgspec.json.encode(
        JsonDocument(
            run_id=run_id, exit_code=exit_code, trials=list(trials), verdicts=list(verdicts)
        )
    )
