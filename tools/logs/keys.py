"""Names under which JSON logs keep what an event is made of, lower-cased; nested names are dotted. First match wins."""

from __future__ import annotations

LEVEL_KEYS = (
    "level",
    "severity",
    "loglevel",
    "log_level",
    "lvl",
    "levelname",
    "log.level",
    "severity_text",
    "severitytext",
    "@l",
    "@level",
)
MESSAGE_KEYS = (
    "message",
    "msg",
    "log",
    "text",
    "event",
    "body",
    "short_message",
    "@message",
    "@m",
    "@mt",
    "body.stringvalue",
)
SERVICE_KEYS = (
    "service",
    "service.name",
    "service_name",
    "servicename",
    "app",
    "application",
    "app_name",
    "container_name",
    "component",
    "_systemd_unit",
    "syslog_identifier",
)
INSTANCE_KEYS = (
    "instance",
    "instance_id",
    "hostname",
    "host",
    "host.name",
    "pod",
    "pod_name",
    "kubernetes.pod_name",
    "kubernetes.pod.name",
    "node",
    "server",
    "_hostname",
)
STACK_KEYS = (
    "stack_trace",
    "stacktrace",
    "stack",
    "exception",
    "exc_info",
    "error.stack",
    "error.stack_trace",
    "traceback",
    "exception.stacktrace",
    "err.stack",
    "@x",
)
TIME_KEYS = (
    "timestamp",
    "@timestamp",
    "time",
    "ts",
    "t",
    "datetime",
    "date",
    "asctime",
    "event_time",
    "eventtime",
    "log_time",
    "@t",
    "timemillis",
    "epochsecond",
    "start_time",
    "time_local",
    "time_iso8601",
    "timeunixnano",
    "t.$date",
    "__realtime_timestamp",
    "_source_realtime_timestamp",
    "__monotonic_timestamp",
    "__cursor",
)

FILE_KEY = "file"
"""Key that names the file an event stands in, shown where a topic has several, and searchable like any other."""
