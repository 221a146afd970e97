"""What an event of the journal is in one line for a person, and in one object for a program."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from outlast.core import budget as budgets, events as ev
from outlast.core.secrets import mask
from outlast.core.state import RunState
from outlast.core.text import count_of, short, without_class
from outlast.core.values import Payload, Usage
from outlast.errors import OutlastError
from outlast.supervisor.chronicle.feed_events import (
    FeedAnswer,
    FeedAttemptEnded,
    FeedBeat,
    FeedEffect,
    FeedEvent,
    FeedParked,
    FeedQuestion,
    FeedStage,
    FeedWarning,
    place_in,
)

CALLS_NAMED_MAX = 2
TEXT_CHARS = 80
_LOCAL = "give_up"  # the policy of an agent's local calls


class BeatResult(msgspec.Struct, frozen=True):
    """What a beat did, as its end records it: an agent's calls and words, or a script's steps."""

    calls: tuple[str, ...] = ()
    text: str = ""
    steps: tuple[str, ...] = ()
    exit_code: int | None = None

    @classmethod
    def of(cls, value: object) -> "BeatResult":
        """The result of a beat as plain data; empty if it is of another form."""
        match value:
            case {"step": str(name), "exit_code": int(code)}:
                return cls(steps=(_step(name, code),), exit_code=code)
            case [{"step": str(), "exit_code": int()}, *_]:
                steps = [cls.of(each) for each in value]
                return cls(
                    steps=tuple(word for each in steps for word in each.steps), exit_code=steps[-1].exit_code
                )
            case dict(named):
                calls, text, ended = named.get("calls"), named.get("said"), named.get("exit_code")
                return cls(
                    calls=tuple(str(call) for call in calls) if isinstance(calls, list) else (),
                    text=text if isinstance(text, str) else "",
                    exit_code=ended if isinstance(ended, int) else None,
                )
            case _:
                return cls()

    def words(self) -> str:
        """What it did, for a person; empty if there is nothing to tell but that the command ended."""
        acts = self.steps or self.calls
        if acts:
            more = len(acts) - CALLS_NAMED_MAX
            return "; ".join([*acts[:CALLS_NAMED_MAX], *([f"{more} more"] if more > 0 else [])])
        return f"said: {short(mask(self.text)[0].strip(), TEXT_CHARS)}" if self.text.strip() else ""


def _step(name: str, code: int) -> str:
    return f"step {name}" if code == 0 else f"step {name} (exit {code})"


def spent_words(state: RunState, now: budgets.Live | None = None) -> str:
    """Tokens and money so far, of the budget where there is one; empty if nothing was spent and nothing limits it."""
    lines = {line.unit: line.words() for line in budgets.lines(state, now)}
    spent = state.spent
    about = "~" if spent.estimated else ""
    tokens = lines.get("tokens") or (count_of(spent.tokens, "token") if spent.tokens else "")
    money = lines.get("usd") or (f"${spent.cost_microusd / 1e6:.2f}" if spent.cost_microusd else "")
    return ", ".join(f"{about}{part}" for part in (tokens, money) if part)


def status_words(state: RunState, now: budgets.Live) -> str:
    """How far a run is, for the line that an agent shows a person."""
    limits = [
        line.words() for line in budgets.lines(state, now) if line.unit not in ("tokens", "usd", "beats")
    ]
    spent = spent_words(state)
    beats = next(
        (line.words() for line in budgets.lines(state) if line.unit == "beats"), f"beat {state.beats}"
    )
    wraps = ["wraps up"] if state.wrap_beat is not None else []
    return f"outlast {state.task}: {', '.join([beats, *([spent] if spent else []), *limits, *wraps])}"


def evidence_words(evidence: str) -> str:
    """Why an attempt ended, for a person."""
    return short(without_class(evidence), 200)


class Reader:
    """Reads events as they are recorded. It remembers the names of effects under way, which their outcomes do not repeat."""

    def __init__(self, blob: Callable[[str], bytes], *, has_agent: bool) -> None:
        self._blob, self._has_agent = blob, has_agent
        self._names: dict[tuple[int, int], str] = {}

    def read(self, event: ev.AnyEvent, state: RunState) -> tuple[str, list[FeedEvent]]:
        """What a person may want to know, empty if that is nothing; and the objects of the event, none of most."""
        return self._line(event), list(self._feed(event, state))

    def _line(self, event: ev.AnyEvent) -> str:
        match event:
            case ev.BeatDone():
                words = self._result(event.result).words()
                return f"beat {event.beat}  {words}" if words else ""
            case ev.StageSet() if event.stage:
                return f"stage {event.stage}"
            case ev.QuestionAsked() if self._has_agent:  # a script's call says so itself
                asks = "waits for approval" if event.kind == "approval" else "asks"
                return f"{asks} ({event.id}): {short(mask(event.text)[0], TEXT_CHARS)}"
            case ev.EffectConfirmed() if not self._has_agent and (
                name := self._names.get((event.beat, event.n))
            ):
                return f"beat {event.beat}  effect {name}: happened"
            case _:
                return ""

    def _feed(self, event: ev.AnyEvent, state: RunState) -> Iterator[FeedEvent]:
        place: dict[str, Any] = place_in(state, event.at)
        match event:
            case ev.BeatDone():
                yield self._beat(event, state, place)
            case ev.StageSet() if event.stage:
                yield FeedStage(stage=event.stage, **place)
            case ev.EffectIntended() if event.policy != _LOCAL:
                self._names[event.beat, event.n] = event.name
                yield self._effect(event.beat, event.n, "intended", "", place)
            case ev.EffectConfirmed() if (event.beat, event.n) in self._names:
                yield self._effect(event.beat, event.n, "confirmed", "", place)
            case ev.EffectFailed() if (event.beat, event.n) in self._names:
                yield self._effect(event.beat, event.n, "failed", event.error, place)
            case ev.EffectInDoubt():
                yield self._effect(event.beat, event.n, "in_doubt", event.evidence, place)
            case ev.EffectSettled() if event.finding != _LOCAL or (event.beat, event.n) in self._names:
                yield self._effect(event.beat, event.n, event.finding, event.evidence, place)
            case ev.QuestionAsked():
                yield FeedQuestion(
                    id=event.id, kind=event.kind, text=event.text, choices=event.choices, deadline=event.deadline, **place
                )  # fmt: skip
            case ev.QuestionAnswered():
                yield FeedAnswer(id=event.id, answer=event.answer, text=event.text, by=event.by, **place)
            case ev.Warned():
                yield FeedWarning(level=event.level, text=event.text, **place)
            case ev.Parked():
                yield FeedParked(until=event.until, cause=event.cause, why=event.evidence, **place)
            case ev.AttemptEnded():
                yield FeedAttemptEnded(
                    status=event.status, cause=event.cause, evidence=event.evidence, exit_code=event.exit_code,
                    progress=event.progress, **place,
                )  # fmt: skip
            case _:
                return

    def begins(self, state: RunState) -> None:
        """An attempt begins: the names of what an earlier one left open."""
        self._names = {(each.beat, each.n): each.name for each in state.effects_open if each.policy != _LOCAL}

    def _effect(self, beat: int, n: int, state: str, why: str, place: dict[str, Any]) -> FeedEffect:
        name = self._names.get((beat, n), "")
        if state not in ("intended", "in_doubt", "cannot_tell"):
            self._names.pop((beat, n), None)
        return FeedEffect(id=f"{beat}.{n}", name=name, state=state, why=why, **place)

    def _beat(self, event: ev.BeatDone, state: RunState, place: dict[str, Any]) -> FeedBeat:
        result, budget, spent = self._result(event.result), state.budget, event.spent or Usage()
        return FeedBeat(
            beat=event.beat, step=event.step, calls=result.steps or result.calls, text=result.text,
            exit_code=result.exit_code, beat_tokens=spent.tokens, tokens=state.spent.tokens,
            tokens_max=budget.tokens if budget is not None else None, cost_microusd=state.spent.cost_microusd,
            cost_microusd_max=budget.cost_microusd if budget is not None else None,
            estimated=state.spent.estimated, save=event.save, **place,
        )  # fmt: skip

    def _result(self, payload: Payload) -> BeatResult:
        try:
            return BeatResult.of(
                msgspec.json.decode(self._blob(payload.blob) if payload.blob else bytes(payload.v))
            )
        except (OSError, OutlastError, msgspec.MsgspecError):
            return BeatResult()
