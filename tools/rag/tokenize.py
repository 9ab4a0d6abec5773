"""Words of a text as the lexical index knows them, English and Chinese (design.md, "Engines"). Pure.

Chinese runs are cut by jieba in search mode; other words are lower-cased and stemmed. An identifier is indexed whole
and in its parts: `CrashLoopBackOff` is `crashloopbackoff`, `crash`, `loop`, `back`, `off`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from itertools import chain

import rjieba
import snowballstemmer

from tools.rag.stop_words import STOP_WORDS

MAX_TERM_CHARS = 64
"""Longer words (hashes, base64) are cut: nobody types them, and they would fill the index."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_HAN}]+|[^\W{_HAN}]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\WA-Za-z\d_]+")
_STEMMER = threading.local()


def index_terms(text: str) -> list[str]:
    """Return the terms of `text` in order, repeats included; each is 1 to 64 letters or digits, lower-cased."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text))
    return list(chain.from_iterable(_terms_of(word) for word in words))


def query_terms(text: str) -> tuple[str, ...]:
    """Return the distinct terms a query is judged by, in order: without stop words unless nothing else is there."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text))
    terms = dict.fromkeys(
        term for word in words if word.lower() not in STOP_WORDS for term in _terms_of(word, STOP_WORDS)
    )
    return tuple(terms) or tuple(dict.fromkeys(index_terms(text)))


def _terms_of(word: str, leave_out: frozenset[str] = frozenset()) -> tuple[str, ...]:
    if _is_han(word[0]):
        pieces = rjieba.cut_for_search(word)
        return tuple(piece[:MAX_TERM_CHARS] for piece in pieces if piece not in leave_out)
    return _identifier_terms(word[:MAX_TERM_CHARS])


def _is_han(char: str) -> bool:
    return "\u3400" <= char <= "\u4dbf" or "\u4e00" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff"


@lru_cache(maxsize=65_536)
def _identifier_terms(word: str) -> tuple[str, ...]:
    """Give the whole word, stemmed, and its parts where it is made of several."""
    whole = _stem(word.replace("_", "").lower())
    parts = [_stem(part.lower()) for part in _PART.findall(word)]
    if len(parts) < 2:
        return (whole,) if whole else ()
    return tuple(term for term in (whole, *parts) if term)


def _stem(word: str) -> str:
    stemmer = getattr(_STEMMER, "english", None)
    if stemmer is None:  # a stemmer object keeps the word it works on, so each thread has its own
        stemmer = _STEMMER.english = snowballstemmer.stemmer("english")
    stemmed: str = stemmer.stemWord(word)
    return stemmed
