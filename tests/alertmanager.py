"""Webhooks as Alertmanager 0.27 posts them (version 4), built from alerts."""

from __future__ import annotations

from typing import Any

NEVER_ENDED = "0001-01-01T00:00:00Z"


def alert(fingerprint: str = "1a30ba71cca2921f", *, status: str = "firing", **changes: Any) -> dict[str, Any]:
    """Return one alert with every key that Alertmanager sends."""
    return {
        "status": status,
        "labels": {
            "alertname": "PaymentPoolExhausted",
            "instance": "10.0.3.7:9100",
            "job": "payment",
            "prometheus": "monitoring/k8s",
            "service": "payment",
            "severity": "critical",
        },
        "annotations": {
            "description": "Checkout requests of payment have timed out for 5 minutes; orders stay unpaid.",
            "runbook_url": "https://runbooks.example/payment",
            "summary": "Connection pool of payment is exhausted",
        },
        "startsAt": "2026-03-12T06:15:00.739266876Z",
        "endsAt": NEVER_ENDED if status == "firing" else "2026-03-12T06:35:00Z",
        "generatorURL": "http://prometheus.example:9090/graph?g0.expr=up+%3D%3D+0&g0.tab=1",
        "fingerprint": fingerprint,
    } | changes


def webhook(*alerts: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a webhook body around alerts."""
    sent = list(alerts) or [alert()]
    firing = any(each["status"] == "firing" for each in sent)
    return {
        "version": "4",
        "groupKey": '{}/{severity="critical"}:{alertname="PaymentPoolExhausted"}',
        "truncatedAlerts": 0,
        "status": "firing" if firing else "resolved",
        "receiver": "superbiz",
        "groupLabels": {"alertname": "PaymentPoolExhausted"},
        "commonLabels": {"alertname": "PaymentPoolExhausted", "severity": "critical"},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example:9093",
        "alerts": sent,
    } | changes
