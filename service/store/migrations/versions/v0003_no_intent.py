"""A Run has no intent until its question was routed: one whose routing failed is no diagnosis (R97, R98)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TABLE = "diagnosis_run"


def upgrade() -> None:
    """Let the column be empty, and empty it where it was never known: routing failed, or a service's Run ended before."""
    with op.batch_alter_table(TABLE) as table:
        table.alter_column("intent", existing_type=sa.String(32), nullable=True)
    op.execute(
        f"UPDATE {TABLE} SET intent = NULL WHERE error_code = 'INTENT_ROUTING_FAILED' "
        "OR (context IS NOT NULL AND release_outcome = 'NONE' AND NOT EXISTS (SELECT 1 FROM diagnosis_trace_event e "
        f"WHERE e.run_id = {TABLE}.run_id AND e.type = 'INTENT_ROUTED'))"
    )
