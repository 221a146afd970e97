"""What an agent says itself that it cost, beside what its tokens cost by our list."""

from datetime import UTC, datetime

from outlast.agents.events import ModelCost, UsageReport
from outlast.core import values
from outlast.operations import prices
from outlast.runs.budget import Meter
from outlast.supervisor.budget.pricing import BILL, Pricing

MODEL = "claude-opus-4-8"


def told(model: str, *tokens: int) -> tuple[Pricing, Meter]:
    """An agent that told of responses with so many tokens of input."""
    pricing, meter = Pricing("api"), Meter(None)  # type: ignore[arg-type]
    for number, count in enumerate(tokens):
        for _ in range(2):  # a line for each block of one response: it counts once
            response = UsageReport(values.Usage(input=count), "response", f"msg_{number}", model)
            meter.count(response.key, pricing.cost(response))
    return pricing, meter


def bill(tokens: int, cost_microusd: int, model: str = MODEL) -> tuple[ModelCost, ...]:
    return (ModelCost(model, values.Usage(input=tokens, cost_microusd=cost_microusd)),)


def ours(tokens: int) -> int:
    price = prices.of(MODEL, datetime.now(UTC).date())
    assert price is not None
    return price.cost(values.Usage(input=tokens))


def test_a_bill_that_agrees_with_our_prices_changes_nothing() -> None:
    pricing, meter = told(MODEL, 1_000, 2_000)
    pricing.settle(bill(3_000, ours(3_000)), meter)
    assert BILL not in meter._known


def test_of_a_model_without_a_price_the_bill_is_what_counts() -> None:
    pricing, meter = told("claude-of-tomorrow", 1_000, 2_000)
    assert meter.unsettled().cost_microusd == 0
    pricing.settle(bill(3_000, 45_000, "claude-of-tomorrow"), meter)
    assert meter.unsettled().cost_microusd == 45_000


def test_a_bill_above_or_below_our_prices_is_what_counts() -> None:
    for billed in (ours(3_000) + 5_000, ours(3_000) - 5_000, 1):
        pricing, meter = told(MODEL, 1_000, 2_000)
        pricing.settle(bill(3_000, billed), meter)
        assert meter.unsettled().cost_microusd == billed


def test_of_a_bill_for_a_whole_session_only_the_share_of_this_attempt_counts() -> None:
    pricing, meter = told("claude-of-tomorrow", 1_000)
    pricing.settle(bill(4_000, 60_000, "claude-of-tomorrow"), meter)
    assert meter.unsettled().cost_microusd == 15_000


def test_what_is_on_record_already_is_not_taken_back() -> None:
    pricing, meter = told(MODEL, 1_000, 2_000)
    del meter._known["msg_1"]  # its beat has ended
    pricing.settle(bill(3_000, 0), meter)
    assert meter.unsettled().cost_microusd == 0


def test_on_a_subscription_and_without_tokens_no_bill_counts() -> None:
    pricing, meter = told(MODEL, 1_000)
    pricing.billing = "subscription"
    pricing.settle(bill(1_000, 99), meter)
    Pricing("api").settle(bill(0, 99), meter)
    Pricing("api").settle((), meter)
    assert BILL not in meter._known
