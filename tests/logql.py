"""An evaluator for LogQL log queries: stream selector, line filters, label filters; written from Loki's documentation.

Regular expressions are RE2, as in Loki: unanchored for lines, anchored for labels. A label that is absent is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import re2

Labels = Mapping[str, str]
Test = Callable[[str, Labels], bool]
_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:[^\"\\\n]|\\.)*\"|`[^`]*`)|(?P<sign>\|=|\|~|!=|!~|=~|[{}(),|=])|(?P<name>[A-Za-z_]\w*))"
)


class ParseError(Exception):
    """The query is no LogQL; `str()` is what Loki answers."""


@dataclass(frozen=True)
class LogQuery:
    selects: Callable[[Labels], bool]
    tests: tuple[Test, ...]

    def passes(self, line: str, labels: Labels) -> bool:
        return self.selects(labels) and all(test(line, labels) for test in self.tests)


def parse(text: str) -> LogQuery:
    return _Parser(text).query()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str, int]] = []
        self.at = 0
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise ParseError(f"parse error at line 1, col {at + 1}: syntax error: unexpected character")
            self.tokens.append((match.lastgroup or "", match.group(match.lastgroup or 0), match.start() + 1))
            at = match.end()

    def query(self) -> LogQuery:
        selects = self._selector()
        tests: list[Test] = []
        while self.at < len(self.tokens):
            kind = self._take("sign")
            if kind in ("|=", "!=", "|~", "!~"):
                tests.append(_line_test(kind, self._string()))
            elif kind == "|":
                tests.append(self._either())
            else:
                self._fail()
        return LogQuery(selects, tuple(tests))

    def _selector(self) -> Callable[[Labels], bool]:
        self._sign("{")
        matchers = [self._comparison()]
        while self._peek() == ",":
            self.at += 1
            if self._peek() == "}":
                break
            matchers.append(self._comparison())
        self._sign("}")
        if all(matcher("", {}) for matcher in matchers):
            raise ParseError(
                "parse error : queries require at least one regexp or equality matcher that does not have an "
                'empty-compatible value. For instance, app=~".*" does not meet this requirement, but app=~".+" will'
            )
        return lambda labels: all(matcher("", labels) for matcher in matchers)

    def _either(self) -> Test:
        tests = [self._both()]
        while self._peek() == "or":
            self.at += 1
            tests.append(self._both())
        return lambda line, labels: any(test(line, labels) for test in tests)

    def _both(self) -> Test:
        tests = [self._primary()]
        while self._peek() == "and":
            self.at += 1
            tests.append(self._primary())
        return lambda line, labels: all(test(line, labels) for test in tests)

    def _primary(self) -> Test:
        if self._peek() != "(":
            return self._comparison()
        self.at += 1
        inner = self._either()
        self._sign(")")
        return inner

    def _comparison(self) -> Test:
        name, operator, value = self._take("name"), self._take("sign"), self._string()
        if operator in ("=", "!="):
            return lambda line, labels: (labels.get(name, "") == value) == (operator == "=")
        if operator not in ("=~", "!~"):
            self._fail()
        pattern = _compile(value)
        return lambda line, labels: (pattern.fullmatch(labels.get(name, "")) is not None) == (operator == "=~")

    def _peek(self) -> str | None:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def _take(self, kind: str) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != kind:
            self._fail()
        self.at += 1
        return self.tokens[self.at - 1][1]

    def _sign(self, sign: str) -> None:
        if self._take("sign") != sign:
            self.at -= 1
            self._fail()

    def _string(self) -> str:
        text = self._take("string")
        return text[1:-1] if text[0] == "`" else str(json.loads(text, strict=False))

    def _fail(self) -> None:
        if self.at >= len(self.tokens):
            raise ParseError("parse error : syntax error: unexpected $end")
        _, text, column = self.tokens[self.at]
        raise ParseError(f"parse error at line 1, col {column}: syntax error: unexpected {text[:20]}")


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ParseError(f"parse error : error parsing regexp: {error}") from None


def _line_test(operator: str, value: str) -> Test:
    if operator in ("|=", "!="):
        return lambda line, labels: (value in line) == (operator == "|=")
    pattern = _compile(value)
    return lambda line, labels: (pattern.search(line) is not None) == (operator == "|~")
