"""The budget that a command starts with: the typed one, if it can be kept with this agent, or one by experience."""

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast import settings
from outlast.agents import KnownAgent
from outlast.agents.values import Ask
from outlast.core import budget as budgets, statuses
from outlast.core.forecast import HISTORY_MIN, Estimate
from outlast.core.text import count_of
from outlast.core.values import Allowance
from outlast.errors import BadSetting, UsageError
from outlast.operations import prices
from outlast.runs.opening.terms import Terms, in_words
from outlast.store.protocol import RunFilter, Store
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person
from outlast.workspace.types import raw

AUTO = "auto"
# Words for a model that each release of the agent takes for another one: its first answer tells which.
ALIASES = {
    "claude": frozenset(("best", "default", "fable", "haiku", "opus", "opus[1m]", "opusplan", "sonnet", "sonnet[1m]")),
    "gemini": frozenset(("auto", "auto-gemini-2.5", "auto-gemini-3", "flash", "flash-lite", "pro")),
}  # fmt: skip


def given(budget: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The limits as typed; None if experience is to choose them (auto). Raises UsageError for limits beside auto."""
    if budget is None or not any(each.strip().lower() == AUTO for each in budget):
        return budget
    if len(budget) > 1:
        raise UsageError(
            "--budget auto chooses all limits, and others were given", hint="give auto alone, or limits"
        )
    return None


def is_auto(budget: tuple[str, ...] | None) -> bool:
    """Whether experience is to choose the limits."""
    return budget is not None and given(budget) is None


def check(
    budget: Allowance | None,
    agent: KnownAgent | None,
    launch: Launch,
    variables: dict[str, str],
    person: Person,
) -> None:
    """Refuse a limit in money if the price of the agent's tokens is unknown, or if a subscription pays for them."""
    if budget is None:
        return
    if budget.cost_microusd is not None:
        prices.check()
    if agent is None:
        limits = (("tokens", budget.tokens), ("usd", budget.cost_microusd), ("window", budget.window_pct))
        named = " and ".join(unit for unit, limit in limits if limit is not None)
        if named and not launch.gateway:
            person.say(
                f"nothing counts what a plain command spends without --gateway: its limit in {named} is not kept"
            )
        return
    if budget.window_pct is not None and agent.name != "codex" and not launch.gateway:
        person.say(f"{agent.name} does not tell how much of its window is used; with --gateway that is seen")
    if budget.cost_microusd is None:
        return
    cwd = _folder(launch)
    ask = Ask(words=tuple(launch.words), environment=variables, cwd=cwd, folder=cwd)
    if agent.billing.payment(ask) == "subscription":
        raise UsageError(
            f"{agent.name} is logged in with a subscription here, so its calls spend no money",
            hint="limit tokens or its window: --budget 400k, --budget window=80%",
        )
    model = agent.billing.model(launch.words, variables, cwd)
    is_only_money = budgets.is_only_money(budget)
    if not model or model in ALIASES.get(agent.name, ()):
        stopped = "it is stopped" if is_only_money else "only its other limits hold"
        person.say(
            f"which model {agent.name} will use is not known yet; with one that has no price {stopped}"
        )
    elif is_only_money and prices.of(model, datetime.now(UTC).date()) is None:
        raise UsageError(
            f"the model {model!r:.80} has no price, so that a budget in usd cannot be kept",
            hint=f"put its price into {settings.user_folder() / prices.OWN}, or limit tokens as well: --budget 400k",
        )


def by_gateway(
    choice: str | None,
    agent: KnownAgent | None,
    launch: Launch,
    variables: dict[str, str],
    person: Person,
) -> bool:
    """Whether a gateway is put between the agent and its model. Raises UsageError if it is wanted and impossible.

    `choice`: the word after --gateway, empty if there is none; None without --gateway: the user's settings decide.
    """
    if choice is not None and choice not in ("", "yes", "no"):
        raise UsageError(f"--gateway takes yes or no, not {choice!r:.40}", hint="--gateway, or --gateway=yes")
    if choice == "no" or (choice is None and not settings.load(_folder(launch))["gateway"]):
        return False
    prices.check()
    if agent is None:
        return True
    cwd = _folder(launch)
    ask = Ask(words=tuple(launch.words), environment=variables, cwd=cwd, folder=cwd)
    if agent.billing.payment(ask) == "subscription":
        if choice != "yes":
            raise UsageError(
                f"{agent.name} is logged in with a subscription here, and its provider may not want a gateway in between",
                hint="--gateway=yes to use it anyway; without it outlast counts the agent's own records",
            )
        person.say("the gateway meters a subscription: its provider may not want that")
    found = agent.billing.gateway(ask, lambda url: "http://127.0.0.1:1")
    if isinstance(found, str):
        raise UsageError(
            f"{agent.name} cannot be metered by a gateway: {found}",
            hint="leave --gateway out: outlast counts the agent's own records",
        )
    return True


def check_again(agent: KnownAgent | None, launch: Launch, variables: dict[str, str], person: Person) -> None:
    """Check a command's gateway again before the command goes on: it may no longer be allowed. Raises UsageError."""
    if not launch.gateway:
        return
    try:
        by_gateway("yes" if launch.gateway_yes else "", agent, launch, variables, person)
    except BadSetting:
        raise
    except UsageError as error:
        hint = "`outlast run --task TASK --gateway=no -- …` goes on without it; despite a subscription, with --gateway=yes"
        raise UsageError(str(error), hint=hint) from error


def by_experience(
    store: Store,
    terms: Terms,
    agent: KnownAgent | None,
    launch: Launch,
    variables: dict[str, str],
    person: Person,
) -> Terms:
    """The terms with limits learnt from earlier runs. A run that goes on keeps its recorded limits."""
    known = store.list(RunFilter(task=terms.task, project=terms.project, parent=""), limit=1)
    goes_on = bool(known) and not (terms.again and known[0].state.status in statuses.ENDED)
    if goes_on and not terms.amend:
        return msgspec.structs.replace(terms, budget=budgets.with_until(known[0].state.budget, terms.budget))
    from outlast.inspect import forecast as inspect_forecast

    goal, name, model = terms.goal or "", "", ""
    if agent is not None:
        goal, name = goal or agent.cli.read(launch.words).prompt, agent.name
        model = agent.billing.model(launch.words, variables, _folder(launch))
    chosen, forecast = inspect_forecast.auto(
        store, goal=goal, plan=None, project=terms.project, agent=name, model=model
    )
    typed = terms.budget or Allowance()
    limits = msgspec.structs.replace(chosen, until=typed.until, reserve_pct=typed.reserve_pct)
    person.say(f"the budget is {in_words(limits)}: {_why(forecast.tokens)}")
    return msgspec.structs.replace(terms, budget=limits)


def _why(found: Estimate) -> str:
    if found.sure == "default":
        return f"the default; no history yet ({count_of(found.runs, 'run')} of this store finished, {HISTORY_MIN} are needed)"
    return (
        f"nine of ten such runs need {found.p90:,} tokens or less, half of them {found.p50:,}"
        f" ({found.sure}: by {found.runs:,} finished runs, {found.similar:,} of them alike)"
    )


def _folder(launch: Launch) -> Path:
    return Path(os.fsdecode(raw(launch.cwd)))
