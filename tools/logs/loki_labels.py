"""Which stream labels of Loki play a part in a topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tools.catalog import TopicEntry
from tools.catalog_topic import NO_LABEL
from tools.logs.levels import level_of_value

LEVEL_LABELS = ("level", "detected_level", "severity")
SERVICE_LABELS = ("service", "service_name", "app", "application", "container")
INSTANCE_LABELS = ("instance", "pod", "host", "hostname", "node_name")
OTHER_LABELS = ("namespace", "cluster", "job", "env", "environment", "node", "filename", "component", "stream")


@dataclass(frozen=True, slots=True)
class Labels:
    """Which stream labels play a part, the first that is there wins; `by_key` finds a label by its lower-cased name."""

    level: tuple[str, ...]
    service: tuple[str, ...]
    instance: tuple[str, ...]
    by_key: Mapping[str, str]

    @staticmethod
    def of(topic: TopicEntry) -> Labels:
        """Take the catalogue's labels, or the usual names where it names none."""
        level, service, instance = (
            usual if named is None else () if named == NO_LABEL else (named,)
            for named, usual in (
                (topic.level_field, LEVEL_LABELS),
                (topic.service_field, SERVICE_LABELS),
                (topic.instance_field, INSTANCE_LABELS),
            )
        )
        names = (*LEVEL_LABELS, *SERVICE_LABELS, *INSTANCE_LABELS, *OTHER_LABELS, *level, *service, *instance)
        return Labels(level, service, instance, {name.lower(): name for name in names})

    def read(self, stream: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of one stream that can be asked for, with `level`, `service` and `instance`."""
        found = {key: stream[name] for key, name in self.by_key.items() if stream.get(name)}
        levels = [stream[name] for name in self.level if stream.get(name)]
        known = [value for value in levels if level_of_value(value) is not None]
        roles = {
            "level": next(iter(known or levels), None),
            "service": next((stream[name] for name in self.service if stream.get(name)), None),
            "instance": next((stream[name] for name in self.instance if stream.get(name)), None),
        }
        rest = {key: value for key, value in found.items() if key not in roles}
        return rest | {key: value for key, value in roles.items() if value is not None}
