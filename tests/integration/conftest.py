"""Servers that several test files use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.opensearch import opensearch_url


@pytest.fixture(scope="session")
def opensearch() -> Iterator[str]:
    """Address of an OpenSearch-compatible server."""
    with opensearch_url() as url:
        yield url
