"""Doing what somebody asks for: pause, resume, cancel, more budget, settle, fork, restore. The functions are the commands' own.

Each act records who did it and may be asked for twice; what is so already is not changed. An error becomes an outcome. Which
fields of a wish an act takes:

pause, cancel   none
resume          `amounts`, as `resume --budget` takes them, and `until=TIME`; `limit_was`
budget          `amounts` to be put on top: `+200k`, `usd=+2 beats=+10`; `limit_was`, the allowance they were chosen for
settle          `effect`, `finding`, `result` (JSON, or a plain text)
fork            `beat`; `task`; `folder`, a new one for its files; `amounts`, moved to it where the source has a budget
restore         `save`, `folder` (a new one)
"""

import contextlib
import time
from collections.abc import Callable

import msgspec

from outlast.core import statuses, wakeups
from outlast.core.state import Status
from outlast.core.text import short
from outlast.dashboard.actions import forms, preview
from outlast.dashboard.actions.once import OnceOnly
from outlast.dashboard.actions.preview import SAID, called, effect_of, foresee, is_settled_so, name, words
from outlast.dashboard.documents import ActName, Done, Wish
from outlast.dashboard.run.request_words import RestoreArgs
from outlast.dashboard.saves import cache
from outlast.dashboard.timing import Timing
from outlast.errors import OutlastError, RunRefused, UsageError
from outlast.inspect import find
from outlast.operations import fork as forks, requests
from outlast.operations.requests import Outcome
from outlast.operations.saves import restore
from outlast.operations.saves.find import SHORT_CHARS
from outlast.runs import attempts
from outlast.runs.inbox import STOPS, SettleArgs
from outlast.runs.opening.terms import budget_of
from outlast.store.protocol import Request, Store, Summary
from outlast.supervisor.control import resume, wake
from outlast.supervisor.control.wake import Sleeper
from outlast.supervisor.guardian import lock
from outlast.supervisor.person import Person

__all__ = ["OnceOnly", "do", "foresee"]

_WRITES = "acting"  # the turn of what writes to a journal, which is over soon


class ActionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an act ended, before it becomes a document."""

    says: str
    hint: str = ""
    ok: bool = True
    changed: bool = True
    link: str = ""
    next: ActName | None = None
    folder: str = ""


def do(store: Store, wish: Wish, by: str) -> Done:
    """Do it, and say what became of it; done, or asked of the run's holder, when it returns. Nothing is raised for bad input."""
    by = forms.who(by)
    try:
        summary = forms.run_of(store, forms.checked(wish))
        told = _DOES[wish.act](store, summary, wish, by)
    except (OutlastError, OSError) as error:
        says, hint = forms.told(error)
        told = ActionOutcome(
            says=says, hint=hint or f"see `outlast show {short(wish.run, 40)}`", ok=False, changed=False
        )
    link = told.link or wish.run
    return Done(
        wish=wish, at=attempts.now(), by=by, ok=told.ok, changed=told.changed, says=_shown(store, told.says),
        hint=_shown(store, told.hint), link=link, next=told.next, next_run=link if told.next else "", folder=told.folder,
    )  # fmt: skip


def _shown(store: Store, text: str) -> str:
    """A sentence whose commands can be pasted."""
    return forms.led(store, forms.line(text))


def _then(store: Store, run: str) -> tuple[ActName | None, str]:
    """What helps a root run on, now that something was done with it, and the same for who types it."""
    root = requests.summary_of(store, run)
    status = find.shown_status(store, root.state, run)
    if status == "running" or isinstance(statuses.after(status, "resume"), statuses.Refusal):
        return None, ""
    if not all(wakeups.next_attempt_settles(effect) for _, effect in find.doubts(store, root.state)):
        return "settle", f"`outlast effects {run}` shows what else is in doubt"
    if root.state.supervised or status in preview.RESTING:
        return "resume", _goes_on(run)
    return None, "start its program, and it goes on"


def _goes_on(run: str) -> str:
    return f"`outlast resume {run}` lets it go on"


# -- pause, cancel -----------------------------------------------------------------------------------------------------


def _pause(store: Store, summary: Summary, wish: Wish, by: str) -> ActionOutcome:
    root = requests.root_of(store, summary.run)
    with requests.alone(store, root.run, _WRITES):
        outcome = requests.pause(store, root.run, by=by)
    how = preview.paused_how(store, root)
    return _asked(root, outcome, "paused", how, hint=_goes_on(root.run), then="resume")


def _cancel(store: Store, summary: Summary, wish: Wish, by: str) -> ActionOutcome:
    root = requests.root_of(store, summary.run)
    with requests.alone(store, root.run, _WRITES):
        outcome = requests.cancel(store, root.run, by=by)
    return _asked(root, outcome, "cancelled", preview.cancelled_how(store, root))


def _asked(
    root: Summary, outcome: Outcome, word: str, how: str, hint: str = "", then: ActName | None = None
) -> ActionOutcome:
    """What became of a request: taken in, waiting for the run's holder, or so already."""
    if outcome.asked:
        already = "already " if not outcome.changed else ""
        says = f"{name(root)} is {already}asked to be {word}: {how}."
        return ActionOutcome(says=says, changed=outcome.changed, hint=hint, link=root.run, next=then)
    if not outcome.changed:
        says = f"{name(root)} is {word} already."
        return ActionOutcome(says=says, changed=False, hint=hint, link=root.run, next=then)
    says = f"{name(root)} is {words(outcome.status)} now."
    return ActionOutcome(says=says, hint=hint, link=root.run, next=then)


# -- resume ------------------------------------------------------------------------------------------------------------


def _resume(store: Store, summary: Summary, wish: Wish, by: str) -> ActionOutcome:
    before = requests.root_of(store, summary.run)
    _let_stop(store, before)
    if _stays(lambda: _runs(store, before.run)):
        return _went_on(requests.summary_of(store, before.run), "running")
    with requests.alone(store, before.run, "resume"):
        return _go_on(store, before, wish, by)


def _runs(store: Store, run: str) -> bool:
    return find.shown_status(store, requests.summary_of(store, run).state, run) == "running"


def _stays(is_so: Callable[[], bool]) -> bool:
    """Whether it is so, and still is a moment later: a process that was killed is there for a little while."""
    timing = Timing.current()
    until_s = time.monotonic() + timing.sure_after_s
    while is_so():
        if time.monotonic() > until_s:
            return True
        time.sleep(timing.look_every_s)
    return False


def _let_stop(store: Store, root: Summary) -> None:
    """Who was asked to stop has a moment to do so. Raises RunRefused where it works on: it would stop after all."""

    def waits() -> Request | None:
        pending = [request for request in store.inbox.pending(root.run) if request.what in STOPS]
        return pending[0] if pending and _runs(store, root.run) else None

    timing = Timing.current()
    until_s = time.monotonic() + timing.leaves_within_s
    while (request := waits()) is not None:
        if time.monotonic() > until_s:
            raise RunRefused(
                f"{called(root)} was asked to {request.what} by {request.by}, and has not come to that yet",
                hint="wait until it rests, then resume it",
            )
        time.sleep(timing.look_every_s)


def _went_on(root: Summary, status: Status) -> ActionOutcome:
    says = f"{name(root)} went on already: it is {words(status)}, in attempt {root.state.attempts:,}."
    return ActionOutcome(says=says, changed=False)


def _go_on(store: Store, before: Summary, wish: Wish, by: str) -> ActionOutcome:
    """Start it, unless somebody else did while we waited for our turn."""
    _let_leave(store, before.run)
    root = requests.summary_of(store, before.run)
    status = find.shown_status(store, root.state, root.run)
    if status == "running" or root.state.attempts > before.state.attempts:
        return _went_on(root, status)
    requests.allow(root.state, status, "resume")
    launch = resume.launch_of(store, root)
    if launch is not None:
        if status not in preview.RESTING and _stays(lambda: bool(_supervisor(store, root.run))):
            says = f"{name(root)} goes on already: its supervisor, pid {_supervisor(store, root.run)}, looks after it."
            return ActionOutcome(says=says, changed=False, hint=f"`outlast kill {root.run}` stops it")
        resume.refuse_watched(store, root)
        resume.refuse_at_terminal(root, launch)
        resume.refuse_homeless(store, root, launch)
    given, until = forms.amounts(wish)
    notes: list[str] = []
    with requests.alone(store, root.run, _WRITES):
        if wish.amounts:
            forms.require_limit(wish, forms.limit_now(store, root.run))
        budget = resume.raised(store, root, given, until, Person(notes.append))
        outcome = resume.allow_again(store, root, given, until, by=by)
    if launch is None:
        says = f"{name(root)} may be started again: start its program, and it goes on at beat {root.state.beats + 1}."
        return ActionOutcome(says=says, changed=outcome.changed or budget is not None)
    root = requests.summary_of(store, root.run)
    told = _started(wake.wake_one(store, root, Timing.current().started_within_s), root)
    if told.ok or budget is None:
        return told
    limit = forms.limit_words(root.state.budget)
    return msgspec.structs.replace(told, says=f"{told.says} Its budget is {limit} all the same, from now on.")


def _supervisor(store: Store, run: str) -> int:
    """The pid of who looks after a run; 0 where nobody does."""
    watcher = lock.of(store.local, run)
    return watcher.supervisor if watcher is not None else 0


def _let_leave(store: Store, run: str) -> None:
    """Who was asked to stop has a moment to end: its supervisor outlives the attempt by a little."""
    timing = Timing.current()
    until_s = time.monotonic() + timing.leaves_within_s
    while time.monotonic() < until_s:
        state = requests.summary_of(store, run).state
        if state.status in ("running", "interrupted", "in_doubt") or lock.of(store.local, run) is None:
            return
        time.sleep(timing.look_every_s)


def _started(told: Sleeper, root: Summary) -> ActionOutcome:
    output = f"`outlast output {root.run} -f` shows what it says"
    if told.started:
        return ActionOutcome(says=f"{name(root)} {told.why}.", hint=output)
    if told.started is None and told.wake:
        says = f"{name(root)} is being started, and has not begun within {Timing.current().started_within_s:.0f} s."
        return ActionOutcome(says=says, hint=output)
    log = f"; its log is {told.log}" if told.log else ""
    return ActionOutcome(
        says=f"{name(root)} does not go on: {told.why}.", hint=f"see `outlast show {root.run}`{log}", ok=False
    )


# -- budget, settle ----------------------------------------------------------------------------------------------------


def _budget(store: Store, summary: Summary, wish: Wish, by: str) -> ActionOutcome:
    run = requests.root_of(store, summary.run).run
    with requests.alone(store, run, _WRITES):
        root, before = requests.summary_of(store, run), forms.limit_now(store, run)
        requests.allow(root.state, find.shown_status(store, root.state, run), "amend")
        forms.require_limit(wish, before)
        head = msgspec.structs.replace(root.state, budget=before)
        more, after = preview.topped_up(head, preview.added(wish))
        outcome = requests.add_budget(store, run, more, by=by)
    when = "; its holder takes it in at its next beat or act" if outcome.asked else ""
    says = f"{name(root)}: its budget is {forms.limit_words(after)} now{when}."
    if outcome.asked:
        return ActionOutcome(says=says)
    then, hint = _then(store, run)
    return ActionOutcome(says=says, hint=hint, link=run, next=then)


def _settle(store: Store, summary: Summary, wish: Wish, by: str) -> ActionOutcome:
    if not wish.effect or wish.finding is None:
        raise UsageError(
            "which effect is to be settled, and what was found?", hint=f"see `outlast effects {summary.run}`"
        )
    root = requests.root_of(store, summary.run)
    with requests.alone(store, root.run, _WRITES):
        found = effect_of(store, summary, wish.effect)
        if found is not None and is_settled_so(found, wish):
            says = f"Effect {wish.effect} {SAID[wish.finding]} already, as {found.settled_by} said."
            then, hint = _then(store, root.run)
            return ActionOutcome(says=says, hint=hint, changed=False, link=root.run, next=then)
        result = forms.result(wish)
        _require_one_word(
            store, root, requests.settling(store, summary.run, wish.effect, wish.finding, result)
        )
        outcome = requests.settle(store, summary.run, wish.effect, wish.finding, result, by=by)
    says = f"Effect {wish.effect} {SAID[wish.finding]}"
    if outcome.asked:
        again = "" if outcome.changed else "asked already; "
        return ActionOutcome(
            says=f"{says}: {again}its holder takes it in at its next beat or act.", changed=outcome.changed
        )
    left = len(find.doubts(store, requests.summary_of(store, root.run).state))
    rest = f"{left:,} more in doubt" if left else f"{called(root)} is {words(outcome.status)}"
    then, hint = _then(store, root.run)
    return ActionOutcome(says=f"{says}; {rest}.", hint=hint, link=root.run, next=then)


def _require_one_word(store: Store, root: Summary, asked: SettleArgs) -> None:
    """Refuse another word on an effect than the one that waits for the run's holder: the first would hold."""
    for request in store.inbox.pending(root.run):
        if request.what != "settle":
            continue
        try:
            waits = msgspec.json.decode(request.args, type=SettleArgs)
        except msgspec.MsgspecError:
            continue
        if (waits.run, waits.effect) == (asked.run, asked.effect) and waits != asked:
            raise RunRefused(
                f"{request.by} said already that effect {asked.effect} {SAID[waits.finding]}",
                hint="its holder takes that in at its next beat or act; look then",
            )


# -- fork, restore -----------------------------------------------------------------------------------------------------


def _fork(store: Store, summary: Summary, wish: Wish, by: str) -> ActionOutcome:
    if wish.beat is None:
        raise UsageError(
            "after which beat is it to be forked?",
            hint=f"see `outlast log {summary.run}`; 0 is before the first",
        )
    given, _ = forms.amounts(wish)
    folder = forms.new_folder(store, summary, wish.folder, full=True) if wish.folder else None
    with requests.alone(store, summary.run, "fork"), contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(cache.patience(summary, Timing.current().written_within_s))
        files = restore.ForkFiles(store, summary, wish.beat, folder) if folder is not None else None
        stack.callback(files.close if files is not None else _nothing)
        plan = forks.prepare(
            store, requests.summary_of(store, summary.run), at=wish.beat, task=wish.task or None,
            budget=budget_of(given or None), workspace=str(folder) if folder is not None else "",
        )  # fmt: skip
        fork = requests.summary_of(store, forks.make(store, plan, by=by))
        is_new = forks.is_new(plan, fork.run)
        if files is not None:
            try:
                files.give(fork)
            except (OutlastError, OSError) as error:
                return _without_files(fork, *forms.told(error))
    made = "is made" if is_new else "was made before"
    where = f" Its files are in {folder}." if folder is not None else ""
    says = f"{name(fork)} {made}: it goes on after beat {wish.beat:,} of run {summary.run}.{where}"
    return ActionOutcome(
        says=says, changed=is_new, hint=_how_to_start(fork), link=fork.run,
        next="resume" if fork.state.supervised else None, folder=str(folder) if folder is not None else "",
    )  # fmt: skip


def _nothing() -> None:
    """There is nothing to let go of."""


def _how_to_start(fork: Summary) -> str:
    if fork.state.supervised:
        return f"`outlast resume {fork.run}` starts it"
    return f"start its program with task {fork.task}"


def _without_files(fork: Summary, why: str, hint: str) -> ActionOutcome:
    """The same again ends what was begun."""
    says = f"{name(fork)} is made, but its files could not be written: {why}."
    return ActionOutcome(says=says, hint=f"{hint}; then ask for the same fork again", ok=False, link=fork.run)


def _restore(store: Store, summary: Summary, wish: Wish, by: str) -> ActionOutcome:
    if not wish.save:
        raise UsageError("which save is to be restored?", hint=f"see `outlast saves {summary.run}`")
    with requests.alone(store, summary.run, "restore"):
        folder = forms.new_folder(store, summary, wish.folder)
        with preview.save_of(store, summary, wish.save, Timing.current().written_within_s) as found:
            done = restore.restore_to(found, folder)
            commit, beat = found.held.commit, found.held.meta.beat
    noted = _recorded(store, summary, commit, done.folder, by)
    says = f"{len(done.written):,} files of save {commit[:SHORT_CHARS]} are in {done.folder} now.{noted}"
    fork = f"`outlast fork {summary.run} --at {beat} --to DIR` makes a run that goes on from there"
    return ActionOutcome(says=says, hint=fork, folder=done.folder)


def _recorded(store: Store, summary: Summary, commit: str, folder: str, by: str) -> str:
    """Put the restore on record. What was done is done, so nothing that is in the way of that is an error."""
    args = msgspec.json.encode(RestoreArgs(commit, folder))
    try:
        root = requests.root_of(store, summary.run)
        if root.state.status == "handed_off":
            return " The run is handed off, so its journal here does not say so."
        with requests.alone(store, root.run, _WRITES):
            noted = requests.note(store, root.run, "restore", args, by=by)
    except OutlastError as error:
        return f" That could not be recorded: {error}."
    return "" if noted else " The run is at work: its holder records that at its next beat or act."


_DOES: dict[ActName, Callable[[Store, Summary, Wish, str], ActionOutcome]] = {
    "pause": _pause, "resume": _resume, "cancel": _cancel, "budget": _budget, "settle": _settle, "fork": _fork,
    "restore": _restore,
}  # fmt: skip
