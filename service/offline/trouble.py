"""How telling a log line is: levels, words of trouble, causes, long durations. General vocabulary only. Pure."""

from __future__ import annotations

import re

from service.offline.terms import Question

LEVELS = {
    "fatal": 5.0,
    "critical": 5.0,
    "crit": 5.0,
    "emerg": 5.0,
    "alert": 5.0,
    "panic": 5.0,
    "severe": 4.0,
    "error": 4.0,
    "err": 4.0,
    "warning": 2.0,
    "warn": 2.0,
}
_LEVEL_IN_TEXT = re.compile(
    r"^\W{0,3}(?:[\d\-:.,TZ+/ ]{8,40}\W{0,3})?(FATAL|CRITICAL|PANIC|SEVERE|ERROR|WARNING|WARN)\b", re.IGNORECASE
)
_STRONG = re.compile(
    r"""\b(?:exceptions?|errors?|fatal|panic(?:ked)?|fail(?:ed\w*|ure|ures|s|ing)?|unable|cannot|can't|could\snot|couldn't|refused
    |denied|forbidden|unauthorized|undefined|invalid|expired|exhausted|exceed(?:ed|s|ing)?|timed?[\s-]?out|timeouts?
    |unreachable|unavailable|crash(?:ed|es|ing)?|\w*back-?off|abort(?:ed|ing)?|killed|oom\w*|deadlock(?:ed)?|corrupt(?:ed|ion)?
    |overflow|reject(?:ed|s)|violat(?:es|ed|ion)|duplicate|missing|not\sfound|no\ssuch|not\sknown|not\sset|no\savailable
    |no\sspace|out\sof\smemory|too\smany|reset\sby\speer|broken\spipe|syntax\serror|lost|dropped|stuck|throttl(?:ed|ing)
    |segfault|evicted|unhealthy|unschedulable|insufficient|did(?:n't|\snot)\smatch|mismatch|misconfigured|not\sready|no\sroute
    |errimagepull|denylisted|exit(?:ed)?\s(?:with\s)?(?:code|status)\W{0,12}[1-9]\d*|starv(?:ed|ation)|leak(?:s|ed|ing)?)\b
    |[A-Za-z]+(?:Error|Exception|Failure|Timeout)\b
    |错误|异常|失败|超时|拒绝|不可用|无法|崩溃|耗尽|溢出|死锁|丢失|未找到|不存在|非法|中断|已满|过期|积压|不足|泄漏""",
    re.IGNORECASE | re.VERBOSE,
)
_CAUSE = re.compile(
    r"""\bcaused\sby\b|\bbecause\b|\bdue\sto\b|\breason\b|\bcould\snot\b|\bunable\sto\b|\bfailed\sto\b|\bundefined\b|\bnot\sset\b
    |\bviolates\b|\bexpired\b|\bexhausted\b|\bout\s?of\s?memory|\bno\ssuch\b|\brefused\b|\binsufficient\b|\bdid(?:n't|\snot)\smatch\b|\bdenied\b|原因|由于|导致|耗尽|无法""",
    re.IGNORECASE | re.VERBOSE,
)
_NEGATED = re.compile(
    r"""\b(?:no|zero|without|0)\s+(?:\w+\s+){0,1}(?:errors?|failures?|exceptions?|issues?|problems?|failed|unavailable|missing)\b
    |\bmax(?:imum)?\s*unavailable\b
    |["']?\b(?:errors?|failures?|failed|exceptions?|dropped|missing|timeouts?|rejected|lost)\w*["']?\s*[=:]\s*
    (?:null|none|nil|false|0|\[\]|\{\}|""|'')(?![\w.])
    |["']?\b\w*(?:timeout|retries|retry|backoff|max_\w+)(?:_?m?s|_seconds)?["']?\s*[=:]\s*["']?(?:null|none|true|false|\d+)
    |无异常|无错误|没有(?:异常|错误)""",
    re.IGNORECASE | re.VERBOSE,
)
_FRAME = re.compile(r"""^\s*(?:at\s+[\w.$<>/]+\(|File\s"[^"]+",\sline\s\d+|\.{3}\s\d+\s(?:more|common)|[\^~]+\s*$)""")
_CODE = re.compile(r"""^\s*(?:raise|return|self\.|await\s|for\s|if\s|def\s|try:|except\s|[\w.]+\s=\s[\w.]+\()""")
_PREAMBLE = re.compile(
    r"^(?:Traceback \(most recent call last\)|.{0,12}the above exception was|during handling of the above)",
    re.IGNORECASE,
)
_TOLD = re.compile(
    r'"(?:\w+[._])?(?:error|err|exception|reason|message|msg|detail|cause)\w*"\s*:\s*"[^"]{4,}"', re.IGNORECASE
)
"""A field of a JSON line that tells what happened; without one, words of trouble are only names and filters in it."""
_SUCCESS = re.compile(
    r"\b(?:success(?:ful|fully)?|succeeded|completed|recovered|healthy|resolved|ok)\b|成功|恢复|正常|已完成",
    re.IGNORECASE,
)
_DURATION = re.compile(
    r"""(?:\b(?:in|took|takes|after|elapsed|duration|latency|time|cost|waited|for|of)|耗时|用时|花费|[=:：>])\W{0,3}
    (\d+(?:\.\d+)?)\s?(ms|milliseconds?|毫秒|seconds?|secs?|s|秒|minutes?|mins?|分钟)(?![A-Za-z])
    |\w*(?:time|duration|latency|elapsed|cost|took)\w*?_?(?P<unit>ms|seconds|s)["']?\s*[=:]\s*["']?(?P<number>\d+(?:\.\d+)?)""",
    re.IGNORECASE | re.VERBOSE,
)
"""A duration a line states: after a word that measures (`took 3 s`), or as a field (`response_time_ms=3000`)."""
_ANSI = re.compile(r"\x1b?\[[0-9;]{1,8}m")
SLOW_SECONDS = 1.0
"""A call that takes at least this long is worth showing when the question is about time."""

ERROR_QUERY = (
    "level:error OR level:fatal OR error OR exception OR fail OR fatal OR panic OR timeout OR refused OR denied OR "
    'undefined OR expired OR exhausted OR unavailable OR unable OR cannot OR crash OR killed OR OutOfMemory OR "timed out" '
    "OR reject OR insufficient OR backoff OR unhealthy OR 错误 OR 异常 OR 失败 OR 超时 OR 拒绝 OR 无法 OR 耗尽"
)
"""First look at a topic: words and levels of trouble in general. Mere warnings show in the overview, if it comes to that."""

SLOW_QUERY = (
    'slow OR latency OR timeout OR "timed out" OR duration OR elapsed OR took OR seconds OR response_time '
    'OR "completed in" OR cost OR lag '
    "OR 0ms OR 1ms OR 2ms OR 3ms OR 4ms OR 5ms OR 6ms OR 7ms OR 8ms OR 9ms OR 慢 OR 耗时 OR 超时 OR 延迟 OR 毫秒"
)
"""First look when the question is about time: lines that measure it."""


def clean(text: str) -> str:
    """Text without terminal colours, for judging only; quotes stay verbatim."""
    return _ANSI.sub("", text)


def is_preamble(line: str) -> bool:
    """True for the line that opens a stack trace and says nothing itself."""
    return _PREAMBLE.match(line.strip()) is not None


def severity(level: str | None, text: str) -> float:
    """Severity 0..5 from the level field, a level at the line's start, or words of trouble."""
    line = _NEGATED.sub(" ", clean(text))
    from_level = LEVELS.get((level or "").strip().lower(), 0.0)
    match = _LEVEL_IN_TEXT.match(line)
    if match:
        from_level = max(from_level, LEVELS[match[1].lower()])
    hits = {hit.lower() for hit in _STRONG.findall(line)}
    from_words = min(3.0 + 0.25 * (len(hits) - 1), 4.0) if hits else 0.0
    if from_words and not from_level and _SUCCESS.search(line):
        from_words = 0.5
    informative = (level or "").strip().lower() in {"info", "debug", "trace", "notice"}
    if informative and from_words:
        from_words = min(from_words, 2.0)
    return max(from_level, from_words) + (0.5 if from_level and hits else 0.0)


def telling(level: str | None, text: str, question: Question) -> float:
    """Score of one line: severity, whether it names a cause, what it shares with the question; stack frames are low."""
    line = clean(text)
    if _FRAME.match(line) or _PREAMBLE.match(line.strip()) or (_CODE.match(line) and not level):
        return 0.0
    score = severity(level, text)
    if question.about_time and longest_seconds(line) >= SLOW_SECONDS:
        score = max(score, 3.0) + 0.5
    if score <= 0:
        return 0.0
    if _CAUSE.search(_NEGATED.sub(" ", line)):
        score += 0.75
    score += min(0.5 * shared_terms(line, question), 1.0)
    if line.lstrip().startswith(("{", "[{")) and not _TOLD.search(line):
        score -= 2.5
    if len(line.split()) < 4 and not re.search(r"[\u3400-\u9fff]{4}", line):
        score -= 1.0
    return score


def shared_terms(text: str, question: Question) -> int:
    """How many of the question's terms a text holds."""
    low = text.lower()
    return sum(1 for term in question.terms if term in low)


def longest_seconds(text: str) -> float:
    """The longest duration a line states, in seconds; 0 when it states none."""
    best = 0.0
    for match in _DURATION.finditer(clean(text)):
        number, unit = match[1] or match["number"], (match[2] or match["unit"]).lower()
        if unit.startswith(("ms", "milli")) or unit == "毫秒":
            factor = 0.001
        elif unit.startswith("min") or unit == "分钟":
            factor = 60.0
        else:
            factor = 1.0
        best = max(best, float(number) * factor)
    return best


def weight(line: str) -> float:
    """How much one physical line of a longer text tells; 0 for stack frames and code."""
    text = clean(line)
    if _FRAME.match(text) or _PREAMBLE.match(text.strip()) or _CODE.match(text):
        return 0.0
    named = 0.75 if _CAUSE.search(_NEGATED.sub(" ", text)) else 0.0
    return severity(None, text) + named if text.strip() else 0.0
