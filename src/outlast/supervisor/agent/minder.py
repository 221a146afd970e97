"""One attempt of an agent that is known: how it is started, what it is doing, what it may do, and why it ended.

Its hooks and shims come in threads of their own, its transcript is read by the main thread; one lock orders them.
"""

import contextlib
import hashlib
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    Response,
    Session,
    TaskEnd,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
    registry,
)
from outlast.agents.common import cli_errors
from outlast.core import events as ev, values
from outlast.core.values import SessionMark
from outlast.errors import AgentStopped, OutlastError
from outlast.runs import inbox
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.runs.inbox import WAITING
from outlast.supervisor.agent import (
    background_calls,
    hook_input,
    interrupted_calls,
    outside,
    prompts,
    reconcile,
    sessions,
    stall,
)
from outlast.supervisor.agent.background_calls import TaskCalls
from outlast.supervisor.agent.calls import SHIM, CallRecord, Unrecorded
from outlast.supervisor.agent.repeated_calls import Holds
from outlast.supervisor.agent.subagent_costs import NAME, Lanes
from outlast.supervisor.agent.transcripts import Mirror, read_whole
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.budget.meter import Meter
from outlast.supervisor.launch.environment import SOCKET
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.output.streams import piped
from outlast.supervisor.socket.wire import Shim
from outlast.workspace.types import raw

if TYPE_CHECKING:
    from outlast.supervisor.budget.gateway import Gate

TAIL_BYTES = 1 << 18
NOT_UNDERSTOOD = (
    "outlast could not read what this call is, so it was not made. Make it smaller, or in another way."
)
SHIM_WAITS_NS = 4_500_000_000  # less than a shim waits: what is found later was refused there
HOLD_S = 4.0  # less than a hook waits for an answer
WAKING_S = 30.0  # after so long a sleep of ours, what hooks had to say meanwhile is caught up with
SLEPT = "its supervisor did not answer in time, so its hook denied it"
LEAVING = (
    "outlast stops this run here, at the end of a beat, because a person asked for it. This call was not made; make it "
    "when you go on."
)
ENDING = "outlast stops this run now. This call was not made."
SAME = (
    f"outlast: you have made this very call {stall.TOLD_AT} times with the same result, and nothing changed in between. "
    f"Do something else; after {stall.STOPPED_AT} times the run is stopped."
)


class Minder:
    """Minds one agent."""

    def __init__(
        self,
        run: RunEngine,
        launch: Launch,
        adapter: Adapter,
        folder: Path,
        variables: dict[str, str],
        on_beat: Callable[[], None],
        say: Callable[[str], None],
        budget: BudgetWatch,
    ) -> None:
        self._run, self._launch, self._adapter, self._say = run, launch, adapter, say
        self._folder = folder / "agent"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._before = sessions.last_ending(run.journal)
        self._mirror: Mirror | None = None
        self._lanes: Lanes | None = None
        self._on_beat = on_beat
        self._leaves = False  # a beat has ended since somebody asked for a stop
        self._waits = False  # the agent waits for the answer to a hook, which it will not get
        self.meter = Meter()
        self._spent_before: set[str] = set()
        self._aside: set[str] = set()  # what is counted with the open beat
        self.gate: Gate | None = (
            None  # what goes through it is counted there, and not once more from the transcript
        )
        self._budget = budget
        self._closed = threading.Event()
        self.calls = TaskCalls(
            run, self._keep, self._beat_ended, follows="transcript" in adapter.caps.intent, accept_unknown=launch.accept_unknown
        )  # fmt: skip
        self._settle = f"{shlex.quote(str(self._folder / outside.SHIMS / 'outlast'))} settle {run.id}"
        self._outside = outside.OutwardCalls(variables)
        self._ask: Ask | None = None
        self._hooked = "hooks" in adapter.caps.intent  # whether a hook tells of each call before it is made
        self._announced: dict[str, ToolStart] = {}  # calls that the transcript tells of, and no hook yet
        self._stall = stall.Stall(0 if launch.interactive else launch.stall)
        self._inputs: dict[str, tuple[str, str]] = {}  # calls under way, by what they are
        self.begins_anew = False  # whether it is asked what it was asked at first, as that was typed or piped
        self._answered = False  # whether its model has said anything in this attempt
        self._same = False  # the call that was just told of had been made often, with the same result
        self._looked_s = time.monotonic()
        self._woke_s = (
            -WAKING_S
        )  # when it was noticed that nobody had looked for long: we were stopped, or held up
        self._looking = False  # a beat's end inside a look takes only what was looked at
        self._cwd = os.fsdecode(raw(launch.cwd))
        self.failure: BaseException | None = None  # what a hook met that must end the attempt
        left = background_calls.left(run)
        interrupted_calls.settle(run, self._outside.look)
        self._left = background_calls.cuts(
            run, left, self._settle
        )  # what ran in the background, and was cut off with its attempt
        self._holds = Holds(run.journal, self._settle)

    def _keep(self) -> SessionMark | None:
        """The session as far as it is known now, durable."""
        if self._mirror is None:
            return None
        self._look()
        mirror, lanes = self._mirror, self._lanes
        mark = msgspec.structs.replace(mirror.keep(), model=values.clip(self.meter.used, 100))
        if lanes is None or mirror.path is None:
            return mark
        mirror.keep_beside(self._adapter.sidecars(mirror.path))
        lanes.look(mirror.path)
        more, charged = lanes.charge()
        if more is not None and self.gate is None:
            self.calls.usage(NAME, more)
        return msgspec.structs.replace(mark, lanes=charged)

    # -- starting --------------------------------------------------------------------------------------------------

    def start(
        self, words: tuple[str, ...], environment: dict[str, str], mark: str, cwd: Path
    ) -> agents.AgentCommand:
        """How the agent is started: for the first time, in its session, or in a fresh one that is told everything."""
        hook = outside.hook_words(environment[SOCKET], mark, self._adapter.name)
        environment |= outside.with_shims(
            self._folder / outside.SHIMS, environment, self._outside.known, environment[SOCKET], mark
        )
        ask = Ask(
            words=words, environment=environment, cwd=cwd, folder=self._folder, hook=hook,
            interactive=self._launch.interactive,
        )  # fmt: skip
        self.meter.billing = self._adapter.billing(ask)
        self.meter.model = self._adapter.model(words, environment, cwd)
        self._spent_before = {event.key for event in self._adapter.spent(ask)}
        if self.gate is not None:
            ask = self.gate.routed(self._adapter, ask)
        self._ask = ask
        cuts = interrupted_calls.cuts(self._run, self._settle)
        launch = self._resumed(ask, cuts) or self._fresh(ask, cuts)
        if launch.session:
            self._know(Session(launch.session))
        why = self._adapter.blind(ask)
        if why:
            self._hooked = False
            self._say(f"calls are seen by shims and afterwards only: {why}")
        self._budget.can_tell = self._hooked or self.gate is not None
        self._budget.by_gateway = self.gate is not None and not (self._hooked and self._adapter.caps.tells)
        if why := self._adapter.unkept(ask):
            uncounted = "" if self.gate is not None else "no tokens are counted, and "
            self._say(f"{why}: {uncounted}after a kill it begins anew")
        return launch

    def _resumed(self, ask: Ask, cuts: list[Cut]) -> agents.AgentCommand | None:
        """In the session that the last attempt left, if there is one and it can be gone on with."""
        state, adapter = self._run.state, self._adapter
        known = sessions.to_go_on_with(self._run.journal) if adapter.caps.resume else None
        if known is None or state.session is None or known.agent != adapter.name:
            return None
        cause, evidence = self._before
        mirror = Mirror(self._folder, adapter.name, known.session)
        path = adapter.transcript(known.session, ask) or (Path(known.path) if known.path else None)
        if sessions.is_new_here(self._run.journal):
            path = adapter.place(known.session, ask) or path
        if path is None and "transcript" in adapter.caps.intent:
            return None  # it was killed before its session came to be
        self._mirror, self._lanes = mirror, Lanes(adapter, self._folder, known.lanes, self.meter.cost, path)
        if path is not None:
            left = self._rebuild(mirror, path, known, cuts)
            if left is None:  # the session never came to be, or nothing of it can be trusted
                self._mirror = self._lanes = None
                return None
            cuts = left
        now = self._run.state.session  # what follows is the agent's own doing
        self._record(now if now is not None and now.session == known.session else known)
        prompt = prompts.resumed(
            self._run.contract,
            cause,
            evidence,
            [*cuts, *self._left],
            interrupted_calls.settled(self._run),
            self._budget.wrap_up(),
        )
        if ask.interactive and (adapter.caps.mends or not cuts) and not self._left:
            prompt = ""  # a person speaks first, and what was cut off is told by the transcript
        return adapter.launch(msgspec.structs.replace(ask, session=mirror.mark, prompt=prompt))

    def _rebuild(self, mirror: Mirror, path: Path, mark: SessionMark, cuts: list[Cut]) -> list[Cut] | None:
        """Make the transcript whole and true; the calls whose result it does not hold all the same."""
        data, wrong = mirror.reconcile(path, mark)
        if wrong:
            how = "was made whole from our copy" if data else "cannot be gone on with"
            self._say(f"the agent's transcript {how}: {wrong}")
        if not data:
            return None
        started, ended = self._read_calls(data)
        known = {each.id for each in cuts}
        before, alone = reconcile.apart(self._run, mark.session, started, ended | known, is_whole=not wrong)
        put, others = reconcile.unrecorded(self.calls, alone, partial(self._told, cwd=self._cwd))
        if put:
            interrupted_calls.settle(self._run, self._outside.look)
            self._holds = Holds(self._run.journal, self._settle)
            cuts = reconcile.with_words(interrupted_calls.cuts(self._run, self._settle), put)
        lost = interrupted_calls.missing(self._run, cuts, ended) + others
        self._take_surplus(mark, data)
        inside = [each for each in lost if not each.id.startswith(SHIM)]
        if self._adapter.caps.mends:
            data = self._adapter.mend(data, [*before, *inside]) if before or inside else data
        mirror.rebuild(path, data)
        mirror.restore_beside(self._adapter.sidecars(path))
        if self._adapter.caps.mends:
            self.calls.end_now()  # what was cut off in it is told; the next response is another beat
        return lost

    def _take_surplus(self, mark: SessionMark, data: bytes) -> None:
        """What was written since the last save point: its cost counts, be it of the beat in flight or of a person's turns."""
        for event in _usage(self._adapter, data[mark.length :]):
            self.calls.usage(event.key, self.meter.cost(event))
        self.calls.paid(self._run.state.open_spent)

    def _take_over(self, known: SessionMark, ask: Ask) -> None:
        """Another agent worked before this one: what it spent since its last save point counts, once."""
        other = registry.by_name(known.agent)
        if other is None:
            return
        place = other.transcript(known.session, ask) or other.place(known.session, ask)
        path = Path(known.path) if known.path else place
        if path is None:
            return
        data, _ = Mirror(self._folder, known.agent, known.session).reconcile(path, known)
        meter = Meter(other.billing(ask))
        spent = {event.key: meter.cost(event) for event in _usage(other, data[known.length :])}
        at, usage = self._run.journal.now(), reduce(values.Usage.plus, spent.values(), values.Usage())
        usage = usage.minus(self._run.state.open_spent)  # what the end of its attempt is on record with
        if not usage.tokens:
            return
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        mark = SessionMark(known.agent, known.session, str(path), len(data), digest)
        settled = ev.SpendSettled(
            at=at, key=f"{known.agent} {known.session}", usage=usage, source="transcript"
        )
        self._run.drive(append(settled, ev.SessionKnown(at=at, session=mark)))

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

    def _fresh(self, ask: Ask, cuts: list[Cut]) -> agents.AgentCommand:
        state = self._run.state
        if state.session is not None and state.session.agent != self._adapter.name:
            self._take_over(state.session, ask)
        prompt = ""
        if state.beats or cuts:
            asked = self._adapter.prompt(ask.words) or piped(self._folder.parent)
            prompt = prompts.fresh(
                self._run.context(),
                asked,
                [*cuts, *self._left],
                interrupted_calls.settled(self._run),
                self._budget.wrap_up(),
            )
        self.begins_anew = not prompt
        launch = self._adapter.launch(msgspec.structs.replace(ask, prompt=prompt))
        assert launch is not None, "an agent can always be started anew"
        return launch

    # -- what it does ----------------------------------------------------------------------------------------------

    def _count_aside(self) -> None:
        """What a file beside the transcript tells of this attempt's spending."""
        if self._ask is not None and self.gate is None:
            for event in self._adapter.spent(self._ask):
                if event.key not in self._spent_before:
                    self._aside.add(event.key)
                    self.calls.usage(event.key, self.meter.cost(event))

    def look(self) -> None:
        """Read what the agent wrote since the last look, and keep a copy of it."""
        with self.calls.lock:
            self._guarded(self._look)
            self._guarded(self._count_aside)
            if self._mirror is not None:
                self._guarded(self._mirror.keep)

    def _look(self) -> None:
        before_s, self._looked_s = self._looked_s, time.monotonic()
        if self._looked_s - before_s > HOLD_S:
            self._woke_s = self._looked_s
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
                self._answered = True
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
                if not event.ok and (ours := hook_input.OURS.search(event.output)):
                    self.calls.not_done(event.id, ours[0])
                self.calls.outcome(event)
                self._count(event)
            case TaskEnd():
                self.calls.task_ended(event)
            case BatchEnd():
                if not event.lane:
                    self.calls.end_batch()
            case UsageReport() if self.gate is None:
                self.calls.usage(event.key, self.meter.cost(event))
            case values.Window():
                self.calls.window(event)
            case _:
                pass

    def _count(self, end: ToolEnd) -> None:
        """Whether the agent goes round in circles: told first, stopped then."""
        call = self._inputs.pop(end.id, None)
        if call is None:
            return
        count = self._stall.call(call, values.digest(end.output.encode(errors="replace")))
        self._same = count == stall.TOLD_AT
        if count >= stall.STOPPED_AT:
            self._stand_still(f"{call[0]} was called {count} times with the same result")

    def _stand_still(self, why: str) -> None:
        self._fail(AgentStopped(f"no progress: {why}", cause="stall"))

    def _missed(self, end: ToolEnd) -> None:
        """A call that ended and that no hook told of before: it is on record now, and hooks are not counted on any more."""
        start = self._announced.pop(end.id, None)
        if start is None or self.calls.knows(end.id):
            return
        if not end.ok and (
            ours := hook_input.OURS.search(end.output)
        ):  # its hook ran, and had nobody to ask: it did not happen
            self.calls.refuse(start, self._told(start, self._cwd), ours[0])
            return
        self.calls.intend(start, self._told(start, self._cwd))
        if not start.lane and self._hooked and time.monotonic() - self._woke_s > WAKING_S:
            self._hooked = False
            self._say(f"{self._adapter.name} does not run its hooks: calls are seen by shims, and afterwards")

    def _know(self, told: Session) -> None:
        """The session's id and transcript are on record as soon as they are known."""
        mirror = self._mirror
        if mirror is None or mirror.session != told.id:
            mirror = self._mirror = Mirror(self._folder, self._adapter.name, told.id)
            self._lanes = Lanes(self._adapter, self._folder, None, self.meter.cost)
            self._record(SessionMark(self._adapter.name, told.id, told.transcript))
        if told.transcript and mirror.path is None:
            mirror.follow(Path(told.transcript))

    def _record(self, mark: SessionMark) -> None:
        event = ev.SessionKnown(at=self._run.journal.now(), session=mark)
        self._run.drive(append(event))

    # -- what it may do --------------------------------------------------------------------------------------------

    def hook(self, data: bytes, is_there: Callable[[], bool] = lambda: True) -> tuple[bytes, int]:
        """A hook of the agent: what it tells is put on record before it is answered. One that left has judged by itself."""
        hook = self._adapter.hook(data)
        if not hook_input.is_understood(hook, data):
            return self._adapter.answer(data, Answer(False, NOT_UNDERSTOOD))
        answer = Answer()
        cwd = hook_input.cwd_of(data) or self._cwd
        with self.calls.lock:
            self._guarded(self._look)
            if hook.kind == "pre":  # the beat before is over, whatever the transcript tells yet
                self._guarded(self.calls.end_due)
            is_held = hook.kind == "pre" and (self._leaves or self.failure is not None)
            self._waits = is_held
            for event in () if is_held else hook.events:
                if isinstance(event, ToolStart) and hook.kind == "pre":
                    answer = self._about_to(event, cwd) if is_there() else self._too_late(event, cwd)
                else:
                    self._guarded(partial(self._take, event))
            answer = self._with_words(answer, hook.kind)
        if is_held:  # its answer is not waited for: the agent is being stopped
            self._closed.wait(HOLD_S)
            answer = Answer(False, LEAVING if self.failure is None else ENDING)
        return self._adapter.answer(data, answer)

    def _with_words(self, answer: Answer, kind: str) -> Answer:
        """What the agent has to be told rides on the answer to a call that has ended."""
        said = [SAME] if self._same else []
        self._same = False
        if kind == "post" and self._adapter.caps.tells and not self._budget.by_gateway:
            said += filter(None, [self._budget.words()])
        return Answer(reason="\n".join(said)) if said else answer

    def _about_to(self, start: ToolStart, cwd: str) -> Answer:
        """Whether a call may go. One that reaches outside goes only when its intent is durable."""
        self._announced.pop(start.id, None)
        told = self._told(start, cwd)
        can_only_deny = not self._adapter.caps.tells and not self._budget.by_gateway
        if can_only_deny and (words := self._budget.word()):  # there is no other way to tell it
            words = f"{words} This call was not made; make it again if your ending needs it."
            self._guarded(partial(self.calls.refuse, start, told, words))
            return Answer(False, words)
        self._inputs[start.id] = (start.name, values.digest(bytes(start.input)))
        return self._judged(start, told)

    def _too_late(self, start: ToolStart, cwd: str) -> Answer:
        """Its hook waits no more, and did what it does alone: what reaches outside is denied, what stays in here passed."""
        self._announced.pop(start.id, None)
        told = self._told(start, cwd)
        if told.outward:
            self._guarded(partial(self.calls.refuse, start, told, SLEPT))
        elif not self.calls.knows(start.id):
            self._guarded(partial(self.calls.intend, start, told))
        return Answer()

    def _judged(self, start: ToolStart, told: CallRecord) -> Answer:
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

    def _told(self, start: ToolStart, cwd: str) -> CallRecord:
        given = hook_input.decoded(start.input)
        return CallRecord(start.name, given, start.lane, cwd, self._outside.of_tool(start.name, given, cwd))

    def _guarded(self, what: Callable[[], Any]) -> None:
        """What goes wrong here must not cost the agent its answer; it ends the attempt when the main thread sees it."""
        try:
            what()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    def shim(self, shim: Shim, perform: Callable[[], int]) -> tuple[str, int]:
        """A program below the agent that may reach outside: why it is not run, or its exit code when it was."""
        outward, words = self._outside.of_shim(shim), shim.words
        if not outward:
            return "", perform()
        signatures = [each.signature for each in outward]
        with self.calls.lock:
            if shim.sent_ns and time.monotonic_ns() - shim.sent_ns > SHIM_WAITS_NS:
                return "outlast was asked too long ago; nobody waits for the answer any more", 0
            call = self.calls.covers(signatures)  # the one that it belongs to may be on record
            if not call:
                call = f"{SHIM}{os.urandom(8).hex()}"
                start = ToolStart(call, words[0], msgspec.Raw(b"null"))
                below = self.calls.enclosing()
                answer = self._judged(
                    start, CallRecord(words[0], list(words), "", shim.cwd, outward, below=below)
                )
                if not answer.allowed:
                    return answer.reason, 0
        try:
            code = perform()
        except BaseException:
            self._guarded(partial(self.calls.shim_gone, call))
            raise
        self.calls.shimmed(call, code, sure=all(each.sure for each in outward))
        return "", code

    # -- its end ---------------------------------------------------------------------------------------------------

    def rests(self) -> bool:
        """Whether it can be stopped between two beats, which somebody asked for. After the next one's end no call begins."""
        with self.calls.lock:
            return self._leaves or self.calls.rests

    def _beat_ended(self) -> None:
        """Looked up here, for the main thread may learn of a request when the next call has begun."""
        self._leaves = self._leaves or inbox.asked_to_stop(self._run.journal) in WAITING
        kept, save = self._run.files, self._run.state.last_save
        if self._stall.beat(kept.tree_of(save) if kept is not None and save else ""):
            self._stand_still(f"{self._launch.stall} beats without anything new (--stall)")
        self._spent_before |= self._aside
        stop = self._budget.beat_ended()
        if stop is not None:
            self._fail(stop)
        self._on_beat()

    def judge(self, exit_code: int, tail: bytes) -> Final:
        """Why it ended; its last beat is done as far as it told."""
        self.look()
        path = self._mirror.path if self._mirror is not None else None
        transcript = read_whole(path)[-TAIL_BYTES:] if path is not None else b""
        if not self._answered and exit_code and (why := cli_errors.refused(tail)):
            return Final("unusable", why)
        if not self._adapter.structured(self._launch.words):
            tail = cli_errors.prose(tail)  # a model's words that look like a result are words
        return self._adapter.classify(exit_code, tail, transcript)

    def is_asking(self) -> bool:
        """Whether its model may be answering: no call is under way, and it waits for no answer of ours."""
        return not (self.calls.is_busy or self._waits)

    def close(self) -> None:
        """Keep what was read of the transcript: whoever goes on finds it."""
        self._closed.set()
        with contextlib.suppress(OutlastError, OSError):
            if self._mirror is not None:
                self.look()
                self._mirror.keep()


def _usage(adapter: Adapter, data: bytes) -> Iterator[UsageReport]:
    for line in data.splitlines():
        for event in adapter.parse(line):
            if isinstance(event, UsageReport):
                yield event
