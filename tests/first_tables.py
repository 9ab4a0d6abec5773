"""A database as it was made before its tables had versions: the statements of that time, and a row in every table."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

TABLES = """
CREATE TABLE agent_step (
    run_id VARCHAR(128) NOT NULL, position INTEGER NOT NULL, round INTEGER NOT NULL, kind VARCHAR(64) NOT NULL,
    tool_call_ids JSON NOT NULL, token_count BIGINT, at {double} NOT NULL, PRIMARY KEY (run_id, position));
CREATE TABLE diagnosis_run (
    run_id VARCHAR(128) NOT NULL, query TEXT NOT NULL, session_id VARCHAR(128), internal_state VARCHAR(32) NOT NULL,
    status VARCHAR(16) NOT NULL, created_at {double} NOT NULL, execution_id VARCHAR(128), lease_until {double},
    forked_from VARCHAR(128), intent VARCHAR(32) NOT NULL, release_outcome VARCHAR(32) NOT NULL,
    published_result JSON, fallback JSON, published BOOLEAN NOT NULL, stop_reason VARCHAR(64),
    error_code VARCHAR(64), total_token_count BIGINT NOT NULL, usage JSON NOT NULL, ended_at {double},
    PRIMARY KEY (run_id));
CREATE INDEX ix_diagnosis_run_created_at ON diagnosis_run (created_at);
CREATE INDEX ix_diagnosis_run_session_created ON diagnosis_run (session_id, created_at);
CREATE INDEX ix_diagnosis_run_internal_state ON diagnosis_run (internal_state);
CREATE TABLE diagnosis_trace_event (
    run_id VARCHAR(128) NOT NULL, seq BIGINT NOT NULL, type VARCHAR(64) NOT NULL, at {double} NOT NULL,
    fields JSON NOT NULL, fields_refused INTEGER NOT NULL, PRIMARY KEY (run_id, seq));
CREATE TABLE journal_batch (
    run_id VARCHAR(128) NOT NULL, key VARCHAR(255) NOT NULL, at {double} NOT NULL, PRIMARY KEY (run_id, key));
CREATE TABLE journal_cursor (run_id VARCHAR(128) NOT NULL, last_seq BIGINT NOT NULL, PRIMARY KEY (run_id));
CREATE TABLE run_archive (
    run_id VARCHAR(128) NOT NULL, kind VARCHAR(32) NOT NULL, key VARCHAR(255) NOT NULL, payload JSON NOT NULL,
    at {double} NOT NULL, PRIMARY KEY (run_id, kind, key));
CREATE INDEX ix_run_archive_at ON run_archive (at);
CREATE TABLE canonical_record (
    key VARCHAR(255) NOT NULL, status VARCHAR(16) NOT NULL, payload TEXT NOT NULL, expires_at {double} NOT NULL,
    PRIMARY KEY (key));
CREATE INDEX ix_canonical_record_expires_at ON canonical_record (expires_at)
"""
ROWS = (
    "INSERT INTO diagnosis_run VALUES ('run-1', '为什么 5xx?', 's-1', 'SUCCESS', 'SUCCESS', 1700000000.5, 'e-1', "
    "1700000060.0, NULL, 'DIAGNOSIS', 'CONCLUSION', '{\"conclusion\": \"磁盘满\"}', NULL, TRUE, NULL, NULL, "
    "1234, '{\"model_calls\": 3}', 1700000100.25)",
    "INSERT INTO diagnosis_run VALUES ('run-2', 'why?', 's-1', 'RUNNING', 'RUNNING', 1700000200.0, 'e-2', "
    "1700000260.0, 'run-1', 'DIAGNOSIS', 'NONE', NULL, NULL, FALSE, NULL, NULL, 0, '{}', NULL)",
    "INSERT INTO agent_step VALUES ('run-1', 1, 1, 'tool_calls', '[\"c1\"]', 120, 1700000001.0)",
    "INSERT INTO journal_cursor VALUES ('run-1', 1)",
    "INSERT INTO journal_batch VALUES ('run-1', '0001:start_run', 1700000000.5)",
    "INSERT INTO diagnosis_trace_event VALUES ('run-1', 1, 'RUN_STARTED', 1700000000.5, '{\"model\": \"offline\"}', 0)",
    "INSERT INTO run_archive VALUES ('run-1', 'question', 'question', '{\"query\": \"为什么 5xx?\"}', 4000000000.0)",
    "INSERT INTO canonical_record VALUES ('harness:canonical:run-1:c1', 'READY', '{}', 4000000000.0)",
)
NAMES = (
    "agent_step",
    "canonical_record",
    "diagnosis_run",
    "diagnosis_trace_event",
    "journal_batch",
    "journal_cursor",
    "run_archive",
)


async def make_first_tables(engine: AsyncEngine) -> None:
    """Make them in an empty database."""
    double = "DOUBLE" if engine.dialect.name == "sqlite" else "DOUBLE PRECISION"
    async with engine.begin() as connection:
        for statement in TABLES.format(double=double).split(";"):
            await connection.exec_driver_sql(statement)
        for statement in ROWS:
            await connection.execute(text(statement.replace(":", r"\:")))
