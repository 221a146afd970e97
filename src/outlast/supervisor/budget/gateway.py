"""The gateway of an attempt: it counts the calls of the model, passes warnings on, and refuses calls when nothing is left."""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce

import msgspec

from outlast.agents import Billing
from outlast.agents.events import Final
from outlast.agents.values import Ask
from outlast.core import budget as budgets, events as ev, state as st, values
from outlast.errors import BadSetting, UsageError
from outlast.gateway import Call, CallUsage, Gateway, Refusal, Wall
from outlast.operations import prices
from outlast.runs.budget import Settling
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.budget.pricing import Pricing

FIRST_OUTPUT = 1_024  # what the first answer may have, where the request names no lower limit
FIRST_BYTES_A_TOKEN = 4
WITHOUT = "leave --gateway out: its own records are metered"
# Where programs that use the providers' own libraries look for their API, and where it is when nobody says so.
_APIS = {
    "ANTHROPIC_BASE_URL": "https://api.anthropic.com",
    "OPENAI_BASE_URL": "https://api.openai.com/v1",
    "OPENAI_API_BASE": "https://api.openai.com/v1",
    "GOOGLE_GEMINI_BASE_URL": "https://generativelanguage.googleapis.com",
}


class Gatekeeper:
    """Meters one attempt's gateway (`gateway.Meter`). The gateway calls it in its own thread."""

    def __init__(
        self,
        run: RunEngine,
        budget: BudgetWatch,
        pricing: Pricing,
    ) -> None:
        self._run, self._budget, self._pricing = run, budget, pricing
        self._lock = threading.Lock()
        self._under_way: dict[str, values.Usage] = {}  # with what is set aside for each
        self._dearest, self._largest_bytes = values.Usage(), 0  # of the calls so far
        budget.pricing = pricing
        self.wall: Wall | None = None
        self.refused = ""  # why the last call was refused; empty if it was not
        self.has_sent_wrap_up = False  # whether the model got the instruction to wrap up from here

    def before(self, call: Call) -> Refusal | None:
        """Let a call pass if something is left after the calls under way."""
        with self._lock:
            reserve = self._reserve(call)
            self.refused = self._over() or self._too_many(reserve)
            if self.refused:
                return _refusal(self.refused)
            self._under_way[call.id] = reserve
        return None

    def closed(self) -> Refusal | None:
        """Whether nothing is left at all."""
        over = self._over()
        return _refusal(over) if over else None

    def _over(self) -> str:
        return self._budget.no_price() or budgets.limit_reached(
            self._run.meter.head(), self._run.meter.live()
        )

    def _too_many(self, reserve: values.Usage) -> str:
        """Whether the calls under way may already exceed a limit by more than this one, in words."""
        head, under_way = self._run.meter.head(), self._total()
        then = msgspec.structs.replace(head, spent=head.spent.plus(under_way))
        one_more = {"tokens": reserve.tokens, "usd": reserve.cost_microusd}
        for now, line in zip(budgets.lines(head), budgets.lines(then), strict=True):
            if line.unit in one_more and line.spent > line.limit + one_more[line.unit]:
                return f"{now.words()} spent, and the rest is set aside for calls under way"
        return ""

    def _reserve(self, call: Call) -> values.Usage:
        """The most that a call may cost: as much as the dearest of the last calls, or more if its request is larger. The first
        call is estimated by its request."""
        known, size = self._dearest, call.request_bytes
        if known.tokens:
            asks_more = size / self._largest_bytes if size > self._largest_bytes > 0 else 1
            found = msgspec.structs.replace(known, input=int(known.input * asks_more))
        else:
            output = FIRST_OUTPUT if call.output_max is None else min(call.output_max, FIRST_OUTPUT)
            found = values.Usage(input=size // FIRST_BYTES_A_TOKEN + 1, output=output)
        if self._pricing.payment == "subscription":
            return found
        try:
            price = prices.of(call.model, datetime.now(UTC).date())
        except BadSetting:
            return found
        cost = price.cost(found) if price is not None else 0
        return msgspec.structs.replace(found, cost_microusd=max(known.cost_microusd, cost))

    def _total(self) -> values.Usage:
        return reduce(values.Usage.plus, self._under_way.values(), values.Usage())

    def under_way(self) -> values.Usage:
        """The sum set aside for calls that have no answer yet."""
        with self._lock:
            return self._total()

    def after(self, spent: CallUsage) -> None:
        """Count the cost of a call once, by our own id: the provider's may come twice."""
        cost = self._pricing.priced(spent.model or spent.call.model, spent.usage, spent.call.id)
        if cost.tokens or cost.cost_microusd:
            self._run.meter.count(spent.call.id, cost)
        with self._lock:
            self._under_way.pop(spent.call.id, None)
            self.wall = spent.limit
            if spent.message and self._run.state.wrap_beat is not None:
                self.has_sent_wrap_up = True
            if cost.tokens and not cost.estimated:
                self._dearest = budgets.next_reserved(self._dearest, cost)
                self._largest_bytes = max(spent.call.request_bytes, self._largest_bytes * 7 // 8)
        if spent.windows:
            self._run.meter.window(max(spent.windows, key=lambda window: window.used_pct))

    def words(self) -> str:
        """The warnings for an agent whose hooks cannot pass them on."""
        return self._budget.words() if self._budget.by_gateway else ""


def _refusal(why: str) -> Refusal:
    return Refusal(
        f"outlast: the budget of this run lets no other call pass ({why}); it was not sent to the model"
    )


class Gate:
    """An attempt's gateway and its gatekeeper. A known agent is configured to use it; other commands find it by variables."""

    def __init__(
        self,
        run: RunEngine,
        budget: BudgetWatch,
        environment: Mapping[str, str],
        pricing: Pricing | None = None,
    ) -> None:
        self._run, self._environment = run, environment
        self._settles = pricing is None  # what a known agent spends is settled with its beats
        self.keeper = Gatekeeper(run, budget, pricing or Pricing("api"))
        self.gateway = Gateway(self.keeper, environment)
        self.gateway.start()

    def load_rest(self) -> None:
        """Load the files needed later. Called while the command starts: an upgrade of outlast may remove them meanwhile."""
        prices.ours()

    def settle(self) -> bool:
        """Record the metered cost and the reserve for open calls. True if anything was spent."""
        meter = self._run.meter
        taken = meter.begin_settling() if self._settles else Settling(values.Usage(), {})
        try:
            events = self._settled(taken)
            if events:
                self._run.drive(append(*events))
        except BaseException:
            meter.stop_settling()
            raise
        if self._settles:
            meter.end_settling()
        return bool(taken.by_key)

    def _settled(self, taken: Settling) -> list[ev.AnyEvent]:
        at = self._run.journal.now()
        events: list[ev.AnyEvent] = [
            ev.SpendSettled(at=at, key=key, usage=usage, source="gateway")
            for key, usage in taken.by_key.items()
        ]
        aside = self._set_aside(st.fold(self._run.state, events), taken.total, writes=bool(events))
        if aside is not None:
            events.append(ev.SpendReserved(at=at, key=st.GATEWAY, usage=aside))
        return events

    def _set_aside(self, head: st.RunState, settling: values.Usage, *, writes: bool) -> values.Usage | None:
        """The new reserve for calls under way, if the recorded one is too small, or far too large, for a crash now; else None.

        `writes`: other events are written in any case, so one more costs nothing.
        """
        needed = self.keeper.under_way().plus(self._run.meter.unsettled()).minus(settling)
        needed = values.Usage(
            needed.input, needed.output, needed.cache_read, needed.cache_write, needed.cost_microusd
        )
        charged = budgets.charge_for_killed(head)
        if needed.tokens > charged.tokens or needed.cost_microusd > charged.cost_microusd:
            return needed
        held = dict(head.reserved).get(st.GATEWAY, values.Usage())
        is_less = needed.tokens < held.tokens or needed.cost_microusd < held.cost_microusd
        return needed if is_less and (writes or 2 * needed.tokens < held.tokens) else None

    def routes(self) -> dict[str, str]:
        """For a command that is no known agent: the variables by which programs find their model's API."""
        known = {
            name: self.gateway.route(self._environment.get(name) or usual) for name, usual in _APIS.items()
        }
        return known | self.gateway.variables()

    def routed(self, billing: Billing, name: str, ask: Ask) -> Ask:
        """The same start of an agent, through the gateway. Raises UsageError if the agent cannot use one."""
        more = self.gateway.variables()
        found = billing.gateway(
            msgspec.structs.replace(ask, environment={**ask.environment, **more}), self.gateway.route
        )
        if isinstance(found, str):
            raise UsageError(f"{name} cannot be metered by a gateway: {found}", hint=WITHOUT)
        return found

    def judged(self, final: Final) -> Final:
        """The agent's end, corrected by the last answer of its model's API: our own refusal, or a limit and its reset."""
        if self.keeper.refused:
            return Final("budget", self.keeper.refused)
        wall = self.keeper.wall
        if wall is None or final.ending == "done":
            return final
        if final.ending in ("usage_limit", "rate_limit"):
            return final if final.reset_at else msgspec.structs.replace(final, reset_at=wall.resets_at)
        return Final(wall.kind, wall.words, wall.resets_at)

    @property
    def faults(self) -> str:
        """The gateway's own errors, in words."""
        return "; ".join(dict.fromkeys(self.gateway.faults))

    def close(self) -> None:
        """Cut off calls under way, and count them before this returns."""
        self.gateway.close()
