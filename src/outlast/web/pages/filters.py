"""Above the table of runs: what to look for, by links and a plain form, so that every choice is a URL one can send."""

import msgspec

from outlast.dashboard.documents import Ask, Count, Overview
from outlast.dashboard.report import KINDS
from outlast.web.html import formats
from outlast.web.html.html import Safe, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import url

CHOICES_MAX = 200  # projects or agents in a list to choose from
_SORTS = (
    ("needs", "what needs you"), ("activity", "last activity"), ("created", "newest"), ("spent", "spent"),
    ("beats", "beats"), ("task", "task"), ("project", "project"),
)  # fmt: skip


def link(ask: Ask, **changes: object) -> str:
    """The overview with this asked of it; from the first page, unless a page is asked for."""
    changed = msgspec.structs.replace(ask, **{"page": 1, **changes})
    return url("/", query(changed))


def query(ask: Ask) -> dict[str, object]:
    """The filters as they stand in the URL, without defaults."""
    return {
        "q": ask.q, "what": ask.what, "status": ask.status, "project": ask.project, "agent": ask.agent,
        "sort": ask.sort if ask.sort != "needs" else "", "up": "1" if ask.up else "",
        "flat": "" if ask.grouped else "1", "page": ask.page if ask.page > 1 else "",
    }  # fmt: skip


def is_filtered(ask: Ask) -> bool:
    """Whether some runs may be left out."""
    return bool(ask.q or ask.what or ask.status or ask.project or ask.agent)


def render(ask: Ask, overview: Overview) -> Safe:
    """The chips and the form."""
    return tag(
        "div",
        _headings(ask, overview),
        _form(ask, overview),
        _statuses(ask, overview),
        class_="filters",
        id="filters",
    )


# -- chips ---------------------------------------------------------------------------------------------------------


def _headings(ask: Ask, overview: Overview) -> Safe:
    counts = {count.name: count.runs for count in overview.whats}
    chips = [_chip("All", sum(counts.values()), link(ask, what=()), on=not ask.what)]
    for kind in KINDS:
        href = link(ask, what=_toggled(ask.what, kind))
        chips.append(_chip(kind.capitalize(), counts.get(kind, 0), href, on=kind in ask.what, sign=kind))
    return tag("nav", chips, aria_label="Headings", class_="chips")


def _statuses(ask: Ask, overview: Overview) -> Safe | None:
    """One chip for each status; nothing if all runs have the same status."""
    there = [count for count in overview.statuses if count.runs or count.name in ask.status]
    if len(there) < 2 and not ask.status:
        return None
    chips = [
        _chip(
            formats.spell(count.name), count.runs, link(ask, status=_toggled(ask.status, count.name)),
            on=count.name in ask.status, sign=count.name, small=True,
        )
        for count in there
    ]  # fmt: skip
    clear = tag(
        "a",
        "clear all filters",
        href=link(Ask(sort=ask.sort, up=ask.up, grouped=ask.grouped)),
        class_="clear",
    )
    return tag("nav", chips, clear if is_filtered(ask) else None, aria_label="Statuses", class_="chips")


def _chip(word: str, count: int, href: str, *, on: bool, sign: str = "", small: bool = False) -> Safe:
    return tag(
        "a", icon(sign) if sign else None, word, " ", tag("span", f"{count:,}", class_="count"), href=f"{href}#filters",
        class_="chip small" if small else "chip", aria_current="true" if on else None,
    )  # fmt: skip


def _toggled(chosen: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in chosen if each != name) if name in chosen else (*chosen, name)


# -- the form ------------------------------------------------------------------------------------------------------


def _form(ask: Ask, overview: Overview) -> Safe:
    hidden = [tag("input", type="hidden", name="what", value=kind) for kind in ask.what]
    hidden += [tag("input", type="hidden", name="status", value=status) for status in ask.status]
    more = (
        tag("summary", "Project, agent, order"),
        _select("project", "Project", "all projects", ask.project, overview.projects),
        _select("agent", "Agent", "all agents", ask.agent, overview.agents),
        _sort(ask), _box("up", "in reverse", on=ask.up), _box("flat", "not grouped", on=not ask.grouped),
    )  # fmt: skip
    chosen = bool(ask.project or ask.agent or ask.up or not ask.grouped or ask.sort != "needs")
    return tag(
        "form", hidden, _search(ask), tag("details", more, class_="more", open=chosen),
        tag("button", "Apply", class_="button no-js"),
        method="get", action="/", role="search", id="search-form", class_="bar-form", data_auto=True,
    )  # fmt: skip


def _search(ask: Ask) -> Safe:
    field = tag(
        "input", type="search", name="q", id="q", value=ask.q, placeholder="Search runs",
        autocomplete="off", spellcheck="false", maxlength=200,
    )  # fmt: skip
    return tag(
        "span", tag("label", "Search", for_="q", class_="unseen"), icon("search"), field, class_="search"
    )


def _select(name: str, label: str, none: str, chosen: str, counts: tuple[Count, ...]) -> Safe | None:
    if len(counts) < 2 and not chosen:
        return None
    options = [tag("option", none, value="")]
    names = {count.name for count in counts[:CHOICES_MAX]}
    if chosen and chosen not in names:
        options.append(tag("option", formats.clip(chosen, 40), value=chosen, selected=True))
    options += [_option(count, chosen) for count in counts[:CHOICES_MAX] if count.name]
    return _labelled(label, tag("select", options, name=name, id=f"f-{name}"), f"f-{name}")


def _option(count: Count, chosen: str) -> Safe:
    label = f"{formats.clip(count.label or count.name, 40)} ({count.runs:,})"
    return tag("option", label, value=count.name, selected=count.name == chosen)


def _sort(ask: Ask) -> Safe:
    options = [tag("option", label, value=name, selected=name == ask.sort) for name, label in _SORTS]
    return _labelled("Order by", tag("select", options, name="sort", id="f-sort"), "f-sort")


def _labelled(label: str, field: Safe, id_: str) -> Safe:
    return tag("span", tag("label", label, for_=id_), field, class_="field")


def _box(name: str, label: str, *, on: bool) -> Safe:
    field = tag("input", type="checkbox", name=name, value="1", checked=on, id=f"f-{name}")
    return tag("span", field, tag("label", label, for_=f"f-{name}"), class_="box")
