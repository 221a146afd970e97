"""Approve, reject, answer: a person's word on a question of a run, which then goes on. Refused from inside any run."""

import contextlib
import os
import re
import shlex
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import msgspec

from outlast import settings
from outlast.acts import resume as act_resume
from outlast.acts.plan import TAKEN_IN, WRITES, ActOutcome, about_child, called, name, root_of, stands
from outlast.acts.timing import Timing
from outlast.core import events as ev, questions as qs, verdict
from outlast.core.state import Status
from outlast.core.text import did_you_mean, short
from outlast.errors import OutlastError, RunRefused, UsageError
from outlast.inspect import find, questions as inspect_questions, standing
from outlast.operations import requests
from outlast.processes import reap
from outlast.processes.proc import environ_value, lineage, user_name
from outlast.runs.engine.questions import REPLY_CHARS_MAX, AnswerArgs
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor.control import resume as control
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch import environment

Word = Literal["approve", "reject", "answer"]
_RECORDED: dict[Word, ev.Answer] = {"approve": "approved", "reject": "rejected", "answer": "answered"}
_TEXT_CHARS = 2_000
CALL_CHARS_MAX = 50_000
_OF_SUPERVISOR = re.compile(r"/runs/([0-9A-Za-z]+)/(?:socket\.told|guardian\.lock)$")
_SPENT = "its time is over, or its budget is spent"


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """A person's word on a question, worked out. `starts`: the run goes on by itself when it is on record."""

    store: Store
    run: Summary
    root: Summary
    question: qs.Question
    word: Word
    text: str
    starts: bool
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        start = () if self.starts else ("--no-start",)
        if self.word == "answer":
            return ("answer", self.root.run, *start, "--id", self.question.id, "--", self.text)
        why = ("--why", self.text) if self.text else ()
        return (self.word, self.root.run, self.question.id, *why, *start)

    def apply(self, by: str = "") -> ActOutcome:
        """Record it, or ask the run's holder to; then start the run again where that is all it waited for."""
        run, args = self.root.run, AnswerArgs(self.question.id, _RECORDED[self.word], self.text)
        with requests.alone(self.store, run, WRITES):
            plan(self.store, self.run, self.word, self.question.id, self.text, starts=self.starts)
            outcome = requests.answer(self.store, run, args, by=by)
        says = f"{self.question.id} is {_RECORDED[self.word]}"
        if outcome.in_inbox and not _comes_to_rest(self.store, run, self.question.id):
            return ActOutcome(says=f"{says}: {TAKEN_IN}.", changed=outcome.changed, link=run)
        root = requests.summary_of(self.store, run)
        left = qs.waited_for(root.state.questions, root.state.waits)
        if left:
            hint = f"`{inspect_questions.answer_command(run, left[0])}` is next"
            return ActOutcome(
                says=f"{says}; {called(root)} waits for {_named(left)} yet.", hint=hint, link=run
            )
        return self._go_on(root, says, by)

    def _go_on(self, root: Summary, says: str, by: str) -> ActOutcome:
        run, state = root.run, root.state
        status = find.shown_status(self.store, state, run)
        if status == "running":
            return ActOutcome(says=f"{says}; {called(root)} goes on with it.", link=run)
        now, children = datetime.now(UTC), find.children_in(self.store)
        found = verdict.of(state, status, now, children)
        if not state.supervised:
            return ActOutcome(says=f"{says}.", hint="start its program, and it goes on", link=run)
        if other := _other_user(self.store, run):
            hint = f"`outlast resume {run}`, typed as {other}, lets it go on"
            return ActOutcome(
                says=f"{says}; it works as {other}, so it was not started.", hint=hint, link=run
            )
        if not self.starts or not found.wakes:
            spent = f"; {_SPENT}" if verdict.is_out_of_budget(state, now, children) else ""
            command = standing.go_on_command(state, now, children)
            return ActOutcome(says=f"{says}{spent}.", hint=f"`{command}` lets it go on", link=run)
        try:
            started = act_resume.plan(self.store, root, act_resume.ResumeWish(), wait=True).apply(by)
        except OutlastError as error:  # the word is on record whatever becomes of the start
            return ActOutcome(
                says=f"{says}; it does not go on: {error}.", hint=error.hint, link=run, error=error
            )
        return msgspec.structs.replace(started, says=f"{says}. {started.says}", changed=True)


def plan(
    store: Store, summary: Summary, word: Word, wanted: str = "", text: str = "", *, starts: bool = True
) -> AnswerPlan:
    """Work out what a person's word would do; `wanted` is the id of a question or of its effect, empty for the only one.

    Raises RunRefused for a process inside of a run, UsageError for a question that is not open or an answer it does not take.
    """
    refuse_inside(store)
    root, status = root_of(store, summary)
    requests.allow(root.state, status, "answer")
    question = _meant(root, word, wanted)
    if question.is_overdue(datetime.now(UTC)):
        raise RunRefused(
            f"{question.id} of {called(root)} was to be answered until {question.deadline:%Y-%m-%d %H:%M} UTC",
            hint=f"`outlast resume {root.run}` lets the run go on, and ask again",
        )
    whole = inspect_questions.whole_text(store, root, question.id) or question.text
    if not wanted:
        _refuse_id(root, word, text)
    _check(root, question, word, text, whole)
    call = f" ({question.kind_of_call} {question.target})" if question.kind_of_call else ""
    all_of_it = inspect_questions.whole_call(store, root, question.id)
    sentences = (
        *about_child(summary, root),
        f"{question.id} of {called(root)}{call}: {whole}",
        *((f"All that it is given: {_cut(all_of_it)}",) if all_of_it else ()),
        _consequence(word, text),
        _afterwards(store, root, status, question, starts=starts),
    )
    return AnswerPlan(store, summary, root, question, word, text, starts, sentences)


def refuse_inside(store: Store) -> None:
    """Refuse a process that a run started: what a run asks, only a person outside of it answers.

    It is known by the mark in its environment or in that of a process above it, and by the supervisors and guardians above it.
    """
    within = settings.variable(environment.RUN) or settings.variable(environment.ATTEMPT).rpartition(".")[0]
    if within or (within := run_around(store, os.getpid())):
        raise RunRefused(
            f"this was started inside run {within}: only a person outside of every run answers",
            hint="type it in a terminal of your own",
        )


def run_around(store: Store, pid: int) -> str:
    """The run that a process, or one above it, belongs to; empty if there is none."""
    above = lineage(pid)
    for each in above:
        mark = environ_value(each.pid, reap.MARK)
        if mark:
            return os.fsdecode(mark).rpartition(".")[0]
        if run := _supervised_by(each.pid):
            return run
    pids = {each.pid for each in above}
    for summary in find.all_runs(store, RunFilter(parent="", statuses=("running",)), unreadable=True):
        watcher = lock.of(store.local, summary.run)
        if watcher is not None and pids & {watcher.guardian, watcher.supervisor}:
            return summary.run
    return ""


def _supervised_by(pid: int) -> str:
    """The run whose supervisor or guardian a process is, by the files that it has open: also of a store that is not ours."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # closed between our two looks
                if found := _OF_SUPERVISOR.search(os.readlink(entry.path)):
                    return found[1]
    return ""


def _meant(root: Summary, word: Word, wanted: str) -> qs.Question:
    state = root.state
    fits = [
        each
        for each in qs.open_among(state.questions)
        if word == "reject" or (each.kind == "approval") == (word == "approve")
    ]
    what = {"approve": "an approval", "answer": "an answer", "reject": "an answer"}[word]
    if wanted:
        found = [each for each in fits if wanted in (each.id, each.effect)]
        if found:
            return found[0]
        known = next((each for each in state.questions if wanted in (each.id, each.effect)), None)
        if known is not None and not known.is_open:
            raise _answered(root, known)
        if known is not None:
            right = inspect_questions.answer_command(root.run, known)
            raise UsageError(
                f"{known.id} of {called(root)} is {'a question' if known.kind == 'question' else 'an approval'}",
                hint=f"`{right}`",
            )
        raise UsageError(
            f"{called(root)} asks nothing called {wanted:.60}; open: {_named(fits) or 'nothing'}",
            hint=did_you_mean(wanted, [each.id for each in fits])
            or f"`outlast show {root.run}` lists what it waits for",
        )
    if not fits:
        kind = "question" if word == "answer" else "approval"
        before = [each for each in state.questions if not each.is_open and each.kind == kind]
        if len(before) == 1:  # by a command that was killed before it said so, perhaps
            raise _answered(root, before[0])
        others = qs.open_among(state.questions)
        hint = (
            f"`{inspect_questions.answer_command(root.run, others[0])}`"
            if others
            else f"see `outlast show {root.run}`"
        )
        also = f"; it waits for {_named(others)}" if others else ""
        raise UsageError(f"{called(root)} does not wait for {what}{also}", hint=hint)
    if len(fits) > 1:
        raise UsageError(
            f"{called(root)} waits for {len(fits)} answers: {_named(fits)}",
            hint=f"say which: `outlast {word} {root.run} {'--id ' if word == 'answer' else ''}{fits[0].id}`",
        )
    return fits[0]


def _answered(root: Summary, question: qs.Question) -> UsageError:
    by = f" by {question.by}" if question.by else ""
    goes_on = root.state.supervised and root.state.status == "interrupted"
    return UsageError(
        f"{question.id} of {called(root)} is {question.answer} already{by}: the first answer counts",
        hint=f"`outlast resume {root.run}` lets it go on" if goes_on else f"see `outlast show {root.run}`",
    )


def _refuse_id(root: Summary, word: Word, text: str) -> None:
    """Refuse the id of a question where the answer stands: `outlast approve RUN a1` looks so, too."""
    if word == "answer" and any(each.id == text for each in qs.open_among(root.state.questions)):
        usage = f"outlast answer {root.run} --id {text}"
        raise UsageError(
            f"{text} is the id of a question, and there is no answer behind it",
            hint=f"`{usage}` shows it; `{usage} {text}` answers with these very letters",
        )


def _check(root: Summary, question: qs.Question, word: Word, text: str, whole: str) -> None:
    if len(text) > REPLY_CHARS_MAX:
        raise UsageError(
            f"an answer has at most {REPLY_CHARS_MAX:,} characters, got {len(text):,}",
            hint="put the rest into a file, and name that",
        )
    if word != "answer":
        return
    choices = ", ".join(question.choices)
    example = shlex.quote(question.choices[0]) if question.choices else "TEXT"
    usage = f"`outlast answer {root.run} --id {question.id} {example}`"
    if not text.strip():
        of = f"; one of {choices}" if choices else ""
        raise UsageError(f"{question.id} asks: {whole}{of}", hint=f"answer it: {usage}")
    if question.choices and text not in question.choices:
        raise UsageError(
            f"{text!r:.60} is none of its choices: {choices}",
            hint=did_you_mean(text, question.choices) or usage,
        )


def _cut(text: str) -> str:
    """A call as far as anybody reads it. What is left out is said: nobody should approve it unseen."""
    left = len(text) - CALL_CHARS_MAX
    return f"{text[:CALL_CHARS_MAX]}… ({left:,} characters more are not shown)" if left > 0 else text


def _consequence(word: Word, text: str) -> str:
    match word:
        case "approve":
            return "It is approved by your word: this one call passes, once, and the same call asks again after that."
        case "reject":
            why = f" Its reason: {text}" if text else ""
            return f"It is rejected by your word: the call is not made, and the run is told so.{why}"
        case "answer":
            return f"The answer is: {short(text, _TEXT_CHARS)}"


def _afterwards(store: Store, root: Summary, status: Status, question: qs.Question, *, starts: bool) -> str:
    left = [each for each in qs.waited_for(root.state.questions, root.state.waits) if each.id != question.id]
    if status == "running":
        return f"It is running: {TAKEN_IN}."
    if left:
        return f"The run stays {stands(store, root)}: {_named(left)} is open yet."
    if not root.state.supervised:
        return "outlast did not start its program: start it yourself, and the run goes on."
    now, children = datetime.now(UTC), find.children_in(store)
    if verdict.is_out_of_budget(root.state, now, children):
        command = standing.resume_command(root.state, now, children)
        return f"The run is not started by this, for {_SPENT}: `{command}` lets it go on."
    if other := _other_user(store, root.run):
        return f"The run works as {other} and is not started by this: `outlast resume {root.run}`, typed as {other}, lets it go on."
    if not starts or status != "parked":
        return f"The run is not started by this: `outlast resume {root.run}` lets it go on."
    launch = control.launch_of(store, root)
    return f"{name(root)} then goes on in the background." if launch is not None else ""


def _other_user(store: Store, run: str) -> str:
    """The user that a run works as, where that is not ours: nobody's answer, not even root's, gives its command another one."""
    try:
        uid = store.local.run_folder(run).stat().st_uid
    except OSError:
        return ""
    return "" if uid == os.geteuid() else user_name(uid)


def _named(found: "list[qs.Question] | qs.Questions") -> str:
    return ", ".join(f"{each.id} {short(each.text, 60)}" for each in found)


def _comes_to_rest(store: Store, run: str, question: str) -> bool:
    """Whether a run rests, with the answer on record that lay in its inbox: its holder was about to leave.

    A holder that is at work takes the answer in by itself, and so does the supervisor that has just parked the run.
    """
    began_s, timing = time.monotonic(), Timing.current()
    while (waited_s := time.monotonic() - began_s) < timing.leaves_within_s:
        state = requests.summary_of(store, run).state
        runs = find.shown_status(store, state, run) == "running"
        found = next((each for each in state.questions if each.id == question), None)
        if found is None or not found.is_open:
            return not runs
        if runs and waited_s > timing.sure_after_s:
            return False
        if not runs:
            with contextlib.suppress(RunRefused):  # it has not left yet
                requests.take_answers(store, run)
        time.sleep(timing.look_every_s)
    return False
