from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.offline.checks import MAX_CHECKS, MAX_CONCLUDES, parse_checks

DOCUMENT = """# Checkout

```logs
topic: payment
query: "not available" OR refused
lookback: 90
contains: pool
```

```bash
topic: not-a-check
```

```mysql
datasource: shop
expect: none
rules out: No slow SQL.
SELECT a
FROM t WHERE x = 'k: v'
```
"""


def test_blocks_are_read_in_order_with_keys_and_sql() -> None:
    logs, sql = parse_checks(DOCUMENT)
    assert (logs.kind, logs.target, logs.query, logs.lookback) == ("logs", "payment", '"not available" OR refused', 90)
    assert logs.expect_match
    assert logs.contains == "pool"
    assert (sql.kind, sql.target, sql.expect_match, sql.rules_out) == ("mysql", "shop", False, "No slow SQL.")
    assert sql.query == "SELECT a\nFROM t WHERE x = 'k: v'"


def test_requests_have_the_tools_fields_and_bounds() -> None:
    logs, sql = parse_checks(DOCUMENT)
    assert logs.request(60) == {"topic": "payment", "query": '"not available" OR refused', "lookback_minutes": 60}
    assert sql.request(60) == {"datasource": "shop", "sql": sql.query, "params": []}


@pytest.mark.parametrize(
    ("block", "fault", "detail"),
    [
        ("logs\nquery: x", "missing_key", "topic"),
        ("mysql\nSELECT 1", "missing_key", "datasource"),
        ("mysql\ndatasource: d", "missing_key", "SQL"),
        ("logs\ntopic: t\nlookbak: 60", "unknown_key", "lookbak"),
        ("logs\ntopic: t\ndatasource: d", "unknown_key", "datasource"),
        ("mysql\ndatasource: d\nconcluds: x\nSELECT 1", "unknown_key", "concluds"),
        (f"logs\ntopic: t\n{'k' * 90}: 60", "unknown_key", "k" * 40),
        ("logs\ntopic: t\ntopic: u", "repeated_key", "topic"),
        ("logs\ntopic: t\nsome words", "no_key", ""),
        ("logs\ntopic: t\nexpect: nne", "expect", ""),
        ("logs\ntopic: t\nlookback: ten", "lookback", ""),
        ("logs\ntopic: t\nlookback: 1.5", "lookback", ""),
        ("logs\ntopic: t\nlookback: -5", "lookback", ""),
        ("logs\ntopic: t\nlookback:", "lookback", ""),
        ("logs\ntopic: t\nlookback: 0", "lookback", ""),
        ("logs\ntopic: t\nlookback: 10081", "lookback", ""),
        (f"logs\ntopic: t\nlookback: {'9' * 5000}", "lookback", ""),
        (f"logs\ntopic: t\nconcludes: {'c' * (MAX_CONCLUDES + 1)}", "too_long", "concludes"),
        (f"logs\ntopic: t\nquery: {'q' * 501}", "too_long", "query"),
    ],
)
def test_a_malformed_block_is_a_check_with_a_fault(block: str, fault: str, detail: str) -> None:
    (check,) = parse_checks(f"```{block}\n```")
    assert (check.fault, check.detail) == (fault, detail)


@pytest.mark.parametrize("lookback", ["1", "10080"])
def test_values_at_their_bounds_are_sound(lookback: str) -> None:
    text = f"```logs\ntopic: t\nlookback: {lookback}\nquery: {'q' * 500}\nconcludes: {'c' * MAX_CONCLUDES}\n```"
    (check,) = parse_checks(text)
    assert check.fault == ""
    assert check.request(10080)["lookback_minutes"] == int(lookback)


def test_without_a_lookback_it_is_an_hour() -> None:
    (check,) = parse_checks("```logs\ntopic: t\n```")
    assert check.fault == ""
    assert check.request(10080)["lookback_minutes"] == 60


def test_chinese_colons_and_an_open_fence_are_tolerated() -> None:
    (check,) = parse_checks("```logs\ntopic：支付 \nquery：超时\nconcludes：连接池耗尽。")
    assert (check.target, check.query, check.concludes) == ("支付", "超时", "连接池耗尽。")


@given(st.text(alphabet="`logsmysqltopic:datasource \n键值：", max_size=300))
def test_any_text_parses_to_a_bounded_number_of_checks(text: str) -> None:
    checks = parse_checks(text)
    assert len(checks) <= MAX_CHECKS
    assert all(check.target or check.fault for check in checks)
