"""From a raw result to the bounded, masked `agent_result`, and on to what the model sees (R51, R52, R55). Pure."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pydantic import Field, ValidationError

from tools.contract import MAX_OBSERVATION_BYTES, ContractModel, EvidenceStatus, Scope
from tools.evidence_tool import FactView, ObservationContractViolation
from tools.masking import MASK, is_secret_name, mask_text
from tools.mysql.values import JsonScalar, QueryResult

MAX_ROWS_SHOWN = 20
MAX_COLUMNS_SHOWN = 30
MAX_CELL_CHARS = 200
MAX_FACTS = 5
MAX_EXCERPT_CHARS = 300
MAX_SCOPE_BYTES = 2 * 1024
_FRAME_BYTES = 512
_SCOPE_STEPS = ((1_000, 100), (500, 40), (250, 12), (100, 4))
_CELL_STEPS = (MAX_CELL_CHARS, 100, 50, 20, 8)
_NAME_STEPS = (64, 32, 16, 8)
_MAX_NAMES_BYTES = 1_500


class MysqlQueryResponse(ContractModel):
    """The business response (`agent_result`): everything a model may see or quote of a result.

    `rows` hold one cell per column; `returned` counts the rows of the bounded raw result, shown or not.
    """

    datasource: str
    columns: list[str] = Field(max_length=MAX_COLUMNS_SHOWN)
    rows: list[list[JsonScalar]] = Field(max_length=MAX_ROWS_SHOWN)
    returned: int = Field(ge=0)
    truncated: bool


def build_response(scope: Scope, result: QueryResult, secret: Collection[int]) -> MysqlQueryResponse:
    """Mask and bound a raw result: 20 rows x 30 columns x 200 characters, and with its scope within 8 KiB.

    `secret` are the positions of columns to mask whole.
    """
    columns = _fit_names([mask_text(name) for name in result.columns[:MAX_COLUMNS_SHOWN]])
    rows = [
        [_masked(cell, index in secret) for index, cell in enumerate(row[:MAX_COLUMNS_SHOWN])]
        for row in result.rows[:MAX_ROWS_SHOWN]
    ]
    truncated = result.truncated or len(rows) < len(result.rows) or len(columns) < len(result.columns)
    shown_scope, _ = _bounded_scope(scope.normalized)
    shown, cut = _fit(rows, MAX_OBSERVATION_BYTES - _FRAME_BYTES - _size(shown_scope) - _size(columns))
    return MysqlQueryResponse(
        datasource=shown_scope["datasource"],
        columns=columns,
        rows=shown,
        returned=len(result.rows),
        truncated=truncated or cut,
    )


def _masked(cell: JsonScalar, secret: bool) -> JsonScalar:
    if cell is None:
        return None
    if secret:
        return MASK
    return mask_text(cell) if isinstance(cell, str) else cell


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _fit_names(names: list[str]) -> list[str]:
    for limit in _NAME_STEPS:
        names = [str(_cut(name, limit)) for name in names]
        if _size(names) <= _MAX_NAMES_BYTES:
            break
    return names


def _fit(rows: list[list[JsonScalar]], space: int) -> tuple[list[list[JsonScalar]], bool]:
    """Drop rows from the end, and below one row shorten cells, until the rows fit; say whether anything was cut."""
    bounded = [[_cut(cell, MAX_CELL_CHARS) for cell in row] for row in rows]
    cut = bounded != rows
    while len(bounded) > 1 and _size(bounded) > space:
        bounded, cut = bounded[:-1], True
    for limit in _CELL_STEPS:
        if _size(bounded) <= space:
            break
        bounded, cut = [[_cut(cell, limit) for cell in row] for row in bounded], True
    return bounded, cut


def _cut(cell: JsonScalar, limit: int) -> JsonScalar:
    return cell[: limit - 1] + "…" if isinstance(cell, str) and len(cell) > limit else cell


def read_response(agent_result: dict[str, Any]) -> MysqlQueryResponse:
    """Read an `agent_result` back. Raises ObservationContractViolation when it is not what this tool makes."""
    try:
        response = MysqlQueryResponse.model_validate(agent_result, strict=True)
    except ValidationError:
        raise ObservationContractViolation("mysql agent_result") from None
    if any(len(row) != len(response.columns) for row in response.rows):
        raise ObservationContractViolation("mysql agent_result")
    return response


def evidence_status(response: MysqlQueryResponse) -> EvidenceStatus:
    """Rows are evidence, no rows are none; what a row means is the model's to judge."""
    return EvidenceStatus.EVIDENCE_FOUND if response.returned else EvidenceStatus.NO_EVIDENCE


def project(tool_call_id: str, scope: Scope, response: MysqlQueryResponse) -> dict[str, Any]:
    """Serialize the whitelist: id, scope, columns, rows, status, truncated.

    Raises ObservationContractViolation over 8 KiB.
    """
    shown_scope, cut = _bounded_scope(scope.normalized)
    observation: dict[str, Any] = {
        "tool_call_id": tool_call_id,
        "scope": shown_scope,
        "columns": response.columns,
        "rows": response.rows,
        "evidence_status": evidence_status(response).value,
        "truncated": response.truncated or cut,
    }
    if _size(observation) > MAX_OBSERVATION_BYTES:
        raise ObservationContractViolation("mysql observation over 8 KiB")
    return observation


def _bounded_scope(normalized: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    sql, params = str(normalized.get("sql", "")), list(normalized.get("params", ()))
    shown: dict[str, Any] = {}
    for sql_chars, param_chars in _SCOPE_STEPS:
        shown = {
            "datasource": str(normalized.get("datasource", ""))[:64],
            "sql": _cut(sql, sql_chars),
            "params": [_cut(value, param_chars) for value in params],
        }
        if _size(shown) <= MAX_SCOPE_BYTES:
            break
    return shown, shown["sql"] != sql or shown["params"] != params


def facts(response: MysqlQueryResponse) -> tuple[FactView, ...]:
    """One excerpt per row, `column=value` joined by commas; nothing of masked cells (R66)."""
    views = []
    for row in response.rows[:MAX_FACTS]:
        cells = [
            f"{name}={'NULL' if cell is None else cell}"
            for name, cell in zip(response.columns, row, strict=True)
            if cell != MASK and not is_secret_name(name)
        ]
        if cells:
            views.append(FactView(excerpt=", ".join(cells)[:MAX_EXCERPT_CHARS]))
    return tuple(views)
