"""What an act will do to this very run now, in whole sentences, and the command that does the same. Nothing is changed."""

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from outlast.core import budget as budgets
from outlast.core.state import RunState, Status
from outlast.core.text import short
from outlast.core.values import Allowance
from outlast.dashboard.actions import forms
from outlast.dashboard.actions.forms import line
from outlast.dashboard.documents import ActName, Foreseen, Wish
from outlast.dashboard.run import effects
from outlast.dashboard.run.request_words import SAID as SAID
from outlast.dashboard.saves import cache
from outlast.errors import OutlastError, UsageError
from outlast.inspect import find, show
from outlast.operations import fork as forks, requests
from outlast.operations.saves import restore
from outlast.operations.saves.find import SHORT_CHARS, Found, Saves
from outlast.runs import attempts
from outlast.runs.opening.terms import budget_of, topped
from outlast.runs.timing import Timing as RunTiming
from outlast.store.protocol import Store, Summary
from outlast.supervisor.control import resume
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch.last_launch import known_agent
from outlast.supervisor.person import Person
from outlast.workspace.types import raw

LISTED_MAX = 20
RESTING: tuple[Status, ...] = ("paused", "parked", "failed")  # no supervisor stays with such a run
COMMAND_CHARS = 300
ACT_CHARS = 400

TITLES: dict[ActName, str] = {
    "pause": "Pause", "resume": "Resume", "cancel": "Cancel", "budget": "Add budget to", "settle": "Settle an effect of",
    "fork": "Fork", "restore": "Restore a save of",
}  # fmt: skip
TAKES: dict[ActName, tuple[str, ...]] = {
    "pause": (), "cancel": (), "resume": ("amounts",), "budget": ("amounts",), "settle": ("effect", "finding", "result"),
    "fork": ("beat", "task", "folder"), "restore": ("save", "folder"),
}  # fmt: skip
_OPTIONS = {"happened": "--happened", "did_not": "--did-not", "give_up": "--give-up"}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """An act worked out: the wish with what it left open, the words of the command, and what is to be said."""

    wish: Wish
    words: tuple[str, ...]
    says: tuple[str, ...]
    lacks: tuple[str, ...] = ()


def foresee(store: Store, wish: Wish) -> Foreseen:
    """What the act would do now, or why it is refused. Nothing is written."""
    title, takes = f"{TITLES[wish.act]} run {short(wish.run, 40)}", TAKES[wish.act]

    def said(text: str) -> str:
        return forms.led(store, line(text))

    try:
        summary = forms.run_of(store, forms.checked(wish))
        title = line(f"{TITLES[wish.act]} run {summary.run} of task {summary.task}")
        if wish.act == "fork" and summary.state.budget is not None:
            takes += ("amounts",)
        if wish.act == "budget" and not _limited(store, summary):
            takes = ()
        plan = _FORESEEN[wish.act](store, summary, wish)
    except (OutlastError, OSError) as error:
        refused, hint = forms.told(error)
        return Foreseen(
            wish=wish, title=title, says=(), command="", refused=said(refused), hint=said(hint), takes=takes
        )
    return Foreseen(
        wish=plan.wish, title=title, says=tuple(map(said, plan.says)), takes=takes, lacks=plan.lacks,
        command="" if plan.lacks else forms.command(store, *plan.words),
    )  # fmt: skip


def words(status: Status) -> str:
    """A status as people read it."""
    return status.replace("_", " ")


def called(summary: Summary) -> str:
    """A run within a sentence."""
    return f"run {summary.run} of task {summary.task}"


def name(summary: Summary) -> str:
    """A run at the beginning of a sentence."""
    return f"Run {summary.run} of task {summary.task}"


# -- pause, cancel -----------------------------------------------------------------------------------------------------


def _pause(store: Store, summary: Summary, wish: Wish) -> Plan:
    root, status = _root(store, summary)
    after = requests.allow(root.state, status, "pause")
    if status == "running":
        says = [*_PAUSED[_kind(store, root)], _holder(store, root)]
    elif after == status:
        says = [f"{name(root)} is paused already: nothing changes."]
    else:
        says = [
            f"{name(root)} is {words(status)}. It is not started again, by nothing, until somebody resumes it."
        ]
        says += _waiting(store, root)
    return Plan(wish=wish, words=("pause", root.run), says=(*_child(summary, root), *says))


def _cancel(store: Store, summary: Summary, wish: Wish) -> Plan:
    root, status = _root(store, summary)
    after = requests.allow(root.state, status, "cancel")
    stays = "What it did stays recorded, and its files and saves stay where they are."
    if status == "running":
        says = [
            f"The {_kind(store, root)} is asked to stop for good. It has {RunTiming.current().cancel_grace_s:.0f} s for the act under way, which is in doubt if"
            " it takes longer.",
            _holder(store, root), stays,
        ]  # fmt: skip
    elif after == status:
        says = [f"{name(root)} is cancelled already: nothing changes."]
    else:
        says = [f"{name(root)} is {words(status)}. It is stopped for good and cannot be resumed.", stays]
        says += _waiting(store, root)
    says += [] if after == status else ["A new run of the task needs `outlast run --again`."]
    return Plan(wish=wish, words=("cancel", root.run), says=(*_child(summary, root), *says))


def _root(store: Store, summary: Summary) -> tuple[Summary, Status]:
    root = requests.root_of(store, summary.run)
    return root, find.shown_status(store, root.state, root.run)


def _child(summary: Summary, root: Summary) -> Iterator[str]:
    if summary.run != root.run:
        yield f"Run {summary.run} is a part of run {root.run}, which this is asked of."


Kind = Literal["program", "agent", "command"]

# When a pause takes hold: an agent that is known rests between two calls, a program between two beats or acts, and of any
# other command nobody knows what it is at.
_PAUSED: dict[Kind, tuple[str, ...]] = {
    "program": (
        "The program is asked to stop at its next beat or act; until then it works on. It keeps its files.",
    ),
    "agent": (
        "The agent is stopped after the call under way; it keeps its files, and goes on in its session.",
    ),
    "command": (
        "Its command is stopped at once, in the middle of what it does: only a recorded act under way comes to its end."
        " Its files are saved first, and stay.",
        "When it is resumed, the command is started again from its beginning; steps on record are not done again.",
    ),
}
_PAUSED_HOW: dict[Kind, str] = {
    "program": "its program takes it in at its next beat or act",
    "agent": "its supervisor stops the agent after the call under way",
    "command": "its supervisor saves its files and stops the command, in a moment",
}


def _kind(store: Store, root: Summary) -> Kind:
    """What works on a run: somebody's own program, an agent that is known, or any other command."""
    with contextlib.suppress(OutlastError, msgspec.MsgspecError):  # it is only told of
        launch = resume.launch_of(store, root)
        if launch is not None and known_agent(launch) is not None:
            return "agent"
    return "command" if root.state.supervised else "program"


def paused_how(store: Store, root: Summary) -> str:
    """How a living run comes to its pause."""
    return _PAUSED_HOW[_kind(store, root)]


def cancelled_how(store: Store, root: Summary) -> str:
    """How a living run comes to its end."""
    kind = _kind(store, root)
    return (
        _PAUSED_HOW[kind]
        if kind == "program"
        else f"its supervisor saves its files and stops the {kind}, in a moment"
    )


def _holder(store: Store, root: Summary) -> str:
    watcher = lock.of(store.local, root.run)
    if watcher is not None and watcher.supervisor:
        return f"1 supervisor, pid {watcher.supervisor}, stays until then."
    if root.holder is not None:
        return (
            f"Its program, pid {root.holder.pid} on {root.holder.host}, takes it in at its next beat or act."
        )
    return "Its program takes it in at its next beat or act."


def _waiting(store: Store, root: Summary) -> Iterator[str]:
    watcher = lock.of(store.local, root.run)
    if watcher is not None and watcher.supervisor:
        yield f"Its supervisor, pid {watcher.supervisor}, waits to start it again, and does not any more."


# -- resume, budget ----------------------------------------------------------------------------------------------------


def _resume(store: Store, summary: Summary, wish: Wish) -> Plan:
    root, status = _root(store, summary)
    requests.allow(root.state, status, "resume")
    launch = resume.launch_of(store, root)
    leaving: list[str] = []
    if launch is not None:
        leaving += _leaving(store, root, status)
        resume.refuse_at_terminal(root, launch)
    if not wish.amounts:
        wish = msgspec.structs.replace(wish, amounts=_needed(root.state))
    given, until = forms.amounts(wish)
    notes: list[str] = []
    before = forms.limit_now(store, root.run)
    budget = resume.raised(store, root, given, until, Person(notes.append))
    if budget is not None:
        forms.require_limit(wish, before)
        wish = msgspec.structs.replace(wish, limit_was=forms.limit_words(before))
    head = root.state if budget is None else msgspec.structs.replace(root.state, budget=budget)
    beat = root.state.beats + 1
    if launch is None:
        says = [f"{name(root)} is {words(status)} at beat {beat} and may be started again.",
                "It is somebody's own program: start that, and it goes on. Nothing is started from here."]  # fmt: skip
    else:
        command = short(shlex.join(launch.words), COMMAND_CHARS)
        where = os.fsdecode(raw(launch.cwd))
        says = [f"{name(root)} goes on at beat {beat} with `{command}` in {where}; {_rest(head)}."]
    if budget is not None:
        was = forms.limit_words(before)
        says.append(f"Its budget becomes {forms.limit_words(budget)}; it was {was}.")
    says += [*leaving, *_hindered(store, root), *notes]
    options = [word for text in given for word in ("--budget", text)]
    options += ["--until", until] if until is not None else []
    line_of = ("resume", root.run, *(("--detach",) if launch is not None else ()), *options)
    return Plan(wish=wish, words=line_of, says=(*_child(summary, root), *says))


def _leaving(store: Store, root: Summary, status: Status) -> Iterator[str]:
    """Of a supervisor that has nothing more to do it is said that it is waited for. Raises RunRefused for another."""
    watcher = lock.of(store.local, root.run)
    if status not in RESTING:
        resume.refuse_watched(store, root)
    elif watcher is not None and watcher.supervisor:
        yield f"Its supervisor, pid {watcher.supervisor}, is about to end; that is waited for."


def _needed(state: RunState) -> str:
    """What a run needs on top that has nothing left to go on with; nothing where it has."""
    used_up = [each for each in budgets.lines(state, _live()) if each.is_reached]
    return " ".join(budgets.half_of(each) for each in used_up)


def _rest(state: RunState) -> str:
    rest = [each.rest() for each in budgets.lines(state, _live())]
    return ", ".join(rest) if rest else "it has no limit"


def _live() -> budgets.Live:
    return budgets.Live(attempts.now())


def _hindered(store: Store, root: Summary) -> Iterator[str]:
    doubts = find.doubts(store, root.state)
    if doubts:
        yield f"{_effects(len(doubts))} in doubt: each is probed where that is possible, and never repeated unasked."
    wall = resume.wall_of(store, root)
    if wall is not None:
        yield f"The quota may not be back: it was to be tried again at {wall:%Y-%m-%d %H:%M} UTC. It goes on all the same."


def _effects(count: int) -> str:
    return "1 effect is" if count == 1 else f"{count:,} effects are"


def _budget(store: Store, summary: Summary, wish: Wish) -> Plan:
    root, status = _root(store, summary)
    requests.allow(root.state, status, "amend")
    before = forms.limit_now(store, root.run)
    forms.require_limit(wish, before)
    head = msgspec.structs.replace(root.state, budget=before)
    if not wish.amounts:
        wish = msgspec.structs.replace(wish, amounts=_suggested(head))
    wish = msgspec.structs.replace(wish, limit_was=forms.limit_words(before))
    if _units(head) and not wish.amounts:
        told = f"{name(root)} has a budget of {forms.limit_words(before)}. Say how much is to be put on top of it."
        return Plan(wish=wish, words=(), says=(told,), lacks=("amounts",))
    given = added(wish)
    _, after = topped_up(head, given)
    says = [
        f"{name(root)} gets more: its budget becomes {forms.limit_words(after)}; it was {forms.limit_words(before)}.",
        f"Then there is: {_rest(msgspec.structs.replace(head, budget=after))}.",
    ]
    if status == "running":
        says.append("It is running: its holder takes it in at its next beat or act.")
    else:
        says.append(f"It is {words(status)}, and is not started by this: resume it.")
    adds = [word for text in given for word in ("--add", text.replace("+", ""))]
    return Plan(wish=wish, words=("budget", root.run, *adds), says=(*_child(summary, root), *says))


def _limited(store: Store, summary: Summary) -> list[str]:
    """The units of a run's budget that can be added to."""
    root = requests.root_of(store, summary.run)
    return _units(msgspec.structs.replace(root.state, budget=forms.limit_now(store, root.run)))


def _units(head: RunState) -> list[str]:
    limits = head.budget or Allowance()
    return [unit for field, unit in budgets.UNITS.items() if getattr(limits, field) is not None]


def topped_up(head: RunState, given: Sequence[str]) -> tuple[Allowance, Allowance]:
    """What is put on top of a budget, and the budget after it. Raises UsageError for a unit that has no limit."""
    units, sets = _units(head), f"`outlast resume {head.run} --budget 400k` sets one"
    if not units:
        raise UsageError(
            f"run {head.run} has no limit that could be raised: it may go on as it is", hint=sets
        )
    try:
        return topped(head, given)
    except UsageError as error:
        if "could be raised" not in str(error):
            raise
        raise UsageError(str(error), hint=f"it has limits of {', '.join(units)}; {sets}") from None


def _suggested(state: RunState) -> str:
    """Half as much again of the limit that is nearest."""
    amounts = [each for each in budgets.lines(state, _live()) if each.unit not in ("window", "until")]
    return budgets.half_of(max(amounts, key=lambda each: each.share)) if amounts else ""


def added(wish: Wish) -> list[str]:
    """What is to be put on top of a budget. Raises UsageError for a moment, which is nothing to be added to."""
    given, until = forms.amounts(wish)
    if until is not None:
        raise UsageError("a time until which it may work is set, not added", hint="say it when you resume it")
    return given


# -- settle ------------------------------------------------------------------------------------------------------------


def _settle(store: Store, summary: Summary, wish: Wish) -> Plan:
    root, status = _root(store, summary)
    requests.allow(root.state, status, "settle")
    if not wish.effect:
        open_ = find.doubts(store, summary.state)
        if len(open_) == 1 and open_[0][0] == summary.run:
            wish = msgspec.structs.replace(wish, effect=open_[0][1].id)
    if not wish.effect or wish.finding is None:
        says = ["Look outside (the remote, the ticket, the mailbox) whether it happened, then say what you found.",
                "What did not happen is done by the next attempt; what is given up is neither done nor waited for."]  # fmt: skip
        lacks = (*(() if wish.effect else ("effect",)), *(() if wish.finding else ("finding",)))
        meant = effect_of(store, summary, wish.effect) if wish.effect else None
        return Plan(wish=wish, words=(), says=(*_about(meant), *says), lacks=lacks)
    found = effect_of(store, summary, wish.effect)
    called = f"Effect {wish.effect}" + (f", {found.name}," if found is not None else "")
    options = (_OPTIONS[wish.finding], *(("--result", forms.result(wish).decode()) if wish.result else ()))
    line_of = ("settle", summary.run, wish.effect, *options)
    if found is not None and is_settled_so(found, wish):
        says = [f"{called} {SAID[wish.finding]} already, as {found.settled_by} said: nothing changes."]
        return Plan(wish=wish, words=line_of, says=tuple(says))
    asked = requests.settling(store, summary.run, wish.effect, wish.finding, forms.result(wish))
    says = [*_about(found), f"{called} is recorded as: it {SAID[wish.finding]}, by your word."]
    if wish.finding == "happened":
        says.append(
            f"It is not done again; the agent gets {short(bytes(asked.result).decode(), 200)} as its result."
        )
    elif wish.finding == "did_not":
        says.append("The next attempt does it. If it did happen after all, it happens twice.")
    else:
        says.append("Nobody does it again, and the run goes on without it.")
    says.append(_taken_in(store, root, status))
    return Plan(wish=wish, words=line_of, says=tuple(says))


def _about(effect: show.Effect | None) -> Iterator[str]:
    """What an effect does, with all that it was called with: two payments differ by nothing else."""
    if effect is not None:
        yield f"Effect {effect.id} is: {short(effects.act_words(effect), ACT_CHARS)}"


def _taken_in(store: Store, root: Summary, status: Status) -> str:
    if status == "running":
        return "It is running: its holder takes it in at its next beat or act."
    left = len(find.doubts(store, root.state)) - 1
    more = f"; {_effects(left)} in doubt then" if left > 0 else ""
    return f"The run is {words(status)}, and is not started by this{more}."


def effect_of(store: Store, summary: Summary, effect: str) -> show.Effect | None:
    """The effect of this id, as far as its journal tells."""
    return next((each for each in show.effects(store, summary) if each.id == effect), None)


_STATES = {"happened": "confirmed", "did_not": "failed", "give_up": "given_up"}


def is_settled_so(found: show.Effect, wish: Wish) -> bool:
    """Whether somebody has said the very same before."""
    if wish.finding is None or not found.settled_by or found.state != _STATES[wish.finding]:
        return False
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        given = msgspec.json.decode(forms.result(wish))
        return wish.finding != "happened" or given == msgspec.json.decode(found.result)
    return False


# -- fork, restore -----------------------------------------------------------------------------------------------------


def _fork(store: Store, summary: Summary, wish: Wish) -> Plan:
    beat = summary.state.beats if wish.beat is None else wish.beat
    if not wish.amounts:
        wish = msgspec.structs.replace(wish, amounts=" ".join(forks.halves(store, summary)))
    given, _ = forms.amounts(wish)
    folder = forms.new_folder(store, summary, wish.folder, full=True) if wish.folder else None
    if folder is not None:
        with cache.patience(summary):
            restore.ForkFiles(store, summary, beat, folder).close()
    plan = forks.prepare(
        store, summary, at=beat, task=wish.task or None, budget=budget_of(given or None),
        workspace=str(folder) if folder is not None else "",
    )  # fmt: skip
    opened = plan.opened
    wish = msgspec.structs.replace(wish, beat=beat, task=opened.task)
    if plan.exists:
        says = [f"The fork is there already: run {opened.run} of task {opened.task}. Nothing changes."]
    else:
        at = f"the end of beat {beat:,}" if beat else "the beginning"
        says = [f"A new run of task {opened.task} is made. It shares the past of run {summary.run} up to {at}, and goes its"
                " own way from there. It is not started by this."]  # fmt: skip
    if folder is not None:
        says.append(f"Its files, as they were then, are written into {folder}.")
    elif opened.workspace:
        says.append(f"It works in the same folder, {opened.workspace}, as it is when it is started.")
    if given:
        says.append(f"{', '.join(given)} of the budget of run {summary.run} is moved to it.")
    says += () if plan.exists else _again(summary, plan.again)
    options = [word for text in given for word in ("--budget", text)]
    options += ["--to", str(folder)] if folder is not None else []
    line_of = ("fork", summary.run, "--at", str(beat), "--task", opened.task, *options, "--yes")
    return Plan(wish=wish, words=line_of, says=tuple(says))


def _again(summary: Summary, again: Sequence[show.Effect]) -> Iterator[str]:
    """The fork has keys of its own: what the source did after the save point, the world would see twice."""
    if not again:
        return
    count = "1 later effect" if len(again) == 1 else f"{len(again):,} later effects"
    yield f"Run {summary.run} did {count}, which the fork may do again:"
    for effect in again[:LISTED_MAX]:
        yield f"{effect.id} {short(effect.name, 100)}: {effect.state.replace('_', ' ')}"
    if len(again) > LISTED_MAX:
        yield f"… and {len(again) - LISTED_MAX:,} more."


@contextlib.contextmanager
def save_of(store: Store, summary: Summary, text: str, seconds: float | None = None) -> Iterator[Found]:
    """The save of a run that is meant, open to be read; the newest one where none is named. Git has so many seconds."""
    with cache.patience(summary, seconds):
        desk = Saves(store.local, store, summary.project, store.local.folder)  # wherever this process stands
        try:
            yield desk.of_run(summary, text or summary.state.last_save)
        finally:
            desk.close()


def _restore(store: Store, summary: Summary, wish: Wish) -> Plan:
    with save_of(store, summary, wish.save) as found:
        commit = found.held.commit
        wish = msgspec.structs.replace(wish, save=commit, folder=wish.folder or forms.beside(summary, commit))
        if not wish.folder:
            says = ["Say into which folder its files are to be written."]
            return Plan(wish=wish, words=(), says=tuple(says), lacks=("folder",))
        folder = forms.new_folder(store, summary, wish.folder)
        wish = msgspec.structs.replace(wish, folder=str(folder))
        brought = restore.restore_to(found, folder, dry_run=True)
        meta = found.held.meta
    made = f"made {meta.at:%Y-%m-%d %H:%M} UTC after beat {meta.beat:,}"
    says = [
        f"{len(brought.written):,} files of save {commit[:SHORT_CHARS]} ({meta.kind}, {made}) are written into {folder}.",
        "That folder is a new one: nothing is overwritten. The run, its own files and its journal go on as they are;"
        " it is recorded there that this was done.",
    ]
    if meta.secrets:
        count = "1 untracked secret" if len(meta.secrets) == 1 else f"{len(meta.secrets):,} untracked secrets"
        says.append(
            f"{count} of it, kept apart, stays apart; --with-secrets on the command line brings it back."
        )
    left = [path for path in brought.left_out if path not in {kept.path for kept in meta.secrets}]
    if left:
        says.append(f"{len(left):,} paths were left out of the save, {short(left[0], 80)} among them.")
    return Plan(
        wish=wish, words=("restore", commit, "--to", str(folder), *_repository(summary)), says=tuple(says)
    )


def _repository(summary: Summary) -> tuple[str, ...]:
    """So that the command finds the save wherever it is pasted."""
    return ("--workspace", summary.state.workspace) if summary.state.workspace else ()


_FORESEEN: dict[ActName, Callable[[Store, Summary, Wish], Plan]] = {
    "pause": _pause, "resume": _resume, "cancel": _cancel, "budget": _budget, "settle": _settle, "fork": _fork,
    "restore": _restore,
}  # fmt: skip
