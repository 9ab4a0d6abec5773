"""Contract of the SQL gate (R121-R123): the stable names of its rules and its verdict."""

from __future__ import annotations

from enum import StrEnum

from tools.contract import ContractModel

MAX_SQL_CHARS = 4_000
"""Characters of one SQL text (R122)."""

MAX_PARAMS = 20
"""Values one request may bind (R125)."""


class GateRule(StrEnum):
    """Why a text was refused: the first rule that it breaks. `docs/sql-gate.md` has an example of each."""

    BAD_INPUT = "bad_input"
    """The line is not a JSON object with a text under `sql`."""
    EMPTY = "empty"
    """There is no statement."""
    TOO_LONG = "too_long"
    """The text is longer than 4,000 characters."""
    CONTROL_CHARACTER = "control_character"
    """A control or other unprintable character, tab and newline excepted."""
    NON_ASCII = "non_ascii"
    """A non-ASCII character outside literals and backticks."""
    COMMENT = "comment"
    """A comment or its marker outside literals and backticks."""
    DOUBLE_QUOTE = "double_quote"
    """A double quote outside literals: a string or a name, depending on the server's mode."""
    BACKSLASH = "backslash"
    """A backslash: an escape or a character, depending on the server's mode."""
    FORBIDDEN_CHARACTER = "forbidden_character"
    """A character that the subset does not use outside literals."""
    DRIVER_PLACEHOLDER = "driver_placeholder"
    """`%s` outside literals; only `?` binds a value."""
    UNTERMINATED = "unterminated"
    """A literal or a backticked name that does not end."""
    NAME_FORMAT = "name_format"
    """A name that readers could split differently: doubled backticks, a leading or spaced dot."""
    NUMBER_FORMAT = "number_format"
    """A number that is not plain decimal: hexadecimal, binary, a bare dot, a glued word."""
    LITERAL_POSITION = "literal_position"
    """A string after a word or value that would change its meaning: introducers, string aliases."""
    ADJACENT_LITERALS = "adjacent_literals"
    """Two strings in a row, which the server joins into one."""
    SPACING = "spacing"
    """Two words or values that touch each other."""
    OPERATOR = "operator"
    """An operator outside the subset or whose meaning depends on the server's mode."""
    MULTIPLE_STATEMENTS = "multiple_statements"
    """A semicolon other than one at the end."""
    NOT_A_SELECT = "not_a_select"
    """The first keyword is not SELECT, WITH or an opening parenthesis."""
    KEYWORD = "keyword"
    """A reserved word outside the subset."""
    INTO_CLAUSE = "into_clause"
    """INTO: a read that writes a file or a variable."""
    LOCK_CLAUSE = "lock_clause"
    """FOR or LOCK: row locks, historical reads, sequences."""
    SELECT_MODIFIER = "select_modifier"
    """SQL_NO_CACHE, HIGH_PRIORITY, STRAIGHT_JOIN and the like."""
    RECURSIVE_CTE = "recursive_cte"
    """WITH RECURSIVE: unbounded work."""
    PARTITION_CLAUSE = "partition_clause"
    """Selection of partitions; PARTITION BY of a window is fine."""
    FUNCTION_NOT_ALLOWED = "function_not_allowed"
    """A function that is not on the list."""
    FUNCTION_FORM = "function_form"
    """A call that could reach a stored function: qualified, backticked, or with a space before the parenthesis."""
    PLACEHOLDER_POSITION = "placeholder_position"
    """A `?` where no value can stand."""
    TOO_COMPLEX = "too_complex"
    """Nested deeper than 30 parentheses or too deep to analyse."""
    PARSE_ERROR = "parse_error"
    """The text is not one well-formed statement of the dialect."""
    TOKEN_MISMATCH = "token_mismatch"
    """The parser splits the text into other words than the gate."""
    NODE_NOT_ALLOWED = "node_not_allowed"
    """A construct outside the subset."""
    SET_OPERATION = "set_operation"
    """EXCEPT or INTERSECT; only UNION is in the subset."""
    TABLE_NOT_ALLOWED = "table_not_allowed"
    """A table that the datasource does not list."""


class GateVerdict(ContractModel):
    """What the gate says of one text. `rule` is None when it is allowed.

    `tables` are the listed tables it reads, in order of appearance; `placeholders` counts its `?`.
    """

    rule: GateRule | None = None
    tables: tuple[str, ...] = ()
    placeholders: int = 0

    @property
    def allowed(self) -> bool:
        """True when no rule was broken."""
        return self.rule is None
