"""One beat: decisions replayed, effects performed once, and the one event that ends it."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlast import faults
from outlast.core import budget, events as ev, plan, recovery, state as st
from outlast.core.recovery import effect_key
from outlast.core.replay import EffectRecord
from outlast.core.text import did_you_mean
from outlast.core.values import (
    NOTHING,
    Answer,
    MemoryRef,
    SessionMark,
    Usage,
    Window,
    digest,
    scrub,
)
from outlast.errors import (
    AmbiguousOccurrence,
    BeatClosed,
    InvariantFailed,
    MemoryFull,
    NotEncodable,
    UnreachedEffect,
    UsageError,
)
from outlast.probes import as_probe
from outlast.runs.checks import run_checks
from outlast.runs.effects import Act, check_call, perform, takes_key
from outlast.runs.engine import questions
from outlast.runs.engine.questions import Inquiry, check_question
from outlast.runs.engine.steps import Append, Block, Call, Steps
from outlast.runs.journal import encode
from outlast.settings import age

if TYPE_CHECKING:
    from outlast.runs.engine.run import RunEngine

open_beat: "ContextVar[BeatEngine | None]" = ContextVar("outlast_open_beat", default=None)
NAME_CHARS_MAX = 200
KEY_CHARS_MAX = 255
FILE_BYTES_MAX = 64 << 20  # of a file that is remembered: of a larger one nobody can tell whether it changed
TIMEOUT_MAX_S = 10**7
CO_COROUTINE = 0x80
NO_USAGE = Usage()
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):\S", re.IGNORECASE)


class BeatEngine:
    """Does the work of a beat. In an async run its methods return something to await."""

    closed = False
    _ending = False
    _extended: tuple[tuple[tuple[plan.Step, ...], ev.Path | None], ...] = ()
    _remembered: tuple[MemoryRef, ...] = ()
    _spent = NO_USAGE
    _stage = ""
    metered = NO_USAGE  # what the meter counted in this beat; it stays the meter's until the beat's end is on record
    window: Window | None = None  # the share of a subscription's window that its agent reported
    session: SessionMark | None = None  # how far an agent's own transcript had come, for the beat's end
    _over = False
    _result: object = None

    def __init__(self, run: "RunEngine", number: int, step: str, path: ev.Path) -> None:
        self.number = number
        self.step = step
        self.path = path
        self.owner = run
        self._journal = run.journal
        self._counts: dict[tuple[str, str], int] = {}
        self._in_flight: set[tuple[str, str]] = set()
        self._reached: set[int] = set()
        self._outer = open_beat.get()
        open_beat.set(self)

    # -- what a body calls ---------------------------------------------------------------------------------------

    def decide(
        self, name: str, fn: Callable[..., Any], /, *args: Any, lazy: bool = False, **kwargs: Any
    ) -> Any:
        """The recorded answer of this name, or ask `fn` once and record it, durable when this returns.

        Arguments are not compared on replay. With `lazy=True` the answer rides on the next commit instead of making
        one. `fn` may return `outlast.Answer(value, usage)`. The value returned is plain data, replayed or not.
        """
        return self.owner.drive(self._decide(name, fn, args, kwargs, lazy))

    def act(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        probe: Callable[..., Any] | object | None = None,
        unknown: str | None = None,
        retry: int = 0,
        timeout_s: float | None = None,
        approve: bool | str = False,
        **kwargs: Any,
    ) -> Any:
        """Perform an effect once: intent, act, outcome, each durable before the next.

        A repeated beat gets the recorded outcome; one in doubt is settled by its policy: `reissue` (default for a
        function with an `idempotency_key` parameter), `probe`, `ask`, or `give_up`, which returns None. Raises
        EffectFailed, EffectInDoubt, ReplayMismatch.

        With `approve=True` a person approves this one call first, and `approve="8h"` says how long that may take. Until then
        it raises WaitsForPerson, which parks the run; NotApproved if the person says no, or nobody answers in time.
        """
        within_s = self._within_s(approve) if approve else None
        return self.owner.drive(
            self._act(name, fn, args, kwargs, key, probe, unknown, retry, timeout_s, within_s)
        )

    def ask(self, text: str, choices: Sequence[str] = (), *, within: str = "") -> Any:
        """A person's answer to a question, recorded and replayed; one of the `choices` if there are any.

        Until somebody answers it raises WaitsForPerson, which parks the run. Raises NotAnswered if the person refuses, or
        nobody answers `within` a time like "8h" (default: no limit).
        """
        self.check_open()
        options = check_question(text, choices)
        within_s = int(age(within).total_seconds()) if within else 0
        self._refuse_child()
        return self.owner.drive(self._ask(text, options, within_s))

    def done(self, result: object = None, *, evidence: object = None) -> Any:
        """End the beat: everything in it takes hold in one event, durable when this returns."""
        return self.owner.drive(self._done(result, evidence))

    def extend(self, steps: object, *, where: str = "end") -> Any:
        """Stage more steps: at the plan's `end`, or `next`, right after this one. Takes hold with `done`."""
        self.check_open()
        if where not in ("end", "next"):
            raise UsageError(
                f"where must be 'end' or 'next', got {where!r}",
                hint=did_you_mean(where, ("end", "next")) or "like where='next'",
            )
        if where == "next" and not self.path:
            raise UsageError("a run without a plan has no next step to extend", hint="leave out where='next'")
        parsed = plan.parse(steps)
        before = sum(len(steps) for steps, after in self._extended if after is not None)
        after = (*self.path[:-1], self.path[-1] + before) if where == "next" else None
        self._extended += ((parsed, after),)
        return self.owner.staged()

    def remember(self, name: str, uri: str, *, digest: str = "") -> Any:
        """Stage a pointer to what the agent wants back; a `file:` is digested now. Takes hold with `done`."""
        self.check_open()
        ref = make_ref(name, uri, digest, self.owner.folder)
        others = tuple(known for known in self._remembered if known.name != name)
        check_memory(self._journal.state.memory, (*others, ref))
        self._remembered = (*others, ref)
        return self.owner.staged()

    def spend(self, usage: object = None, **fields: int) -> Any:
        """Stage what the beat cost, where no decision carries it. Takes hold with `done`."""
        self.check_open()
        self._spent = self._spent.plus(budget.usage_of(usage if usage is not None else fields))
        return self.owner.staged()

    @property
    def staged_spend(self) -> Usage:
        """The cost staged so far. No event has it before the beat is done."""
        return self._spent

    def stage(self, name: str) -> Any:
        """Stage the user's own word for how far the work is. Takes hold with `done`."""
        self.check_open()
        if not _is_text(name, NAME_CHARS_MAX):
            raise UsageError(f"a stage must be a short text, got {name!r:.60}", hint="`stage('reviewing')`")
        self._stage = name
        return self.owner.staged()

    def finish(self, result: object = None) -> Any:
        """Stage the end of the run: no beat follows this one. Takes hold with `done`."""
        self.check_open()
        self._over = True
        self._result = result
        return self.owner.staged()

    def steps_of_decide(self, name: str, fn: Callable[..., Any], *args: Any) -> Steps:
        """`decide` for callers that are steps themselves."""
        return self._decide(name, fn, args, {}, lazy=False)

    def steps_of_done(self, result: object) -> Steps:
        """`done` for callers that are steps themselves."""
        return self._done(result, None)

    def recorded(self, name: str, key: str) -> EffectRecord | None:
        """The record of an act under the caller's own key, from anywhere in the run."""
        return self._recorded(name, 0, key)

    def number_effect(self) -> int:
        """A number for an effect that an agent performs, and that is recorded by its own events."""
        self.check_open()
        n = self._new_effect()
        self._reached.add(n)
        return n

    # -- how it is done ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise where nothing can be added to the beat any more."""
        if self.closed or self._ending or self.owner.has_ended:
            raise BeatClosed(
                f"beat {self.number} of run {self._journal.run} is closed", hint="work in the next beat"
            )

    @contextlib.contextmanager
    def _turn(self, kind: str, name: str, own_key: str | None) -> Iterator[int]:
        """The occurrence of this call; two at once under one name cannot be told apart after a crash."""
        if not _is_text(name, NAME_CHARS_MAX):
            raise UsageError(f"a recorded call needs a short name, got {name!r:.60}", hint="use a short text")
        if own_key is not None and not _is_text(own_key, KEY_CHARS_MAX):
            raise UsageError(
                f"a key must be a short text, got {own_key!r:.60}",
                hint=f"use 1 to {KEY_CHARS_MAX} characters",
            )
        slot = (kind, name) if own_key is None else ("key", own_key)
        with self._journal.mutex:
            self.check_open()
            if slot in self._in_flight:
                raise AmbiguousOccurrence(
                    f"two calls of {slot[1]!r} run at once in beat {self.number}",
                    hint="give each a key= of its own" if kind == "act" else "give each another name",
                )
            occurrence = self._occurrence(slot) if own_key is None else 0
            self._in_flight.add(slot)
        try:
            yield occurrence
        finally:
            self._in_flight.discard(slot)

    def _occurrence(self, slot: tuple[str, str]) -> int:
        """Which call of this name it is. A call that left no record does not count; a call in doubt is the same call again."""
        kind, name = slot
        count, record = self._counts.get(slot, 0), self._journal.record
        doubtful = record.doubtful(name, count) if kind == "act" else None
        if doubtful is not None:
            return doubtful
        if count and not record.knows(kind, name, count):
            return count
        self._counts[slot] = count + 1
        return count + 1

    def _decide(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], lazy: bool
    ) -> Steps:
        with self._turn("decide", name, None) as occurrence:
            recorded = self._journal.record.decisions.get((name, occurrence))
            if recorded is not None:
                return self._journal.value(recorded.value)
            if not callable(fn):
                raise UsageError(
                    f"a decision needs a function, not {fn!r:.60}", hint="pass it uncalled: decide(name, fn)"
                )
            answer = yield Call(fn, args, kwargs)
            value, usage = (
                (answer.value, budget.usage_of(answer.usage))
                if isinstance(answer, Answer)
                else (answer, None)
            )
            payload = yield from self._journal.keep(value)
            faults.point("decide.answered")
            event = ev.Decided(
                at=self._journal.now(),
                beat=self.number,
                name=name,
                occurrence=occurrence,
                value=payload,
                usage=usage,
            )
            if lazy:
                self._journal.later(event)
            else:
                yield self._journal.in_beat(event)
                faults.point("decide.recorded")
            return self._journal.returned(value, payload)

    def _act(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str | None,
        probe: object,
        unknown: str | None,
        retry: int,
        timeout_s: float | None,
        within_s: int | None = None,
    ) -> Steps:
        with self._turn("act", name, key) as occurrence:
            self._check_options(fn, retry, timeout_s)
            check_call(fn, args, kwargs)
            looking = as_probe(probe)
            policy = recovery.policy_for(unknown, takes_key=takes_key(fn), has_probe=looking is not None)
            encoded = encode([args, kwargs], canonical=True)
            arguments = yield from self._journal.keep([args, kwargs], canonical=True)
            record = self._recorded(name, occurrence, key)
            here = record is not None and record.intent.beat == self.number
            n = record.intent.n if record is not None and here else self._new_effect()
            self._reached.add(n)
            our_key = key if key is not None else effect_key(self._journal.run, self.number, name, occurrence)
            asks = None
            if within_s is not None:
                beat = (
                    self.number if key is None else 0
                )  # an act under the caller's own key outlives its beat
                asks = questions.of_act(
                    name, args, kwargs, our_key, digest(encoded), arguments, beat, within_s
                )
            act = Act(
                beat=self.number, n=n, name=name, occurrence=occurrence, own_key=key is not None,
                key=our_key, ask=asks,
                fn=fn, args=args, kwargs=kwargs, encoded=arguments,
                digest=digest(encoded), policy=policy, probe=looking, retries=retry, timeout_s=timeout_s,
                key_ttl_s=self.owner.settings["key_ttl_s"],
            )  # fmt: skip
            return (yield from perform(self._journal, act, record))

    def _within_s(self, approve: bool | str) -> int:
        """How long an approval may take."""
        self._refuse_child()
        if not isinstance(approve, bool | str):
            raise UsageError(f"approve must be True or a time, got {approve!r:.40}", hint="like approve='8h'")
        given = approve if isinstance(approve, str) else self.owner.settings["approve_within"]
        return int(age(given).total_seconds())

    def _refuse_child(self) -> None:
        if self.owner.parent is not None:
            raise UsageError(
                f"run {self._journal.run} is a child run, and only a root run asks a person",
                hint="ask in a beat of the run around it, and pass the answer on",
            )

    def _ask(self, text: str, choices: tuple[str, ...], within_s: int) -> Steps:
        named = (
            f"ask {text}" if len(text) < NAME_CHARS_MAX - 40 else f"ask {text[:120]}… {digest(text.encode())}"
        )
        with self._turn("decide", scrub(named), None) as occurrence:
            name = scrub(named)
            recorded = self._journal.record.decisions.get((name, occurrence))
            if recorded is not None:
                return self._journal.value(recorded.value)
            bound = digest(encode([self.number, name, occurrence, list(choices)]))
            ask = Inquiry(
                kind="question", text=text, digest=bound, choices=choices, beat=self.number, within_s=within_s
            )
            question, reply = yield from questions.reply(self._journal, ask)
            event = ev.Decided(
                at=self._journal.now(), beat=self.number, name=name, occurrence=occurrence,
                value=(yield from self._journal.keep(reply)), question=question,
            )  # fmt: skip
            faults.point("ask.answered")
            yield self._journal.in_beat(event)
            faults.point("ask.used")
            return reply

    def _check_options(self, fn: object, retry: object, timeout_s: object) -> None:
        """Refuse, before an intent says that it was called, what cannot be called or waited for."""
        if not callable(fn):
            raise UsageError(
                f"an act needs a function, not {fn!r:.60}", hint="pass it uncalled: act(name, fn, …)"
            )
        if not self.owner.is_async and getattr(getattr(fn, "__code__", None), "co_flags", 0) & CO_COROUTINE:
            raise UsageError(f"{fn!r:.80} is async", hint="open the run with `async with` to await it")
        if not isinstance(retry, int) or retry < 0:
            raise UsageError(f"retry must be 0 or more, got {retry!r}", hint="give the number of retries")
        if timeout_s is None:
            return
        if not isinstance(timeout_s, int | float) or not 0 < timeout_s <= TIMEOUT_MAX_S:
            raise UsageError(
                f"timeout_s must be above 0 and at most {TIMEOUT_MAX_S:,}, got {timeout_s!r}",
                hint="give seconds",
            )

    def _new_effect(self) -> int:
        if len(self._journal.state.effects_open) >= st.EFFECTS_OPEN_MAX:
            raise UsageError(
                f"a beat keeps at most {st.EFFECTS_OPEN_MAX} effects open", hint="await some of them first"
            )
        return self._journal.record.next_n()

    def _recorded(self, name: str, occurrence: int, key: str | None) -> EffectRecord | None:
        """This call's earlier self: in this beat, or, under a key of the caller's own, anywhere in the run."""
        record = self._journal.record.effect(name, occurrence, key)
        if record is not None or key is None:
            return record
        found = self._journal.store.read(self._journal.run, after=0, key=key).events
        intents = [item for item in found if isinstance(item.event, ev.EffectIntended)]
        return self._read_back(intents[-1].seq, intents[-1].event) if intents else None

    def _read_back(self, seq: int, intent: ev.AnyEvent) -> EffectRecord:
        assert isinstance(intent, ev.EffectIntended), "only intents have a key"
        record = EffectRecord(intent)
        tags = ("effect_intended", "effect_confirmed", "effect_failed", "effect_in_doubt", "effect_settled")
        for item in self._journal.store.read(self._journal.run, after=seq, tags=tags).events:
            event = item.event
            if (getattr(event, "beat", 0), getattr(event, "n", 0)) == (intent.beat, intent.n):
                record.take(event)
        return record

    def _done(self, result: object, evidence: object) -> Steps:
        with self._journal.mutex:
            self.check_open()
            self._ending = True  # from here on nothing can be added, whichever task or thread asks
        try:
            event = yield from self._ended(result, evidence)
        except BaseException:
            self._ending = False
            raise
        # Closed before the event is on its way: who cancels this call does not cancel the commit.
        self.close()
        faults.point("beat.before_done")
        try:
            yield Append((event,))
        except NotEncodable:
            self.closed = self._ending = False  # nothing was written: the beat is still open
            open_beat.set(self)
            raise
        if event.extended:
            self.owner.plan_body.extend(event.extended)
        faults.point("beat.done")

    def _ended(self, result: object, evidence: object) -> Steps:
        """The event that ends the beat, if it may end."""
        journal, run = self._journal, self.owner
        if run.invariants:
            yield from self._check_invariants()
        spent = self._spent if self.metered is NO_USAGE else self._spent.plus(self.metered)
        spent = spent.plus(run.children.spent()) if run.children.may_exist else spent
        meter = run.meter if journal.standing.budget is not None else None
        extended = (yield from self._extensions()) if self._extended else ()
        cursor, over = self._next(extended)
        payload = NOTHING if result is None else (yield from journal.keep(result))
        shown = None if evidence is None else (yield from journal.keep(evidence))
        last = (yield from journal.keep(self._result)) if self._over else None
        save = (yield Block(run.save_beat)) if run.files is not None else ""
        event = ev.BeatDone(
            at=journal.now(), beat=self.number, step=self.step if self.path else "", cursor=cursor, over=over, result=payload,
            evidence=shown, extended=extended, finish=last,
            remembered=self._remembered, unreached=self._unreached() if journal.record.begun else (),
            save=save, stage=self._stage, session=self.session, spent=None if spent is NO_USAGE or spent == NO_USAGE else spent,
            reserved=None if meter is None else meter.reserved(spent), window=self.window,
        )  # fmt: skip
        if (
            journal.record.effects
            or self._in_flight
            or run.children.may_exist
            or journal.standing.effects_open
        ):
            self._refuse_open_acts()
        return event

    def close(self) -> None:
        """Nothing more can be added."""
        self.closed = True
        if open_beat.get() is self:
            open_beat.set(self._outer)

    def _refuse_open_acts(self) -> None:
        unsettled = self._journal.state.blocking
        if self._in_flight or unsettled:
            names = [f"{effect.id} {effect.name!r}" for effect in unsettled]
            names += [f"{name!r} (running)" for _, name in sorted(self._in_flight)]
            raise UnreachedEffect(
                f"beat {self.number} cannot be done: open or in doubt: {', '.join(names)}",
                hint=f"call the act again so that its policy settles it, or `outlast effects {self._journal.run}`",
            )
        for child in self.owner.children.heads():
            if child.status != "done":
                raise UnreachedEffect(
                    f"beat {self.number} cannot be done: child {child.task} is {child.status}",
                    hint="run the child to its end inside the beat",
                )

    def _extensions(self) -> Steps:
        """The staged steps, recorded."""
        extensions = []
        for steps, after in self._extended:
            payload = yield from self._journal.keep(steps)
            extensions.append(ev.Extension(payload, plan.count(steps), after))
        return tuple(extensions)

    def _check_invariants(self) -> Steps:
        invariants = self.owner.invariants
        timeout_s = self.owner.settings["check_timeout_s"]
        checks = yield Block(
            lambda: run_checks(invariants, self.owner.folder, timeout_s, mark=self.owner.supervision.mark)
        )
        failed = next((check for check in checks if check.exit_code != 0), None)
        if failed is not None:
            raise InvariantFailed(
                f"invariant {failed.command!r} failed with {failed.exit_code} at beat {self.number}: {failed.output[-400:]}",
                hint="the beat is not done; mend it and start again",
            )

    def _unreached(self) -> tuple[str, ...]:
        return tuple(
            record.id for n, record in self._journal.record.effects.items() if n not in self._reached
        )

    def _next(self, extended: tuple[ev.Extension, ...]) -> tuple[ev.Path, bool]:
        """Where the run stands after this beat, and whether that is the end."""
        steps = self.owner.plan_body.extended(extended) if extended or self.path else ()
        if not steps:
            return (), self._over
        following = plan.next_leaf(steps, self.path) if self.path else plan.first_leaf(steps)
        return following or (), self._over or following is None


def _is_text(value: object, chars_max: int) -> bool:
    return type(value) is str and 0 < len(value) <= chars_max and scrub(value) == value


def make_ref(name: str, uri: str, given_digest: str, folder: Path) -> MemoryRef:
    """A memory ref: a scheme is required, the payload is refused, a file is digested."""
    found = _SCHEME.match(uri) if _is_text(uri, 1024) else None
    scheme = found[1] if found else ""
    if not _is_text(name, 128) or not scheme or scheme == "data":
        raise UsageError(
            f"cannot remember {uri!r:.60} as {name!r:.40}: not a URI",
            hint="give a URI such as file:notes.md or https://…, at most 1,024 characters",
        )
    if scheme == "file" and not given_digest:
        given_digest = file_digest(folder, uri)
    return MemoryRef(name, uri, given_digest)


def file_digest(folder: Path, uri: str) -> str:
    """The digest of the file behind a `file:` URI; empty if the file is missing or too large."""
    try:
        data = file_behind(folder, uri, FILE_BYTES_MAX)
    except OSError:
        return ""
    return digest(data) if data is not None else ""


def file_behind(folder: Path, uri: str, bytes_max: int) -> bytes | None:
    """The content of the file behind a `file:` URI, None if it is too long. Raises OSError if there is no file.

    An agent chose it: a pipe is not waited for, and a device, which has no end, is no file.
    """
    from urllib.parse import unquote

    path = folder / unquote(uri.partition(":")[2].removeprefix("//")).replace("\0", "�")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        file_stat = os.fstat(fd)
        if not stat.S_ISREG(file_stat.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
        if file_stat.st_size > bytes_max:
            return None
        return file.read(file_stat.st_size)


def check_memory(memory: tuple[MemoryRef, ...], added: tuple[MemoryRef, ...]) -> None:
    """A run's memory is bounded in number and size, so that its head is."""
    named = {ref.name: ref for ref in (*memory, *added)}
    size = sum(len(encode(ref)) for ref in named.values())
    if len(named) > st.MEMORY_MAX or size > st.MEMORY_BYTES_MAX:
        raise MemoryFull(
            f"a run remembers at most {st.MEMORY_MAX} refs of {st.MEMORY_BYTES_MAX:,} bytes together",
            hint="write an index into a file and remember that one",
        )
