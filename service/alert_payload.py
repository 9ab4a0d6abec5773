"""Alertmanager's webhook: what is taken of it, and the question an alert makes. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

from tools.catalog import parse_time
from tools.masking import mask_value

MAX_ALERTS = 1000
MAX_LABELS = 100
MAX_VALUE_CHARS = 16_384
SHOWN_LABELS = 10
SHOWN_NAME_CHARS = 64
SHOWN_VALUE_CHARS = 100
SHOWN_TEXT_CHARS = 600
"""Together less than a question may have."""
FIRST_LABELS = (
    "alertname",
    "service",
    "job",
    "app",
    "component",
    "severity",
    "env",
    "cluster",
    "namespace",
    "pod",
    "instance",
)
"""What says where to look, in this order; other labels follow by name."""
TEXTS = ("summary", "message", "description")
"""Annotations that tell what happened; links and the like do not."""

_ENDS = tuple(".!?。！？…")
_NO_NAME = re.compile(r"[^\w.\-]")
_NO_VALUE = re.compile(r"[\s,\"=]")
_NAMED = {"zh": "告警 {name} 已触发。", "en": "The alert {name} is firing."}
_STOP = {"zh": "。", "en": "."}
_BETWEEN = {"zh": "", "en": " "}
_WHY = {"zh": "为什么？", "en": "Why?"}

Texts = dict[
    Annotated[str, StringConstraints(max_length=256)], Annotated[str, StringConstraints(max_length=MAX_VALUE_CHARS)]
]


class _Sent(BaseModel):
    """Base of what is sent: keys that nobody here reads are ignored, so that a newer sender is understood."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class Alert(_Sent):
    """One alert; a JSON null is as good as nothing sent.

    `fingerprint` identifies its labels; one that is not sent is computed from them.
    """

    status: Literal["firing", "resolved"]
    labels: Texts = Field(max_length=MAX_LABELS)
    annotations: Texts = Field(default_factory=dict, max_length=MAX_LABELS)
    starts_at: str | None = Field(
        default=None, alias="startsAt", max_length=64, description="RFC 3339 time at which it began to fire."
    )
    fingerprint: str = Field(default="", pattern=r"^[A-Za-z0-9_.\-]{0,64}$")

    @field_validator("labels", "annotations", "fingerprint", mode="before")
    @classmethod
    def _nothing(cls, value: Any, info: ValidationInfo) -> Any:
        return value if value is not None else "" if info.field_name == "fingerprint" else {}

    @field_validator("starts_at")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None:
            parse_time(value)
        return value

    @property
    def key(self) -> str:
        """The fingerprint, or one of our own over the labels."""
        if self.fingerprint:
            return self.fingerprint
        text = json.dumps(self.labels, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def began(self, now: float) -> float | None:
        """When it began to fire, in seconds since the epoch; None when it was not sent or cannot be true yet."""
        seconds = parse_time(self.starts_at) if self.starts_at is not None else 0.0
        return seconds if 0 < seconds <= now else None


class AlertmanagerWebhook(_Sent):
    """The body that Alertmanager posts (version 4; Grafana sends the same as version 1), of which only this is read."""

    version: Literal["4", "1"]
    alerts: list[Alert] = Field(max_length=MAX_ALERTS)

    @property
    def firing(self) -> tuple[Alert, ...]:
        """Firing alerts, each fingerprint once, in the order they were sent."""
        return tuple({alert.key: alert for alert in self.alerts if alert.status == "firing"}.values())


def question_of(alert: Alert, language: str) -> str:
    """Write the question of an alert, masked and bounded: what it says on one line, its labels as data on the next."""
    texts = [_shown(alert.annotations.get(key, ""), SHOWN_TEXT_CHARS, key) for key in TEXTS]
    said = [text if text.endswith(_ENDS) else text + _STOP[language] for text in dict.fromkeys(texts) if text]
    labels = _labels(alert)
    if not said:
        said = [_NAMED[language].format(name=next((value for key, value in labels if key == "alertname"), "-"))]
    first = _BETWEEN[language].join([*said, _WHY[language]])
    return "\n".join([first, ", ".join(f"{key}={value}" for key, value in labels)]).strip()


def time_of(alert: Alert, now: float) -> str | None:
    """Return the time the question is about, as DiagnosisContext takes it; None means now."""
    began = alert.began(now)
    return None if began is None else datetime.fromtimestamp(began, UTC).isoformat()


def _labels(alert: Alert) -> list[tuple[str, str]]:
    rank = {name: place for place, name in enumerate(FIRST_LABELS)}
    names = sorted(alert.labels, key=lambda name: (rank.get(name, len(rank)), name))
    pairs = [
        (_NO_NAME.sub("_", _shown(name, SHOWN_NAME_CHARS)), _shown(alert.labels[name], SHOWN_VALUE_CHARS, name))
        for name in names
    ]
    return [(name, _quoted(value)) for name, value in pairs if name and value][:SHOWN_LABELS]


def _quoted(value: str) -> str:
    """Quote a value that could be taken for another label."""
    return json.dumps(value.replace('"', "'"), ensure_ascii=False) if _NO_VALUE.search(value) else value


def _shown(text: str, limit: int, name: str = "") -> str:
    """Mask first: a key cut in two would no longer be recognized."""
    masked = str(mask_value(text[:MAX_VALUE_CHARS], name))
    visible = "".join(" " if unicodedata.category(each)[0] in "CZ" else each for each in masked)
    line = re.sub(r" +", " ", visible).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"
