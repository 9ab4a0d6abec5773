"""The model-call ledger (R109-R116): rounds, audited calls, usage gaps and tokens per component. Pure frozen values."""

from __future__ import annotations

from pydantic import Field

from graph.contract import Component, GraphModel


class ComponentAccount(GraphModel):
    """What one component's calls came to. `rounds` numbers its calls from 1 (R110)."""

    rounds: int = 0
    usage_unavailable: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class ModelCallLedger(GraphModel):
    """Accounts by component; every attempt that was made is audited, also one without a response (R116)."""

    accounts: dict[Component, ComponentAccount] = Field(default_factory=dict)

    def next_round(self, component: Component) -> int:
        """Round the component's next call gets, once the budget let it pass (R110)."""
        return self._account(component).rounds + 1

    def with_call(self, component: Component, usage: tuple[int, int] | None) -> ModelCallLedger:
        """Register one attempt with its (input, output) tokens, or None where the provider told none (R112)."""
        before = self._account(component)
        after = ComponentAccount(
            rounds=before.rounds + 1,
            usage_unavailable=before.usage_unavailable + (usage is None),
            input_tokens=before.input_tokens + (usage[0] if usage else 0),
            output_tokens=before.output_tokens + (usage[1] if usage else 0),
        )
        return ModelCallLedger(accounts={**self.accounts, component: after})

    @property
    def usage_unavailable(self) -> int:
        """Attempts whose usage is unknown: a gap, never zero consumption (R116)."""
        return sum(account.usage_unavailable for account in self.accounts.values())

    @property
    def total_tokens(self) -> int:
        """Sum of all known usage."""
        return sum(account.input_tokens + account.output_tokens for account in self.accounts.values())

    def reconciled_with(self, budget_tokens: int) -> bool:
        """`tokens_reconciled`: the ledger equals the budget and no usage is unknown (R116)."""
        return self.total_tokens == budget_tokens and self.usage_unavailable == 0

    def _account(self, component: Component) -> ComponentAccount:
        return self.accounts.get(component, ComponentAccount())
