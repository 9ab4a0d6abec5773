"""SafeFallbackFactory: the honest answer without a conclusion, built from the snapshot alone (R83, R92). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from release.bounding import clean_text
from release.contract import (
    FallbackFact,
    FallbackLimitations,
    FallbackReason,
    ProcessStep,
    ProgressSnapshot,
    SafeFallback,
)

_SUMMARY = {
    ("zh", FallbackReason.MISSING_REQUIRED_CONTEXT): (
        "缺少开始排查所必需的信息，因此没有给出根因结论。请补充 limitations.missing_info 中列出的信息后再次提问。"
    ),
    ("zh", FallbackReason.INSUFFICIENT_EVIDENCE): (
        "现有证据不足以支持一个根因结论。process 列出本次检查过的范围，observed_facts 列出已核实的事实。"
    ),
    ("en", FallbackReason.MISSING_REQUIRED_CONTEXT): (
        "Information that the investigation needs is missing, so no root cause is stated. Please ask again with what "
        "limitations.missing_info lists."
    ),
    ("en", FallbackReason.INSUFFICIENT_EVIDENCE): (
        "The evidence does not support a root cause. process lists what was checked in this run, observed_facts what "
        "was verified."
    ),
}


def build_fallback(
    reason: FallbackReason, snapshot: ProgressSnapshot, missing_info: Sequence[str], language: str
) -> SafeFallback:
    """Build the public fallback (R92).

    `language` is `zh` or `en`; anything else reads English. `missing_info` is shown as given, blanks left out.
    """
    known = language if language in ("zh", "en") else "en"
    return SafeFallback(
        reason=reason,
        summary=_SUMMARY[known, reason],
        process=[ProcessStep(**checked.model_dump(exclude={"tool_call_id"})) for checked in snapshot.checked],
        observed_facts=[
            FallbackFact(statement=fact.excerpt, tool_call_id=fact.tool_call_id) for fact in snapshot.observed_facts
        ],
        limitations=FallbackLimitations(
            missing_info=[clean_text(note) for note in missing_info if note.strip()], notes=list(snapshot.limitations)
        ),
    )
