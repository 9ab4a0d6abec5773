"""The first tables.

Everything is created only where it is missing: databases that were made before versions were kept have these tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

RUN_ID = sa.String(128)
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Create tables and their indexes."""
    _runs()
    _journal()
    op.create_table(
        "canonical_record",
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("payload", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb"), nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        if_not_exists=True,
    )
    _index("canonical_record", "ix_canonical_record_expires_at", "expires_at")


def _runs() -> None:
    op.create_table(
        "diagnosis_run",
        sa.Column("run_id", RUN_ID, primary_key=True),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("session_id", sa.String(128), nullable=True),
        sa.Column("internal_state", sa.String(32), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("execution_id", sa.String(128), nullable=True),
        sa.Column("lease_until", sa.Double, nullable=True),
        sa.Column("forked_from", sa.String(128), nullable=True),
        sa.Column("intent", sa.String(32), nullable=False),
        sa.Column("release_outcome", sa.String(32), nullable=False),
        sa.Column("published_result", JSON, nullable=True),
        sa.Column("fallback", JSON, nullable=True),
        sa.Column("published", sa.Boolean, nullable=False),
        sa.Column("stop_reason", sa.String(64), nullable=True),
        sa.Column("error_code", sa.String(64), nullable=True),
        sa.Column("total_token_count", sa.BigInteger, nullable=False),
        sa.Column("usage", JSON, nullable=False),
        sa.Column("ended_at", sa.Double, nullable=True),
        if_not_exists=True,
    )
    _index("diagnosis_run", "ix_diagnosis_run_created_at", "created_at")
    _index("diagnosis_run", "ix_diagnosis_run_session_created", "session_id", "created_at")
    _index("diagnosis_run", "ix_diagnosis_run_internal_state", "internal_state")


def _journal() -> None:
    op.create_table(
        "journal_cursor",
        sa.Column("run_id", RUN_ID, primary_key=True),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "journal_batch",
        sa.Column("run_id", RUN_ID, primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "diagnosis_trace_event",
        sa.Column("run_id", RUN_ID, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("fields", JSON, nullable=False),
        sa.Column("fields_refused", sa.Integer, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "agent_step",
        sa.Column("run_id", RUN_ID, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("tool_call_ids", JSON, nullable=False),
        sa.Column("token_count", sa.BigInteger, nullable=True),
        sa.Column("at", sa.Double, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "run_archive",
        sa.Column("run_id", RUN_ID, primary_key=True),
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        if_not_exists=True,
    )
    _index("run_archive", "ix_run_archive_at", "at")


def _index(table: str, name: str, *columns: str) -> None:
    op.create_index(name, table, list(columns), if_not_exists=True)
