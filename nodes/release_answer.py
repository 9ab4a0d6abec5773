"""Node `release` of the chat: ends a Run that asked for no diagnosis, by one compare-and-set (R8, R94, R108)."""

from __future__ import annotations

from dataclasses import replace

from graph.state import ChatState
from nodes.answers import Reply
from nodes.contract import EndCause
from nodes.ending import Ending, decided_before
from nodes.node_run import NodeResult, NodeRun
from nodes.usage import usage_of
from release.answers.decision import decide_answer
from release.decision import ReleaseDecision


async def release_answer(state: ChatState, run: NodeRun) -> NodeResult:
    """Decide, then write the end; an acknowledged cancel wins over every answer."""
    reply = Reply.model_validate(state.get("reply") or {})
    end = Ending(run, usage_of(state))
    before = decided_before(
        run.record, lambda late: decide_answer(reply.chat or reply.knowledge, reply.error, timed_out=late)
    )
    result = end.result(before or await end.write(_decide(reply, run)))
    public = {name: result.update["outcome"][name] for name in PUBLIC}
    return replace(result, update={"run_id": run.run.run_id, **public})


PUBLIC = ("release_outcome", "published_result", "fallback", "error_code")
"""What of an end a user sees (R55)."""


def _decide(reply: Reply, run: NodeRun) -> ReleaseDecision:
    entry = run.ended_on_entry()
    causes = {reply.end, entry.cause if entry else None}
    return decide_answer(
        reply.chat or reply.knowledge,
        reply.error,
        cancelled=EndCause.CANCELLED in causes,
        timed_out=EndCause.TIMED_OUT in causes,
    )
