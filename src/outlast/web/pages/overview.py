"""The first page: is all well, and if not, what should I do? Then every run, by project, children under their roots."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from outlast.dashboard.documents import Ask, Overview, Row
from outlast.dashboard.overview.verdict import verdict
from outlast.dashboard.run import request_words
from outlast.web.html import formats, layout, next_step, questions
from outlast.web.html.html import NOTHING, Safe, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import View, ago, badge, run_url
from outlast.web.pages import filters

CARDS_MAX = 6
GOAL_CHARS_MAX = 110
WHY_CHARS_MAX = 300
NAME_CHARS_MAX = 40
WAITING_CHARS_MAX = 80
PATH_CHARS_MAX = 120
DEPTH_MAX = 3
_COLUMNS = ("Status", "Task", "Agent", "Beat", "Activity", "Budget", "Save", "Attempts")


def render(view: View, ask: Ask, overview: Overview) -> Safe:
    """All runs at a glance."""
    sentence, _ = verdict(overview)
    if not overview.total:
        return layout.page(view, "No runs yet", _verdict(overview), _nothing_yet(view), place="overview")
    return layout.page(
        view, sentence, _verdict(overview), _needs(view, overview), _dead_channels(view, overview), filters.render(ask, overview), _fitting(ask, overview),
        _table(view, ask, overview), _pages(ask, overview), place="overview",
    )  # fmt: skip


# -- the verdict -----------------------------------------------------------------------------------------------------


def _verdict(overview: Overview) -> Safe:
    sentence, tone = verdict(overview)
    sign = {"bad": "needs-you", "warn": "stuck", "good": "done"}.get(tone, "")
    return tag(
        "div",
        tag("h1", icon(sign) if sign else None, sentence, class_=f"t-{tone}", data_said=True),
        tag("p", _dotted(_sums(overview)), class_="dim"),
        class_="verdict", id="verdict",
    )  # fmt: skip


def _dotted(parts: Iterable[object]) -> list[object]:
    return [each for at, part in enumerate(parts) for each in (" · " if at else None, part)]


def _sums(overview: Overview) -> Iterator[object]:
    """How many there are of each, over all runs as the sentence above it; who is quiet is a click away."""
    counts = {count.name: count.runs for count in overview.all_whats}
    quiet = {"stuck": overview.stuck, "idle": overview.idle}
    for name in ("running", "stuck", "idle", "stopped", "done"):
        if quiet.get(name):
            yield tag("a", f"{quiet[name]:,} {name}", href=f"{filters.link(Ask(q=name))}#runs")
        elif counts.get(name):
            yield f"{counts[name]:,} {name}"
    spent = overview.all_spent
    if spent is not None and spent.tokens:
        yield f"{formats.short(spent.tokens)} tokens, {formats.cost(spent)}"


def _nothing_yet(view: View) -> Safe:
    return layout.empty(
        "Nothing was started on this store.",
        "Put `outlast run --` before the command of an agent. It shows up here by itself.",
        command_line=f"{view.outlast} run -- claude -p 'make the tests pass'",
    )


# -- what needs a person -----------------------------------------------------------------------------------------------


def _needs(view: View, overview: Overview) -> Safe:
    """A card for each, with what helps: those that need a person, then those that will not restart by themselves. More than fit here
    are in the list below, on top.
    """
    needing = overview.needs[:CARDS_MAX]
    stranded = overview.stranded_rows[: CARDS_MAX - len(needing)]
    if not needing and not stranded:
        return NOTHING
    left = overview.stranded - len(stranded)
    rest = (
        (overview.needs_total - len(needing), "more that need you", Ask(what=("needs you",))),
        (
            left,
            f"more that {'has' if left == 1 else 'have'} stopped",
            Ask(what=("stopped",)),
        ),
    )
    more = [tag("a", f"{count:,} {label}", href=filters.link(ask)) for count, label, ask in rest if count > 0]
    return tag(
        "section",
        tag("h2", "What needs you" if needing else "What has stopped", class_="unseen"),
        tag("ul", [_card(view, row) for row in (*needing, *stranded)], class_="cards"),
        tag("p", "and ", _dotted(more), class_="dim") if more else None,
        id="needs",
    )  # fmt: skip


def _dead_channels(view: View, overview: Overview) -> list[Safe]:
    """A line for each channel on which the last notice did not arrive: who relies on it waits for nothing."""
    return [
        layout.notice(
            "warn", "Notifications by ", tag("strong", dead.channel), " do not arrive (", ago(view, dead.failed_at), "): ",
            formats.clip(dead.problem, WHY_CHARS_MAX), ". Correct it, then type ",
            tag("code", f"{view.outlast} notify --test {dead.channel}"), ".",
        )
        for dead in overview.dead_channels
    ]  # fmt: skip


def _card(view: View, row: Row) -> Safe:
    head = (
        badge(row),
        tag("a", formats.clip(row.task, 60), href=run_url(row.run), class_="task"),
        ago(view, row.updated_at),
    )
    return tag(
        "li",
        tag("div", head, class_="card-head"),
        questions.open_questions(view, row)
        or tag("p", formats.clip(next_step.why(row), WHY_CHARS_MAX) or "it waits for a person", class_="why"),
        tag("p", formats.clip(row.goal, GOAL_CHARS_MAX), class_="dim goal") if row.goal else None,
        tag("div", _helps(view, row), class_="card-foot") if not row.waits_for else None,
        class_=f"card t-{'warn' if row.stranded else 'bad'}", id=f"n-{row.run}",
    )  # fmt: skip


def _helps(view: View, row: Row) -> Iterator[Safe]:
    """The act that helps a run: a button and a command; for a program that outlast did not start, that its user must start it."""
    if next_step.is_started_by_hand(row):
        yield tag("span", f"Start its program again: it goes on at beat {row.beats + 1:,}.")
        return
    if row.act is not None and not view.read_only:
        named = (next_step.word(row), tag("span", f": {formats.clip(row.task, 60)}", class_="unseen"))
        yield layout.button(named, next_step.link(row.run, row.act, row.command), primary=True)
    if next_step.typed(row):
        yield layout.ours(view, next_step.typed(row))
    elif row.act == "settle" and view.read_only:
        yield layout.ours(view, f"outlast effects {row.run}")
    if row.own_program and row.act == "resume":
        yield tag("span", "Then start its program again.")


# -- the table -----------------------------------------------------------------------------------------------------


def _fitting(ask: Ask, overview: Overview) -> Safe | None:
    """How many are left by the filters, and what they spent; without any it stands above."""
    if not filters.is_filtered(ask):
        return None
    spent = overview.spent
    amounts = f": {formats.short(spent.tokens)} tokens, {formats.cost(spent)}" if spent.tokens else ""
    sentence = f"{formats.plural(overview.found, 'run fits', 'runs fit')} of {overview.total:,}{amounts}"
    return tag("p", sentence, class_="dim", id="fitting")


def _table(view: View, ask: Ask, overview: Overview) -> Safe:
    if not overview.rows:
        clear = tag("a", "Show all runs", href=filters.link(Ask()))
        return tag(
            "div", layout.empty(f"None of {formats.plural(overview.total, 'run')} matches.", clear), id="runs"
        )
    head = tag("tr", [tag("th", name, scope="col") for name in _COLUMNS])
    caption = (
        f"Runs, {formats.plural(overview.found, 'fits', 'fit')}; page {overview.page} of {overview.pages}"
    )
    return tag(
        "table", tag("caption", caption, class_="unseen"), tag("thead", head), _bodies(view, ask, overview),
        class_="table runs", id="runs",
    )  # fmt: skip


def _bodies(view: View, ask: Ask, overview: Overview) -> Iterable[Safe]:
    depths = _depths(overview.rows) if ask.grouped else {}
    if not ask.grouped:
        return [tag("tbody", [_row(view, row, 0, with_project=True) for row in overview.rows])]
    counts = {count.name: count for count in overview.projects}
    bodies = []
    for project, rows in groupby(overview.rows, key=lambda row: row.project):
        listed = list(rows)
        count = counts.get(project)
        bodies.append(
            tag(
                "tbody",
                _group(listed[0], count.runs if count else 0),
                [_row(view, row, depths[row.run]) for row in listed],
            )
        )
    return bodies


def _depths(rows: Iterable[Row]) -> dict[str, int]:
    """How far a run stands under its root; one whose parent is not on this page stands a step in."""
    depths: dict[str, int] = {}
    for row in rows:
        depths[row.run] = min(DEPTH_MAX, depths.get(row.parent, 0) + 1) if row.parent else 0
    return depths


def _group(row: Row, runs: int) -> Safe:
    path = (
        tag("span", formats.clip(row.project, PATH_CHARS_MAX), class_="dim path")
        if row.project != row.project_name
        else None
    )
    count = tag("span", formats.plural(runs, "run"), class_="dim") if runs else None
    return tag(
        "tr",
        tag(
            "th",
            formats.clip(row.project_name, 60),
            " ",
            count,
            " ",
            path,
            colspan=len(_COLUMNS),
            scope="rowgroup",
        ),
        class_="group",
    )


def _row(view: View, row: Row, depth: int, *, with_project: bool = False) -> Safe:
    return tag(
        "tr",
        tag("td", badge(row), tag("div", _under_status(row), class_="dim")),
        tag("td", _task(row, depth, with_project=with_project), class_=f"d{depth}" if depth else None),
        tag("td", _agent(row)),
        tag("td", layout.progress(row.beats, row.plan_total)),
        tag("td", _activity(view, row)),
        tag("td", _budget(row)),
        tag("td", _save(row)),
        tag("td", f"{row.attempts:,}", class_="n"),
        id=f"r-{row.run}", class_="needs" if row.what == "needs you" else None,
    )  # fmt: skip


def _agent(row: Row) -> tuple[object, ...]:
    model = tag("div", formats.clip(row.model, NAME_CHARS_MAX), class_="dim") if row.model else None
    return (tag("div", formats.clip(row.agent, NAME_CHARS_MAX)) if row.agent else _none(), model)


def _none() -> Safe:
    """Nothing to tell; on a phone, no line for it."""
    return tag("span", "–", class_="dim none")


def _under_status(row: Row) -> object:
    if waiting := request_words.pending_clauses(row.pending, row.asks):
        return formats.clip("; ".join(waiting), WAITING_CHARS_MAX)
    if row.in_doubt:
        count = formats.plural(row.in_doubt, "effect")
        return count if row.standing in ("in_doubt", "unsettled") else f"{count} in doubt"
    return formats.spell(row.cause) if row.cause and row.cause != "done" else None


def _task(row: Row, depth: int, *, with_project: bool) -> tuple[object, ...]:
    link = tag("a", formats.clip(row.task, 60), href=run_url(row.run), class_="task", data_row=True)
    doing = next_step.why(row) if row.what in ("needs you", "stopped") else row.step or row.stage
    texts = (row.project_name if with_project else "", doing, row.goal)
    second = " · ".join(formats.clip(each, GOAL_CHARS_MAX) for each in texts if each) or row.run
    return (
        tag("div", icon("child") if depth else None, link, class_="line"),
        tag("div", second, class_="line dim"),
    )


def _activity(view: View, row: Row) -> tuple[object, ...]:
    under: object = layout.quiet(row) or None
    if row.status == "parked" and row.parked_until is not None:
        under = tag("span", "until ", layout.when(view, row.parked_until), class_="dim")
    return (tag("div", ago(view, row.active_at or row.updated_at)), tag("div", under) if under else None)


def _budget(row: Row) -> Safe:
    if row.meters:
        return layout.meter(row.meters[0])
    return (
        tag("span", f"{formats.short(row.spent.tokens)} tokens", class_="dim")
        if row.spent.tokens
        else _none()
    )


def _save(row: Row) -> Safe:
    if not row.last_save:
        return _none()
    named = tag("span", f"save of {formats.clip(row.task, 60)}: ", class_="unseen")
    return tag("a", named, row.last_save[:7], href=run_url(row.run, "saves", row.last_save), class_="mono")


def _pages(ask: Ask, overview: Overview) -> Safe:
    near = {
        number: f"{filters.link(ask, page=number)}#runs" for number in (overview.page - 1, overview.page + 1)
    }
    return layout.pages(overview.page, overview.pages, near)
