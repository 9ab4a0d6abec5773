"""What a Run has spent so far, as its record, its outcome and its end event tell it (R108, R115, R116). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graph.ledger import ModelCallLedger
from graph.state import load_budget, load_ledger


def usage_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Read the totals of budget and ledger; unknown usage is counted as a gap, never as zero tokens."""
    budget, ledger = load_budget(state), load_ledger(state)
    return {
        "model_calls": budget.model_calls,
        "tool_calls": budget.tool_calls,
        "observation_bytes": budget.observation_bytes,
        "total_tokens": budget.tokens,
        "ledger_total_tokens": ledger.total_tokens,
        "usage_unavailable": ledger.usage_unavailable,
        "tokens_reconciled": ledger.reconciled_with(budget.tokens),
        "components": _components(ledger),
    }


def end_fields(usage: dict[str, Any]) -> dict[str, Any]:
    """Return the totals as RUN_ENDED carries them (R108)."""
    return {
        "budget_total_tokens": usage["total_tokens"],
        "ledger_total_tokens": usage["ledger_total_tokens"],
        "model_calls": usage["model_calls"],
        "tool_calls": usage["tool_calls"],
        "usage_unavailable": usage["usage_unavailable"],
        "tokens_reconciled": usage["tokens_reconciled"],
    }


def _components(ledger: ModelCallLedger) -> dict[str, int]:
    return {component.value: account.rounds for component, account in ledger.accounts.items()}
