"""The diagnosis draft as the model writes it: strict parsing (R73, R77, R79). Pure."""

from __future__ import annotations

from release.contract import MAX_DRAFT_BYTES, AgentOutputFailure, DiagnosisDraft
from release.strict_json import parse_strict


def parse_draft(text: str) -> DiagnosisDraft | AgentOutputFailure:
    """Parse a final model text strictly, at most 32 KiB; any failure discards it whole (R77, R79). Never raises."""
    return parse_strict(text, DiagnosisDraft, MAX_DRAFT_BYTES)
