"""Words of `superbiz chat`, by language: what it says itself, and the stages of a run as a user may see them."""

from __future__ import annotations

from collections.abc import Mapping

CHAT_TEXTS: Mapping[str, Mapping[str, str]] = {
    "zh": {
        "welcome": "输入问题，回车发送。/new 开始新会话，/exit 退出；运行中按 Ctrl-C 取消。",
        "session": "会话",
        "cancelling": "正在取消……",
        "commands": "可用命令：/new、/exit",
    },
    "en": {
        "welcome": "Type a question and press Enter. /new starts a new session, /exit leaves; Ctrl-C cancels a run.",
        "session": "Session",
        "cancelling": "cancelling…",
        "commands": "Commands: /new, /exit",
    },
}

STAGES: Mapping[str, Mapping[str, str]] = {
    "zh": {
        "start_run": "已收到问题",
        "route_intent": "已判断问题类型",
        "answer_knowledge": "已查阅知识库",
        "system_chat": "已组织回答",
        "execute_tool": "已查询",
        "project_progress": "已整理查到的事实",
        "guard_evidence": "已核对引用",
        "repair_evidence": "已修正引用",
        "guard_semantics": "已核对结论",
        "release": "完成",
    },
    "en": {
        "start_run": "question received",
        "route_intent": "kind of question decided",
        "answer_knowledge": "knowledge base consulted",
        "system_chat": "answer written",
        "execute_tool": "query made",
        "project_progress": "facts gathered",
        "guard_evidence": "citations checked",
        "repair_evidence": "citations repaired",
        "guard_semantics": "conclusion checked",
        "release": "done",
    },
}
"""By node; the harness' own bookkeeping between them is for operators (R55)."""
