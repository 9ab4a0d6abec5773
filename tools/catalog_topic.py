"""One log topic of the catalogue, and what each backend needs to be told. Errors name the key."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from tools.catalog_types import Description, Entry, EnvName, Name, ZoneName

DEFAULT_MAX_EVENTS = 1_000
_COMMON = frozenset({"name", "description", "backend", "timezone"})
_HTTP = frozenset(
    {"url", "token_env", "user_env", "password_env", "ca_file", "max_events"}
    | {"level_field", "service_field", "instance_field"}
)
_KEYS = {
    "files": frozenset({"path", "encoding"}),
    "elasticsearch": _HTTP | {"index", "time_field", "message_field", "search_fields", "api_key_env"},
    "loki": _HTTP | {"selector", "tenant_env"},
}
NO_LABEL = "-"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_MATCHER = (
    r"[a-zA-Z_][a-zA-Z0-9_]*\s*(?P<op%d>=~|!~|!=|=)\s*(?:\"(?P<quoted%d>(?:[^\"\\\n]|\\.)*)\"|`(?P<raw%d>[^`]*)`)"
)
_ONE_MATCHER = re.compile(_MATCHER % (0, 0, 0))
_PLAIN_MATCHER = re.sub(r"\?P<\w+%d>", "?:", _MATCHER)
_SELECTOR = re.compile(r"\{\s*" + _PLAIN_MATCHER + r"(?:\s*,\s*" + _PLAIN_MATCHER + r")*\s*,?\s*\}")


def _base_url(value: str) -> str:
    """Accept `http(s)://host[:port][/path]`; the message never repeats the value, which might hold a password."""
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError("must be a URL like https://host:9200") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\s\\]", value):
        raise ValueError("must be a URL like https://host:9200 (http or https)")
    if "@" in parts.netloc:
        raise ValueError("must hold no credentials; name their variables with user_env and password_env or token_env")
    if parts.query or parts.fragment or value.endswith("?"):
        raise ValueError("must end with the path, without ? and #")
    return value.rstrip("/")


def _stream_selector(value: str) -> str:
    """Accept a LogQL stream selector that Loki would accept: one matcher at least must not match the empty text."""
    value = value.strip()
    if _SELECTOR.fullmatch(value) is None:
        raise ValueError('must be a LogQL stream selector like {app="shop", env=~"prod|stage"}')
    for match in _ONE_MATCHER.finditer(value):
        text = match.group("quoted0") if match.group("quoted0") is not None else match.group("raw0")
        if match.group("op0") in ("=", "=~") and text not in ("", ".*"):
            return value
    raise ValueError('must name one label with = or =~ and a value that is not empty, e.g. {app="shop"}')


Url = Annotated[str, StringConstraints(max_length=500), AfterValidator(_base_url)]
Selector = Annotated[str, StringConstraints(max_length=2_000), AfterValidator(_stream_selector)]
Index = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9.*][a-z0-9_.\-*:+]{0,199}(?:,[a-z0-9.*\-][a-z0-9_.\-*:+]{0,199}){0,15}$")
]
FieldName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_@][A-Za-z0-9_@.\-]{0,127}$")]
LabelOrField = Annotated[str, StringConstraints(pattern=r"^(?:-|[A-Za-z0-9_@][A-Za-z0-9_@.\-]{0,127})$")]
"""A stream label (`-`: none, it stands in the line) or a document field."""
FieldPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_@*][A-Za-z0-9_@.*\-]{0,127}$")]


class TopicEntry(Entry):
    """One log topic.

    files: `path` is a file, folder or glob relative to the catalogue. elasticsearch: `url` and `index`. loki: `url` and
    `selector`. Keys that end in `_env` name environment variables; `*_field` name document fields or stream labels.
    """

    name: Name
    description: Description = ""
    backend: Literal["files", "elasticsearch", "loki"] = "files"
    timezone: ZoneName = "UTC"
    path: str | None = None
    encoding: str = "utf-8"
    url: Url | None = None
    index: Index | None = None
    selector: Selector | None = None
    time_field: FieldName = "@timestamp"
    message_field: FieldName | None = None
    level_field: LabelOrField | None = None
    service_field: LabelOrField | None = None
    instance_field: LabelOrField | None = None
    search_fields: tuple[FieldPattern, ...] = Field(default=("*",), min_length=1, max_length=64)
    max_events: int = Field(default=DEFAULT_MAX_EVENTS, ge=101, le=10_000)
    tenant_env: EnvName | None = None
    token_env: EnvName | None = None
    api_key_env: EnvName | None = None
    user_env: EnvName | None = None
    password_env: EnvName | None = None
    ca_file: str | None = None

    @model_validator(mode="after")
    def _keys_fit_the_backend(self) -> TopicEntry:
        foreign = sorted(self.model_fields_set - _COMMON - _KEYS[self.backend])
        if self.backend == "files" and not self.path:
            raise ValueError("backend files needs path: a file, a folder or a glob")
        if foreign:
            allowed = ", ".join(sorted(_KEYS[self.backend]))
            raise ValueError(f"{foreign[0]} does not apply to backend {self.backend}; allowed: {allowed}")
        if self.backend != "files" and self.url is None:
            raise ValueError(f"backend {self.backend} needs url, e.g. https://host:port")
        if self.backend == "elasticsearch" and self.index is None:
            raise ValueError("backend elasticsearch needs index: the name of an index, alias, data stream or a pattern")
        if self.backend == "loki" and self.selector is None:
            raise ValueError('backend loki needs selector: a LogQL stream selector, e.g. {app="shop"}')
        return self

    @model_validator(mode="after")
    def _roles_are_labels_or_fields(self) -> TopicEntry:
        for key in ("level_field", "service_field", "instance_field"):
            value = getattr(self, key)
            if self.backend == "elasticsearch" and value == NO_LABEL:
                raise ValueError(f"{key} must be the name of a document field")
            if self.backend == "loki" and value not in (None, NO_LABEL) and _LABEL.fullmatch(value) is None:
                raise ValueError(f"{key} must be the name of a stream label, or - for none")
        return self

    @model_validator(mode="after")
    def _one_way_to_sign_in(self) -> TopicEntry:
        if (self.user_env is None) != (self.password_env is None):
            raise ValueError("user_env and password_env go together")
        if sum(name is not None for name in (self.token_env, self.api_key_env, self.user_env)) > 1:
            raise ValueError("at most one of token_env, api_key_env and user_env with password_env")
        if self.ca_file is not None and not (self.url or "").startswith("https:"):
            raise ValueError("ca_file needs a url that begins with https")
        return self

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Names of the environment variables this topic needs."""
        names = (self.tenant_env, self.token_env, self.api_key_env, self.user_env, self.password_env)
        return tuple(name for name in names if name is not None)
