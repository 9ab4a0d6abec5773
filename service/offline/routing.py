"""Which of the three intents a question has, by its form and by what the catalogue names (R97). Pure.

The rules in order; the first that applies decides, and what none of them knows is taken for an incident:

1. greetings, thanks, questions about the assistant: SYSTEM_CHAT
2. why-questions: DIAGNOSIS
3. which topics, datasources, documents there are: SYSTEM_CHAT
4. a follow-up of a previous turn, something that happened at a time, something to be found out: DIAGNOSIS
5. how something is done, what something is or means (unless it names a topic or a datasource): KNOWLEDGE_QUERY
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from graph.contract import Intent


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_GREETING = _any(
    r"^\W*(?:(?:ok|okay|hi|hello|hey|good (?:morning|afternoon|evening|night)|thanks?|thank you|"
    r"many thanks|cheers|bye|goodbye|great|"
    r"there|all|everyone|you|so much|a lot|very much|for your help|for the help|again|team|are you there)\W*){1,5}$",
    r"^\W*(?:(?:你好|您好|大家好|嗨|哈喽|在吗|在么|早上好|下午好|晚上好|早安?|晚安|谢谢|多谢|感谢|辛苦了?|"
    r"再见|拜拜|好的?|明白|收到|"
    r"你|您|啊|呀|了|吗|帮忙|帮助|的)\W*){1,5}$",
)
_SELF = _any(
    r"\b(?:who|what) (?:are|made) you\b|\bwhat (?:can|could|else can) (?:you|i ask)\b|\byou(?:'re|"
    r" are)? (?:able to|capable)",
    r"\bwhat (?:do|could|would) you (?:do|know|see|offer|support|need)\b|\bhow (?:can|do|"
    r"should) (?:you help|i use you|i ask you|you work)\b",
    r"\b(?:are|aren't) you (?:an? |the |real|human|there|able|using|connected)|\b(?:can|"
    r"could) i ask (?:you )?(?:\W|$|about)",
    r"\byour (?:name|capabilit|abilit|feature|limit|function|purpose|data|knowledge|source|model)|"
    r"\bintroduce yourself\b|^\W*help\W*$",
    r"\bthis (?:assistant|bot|system|tool|service)\b.*\b(?:do|for|work|capab)|\b(?:questions?|"
    r"things?) (?:can|could|may|should) i ask\b",
    r"\bdo you (?:have|know|support|understand|speak|use|remember)\b|\byou have access\b|"
    r"\bcan you (?:access|query|search|read|reach|speak|see)\b",
    r"你是(?!说|指)|你叫|你(?:能|会|可以|可)(?:不能|不可以)?(?:做|干|查|看到|看哪|访问|回答|帮(?:我|我们|"
    r"忙)?(?:做|干)?(?:什么|啥|哪些))|你会(?:什么|说|用)",
    r"你(?:这里?|那里?|都|也)?(?:有|支持|接了?|接入|连|知道|懂|认识|了解|用的?是|记得)|(?:向|问|使用|用|"
    r"跟|和)你|你的(?:名字|能力|功能|知识|数据|模型)",
    r"(?:介绍|说说)(?:一下)?(?:你|自己)|^\W*帮助\W*$|(?:这个|本)(?:助手|系统|工具|机器人)(?:能|可以|会|"
    r"有什么|是做|是干)|你是人还是",
)
_THINGS = (
    r"(?:log |logging |data ?|knowledge )?(?:topics?|sources?|datasources?|databases?|tables?|documents?|"
    r"runbooks?|logs|"
    r"playbooks?|manuals?|bases?)"
)
_DINGE = r"(?:日志)?(?:主题|数据源|数据库|数据表|表|文档|手册|知识库|预案|日志|资料)"
_INVENTORY = _any(
    rf"\b(?:which|what|list|show(?: me)?)(?: all| are| of)*(?: the| your| available| existing)* {_THINGS}"
    r"(?: and \w+)?(?: do you| can you| are (?:there|available|known|configured|connected|indexed)| exist|"
    r" you (?:have|know|can)|"
    r" does (?:the )?[\w\-]+ (?:database|datasource|source) have|\W*$)",
    rf"\bhow many {_THINGS} (?:do you|are there|exist|are (?:indexed|known))|\b(?:is|are) (?:the |"
    rf"any )?(?:\w+ )?{_THINGS} (?:connected|configured|indexed|available)",
    rf"(?:有|接入了?|接了|配置了?|支持|收录了?|连了?|能查|可以查|能看|可查|知道)(?:哪些|什么|多少(?:个|份|"
    rf"篇|张)?){_DINGE}(?!里|中)",
    rf"(?:列出|看看|告诉我)(?:一下)?(?:所有|全部|现有|可用)的?{_DINGE}",
    rf"(?:有|能查|可以查|能看)(?:哪些|什么)可(?:用|查)的?{_DINGE}|{_DINGE}里?(?:都)?有(?:哪些|多少|"
    rf"什么)(?:内容|东西)?[??]?\W*$",
    r"(?:能|可以)(?:查|看|访问)(?:哪些|什么)(?:东西|内容|系统)?\W*$",
)
_FOLLOW_UP = _any(
    r"^\W*(?:what|how) about\b|^\W*and (?:what|the|in|on|for|now)\b|^\W*(?:it is|it's|that was|this is) ",
    r"^\W*(?:那么?|还有|另外|再|继续|换成|改成|接着)|呢[??]?\W*$",
)
_CAUSE = _any(
    r"\bwhy\b|\bwhat (?:happened|went wrong|broke|caused?)\b|\broot cause\b",
    r"为什么|为何|为啥|怎么回事|怎么(?:了|会|突然|这么|老|又|还|不|没|总|一直)|什么原因|啥原因|"
    r"出了什么(?:问题|事)|发生了什么",
)
_FIND_OUT = _any(
    r"\bwhat(?:'s| is| was) (?:wrong|going on|happening|broken|causing|the (?:root )?cause)\b|"
    r"\breason (?:for|of|behind)\b"
    r"|\bdiagnos|\binvestigat|\btroubleshoot (?:the|this|our)\b|\bdid (?:any|some)\w*\b",
    r"原因是|的原因|根因|是不是(?:挂|坏|崩|宕)|(?:诊断|排查|查|看|分析)一?下|帮(?:我|忙)?(?:看|查|排查|分析|诊断)",
    r"\b(?:show|find|search|look|check|count|list|any|how many|are there|which)\b.*\b(?:errors?|"
    r"exceptions?|failures?|warnings?|events|"
    r"failed|slow queries|evicted|killed|crashed|5\d\d)\b",
    r"\bwhat(?:'s| is| are) the (?:state|status|error rate|latency|load|number|issues?|problems?|matter)\b",
    r"(?:有没有|是否有|多少条?|统计|查询|搜索|哪些)(?:[^。??,，]{0,12})(?:报错|错误|异常|失败|告警|慢查询|超时)",
)
_HAPPENED = _any(
    r"\b(?:today|yesterday|tonight|last (?:night|hour|week|friday)|this (?:morning|afternoon|evening)|"
    r"since|right now|just now|currently|"
    r"suddenly|started|\d+ (?:minutes?|hours?|days?) ago)\b|\b\d{1,2}:\d{2}\b|\b\d{4}-\d{2}-\d{2}\b|"
    r"\bat \d{1,2} ?(?:am|pm)\b",
    r"今天|昨天|昨晚|今早|今晚|凌晨|刚刚|刚才|目前|现在|突然|最近|\d+ ?点|分钟前|小时前|自从|开始(?:报|出|"
    r"变|失|超)|一直(?:在|报|失)|正在|挂了|崩了|宕了|炸了|突增|飙升|暴涨|掉线了",
    r"^(?!\W*(?:who|what|how|when|where)\b).*\b(?:is|are|was|were|keeps?|has been|have been) (?:down|slow|"
    r"failing|broken|stuck|unreachable|unavailable|"
    r"timing out|crash\w*|restarting|returning|throwing|being (?:killed|evicted|rejected))\b",
)
_HOW = _any(
    r"^\W*how (?!many\b|much\b|long (?:has|have|was|were)\b|about\b)|\bhow (?:do|to|can|could|should|"
    r"would|is|are|often)\b|\bsteps?\b",
    r"\bwhat (?:should|must|do) (?:i|we|one) (?:do|check|look at)\b|\bprocedure\b|\bbest practice|"
    r"\bguide(?:line)?s? (?:to|for|on)\b",
    r"\b(?:run|play)book\b|\baccording to the (?:docs?|documents?|documentation|manual)\b|"
    r"\bdocumentation\b|\bwho (?:should|do|must|can) (?:i|we)\b",
    r"如何|怎么(?!回事|了|会|突然|这么|老|又|还|不|没|总|一直)|怎样|步骤|流程|手册|文档(?:里|中)|预案|"
    r"规范|最佳实践|指南|按照?(?:文档|手册)|SOP",
    r"(?:需要|应该|应|该|要)(?:找?谁|做哪些|做什么|先做|注意|检查(?:什么|哪些))|(?:在)?(?:哪里|哪儿)(?:改|"
    r"配|设|看|查|申请)",
)
_WHAT = _any(
    r"^\W*what (?:is|are|does)\b|\bwhat(?:'s| is) (?:an? |the )?(?:meaning|definition|difference|purpose|threshold)\b"
    r"|\bmeaning of\b|\bdifferences? between\b|^\W*(?:explain|define|describe)\b|^\W*what's (?:an? )",
    r"^\W*when (?:should|does|is|do)\b|\bwhere (?:is|are|can i find) .*(?:documented|described)\b",
    r"是(?:什么|啥)(?:意思|含义|东西)?[??]?\W*$|什么是|(?:什么|啥)意思|含义|的?(?:区别|定义|作用|阈值)|"
    r"(?:代表|表示|意味着?|说明)(?:了)?什么|是(?:干|做)(?:什么|啥|嘛)|"
    r"何时(?:触发|告警)|什么(?:时候|情况下)(?:会|该|要)?(?:触发|告警|需要)?|解释(?:一下)?|有哪些(?:策略|"
    r"方法|方式|类型|参数|指标)",
)


def route(question: str, view: Mapping[str, Any] | None = None, previous: Mapping[str, Any] | None = None) -> Intent:
    """Route one question; `view` names what the system knows, `previous` is what the session's last "
    "diagnosis published.
    """
    text = " ".join(question.split())
    if not text or _GREETING.search(text) or _SELF.search(text):
        return Intent.SYSTEM_CHAT
    asked, how, happened = bool(_FIND_OUT.search(text)), bool(_HOW.search(text)), bool(_HAPPENED.search(text))
    if _CAUSE.search(text):
        return Intent.DIAGNOSIS
    if _INVENTORY.search(text) and not asked:
        return Intent.SYSTEM_CHAT
    if (previous and is_follow_up(text)) or happened or (asked and not how):
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
