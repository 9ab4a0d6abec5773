"""What a question tells of one occurrence costs no relevance (R54)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.rag.circumstances import without_circumstances
from tools.rag.tokenize import query_terms

SAME = {
    ("checkout", "fail"): [
        "checkout is failing, why?",
        "2026-03-12 14:10 checkout is failing, why?",
        "Checkout has been failing since about 14:10:33.120 +08:00",
        "checkout is failing since 2026-03-12T14:10:00+08:00, why?",
        "checkout is failing since 3 pm today",
        "checkout is failing, trace id=7f3a9c22b1, why?",
        "checkout is failing, request 6f1d0c9e-8a7b-4c3d-9e2f-1a2b3c4d5e6f",
        "Checkout is failing on checkout-7d9f8b6c5-x2x9z",
        "checkout is failing on host 10.0.3.17:9090 for 10m",
        "checkout is failing for 37.2% in the last 15 minutes",
    ],
    ("结算", "失败"): [
        "结算失败，为什么？",
        "14:10 左右开始结算失败，为什么？",
        "２０２６年３月１２日 １４：１０ 结算失败",
        "3月12日下午3点半左右结算失败",
        "今天 14 点 10 分结算失败了 12 次，最近 30 分钟",
    ],
}


@pytest.mark.parametrize(("terms", "query"), [(terms, query) for terms, queries in SAME.items() for query in queries])
def test_r54_when_and_where_it_happened_is_not_what_the_question_is_about(terms: tuple[str, ...], query: str) -> None:
    assert query_terms(query).judged == terms


@pytest.mark.parametrize(
    "query",
    [
        "error 1205 lock wait timeout on port 3306",
        "gateway returns 502",
        "ORA-00942",
        "CVE-2024-12345 in openssl 3.0.7",
        "mysql 8.0.35 upgrade",
        "kafka-0 lag",
        "deadbeef facade decade",
        "E1001 http 503 5xx s3",
        "50 时间窗口",
        "KubePodCrashLooping",
        "10.2.3.4",
        "14:10",
    ],
)
def test_r54_codes_versions_and_names_stay(query: str) -> None:
    assert without_circumstances(query) == query


@given(st.text(alphabet="0123456789abcdef:.-/% TZ点时年月日pm结", max_size=60))
def test_r54_whatever_is_asked_some_of_it_is_searched(query: str) -> None:
    rest = without_circumstances(query)
    assert rest == query or any(char.isalpha() for char in rest)
