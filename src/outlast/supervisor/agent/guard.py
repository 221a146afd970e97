"""A plain command under guard (`outlast run --guard`): shims before the programs of its tree, holds and probes.

It has no hooks, no transcript and no session: an agent that outlast knows has these, in `attempt.py`."""

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from outlast.agents.events import ToolStart
from outlast.core import events as ev
from outlast.core.values import shorten
from outlast.errors import AgentStopped, OutlastError
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.supervisor.agent.approvals import CallApprovals
from outlast.supervisor.agent.calls import interruptions
from outlast.supervisor.agent.calls.calls import AgentCalls
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.programs import OutwardPrograms
from outlast.supervisor.agent.calls.record import CallRecord, OutwardCall
from outlast.supervisor.agent.calls.repeats import FRESH, Holds
from outlast.supervisor.agent.calls.shims import SHIMS, Shims
from outlast.supervisor.agent.client_copy import ClientCopy
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.launch import approvals
from outlast.supervisor.launch.environment import BASH_ENV, SOCKET
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person
from outlast.supervisor.socket.delivery import DELIVERED, Delivery
from outlast.supervisor.socket.wire import Output, Shim, ShimAnswer
from outlast.supervisor.timing import Timing
from outlast.workspace.types import raw

LEFT_CHARS_MAX = 300  # of what a command left running


class _Records:
    """The calls of a plain command, as effects of the beat in flight. A step that ends ends that beat; a call does not."""

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls

    def intend(self, start: ToolStart, record: CallRecord) -> None:
        self._calls.went_on()
        self._calls.intend(start.id, record)

    def refuse(self, start: ToolStart, record: CallRecord, reason: str) -> None:
        self._calls.went_on()
        self._calls.refuse(start, record, reason)


class _Failures:
    """An error that keeps a call off the record ends the attempt: its watch looks at the beat's failure."""

    def __init__(self, beats: BeatInFlight) -> None:
        self._beats = beats

    def fail(self, error: BaseException) -> None:
        failure = (
            error if isinstance(error, OutlastError) else OutlastError(f"{type(error).__name__}: {error}")
        )
        self._beats.fail(failure)

    def guarded(self, what: Callable[[], Any]) -> None:
        try:
            what()
        except Exception as error:
            self.fail(error)


class Guard:
    """One attempt of a guarded command.

    Every attempt starts from the beginning and knows nothing of earlier ones. So outlast answers each call of an earlier
    attempt once: a call that ended well ends so again, with the same output; one in doubt is held until somebody settles it.
    """

    replays = True

    def __init__(
        self, run: RunEngine, launch: Launch, folder: Path, beats: BeatInFlight, person: Person, environment: Mapping[str, str]
    ) -> None:  # fmt: skip
        folder.mkdir(mode=0o700, exist_ok=True)
        self._run, self._launch, self._folder, self._beats = run, launch, folder, beats
        self._person = person
        self._outward = OutwardCalls(environment)
        interruptions.settle(run, self._outward)  # before anything is held against what they did
        self._client = ClientCopy(run, person)
        self._timing, self._looked_s = Timing.current(), time.monotonic()
        self._calls = AgentCalls(beats)
        holds = Holds(run.journal, f"{shlex.quote(str(folder / SHIMS / 'outlast'))} settle {run.id}")
        holds.read(FRESH)
        self._approvals = CallApprovals(beats, approvals.of(launch, run.settings))
        self._programs = OutwardPrograms(
            run, beats, holds, self._calls, _Records(self._calls), _Failures(beats), self._outward, self._approvals,
            self._timing, replays=True,
        )  # fmt: skip

    # -- the command -----------------------------------------------------------------------------------------------

    def command(self, argv: tuple[str, ...], environment: dict[str, str], mark: str) -> tuple[str, ...]:
        """The command with `environment` set so that its tree finds the shims. Raises DiskFull where these have no room.

        A command that is itself a program with a shim, found on the PATH, is started by its shim.
        """
        with self._beats.noting_failure():
            client, cwd = self._client.place(), Path(os.fsdecode(raw(self._launch.cwd)))
            shims = Shims(
                self._folder / SHIMS, client, environment, self._outward.known, environment[SOCKET], mark, cwd
            )
            theirs = {BASH_ENV: environment["BASH_ENV"]} if environment.get("BASH_ENV") else {}
            environment |= theirs | shims.environment(environment)
        self._outward.shims = shims
        name = self._launch.words[0]
        own = self._folder / SHIMS / name
        return (str(own), *argv[1:]) if "/" not in name and name != "outlast" and own.exists() else argv

    def look(self) -> None:
        """Make shims for programs installed since, and check whether the copy that the shims run is whole."""
        self._outward.refresh_shims()
        if time.monotonic() - self._looked_s > self._timing.copy_look_s:
            self._looked_s = time.monotonic()
            self._client.look()

    def remove_copy(self) -> None:
        """Remove the copy that the shims ran: the run is over."""
        self._client.remove()

    # -- its calls -------------------------------------------------------------------------------------------------

    def hook(self, data: bytes, delivery: Delivery) -> tuple[bytes, int]:
        """A plain command has no hooks of ours."""
        raise OutlastError("a plain command has no hooks", hint="start the agent itself with `outlast run`")

    def shim(self, shim: Shim, perform: Callable[[], Output], delivery: Delivery = DELIVERED) -> ShimAnswer:
        """A program below the command that may reach outside. Below an `outlast effect` that effect is the record."""
        if shim.call:
            return ShimAnswer(exit_code=perform().exit_code)
        return self._programs.shim(shim, perform, delivery)

    def look_at_answers(self) -> None:
        """Look which answers reached their callers, and take back those that did not."""
        with self._beats.lock:
            self._programs.look_at_answers()

    def stopping(self) -> None:
        """The attempt's processes are about to be stopped."""
        self._calls.stopping()

    def has_left_running(self) -> bool:
        """Whether a program that reaches outside runs on in the background."""
        return bool(self._calls.look_at_left())

    def note_left(self, names: Sequence[str]) -> None:
        """Record that the programs that still run are about to be stopped: what they did is in doubt, so a person decides."""
        self._person.say(f"stopping what the command left running: {', '.join(names)}")
        outward = OutwardCall("background", shorten(f"left running: {', '.join(names)}", LEFT_CHARS_MAX))
        record = CallRecord("background", list(names), outward=(outward,))
        with self._beats.lock, self._beats.noting_failure():
            self._calls.left(f"left-{os.urandom(8).hex()}", record)

    # -- its end ---------------------------------------------------------------------------------------------------

    def ended(self, *, by_itself: bool) -> None:
        """The command has ended. If it ended by itself, earlier failures of its programs were not its end."""
        with self._beats.lock, self._beats.noting_failure():
            if by_itself:
                self._calls.went_on()
            self._calls.settle_rest()

    @property
    def waits(self) -> bool:
        """Whether a person has to answer before the run can be done, or the command to meet an answer."""
        with self._beats.lock:
            return self._approvals.waits

    def refuse_failed(self, code: int) -> None:
        """The command failed. Raises EffectInDoubt where outlast held a call of it, and WaitsForPerson where one waits for an
        approval: at every start it would be the same."""
        doubt = self._beats.doubt(f"ended with {code}") if self._programs.has_held else None
        if doubt is not None and not self._launch.accept_unknown:
            raise doubt
        with self._beats.lock:
            if self._approvals.has_waiting:
                self._approvals.finish()
        if self._approvals.rejection:  # at every start it would be the same
            why = f"ended with {code} after a call was not made: {self._approvals.rejection}"
            raise AgentStopped(why, cause="crash", exit_code=code, wanted=True)

    def refuse_doubt(self) -> None:
        """The command ended well. Raises EffectInDoubt where a call of it is in doubt, and WaitsForPerson where one waits for
        an approval."""
        with self._beats.lock:
            tell = [effect for effect in self._run.state.in_doubt if effect.policy == "tell"]
            for effect in tell if self._launch.accept_unknown else ():
                at, by = self._run.journal.now(), "--accept-unknown"
                settled = ev.EffectSettled(at=at, beat=effect.beat, n=effect.n, finding="give_up", by=by)
                self._run.drive(append(settled))
            doubt = self._beats.doubt()
            if doubt is not None:
                raise doubt
        with self._beats.lock:
            self._approvals.finish()
