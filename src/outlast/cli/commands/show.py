"""ls, show, log, effects, context: commands that look at runs and change nothing."""

import argparse
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outlast import settings
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.messages import clock, safe, say, short
from outlast.cli.timing import Timing
from outlast.core import context as contexts, events as ev, state as st, verdict
from outlast.core.statuses import CLOSED
from outlast.core.text import count_of, without_class
from outlast.dashboard.report import judged, why_words
from outlast.dashboard.run import request_words
from outlast.errors import UsageError
from outlast.inspect import find, show, words as inspect_words
from outlast.inspect.inbox import PendingRequest
from outlast.inspect.standing import MEANINGS, Standing, settle_hint, words
from outlast.runs import reader
from outlast.store.protocol import RecordedEvent, RunFilter, Store, Summary
from outlast.supervisor.client import copy
from outlast.supervisor.control import standing

if TYPE_CHECKING:
    from outlast.supervisor.control.takeover import Bare

LAST = 5
WARNINGS_READ = 100
_MAY_WAIT = ("interrupted", "in_doubt")
_PLAIN = ("running", "done", "in_doubt")  # words that explain themselves, or are explained below


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add_ls(commands)
    _add_show(commands)
    _add_log(commands)
    command = commands.add_parser(
        "effects", help="what a run did to the outside world",
        description="List every effect of a run: what was intended, its outcome, and what is in doubt.",
        epilog="example: outlast effects 1411",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=effects)
    command = commands.add_parser(
        "context", help="what outlast tells a resumed agent",
        description="Print what outlast tells the next attempt, rebuilt from the journal.",
        epilog="example: outlast context 1411 --tokens 4000",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument(
        "--tokens", type=int, metavar="N", help="at most N tokens (an estimate); 200 or more"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=context)


# -- ls ----------------------------------------------------------------------------------------------------------------


def _add_ls(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "ls", help="list the runs of this project; --all of every project",
        description="List the runs of this project, newest first; with --all those of every project.",
        epilog="example: outlast ls --all",
    )  # fmt: skip
    command.add_argument("--all", action="store_true", help="list the runs of every project")
    command.add_argument("--wide", action="store_true", help="also print folder and branch of worktrees")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=ls)


def ls(arguments: argparse.Namespace) -> None:
    """`outlast ls`"""
    if arguments.store is None and not store_option.location(arguments).exists():
        found: list[show.Listed] = []  # nobody has started a run here yet
    else:
        with store_option.opened(arguments) as store:
            project = "" if arguments.all else store_option.project(arguments, store)
            where = RunFilter(project=project, parent="")
            waiting = request_words.pending_by_run(store)
            found = [
                _listed(store, summary, waiting.get(summary.run, ()))
                for summary in find.all_runs(store, where, unreadable=True)
            ]
    if arguments.json:
        messages.say_json(found)
        return
    for line in messages.table(_ls_rows(found, arguments.all, wide=arguments.wide)):
        say(line)
    for each in (each for each in found if each.problem):
        messages.tell(f"{each.run}: {each.problem}")
    if not found:
        messages.tell(
            "no runs" if arguments.all else "no runs in this project; `outlast ls --all` lists every project"
        )


def _ls_rows(found: list[show.Listed], with_project: bool, *, wide: bool = False) -> Iterable[list[str]]:
    if not found:
        return
    project = ["PROJECT"] if with_project else []
    yield [
        *project,
        "TASK",
        "STATUS",
        "BEATS",
        "UPDATED",
        "RUN",
        *(["WORKTREE", "BRANCH"] if wide else []),
        "GOAL",
        *(["WHY"] if _has_why(found) else []),
    ]
    for each in found:
        project = [find.project_name(each.project)] if with_project else []
        of = "" if each.plan_total is None else f"/{each.plan_total}"
        goal = short(each.goal, 60)
        yield [
            *project,
            each.task,
            _status(each) + (", asks for budget" if each.asks else ""),
            f"{each.beats}{of}",
            clock(each.updated_at),
            each.run,
            *(_worktree(each) if wide else []),
            goal,
            *(
                [short(messages.local(why_words(each.why or "", each.status)), 100)]
                if _has_why(found)
                else []
            ),
        ]


def _worktree(each: show.Listed) -> list[str]:
    place = each.worktree
    return ["-", "-"] if place is None else [short(place.folder, 200), short(place.branch, 100)]


def _has_why(found: list[show.Listed]) -> bool:
    return any(each.why for each in found)


def _listed(store: Store, summary: Summary, pending: tuple[PendingRequest, ...]) -> show.Listed:
    """A line of the list, with how the run stands."""
    line = show.listed(store, summary)
    if line.problem:
        return line
    stands = standing.of(store, summary, line.status)
    _, why, _ = judged(find.children_in(store), summary.state, stands, datetime.now(UTC))
    why = "; ".join(filter(None, (*request_words.pending_clauses(pending), why)))
    return msgspec.structs.replace(line, standing=stands.word, needs=stands.need, why=why, pending=pending)


def _status(each: show.Listed) -> str:
    """How it stands; for one that waits for a moment in time, until when and for what."""
    if each.problem:
        return "cannot be read"
    if each.waits_for and each.standing == "waiting":
        return f"waiting for {', '.join(question.id for question in each.waits_for)}"
    if each.status == "parked":
        until = f" until {clock(each.parked_until)}" if each.parked_until is not None else ""
        return f"{words(each.standing or each.status)}{until} ({words(each.cause or '')})"
    return words(each.standing or each.status)


# -- show --------------------------------------------------------------------------------------------------------------


def _add_show(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "show", help="one run: where it stands, why it stopped, what it needs",
        description="Print where a run stands, why it stopped, and what it needs. --json has everything.",
        epilog="example: outlast show 1411 --last 20",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument(
        "--last", type=int, default=LAST, metavar="N", help=f"show the last N beats (default {LAST})"
    )
    command.add_argument("--json", action="store_true", help="print everything, as JSON")
    command.set_defaults(handler=show_run)


def show_run(arguments: argparse.Namespace) -> None:
    """`outlast show`"""
    if arguments.last < 0:
        raise UsageError(f"--last must be 0 or more, got {arguments.last}", hint="like --last 20")
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        if arguments.json:
            whole = standing.with_children(store, show.full(store, summary))
            stands = standing.of(store, summary, whole.status)
            pending = pending_of(store, summary)
            known = msgspec.structs.replace(whole, standing=stands.word, needs=stands.need, pending=pending)
            shown_whole = msgspec.structs.asdict(known)
            messages.say_json({**shown_whole, "by_hand": _by_hand(store, summary)})
            return
        shown = standing.with_children(store, show.glance(store, summary, last=arguments.last))
        waits = standing.supervisor_of(store, summary.run) if shown.status in _MAY_WAIT else 0
        for line in lines(store, summary, shown, waits):
            say(line)
        if shown.status == "in_doubt":
            _advise(store, summary, shown, arguments.run)
        else:
            stands = standing.of(store, summary, shown.status)
            _point_on(summary, shown, stands, store_option.typed(arguments.run, summary.run), waits)


def lines(store: Store, summary: Summary, shown: show.Shown, waits: int) -> Iterable[str]:
    """Where a run stands, as a person reads it. `waits`: the supervisor that will start it again."""
    stands = standing.of(store, summary, shown.status)
    yield _headline(shown, summary, stands.word)
    shown = msgspec.structs.replace(shown, pending=pending_of(store, summary))
    facts = (*_facts(shown, summary, stands), *_session(_by_hand(store, summary)))
    for line in (*facts, *_denied(store, summary, shown), *_waiting(waits), *_beats(shown), *_effects(shown)):
        yield f"  {line}"


def pending_of(store: Store, summary: Summary) -> tuple[PendingRequest, ...]:
    """The requests to a run or its root that wait to be taken in."""
    return tuple(map(request_words.pending, store.inbox.pending(summary.root)))


def _by_hand(store: Store, summary: Summary) -> "Bare | None":
    """The agent of a run, and how to go on with it by hand; None for other programs."""
    if not summary.state.supervised:
        return None
    from outlast.supervisor.control import takeover

    return takeover.bare(store, summary)


def _session(bare: "Bare | None") -> Iterable[str]:
    """How outlast learns of the agent's calls, and the command that goes on in its session without outlast."""
    if bare is not None:
        known = (
            f"calls recorded first, by {', '.join(bare.intent)}"
            if bare.intent
            else "calls recorded afterwards"
        )
        yield f"agent    {bare.agent}   {known}"
        if bare.line:
            yield f"session  {short(bare.line, 1000)}"


def _headline(shown: show.Shown, summary: Summary, word: str) -> str:
    over = summary.state.over or shown.status in CLOSED
    beat = shown.beats if over else shown.beats + 1
    parts = [words(word), f"attempt {len(shown.attempts)}", f"beat {beat}{_of(shown.plan_total)}"]
    spent, budget = shown.budget.spent, shown.budget
    about = "~" if spent.estimated else ""  # some of it is an upper bound
    if spent.tokens or budget.tokens is not None:
        parts.append(f"{about}{spent.tokens:,}{_of(budget.tokens)} tokens")
    if spent.cost_microusd or budget.cost_microusd is not None:
        limit = "" if budget.cost_microusd is None else f" of ${budget.cost_microusd / 1e6:.2f}"
        parts.append(f"{about}${spent.cost_microusd / 1e6:.2f}{limit}")
    if summary.state.last_save:
        parts.append(f"save {summary.state.last_save[:7]}")
    return f"{safe(shown.task)}  {'   '.join(parts)}"


def _of(total: int | None) -> str:
    return "" if total is None else f" of {total:,}"


def _facts(shown: show.Shown, summary: Summary, stands: Standing) -> Iterable[str]:
    yield f"run      {shown.run}   project {safe(shown.project.removesuffix('/.git'))}"
    if shown.asks:
        yield f"asks     for more budget, from inside; to grant it: outlast budget {shown.run} {safe(shown.asks)}"
    for question in shown.waits_for:
        until = f", until {clock(question.deadline)}" if question.deadline is not None else ""
        choices = f" ({' | '.join(question.choices)})" if question.choices else ""
        yield f"waits    {question.id} {short(question.text, 300)}{short(choices, 200)}   since {clock(question.since)}{until}"
    for each in shown.pending:
        [clause] = request_words.pending_clauses([each])
        when = f"at {clock(each.at)}; {request_words.taken_in(shown.status)}"
        yield f"asked    {safe(clause.removeprefix('asked '))} {when}"
    if stands.word not in _PLAIN:
        says = stands.says if stands.word == "not_started" else MEANINGS[stands.word]
        yield f"stands   {words(stands.word)}: {says}"
    if shown.goal:
        yield f"goal     {short(shown.goal, 160)}"
    if shown.worktree is not None:
        yield f"worktree {short(shown.worktree.folder, 300)}   branch {short(shown.worktree.branch, 160)}"
    if shown.holder is not None:
        holder = shown.holder
        yield f"held     by pid {holder.pid} on {safe(holder.host)} since {clock(holder.since)}"
    if shown.cause != "done" and (cause := _cause(shown)):
        yield f"cause    {short(cause, 300)}"
    if shown.parked_until is not None and stands.word != "waiting" and shown.status not in CLOSED:
        yield f"parked   until {clock(shown.parked_until)}"
    if shown.fork is not None:
        yield f"fork     of {shown.fork.run} at beat {shown.fork.beat}"
    if shown.parent is not None:
        yield f"child    of {shown.parent.run} at beat {shown.parent.beat}"
    following = list(_next_step(shown.plan or ()))
    if following and not summary.state.over:
        yield f"next     {short(' > '.join(following), 160)}"
    if shown.stage:
        yield f"stage    {short(shown.stage, 160)}"
    for ref in shown.memory[-LAST:]:
        yield f"memory   {short(ref.name, 40)}: {short(ref.uri, 120)}"
    for child in [child for child in shown.children if child.status != "done"][-LAST:]:
        yield f"child    {child.run} {short(child.task, 60)}: {words(child.standing or child.status)}"
    yield from _inside(shown)


def _inside(shown: show.Shown) -> Iterable[str]:
    """The run around it, and the last of those that were started inside of it."""
    if shown.within:
        yield f"within   {shown.within}: it was started inside of that run"
    if (earlier := len(shown.inside) - LAST) > 0:
        yield f"inside   ({count_of(earlier, 'earlier run')}: --json)"
    for each in shown.inside[-LAST:]:
        beats = f", {count_of(each.beats, 'beat')}" if each.beats else ""
        yield f"inside   {each.run} {short(each.task, 60)}: {words(each.standing or each.status)}{beats}"


def _cause(shown: show.Shown) -> str:
    """Why the run stopped. An effect in doubt is not shown as a crash."""
    for word in ("EffectInDoubt: ", "UnreachedEffect: "):
        if shown.status == "in_doubt" and shown.evidence.startswith(word):
            return f"in doubt: {shown.evidence.removeprefix(word)}"
    return f"{words(shown.cause)}: {without_class(shown.evidence)}" if shown.cause is not None else ""


def _next_step(plan: Iterable[show.PlanStep]) -> Iterable[str]:
    for step in plan:
        if step.state == "next":
            yield step.name
            yield from _next_step(step.steps)
            return


def _beats(shown: show.Shown) -> Iterable[str]:
    if shown.beats > len(shown.completed) > 0:
        yield f"({shown.beats - len(shown.completed):,} earlier beats: --last N, or --json)"
    for done in shown.completed:
        evidence = _value(done.evidence)
        proof = f"evidence {short(evidence, 80)}" if evidence else ""
        parts = (f"beat {done.beat}", short(done.step, 60), short(_value(done.result), 120), proof)
        yield "  ".join(part for part in parts if part)


def _value(raw: msgspec.Raw) -> str:
    text = bytes(raw).decode(errors="replace")
    return "" if text == "null" else text


def _effects(shown: show.Shown) -> Iterable[str]:
    for effect in shown.effects:
        yield f"effect {effect.id}  {_act(effect)}   {_fate(effect)}"


def _act(effect: show.Effect) -> str:
    return short(show.act_words(effect), 100)


def _fate(effect: show.Effect) -> str:
    at = f"intended {clock(effect.intended_at)}"
    by = f" (by {safe(effect.settled_by)})" if effect.settled_by else ""
    result, why = _value(effect.result), short(without_class(effect.evidence), 160)
    fates = {
        "in_doubt": f"{at}, no outcome{': ' if why else ''}{why}",
        "open": f"{at}, under way",
        "confirmed": f"confirmed{by}{' ' if result else ''}{short(result, 100)}",
        "failed": f"did not happen{by}{': ' if why else ''}{why}",
        "given_up": f"given up{by}",
    }
    return fates[effect.state]


def _denied(store: Store, summary: Summary, shown: show.Shown) -> Iterable[str]:
    """Why the calls of the agent that lives are denied, and what to type."""
    level = f"{copy.DAMAGED} {summary.state.attempts}"
    if shown.status == "running" and level in summary.state.warned:
        warnings = store.read(summary.run, after=0, tags=("warned",), limit=WARNINGS_READ, newest=True).events
        for event in (item.event for item in warnings):
            if isinstance(event, ev.Warned) and event.level == level:
                yield f"denied   {short(event.text, 600)}"


def _waiting(supervisor: int) -> Iterable[str]:
    if supervisor:
        yield f"waits    for its next attempt: its supervisor, pid {supervisor}, starts it again"


def _point_on(summary: Summary, shown: show.Shown, stands: Standing, name: str, supervisor: int) -> None:
    """How a run that rests goes on."""
    line = stands.next.replace(summary.run, name, 1)
    line = line if line.startswith("outlast ") else f"outlast resume {name}"
    if supervisor:
        messages.tell(
            f"`outlast output {name} -f` shows what comes; `outlast kill {name}` saves and stops it"
        )
    elif stands.next.startswith("outlast settle"):
        messages.tell(settle_hint(line))
    elif stands.word == "waiting" and line.startswith("outlast approve"):
        messages.tell(
            f"`{line}` lets the call pass once; `{line.replace('approve', 'reject', 1)}` refuses it"
        )
    elif stands.word == "waiting":
        messages.tell(f"`{line} …` answers it")
    elif shown.status == "failed":
        messages.tell(f"`{line}` allows another try")
    elif shown.status == "parked":
        later = "; `outlast resume --all` after that time does too, and the service does it by itself"
        at_once = f" at once{later}" if shown.parked_until is not None and summary.state.supervised else ""
        messages.tell(f"`{line}` goes on{at_once}")
    elif (
        stands.word == "out_of_budget"
        or shown.status == "paused"
        or (shown.status == "interrupted" and summary.state.supervised)
    ):
        messages.tell(f"`{line}` goes on")


def _advise(store: Store, summary: Summary, shown: show.Shown, name: str) -> None:
    """Tell the person what to find out, and the command that records it."""
    doubts = find.doubts(store, summary.state)
    children = [(run, effect) for run, effect in doubts if run != summary.run]
    for run, effect in children:
        say(f"  effect {effect.id}  {short(effect.name, 60)} of child {run}   no outcome")
    asks = verdict.to_settle(find.children_in(store), summary.state)
    if not asks:
        _tell_settled_next(store, summary, shown, name, doubts)
        return
    run, effect = asks[0]
    where = store_option.typed(name, run) if run == summary.run else run
    messages.complain(
        f"{_count(len(asks))} in doubt and cannot be probed",
        f"look whether it happened, then `outlast settle {where} {effect.id} --happened` or `--did-not`",
    )


_HOW: dict[ev.Policy, str] = {
    "probe": "by asking its probe", "reissue": "by sending it again under its key", "give_up": "by giving it up",
    "tell": "by looking it up, else by telling the agent, or asking you", "ask": "by asking a person",
}  # fmt: skip


def _tell_settled_next(
    store: Store, summary: Summary, shown: show.Shown, name: str, doubts: list[tuple[str, st.OpenEffect]]
) -> None:
    """Nobody has to look before the next attempt: say how it settles the effects in doubt, and what starts it."""
    stands = standing.of(store, summary, shown.status)
    if doubts and stands.word != "not_started":
        how = _HOW[doubts[0][1].policy]
        messages.tell(f"{_count(len(doubts))} in doubt; the next attempt settles that {how}")
    step = stands.next.replace(summary.run, store_option.typed(name, summary.run), 1)
    messages.tell(f"`{step}` goes on" if step.startswith("outlast ") else f"{step}, and it goes on")


def _count(number: int) -> str:
    return "1 effect is" if number == 1 else f"{number} effects are"


# -- effects, context --------------------------------------------------------------------------------------------------


def effects(arguments: argparse.Namespace) -> None:
    """`outlast effects`"""
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        found = show.effects(store, summary)
        if arguments.json:
            messages.say_json(found)
            return
        rows = [
            [each.id, words(each.state), _act(each), each.policy, each.key, _fate(each)] for each in found
        ]
        for line in messages.table(
            [["ID", "STATE", "ACT", "POLICY", "KEY", "OUTCOME"], *rows] if rows else []
        ):
            say(line)
        if not found:
            messages.tell(f"run {summary.run} has no effects")
        for run, effect in find.doubts(store, summary.state):
            if run != summary.run:
                messages.tell(f"child {run} has effect {effect.id} {effect.name} in doubt")


def context(arguments: argparse.Namespace) -> None:
    """`outlast context`"""
    tokens = settings.load()["context_tokens_max"] if arguments.tokens is None else arguments.tokens
    if tokens < contexts.TOKENS_MIN:
        raise UsageError(
            f"--tokens must be {contexts.TOKENS_MIN} or more, got {tokens}",
            hint=f"like --tokens {contexts.TOKENS_MIN}",
        )
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        text = reader.next_context(store, summary, Path.cwd(), tokens)
    if arguments.json:
        messages.say_json({"run": summary.run, "tokens": contexts.tokens(text), "context": text})
    elif sys.stdout.isatty():
        for line in text.split("\n"):
            say(safe(line))
    else:
        say(text)  # unchanged for another program, which may be the agent


# -- log ---------------------------------------------------------------------------------------------------------------


def _add_log(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "log", help="every event of a run; --follow waits for more",
        description="Print the journal of a run. --follow waits for more until the run is done, cancelled or handed off.",
        epilog="example: outlast log 1411 --follow",
    )  # fmt: skip
    store_option.add_run(command)
    command.add_argument("--follow", "-f", action="store_true", help="wait for more and print it")
    command.add_argument("--after", type=int, default=0, metavar="N", help="only events after number N")
    command.add_argument("--json", action="store_true", help="print one JSON document per line")
    command.set_defaults(handler=log)


class _Line(msgspec.Struct, frozen=True):
    n: int
    run: str
    seq: int
    event: msgspec.Raw


def log(arguments: argparse.Namespace) -> None:
    """`outlast log`"""
    if arguments.after < 0:
        raise UsageError(f"--after must be 0 or more, got {arguments.after}", hint="like --after 120")
    with store_option.opened(arguments) as store:
        summary = store_option.named(arguments, store)
        says = partial(_say_event, as_json=arguments.json, masks=show.masks(summary.state))
        seq, n = _say_rest(store, summary.run, arguments.after, says)
        if arguments.follow:
            _follow(store, summary.run, seq, n, says)


def _say_rest(store: Store, run: str, seq: int, says: Callable[[RecordedEvent], None]) -> tuple[int, int]:
    """Print all events after `seq`; the numbers of the last one in the run and in the store."""
    n = 0
    while page := store.read(run, after=seq).events:
        for item in page:
            says(item)
        seq, n = page[-1].seq, page[-1].n
    return seq, n


def _follow(store: Store, run: str, seq: int, n: int, says: Callable[[RecordedEvent], None]) -> None:
    """Print events as they are committed, until the run is closed and all are printed."""
    while (state := reader.head(store, run)).status not in CLOSED or state.seq > seq:
        sys.stdout.flush()
        if state.seq == seq:
            found = store.subscribe(n, wait_s=Timing.current().follow_wait_s)
            n = found[-1].n if found else n
        seq, _ = _say_rest(store, run, seq, says)


def _say_event(item: RecordedEvent, *, as_json: bool, masks: bool) -> None:
    if as_json:
        data = inspect_words.data(item.event, masks=masks)
        messages.say_json_line(_Line(item.n, item.run, item.seq, data))
        return
    at = clock(item.event.at, datetime.now(UTC))
    say(f"{item.seq:>6}  {at}  {ev.tag_of(item.event):<16}  {inspect_words.words(item.event)}".rstrip())
