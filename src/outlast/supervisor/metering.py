"""What an agent spends, in money too: by the price of its model, or nothing at all where a subscription pays."""

import msgspec

from outlast.agents import Billing, Usage
from outlast.core import values
from outlast.errors import BadSetting
from outlast.runs import prices


class Meter:
    """Prices what one agent tells of its spending."""

    def __init__(self, billing: Billing = "unknown", model: str = "") -> None:
        self.used = ""  # the model that was last told of
        self.billing = billing
        self.unpriced = ""  # a model whose price nobody knows, if one was met
        self.model = model  # that the command names, where the agent tells of none

    def cost(self, told: Usage) -> values.Usage:
        """What one telling comes to. A price that the agent itself gives counts, but on a subscription nothing is paid."""
        return self.priced(told.model, told.values)

    def priced(self, model: str, spent: values.Usage) -> values.Usage:
        """The same, of what somebody else saw."""
        self.used = model or self.used
        if self.billing == "subscription":
            return msgspec.structs.replace(spent, cost_microusd=0, subscription=True)
        try:
            found = prices.priced(model or self.model, spent)
        except BadSetting:  # the list was spoilt while we worked: what was spent counts all the same
            found = msgspec.structs.replace(spent, unpriced=True)
        if found.unpriced:
            self.unpriced = model or self.model or "of unknown name"
        return found
