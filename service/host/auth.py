"""Who may use the host's own routes, and what they see there: the tokens of the service, one owner per token (R134).

One handler for both hosts: LangGraph Server passes arguments by name and headers as bytes, Aegra one positional dict of text.
The custom routes below `/api` are not guarded here but by their own gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any

from langgraph_sdk import Auth
from starlette.datastructures import Headers

from nodes.ports import LOCAL_CALLER
from service.host.threads import thread_is_busy
from service.http.auth import Tokens, load_tokens
from service.http.gate import foreign
from service.settings import load_settings

STUDIO_ORIGINS = frozenset({"https://smith.langchain.com", "https://eu.smith.langchain.com"})
"""Where LangGraph Studio's page comes from: it may ask a server on this machine that has no tokens."""
OWNER = "owner"

auth = Auth()


@cache
def _tokens() -> Tokens:
    return load_tokens(load_settings())


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes], scope: dict[str, Any] | None = None) -> Auth.types.MinimalUserDict:
    """Return who calls, or refuse with 401.

    Without tokens this machine's own programs and Studio's page may call, where the host says that a caller is local:
    Aegra says nothing of it and so needs tokens.
    """
    sent = _text(headers)
    tokens = await asyncio.to_thread(_tokens)
    if tokens:
        owner = tokens.owner(sent.get("authorization"))
        if owner is None:
            raise _unauthorized("Authorization: must be `Bearer TOKEN` with a configured token")
        return _user(owner)
    if not _is_local(sent, scope):
        raise _unauthorized("SUPERBIZ_API_TOKENS: must be set before anybody but this machine's own programs may call")
    return _user(LOCAL_CALLER)


def _user(identity: str) -> Auth.types.MinimalUserDict:
    return {"identity": identity, "display_name": identity, "is_authenticated": True, "permissions": []}


def _unauthorized(detail: str) -> Exception:
    return Auth.exceptions.HTTPException(status_code=401, detail=detail)


def _text(headers: Mapping[Any, Any]) -> dict[str, str]:
    decoded = {
        name.decode("latin-1") if isinstance(name, bytes) else str(name): value.decode("latin-1")
        if isinstance(value, bytes)
        else str(value)
        for name, value in headers.items()
    }
    return {name.lower(): value for name, value in decoded.items()}


def _is_local(sent: Mapping[str, str], scope: Mapping[str, Any] | None) -> bool:
    if sent.get("origin") in STUDIO_ORIGINS:
        sent = {name: value for name, value in sent.items() if name not in {"origin", "sec-fetch-site"}}
    return foreign(Headers(dict(sent)), (scope or {}).get("client")) is None


@auth.on
async def refuse_what_is_not_named(ctx: Auth.types.AuthContext, value: Any) -> bool:
    """Refuse whatever a later version of a host may add."""
    return False


@auth.on.assistants
async def assistants_are_for_reading(ctx: Auth.types.AuthContext, value: Any) -> bool:
    """Assistants are the two graphs: everybody reads and runs them, nobody changes them."""
    return ctx.action in {"read", "search"}


@auth.on.threads
async def own_threads(ctx: Auth.types.AuthContext, value: Any) -> Auth.types.FilterType:
    """Give threads and runs to whoever creates them; another's are as good as none.

    Refuses a second run on a busy thread with 409 where the host lets both loose (Aegra).
    """
    if ctx.action == "create_run":
        thread_id = value.get("thread_id")
        if thread_id and await thread_is_busy(str(thread_id)):
            raise Auth.exceptions.HTTPException(status_code=409, detail="the thread has a run that has not ended")
    return _own(ctx, value)


@auth.on.crons
async def own_crons(ctx: Auth.types.AuthContext, value: Any) -> Auth.types.FilterType:
    """Give crons to whoever creates them."""
    return _own(ctx, value)


@auth.on.store
async def own_part_of_the_store(ctx: Auth.types.AuthContext, value: Any) -> bool:
    """Refuse the host's key-value store: nothing of this system lives there, and the hosts scope it differently."""
    return False


def _own(ctx: Auth.types.AuthContext, value: Any) -> Auth.types.FilterType:
    if ctx.action in {"create", "update", "create_run"}:
        # Whatever owner was sent, it is the caller. In place: a host may hold the dict already.
        if value.get("metadata") is None:
            value["metadata"] = {}
        value["metadata"][OWNER] = ctx.user.identity
    return {OWNER: ctx.user.identity}
