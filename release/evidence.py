"""What the release stage is given of a Run's calls (R17, R65): one entry a call, and what of it may be quoted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from release.contract import LimitationCode
from tools.contract import CanonicalRecord, ControlView, EvidenceKind, EvidenceStatus, InvocationStatus
from tools.evidence_tool import FactView


@dataclass(frozen=True, slots=True)
class IndexedRecord:
    """One entry of the Run's index with what the canonical store and the tool said about it (R17, R64).

    `record` is None when the store has none; `missing_code` then says why. `facts`, `control` and `observation` are
    what the tool reads in a READY record; `control` is None when it could not read it.
    """

    tool_call_id: str
    tool_name: str
    kind: EvidenceKind
    record: CanonicalRecord | None
    facts: tuple[FactView, ...] = ()
    control: ControlView | None = None
    missing_code: LimitationCode | None = None
    observation: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class EvidenceView:
    """What the guards know of one call of the index (R89). `status` is None when the record is unavailable.

    `agent_result` is what may be quoted; `observation` is the whitelisted part of it that a guard's model may see (R52).
    """

    tool_call_id: str
    run_id: str
    kind: EvidenceKind
    status: InvocationStatus | None
    evidence_status: EvidenceStatus | None
    scope: Mapping[str, Any] = field(default_factory=dict)
    agent_result: Mapping[str, Any] = field(default_factory=dict)
    observation: Mapping[str, Any] | None = None

    def is_legal(self, run_id: str) -> bool:
        """Say whether a statement of this Run may refer to the call at all (R89.1)."""
        ready = self.status is InvocationStatus.READY and self.evidence_status in _MEANINGFUL
        return ready and self.run_id == run_id

    @property
    def shown(self) -> Mapping[str, Any]:
        """The evidence as a model sees it, without what stands beside it anyway (R51, R90, R91)."""
        source = self.agent_result if self.observation is None else self.observation
        return {key: value for key, value in source.items() if key not in _BESIDE}

    @property
    def shown_scope(self) -> Mapping[str, Any]:
        """The scope as a model sees it: with the window a relative lookback came to, where the tool tells it (R51)."""
        told = self.observation.get("scope") if self.observation else None
        return told if isinstance(told, Mapping) else self.scope

    @property
    def found(self) -> bool:
        """True when the call returned something."""
        return self.evidence_status is EvidenceStatus.EVIDENCE_FOUND


_BESIDE = frozenset({"tool_call_id", "scope", "evidence_status"})
_MEANINGFUL = frozenset({EvidenceStatus.EVIDENCE_FOUND, EvidenceStatus.NO_EVIDENCE})


def evidence_view(entry: IndexedRecord) -> EvidenceView:
    """Read one entry for the guards."""
    record = entry.record
    if record is None:
        return EvidenceView(entry.tool_call_id, "", entry.kind, None, None)
    same_call = record.tool_call_id == entry.tool_call_id and record.tool_name == entry.tool_name
    return EvidenceView(
        tool_call_id=entry.tool_call_id,
        # A record of another call is as foreign as one of another Run.
        run_id=record.run_id if same_call else "",
        kind=entry.kind,
        status=record.status,
        evidence_status=record.evidence_status,
        scope=record.scope.normalized,
        agent_result=record.agent_result or {},
        observation=entry.observation,
    )


def evidence_views(entries: Iterable[IndexedRecord]) -> dict[str, EvidenceView]:
    """Read the whole index for the guards, by tool_call_id; of two entries of one call the first counts."""
    views: dict[str, EvidenceView] = {}
    for entry in entries:
        views.setdefault(entry.tool_call_id, evidence_view(entry))
    return views
