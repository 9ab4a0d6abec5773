"""The service against its own OpenAPI description: whatever is sent, no 5xx, and only what is described (R134)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.internal.conjecture.utils import many
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.http_service import process

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def _more(self: Any) -> bool:
    """What hypothesis-jsonschema calls on a helper that hypothesis has turned into an iterator."""
    if self._depth is None:
        self.__enter__()
        self.walk = iter(self)
    for _ in self.walk:
        return True
    self.__exit__(None)
    return False


@pytest.fixture(autouse=True)
def _generators_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(many, "more"):
        monkeypatch.setattr(many, "more", _more, raising=False)


def fuzz(folder: Path, examples: int) -> set[str]:
    """Send generated requests, good and bad, to every operation; return which there were."""
    seen = set()
    with process(folder) as (_, url):
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        for result in schema.get_all_operations():
            operation = result.ok()
            seen.add(operation.label)

            def send(case: Case) -> None:
                response = case.call(timeout=60)
                case.validate_response(response, checks=CHECKS)
                if response.status_code >= 400:
                    assert set(response.json()) == {"code", "message"}

            checked = settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            checked(given(case=operation.as_strategy())(send))()
    return seen


@pytest.mark.filterwarnings("ignore")
def test_r134_no_request_makes_the_service_fail(tmp_path: Path) -> None:
    assert {"POST /api/chat", "POST /api/chat_stream", "GET /api/runs/{run_id}/events"} <= fuzz(tmp_path, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_r134_no_request_makes_the_service_fail_at_length(tmp_path: Path) -> None:
    assert len(fuzz(tmp_path, 300)) >= 11
