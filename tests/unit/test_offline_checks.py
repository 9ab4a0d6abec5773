from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.offline.checks import MAX_CHECKS, parse_checks

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


def test_a_block_without_target_or_sql_is_no_check() -> None:
    assert parse_checks("```logs\nquery: x\n```\n```mysql\ndatasource: d\n```\n") == ()


def test_a_missing_or_odd_lookback_falls_back_to_an_hour() -> None:
    (check,) = parse_checks("```logs\ntopic: t\nlookback: ten\n```")
    assert check.request(10080)["lookback_minutes"] == 60


def test_chinese_colons_and_an_open_fence_are_tolerated() -> None:
    (check,) = parse_checks("```logs\ntopic：支付 \nquery：超时\nconcludes：连接池耗尽。")
    assert (check.target, check.query, check.concludes) == ("支付", "超时", "连接池耗尽。")


@given(st.text(alphabet="`logsmysqltopic:datasource \n键值：", max_size=300))
def test_any_text_parses_to_a_bounded_number_of_checks(text: str) -> None:
    checks = parse_checks(text)
    assert len(checks) <= MAX_CHECKS
    assert all(check.target for check in checks)
