"""Shared guards of the suite: no test reaches a network model by accident."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.no_network import block_network


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    with block_network():
        yield
