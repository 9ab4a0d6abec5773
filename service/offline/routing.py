"""Which of the three intents a question has, by its form and by what the catalogue names (R97). Pure.

The rules in order; the first that applies decides, and what none of them knows is taken for an incident:

1. nothing but a greeting or thanks, nothing but who the assistant is or what it can do: SYSTEM_CHAT
2. why-questions: DIAGNOSIS
3. which topics, datasources, documents there are: SYSTEM_CHAT
4. something that happened at a time, that is broken, that is to be found out: DIAGNOSIS
5. what speaks of the assistant: SYSTEM_CHAT
6. a follow-up of a previous turn: DIAGNOSIS
7. how something is done, what something is or means (unless it names a topic or a datasource): KNOWLEDGE_QUERY

A lead-in such as "do you know" is dropped first: what follows it is what is asked. Incidents come before the assistant,
since a wrong chat answer looks at nothing where a wrong diagnosis only looks at too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from graph.contract import Intent


def _any(*patterns: str) -> re.Pattern[str]:
    """Any of the patterns, anywhere."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


def _only(*patterns: str) -> re.Pattern[str]:
    """One to five of the patterns, and nothing else but punctuation."""
    return re.compile(rf"^\W*(?:(?:{'|'.join(patterns)})\W*){{1,5}}$", re.IGNORECASE)


def _one_of(words: str) -> str:
    """A group of words divided by blanks; `_` is a blank within one."""
    return f"(?:{'|'.join(words.split()).replace('_', ' ')})"


_LEAD_IN = _any(
    r"^\W*(?:please )?(?:do you (?:happen to )?know|have you any idea|do you have (?:an|any) idea"
    r"|(?:can|could|would|will) you (?:please )?(?:tell|explain to|show) (?:me|us))"
    rf"(?: please)? (?={_one_of('why if whether how what when where who which')}\b)",
    r"^\W*(?:请问)?你(?:们)?(?:是否|是不是)?(?:知道|晓得|清楚|(?:能|可以)(?:不能)?(?:告诉|教|跟|和)(?:我|我们)?(?:说|讲)?)(?:一下)?"
    r"(?=为什么|为何|为啥|怎么|怎样|如何|是不是|是否|有没有|什么|谁)",
)
_GREETING = _only(
    _one_of("ok okay hi hello hey great cheers bye goodbye thanks? thank_you many_thanks"),
    r"good (?:morning|afternoon|evening|night)|how are you(?: doing)?",
    _one_of("there all everyone you team so_much a_lot very_much for_your_help for_the_help again are_you_there"),
    _one_of("你好 您好 大家好 嗨 哈喽 在吗 在么 早上好 下午好 晚上好 早安? 晚安 再见 拜拜"),
    _one_of("谢谢 多谢 感谢 辛苦了? 好的? 明白 收到"),
    _one_of("你 您 啊 呀 了 吗 帮忙 帮助 的"),
)
_NOW = r"(?: (?:now|right now|today|here|currently))?"
_WHOLLY_SELF = _only(
    r"help",
    r"(?:so |and )?who are you",
    rf"(?:so |and |now )?what (?:else )?can you (?:do|help(?: me| us)? with|find out|check|investigate|diagnose)"
    rf"(?: for (?:me|us))?{_NOW}",
    rf"(?:what|which) {_one_of('questions things problems issues incidents')}"
    rf" can (?:you (?:answer|solve|investigate|diagnose)|i ask(?: you)?){_NOW}",
    rf"(?:what|how) (?:is|does|can|could) this {_one_of('assistant bot system tool service')}"
    rf"(?: {_one_of('do for work capable_of able_to_do good_for help')})?{_NOW}",
    r"帮助",
    r"(?:请问)?(?:你|您|你们)(?:是谁|叫什么(?:名字)?)",
    rf"(?:请问)?(?:你|您|你们|这个(?:助手|系统|工具|机器人))(?:现在|今天|目前)?(?:都)?(?:能|会|可以)(?:帮(?:我们?|忙))?"
    rf"(?:做|干|查|看|排查|诊断|分析|回答|解决)(?:些|一些)?(?:什么|啥|哪些){_one_of('样的 方面的')}?"
    rf"{_one_of('问题 故障 事情? 东西 内容')}?(?:呢|呀|啊|吗)?",
)
_SELF = _any(
    r"\b(?:who|what) (?:are|made) you\b",
    r"\bwhat (?:can|could|else can) (?:you|i ask)\b",
    r"\bwhat (?:do|could|would) you (?:do|know|offer|support|need)\b(?! about)|\bwhat (?:do|can) you see\b(?! in| on)",
    r"\byou(?:'re| are)? (?:able to|capable)",
    r"\bhow (?:can|do|should) (?:you help|i use you|i ask you|you work)\b",
    r"\b(?:are|aren't) you (?:an? |the |real|human|there|able|using|connected)",
    r"\b(?:can|could) i ask (?:you )?(?:\W|$|about)",
    r"\b(?:questions?|things?) (?:can|could|may|should) i ask\b",
    r"\byour (?:name|capabilit|abilit|feature|limit|function|purpose|data|knowledge|source|model)",
    r"\bintroduce yourself\b",
    r"\b(?:about|describe) (?:yourself|this (?:assistant|bot|tool))\b",
    r"\bdo you (?:have|know|support|understand|speak|use|remember)\b",
    r"\byou have access\b",
    r"\bcan you (?:access|query|search|read|reach|speak|see)\b",
    r"你是(?!说|指|不是|否)|你叫|你会(?:什么|说|用)|你是人还是",
    r"你(?:能|会|可以|可)(?:不能|不可以)?(?:做|干|查|看到|看哪|访问|回答|帮(?:我|我们|忙)?(?:做|干)?(?:什么|啥|哪些))",
    r"你(?:这里?|那里?|都|也)?(?:有|支持|接了?|接入|连|知道|懂|认识|了解|用什么|用的?是|记得)(?!什么办法|没有办法)",
    r"(?:向|问|使用|用|跟|和)你",
    r"你的(?:名字|能力|功能|知识|数据|模型)",
    r"(?:介绍|说说)(?:一下)?(?:你|自己)",
    r"(?:这个|本)(?:助手|工具|机器人)(?:能|可以|会|有什么|是做|是干)",
    r"(?:这个|本)系统(?:能|可以|有什么|是做|是干)",
)
_THINGS = r"(?:log |logging |data ?|knowledge )?" + _one_of(
    "topics? sources? datasources? databases? tables? documents? runbooks? logs playbooks? manuals? bases?"
)
_DINGE = r"(?:日志)?(?:主题|数据源|数据库|数据表|表|文档|手册|知识库|预案|日志|资料)"
_INVENTORY = _any(
    rf"\b(?:which|what|list|show(?: me)?)(?: all| are| of)*(?: the| your| available| existing)* {_THINGS}(?: and \w+)?"
    r"(?: do you| can you| are (?:there|available|known|configured|connected|indexed)| exist| you (?:have|know|can)"
    r"| does (?:the )?[\w\-]+ (?:database|datasource|source) have|\W*$)",
    rf"\bhow many {_THINGS} (?:do you|are there|exist|are (?:indexed|known))",
    rf"\b(?:is|are) (?:the |any )?(?:\w+ )?{_THINGS} (?:connected|configured|indexed|available)",
    r"(?:有|接入了?|接了|配置了?|支持|收录了?|连了?|能查|可以查|能看|可查|知道)"
    rf"(?:哪些|什么|多少(?:个|份|篇|张)?){_DINGE}(?!里|中)",
    rf"(?:列出|看看|告诉我)(?:一下)?(?:所有|全部|现有|可用)的?{_DINGE}",
    rf"(?:有|能查|可以查|能看)(?:哪些|什么)可(?:用|查)的?{_DINGE}",
    rf"{_DINGE}里?(?:都)?有(?:哪些|多少|什么)(?:内容|东西)?[??]?\W*$",
    r"(?:能|可以)(?:查|看|访问)(?:哪些|什么)(?:东西|内容|系统)?\W*$",
)
_FOLLOW_UP = _any(
    r"^\W*(?:what|how) about\b",
    r"^\W*and (?:what|the|in|on|for|now)\b",
    r"^\W*(?:it is|it's|that was|this is) ",
    r"^\W*(?:那么?|还有|另外|再|继续|换成|改成|接着)",
    r"呢[??]?\W*$",
)
_CAUSE = _any(
    r"\bwhy\b",
    r"\bwhat (?:happened|went wrong|broke|caused?)\b",
    r"\broot cause\b",
    r"为什么|为何|为啥|怎么回事|什么原因|啥原因|出了什么(?:问题|事)|发生了什么",
    r"怎么(?:了|会|突然|这么|老|又|还|不|没|总|一直)",
)
_TROUBLE = _one_of("errors? exceptions? failures? warnings? events failed slow_queries evicted killed crashed 5\\d\\d")
_FIND_OUT = _any(
    r"\bwhat(?:'s| is| was) (?:wrong|going on|happening|broken|causing|the (?:root )?cause)\b",
    r"\bwhat(?:'s| is| are) the (?:state|status|error rate|latency|load|number|issues?|problems?|matter)\b",
    r"\breason (?:for|of|behind)\b",
    r"\bdiagnos|\binvestigat|\btroubleshoot (?:the|this|our)\b|\bdid (?:any|some)\w*\b",
    rf"\b(?:show|find|search|look|check|count|list|see|any|how many|are there|which)\b.*\b{_TROUBLE}\b",
    r"\bwhat (?:errors|exceptions|failures|failed|crashed)\b",
    r"\b(?:search|grep|look through|check)\b.*\blogs?\b.* for \w",
    r"原因是|的原因|失败原因|根因|是不是(?:挂|坏|崩|宕)",
    r"(?:诊断|排查|查|看|分析)一?下|帮(?:我|忙)?(?:看|查|排查|分析|诊断)",
    r"(?:有没有|是否有|多少条?|统计|查询|搜索|哪些)(?:[^。??,，]{0,12})(?:报错|错误|异常|失败|告警|慢查询|超时)",
)
_HAPPENED = _any(
    rf"\b{_one_of('today yesterday tonight since right_now just_now currently suddenly started')}\b",
    r"\b(?:last (?:night|hour|week|friday)|this (?:morning|afternoon|evening)|\d+ (?:minutes?|hours?|days?) ago)\b",
    r"\b\d{1,2}:\d{2}\b|\b\d{4}-\d{2}-\d{2}\b|\bat \d{1,2} ?(?:am|pm)\b",
    rf"^(?!\W*(?:who|what|how|when|where)\b).*\b{_one_of('is are was were keeps? has_been have_been')} "
    + _one_of(
        "down slow failing broken stuck unreachable unavailable timing_out crash\\w* restarting returning throwing"
        " being_(?:killed|evicted|rejected)"
    )
    + r"\b",
    r"\boutage\b|今天|昨天|昨晚|今早|今晚|凌晨|刚刚|刚才|目前|现在|突然|最近|\d+ ?点|分钟前|小时前|自从",
    r"开始(?:报|出|变|失|超)|一直(?:在|报|失)|正在|挂了|崩了|宕了|炸了|突增|飙升|暴涨|掉线了",
)
_HOW = _any(
    r"^\W*how (?!many\b|much\b|long (?:has|have|was|were)\b|about\b)|\bhow (?:do|to|can|could|should|would|is|are|often)\b",
    r"\bsteps?\b|\bprocedure\b|\bbest practice|\bguide(?:line)?s? (?:to|for|on)\b",
    r"\bwhat (?:should|must|do) (?:i|we|one) (?:do|check|look at)\b|\bwho (?:should|do|must|can) (?:i|we)\b",
    r"\b(?:run|play)book\b|\bdocumentation\b|\baccording to the (?:docs?|documents?|manual)\b",
    r"如何|怎样|怎么(?!回事|了|会|突然|这么|老|又|还|不|没|总|一直)",
    r"步骤|流程|办法|手册|文档(?:里|中)|预案|规范|最佳实践|指南|按照?(?:文档|手册)|SOP",
    r"(?:需要|应该|应|该|要)(?:找?谁|做哪些|做什么|先做|注意|检查(?:什么|哪些))",
    r"(?:在)?(?:哪里|哪儿)(?:改|配|设|看|查|申请)",
)
_WHAT = _any(
    r"^\W*what (?:is|are|does)\b|^\W*what's (?:an? )|^\W*what \S+ means?\b",
    r"\bwhat(?:'s| is) (?:an? |the )?(?:meaning|definition|difference|purpose|threshold)\b",
    r"\bmeaning of\b|\bdifferences? between\b|^\W*(?:explain|define|describe)\b",
    r"^\W*when (?:should|does|is|do)\b|\bwhere (?:is|are|can i find) .*(?:documented|described)\b",
    r"什么是|是(?:什么|啥)(?:意思|含义|东西)?[??]?\W*$|(?:什么|啥)意思|是(?:干|做)(?:什么|啥|嘛)",
    r"含义|的?(?:区别|定义|作用|阈值)|(?:代表|表示|意味着?|说明)(?:了)?什么|解释(?:一下)?",
    r"何时(?:触发|告警)|什么(?:时候|情况下)(?:会|该|要)?(?:触发|告警|需要)?",
    r"有哪些(?:策略|方法|方式|类型|参数|指标)",
)


def route(question: str, view: Mapping[str, Any] | None = None, previous: Mapping[str, Any] | None = None) -> Intent:
    """Route one question.

    `view` names what the system knows, `previous` is what the session's last diagnosis published.
    """
    text = " ".join(question.split())
    if not text or _GREETING.search(text) or _WHOLLY_SELF.search(text):
        return Intent.SYSTEM_CHAT
    text = _LEAD_IN.sub("", text)
    if _CAUSE.search(text):
        return Intent.DIAGNOSIS
    asked, how = bool(_FIND_OUT.search(text)), bool(_HOW.search(text))
    if _INVENTORY.search(text) and not asked:
        return Intent.SYSTEM_CHAT
    if _HAPPENED.search(text) or (asked and not how):
        return Intent.DIAGNOSIS
    if _SELF.search(text):
        return Intent.SYSTEM_CHAT
    if previous and is_follow_up(text):
        return Intent.DIAGNOSIS
    if how or (_WHAT.search(text) and not _names_a_source(text, view or {})):
        return Intent.KNOWLEDGE_QUERY
    return Intent.DIAGNOSIS


def is_follow_up(question: str) -> bool:
    """Whether a question only makes sense after another one, by its form."""
    return bool(_FOLLOW_UP.search(" ".join(question.split())))


def _names_a_source(text: str, view: Mapping[str, Any]) -> bool:
    """Whether the question names a topic or a datasource: then it is about what is in there."""
    low = text.lower()
    return any(re.search(rf"(?<![\w\-]){re.escape(name)}(?![\w\-])", low) for name in _sources(view))


def _sources(view: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("topics", "datasources"):
        for each in view.get(kind) or ():
            if isinstance(each, Mapping) and each.get("name"):
                yield str(each["name"]).lower()
