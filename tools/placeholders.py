"""Words that stand for the varying parts of a text, as in `took <num> ms`. A template is no quotable line. Pure."""

from __future__ import annotations

import re

NUM = "<num>"
HEX = "<hex>"
IP = "<ip>"
ANY = "<*>"
OTHER = "<other patterns>"
"""Stands alone for everything that is not listed."""

_PLACEHOLDER = re.compile("|".join(re.escape(word) for word in (NUM, HEX, IP, ANY, OTHER)))


def is_verbatim(text: str) -> bool:
    """Say whether a text holds no placeholder."""
    return _PLACEHOLDER.search(text) is None


def verbatim_pieces(template: str) -> list[str]:
    """Return what stands between the placeholders: pieces of the text as it was written, none empty.

    A template without placeholders is one piece, the text itself.
    """
    return [piece for piece in _PLACEHOLDER.split(template) if piece.strip()]
