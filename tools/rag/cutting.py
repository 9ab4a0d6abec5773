"""Shortening Markdown without leaving half a check behind. Pure."""

from __future__ import annotations

from tools.rag.chunks import CHECK_LANGUAGES
from tools.rag.markdown import fences


def cut_markdown(text: str, chars: int) -> str:
    """Return at most `chars` characters of `text`, ending at a line where one ends in the last third.

    A `logs` or `mysql` block that would be cut is left out whole: half a check is a wrong check.
    """
    if len(text) <= chars:
        return text
    cut = text[:chars]
    line_end = cut.rfind("\n")
    if text[chars] != "\n" and line_end > chars * 2 // 3:
        cut = cut[:line_end]
    for fence in fences(text):
        if fence.start < len(cut) < fence.end and fence.language in CHECK_LANGUAGES:
            cut = cut[: fence.start]
    return cut.rstrip()
