"""Spending by day, saves by cause, beats by hour: for those who would rather look than read."""

from collections.abc import Sequence
from datetime import date, datetime

from outlast.dashboard.documents import Charts, Grain, Series, Spending
from outlast.web.charts import bars
from outlast.web.html import formats, layout
from outlast.web.html.html import Safe, tag
from outlast.web.html.layout import View, url

GRAINS: tuple[Grain, ...] = ("agent", "model", "project")
_NAMELESS = "not known"


def render(view: View, charts: Charts) -> Safe:
    """All of them, over the days that were asked for."""
    days = [_day(text) for text in charts.days]
    return layout.page(
        view, "Charts",
        tag(
            "div", tag("h1", "Charts"),
            tag("p", f"the last {formats.plural(len(charts.days), 'day')}", class_="dim"),
            class_="verdict",
        ),
        _counting(charts), _spending(view, charts, days), _saves(charts, days), _beats(charts), place="charts",
    )  # fmt: skip


def _counting(charts: Charts) -> Safe | None:
    if charts.counted_pct >= 100:
        return None
    sentence = (
        tag("strong", f"Still counting: {charts.counted_pct} %"),
        " of the past is in these charts. The rest comes by itself.",
    )
    bar = tag("progress", value=charts.counted_pct, max=100, aria_label="Counted so far")
    return layout.notice("go", sentence, " ", bar)


def _day(text: str) -> str:
    """`2026-11-14` as a short label."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return text
    return formats.day(day)


# -- spending --------------------------------------------------------------------------------------------------------


def _spending(view: View, charts: Charts, days: Sequence[str]) -> Safe:
    by = view.query.get("by", "agent")
    chosen: Grain = next((grain for grain in GRAINS if grain == by), "agent")
    is_money = view.query.get("unit") == "usd"
    found = next((each for each in charts.spending if each.by == chosen), None)
    series = _named(_of_unit(found, money=is_money))
    amount = formats.dollars if is_money else formats.short
    unit = "money" if is_money else "tokens"
    return _chart(
        "Spent a day", f"{unit} a day, by {chosen}", days, series, amount, id_="spending", first="Day",
        aside=_switches(chosen, is_money), nothing=f"No {unit} on record in these days.",
    )  # fmt: skip


def _of_unit(found: Spending | None, *, money: bool) -> tuple[Series, ...]:
    if found is None:
        return ()
    return found.cost_microusd if money else found.tokens


def _switches(by: Grain, is_money: bool) -> Safe:
    """By what, and in which unit: links, so that a choice can be sent to somebody."""
    unit = "usd" if is_money else ""
    grains = [_switch(f"by {grain}", {"by": grain, "unit": unit}, on=grain == by) for grain in GRAINS]
    units = [
        _switch("tokens", {"by": by}, on=not is_money),
        _switch("money", {"by": by, "unit": "usd"}, on=is_money),
    ]
    return tag(
        "nav",
        grains,
        tag("span", class_="between"),
        units,
        aria_label="What the chart shows",
        class_="switch",
    )


def _switch(word: str, query: dict[str, str], *, on: bool) -> Safe:
    return tag(
        "a",
        word,
        href=f"{url('/charts', query)}#spending",
        class_="chip small",
        aria_current="true" if on else None,
    )


# -- saves and beats ---------------------------------------------------------------------------------------------------


def _saves(charts: Charts, days: Sequence[str]) -> Safe:
    series = [
        Series(name=formats.spell(each.name), values=each.values) for each in _named(charts.saves_by_cause)
    ]
    aside = tag("a", "all emergency saves", href="/saves")
    return _chart(
        "Emergency saves a day", "saves a day, by cause", days, series, formats.short, id_="saves", first="Day",
        aside=aside, nothing="No emergency saves in these days.",
    )  # fmt: skip


def _beats(charts: Charts) -> Safe:
    hours = [_hour(text) for text in charts.hours]
    series = [Series(name="beats", values=charts.beats_per_hour)]
    return _chart(
        "Beats an hour", f"beats an hour, the last {formats.plural(len(hours), 'hour')}", hours, series, formats.short,
        id_="beats", first="Hour", nothing="No beats in these hours.",
    )  # fmt: skip


def _hour(text: str) -> str:
    """`2026-11-14T03` or `2026-11-14T03:00+01:00` as a short label."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{formats.day(at.date())} {at:%H:%M}"


def _named(series: Sequence[Series]) -> list[Series]:
    """The series that have any value, each with a name."""
    return [Series(name=each.name or _NAMELESS, values=each.values) for each in series if any(each.values)]


def _chart(
    title: str,
    description: str,
    steps: Sequence[str],
    series: Sequence[Series],
    amount: bars.Amount,
    *,
    id_: str,
    first: str,
    nothing: str,
    aside: object = None,
) -> Safe:
    if not any(any(each.values) for each in series):
        return layout.panel(title, layout.empty(nothing), id_=id_, aside=aside)
    total = sum(sum(each.values) for each in series)
    desc = f"{description}, {steps[0]} to {steps[-1]}; {amount(total)} in all. The numbers are in the table below."
    return layout.panel(
        title, bars.stacked(title, desc, steps, series, amount), bars.numbers(steps, series, amount, first=first),
        id_=id_, aside=aside,
    )  # fmt: skip
