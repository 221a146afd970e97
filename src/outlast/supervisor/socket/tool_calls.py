"""The calls of `outlast mcp` through a run's socket: what an agent may know and say of its own run. `tools` has their types."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from outlast import decoders
from outlast.core import budget as budgets
from outlast.core.text import short
from outlast.errors import OutlastError, RunRefused, UsageError
from outlast.inspect import show
from outlast.operations import requests
from outlast.processes.proc import describe
from outlast.processes.roster import Roster
from outlast.runs import files as run_files
from outlast.runs.engine.steps import append
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.socket import tools
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.wire import ToolCall

BY_AGENT = "agent"  # who settled it
WRITING = ("stage", "remember", "settle", "save", "ask")


class ToolCalls:
    """Serves the tools of one attempt. Its methods may be called from several threads.

    An agent settles only its own outward calls, which it was told to look up; everything else in doubt is for a person.
    """

    def __init__(self, beats: BeatInFlight, scripts: ScriptCalls) -> None:
        self._beats, self._run, self._scripts = beats, beats.run, scripts
        self._tools: dict[str, tuple[type[tools.Arguments], Callable[[Any], msgspec.Struct]]] = {
            "budget": (tools.NoArguments, self._budget),
            "context": (tools.NoArguments, self._context),
            "stage": (tools.StageArguments, self._stage),
            "remember": (tools.RememberArguments, self._remember),
            "effects": (tools.EffectsArguments, self._effects),
            "settle": (tools.SettleArguments, self._settle),
            "save": (tools.SaveArguments, self._save),
            "ask": (tools.AskArguments, self._ask),
        }

    def answer(self, call: ToolCall, *, is_stopping: bool) -> bytes:
        """The result of a tool as JSON; what it writes is durable. Raises OutlastError where it is refused."""
        if call.name not in self._tools:
            raise UsageError(f"no such tool: {call.name:.40}", hint=f"there are {', '.join(self._tools)}")
        if call.name in WRITING:
            self._refuse_write(is_stopping=is_stopping)
        wanted, tool = self._tools[call.name]
        try:
            arguments = decoders.decode(call.arguments, wanted)
        except msgspec.MsgspecError as error:
            raise UsageError(f"the arguments of {call.name} do not fit: {error}") from error
        return msgspec.json.encode(tool(arguments))

    def _refuse_write(self, *, is_stopping: bool) -> None:
        failure = self._scripts.failure
        if failure is not None:
            raise OutlastError(f"the attempt ends: {failure}", hint=failure.hint)
        if is_stopping:
            raise OutlastError(
                "the attempt is being stopped: nothing more is recorded for it",
                hint="end your work; the files are saved",
            )

    # -- looking -----------------------------------------------------------------------------------------------------

    def _budget(self, _: tools.NoArguments) -> tools.BudgetResult:
        with self._beats.lock:
            head, live = self._run.meter.head(), self._run.meter.live()
        known = budgets.left(head.budget, head, live)
        spent = show.spent_of(head.spent, head.beats)
        return tools.BudgetResult(
            run=head.run, task=head.task, beats=head.beats, tokens_spent=spent.tokens,
            cost_microusd=spent.cost_microusd, estimated=spent.estimated,
            limits=tuple(
                tools.Limit(
                    unit=each.unit, limit=each.limit, spent=each.spent, reserved=each.reserved, left=each.left,
                    text=each.words(),
                )
                for each in budgets.lines(head, live)
            ),
            wraps_up=known.wraps_up, warning=known.warning,
        )  # fmt: skip

    def _context(self, _: tools.NoArguments) -> tools.ContextResult:
        with self._beats.lock:
            return tools.ContextResult(run=self._run.id, context=self._run.context())

    def _effects(self, wanted: tools.EffectsArguments) -> tools.EffectsResult:
        found = [each for each in self._all_effects() if not wanted.in_doubt or each.state == "in_doubt"]
        shown = found[-wanted.last :]
        return tools.EffectsResult(
            run=self._run.id, effects=tuple(map(_line, shown)), left_out=len(found) - len(shown)
        )

    def _all_effects(self) -> list[show.Effect]:
        store = self._run.journal.store
        return show.effects(store, requests.summary_of(store, self._run.id))

    # -- putting on record -------------------------------------------------------------------------------------------

    def _stage(self, wanted: tools.StageArguments) -> tools.StageResult:
        self._scripts.stage(wanted.name, {})
        return tools.StageResult(stage=self._run.state.stage)

    def _remember(self, wanted: tools.RememberArguments) -> tools.RememberResult:
        self._scripts.remember(wanted.name, wanted.path, {})
        return tools.RememberResult(name=wanted.name, uri=wanted.path)

    def _settle(self, wanted: tools.SettleArguments) -> tools.SettleResult:
        """Durable when it returns: the run has taken the word in, and what holds calls has heard of it."""
        with self._beats.noting_failure(), self._beats.lock:
            self._run.drive(self._run.take_findings())  # a person who was first has the say
            store, run, result = self._run.journal.store, self._run.id, msgspec.json.encode(wanted.result)
            requests.settling(store, run, wanted.effect, wanted.finding, result)
            self._refuse_others(wanted)
            requests.settle(store, run, wanted.effect, wanted.finding, result, by=BY_AGENT)
            self._run.drive(self._run.take_findings())
        effect = self._effect(wanted.effect)
        return tools.SettleResult(effect=effect.id, state=effect.state, settled_by=effect.settled_by)

    def _effect(self, wanted: str) -> show.Effect:
        found = next((each for each in self._all_effects() if each.id == wanted), None)
        if found is None:
            raise UsageError(
                f"run {self._run.id} has no effect {wanted:.40}", hint="the tool effects lists them"
            )
        return found

    def _refuse_others(self, wanted: tools.SettleArguments) -> None:
        """Refuse what only a person decides, and a "did not" while a process of the call may do it yet."""
        found = self._effect(wanted.effect)
        if _settles(found) != "you":
            raise RunRefused(
                f"effect {found.id} {found.name!r} is for a person to settle: it is not one of your own calls that you were told to look up",
                hint=f"say so to your user, and go on without it; a person types `outlast settle {self._run.id} {found.id} --happened` or `--did-not`",
            )
        alive = (
            Roster(self._run.journal.store.local.roster(self._run.id)).alive(found.key)
            if wanted.finding == "did_not"
            else []
        )
        if alive:
            oldest = min(alive, key=lambda each: each.start_ticks)
            raise RunRefused(
                f"effect {found.id} may still be under way in {describe(oldest.pid)}",
                hint="wait until that has ended, or end it; then look, and say it again",
            )

    def _ask(self, wanted: tools.AskArguments) -> tools.AskResult:
        """A person's answer. Raises WaitsForPerson, with the question on record: then the attempt is stopped."""
        return tools.AskResult(answer=self._scripts.ask(wanted.text, wanted.choices, wanted.within))

    def _save(self, wanted: tools.SaveArguments) -> tools.SaveResult:
        run = self._run
        if run.files is None:
            raise RunRefused(
                "this run saves no files: it has no workspace",
                hint="start it in a folder that is not your home",
            )
        with self._beats.telling_full_disk():
            save = run.files.save("manual", run.state, wanted.message, if_dirty=True)
        if save is None:
            return tools.SaveResult(
                commit="", left_out=(), text="nothing to save: the files are as HEAD has them"
            )
        made = run_files.made(save, run.journal.now(), run.state)
        with self._beats.noting_failure(), self._beats.lock:
            run.drive(append(made))
        return tools.SaveResult(
            commit=save.commit,
            left_out=made.left_out,
            text=f"saved as {save.commit[:12]}; {save.warning}".rstrip("; "),
        )


def _line(effect: show.Effect) -> tools.EffectLine:
    return tools.EffectLine(
        id=effect.id, name=effect.name, state=effect.state, act=short(show.act_words(effect), tools.ACT_CHARS),
        policy=effect.policy, beat=effect.beat, evidence=short(effect.evidence, tools.ACT_CHARS),
        settled_by=effect.settled_by, intended_at=effect.intended_at, settles=_settles(effect),
    )  # fmt: skip


def _settles(effect: show.Effect) -> Literal["you", "person", "nobody"]:
    """Who may say what became of an effect. Of an agent's own call that it was told to look up, the agent; but whether a call is
    another one's repetition only a person decides."""
    if effect.state != "in_doubt":
        return "nobody"
    given: Any = msgspec.json.decode(effect.args)
    if (
        effect.policy != "tell" or not isinstance(given, dict) or "tool" not in given
    ):  # one that is too large to be shown
        return "person"
    return "person" if given.get("asks") else "you"
