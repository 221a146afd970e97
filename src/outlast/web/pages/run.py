"""A run's first page: its status, its need, its course and its progress; and the page of its beats."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from outlast.core.values import MemoryRef, SessionMark
from outlast.dashboard.documents import Beats, Row, RunPage, Timeline
from outlast.dashboard.run import request_words
from outlast.inspect.show import Completed, Effect, PlanStep, Shown
from outlast.inspect.standing import RESTARTED_BY
from outlast.web.charts import run_charts
from outlast.web.html import formats, layout, next_step, questions, run_parts
from outlast.web.html.html import NOTHING, Safe, join, tag
from outlast.web.html.icons import icon
from outlast.web.html.layout import View

STEPS_DONE_SHOWN = 12
STEPS_TO_DO_SHOWN = 15
STEPS_BELOW_SHOWN = 3
LINES_OPEN, LINES_MAX = 20, 60
GOAL_CHARS, GOAL_CHARS_MAX = 1_200, 8_000
RULES_SHOWN, CHILDREN_SHOWN, MEMORY_SHOWN, DOUBTS_SHOWN = 20, 20, 20, 5
BEATS_SHOWN = 20
_OTHERS = re.compile(r"\(… ([0-9,]{1,12}) (?:before|after)\)")  # as `show` counts steps that it leaves out
_STEP_WORDS = {"done": ("done", "done"), "next": ("right", "next"), "to_do": ("", "to do")}


def render(view: View, page: RunPage) -> Safe:
    """Where a run stands, and what to do."""
    row, shown = page.row, page.shown
    left = (_plan_panel(shown, lives=row.lives), _beats_panel(view, row, shown))
    right = (
        _budget_panel(row),
        _contract_panel(shown),
        _facts_panel(view, page),
        _memory_panel(shown.memory),
    )
    return run_parts.page(
        view, row, "run", run_parts.act_buttons(view, row), _questions(view, row), _needs(view, page), _doubts(view, row, shown),
        _timeline_panel(view, row, page.timeline), tag("div", tag("div", left), tag("div", right), class_="columns"),
        below=[*(child.run for child in shown.children[-CHILDREN_SHOWN:]), *(each.run for each in shown.inside[-CHILDREN_SHOWN:])],
    )  # fmt: skip


# -- what it needs ---------------------------------------------------------------------------------------------------


def _questions(view: View, row: Row) -> Safe | None:
    """What it waits for a person to answer."""
    found = questions.open_questions(view, row)
    return layout.panel("It waits for your answer", found, id_="questions") if found else None


def _needs(view: View, page: RunPage) -> Safe:
    """Why it stands as it does, and the command that helps."""
    row = page.row
    tone: layout.Tone = "bad" if row.what == "needs you" else "warn" if row.what == "stopped" else "go"
    if row.what == "done":
        tone = "good" if row.status == "done" else "mute"
    why = next_step.why(row) or page.shown.evidence or _plain_state(row)
    parts: list[object] = [run_parts.long_text(why, id_="why", name="reason")]
    if row.quiet:
        tone = "warn" if row.quiet == "stuck" else tone
        parts.append(_quiet(row))
    if row.parked_until is not None:
        parts.append(tag("p", _wakes(view, row, row.parked_until)))
    elif next_step.is_started_by_hand(row):
        parts.append(
            tag("p", "outlast did not start this program: start it again yourself, and the run goes on.")
        )
    elif row.stranded:
        parts.append(tag("p", f"It has stopped; {RESTARTED_BY.replace('`', '')}."))
    if page.waits:
        parts.append(tag("p", "It waits ", page.waits, "."))
    for request in page.shown.pending:
        [clause] = request_words.pending_clauses([request])
        says = f"{clause[0].upper()}{clause[1:]}"
        when = request_words.taken_in(row.status)
        parts.append(tag("p", says, " ", layout.ago(view, request.at), f"; {when}."))
    if page.shown.asks:
        grant = layout.ours(view, f"outlast budget {row.run} {page.shown.asks}")
        parts.append(tag("p", "Its agent asks for more budget. To grant it: ", grant))
    if row.parent:
        root = tag("a", f"run {row.root}", href=layout.run_url(row.root))
        parts.append(tag("p", "It is a child: pause, resume and budget act on its root, ", root, "."))
    typed = f"outlast pause {row.run}" if row.quiet == "stuck" else next_step.typed(row)
    if typed and not next_step.is_started_by_hand(row):
        parts.append(tag("p", layout.ours(view, typed)))
    word = {"needs you": "Needs you: ", "stopped": "Stopped: "}.get(row.what)
    sign = {
        "needs you": "needs-you",
        "stopped": "stopped",
        "running": row.quiet or "running",
        "done": "done",
    }[row.what]
    return tag(
        "div", layout.notice(tone, tag("strong", word) if word else None, parts, sign=sign), id="needs"
    )


def _quiet(row: Row) -> Safe:
    """For a run that lives and does nothing: how long, where to look, and what helps."""
    output = tag("a", "its output", href=layout.run_url(row.run, "output"))
    age = formats.about(row.quiet_s)
    if row.quiet == "idle":
        return tag("p", f"It wrote nothing for {age}, as in a long build or test. See ", output, ".")
    hangs = "; if it hangs, pause it, then resume it."
    return tag("p", f"It is stuck: it wrote nothing for {age}. See ", output, hangs)


def _wakes(view: View, row: Row, until: datetime) -> tuple[object, ...]:
    """Say who starts a waiting run when its time has come: the service, or its owner if it is their own program."""
    if until > view.now:
        waits = ("It waits until ", layout.when(view, until), " (", layout.ago(view, until), "). ")
        if row.own_program:
            return (*waits, "Start its program then.")
        by_hand = tag("code", f"{view.outlast} resume --all")
        return (*waits, "After that the service starts it, or ", by_hand, ".")
    come = ("Its time has come: it waited until ", layout.when(view, until), ". ")
    return (*come, "Start its program again." if row.own_program else "Resume it.")


def _plain_state(row: Row) -> str:
    match row.status:
        case "running":
            return f"It runs{f': {row.stage}' if row.stage else ''}."
        case "done":
            return "It is done."
        case _:
            return f"It is {formats.spell(row.standing or row.status)}."


def _doubts(view: View, row: Row, shown: Shown) -> Safe:
    """Effects of which nobody knows whether they happened: first of all, with the three answers."""
    doubts = [effect for effect in shown.effects if effect.state == "in_doubt"]
    elsewhere = row.in_doubt - len(doubts)
    if not doubts and elsewhere <= 0:
        return NOTHING
    cards: list[Safe] = [_doubt(view, row, effect) for effect in doubts[:DOUBTS_SHOWN]]
    rest = max(0, elsewhere) + max(0, len(doubts) - DOUBTS_SHOWN)
    more = None
    if rest:
        link = tag("a", "all effects", href=layout.run_url(row.run, "effects"))
        more = tag("p", f"{rest:,} more, of this run or its children: see ", link, ".")
    title = f"In doubt: {formats.plural(len(doubts) or rest, 'effect')}"
    return layout.panel(title, run_parts.what_to_do(row), cards, more, id_="doubts")


def _doubt(view: View, row: Row, effect: Effect) -> Safe:
    return tag(
        "article",
        tag("h3", tag("span", effect.id, class_="n"), " ", run_parts.clipped(run_parts.act_words(effect), 300)),
        tag("p", "intended ", layout.ago(view, effect.intended_at), ", at ", layout.when(view, effect.intended_at), "; ",
            f"policy {effect.policy}; no outcome", class_="dim"),
        tag("p", run_parts.long_text(effect.evidence, id_=f"doubt-{effect.id}-why", name="evidence", most=run_parts.RESULT_CHARS)) if effect.evidence else None,
        run_parts.settle_links(view, row.run, effect.id), class_="doubt", id=f"doubt-{effect.id}",
    )  # fmt: skip


# -- what happened when ------------------------------------------------------------------------------------------------


def _timeline_panel(view: View, row: Row, timeline: Timeline) -> Safe:
    if not timeline.attempts and not timeline.beats and not timeline.moments:
        nothing = layout.empty("Nothing has happened yet", "It waits for its first attempt.")
        return layout.panel("Timeline", nothing, id_="timeline")
    entries = _history(view, row, timeline)
    lines = [tag("li", each, id=id_) for _, id_, each in entries[:LINES_MAX]]
    shown, rest = lines[:LINES_OPEN], lines[LINES_OPEN:]
    folded = None
    if rest:
        all_of_it = tag("a", "the journal", href=layout.run_url(row.run, "journal"))
        folded = tag(
            "details", tag("summary", f"{len(rest):,} earlier"),
            tag("ol", rest, class_="told", reversed=True, start=max(1, len(entries) - LINES_OPEN)),
            tag("p", "Everything is in ", all_of_it, ".") if len(entries) > LINES_MAX or _is_cut(timeline) else None,
            id="told-earlier", class_="fold",
        )  # fmt: skip
    drawn = run_charts.timeline(timeline, row.status, view.zone, row.plan_total)
    attempts = formats.plural(timeline.attempts_total, "attempt")
    lasted = formats.span((timeline.until - timeline.since).total_seconds())
    return layout.panel(
        "Timeline", drawn, tag("h3", "The same in words, newest first"),
        tag("ol", shown, class_="told", reversed=True, start=len(entries)), folded,
        id_="timeline", aside=f"{attempts} over {lasted}",
    )  # fmt: skip


def _is_cut(timeline: Timeline) -> bool:
    listed = len(timeline.attempts) + len(timeline.moments)
    return timeline.attempts_total + timeline.moments_total > listed


def _history(view: View, row: Row, timeline: Timeline) -> list[tuple[datetime, str, Safe]]:
    """Starts and ends of attempts and all moments, newest first, each with a name of its own."""
    found: list[tuple[datetime, str, Safe]] = []
    attempts = run_charts.lived(timeline, row.status)
    for lived, attempt in zip(attempts, timeline.attempts, strict=True):
        where = f"on {attempt.host}, pid {attempt.pid}" if attempt.pid else ""
        word = "starts" if lived.number == 1 else "resumes"
        begins = _line(view, lived.since, "play", "calm", f"attempt {lived.number} {word}", where)
        found.append((lived.since, f"attempt-{lived.number}-begins", begins))
        if lived.shape != "dot":
            code = f", exit code {attempt.exit_code}" if attempt.exit_code else ""
            ends = f"attempt {lived.number} ends after {run_charts.lasted(lived)}: {lived.word}{code}"
            line = _line(view, lived.until, lived.shape, lived.tone, ends, lived.evidence)
            found.append((lived.until, f"attempt-{lived.number}-ends", line))
    for moment in timeline.moments:
        shape, tone, _ = run_charts.moment_look(moment.kind)
        word, text = run_charts.moment_words(moment)
        link = _diff_link(row, moment.save) if moment.save else None
        found.append(
            (moment.at, f"moment-{moment.seq}", _line(view, moment.at, shape, tone, word, text, link))
        )
    return sorted(found, key=lambda each: each[0], reverse=True)


def _line(
    view: View, at: datetime, shape: str, tone: str, word: str, text: str, link: Safe | None = None
) -> Safe:
    more = (": ", run_parts.clipped(text, 240)) if text else None
    return join(
        (
            run_parts.second(view, at),
            run_charts.sign(shape, tone),
            tag("span", tag("strong", word), more, link and (" ", link)),
        )
    )


def _diff_link(row: Row, commit: str) -> Safe:
    return tag("a", commit[:7], href=layout.run_url(row.run, "saves", commit), class_="mono")


# -- plan --------------------------------------------------------------------------------------------------------------


def _plan_panel(shown: Shown, *, lives: bool) -> Safe:
    if shown.plan is None:
        note = "This run has no list of steps: it goes on until its goal is reached."
        return layout.panel("Plan", tag("p", note, class_="dim"), id_="plan")
    total = shown.plan_total or 0
    return layout.panel(
        "Plan", _steps(shown.plan, "plan", lives=lives), id_="plan",
        aside=tag("span", layout.progress(min(shown.beats, total), total), class_="progress"),
    )  # fmt: skip


def _steps(steps: Sequence[PlanStep], id_: str, *, lives: bool) -> Safe:
    """The steps of one level: those that are done folded, the next one open, of the others the first.

    A step that has steps of its own is a part: beats count steps, and not parts.
    """
    one = "part" if any(step.steps for step in steps) else "step"
    done, before = _counted([step for step in steps if step.state == "done"], STEPS_DONE_SHOWN, newest=True)
    later, after = _counted(
        [step for step in steps if step.state == "to_do"], STEPS_TO_DO_SHOWN, newest=False
    )
    ahead = [step for step in steps if step.state == "next"]
    folded = None
    if done or before:
        earlier = tag("li", f"{before:,} before these", class_="dim") if before else None
        listed = tag("ul", earlier, [_step(step) for step in done], class_="plan")
        word = "done" if ahead or later or after else "done, all of them"
        summary = tag("summary", icon("done"), f" {formats.plural(len(done) + before, one)} {word}")
        folded = tag("details", summary, listed, id=f"{id_}-done", class_="fold")
    lines = [
        tag("li", _step_line(step, lives=lives), _steps(step.steps, f"{id_}-{index}", lives=lives) if step.steps else None,
            class_="next", aria_current="step" if not step.steps else None)
        for index, step in enumerate(ahead)
    ]  # fmt: skip
    lines += [_step(step, below=STEPS_BELOW_SHOWN) for step in later]
    if after:
        lines.append(tag("li", f"… and {formats.plural(after, f'more {one}')} to do", class_="dim"))
    return join((folded, tag("ul", lines, class_="plan") if lines else None))


def _counted(steps: list[PlanStep], most: int, *, newest: bool) -> tuple[list[PlanStep], int]:
    """The steps to show, and how many others there are. Some steps stand for several that were counted before."""
    named = [step for step in steps if not _OTHERS.fullmatch(step.name)]
    others = sum(int(found[1].replace(",", "")) for step in steps if (found := _OTHERS.fullmatch(step.name)))
    shown = named[-most:] if newest else named[:most]
    return shown, others + len(named) - len(shown)


def _step(step: PlanStep, *, below: int = 0) -> Safe:
    count = _leaves(step.steps)
    inner = None
    if step.steps and below:
        inner = tag("ul", [_step(each) for each in step.steps[:below]], class_="plan")
    hidden = count - (min(below, len(step.steps)) if below else 0)
    more = (
        tag("span", f" ({formats.plural(hidden, 'step')})", class_="dim")
        if step.steps and hidden > 0
        else None
    )
    return tag("li", _step_line(step), more, inner, class_=step.state)


def _step_line(step: PlanStep, *, lives: bool = False) -> Safe:
    sign, word = _STEP_WORDS[step.state]
    if lives and step.state == "next":
        word = "now"
    mark = tag("span", icon(sign) if sign else None, word, class_="step-word")
    return join((mark, " ", tag("span", run_parts.clipped(step.name, 160), class_="step-name")))


def _leaves(steps: Iterable[PlanStep]) -> int:
    return sum(_leaves(step.steps) if step.steps else 1 for step in steps)


# -- beats -------------------------------------------------------------------------------------------------------------


def _beats_panel(view: View, row: Row, shown: Shown) -> Safe:
    if not shown.completed:
        return layout.panel("Last beats", layout.empty("No beat is done yet"), id_="beats")
    newest = tuple(reversed(shown.completed))[:BEATS_SHOWN]
    link = (
        tag("a", f"all {row.beats:,}", href=layout.run_url(row.run, "beats"))
        if row.beats > len(newest)
        else None
    )
    return layout.panel("Last beats", _beat_list(view, newest), id_="beats", aside=link)


def beats(view: View, row: Row, given: Beats) -> Safe:
    """Completed beats, newest first."""
    if not given.beats:
        body = layout.empty("No beat is done yet", "A beat is one turn of the agent, closed by a save point.")
    else:
        body = join((_beat_list(view, given.beats), layout.pager(view, given.before)))
    return run_parts.page(
        view, row, "beats", layout.panel(formats.plural(given.total, "beat"), body, id_="beats")
    )  # fmt: skip


def _beat_list(view: View, given: Iterable[Completed]) -> Safe:
    return tag("ol", [_beat(view, each) for each in given], class_="beats")


def _beat(view: View, done: Completed) -> Safe:
    result = run_parts.result(done.result, id_=f"beat-{done.beat}-result")
    evidence = run_parts.value(done.evidence, id_=f"beat-{done.beat}-evidence", name="evidence")
    return tag(
        "li",
        tag(
            "div",
            tag("span", f"beat {done.beat:,}", class_="n"),
            layout.when(view, done.at),
            class_="beat-when",
        ),
        tag(
            "div",
            tag("div", run_parts.clipped(done.step, 240), class_="beat-step") if done.step else None,
            tag("div", result) if result else tag("div", "no result was given", class_="dim"),
            tag("div", tag("span", "evidence ", class_="dim"), evidence) if evidence else None,
        ),
        id=f"beat-{done.beat}",
    )


# -- facts -------------------------------------------------------------------------------------------------------------


def _budget_panel(row: Row) -> Safe:
    link = tag("a", "burn-down", href=layout.run_url(row.run, "budget"))
    limited = [each for each in row.meters if each.limit is not None]
    sums = tag(
        "p",
        f"{formats.short(row.spent.tokens)} tokens, {formats.cost(row.spent)}, {formats.span(row.spent.time_ms / 1000)}",
        class_="dim",
    )
    meters = [tag("div", layout.meter(each)) for each in limited] or [
        tag("p", "There is no limit.", class_="dim")
    ]
    return layout.panel("Budget", meters, sums, id_="budget", aside=link)


def _contract_panel(shown: Shown) -> Safe:
    goal = run_parts.long_text(shown.goal, id_="goal", name="goal", inline=GOAL_CHARS, most=GOAL_CHARS_MAX)
    return layout.panel(
        "Contract",
        tag("h3", "Goal"), tag("div", goal, class_="goal") if shown.goal else tag("p", "none was given", class_="dim"),
        tag("h3", "Checks"), _rules(shown.checks, "Nothing is checked before it may say done."),
        tag("h3", "Invariants"), _rules(shown.invariants, "Nothing is checked at a beat's end."),
        id_="contract",
    )  # fmt: skip


def _rules(given: Sequence[str], nothing: str) -> Safe:
    if not given:
        return tag("p", nothing, class_="dim")
    more = len(given) - RULES_SHOWN
    return tag(
        "ul", [tag("li", tag("code", run_parts.clipped(each, 240))) for each in given[:RULES_SHOWN]],
        tag("li", f"… and {more:,} more", class_="dim") if more > 0 else None, class_="rules",
    )  # fmt: skip


def _facts_panel(view: View, page: RunPage) -> Safe:
    row, shown = page.row, page.shown
    holder = shown.holder
    held = holder and join((f"pid {holder.pid} on {holder.host} since ", layout.when(view, holder.since)))
    agent = f"{row.agent}{f', {row.model}' if row.model else ''}"
    pairs: list[tuple[str, object]] = [
        ("Run", tag("code", row.run)),
        ("Project", tag("span", row.project_name or row.project, title=row.project)),
        ("Agent", formats.clip(agent, 160)),
        ("Stage", run_parts.clipped(row.stage, 200) if row.stage else None),
        ("Workspace", tag("code", formats.clip(shown.workspace, 400)) if shown.workspace else None),
        ("Branch", tag("code", formats.clip(shown.worktree.branch, 160)) if shown.worktree else None),
        ("Held by", held),
        ("Last activity", layout.ago(view, row.active_at) if row.active_at else None),
        ("Last save", _last_save(view, row, shown)),
        ("Session", _session(shown.session)),
        ("Go on without us", layout.command(page.agent_line) if page.agent_line else None),
        ("Forked from", _origin(shown.fork.run, shown.fork.beat) if shown.fork else None),
        ("Child of", _origin(shown.parent.run, shown.parent.beat) if shown.parent else None),
        ("Children", _children(shown) if shown.children else None),
        (
            "Inside of",
            tag("a", shown.within, href=layout.run_url(shown.within), class_="mono")
            if shown.within
            else None,
        ),
        ("Runs inside", _inside(shown) if shown.inside else None),
        ("Opened", layout.when(view, row.created_at)),
        ("Changed", layout.ago(view, row.updated_at)),
    ]
    return layout.panel("Facts", layout.facts(pairs), id_="facts")


def _last_save(view: View, row: Row, shown: Shown) -> Safe | None:
    if not row.last_save:
        return None
    made = next((save.at for save in shown.saves if save.commit == row.last_save), None)
    return join((_diff_link(row, row.last_save), (" ", layout.ago(view, made)) if made else None))


def _session(mark: SessionMark | None) -> Safe | None:
    if mark is None:
        return None
    path = tag("div", run_parts.clipped(mark.path, 300), class_="dim") if mark.path else None
    return join((tag("code", run_parts.clipped(mark.session, 200)), path))


def _origin(run: str, beat: int) -> Safe:
    return join((tag("a", run, href=layout.run_url(run), class_="mono"), f" at beat {beat:,}"))


def _children(shown: Shown) -> Safe:
    lines = [
        tag("li", tag("a", run_parts.clipped(child.task, 120), href=layout.run_url(child.run)), f" at beat {child.beat:,} ",
            layout.badge(child))
        for child in reversed(shown.children[-CHILDREN_SHOWN:])
    ]  # fmt: skip
    more = len(shown.children) - CHILDREN_SHOWN
    return tag(
        "ul", lines, tag("li", f"… and {more:,} more", class_="dim") if more > 0 else None, class_="plain"
    )


def _inside(shown: Shown) -> Safe:
    lines = [
        tag("li", tag("a", run_parts.clipped(each.task, 120), href=layout.run_url(each.run)), " ", layout.badge(each))
        for each in reversed(shown.inside[-CHILDREN_SHOWN:])
    ]  # fmt: skip
    more = len(shown.inside) - CHILDREN_SHOWN
    return tag(
        "ul", lines, tag("li", f"… and {more:,} more", class_="dim") if more > 0 else None, class_="plain"
    )


def _memory_panel(refs: Sequence[MemoryRef]) -> Safe:
    if not refs:
        return NOTHING
    pairs = [(formats.clip(ref.name, 80), run_parts.clipped(ref.uri, 240)) for ref in refs[-MEMORY_SHOWN:]]
    more = len(refs) - MEMORY_SHOWN
    rest = tag("p", f"{more:,} older ones are not shown", class_="dim") if more > 0 else None
    return layout.panel("Memory", layout.facts(pairs), rest, id_="memory")
