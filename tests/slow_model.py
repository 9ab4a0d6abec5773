"""An OpenAI-compatible endpoint in a thread whose answers depend on the request alone, for servers in other processes.

The model's name says how long an answer takes: `slow-1.5` sleeps one and a half seconds. The answer to a conversation with
n tool results is the n-th of `answers`; a request without tools is answered with a supporting verdict, or, where an intent is
asked for, with a diagnosis.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.stub_model_server import completion

SUPPORTED = '{"verdict": "SUPPORTED", "unsupported_analysis_ids": []}'
ROUTED = '{"intent": "DIAGNOSIS"}'


def _answer_without_tools(request: dict[str, Any]) -> dict[str, Any]:
    asked = json.dumps([request.get("response_format"), request["messages"][0]])
    return completion(ROUTED if "intent" in asked else SUPPORTED)


@dataclass
class SlowModel:
    """What was asked so far."""

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def is_asked_again(self, before: int, seconds: float = 30.0) -> None:
        """Wait until more than `before` requests have arrived."""
        async with asyncio.timeout(seconds):
            while len(self.asked) <= before:  # noqa: ASYNC110 the requests come from another thread
                await asyncio.sleep(0.02)


@contextmanager
def slow_model(answers: Sequence[dict[str, Any]]) -> Iterator[SlowModel]:
    """Serve on a free loopback port; `answers` are completions as `tests.stub_model_server.completion` makes them."""
    model = SlowModel("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.asked.append(request)
            time.sleep(float(request["model"].partition("-")[2] or 0))
            done = sum(message["role"] == "tool" for message in request["messages"])
            answer = answers[min(done, len(answers) - 1)] if request.get("tools") else _answer_without_tools(request)
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test's output clean."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was cancelled has gone away: that is what these tests do."""

    with Server(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
