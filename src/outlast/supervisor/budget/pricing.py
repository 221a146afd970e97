"""An agent's spending in money: by the price of its model, or nothing if a subscription pays."""

from collections.abc import Sequence
from datetime import UTC, date, datetime

import msgspec

from outlast.agents import Billing
from outlast.agents.events import ModelCost, UsageReport
from outlast.agents.values import Ask, Payment
from outlast.core import values
from outlast.errors import BadSetting
from outlast.operations import prices
from outlast.runs.budget import Meter

BILL = "the agent's own bill"  # the key under which its difference is counted


class Pricing:
    """Prices the usage that one agent reports."""

    def __init__(self, payment: Payment = "unknown", model: str = "") -> None:
        self.used = ""  # the model that was last told of
        self.payment = payment
        self.unpriced = ""  # a model whose price nobody knows, if one was met
        self.model = model  # that the command names, where the agent tells of none
        self._tokens: dict[str, int] = {}  # that were priced, by the key of each telling

    def learn(self, billing: Billing, ask: Ask) -> None:
        """Learn who pays for this start of an agent, and for which model."""
        self.payment = billing.payment(ask)
        self.model = billing.model(ask.words, ask.environment, ask.cwd)

    def cost(self, report: UsageReport) -> values.Usage:
        """The cost of one report. A price that the agent itself gives counts; on a subscription nothing is paid."""
        return self.priced(report.model, report.values, report.key)

    def priced(self, model: str, spent: values.Usage, key: str) -> values.Usage:
        """The same for tokens that another source counted."""
        self.used = model or self.used
        self._tokens[key] = spent.tokens
        if self.payment == "subscription":
            return msgspec.structs.replace(spent, cost_microusd=0, subscription=True)
        try:
            found = prices.priced(model or self.model, spent, _today())
        except BadSetting:  # the list was spoilt while we worked: what was spent counts all the same
            found = msgspec.structs.replace(spent, unpriced=True)
        if found.unpriced:
            self.unpriced = model or self.model or "of unknown name"
        return found

    def settle(self, bill: Sequence[ModelCost], meter: Meter) -> None:
        """The agent's own bill counts: its difference from our prices goes to the beat in flight.

        No event takes money back, so a lower bill takes back at most the cost of that beat.
        """
        differs = self.correction(bill)
        if differs:
            meter.count(BILL, values.Usage(cost_microusd=max(differs, -meter.unsettled().cost_microusd)))

    def correction(self, bill: Sequence[ModelCost]) -> int:
        """The difference in micro-dollars between the agent's own bill and our price of its tokens.

        Some agents bill the process, some the whole session with its earlier processes. So the bill is compared with our
        price of the tokens that the bill itself names, and only the share that was counted here is taken.
        """
        billed = sum(each.usage.tokens for each in bill)
        if self.payment == "subscription" or not billed:
            return 0
        differs = sum(each.usage.cost_microusd - _at_our_price(each) for each in bill)
        return differs * min(billed, sum(self._tokens.values())) // billed


def _at_our_price(each: ModelCost) -> int:
    """Our own price of a bill. A bill sums many requests, so its size chooses no tier; without a price it is nothing."""
    try:
        price = prices.of(each.model, _today())
    except BadSetting:
        return 0
    return price.untiered().cost(each.usage) if price is not None else 0


def _today() -> date:
    return datetime.now(UTC).date()
