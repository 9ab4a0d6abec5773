"""Records the bundles of `tests/recordings`: `python -m tests.record` writes them anew. Own data only."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from graph.contract import Intent
from nodes.ports import ModelFailureKind
from release.answers.contract import LOOKUP_ID
from service.app import open_app
from service.diagnosis import diagnose
from service.replay.bundle import Bundle
from service.replay.export import export_run
from service.replay.text import write_bundle
from service.settings import load_settings
from tests.chat_loop import DocumentTool, by_component, knowledge, make_chat, routed
from tests.fakes import (
    SUPPORTED,
    UNSUPPORTED,
    ProbeTool,
    by_round,
    call,
    calls,
    draft,
    envelope,
    text,
)
from tests.loop import Loop, make_loop
from tests.replays import bundles_of
from tools.evidence_tool import EvidenceTool

FOLDER = Path(__file__).parent / "recordings"
SHOP = Path(__file__).parent.parent / "examples" / "shop" / "superbiz.toml"
PROBES: Mapping[str, Mapping[str, EvidenceTool]] = {
    "probe": {"query_probe": ProbeTool()},
    "chat": {"query_probe": ProbeTool(), "search_documents": DocumentTool()},
}
"""What checks and projects in recordings that the scripted tools made, by the first word of their name."""

FOUND = call("c1", "found a")
CONCLUDED = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c1"])])
FALSE = draft("cause of it", [("A1", "OBSERVATION", "line about found a", ["c9"])])
QUESTIONS = {
    "shop-checkout-zh": ("zh", "结算为什么失败?"),
    "shop-slow-en": ("en", "Why is the payment service slow?"),
    "shop-nothing-en": ("en", "Is the login of administrators broken?"),
}


async def stop() -> Loop:
    """Saturation after three results that taught nothing, one of them a repetition."""
    script = [FOUND, call("c2", "none b", ("c1", "NO_GAIN")), call("c3", "found a"), draft()]
    return await _run(by_round(script))


async def protocol_stop() -> Loop:
    """Two violations in a row."""
    wrong = calls(("c2", "query_probe", envelope("found b")))
    return await _run(by_round([FOUND, wrong, calls(("c3", "query_probe", {"input": 1})), draft()]))


async def repair() -> Loop:
    """A false citation, repaired."""
    return await _run(by_round([FOUND, FALSE], [CONCLUDED], [text("?"), SUPPORTED]))


async def semantic_refusal() -> Loop:
    """A draft that the semantic guard does not accept."""
    return await _run(by_round([FOUND, CONCLUDED], semantics=[UNSUPPORTED]))


async def budget() -> Loop:
    """The budget of tool calls used up."""
    script = [FOUND, *(call(f"c{n}", f"found {n}", (f"c{n - 1}", "GAINED")) for n in range(2, 6)), draft()]
    return await _run(by_round(script), budget={"tool_calls": 2})


async def fault() -> Loop:
    """A model out of reach, after two attempts."""
    return await _run(by_round([FOUND, ModelFailureKind.CONNECTION, ModelFailureKind.CONNECTION]))


async def outage() -> Loop:
    """A canonical store out of reach while a result was read."""
    from tools.canonical.store import CanonicalStoreUnavailable

    def away(operation: str, count: int) -> None:
        if operation == "get" and count == 1:
            raise CanonicalStoreUnavailable

    loop = make_loop(by_round([FOUND, CONCLUDED]))
    loop.canonical.on = away
    await loop.run(run_id=uuid.UUID(int=1))
    return loop


async def cancel() -> Loop:
    """A cancel request while a tool ran: its late result is dropped."""

    async def meanwhile(query: str) -> None:
        if query == "found b":
            await loop.cancel()

    loop = make_loop(by_round([FOUND, call("c2", "found b", ("c1", "GAINED")), CONCLUDED]))
    loop.tool.before_run = meanwhile
    await loop.run(run_id=uuid.UUID(int=1))
    return loop


async def host_cancel() -> Loop:
    """A host's cancel while the model was asked."""
    entered = asyncio.Event()

    async def hang() -> Any:
        entered.set()
        await asyncio.Event().wait()

    loop = make_loop(by_round([FOUND, lambda request: hang()]))
    task = asyncio.ensure_future(loop.run(run_id=uuid.UUID(int=1)))
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])
    return loop


async def fork() -> Loop:
    """A finished run entered again before its second call: only the fork is kept."""
    script = [FOUND, call("c2", "none b", ("c1", "GAINED")), CONCLUDED]
    loop = await _run(by_round(script))
    first = loop.run_id
    place = [each for each in await loop.history() if each.next == ("dedup_scope",)][-1]
    await loop.resume(place.config, run_id=uuid.UUID(int=2))
    loop.runs._runs.pop(first)
    return loop


async def knowledge_answer() -> Loop:
    """A question for the knowledge base."""
    answer = knowledge(("Raise the pool.", LOOKUP_ID, ["runbooks/pool.md#1"]))
    return await _chat(by_component(intent_router=routed(Intent.KNOWLEDGE_QUERY), knowledge_answer=answer))


async def system_chat() -> Loop:
    """A question about the system itself, routed at the second attempt."""
    router = [text("?"), routed(Intent.SYSTEM_CHAT)]
    return await _chat(by_component(intent_router=router, system_chat=text("I read logs.")))


async def chat_diagnosis() -> Loop:
    """The second turn of a session: a diagnosis that knows what the first one published."""
    script = [FOUND, CONCLUDED]
    loop = await _chat(by_component(intent_router=routed(Intent.DIAGNOSIS), diagnosis_agent=script), session="s")
    first = loop.run_id
    loop.clock.advance(60)
    await loop.run("and now?", run_id=uuid.UUID(int=2), session="s")  # type: ignore[call-arg]
    loop.runs._runs.pop(first)
    return loop


async def _chat(script: Any, **options: Any) -> Loop:
    chat = make_chat(script)
    await chat.run("how do I raise the pool?", run_id=uuid.UUID(int=1), **options)
    return chat


SCRIPTED: Mapping[str, Callable[[], Awaitable[Loop]]] = {
    "probe-stop": stop,
    "probe-protocol-stop": protocol_stop,
    "probe-repair": repair,
    "probe-semantic-refusal": semantic_refusal,
    "probe-budget": budget,
    "probe-fault": fault,
    "probe-outage": outage,
    "probe-cancel": cancel,
    "probe-host-cancel": host_cancel,
    "probe-fork": fork,
    "chat-knowledge": knowledge_answer,
    "chat-system": system_chat,
    "chat-diagnosis": chat_diagnosis,
}


async def _run(script: Any, **context: Any) -> Loop:
    loop = make_loop(script)
    await loop.run(run_id=uuid.UUID(int=1), **context)
    return loop


async def scripted(name: str) -> Bundle:
    """Make the bundle of one scripted run."""
    (bundle,) = await bundles_of(await SCRIPTED[name]())
    return bundle


async def shop(language: str, question: str) -> Bundle:
    """Make the bundle of the example's offline diagnosis."""
    with tempfile.TemporaryDirectory() as home:
        settings = load_settings(catalog=SHOP, language=language, model="offline", home=Path(home))
        async with open_app(settings, env={}) as app:
            report = await diagnose(app, question)
            record = await app.runs.get(str(report.run_id))
            assert record is not None
            return await export_run(record, app.journal)


async def record_all() -> None:
    """Write every recording."""
    FOLDER.mkdir(exist_ok=True)
    for name in SCRIPTED:
        (FOLDER / f"{name}.json").write_text(write_bundle(await scripted(name)), encoding="utf-8", newline="\n")
    for name, (language, question) in QUESTIONS.items():
        (FOLDER / f"{name}.json").write_text(
            write_bundle(await shop(language, question)), encoding="utf-8", newline="\n"
        )


if __name__ == "__main__":
    asyncio.run(record_all())
