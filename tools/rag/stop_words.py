"""Words that say nothing about the subject of a question. They are indexed, but a query is judged without them."""

from __future__ import annotations

_ENGLISH = """
a about after all also am an and any are as at be because been before being but by can could did do does doing for from
get gets getting had has have having how i if in into is it its just keep keeps me my no not of on or our please s
should so some t than that the their them then there these they this to us very was we were what whats when where which
while who why will with would wrong you your
about ago am around approximately hour hours last minute minutes now pm recently since started today tonight until yesterday
"""
_CHINESE = """
的 了 是 在 和 与 或 及 也 都 就 还 又 很 吗 呢 吧 啊 把 被 给 让 对 从 到 向 于 为 以 而 但 并 等 这 那 这个 那个
我 我们 你 你们 他 它 它们 有 没 没有 不 一 个 一个 些 一些 什么 为什么 怎么 怎样 怎么办 怎么样 如何 哪 哪些 哪个
左右 前后 大约 大概 开始 以来 今天 昨天 昨晚 今早 刚才 刚刚 目前 现在 最近 突然 一直 上午 下午 凌晨 早上 晚上
请 请问 请教 会 能 可以 要 需要 应该 时 时候 之后 后 之前 上 下 里 中 原因 意思 办 帮 帮我 一下 处理 排查 解决 导致
"""
STOP_WORDS = frozenset(f"{_ENGLISH} {_CHINESE}".split())
