"""Where a run's budget went: the rest by unit, the burn-down over time, and the cost of each beat, tool and attempt."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from outlast.core.statuses import CLOSED
from outlast.dashboard.documents import Row
from outlast.inspect import ledger as ledgers
from outlast.inspect.ledger import Ledger, Unit
from outlast.inspect.ledger_sums import AttemptCost
from outlast.inspect.show import Spent
from outlast.web.charts import run_charts
from outlast.web.html import formats, layout, run_parts
from outlast.web.html.html import NOTHING, Safe, join, tag
from outlast.web.html.layout import View

ROWS_SHOWN = 50
COURSE_OPEN, COURSE_SHOWN = 12, 72
_KNOWN = {
    "call": "its share of each beat, split over its calls by their number",
    "decision": "its own",
    "none": "of beats without a call",
}


def render(view: View, row: Row, given: Ledger) -> Safe:
    """The page with all that is known of its spending."""
    elsewhere = None
    if given.run != row.run:
        root = tag("a", f"run {given.run}", href=layout.run_url(given.run, "budget"))
        elsewhere = layout.notice(
            "mute", "This run draws on the budget of its root, ", root, ", which is shown here."
        )
    return run_parts.page(
        view, row, "budget", elsewhere, _state(view, row, given), _chart_panel(view, given), _course_panel(view, given),
        _beats_panel(view, given), _tools_panel(given), _attempts_panel(view, given),
    )  # fmt: skip


# -- units -------------------------------------------------------------------------------------------------------------


_HEAD = (
    "Unit", "Spent", "Limit", "Left", "Set aside", "Kept for its end", "Last hour", "An hour", "Forecast", "Lasts",
)  # fmt: skip


def _state(view: View, row: Row, given: Ledger) -> Safe:
    rows = [_unit_row(unit, given.spent) for unit in given.units if unit.unit != "beats" or unit.limit]
    columns = [at for at in range(len(_HEAD)) if any(each[at] is not None for each in rows)]
    shown = [[run_parts.nothing() if each[at] is None else each[at] for at in columns] for each in rows]
    head = [_HEAD[at] for at in columns]
    listed = run_parts.table(head, shown, caption="Units of the budget", numbers=range(1, len(head)))
    add = None
    if not view.read_only and row.status not in CLOSED:
        link = layout.run_url(given.run, "do", "budget")
        add = layout.button("Add budget", link, primary=given.cause == "budget", sign="budget")
    return layout.panel(
        "What is left", _warning(view, given), run_parts.wide(listed, "Units of the budget"), _kinds(given), _expected(given),
        id_="units", aside=add,
    )  # fmt: skip


def _warning(view: View, given: Ledger) -> Safe:
    """The notice that it met its limit, or must wrap up, with the command to type."""
    if given.cause == "budget" and given.status != "running":
        line = tag("p", layout.ours(view, f"outlast resume {given.run} {given.more}".rstrip()))
        reason = "Its budget is spent. " if given.more else "There is budget left: resume it. It stopped at: "
        tone: layout.Tone = "bad" if given.more else "warn"
        return layout.notice(tone, tag("strong", reason), formats.clip(given.evidence, 300), line)
    wraps = [run_charts.unit_name(unit.unit).lower() for unit in given.units if unit.wraps_up]
    if wraps:
        return layout.notice(
            "warn", f"It must come to its end: only the reserve is left of {', '.join(wraps)}."
        )
    return NOTHING


def _unit_row(unit: Unit, spent: Spent) -> list[object]:
    """The cells of a unit's row; None where there is nothing to say."""

    def amount_words(amount: int | None) -> str | None:
        return None if amount is None else formats.amount(unit.unit, amount)

    share = f" ({formats.percent(unit.used_pct)})" if unit.used_pct is not None else ""
    forecast: object = amount_words(unit.forecast)
    if unit.forecast is not None and unit.limit and unit.forecast > unit.limit:
        forecast = layout.labelled("needs-you", f"{amount_words(unit.forecast)}, above the limit", "warn")
    return [
        run_charts.unit_name(unit.unit), f"{_spent(unit, spent)}{share}", amount_words(unit.limit) or "no limit", amount_words(unit.left),
        amount_words(unit.reserved or None), amount_words(unit.ending_reserve or None), amount_words(unit.per_hour_now), amount_words(unit.per_hour), forecast,
        None if unit.lasts_s is None else formats.span(unit.lasts_s),
    ]  # fmt: skip


def _spent(unit: Unit, spent: Spent) -> str:
    """The spending. Money that was not paid, or whose price is unknown, is not $0."""
    if unit.unit == "usd":
        return formats.cost(spent)
    about = "≈ " if spent.estimated and unit.unit == "tokens" else ""
    return f"{about}{formats.amount(unit.unit, unit.spent)}"


def _kinds(given: Ledger) -> Safe:
    spent = given.spent
    about = "; some of it is an upper bound (≈)" if spent.estimated else ""
    return tag(
        "p",
        f"Of the tokens: {spent.input:,} input, {spent.output:,} output, {spent.cache_read:,} cache read, "
        f"{spent.cache_write:,} cache write{about}.",
        class_="dim",
    )


def _expected(given: Ledger) -> Safe | None:
    if given.expected is None or not given.expected.learnt:
        return None
    tokens, time_s = given.expected.tokens, given.expected.time_s
    return tag(
        "p",
        f"By the runs before: {formats.short(tokens.p50)} tokens in all, {formats.span(time_s.p50)}; in nine of ten cases at "
        f"most {formats.short(tokens.p90)}, {formats.span(time_s.p90)}.",
        class_="dim",
    )


# -- over time ---------------------------------------------------------------------------------------------------------


def _chart_panel(view: View, given: Ledger) -> Safe:
    drawn = run_charts.burndown(given, view.zone)
    return layout.panel(
        run_charts.burndown_title(given), drawn or layout.empty("Nothing was spent yet"), id_="burndown"
    )


def _course_panel(view: View, given: Ledger) -> Safe:
    """When it was warned, told to wrap up, given more, and saved."""
    entries: list[tuple[datetime, int, str, str, Safe | None]] = [
        (each.at, each.beat, _level(each.level), each.text, None) for each in given.warnings
    ]
    entries += [(each.at, each.beat, "limit", each.text, None) for each in given.changes]
    for save in given.saves:
        link = tag("a", save.commit[:7], href=layout.run_url(given.run, "saves", save.commit), class_="mono")
        entries.append((save.at, save.beat, f"{save.kind} save", save.reason, link))
    if not entries:
        return NOTHING
    entries.sort(key=lambda each: each[0], reverse=True)
    rows = [
        [layout.when(view, at), f"{beat:,}", what, join((link, " " if link else None, run_parts.clipped(text, 240)))]
        for at, beat, what, text, link in entries
    ]  # fmt: skip
    folded = None
    if len(rows) > COURSE_OPEN:
        hidden = len(rows) - COURSE_SHOWN + max(0, given.saves_total - len(given.saves))
        more = tag("p", f"{hidden:,} before these are not shown", class_="dim") if hidden > 0 else None
        earlier = _course(rows[COURSE_OPEN:COURSE_SHOWN], "Earlier warnings, limits and saves")
        summary = tag("summary", f"{len(rows[COURSE_OPEN:COURSE_SHOWN]):,} earlier")
        folded = tag("details", summary, earlier, more, id="course-earlier", class_="fold")
    title = "Warnings, limits and saves"
    return layout.panel(title, _course(rows[:COURSE_OPEN], title), folded, id_="course")


def _course(rows: Sequence[Sequence[object]], caption: str) -> Safe:
    return run_parts.table(("When", "Beat", "What", "Why"), rows, caption=caption, numbers=(1,))


def _level(level: str) -> str:
    return "told to wrap up" if level.startswith("wrap-up") else "warned"


# -- where it went -------------------------------------------------------------------------------------------------------


def _cells(spent: Spent) -> list[object]:
    kinds = (spent.tokens, spent.input, spent.output, spent.cache_read, spent.cache_write)
    return [*(f"{each:,}" for each in kinds), formats.cost(spent)]


_SPENT_HEAD = ("Tokens", "Input", "Output", "Cache read", "Cache write", "Money")


def _beats_panel(view: View, given: Ledger) -> Safe:
    rows = [
        [f"{each.beat:,}", layout.when(view, each.at), run_parts.clipped(each.step, 120) if each.step else run_parts.nothing(),
         f"{each.calls:,}", *_cells(each.spent)]
        for each in reversed(given.by_beat[-ROWS_SHOWN:])
    ]  # fmt: skip
    head = ("Beat", "Done", "Step", "Calls", *_SPENT_HEAD)
    aside = f"the last {len(rows):,} of {given.beats:,}" if len(rows) < given.beats else None
    ids = [f"by-beat-{each.beat}" for each in reversed(given.by_beat[-ROWS_SHOWN:])]
    return _folded("By beat", head, rows, "beat", (0, *range(3, 10)), aside, ids)


def _tools_panel(given: Ledger) -> Safe:
    most = max((each.tokens for each in given.by_tool), default=0)
    rows = [
        [run_parts.clipped(each.name if each.kind != "decision" else f"decide {each.name}", 80), f"{each.calls:,}",
         join((f"{each.tokens:,} ", _share(each.tokens, most))), _tool_money(each.cost_microusd, given.spent),
         _KNOWN[each.kind]]
        for each in given.by_tool[:ROWS_SHOWN]
    ]  # fmt: skip
    hidden = len(given.by_tool) - len(rows)
    aside = f"{hidden:,} cheaper ones are not shown" if hidden > 0 else None
    return _folded(
        "By tool", ("Tool", "Calls", "Tokens", "Money", "How it is known"), rows, "tool", (1, 2, 3), aside
    )


def _tool_money(microusd: int, spent: Spent) -> str:
    kind = ledgers.money(spent)
    return kind if kind != "paid" and not microusd else formats.dollars(microusd)


def _share(part: int, most: int) -> Safe:
    """How a row compares with the dearest."""
    width = f"{100 * part / most:.1f}" if most else "0"
    return tag(
        "svg", tag("rect", width=width, height=6, class_="fill"), viewBox="0 0 100 6", preserveAspectRatio="none",
        class_="bar small t-go", aria_hidden="true",
    )  # fmt: skip


def _attempts_panel(view: View, given: Ledger) -> Safe:
    rows = [
        [f"{each.attempt:,}", layout.when(view, each.started_at), formats.span(each.spent.time_ms / 1000), f"{each.beats:,}",
         *_cells(each.spent), _ended(each, given)]
        for each in reversed(given.by_attempt[-ROWS_SHOWN:])
    ]  # fmt: skip
    head = ("Attempt", "Started", "Time", "Beats", *_SPENT_HEAD, "Ended")
    aside = f"the last {len(rows):,} of {given.attempts:,}" if len(rows) < given.attempts else None
    ids = [f"by-attempt-{each.attempt}" for each in reversed(given.by_attempt[-ROWS_SHOWN:])]
    return _folded("By attempt", head, rows, "attempt", (0, *range(2, 10)), aside, ids)


def _ended(each: AttemptCost, given: Ledger) -> Safe:
    lives = each.ended_at is None and given.status == "running" and each is given.by_attempt[-1]
    shape, tone, word = run_charts.ending(each.cause, each.evidence, lives=lives)
    return tag("span", run_charts.sign(shape, tone), word, title=formats.clip(each.evidence, 300) or None)


def _folded(
    title: str,
    head: tuple[str, ...],
    rows: Sequence[Sequence[object]],
    id_: str,
    numbers: Iterable[int],
    aside: str | None,
    ids: Sequence[str] = (),
) -> Safe:
    if not rows:
        return NOTHING
    listed = run_parts.table(head, rows, caption=title, numbers=numbers, ids=ids)
    return layout.panel(title, run_parts.wide(listed, title), id_=f"by-{id_}", aside=aside)
