"""Alertmanager's webhook: what is taken of it, and the question an alert makes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from graph.context import DiagnosisContext
from nodes.start_run import checked_question
from service.alert_payload import (
    MAX_ALERTS,
    MAX_LABELS,
    MAX_VALUE_CHARS,
    Alert,
    AlertmanagerWebhook,
    question_of,
    time_of,
)
from service.offline.strategy import in_words
from tests.alertmanager import NEVER_ENDED, alert, webhook
from tools.catalog import parse_time

NOW = parse_time("2026-03-12T14:20:00+08:00")


def parsed(**changes: Any) -> Alert:
    return Alert.model_validate(alert(**changes))


def test_the_question_says_what_is_known_and_where() -> None:
    assert question_of(parsed(), "en").splitlines() == [
        "Connection pool of payment is exhausted. Checkout requests of payment have timed out for 5 minutes; "
        "orders stay unpaid. Why?",
        "alertname=PaymentPoolExhausted, service=payment, job=payment, severity=critical, instance=10.0.3.7:9100, "
        "prometheus=monitoring/k8s",
    ]
    chinese = question_of(parsed(annotations={"summary": "支付连接池耗尽", "description": "订单待支付。"}), "zh")
    assert chinese.startswith("支付连接池耗尽。订单待支付。为什么？\nalertname=PaymentPoolExhausted, ")


def test_an_alert_that_says_nothing_is_asked_about_by_its_name() -> None:
    assert question_of(parsed(annotations={}, labels={"alertname": "Down"}), "zh").startswith(
        "告警 Down 已触发。为什么？"
    )
    assert question_of(parsed(annotations={}, labels={}), "en") == "The alert - is firing. Why?"


def test_a_value_cannot_pretend_to_be_another_label() -> None:
    hostile = {"alertname": 'x", severity=none', "a b=c": "1, 2"}
    last = question_of(parsed(labels=hostile), "en").splitlines()[-1]
    assert last == 'alertname="x\', severity=none", a_b_c="1, 2"'


def test_labels_are_no_words_to_search_by() -> None:
    text = question_of(parsed(), "en")
    assert in_words(text) == text.splitlines()[0]
    assert in_words("a=b") == "a=b"
    assert in_words('why is max_size=5?\nlevel=error, host="a b"') == "why is max_size=5?"


def test_the_time_is_that_of_the_alert() -> None:
    at = time_of(parsed(), NOW)
    assert at == "2026-03-12T06:15:00.739266+00:00"
    assert DiagnosisContext(at=at).at == at


@pytest.mark.parametrize("sent", [None, NEVER_ENDED, "2026-03-12T14:21:00+08:00", "9999-12-31T23:59:59-08:00"])
def test_a_time_that_cannot_be_is_now(sent: str | None) -> None:
    assert time_of(parsed(startsAt=sent), NOW) is None


@pytest.mark.parametrize("name", ["startsAt", "annotations", "fingerprint", "generatorURL"])
def test_keys_that_may_be_missing(name: str) -> None:
    sent = alert()
    del sent[name]
    assert question_of(Alert.model_validate(sent), "en")


@pytest.mark.parametrize("name", ["startsAt", "annotations", "labels", "fingerprint"])
def test_a_null_is_as_good_as_nothing(name: str) -> None:
    assert question_of(Alert.model_validate(alert(**{name: None})), "en")


def test_grafana_sends_the_same_as_version_1() -> None:
    body = webhook(
        alert(annotations=None, valueString="[ var='A' ]"), version="1", title="[FIRING:1]", state="alerting"
    )
    assert len(AlertmanagerWebhook.model_validate(body).firing) == 1


def test_unknown_keys_are_ignored() -> None:
    body = webhook(alert(dashboardURL="x", values={"B": 1}), orgId=1, truncatedAlerts=3)
    assert len(AlertmanagerWebhook.model_validate(body).firing) == 1


def test_an_alert_without_fingerprint_gets_one_of_its_labels() -> None:
    one, same = parsed(fingerprint=""), parsed(fingerprint="", annotations={}, startsAt=None)
    other = parsed(fingerprint="", labels={"alertname": "Other"})
    assert one.key == same.key != other.key
    assert len(one.key) == 16


def test_firing_alerts_count_once_and_resolved_ones_not() -> None:
    sent = webhook(alert("a"), alert("b", status="resolved"), alert("c"), alert("a"))
    assert [each.key for each in AlertmanagerWebhook.model_validate(sent).firing] == ["a", "c"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (webhook(version="3"), "version"),
        (webhook(alerts="none"), "alerts"),
        (webhook(*[alert()] * (MAX_ALERTS + 1)), "alerts"),
        (webhook(alert(status="pending")), "alerts.0.status"),
        (webhook(alert(labels={f"l{n}": "x" for n in range(MAX_LABELS + 1)})), "alerts.0.labels"),
        (webhook(alert(labels={"alertname": 7})), "alerts.0.labels.alertname"),
        (webhook(alert(annotations={"summary": "x" * (MAX_VALUE_CHARS + 1)})), "alerts.0.annotations.summary"),
        (webhook(alert(startsAt="yesterday")), "alerts.0.startsAt"),
        (webhook(alert(startsAt="2026-03-12T06:15:00")), "alerts.0.startsAt"),
        (webhook(alert("../../x")), "alerts.0.fingerprint"),
        (webhook(alert("a" * 65)), "alerts.0.fingerprint"),
        ({"alerts": []}, "version"),
        ([], ""),
    ],
)
def test_a_body_that_is_not_alertmanagers_is_refused_by_its_place(body: Any, place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        AlertmanagerWebhook.model_validate(body)
    first = refused.value.errors()[0]
    assert ".".join(str(part) for part in first["loc"]) == place
    assert "input_value" not in str(refused.value)


def test_secrets_never_reach_the_question() -> None:
    text = question_of(
        parsed(
            labels={"alertname": "X", "api_token": "abcdefgh12345678", "url": "mysql://root:hunter2@db/x"},
            annotations={"summary": "password=hunter2 rejected", "description": "x" * 595 + " token=hunter2hunter2"},
        ),
        "zh",
    )
    assert "hunter2" not in text
    assert "abcdefgh" not in text
    assert text.count("[masked]") >= 3


TEXT = st.text(max_size=2_000)


@given(
    st.dictionaries(st.text(max_size=256), TEXT, max_size=30),
    st.dictionaries(st.sampled_from(["summary", "message", "description", "x"]), TEXT),
    st.sampled_from(["zh", "en"]),
)
def test_any_alert_makes_a_question_that_may_be_asked(
    labels: dict[str, str], annotations: dict[str, str], language: str
) -> None:
    text = question_of(parsed(labels=labels, annotations=annotations), language)
    assert checked_question(text) == text.strip()
    lines = text.splitlines()
    # A label or an annotation stays on its line: it cannot pretend to be another part of the question.
    assert len(lines) <= 2
    assert all(line.isprintable() for line in lines)


def test_the_longest_alert_still_makes_a_question() -> None:
    labels = {f"{n:03d}" + "l" * 253: "v" * MAX_VALUE_CHARS for n in range(MAX_LABELS)}
    annotations = dict.fromkeys(["summary", "message", "description"], "故" * MAX_VALUE_CHARS)
    for language in ("zh", "en"):
        assert checked_question(question_of(parsed(labels=labels, annotations=annotations), language))
