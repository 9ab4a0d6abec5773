"""The tables: Runs, agent steps, trace events, archive, and the journal's bookkeeping.

Column types are portable between SQLite and PostgreSQL; times are seconds since the epoch as double precision.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Double, Index, Integer, String, Text
from sqlmodel import Field, SQLModel


def _json(*, nullable: bool) -> Column[Any]:
    return Column(JSON(none_as_null=True), nullable=nullable)


def _time(*, nullable: bool = False, index: bool = False) -> Column[Any]:
    return Column(Double, nullable=nullable, index=index)


class DiagnosisRun(SQLModel, table=True):
    """One Run (R8, R9, R98): the durable source of truth for intent, release outcome and published result.

    `status` is the public status, written in the same statement as `internal_state`. `published` says whether a result
    or fallback left the Run, so that R99 needs no look into JSON. `session_lock` is set while the Run is its session's
    only one: its unique index lets no second one begin. `intent` is NULL until the question was routed (R97).
    """

    __tablename__ = "diagnosis_run"
    __table_args__ = (
        Index("ix_diagnosis_run_session_created", "session_id", "created_at"),
        Index("ix_diagnosis_run_owner_created", "owner", "created_at"),
        Index("ix_diagnosis_run_status_lease", "status", "lease_until"),
        Index("ux_diagnosis_run_session_lock", "session_lock", unique=True),
    )

    run_id: str = Field(sa_column=Column(String(128), primary_key=True))
    query: str = Field(sa_column=Column(Text, nullable=False))
    session_id: str | None = Field(default=None, sa_column=Column(String(128), nullable=True))
    internal_state: str = Field(sa_column=Column(String(32), nullable=False))
    status: str = Field(sa_column=Column(String(16), nullable=False))
    created_at: float = Field(sa_column=_time(index=True))
    execution_id: str | None = Field(default=None, sa_column=Column(String(128), nullable=True))
    lease_until: float | None = Field(default=None, sa_column=_time(nullable=True))
    forked_from: str | None = Field(default=None, sa_column=Column(String(128), nullable=True))
    intent: str | None = Field(default=None, sa_column=Column(String(32), nullable=True))
    release_outcome: str = Field(sa_column=Column(String(32), nullable=False))
    published_result: dict[str, Any] | None = Field(default=None, sa_column=_json(nullable=True))
    fallback: dict[str, Any] | None = Field(default=None, sa_column=_json(nullable=True))
    published: bool = Field(default=False)
    stop_reason: str | None = Field(default=None, sa_column=Column(String(64), nullable=True))
    error_code: str | None = Field(default=None, sa_column=Column(String(64), nullable=True))
    total_token_count: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    usage: dict[str, Any] = Field(default_factory=dict, sa_column=_json(nullable=False))
    ended_at: float | None = Field(default=None, sa_column=_time(nullable=True, index=True))
    owner: str | None = Field(default=None, sa_column=Column(String(128), nullable=True))
    thread_id: str | None = Field(default=None, sa_column=Column(String(255), nullable=True))
    session_lock: str | None = Field(default=None, sa_column=Column(String(1024), nullable=True))
    context: dict[str, Any] | None = Field(default=None, sa_column=_json(nullable=True))


class JournalCursor(SQLModel, table=True):
    """Last `seq` of a Run; its row lock makes writers of one Run take turns, so that numbers have no gaps."""

    __tablename__ = "journal_cursor"

    run_id: str = Field(sa_column=Column(String(128), primary_key=True))
    last_seq: int = Field(sa_column=Column(BigInteger, nullable=False))


class JournalBatchRow(SQLModel, table=True):
    """A batch that was written; its presence makes writing it again a no-op."""

    __tablename__ = "journal_batch"

    run_id: str = Field(sa_column=Column(String(128), primary_key=True))
    key: str = Field(sa_column=Column(String(255), primary_key=True))
    at: float = Field(sa_column=_time())


class DiagnosisTraceEvent(SQLModel, table=True):
    """One trace event with its whitelisted fields; this table is the detail ledger of model calls (R115)."""

    __tablename__ = "diagnosis_trace_event"

    run_id: str = Field(sa_column=Column(String(128), primary_key=True))
    seq: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    type: str = Field(sa_column=Column(String(64), nullable=False))
    at: float = Field(sa_column=_time())
    fields: dict[str, Any] = Field(default_factory=dict, sa_column=_json(nullable=False))
    fields_refused: int = Field(default=0, sa_column=Column(Integer, nullable=False))


class AgentStep(SQLModel, table=True):
    """One round of the Diagnosis Agent (R114); `token_count` is NULL when the provider gave no usage (R116)."""

    __tablename__ = "agent_step"

    run_id: str = Field(sa_column=Column(String(128), primary_key=True))
    position: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    round: int = Field(sa_column=Column(Integer, nullable=False))
    kind: str = Field(sa_column=Column(String(64), nullable=False))
    tool_call_ids: list[str] = Field(default_factory=list, sa_column=_json(nullable=False))
    token_count: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    at: float = Field(sa_column=_time())


class RunArchive(SQLModel, table=True):
    """One archived value of a Run (R67); never a raw response."""

    __tablename__ = "run_archive"

    run_id: str = Field(sa_column=Column(String(128), primary_key=True))
    kind: str = Field(sa_column=Column(String(32), primary_key=True))
    key: str = Field(sa_column=Column(String(255), primary_key=True))
    payload: dict[str, Any] = Field(default_factory=dict, sa_column=_json(nullable=False))
    at: float = Field(sa_column=_time(index=True))
