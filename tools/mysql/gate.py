"""The fail-closed SQL gate (R121-R123): one text in, one verdict out. Pure, apart from the command at the end.

`python -m tools.mysql.gate --tables a,b,c` reads JSON lines with `sql` and writes `{"sql","verdict","rule"}` lines in order.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tools.mysql.contract import GateRule, GateVerdict
from tools.mysql.lexical import GateRefusal, Kind, tokenize
from tools.mysql.shape_rules import check_shape
from tools.mysql.token_rules import check_tokens
from tools.mysql.tree_rules import check_tree, parse

HINTS: dict[GateRule, str] = {
    GateRule.BAD_INPUT: 'a JSON object with a text under "sql"',
    GateRule.EMPTY: "one SELECT statement",
    GateRule.TOO_LONG: "at most 4000 characters",
    GateRule.CONTROL_CHARACTER: "printable characters, tab and newline",
    GateRule.NON_ASCII: "outside literals ASCII only; write other names in backticks",
    GateRule.COMMENT: "no comments and no -- # /* outside literals",
    GateRule.DOUBLE_QUOTE: "strings in '...', names in `...`",
    GateRule.BACKSLASH: "no backslash; a quote in a string is written ''; bind other values with ? in params",
    GateRule.FORBIDDEN_CHARACTER: "outside literals letters, digits, _ and ( ) , . ; ? + - * / % = < > & | ^ ~",
    GateRule.DRIVER_PLACEHOLDER: "bind values with ?; put spaces around the modulo operator",
    GateRule.UNTERMINATED: "every ' and ` needs its end",
    GateRule.NAME_FORMAT: "name, `name` or table.column, without spaces around the dot",
    GateRule.NUMBER_FORMAT: "decimal numbers such as 5, 0.5 or 1e6, followed by a space or an operator",
    GateRule.LITERAL_POSITION: "a string stands after an operator, a comma, a parenthesis or a keyword; aliases need AS",
    GateRule.ADJACENT_LITERALS: "one string at a time; join strings with CONCAT",
    GateRule.SPACING: "a space between words, names, strings and numbers",
    GateRule.OPERATOR: "use OR and CONCAT for ||, NOT for !, = for ==, JSON_EXTRACT for ->",
    GateRule.MULTIPLE_STATEMENTS: "exactly one statement",
    GateRule.NOT_A_SELECT: "SELECT, WITH ... SELECT or UNION; tables and columns are in this tool's description",
    GateRule.KEYWORD: "reading clauses only; write a column of that name in backticks",
    GateRule.INTO_CLAUSE: "no INTO",
    GateRule.LOCK_CLAUSE: "no FOR and no LOCK; write SUBSTRING(text, start, length)",
    GateRule.SELECT_MODIFIER: "plain SELECT or SELECT DISTINCT",
    GateRule.RECURSIVE_CTE: "WITH without RECURSIVE",
    GateRule.PARTITION_CLAUSE: "no partition selection; PARTITION BY in a window is fine",
    GateRule.FUNCTION_NOT_ALLOWED: "common aggregate, window, text, number, date and JSON reading functions",
    GateRule.FUNCTION_FORM: "a built-in function as NAME(, unqualified, without backticks or a space",
    GateRule.PLACEHOLDER_POSITION: "? where a value stands, with spaces or operators around it",
    GateRule.TOO_COMPLEX: "at most 30 nested parentheses and a simpler statement",
    GateRule.PARSE_ERROR: "one well-formed MySQL SELECT; a subquery in FROM needs an alias, an outer join its ON",
    GateRule.TOKEN_MISMATCH: "plain spacing between words and operators",
    GateRule.NODE_NOT_ALLOWED: "joins, subqueries, WITH, UNION, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, windows",
    GateRule.SET_OPERATION: "UNION or UNION ALL",
    GateRule.TABLE_NOT_ALLOWED: "listed tables",
}
"""What to write instead, one bounded sentence per rule (R28)."""


@dataclass(frozen=True, slots=True)
class TableList:
    """Tables a text may read, as `table` or `schema.table`.

    Names are compared exactly: MySQL on Linux tells `Orders` from `orders`, so another case could be another table.
    SQLite does not, so its datasources set `case_sensitive=False`.
    """

    names: frozenset[str]
    case_sensitive: bool = True


@lru_cache(maxsize=128)
def judge(sql: str, tables: TableList) -> GateVerdict:
    """Judge one text. Never raises; what cannot be judged is refused. Remembers: one call is judged three times."""
    try:
        tokens = tokenize(sql)
        check_tokens(tokens)
        check_shape(tokens)
        read = check_tree(parse(sql, tokens), tables.names, tables.case_sensitive)
    except GateRefusal as refusal:
        return GateVerdict(rule=refusal.rule)
    except RecursionError:
        return GateVerdict(rule=GateRule.TOO_COMPLEX)
    except Exception:
        # Fail closed: whatever a parser may raise, the text was not understood.
        return GateVerdict(rule=GateRule.PARSE_ERROR)
    return GateVerdict(tables=read, placeholders=sum(token.kind is Kind.PARAM for token in tokens))


def judge_line(line: bytes, tables: TableList) -> dict[str, Any]:
    """Judge one JSON line of the command; `sql` is echoed as given, null where there is none."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    sql = data.get("sql") if isinstance(data, dict) else None
    verdict = judge(sql, tables) if isinstance(sql, str) else GateVerdict(rule=GateRule.BAD_INPUT)
    return {"sql": sql, "verdict": "allow" if verdict.allowed else "reject", "rule": verdict.rule}


def _report(lines: Iterable[bytes], tables: TableList) -> Iterator[str]:
    for line in lines:
        yield json.dumps(judge_line(line, tables))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when every line was judged."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mysql.gate", description="Judge SQL texts, one JSON line each."
    )
    parser.add_argument("--tables", required=True, help="comma-separated tables the texts may read")
    names = frozenset(name.strip() for name in parser.parse_args(argv).tables.split(",") if name.strip())
    for answer in _report(sys.stdin.buffer, TableList(names)):
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
