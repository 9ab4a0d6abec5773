"""Words of a text as the lexical index knows them, English and Chinese (design.md, "Engines"). Pure.

Chinese runs are cut by jieba in search mode; other words are lower-cased and stemmed. An identifier is indexed whole
and in its parts: `CrashLoopBackOff` is `crashloopbackoff`, `crash`, `loop`, `back`, `off`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import rjieba
import snowballstemmer

from tools.rag.circumstances import without_circumstances
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


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query's distinct terms in order: `judged` is what a text should cover, `ranked` what BM25 adds up.

    `ranked` holds an identifier's parts without the whole: counted both ways, one identifier would outweigh every other
    word of the query.
    """

    judged: tuple[str, ...]
    ranked: tuple[str, ...]


def query_terms(text: str) -> QueryTerms:
    """Return the terms of a query, without its circumstances, and without stop words unless nothing else is there."""
    words = _WORD.findall(without_circumstances(unicodedata.normalize("NFKC", text)))
    telling = [word for word in words if word.lower() not in STOP_WORDS]
    per_word = [
        [term for term in _terms_of(word) if term not in STOP_WORDS or not _is_han(term[0])] for word in telling
    ]
    if not any(per_word):
        per_word = [list(_terms_of(word)) for word in words]
    return QueryTerms(
        judged=tuple(dict.fromkeys(chain.from_iterable(per_word))),
        ranked=tuple(dict.fromkeys(chain.from_iterable(_without_whole(terms) for terms in per_word))),
    )


def _without_whole(terms: list[str]) -> list[str]:
    """Leave out an identifier's whole; Chinese words and single words are returned as they are."""
    return terms[1:] if len(terms) > 1 and not _is_han(terms[0][0]) else terms


def _terms_of(word: str) -> tuple[str, ...]:
    if _is_han(word[0]):
        return tuple(piece[:MAX_TERM_CHARS] for piece in rjieba.cut_for_search(word))
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
