"""What an agent costs: by its own bill beside our list of prices, and while a beat's end puts it on record."""

import contextlib
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outlast.agents.events import ModelCost, Response, UsageReport
from outlast.core import events as ev, values
from outlast.errors import InvariantFailed
from outlast.operations import prices
from outlast.runs import reader
from outlast.runs.budget import Meter
from outlast.runs.engine.steps import append
from outlast.store import open_store
from outlast.supervisor.budget.pricing import BILL, Pricing
from tests.supervisor.hook_driver import AttemptDies, Minded, minded
from tests.support.environment import TIMEOUT_S

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
    pricing.payment = "subscription"
    pricing.settle(bill(1_000, 99), meter)
    Pricing("api").settle(bill(0, 99), meter)
    Pricing("api").settle((), meter)
    assert BILL not in meter._known


class EndingBeat:
    """The end of a beat, under way in a thread: its invariant waits for a word."""

    def __init__(self, there: Minded, fifo: Path) -> None:
        self._there = there
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._end, daemon=True)
        self._thread.start()
        self._word = fifo.open("w")  # until the invariant reads: from then on the cost is being put on record

    def _end(self) -> None:
        try:
            self._there.attempt.responses.end_now()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> "EndingBeat":
        return self

    def __exit__(self, *_: object) -> None:
        self._word.close()  # without a word the invariant fails
        self._thread.join(TIMEOUT_S)

    def say(self, word: str) -> None:
        """Let the invariant hold (`yes`) or fail, and wait for what comes of it."""
        self._word.write(f"{word}\n")
        self._word.close()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


def counted(there: Minded) -> int:
    """The tokens that the run's budget is charged with now."""
    return there.run.meter.head().spent.tokens


def warned(there: Minded) -> None:
    """Another event comes from another thread."""
    there.run.drive(append(ev.Warned(at=there.run.journal.now(), level="idle", text="nothing was printed")))


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def costly(folder: Path, fifo: Path) -> "contextlib.AbstractContextManager[Minded]":
    return minded(folder, budget=100_000, invariant=f'read word < {fifo}; test "$word" = yes')


def answer(there: Minded, key: str) -> None:
    there.take(Response(key))
    there.take(UsageReport(values.Usage(input=1_000), "response", key, MODEL))


def test_a_cost_counts_once_at_every_instant_of_a_beat_end_that_fails_and_of_the_one_after(
    tmp_path: Path, fifo: Path
) -> None:
    with costly(tmp_path, fifo) as there:
        answer(there, "msg_1")
        for word in ("no", "no", "yes"):
            with EndingBeat(there, fifo) as ending:
                assert counted(there) == 1_000
                warned(there)
                assert counted(there) == 1_000, "another event is not the beat's end"
                ending.say(word)
            assert isinstance(ending.error, InvariantFailed) is (word == "no")
            assert counted(there) == 1_000
            warned(there)
            assert counted(there) == 1_000
        assert there.run.state.spent.tokens == 1_000
        assert there.run.meter.unsettled() == values.Usage()


def test_an_attempt_that_ends_after_a_failed_beat_end_is_charged_its_cost_once(
    tmp_path: Path, fifo: Path
) -> None:
    with costly(tmp_path, fifo) as there:
        run = there.run.id
        answer(there, "msg_1")
        with EndingBeat(there, fifo) as ending:
            ending.say("no")
        raise AttemptDies
    store = open_store(str(tmp_path / "store"))
    try:
        assert reader.head(store, run).spent.tokens == 1_000
    finally:
        store.close()
