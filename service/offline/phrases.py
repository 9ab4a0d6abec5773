"""Sentences of the offline model's drafts, Chinese and English, and how it quotes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.offline.trouble import clean, weight
from tools.placeholders import verbatim_pieces

PHRASES: dict[str, dict[str, str]] = {
    "zh": {
        "no_model": "未使用语言模型：结论与陈述由离线模型按固定规则从运行手册检查与查询结果生成。",
        "no_check": "没有命中任何运行手册检查，因此不给出根因结论；仅展示通用探查所见。",
        "stopped": "取证已被要求停止，其余检查未执行。",
        "not_run": "手册《{title}》的检查未能执行：{why}。",
        "fault_missing_key": "缺少 {detail}",
        "fault_unknown_key": "不认识的键 {detail}",
        "fault_repeated_key": "键 {detail} 重复",
        "fault_no_key": "有一行不是“键: 值”",
        "fault_too_long": "{detail} 过长",
        "fault_expect": "expect 只能是 match 或 none",
        "fault_lookback": "lookback 须为 1 到 10080 的整数分钟",
        "fault_no_tool": "没有可用的工具",
        "refused": "{target} 的请求被拒绝（{rule}）",
        "failed": "{target} 返回错误 {code}",
        "unusable": "{target} 没有返回可用的结果",
        "unseen": "尚未查看的日志主题：{names}。",
        "more": " 等另外 {count} 个",
        "not_ruled_out": "未能排除：{what}",
        "missed": "手册《{title}》的检查未命中：{what}。",
        "unaided": "没有语言模型参与：本次由离线模型按固定规则排查，且没有运行手册检查命中。",
        "missing": "请说明是哪个服务、什么时间、看到了什么报错。",
        "no_tools": "没有可用的日志主题或数据源。",
        "nothing": "已查询的日志中没有发现明显异常。",
        "runbook": "运行手册《{title}》列出了检查项；其结论为：{concludes}",
        "logs": "日志 {topic}（最近 {lookback} 分钟，查询 {query}）：命中 {total} 条",
        "rows": "数据源 {datasource}：返回 {total} 行",
        "none_logs": "日志 {topic}（最近 {lookback} 分钟，查询 {query}）：命中 0 条。",
        "none_rows": "数据源 {datasource} 的查询返回 0 行。",
        "line": "日志 {topic}：{quote}",
        "count": "（{count} 条，{first} 至 {last}）",
        "count_only": "（{count} 条）",
        "several": "日志 {topic} 中的异常记录（按模式归并）：{quotes}",
        "slow": "日志 {topic} 中耗时最长的记录：{quote}",
        "rare": "日志 {topic} 中没有错误；少见的记录：{quotes}",
        "common": "日志 {topic} 中没有错误；与问题相关的典型记录：{quote}",
        "conclusion": "{concludes}（依据运行手册《{title}》；本次所见：{seen}）",
        "any": "（全部）",
        "sep": "；",
    },
    "en": {
        "no_model": "No language model was used: fixed rules built every statement from checks and query results.",
        "no_check": "No runbook check matched, so no root cause is stated; this is what one generic probe found.",
        "stopped": "Collection had to stop; the remaining checks were not run.",
        "not_run": "A check of runbook {title} could not be run: {why}.",
        "fault_missing_key": "{detail} is missing",
        "fault_unknown_key": "unknown key {detail}",
        "fault_repeated_key": "key {detail} stands twice",
        "fault_no_key": "a line is not of the form key: value",
        "fault_too_long": "{detail} is too long",
        "fault_expect": "expect must be match or none",
        "fault_lookback": "lookback must be whole minutes from 1 to 10080",
        "fault_no_tool": "no tool for it is available",
        "refused": "{target}, request refused ({rule})",
        "failed": "{target}, error {code}",
        "unusable": "{target}, no usable result",
        "unseen": "Log topics not looked at: {names}.",
        "more": " and {count} more",
        "not_ruled_out": "Not ruled out: {what}",
        "missed": "A check of runbook {title} did not match: {what}.",
        "unaided": "A language model: none was used here; fixed rules looked around, and no runbook check matched.",
        "missing": "Please say which service, at what time, and which error was seen.",
        "no_tools": "No log topic or datasource is available.",
        "nothing": "Nothing conspicuous was found in the logs that were read.",
        "runbook": "Runbook {title} lists the checks; it concludes: {concludes}",
        "logs": "Logs {topic} (last {lookback} min, query {query}): {total} matching",
        "rows": "Datasource {datasource}: {total} row(s) returned",
        "none_logs": "Logs {topic} (last {lookback} min, query {query}): 0 matching.",
        "none_rows": "Datasource {datasource}: the query returned 0 rows.",
        "line": "Logs {topic}: {quote}",
        "count": " ({count} lines, {first} to {last})",
        "count_only": " ({count} lines)",
        "several": "Trouble in logs {topic}, one line per pattern: {quotes}",
        "slow": "Longest durations in logs {topic}: {quote}",
        "rare": "No errors in logs {topic}; rare lines: {quotes}",
        "common": "No errors in logs {topic}; a typical line related to the question: {quote}",
        "conclusion": "{concludes} (runbook: {title}; seen in this run: {seen})",
        "any": "(all)",
        "sep": "; ",
    },
}

_CLAUSE = re.compile(r"\s+-\s+|(?<=[.;|])\s+|；|。")
_STRONG_WORD = re.compile(
    r"(?i)error|exception|fail|timeout|timed out|refused|denied|undefined|expired|violat|duplicate|not found|"
    r"unable|cannot|could not|out of memory|exhausted|unavailable|错误|异常|失败|超时|拒绝|耗尽|无法"
)


def quote(text: str, limit: int = 200, wanted: Sequence[str] = ()) -> str:
    """Quote a verbatim piece of one text between backticks; "" when nothing of it can be quoted."""
    piece = excerpt(text, limit, wanted)
    return f"`{piece}`" if piece else ""


def excerpt(text: str, limit: int, wanted: Sequence[str] = ()) -> str:
    """A contiguous piece of a text without line breaks, backticks, placeholders: all of it, or the clauses that tell most.

    Lines and clauses that hold a `wanted` text (lower case) come before others.
    """

    def holds(piece: str) -> int:
        return sum(item in piece.lower() for item in wanted)

    parts = re.split(r"[`\r\n\x00-\x08\x0b-\x1f]+", text)
    pieces = [piece.strip() for part in parts for piece in verbatim_pieces(part)]
    if not pieces:
        return ""
    best = max(pieces, key=lambda piece: (holds(piece), weight(piece), min(len(piece), 40)))
    if len(best) <= limit:
        return best
    clauses = [(match.start(), match.end()) for match in _CLAUSE.finditer(best)]
    starts = [0, *(end for _, end in clauses)]
    ends = [*(start for start, _ in clauses), len(best)]
    spans = list(zip(starts, ends, strict=True))
    start, end = max(spans, key=lambda span: (holds(best[slice(*span)]), _weight(best[slice(*span)]), -span[0]))
    for later_start, later_end in spans:
        if later_start >= end and later_end - start <= limit:
            end = later_end
    return _cut(best[start:end], limit)


def _cut(piece: str, limit: int) -> str:
    """At most `limit` characters, around the first word of trouble."""
    if len(piece) <= limit:
        return piece.strip()
    word = _STRONG_WORD.search(piece)
    start = 0 if word is None or word.end() < limit else min(max(word.start() - 20, 0), len(piece) - limit)
    if start > 0:
        start = piece.find(" ", start) + 1 or start
    cut = piece[start : start + limit]
    if start + limit < len(piece) and " " in cut[limit // 2 :]:
        # Between words only: a number cut short would be another number.
        cut = cut[: cut.rindex(" ")]
    return cut.strip().rstrip("0123456789") if cut[-1:].isdigit() and start + limit < len(piece) else cut.strip()


def _weight(text: str) -> int:
    return len({hit.lower() for hit in _STRONG_WORD.findall(clean(text))})


def short_time(stamp: str) -> str:
    """A timestamp without fractions of a second."""
    return re.sub(r"(\d{2}:\d{2}:\d{2})[.,]\d+", r"\1", stamp)
