"""An OpenSearch-compatible server for tests: the one that SUPERBIZ_TEST_OPENSEARCH names, else a small one in memory."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest


@contextmanager
def opensearch_url() -> Iterator[str]:
    url = os.environ.get("SUPERBIZ_TEST_OPENSEARCH")
    if url:
        yield url.rstrip("/")
        return
    osmem = pytest.importorskip("osmem_server", reason="needs the package osmem-server or SUPERBIZ_TEST_OPENSEARCH")
    server = osmem.OsmemServer.start()
    try:
        yield server.url
    finally:
        server.close()
        server.process.stdout.close()


def send(method: str, url: str, body: Any = None) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        answer: dict[str, Any] = json.loads(response.read() or b"{}")
    return answer


@contextmanager
def index_of(url: str, documents: list[dict[str, Any]], mapping: dict[str, Any] | None = None) -> Iterator[str]:
    """Make an index with a name of its own; it goes when the test ends."""
    name = f"logs-{uuid4().hex[:12]}"
    properties = {"@timestamp": {"type": "date"}} | (mapping or {})
    send("PUT", f"{url}/{name}", {"mappings": {"properties": properties}})
    try:
        lines = (f'{{"index": {{}}}}\n{json.dumps(document)}\n' for document in documents)
        answer = send("POST", f"{url}/{name}/_bulk?refresh=true", "".join(lines).encode()) if documents else {}
        assert not answer.get("errors"), answer
        yield name
    finally:
        send("DELETE", f"{url}/{name}")
