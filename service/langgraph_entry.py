"""What `langgraph.json` names, for LangGraph Server and for Aegra, configured by the same `SUPERBIZ_*` variables.

A host loads this file once per entry, under names of its own; what must exist once lives in `service.host`. All entries stand
in one file on purpose: Aegra goes on without authentication when the file of it cannot be loaded, but not without its graphs.
"""

from service.host.auth import auth
from service.host.graphs import chat, diagnosis
from service.host.http import app

__all__ = ["app", "auth", "chat", "diagnosis"]
