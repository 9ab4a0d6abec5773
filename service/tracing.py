"""Tracing to LangSmith, where `LANGSMITH_TRACING=true` asks for it: content is held back, and a bad endpoint harms no run."""

from __future__ import annotations

import logging
import time
from typing import Any

import langsmith
from langsmith.utils import LangSmithConflictError, LangSmithConnectionError, tracing_is_enabled
from urllib3.util import Retry

from service.trace_privacy import withheld
from tools.masking import mask_value

CONNECT_SECONDS, READ_SECONDS = 2.0, 5.0
REST_SECONDS = 30.0
"""How long an endpoint that failed is left alone: what would be sent then is dropped, and no exit waits for it."""

logger = logging.getLogger("superbiz.tracing")


class WithholdingClient(langsmith.Client):
    """A LangSmith client that sends of each traced run only what may leave (`trace_privacy`), once, without waiting.

    All ways of LangChain's tracer to its endpoint lead through `create_run`, `update_run` and `request_with_retries`.
    """

    def __init__(self, fields: frozenset[str]) -> None:
        self._fields = fields
        self._rests_until = 0.0
        # What an operator lets out is still masked, and the environment's variables stay here.
        super().__init__(
            anonymizer=mask_value,
            omit_traced_runtime_info=True,
            retry_config=Retry(total=0, raise_on_status=False),
            timeout_ms=(int(1000 * CONNECT_SECONDS), int(1000 * READ_SECONDS)),
            disable_prompt_cache=True,
        )

    def create_run(self, name: str, inputs: dict[str, Any], run_type: Any, **rest: Any) -> None:
        """Send the start of a traced run. Never raises: what cannot be judged is not sent."""
        try:
            kept = withheld({**rest, "name": name, "inputs": inputs, "run_type": run_type}, self._fields)
            super().create_run(**{"inputs": {}, **kept})
        except Exception as error:
            self._lost(error)

    def update_run(self, run_id: Any, **rest: Any) -> None:
        """Send the end of a traced run. Never raises."""
        try:
            super().update_run(**withheld({**rest, "run_id": run_id}, self._fields))
        except Exception as error:
            self._lost(error)

    def request_with_retries(self, /, method: Any, pathname: str, **options: Any) -> Any:
        """Make one request within a few seconds; an endpoint that failed rests. Raises what the library raises."""
        if time.monotonic() < self._rests_until:
            raise LangSmithConnectionError("resting")
        options.pop("timeout", None)
        request = {**(options.pop("request_kwargs", None) or {}), "timeout": (CONNECT_SECONDS, READ_SECONDS)}
        try:
            return super().request_with_retries(
                method, pathname, **{**options, "request_kwargs": request, "stop_after_attempt": 1}
            )
        except LangSmithConflictError:
            raise  # already there
        except Exception as error:
            self._rests_until = time.monotonic() + REST_SECONDS
            self._lost(error)
            raise

    def _lost(self, error: Exception) -> None:
        logger.warning("part of a trace is lost: %s", type(error).__name__)


def start_tracing(fields: tuple[str, ...]) -> None:
    """Make the client that withholds the one that every tracer of this process takes, if tracing is asked for.

    Where it cannot be made, tracing is off: a diagnosis matters more. Blocking: may read the library's profile file.
    """
    if not tracing_is_enabled():
        return
    # The library's own log lines hold addresses and texts of errors.
    logging.getLogger("langsmith").setLevel(logging.CRITICAL)
    try:
        langsmith.configure(client=WithholdingClient(frozenset(fields)))
    except Exception as error:
        langsmith.configure(client=None, enabled=False)
        logger.warning("tracing is off: no client can be made (%s)", type(error).__name__)
