"""Shared guards of the suite: no test reaches a network model by accident, and where it counts none is skipped."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest
from hypothesis import settings

from tests.no_network import block_network

REQUIRE_ALL = os.environ.get("SUPERBIZ_REQUIRE_ALL", "") not in ("", "0")
"""Set by .ci/run: real material and servers are there, so a test that skips itself has lost its way."""

# A loaded machine is no failure: no example has a deadline.
settings.register_profile("suite", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("SUPERBIZ_HYPOTHESIS", "suite"))

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def pytest_configure(config: pytest.Config) -> None:
    """Let the many processes that tests start share what Python compiles."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    with block_network():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _never_skipped((yield), item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _never_skipped((yield), collector.nodeid)


def _never_skipped(report: Report, name: str) -> Report:
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{name} must not be skipped here (SUPERBIZ_REQUIRE_ALL): {reason}"
    return report
