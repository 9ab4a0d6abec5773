"""Which encoding a log file is in that is not what it was said to be: judged by its non-ASCII lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

GB18030 = "gb18030"
UNKNOWN = "unknown"
_PAIR = re.compile(rb"[\xa1-\xf7][\xa1-\xfe]")
"""Chinese text and its punctuation is nearly all of this; in Latin-1 words high bytes stand alone."""
_HIGH = re.compile(rb"[\x80-\xff]")
_GB_SHARE = 0.7


def guess(parts: Iterable[bytes]) -> str | None:
    """Say what the sampled parts of a file are when most of their non-ASCII lines are no UTF-8; None when they are.

    The answer is GB18030 (which covers GBK and GB2312) or UNKNOWN.
    """
    fitting = 0
    others: list[bytes] = []
    for part in parts:
        for line in [] if part.isascii() else part.split(b"\n"):
            if line.isascii():
                continue
            if _decodes(line, "utf-8"):
                fitting += 1
            else:
                others.append(line)
    if len(others) <= fitting:
        return None
    text = b"\n".join(others)
    pairs, high = len(_PAIR.findall(text)), len(_HIGH.findall(text))
    chinese = 2 * pairs >= _GB_SHARE * high and sum(_decodes(line, GB18030) for line in others) >= 0.9 * len(others)
    return GB18030 if chinese else UNKNOWN


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
