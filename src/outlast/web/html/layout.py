"""The common parts of all pages: the frame around them, and the pieces that look the same everywhere."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal
from urllib.parse import quote, urlencode

from outlast.dashboard.documents import Meter, Row
from outlast.inspect.runs_inside import RunInside
from outlast.inspect.show import Child
from outlast.web.html import assets, formats
from outlast.web.html.html import NOTHING, Safe, join, tag, trusted
from outlast.web.html.icons import icon, sheet

Tone = Literal["good", "go", "warn", "bad", "mute"]
Tab = Literal["run", "beats", "effects", "saves", "budget", "context", "output", "journal"]
Place = Literal["overview", "saves", "charts", ""]

TONES: dict[str, Tone] = {
    "running": "go", "paused": "mute", "interrupted": "warn", "in_doubt": "bad", "parked": "warn", "done": "good",
    "failed": "bad", "cancelled": "mute", "handed_off": "mute", "needs you": "bad", "stopped": "warn",
    "idle": "warn", "stuck": "bad",
}  # fmt: skip
_TABS: tuple[tuple[Tab, str], ...] = (
    ("run", "Run"), ("beats", "Beats"), ("effects", "Effects"), ("saves", "Saves"), ("budget", "Budget"),
    ("context", "Context"), ("output", "Output"), ("journal", "Journal"),
)  # fmt: skip
_PLACES: tuple[tuple[Place, str, str], ...] = (
    ("overview", "Runs", "/"), ("saves", "Emergency saves", "/saves"), ("charts", "Charts", "/charts"),
)  # fmt: skip
_KEYS = (
    ("j", "next run"), ("k", "run before"), ("Enter", "open it"), ("/", "search"), ("g o", "all runs"),
    ("g s", "emergency saves"), ("g c", "charts"), ("p", "hold the page still, and let it go on"),
    ("t", "light, dark, as the system"), ("?", "these keys"), ("Esc", "close, leave the field"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One request, as far as a page needs to know of it. `number`: the page is as of this event of the store.

    `outlast` is how a command begins that leads to this store.
    """

    path: str
    query: dict[str, str]
    now: datetime
    zone: tzinfo
    zone_name: str
    csrf: str
    read_only: bool
    number: int
    store_name: str
    version: str
    refresh_s: int | None = None
    outlast: str = "outlast"


def url(path: str, query: Mapping[str, object] | None = None) -> str:
    """A link of ours. Empty values are left out, and a tuple is repeated."""
    given = {key: value for key, value in (query or {}).items() if value not in (None, "", (), False)}
    encoded = urlencode(given, doseq=True, quote_via=quote, errors="replace")
    return f"{path}?{encoded}" if encoded else path


def run_url(run: str, *below: str, **query: object) -> str:
    """`/runs/RUN/below?query`, each part quoted."""
    return url(
        "/".join(["/runs", *(quote(part, safe="", errors="replace") for part in (run, *below))]), query
    )


# -- the page ------------------------------------------------------------------------------------------------------


def page(
    view: View,
    title: str,
    *parts: object,
    live: bool = True,
    crumbs: Iterable[tuple[str, str]] = (),
    place: Place = "",
    runs: Iterable[str] = (),
    styles: Iterable[str] = (),
) -> Safe:
    """A whole page. `runs`: only their events concern it (empty: all do); `styles`: further stylesheets.

    Everything works without the script: links, forms, filters. `app.js` makes it live, with what `data-` attributes say.
    """
    main = tag(
        "main", _crumbs(crumbs), parts, id="main", tabindex="-1", data_live=live, data_runs=" ".join(runs) or None
    )  # fmt: skip
    body = join((_skip(), _top(view, place), _notices(view), main, _foot(view), _keys()))
    whole = tag(
        "html", _head(view, title, styles), tag("body", sheet(body), body), lang="en", data_number=view.number,
        data_now=formats.machine(view.now), data_zone=view.zone_name,
    )  # fmt: skip
    return join((trusted("<!doctype html>\n"), whole, trusted("\n")))


def _head(view: View, title: str, styles: Iterable[str]) -> Safe:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", f"{formats.clip(title, 80)} · outlast"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="robots", content="noindex"),
        [tag("link", rel="stylesheet", href=assets.link(name)) for name in ("style.css", *styles)],
        tag("link", rel="icon", href=assets.link("icon.svg"), type="image/svg+xml"),
        tag("script", src=assets.link("early.js")),
        tag("script", src=assets.link("app.js"), defer=True),
        _again(view),
    )


def _again(view: View) -> Safe | None:
    """Without the script, the browser reloads the page from time to time."""
    if view.refresh_s is None:
        return None
    return tag("noscript", tag("meta", http_equiv="refresh", content=view.refresh_s))


def _skip() -> Safe:
    return tag("a", "Skip to the content", href="#main", class_="skip")


def _top(view: View, place: Place) -> Safe:
    links = [
        tag("a", label, href=href, aria_current="page" if place == name else None)
        for name, label, href in _PLACES
    ]
    return tag(
        "header",
        tag("a", _mark(), tag("span", "outlast"), href="/", class_="home"),
        tag("nav", links, aria_label="Pages", class_="places"),
        tag(
            "div",
            tag("span", "read only", class_="chip small") if view.read_only else None,
            tag(
                "button", tag("span", class_="dot"), tag("span", "live", class_="word"), type="button", id="live",
                class_="quiet only-js", title="Hold the page still, or let it go on (p)",
            ),
            _tool("theme", "Light, dark or as the system (t)"),
            _tool("keys", "Keys (?)"),
            class_="tools",
        ),
        class_="top",
    )  # fmt: skip


def _mark() -> Safe:
    """Our sign: a line that goes on after a gap."""
    return tag(
        "svg",
        tag("path", d="M2 11.5h4.5M9.5 11.5H14", class_="m1"),
        tag("path", d="M2 6.5h7M12 6.5h2", class_="m2"),
        viewBox="0 0 16 16", class_="mark", aria_hidden="true",
    )  # fmt: skip


def _tool(name: str, label: str) -> Safe:
    return tag(
        "button",
        icon(name),
        type="button",
        id=f"tool-{name}",
        class_="quiet only-js",
        title=label,
        aria_label=label,
    )


def _notices(view: View) -> Safe:
    """Where the script says that the page is not served any more, and what changed to those who do not see it."""
    gone = (
        "This page is not served any more; what you see is as it was. Start it again with ",
        tag("code", f"{view.outlast} ui"), ".",
    )  # fmt: skip
    return join((
        tag("div", class_="loading", id="loading", hidden=True),
        tag("p", icon("needs-you"), tag("span", gone), id="gone", class_="notice t-bad", role="alert", hidden=True),
        tag("p", id="said", class_="unseen", role="status", aria_live="polite"),
    ))  # fmt: skip


def _crumbs(crumbs: Iterable[tuple[str, str]]) -> Safe | None:
    steps = [tag("li", tag("a", formats.clip(label, 60), href=href)) for label, href in crumbs]
    return tag("nav", tag("ol", steps), aria_label="Above this page", class_="crumbs") if steps else None


def _foot(view: View) -> Safe:
    return tag(
        "footer",
        tag("span", f"outlast {view.version}"),
        tag("span", "store ", tag("code", view.store_name)) if view.store_name else None,
        tag("span", f"as of event {view.number:,}") if view.store_name else None,
        tag("span", f"times in {view.zone_name}"),
        tag("a", "API", href="/api/openapi.json"),
        class_="foot",
        id="foot",
    )


def _keys() -> Safe:
    listed = [tag("div", tag("dt", tag("kbd", key)), tag("dd", meaning)) for key, meaning in _KEYS]
    return tag(
        "dialog",
        tag("h2", "Keys", id="keys-title"),
        tag("dl", listed, class_="keys"),
        tag(
            "p", tag("input", type="checkbox", id="keys-on", checked=True),
            tag("label", "single keys are on", for_="keys-on"), class_="box",
        ),
        tag("form", tag("button", "Close", class_="button"), method="dialog"),
        id="keys", aria_labelledby="keys-title",
    )  # fmt: skip


# -- states --------------------------------------------------------------------------------------------------------


def badge(of: Row | Child | RunInside | str) -> Safe:
    """How a run stands, by the sign of its status and its one word. Of a run that needs a person or is quiet, see `heading` and `quiet` too."""
    status = of if isinstance(of, str) else of.status
    word = status if isinstance(of, str) else of.standing or status
    return labelled(status, formats.spell(word), TONES.get(status, "mute"))


def labelled(sign: str, word: str, tone: Tone = "mute") -> Safe:
    """A sign and a word in a tone."""
    return tag("span", icon(sign), word, class_=f"badge t-{tone}")


def cause(name: str | None) -> Safe:
    """Why something stopped, by sign and word."""
    return tag("span", icon(name), formats.spell(name), class_="cause") if name else NOTHING


def quiet(row: Row) -> Safe:
    """A sign that an agent lives and does nothing; nothing if it does something."""
    if not row.quiet:
        return NOTHING
    words = f"{row.quiet} {formats.about(row.quiet_s)}"
    return labelled(row.quiet, words, TONES[row.quiet])


def notice(tone: Tone, *inside: object, sign: str = "") -> Safe:
    """A line that stands out."""
    return tag(
        "div",
        icon(sign or ("needs-you" if tone in ("bad", "warn") else "info")),
        tag("div", inside),
        class_=f"notice t-{tone}",
    )


def empty(title: str, *inside: object, command_line: str = "") -> Safe:
    """The text for an empty list, with what would fill it."""
    return tag(
        "div", tag("p", title, class_="empty-title"), tag("p", inside) if inside else None,
        command(command_line) if command_line else None, class_="empty",
    )  # fmt: skip


# -- times and amounts -----------------------------------------------------------------------------------------------


def when(view: View, at: datetime | None) -> Safe:
    """A moment by the reader's clock, exact on a closer look."""
    if at is None:
        return tag("span", "–", class_="dim")
    return tag(
        "time",
        formats.clock(at, view.zone, view.now),
        datetime=formats.machine(at),
        title=formats.exact(at, view.zone),
    )


def ago(view: View, at: datetime | None) -> Safe:
    """How long ago it was (or in how long it will be), which ticks; exact on a closer look."""
    if at is None:
        return tag("span", "–", class_="dim")
    return tag(
        "time",
        formats.age(at, view.now),
        datetime=formats.machine(at),
        title=formats.exact(at, view.zone),
        data_age=True,
    )


_UTC = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}) UTC\b")


def timed(view: View, text: str) -> Safe:
    """A sentence of ours, with its times by the reader's clock."""
    parts: list[object] = []
    for place, part in enumerate(_UTC.split(text)):
        try:
            parts.append(when(view, datetime.fromisoformat(f"{part}+00:00")) if place % 2 else part)
        except ValueError:
            parts.append(f"{part} UTC")
    return join(parts)


def meter(of: Meter, *, text: bool = True) -> Safe:
    """A budget as a bar with its words: the spending, the likely end (a tick), and whether it must wrap up.

    Without `text` the words are the bar's description, for places where they stand beside it anyway.
    """
    if not text:
        return tag("span", _bar(of, meter_words(of)), class_="meter")
    ahead = tag("span", _ahead(of), class_="meter-text") if _ahead(of) else None
    return tag(
        "span", tag("span", formats.share(of), class_="meter-text"), _bar(of, None), ahead, class_="meter"
    )


def meter_words(of: Meter) -> str:
    """The bar in words."""
    return ", ".join(part for part in (formats.of_limit(of), _ahead(of)) if part)


def _ahead(of: Meter) -> str:
    """The outlook: whether only the reserve is left, and where the budget will end."""
    ends = _ends(of)
    outlook = None if ends is None else f"forecast {formats.percent(ends)}"
    return ", ".join(
        part for part in ("on reserve" if of.wraps_up and (of.used_pct or 0) < 100 else None, outlook) if part
    )


def meter_tone(of: Meter) -> Tone:
    """How far it is from its limit."""
    used, ends = of.used_pct or 0, _ends(of) or 0
    if used >= 100:
        return "bad"
    return "warn" if of.wraps_up or used >= 80 or ends > 100 else "go"


def _bar(of: Meter, description: str | None) -> Safe | None:
    if of.limit is None:
        return None
    used, ends = min(100.0, of.used_pct or 0), _ends(of)
    tick = tag("rect", x=f"{min(98.0, ends):.1f}", width=2, height=6, class_="tick") if ends else None
    return tag(
        "svg", tag("rect", width=f"{used:.1f}", height=6, class_="fill"), tick,
        viewBox="0 0 100 6", preserveAspectRatio="none", class_=f"bar t-{meter_tone(of)}",
        role="img" if description else None, aria_label=description, aria_hidden=None if description else "true",
    )  # fmt: skip


def _ends(of: Meter) -> float | None:
    """The share where it will end by the forecast: never less than what is used, which was rounded on its own."""
    return (
        None if of.forecast is None or not of.limit else max(100 * of.forecast / of.limit, of.used_pct or 0)
    )


def progress(done: int, total: int | None) -> Safe:
    """Beats of a plan, with a bar where there is a plan."""
    if total is None:
        return tag("span", f"{done:,}", class_="n")
    share = min(100.0, 100 * done / total) if total else 100.0
    bar = tag(
        "svg", tag("rect", width=f"{share:.1f}", height=6, class_="fill"), viewBox="0 0 100 6",
        preserveAspectRatio="none", class_="bar small t-mute", aria_hidden="true",
    )  # fmt: skip
    return join((tag("span", f"{done:,} of {total:,}", class_="n"), bar))


# -- pieces ----------------------------------------------------------------------------------------------------------


def command(text: str) -> Safe:
    """A command line to copy: one click marks all of it, and with the script a button copies it."""
    return tag(
        "span",
        tag("code", _unbroken(text)),
        tag("button", icon("copy"), type="button", class_="copy only-js", data_copy=True, aria_label="Copy the command", title="Copy"),
        class_="command",
    )  # fmt: skip


def ours(view: View, text: str) -> Safe:
    """A command of ours to copy, such that it leads to this store from wherever it is typed."""
    return command(f"{view.outlast}{text.removeprefix('outlast')}")


def _unbroken(line: str) -> Iterator[object]:
    """The words of a command, none of which is torn at its hyphens."""
    for at, word in enumerate(line.split(" ")):
        yield " " if at else None
        yield tag("span", word, class_="unbroken") if "-" in word else word


def button(text: object, href: str, *, primary: bool = False, sign: str = "") -> Safe:
    """A link that looks like a button: it leads to a page that asks, and does nothing by itself."""
    return tag(
        "a", icon(sign) if sign else None, text, href=href, class_="button primary" if primary else "button"
    )


def panel(title: object, *inside: object, id_: str | None = None, aside: object = None) -> Safe:
    """A part of a page under its own heading."""
    head = tag(
        "div", tag("h2", title), tag("div", aside, class_="aside") if aside else None, class_="panel-head"
    )
    return tag("section", head, inside, class_="panel", id=id_)


def facts(pairs: Iterable[tuple[str, object]]) -> Safe:
    """Names and values; a pair without a value is left out."""
    shown = [
        tag("div", tag("dt", name), tag("dd", value))
        for name, value in pairs
        if value not in (None, "", False)
    ]
    return tag("dl", shown, class_="facts")


def csrf(view: View) -> Safe:
    """The field that every acting form must carry."""
    return tag("input", type="hidden", name="csrf", value=view.csrf)


# -- getting about -----------------------------------------------------------------------------------------------------


def tabs(view: View, row: Row, current: Tab) -> Safe:
    """The pages of a run. `view` is for what may come to depend on the request."""
    links = [
        tag("a", label, href=run_url(row.run, *([] if name == "run" else [name])), aria_current="page" if name == current else None)
        for name, label in _TABS
    ]  # fmt: skip
    return tag("nav", links, aria_label="Pages of this run", class_="tabs")


def pager(view: View, older: int | None, *, name: str = "before", word: str = "Older") -> Safe:
    """Below a list of the newest: on to older ones, and back to the newest."""
    others = {key: value for key, value in view.query.items() if key != name}
    newest = (
        tag("a", icon("left"), "Newest", href=url(view.path, others), class_="button")
        if name in view.query
        else None
    )
    more = None
    if older is not None:
        more = tag(
            "a",
            word,
            icon("right"),
            href=url(view.path, others | {name: str(older)}),
            class_="button",
            rel="next",
        )
    return tag("nav", newest, more, aria_label="More of these", class_="pager") if newest or more else NOTHING


def pages(page: int, total: int, links: "Mapping[int, str]") -> Safe:
    """Below a list with numbered pages: `links` has those of page-1, page+1, 1 and total, as far as there are any."""
    if total <= 1:
        return NOTHING
    before = (
        tag("a", icon("left"), "Page before", href=links[page - 1], class_="button", rel="prev")
        if page > 1
        else None
    )
    after = (
        tag("a", "Next page", icon("right"), href=links[page + 1], class_="button", rel="next")
        if page < total
        else None
    )
    position = tag("span", f"page {page:,} of {total:,}", class_="dim")
    return tag("nav", before, position, after, aria_label="Further pages", class_="pager")
