"""A loopback LangSmith endpoint that records what is sent to it, unpacked: zstd and multipart are read as a server would."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import zstandard

INFO = {
    "version": "0.10.0",
    "batch_ingest_config": {
        "use_multipart_endpoint": True,
        "size_limit": 100,
        "size_limit_bytes": 20_971_520,
        "scale_up_nthreads_limit": 4,
        "scale_up_qsize_trigger": 1000,
        "scale_down_nempty_trigger": 4,
    },
}


@dataclass
class TraceEndpoint:
    """`received` is every body as sent, decompressed; `runs` the traced runs by id, starts and ends merged."""

    url: str = ""
    compression: bool = True
    received: list[bytes] = field(default_factory=list)
    encodings: list[str] = field(default_factory=list)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Everything that arrived, JSON escapes undone, so that no marker hides in one."""
        raw = b"\n".join(self.received).decode("utf-8", "replace")
        return raw + json.dumps(list(self.runs.values()), ensure_ascii=False)

    def by_name(self, name: str) -> list[dict[str, Any]]:
        return [run for run in self.runs.values() if run.get("name") == name]

    def wait_for_the_end_of(self, name: str, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not any("end_time" in run for run in self.by_name(name)):
            time.sleep(0.1)

    def keep(self, headers: Any, body: bytes) -> None:
        self.encodings.append(headers.get("content-encoding", ""))
        if self.encodings[-1] == "zstd":
            body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        self.received.append(body)
        head = f"content-type: {headers['content-type']}\r\n\r\n".encode()
        for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
            _, run_id, *key = str(part.get_param("name", header="content-disposition")).split(".")
            value = json.loads(part.get_payload(decode=True))
            run = self.runs.setdefault(run_id, {})
            run.update({key[0]: value} if key else value)


@contextmanager
def trace_endpoint(*, compression: bool = True) -> Iterator[TraceEndpoint]:
    endpoint = TraceEndpoint(compression=compression)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._answer({**INFO, "instance_flags": {"zstd_compression_enabled": endpoint.compression}})

        def do_POST(self) -> None:
            endpoint.keep(self.headers, self._body())
            self._answer({})

        def _body(self) -> bytes:
            if length := self.headers.get("content-length"):
                return self.rfile.read(int(length))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def _answer(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
