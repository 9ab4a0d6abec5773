"""Servers that several test files use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.graph_server import GraphServer, graph_server
from tests.opensearch import opensearch_url


@pytest.fixture(scope="session")
def opensearch() -> Iterator[str]:
    """Address of an OpenSearch-compatible server."""
    with opensearch_url() as url:
        yield url


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphServer]:
    """LangGraph's development server; its tests share one by `xdist_group("langgraph_dev")`."""
    with graph_server(tmp_path_factory.mktemp("server")) as running:
        yield running
