"""The statements that pin a session, for MySQL and MariaDB by the version a server greets with (R124)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tools.mysql.mysql_session import is_mariadb, session_statements


@pytest.mark.parametrize(
    ("version", "mariadb"),
    [
        ("8.0.36", False), ("8.4.0", False), ("9.1.0-commercial", False), ("5.7.44-log", False), ("8.0.35-27", False),
        ("8.0.11-TiDB-v7.5.0", False), ("5.5.5-10.11.19-MariaDB-0+deb12u1", True), ("11.4.2-MariaDB-ubu2404", True),
        ("10.6.18-mariadb-log", True), ("5.5.5-10.5.0-corp", True), ("", False),
    ],
)  # fmt: skip
def test_r124_the_flavour_follows_from_the_greeting(version: str, mariadb: bool) -> None:
    assert is_mariadb(version) is mariadb
    settings, *rest = session_statements(is_mariadb(version), None, timedelta())
    assert ("max_statement_time=3" in settings) is mariadb
    assert ("max_execution_time=3000" in settings) is not mariadb
    assert rest == ["SET SESSION TRANSACTION READ ONLY", "START TRANSACTION READ ONLY"]


@pytest.mark.parametrize("mariadb", [False, True])
def test_r124_a_session_is_pinned_alike_on_both(mariadb: bool) -> None:
    settings = session_statements(mariadb, 1_772_305_500.25, timedelta(hours=-3, minutes=-30))[0]
    for part in ("time_zone='-03:30'", "sql_select_limit=51", "timestamp=1772305500.250000", "lock_wait_timeout=3"):
        assert f"SESSION {part}" in settings
    assert settings.count("SET SESSION") == 1
    assert "ONLY_FULL_GROUP_BY" in settings
    assert not any(mode in settings for mode in ("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT"))
    assert "timestamp" not in session_statements(mariadb, None, timedelta())[0]
