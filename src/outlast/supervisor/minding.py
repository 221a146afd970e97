"""One attempt of an agent that is known: how it is started, what it is doing, what it may do, and why it ended.

Its hooks and shims come in threads of their own, its transcript is read by the main thread; one lock orders them.
"""

import contextlib
import hashlib
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from typing import Any

import msgspec

from outlast import agents
from outlast.agents import (
    Adapter,
    AgentEvent,
    Answer,
    Ask,
    BatchEnd,
    Cut,
    Final,
    Hook,
    Response,
    Session,
    Text,
    ToolEnd,
    ToolStart,
    Usage,
    registry,
)
from outlast.core import events as ev
from outlast.core import values
from outlast.core.values import SessionMark
from outlast.effects.ops import Append, one
from outlast.errors import AgentStopped, OutlastError
from outlast.supervisor import cut, guards, prompts, stalling
from outlast.supervisor.calls import Calls, Told, Unrecorded
from outlast.supervisor.ending import WAITING
from outlast.supervisor.environment import SOCKET
from outlast.supervisor.holding import Holds
from outlast.supervisor.lanes import NAME, Lanes
from outlast.supervisor.launching import Launch
from outlast.supervisor.supervised import SupervisedRun
from outlast.supervisor.transcripts import Mirror, read_whole
from outlast.workspace.seam import raw

TAIL_BYTES = 1 << 18
SHIM = "shim-"
NOT_UNDERSTOOD = (
    "outlast could not read what this call is, so it was not made. Make it smaller, or in another way."
)
HOLD_S = 4.0  # less than a hook waits for an answer
LEAVING = (
    "outlast stops this run here, at the end of a beat, because a person asked for it. This call was not made; make it "
    "when you go on."
)
SAME = (
    f"outlast: you have made this very call {stalling.TOLD_AT} times with the same result, and nothing changed in between. "
    f"Do something else; after {stalling.STOPPED_AT} times the run is stopped."
)
_FRESH_CAUSES = ("context",)  # a session that has grown too long is not gone on with
# what the CLIs say of a session that they do not know; it would be the same at every further try
_NO_SESSION = re.compile(
    r"\bno (?:conversation|session|rollout)s?\b.{0,40}\bfound\b|\bsession\b.{0,80}\bnot (?:be )?found\b",
    re.IGNORECASE,
)


class Minder:
    """Minds one agent."""

    def __init__(
        self,
        run: SupervisedRun,
        launch: Launch,
        adapter: Adapter,
        folder: Path,
        variables: dict[str, str],
        on_beat: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._run, self._launch, self._adapter, self._say = run, launch, adapter, say
        self._folder = folder / "agent"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._before = _ended_before(run)
        self._mirror: Mirror | None = None
        self._lanes: Lanes | None = None
        self._on_beat = on_beat
        self._leaves = False  # a beat has ended since somebody asked for a stop
        self._closed = threading.Event()
        self.calls = Calls(
            run, self._keep, self._beat_ended, follows="transcript" in adapter.caps.intent, accept_unknown=launch.accept_unknown
        )  # fmt: skip
        # By its whole path: a login shell below the agent (codex starts such) has a PATH of its own.
        self._settle = f"{shlex.quote(str(self._folder / guards.SHIMS / 'outlast'))} settle {run.id}"
        self._outside = guards.Outside(variables)
        self._ask: Ask | None = None
        self._hooked = "hooks" in adapter.caps.intent  # whether a hook tells of each call before it is made
        self._announced: dict[str, ToolStart] = {}  # calls that the transcript tells of, and no hook yet
        self._stall = stalling.Stall(0 if launch.interactive else launch.stall)
        self._inputs: dict[str, tuple[str, str]] = {}  # calls under way, by what they are
        self._same = False  # the call that was just told of had been made often, with the same result
        self._looking = False  # a beat's end inside a look takes only what was looked at
        self._cwd = os.fsdecode(raw(launch.cwd))
        self.failure: BaseException | None = None  # what a hook met that must end the attempt
        cut.settle(run, self._outside.look)
        self._holds = Holds(run.journal, self._settle)

    def _keep(self) -> SessionMark | None:
        """The session as far as it is known now, durable."""
        if self._mirror is None:
            return None
        self._look()
        mirror, lanes = self._mirror, self._lanes
        mark = mirror.keep()
        if lanes is None or mirror.path is None:
            return mark
        lanes.look(mirror.path)
        more, charged = lanes.charge()
        if more is not None:
            self.calls.usage(Usage(more, "session", NAME))
        return msgspec.structs.replace(mark, lanes=charged)

    # -- starting --------------------------------------------------------------------------------------------------

    def start(
        self, words: tuple[str, ...], environment: dict[str, str], mark: str, cwd: Path
    ) -> agents.Launch:
        """How the agent is started: for the first time, in its session, or in a fresh one that is told everything."""
        hook = guards.hook_words(environment[SOCKET], mark, self._adapter.name)
        environment["PATH"] = guards.with_shims(
            self._folder / guards.SHIMS, environment.get("PATH", os.defpath), self._outside.known
        )
        ask = Ask(
            words=words, environment=environment, cwd=cwd, folder=self._folder, hook=hook,
            interactive=self._launch.interactive,
        )  # fmt: skip
        self._ask = ask
        cuts = cut.cuts(self._run, self._settle)
        launch = self._resumed(ask, cuts) or self._fresh(ask, cuts)
        if launch.session:
            self._know(Session(launch.session))
        why = self._adapter.blind(ask)
        if why:
            self._hooked = False
            self._say(f"calls are seen by shims and afterwards only: {why}")
        return launch

    def _resumed(self, ask: Ask, cuts: list[Cut]) -> agents.Launch | None:
        """In the session that the last attempt left, if there is one and it can be gone on with."""
        state, adapter = self._run.state, self._adapter
        known = state.session
        if known is None or known.agent != adapter.name or not adapter.caps.resume:
            return None
        cause, evidence = self._before
        if cause in _FRESH_CAUSES or _NO_SESSION.search(evidence):
            return None
        mirror = Mirror(self._folder, adapter.name, known.session)
        path = adapter.transcript(known.session, ask) or (Path(known.path) if known.path else None)
        if path is None and "transcript" in adapter.caps.intent:
            return None  # it was killed before its session came to be
        self._mirror, self._lanes = mirror, Lanes(adapter, self._folder, known.lanes)
        if path is not None:
            left = self._rebuild(mirror, path, cuts)
            if left is None:  # the session never came to be
                self._mirror = self._lanes = None
                return None
            cuts = left
        prompt = prompts.resumed(state, self._run.contract, cause, evidence, cuts, cut.settled(self._run))
        if ask.interactive and (adapter.caps.mends or not cuts):
            prompt = ""  # a person speaks first, and what was cut off is told by the transcript
        return adapter.launch(msgspec.structs.replace(ask, session=mirror.mark, prompt=prompt))

    def _rebuild(self, mirror: Mirror, path: Path, cuts: list[Cut]) -> list[Cut] | None:
        """Make the transcript whole and true; the calls whose result it does not hold all the same."""
        data, wrong = mirror.reconcile(path)
        if not data:
            return None
        if wrong:
            self._say(f"the agent's transcript was made whole from our copy: {wrong}")
        started, ended = self._read_calls(data)
        known = {each.id for each in cuts}
        lost = cut.missing(self._run, cuts, ended) + [
            cut.never_started(start)
            for call, start in started.items()
            if call not in ended and call not in known
        ]
        self._take_surplus(mirror, data)
        inside = [each for each in lost if not each.id.startswith(SHIM)]
        if not self._adapter.caps.mends:
            mirror.rebuild(path, data)
            return lost
        mirror.rebuild(path, self._adapter.mend(data, inside) if inside else data)
        self.calls.end_now()  # what was cut off in it is told; the next response is another beat
        return lost

    def _take_surplus(self, mirror: Mirror, data: bytes) -> None:
        """What was written since the last save point: its cost counts, be it of the beat in flight or of a person's turns."""
        mark = self._run.state.session
        start = mark.length if mark is not None and mark.session == mirror.session else 0
        for event in _usage(self._adapter, data[start:]):
            self.calls.usage(event)

    def _take_over(self, known: SessionMark, ask: Ask) -> None:
        """Another agent worked before this one: what it spent since its last save point counts, once."""
        other = registry.by_name(known.agent)
        if other is None:
            return
        path = Path(known.path) if known.path else other.transcript(known.session, ask)
        if path is None:
            return
        data, _ = Mirror(self._folder, known.agent, known.session).reconcile(path)
        spent = {event.key: event.values for event in _usage(other, data[known.length :])}
        if not spent:
            return
        at, usage = self._run.journal.now(), reduce(values.Usage.plus, spent.values())
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        mark = SessionMark(known.agent, known.session, str(path), len(data), digest)
        settled = ev.SpendSettled(
            at=at, key=f"{known.agent} {known.session}", usage=usage, source="transcript"
        )
        self._run.drive(one(Append((settled, ev.SessionKnown(at=at, session=mark)))))

    def _read_calls(self, data: bytes) -> tuple[dict[str, ToolStart], set[str]]:
        started: dict[str, ToolStart] = {}
        ended: set[str] = set()
        for line in data.splitlines():
            for event in self._adapter.parse(line):
                if isinstance(event, ToolStart):
                    started[event.id] = event
                elif isinstance(event, ToolEnd):
                    ended.add(event.id)
        return started, ended

    def _fresh(self, ask: Ask, cuts: list[Cut]) -> agents.Launch:
        state = self._run.state
        if state.session is not None and state.session.agent != self._adapter.name:
            self._take_over(state.session, ask)
        prompt = ""
        if state.beats or cuts:
            asked = self._adapter.prompt(ask.words)
            prompt = prompts.fresh(self._run.context(), asked, cuts, cut.settled(self._run))
        launch = self._adapter.launch(msgspec.structs.replace(ask, prompt=prompt))
        assert launch is not None, "an agent can always be started anew"
        return launch

    # -- what it does ----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what the agent wrote since the last look, and keep a copy of it."""
        with self.calls.lock:
            self._guarded(self._look)
            if self._mirror is not None:
                self._guarded(self._mirror.keep)

    def _look(self) -> None:
        mirror = self._mirror
        if mirror is None or self._ask is None or self._looking:
            return
        self._looking = True
        try:
            self._read(mirror, self._ask)
        finally:
            self._looking = False

    def _read(self, mirror: Mirror, ask: Ask) -> None:
        if mirror.path is None or not mirror.path.exists():
            path = self._adapter.transcript(mirror.session, ask)
            if path is None:
                return
            mirror.follow(path)
        for line in mirror.news():
            for event in self._adapter.parse(line):
                self._take(event)
                if isinstance(event, ToolEnd):
                    self.calls.written(event.id)

    def _take(self, event: AgentEvent) -> None:
        match event:
            case Session():
                self._know(event)
            case Response():
                self.calls.response(event)
            case Text():
                self.calls.text(event)
            case ToolStart():
                if self._hooked:
                    self._announced[event.id] = event
                elif not self.calls.knows(event.id):
                    self.calls.intend(event, self._told(event, self._cwd))
            case ToolEnd():
                self._missed(event)
                self.calls.outcome(event)
                self._count(event)
            case BatchEnd():
                if not event.lane:
                    self.calls.end_batch()
            case Usage():
                self.calls.usage(event)
            case _:
                pass

    def _count(self, end: ToolEnd) -> None:
        """Whether the agent goes round in circles: told first, stopped then."""
        call = self._inputs.pop(end.id, None)
        if call is None:
            return
        count = self._stall.call(call, values.digest(end.output.encode(errors="replace")))
        self._same = count == stalling.TOLD_AT
        if count >= stalling.STOPPED_AT:
            self._stand_still(f"{call[0]} was called {count} times with the same result")

    def _stand_still(self, why: str) -> None:
        self._fail(AgentStopped(f"no progress: {why}", cause="stall"))

    def _missed(self, end: ToolEnd) -> None:
        """A call that ended and that no hook told of before: it is on record now, and hooks are not counted on any more."""
        start = self._announced.pop(end.id, None)
        if start is None or self.calls.knows(end.id):
            return
        self.calls.intend(start, self._told(start, self._cwd))
        if not start.lane and self._hooked:
            self._hooked = False
            self._say(f"{self._adapter.name} does not run its hooks: calls are seen by shims, and afterwards")

    def _know(self, told: Session) -> None:
        """The session's id and transcript are on record as soon as they are known."""
        mirror = self._mirror
        if mirror is None or mirror.session != told.id:
            mirror = self._mirror = Mirror(self._folder, self._adapter.name, told.id)
            self._lanes = Lanes(self._adapter, self._folder, None)
            self._record(SessionMark(self._adapter.name, told.id, told.transcript))
        if told.transcript and mirror.path is None:
            mirror.follow(Path(told.transcript))

    def _record(self, mark: SessionMark) -> None:
        event = ev.SessionKnown(at=self._run.journal.now(), session=mark)
        self._run.drive(one(Append((event,))))

    # -- what it may do --------------------------------------------------------------------------------------------

    def hook(self, data: bytes) -> tuple[bytes, int]:
        """A hook of the agent: what it tells is put on record before it is answered."""
        hook = self._adapter.hook(data)
        if not _is_understood(hook, data):
            return self._adapter.answer(data, Answer(False, NOT_UNDERSTOOD))
        answer = Answer()
        cwd = _cwd(data) or self._cwd
        with self.calls.lock:
            self._guarded(self._look)
            if hook.kind == "pre":  # the beat before is over, whatever the transcript tells yet
                self._guarded(self.calls.end_due)
            is_held = hook.kind == "pre" and self._leaves
            for event in () if is_held else hook.events:
                if isinstance(event, ToolStart) and hook.kind == "pre":
                    answer = self._about_to(event, cwd)
                else:
                    self._guarded(partial(self._take, event))
            if self._same:
                self._same, answer = False, Answer(reason=SAME)
        if is_held:  # its answer is not waited for: the agent is being stopped
            self._closed.wait(HOLD_S)
            answer = Answer(False, LEAVING)
        return self._adapter.answer(data, answer)

    def _about_to(self, start: ToolStart, cwd: str) -> Answer:
        """Whether a call may go. One that reaches outside goes only when its intent is durable."""
        self._announced.pop(start.id, None)
        self._inputs[start.id] = (start.name, values.digest(bytes(start.input)))
        return self._judged(start, self._told(start, cwd))

    def _judged(self, start: ToolStart, told: Told) -> Answer:
        try:
            if told.outward:
                held = self._holds.judge([each.signature for each in told.outward])
                if held is not None:
                    if held.is_known:
                        told = msgspec.structs.replace(told, answered=held.effect)
                        self._holds.answered(held.effect)
                    self.calls.refuse(start, told, held.text)
                    return Answer(False, held.text)
                told = self._outside.with_facts(told)
            self.calls.intend(start, told)
        except Unrecorded as error:
            return Answer(False, f"outlast could not put this call on record, so it was not made: {error}")
        except Exception as error:
            self._fail(error)
            if told.outward:
                return Answer(
                    False, f"outlast could not put this call on record, so it was not made: {error}"
                )
        return Answer()

    def _told(self, start: ToolStart, cwd: str) -> Told:
        given = _decoded(start.input)
        return Told(start.name, given, start.lane, cwd, self._outside.of_tool(start.name, given, cwd))

    def _guarded(self, what: Callable[[], Any]) -> None:
        """What goes wrong here must not cost the agent its answer; it ends the attempt when the main thread sees it."""
        try:
            what()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    def shim(self, words: tuple[str, ...], cwd: str, perform: Callable[[], int]) -> tuple[str, int]:
        """A program below the agent that may reach outside: why it is not run, or its exit code when it was."""
        outward = self._outside.of_words(words, cwd)
        if not outward:
            return "", perform()
        signatures = [each.signature for each in outward]
        with self.calls.lock:
            call = self.calls.covers(signatures)  # the one that it belongs to may be on record
            if not call:
                call = f"{SHIM}{os.urandom(8).hex()}"
                start = ToolStart(call, words[0], msgspec.Raw(b"null"))
                answer = self._judged(start, Told(words[0], list(words), "", cwd, outward))
                if not answer.allowed:
                    return answer.reason, 0
                self.calls.covers(signatures)
        code = perform()
        self.calls.shimmed(call, code)
        if call.startswith(SHIM):
            self.calls.outcome(ToolEnd(call, code == 0, f"exit code {code}"))
        return "", code

    # -- its end ---------------------------------------------------------------------------------------------------

    def rests(self) -> bool:
        """Whether it can be stopped between two beats, which somebody asked for. After the next one's end no call begins."""
        with self.calls.lock:
            return self._leaves or self.calls.rests

    def _beat_ended(self) -> None:
        """Looked up here, for the main thread may learn of a request when the next call has begun."""
        self._leaves = self._leaves or self._run.asked_to_stop() in WAITING
        kept, save = self._run.files, self._run.state.last_save
        if self._stall.beat(kept.tree_of(save) if kept is not None and save else ""):
            self._stand_still(f"{self._launch.stall} beats without anything new (--stall)")
        self._on_beat()

    def judge(self, exit_code: int, tail: bytes) -> Final:
        """Why it ended; its last beat is done as far as it told."""
        self.look()
        path = self._mirror.path if self._mirror is not None else None
        transcript = read_whole(path)[-TAIL_BYTES:] if path is not None else b""
        return self._adapter.classify(exit_code, tail, transcript)

    def close(self) -> None:
        """Keep what was read of the transcript: whoever goes on finds it."""
        self._closed.set()
        with contextlib.suppress(OutlastError, OSError):
            if self._mirror is not None:
                self.look()
                self._mirror.keep()


def _ended_before(run: SupervisedRun) -> tuple[str, str]:
    """How the last attempt ended: cause and evidence, empty at the first."""
    page = run.journal.store.read(run.id, after=0, limit=1, tags=("attempt_ended",), newest=True).events
    event = page[0].event if page else None
    return (event.cause, event.evidence) if isinstance(event, ev.AttemptEnded) else ("", "")


def _usage(adapter: Adapter, data: bytes) -> Iterator[Usage]:
    for line in data.splitlines():
        for event in adapter.parse(line):
            if isinstance(event, Usage):
                yield event


class _Named(msgspec.Struct, frozen=True):
    hook_event_name: str


def _is_understood(hook: Hook, data: bytes) -> bool:
    """Whether it is certain that no call is about to happen unseen: one that cannot be read may reach outside."""
    if hook.kind == "pre" or not hook.events:
        starts = [event for event in hook.events if isinstance(event, ToolStart)]
        if starts:
            return all(start.id for start in starts)
        try:
            return msgspec.json.decode(data, type=_Named).hook_event_name not in (
                "",
                "PreToolUse",
                "BeforeTool",
            )
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
    return True


def _cwd(data: bytes) -> str:
    try:
        cwd = msgspec.json.decode(data).get("cwd", "")
    except (msgspec.DecodeError, AttributeError, RecursionError, UnicodeDecodeError):
        return ""
    return cwd if isinstance(cwd, str) and os.path.isabs(cwd) else ""


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return bytes(raw).decode(errors="replace")
