"""What an agent says itself that it cost, beside what its tokens cost by our list."""

from datetime import UTC, datetime

from outlast.agents import ModelCost, UsageReport
from outlast.core import values
from outlast.operations import prices
from outlast.supervisor.budget.meter import BILL, Meter

MODEL = "claude-opus-4-8"


class Beat:
    """The beat in flight, as `Calls` keeps it."""

    def __init__(self) -> None:
        self.spent: dict[str, values.Usage] = {}

    def usage(self, key: str, spent: values.Usage) -> None:
        self.spent[key] = spent

    def unsettled(self) -> values.Usage:
        total = values.Usage()
        for each in self.spent.values():
            total = total.plus(each)
        return total


def told(model: str, *tokens: int) -> tuple[Meter, Beat]:
    """An agent that told of responses with so many tokens of input."""
    meter, beat = Meter("api"), Beat()
    for number, count in enumerate(tokens):
        for _ in range(2):  # a line for each block of one response: it counts once
            response = UsageReport(values.Usage(input=count), "response", f"msg_{number}", model)
            beat.usage(response.key, meter.cost(response))
    return meter, beat


def bill(tokens: int, cost_microusd: int, model: str = MODEL) -> tuple[ModelCost, ...]:
    return (ModelCost(model, values.Usage(input=tokens, cost_microusd=cost_microusd)),)


def ours(tokens: int) -> int:
    price = prices.of(MODEL, datetime.now(UTC).date())
    assert price is not None
    return price.cost(values.Usage(input=tokens))


def test_a_bill_that_agrees_with_our_prices_changes_nothing() -> None:
    meter, beat = told(MODEL, 1_000, 2_000)
    meter.settle(bill(3_000, ours(3_000)), beat)
    assert BILL not in beat.spent


def test_of_a_model_without_a_price_the_bill_is_what_counts() -> None:
    meter, beat = told("claude-of-tomorrow", 1_000, 2_000)
    assert beat.unsettled().cost_microusd == 0
    meter.settle(bill(3_000, 45_000, "claude-of-tomorrow"), beat)
    assert beat.unsettled().cost_microusd == 45_000


def test_a_bill_above_or_below_our_prices_is_what_counts() -> None:
    for billed in (ours(3_000) + 5_000, ours(3_000) - 5_000, 1):
        meter, beat = told(MODEL, 1_000, 2_000)
        meter.settle(bill(3_000, billed), beat)
        assert beat.unsettled().cost_microusd == billed


def test_of_a_bill_for_a_whole_session_only_the_share_of_this_attempt_counts() -> None:
    meter, beat = told("claude-of-tomorrow", 1_000)
    meter.settle(bill(4_000, 60_000, "claude-of-tomorrow"), beat)
    assert beat.unsettled().cost_microusd == 15_000


def test_what_is_on_record_already_is_not_taken_back() -> None:
    meter, beat = told(MODEL, 1_000, 2_000)
    del beat.spent["msg_1"]  # its beat has ended
    meter.settle(bill(3_000, 0), beat)
    assert beat.unsettled().cost_microusd == 0


def test_on_a_subscription_and_without_tokens_no_bill_counts() -> None:
    meter, beat = told(MODEL, 1_000)
    meter.billing = "subscription"
    meter.settle(bill(1_000, 99), beat)
    Meter("api").settle(bill(0, 99), beat)
    Meter("api").settle((), beat)
    assert BILL not in beat.spent
