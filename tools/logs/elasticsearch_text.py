"""Words as `query_string` text: the runs of a term, and how one run is written. Pure."""

from __future__ import annotations

from tools.logs.match import is_whole_number
from tools.logs.query import Term

MAX_RUN_CHARS = 100
_DECADES = 13
_CJK = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7A3))
_CYRILLIC = (0x0400, 0x052F)


def run_text(run: str, term: Term, by_key: bool) -> str:
    """Write one run: inside a term, or as the field's own analysis sees it, or as the beginning of a number."""
    text = f"{inside(run)} OR {quoted(run)}"
    if not is_whole_number(term) or len(term.parts) == 1:
        return text
    if [part for part in term.parts if part] == [term.parts[0]]:
        return f"{text} OR {_numbers_from(int(run))}"
    return f"{text} OR [* TO *]" if by_key else text


def _numbers_from(start: int) -> str:
    """Write the numbers that begin with the digits of `start` as ranges."""
    tens = (10**power for power in range(_DECADES))
    return " OR ".join(f"[{start * ten} TO {(start + 1) * ten}}}" for ten in tens)


def runs_of(text: str) -> list[str]:
    """Cut text into stretches that every usual analysis keeps together; ideographs stand alone."""
    runs: list[str] = []
    joined = False
    for char in text:
        cjk = any(first <= ord(char) <= last for first, last in _CJK)
        letter = (char.isascii() and char.isalnum()) or _CYRILLIC[0] <= ord(char) <= _CYRILLIC[1]
        if cjk or (letter and not joined):
            runs.append(char)
        elif letter and len(runs[-1]) < MAX_RUN_CHARS:
            runs[-1] += char
        joined = letter
    return runs


def both_cases(run: str) -> str:
    """Write a run as a regular expression that ignores case."""
    return "".join(f"[{char.lower()}{char.upper()}]" if char.lower() != char.upper() else char for char in run)


def inside(run: str) -> str:
    """Write a run that may stand anywhere in a term of the index."""
    return f"/.*{both_cases(run)}.*/"


def quoted(text: str) -> str:
    """Write text as it is; the field's own analysis sees it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
