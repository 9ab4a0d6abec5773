"""What a service needs of a Run: who started it, where its checkpoints are, how it was set, and its hold on a session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TABLE = "diagnosis_run"


def upgrade() -> None:
    """Add columns; indexes for the queries of the service in place of one that no query used."""
    op.add_column(TABLE, sa.Column("owner", sa.String(128), nullable=True))
    op.add_column(TABLE, sa.Column("thread_id", sa.String(255), nullable=True))
    op.add_column(TABLE, sa.Column("session_lock", sa.String(1024), nullable=True))
    op.add_column(TABLE, sa.Column("context", sa.JSON(none_as_null=True), nullable=True))
    op.create_index("ux_diagnosis_run_session_lock", TABLE, ["session_lock"], unique=True)
    op.create_index("ix_diagnosis_run_owner_created", TABLE, ["owner", "created_at"])
    op.create_index("ix_diagnosis_run_status_lease", TABLE, ["status", "lease_until"])
    op.create_index("ix_diagnosis_run_ended_at", TABLE, ["ended_at"])
    op.drop_index("ix_diagnosis_run_internal_state", TABLE, if_exists=True)
