"""Scope of a knowledge search: its query, nothing else (R43, R44, R47). Pure."""

from __future__ import annotations

import unicodedata

from tools.contract import Scope
from tools.rag.request import RagRequest
from tools.scope import collapse_whitespace, make_scope

TOOL_NAME = "search_runbooks"
MAX_TRACE_QUERY_CHARS = 80
"""Characters of the query the trace may show (R108)."""


def project_scope(request: RagRequest) -> Scope:
    """Normalize the query: NFC, trimmed, whitespace collapsed, case kept. `top_k` is not scope (R47)."""
    query = collapse_whitespace(unicodedata.normalize("NFC", request.query))
    return make_scope(TOOL_NAME, {"query": query}, query[:MAX_TRACE_QUERY_CHARS])
