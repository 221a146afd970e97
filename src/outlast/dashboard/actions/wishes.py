"""From a wish of the page or the API to the plan of its act. The plans themselves are in `acts`."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from outlast.acts import approve, budget, fork, restore, resume, settle, stop
from outlast.acts.plan import Plan, name, root_of
from outlast.core import statuses
from outlast.core.values import Allowance
from outlast.dashboard.actions import forms
from outlast.dashboard.documents import ActName, Wish
from outlast.dashboard.saves import cache
from outlast.errors import UsageError
from outlast.inspect import find
from outlast.inspect.questions import WaitsFor, waits_for
from outlast.operations import fork as forks, requests
from outlast.operations.saves.find import Found, Saves
from outlast.store.protocol import Store, Summary

TAKES: dict[ActName, tuple[str, ...]] = {
    "pause": (), "cancel": (), "resume": ("amounts",), "budget": ("amounts",), "settle": ("effect", "finding", "result"),
    "fork": ("beat", "task", "folder"), "restore": ("save", "folder"), "approve": (), "reject": ("text",), "answer": ("text",),
}  # fmt: skip


class Lack(NamedTuple):
    """Fields that a wish leaves empty: what a person reads who can still fill them in, and the refusal for a program."""

    fields: tuple[str, ...]
    sentences: tuple[str, ...]
    refusal: UsageError


def takes(store: Store, summary: Summary, act: ActName) -> tuple[str, ...]:
    """The fields that a person may fill in for this run."""
    if act == "fork" and summary.state.budget is not None:
        return (*TAKES[act], "amounts")
    if act == "budget" and not budget.units_of(_limit(store, summary)):
        return ()
    return TAKES[act]


def suggested(store: Store, summary: Summary, wish: Wish) -> Wish:
    """The request with its open fields filled in, as a page offers it."""
    root = requests.root_of(store, summary.run)
    match wish.act:
        case "resume":
            wish = _replace(wish, amounts=wish.amounts or budget.needed(root.state))
            return wish if not wish.amounts else _replace(wish, limit_was=_limit_was(store, summary, wish))
        case "budget":
            head = msgspec.structs.replace(root.state, budget=_limit(store, summary))
            wish = _replace(wish, amounts=wish.amounts or budget.suggested(head))
            return _replace(wish, limit_was=_limit_was(store, summary, wish))
        case "settle":
            doubts = find.doubts(store, summary.state)
            only = doubts[0][1].id if len(doubts) == 1 and doubts[0][0] == summary.run else ""
            return _replace(wish, effect=wish.effect or only)
        case "fork":
            amounts = wish.amounts or " ".join(forks.halves(store, summary))
            return _replace(
                wish, beat=summary.state.beats if wish.beat is None else wish.beat, amounts=amounts
            )
        case "approve" | "reject" | "answer":
            question = question_of(store, summary, wish.question)
            return _replace(wish, question=question.id if question is not None else wish.question)
        case "restore":
            with save_of(store, summary, wish.save) as found:
                commit = found.held.commit
            return _replace(wish, save=commit, folder=wish.folder or forms.beside(summary, commit))
        case _:
            return wish


def _replace(wish: Wish, **fields: object) -> Wish:
    return msgspec.structs.replace(wish, **fields)


def _limit(store: Store, summary: Summary) -> Allowance | None:
    return budget.limit_now(store, requests.root_of(store, summary.run).run)


def _limit_was(store: Store, summary: Summary, wish: Wish) -> str:
    return wish.limit_was or budget.limit_words(_limit(store, summary))


def lacking(store: Store, summary: Summary, wish: Wish) -> Lack | None:
    """The fields that are missing before the act can be planned, or None. Raises RunRefused if no field would help."""
    command = _COMMANDS.get(wish.act)
    if command is not None:
        root, status = root_of(store, summary)
        requests.allow(root.state, status, command)
    match wish.act:
        case "budget" if not wish.amounts and (limit := _limit(store, summary)) and budget.units_of(limit):
            root = requests.root_of(store, summary.run)
            ask = (
                f"{name(root)} has a budget of {budget.limit_words(limit)}. Say how much to put on top of it."
            )
            refusal = UsageError("no amount is given", hint="say how much, like +200k, usd=+5 or time=+2h")
            return Lack(("amounts",), (ask,), refusal)
        case "settle" if not wish.effect or wish.finding is None:
            fields = (*(() if wish.effect else ("effect",)), *(() if wish.finding else ("finding",)))
            meant = settle.effect_of(store, summary, wish.effect) if wish.effect else None
            hint = f"see `outlast effects {summary.run}`"
            refusal = UsageError(
                f"{' and '.join(fields)} {'are' if len(fields) > 1 else 'is'} missing", hint=hint
            )
            return Lack(fields, (*settle.about(meant), *_SETTLE), refusal)
        case "fork" if wish.beat is None:
            hint = f"see `outlast log {summary.run}`; 0 is before the first"
            return Lack(("beat",), ("Say after which beat.",), UsageError("beat is missing", hint=hint))
        case "answer" if not wish.text and (question := question_of(store, summary, wish.question)):
            choices = f"It takes one of: {', '.join(question.choices)}." if question.choices else ""
            hint = f"see `outlast show {summary.run}`"
            sentences = (f"{question.id} asks: {question.text}", *filter(None, [choices]))
            return Lack(("text",), sentences, UsageError("the answer is missing", hint=hint))
        case "restore" if not wish.save:
            hint = f"see `outlast saves {summary.run}`"
            return Lack(("save",), ("Say which save.",), UsageError("save is missing", hint=hint))
        case "restore" if not wish.folder:
            hint = "give a new one by its whole path, like ~/looked-at"
            return Lack(
                ("folder",),
                ("Say into which folder its files are to be written.",),
                UsageError("no folder is given", hint=hint),
            )
        case _:
            return None


# The acts that can lack something, as the table of statuses calls them. A restore is allowed in any status.
_COMMANDS: dict[ActName, statuses.Command] = {"budget": "amend", "settle": "settle", "fork": "fork"}
_SETTLE = (
    "Look outside (the remote, the ticket, the mailbox) whether it happened, then say what you found.",
    "If it did not happen, the next attempt does it. If you give it up, no attempt does it or waits for it.",
)


@contextlib.contextmanager
def planned(
    store: Store, summary: Summary, wish: Wish, *, wait: bool = False, git_s: float | None = None
) -> Iterator[Plan]:
    """The plan of a wish that lacks nothing, to be applied inside the block; git has so many seconds.

    Raises what the plan refuses. `wait`: as `acts.resume.plan` has it.
    """
    with contextlib.ExitStack() as stack:
        match wish.act:
            case "pause" | "cancel":
                yield stop.plan(store, summary, wish.act)
            case "resume":
                given, until = forms.amounts(wish)
                resumption = resume.ResumeWish(amounts=tuple(given), until=until, limit_was=wish.limit_was)
                yield resume.plan(store, summary, resumption, wait=wait)
            case "budget":
                yield budget.plan(store, summary, _added(wish), limit_was=wish.limit_was)
            case "settle":
                assert wish.finding is not None, "a wish that lacks nothing has it"
                yield settle.plan(store, summary, wish.effect, wish.finding, forms.result(wish))
            case "fork":
                assert wish.beat is not None, "a wish that lacks nothing has it"
                folder = forms.new_folder(wish.folder) if wish.folder else None
                if folder is not None:
                    stack.enter_context(cache.patience(summary, git_s))
                given, _ = forms.amounts(wish)
                yield fork.plan(
                    store, summary, wish.beat, task=wish.task or None, amounts=given, folder=folder
                )
            case "approve" | "reject" | "answer":
                yield approve.plan(store, summary, wish.act, wish.question, wish.text)
            case "restore":
                place = forms.new_folder(wish.folder)
                found = stack.enter_context(save_of(store, summary, wish.save, git_s))
                yield restore.plan(store, found, place, state=store.local.folder)


def question_of(store: Store, summary: Summary, wanted: str) -> WaitsFor | None:
    """The open question that is meant, by its id, or the only one; None where there is no such."""
    root, _ = root_of(store, summary)
    fits = [each for each in waits_for(root.state) if wanted in ("", each.id)]
    return fits[0] if len(fits) == 1 else None


def _added(wish: Wish) -> list[str]:
    """The amounts to add to a budget. Raises UsageError for `until=`, which can only be set."""
    given, until = forms.amounts(wish)
    if until is not None:
        raise UsageError("a time until which it may work is set, not added", hint="say it when you resume it")
    return given


@contextlib.contextmanager
def save_of(store: Store, summary: Summary, text: str, seconds: float | None = None) -> Iterator[Found]:
    """The save of a run that is meant, open to be read; the newest one where none is named. Git has so many seconds."""
    with cache.patience(summary, seconds):
        saves = Saves(store.local, store, summary.project, store.local.folder)  # wherever this process stands
        try:
            yield saves.of_run(summary, text or summary.state.last_save)
        finally:
            saves.close()
