"""Words: the language of a question, the terms worth searching for, the vocabulary of trouble. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_CJK = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.\-]*[A-Za-z0-9])?")
_CJK_RUN = re.compile(r"[\u3400-\u9fff]+")
_QUOTED = re.compile(r"[`'\"「“]([^`'\"」”]{2,80})[`'\"」”]")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\S+", text))


STOP_WORDS = _words(
    """
    a an the is are was were be been being am do does did doing done what whats which who whom whose why how when
    where there this that these those it its it's of in on at by to from for with within without into onto over
    under about as and or not no nor but if then than so such my our your his her their we you they i me us show
    tell give find list see look check explain describe please can could should would will may might must have has
    had get gets got going go wrong issue issues problem problems reason cause causes happening happened happen any
    some all more most other others current currently still again keep keeps many few lot lots summarize summary
    return returns returning responding respond working work up down out one also just now
    """
)
"""Words of a question that say nothing about what to look for."""

KIND_WORDS = _words(
    """
    pod pods job jobs deployment deployments namespace namespaces cluster container containers node nodes service
    services app apps application applications system systems server servers topic topics log logs error errors
    request requests description descriptions state component
    """
)
"""Kinds of things: they tell a little about which source to read, nothing about which line."""

VAGUE_WORDS = _words("fail fails failed failing failure failures broken break breaks crash crashed crashes")
"""Words that say that something is wrong and not what: alone they leave nothing to look for."""

CJK_STOP_WORDS = _words(
    """
    为什么 什么 怎么 怎样 如何 哪个 哪些 哪里 是否 有没有 现在 最近 今天 昨天 一下 帮我
    请问 看看 看下 查看 查询 检查 分析 排查 诊断 问题 原因 情况 出现 发生 导致 大量 一直
    突然 突增 增加 开始 还是 不能 可以 我们 他们 这个 那个 以及 并且 但是 所有 全部 列出
    总结 汇总 失败 错误 报错 异常 日志 服务 系统 故障
    """
)

SLOW_WORDS = _words(
    """
    slow slower slowness latency latencies delay delays delayed lag lagging performance degraded degradation
    degrading hang hangs hanging stuck timeout timeouts duration 慢 缓慢 变慢 延迟 延时 耗时 卡顿 卡住 超时 积压 性能 响应时间
    """
)
"""Words that make a question one about time; then slow calls are telling."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the planner reads it. `names` are identifiers, `words` the other telling words, both lower case."""

    text: str
    language: str
    names: tuple[str, ...]
    words: tuple[str, ...]
    kinds: tuple[str, ...]
    about_time: bool

    @property
    def terms(self) -> tuple[str, ...]:
        """Names first, then words."""
        return (*self.names, *self.words)

    @property
    def says_too_little(self) -> bool:
        """Whether there is nothing to look for: neither a name nor a telling word nor a kind of thing."""
        return not self.kinds and VAGUE_WORDS.issuperset(self.terms)


def language_of(question: str, system: str = "") -> str:
    """Return "zh" or "en": the question decides; where it holds no letters the system prompt does."""
    if _CJK.search(question):
        return "zh"
    if re.search(r"[A-Za-z]{2}", question):
        return "en"
    return "zh" if _CJK.search(system) or not system else "en"


def read_question(text: str, system: str = "") -> Question:
    """Split a question into identifiers, telling words and kinds of things."""
    names: list[str] = []
    words: list[str] = []
    kinds: list[str] = []
    for quoted in _QUOTED.findall(text):
        if " " not in quoted.strip():
            _add(names, quoted.strip().lower())
    for word in _WORD.findall(text):
        low = word.lower()
        if low in STOP_WORDS or low in names:
            continue
        if low in KIND_WORDS:
            _add(kinds, low)
        elif _is_name(word):
            _add(names, low)
        elif len(low) > 1:
            _add(words, low)
    for run in _CJK_RUN.findall(text):
        for word in cut(run):
            if len(word) > 1 and word not in CJK_STOP_WORDS:
                _add(words, word)
    low_text = text.lower()
    pieces = set(split_name(low_text))
    about_time = any(word in pieces or (_CJK.search(word) and word in low_text) for word in SLOW_WORDS)
    return Question(text, language_of(text, system), tuple(names), tuple(words), tuple(kinds), bool(about_time))


@lru_cache(maxsize=4096)
def cut(run: str) -> tuple[str, ...]:
    """Segment a run of Chinese characters into words."""
    import rjieba  # here, since it reads its dictionary: only Chinese needs it

    return tuple(rjieba.cut(run))


@lru_cache(maxsize=4096)
def split_name(text: str) -> tuple[str, ...]:
    """Lower-case parts of identifiers and Chinese words in a text, for comparing names."""
    parts: list[str] = []
    for word in _WORD.findall(text):
        for piece in re.split(r"[_.\-]+", _CAMEL.sub("-", word)):
            if piece:
                parts.append(piece.lower())
    for run in _CJK_RUN.findall(text):
        parts.extend(cut(run))
    return tuple(parts)


def _is_name(word: str) -> bool:
    inner_capital = word[1:] != word[1:].lower() and not word.isupper()
    return inner_capital or any(c.isdigit() or c in "-_." for c in word) or (word.isupper() and len(word) > 1)


def _add(items: list[str], item: str) -> None:
    if item and item not in items:
        items.append(item)
