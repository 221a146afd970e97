"""One attempt of a known agent CLI: starts it, answers its hooks, follows its transcript, judges its end."""

import contextlib
from functools import partial

from outlast.agents.common import cli_errors, endings
from outlast.agents.events import Final
from outlast.agents.values import AgentCommand
from outlast.errors import OutlastError
from outlast.operations import prices
from outlast.supervisor.agent.agent import Agent
from outlast.supervisor.agent.approvals import CallApprovals
from outlast.supervisor.agent.calls import interruptions
from outlast.supervisor.agent.calls.calls import AgentCalls
from outlast.supervisor.agent.calls.left_processes import LeftRunning
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.repeats import Holds
from outlast.supervisor.agent.client_copy import ClientCopy
from outlast.supervisor.agent.hooks import AgentHooks
from outlast.supervisor.agent.observer import AgentObserver
from outlast.supervisor.agent.progress import AgentProgress
from outlast.supervisor.agent.responses import Responses
from outlast.supervisor.agent.session.follower import SessionFollower
from outlast.supervisor.agent.start import AgentStart, settle_left
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.launch import approvals
from outlast.supervisor.lifecycle import Lifecycle
from outlast.supervisor.socket.http_hooks import HttpHooks
from outlast.supervisor.timing import Timing


class AgentAttempt:
    """Puts the parts together: `hooks` answers, `_session` follows the transcript, `_start` resumes."""

    def __init__(
        self,
        agent: Agent,
        beats: BeatInFlight,
        environment: dict[str, str],
        lifecycle: Lifecycle,
        timing: Timing | None = None,
    ) -> None:
        agent.folder.mkdir(mode=0o700, exist_ok=True)
        timing = timing or Timing.current()
        self._agent, self._beats, self._lock, self._timing = agent, beats, beats.lock, timing
        outward = OutwardCalls(environment)
        self._session = SessionFollower(
            agent.run, agent.known, agent.folder, agent.pricing, by_gateway=agent.gate is not None
        )
        self._client = ClientCopy(agent.run, agent.person)
        self._progress = AgentProgress(agent, lifecycle, self._client)
        self.calls = AgentCalls(beats)
        self.responses = Responses(beats, self.calls, self._session, self._progress)
        left = settle_left(agent, outward)
        self._observer = AgentObserver(
            agent, self._session, self.calls, self.responses, self._progress, outward, timing
        )
        holds = Holds(agent.run.journal, agent.settle_words)
        self._approvals = CallApprovals(
            beats, approvals.of(agent.launch, agent.run.settings), interactive=agent.launch.interactive
        )
        self.hooks = AgentHooks(
            agent.known.cli,
            agent.known.release,
            agent.cwd,
            agent.budget,
            holds,
            beats,
            self._observer,
            self.calls,
            self.responses,
            self._progress,
            outward,
            self._approvals,
            timing,
        )
        self._http: HttpHooks | None = None
        self._start = AgentStart(
            agent,
            outward,
            self._session,
            self._observer,
            holds,
            self.responses,
            self._client,
            self._approvals,
            left,
        )

    def command(self, words: tuple[str, ...], environment: dict[str, str], mark: str) -> AgentCommand:
        """How the agent is started. `environment` is given hooks and shims. Raises DiskFull where these have no room."""
        known = self._agent.known
        with self._beats.noting_failure():
            if known.release.caps.http_hooks:
                self._http = HttpHooks(self.hooks, self._timing)
            command = self._start.command(words, environment, mark, self._http)
        if command.by_http:
            self.hooks.by_http, self._observer.unhooked = True, known.release.caps.file_tools
            self.calls.defers = self.responses.ends_late = True
        else:
            self._close_http()
        self._approvals.defers = command.defers
        return command

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors of ours that the agent keeps."""
        return (self._http.fileno(),) if self._http is not None else ()

    def _close_http(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def started(self, pid: int) -> None:
        """The agent runs in this process."""
        self.calls.processes = LeftRunning(self._agent.run.id, pid)

    def has_left_running(self) -> bool:
        """Whether a call that reaches outside left processes behind which may do that yet."""
        return bool(self.calls.look_at_left())

    def load_rest(self) -> None:
        """Load the files needed later. Called while the agent starts: an upgrade of outlast may remove them meanwhile."""
        prices.ours()
        endings.patterns()

    @property
    def begins_anew(self) -> bool:
        """Whether the agent gets its first prompt again, typed or piped."""
        return self._start.begins_anew

    @property
    def failure(self) -> BaseException | None:
        """The error of a hook, a transcript line or a beat's end that must end the attempt."""
        return self._progress.failure

    def look(self) -> None:
        """Apply the new lines of the transcript, and make a copy of them."""
        with self._lock:
            self._progress.guarded(self._observer.look)
            self._progress.guarded(self.has_left_running)
            self._progress.guarded(self._session.count_aside)
            self._progress.guarded(self._session.copy)
            self._progress.guarded(partial(self._beats.append_waiting, self._timing.outcome_s))

    def rests(self) -> bool:
        """Whether the agent is between two beats, where a requested stop can be carried out."""
        with self._lock:
            self.hooks.note_begun()
            return self._progress.leaves or self.responses.rests

    def is_asking(self) -> bool:
        """Whether its model may be answering: no call is under way, and it waits for no answer of ours."""
        return not (self.calls.is_busy or self.hooks.is_busy)

    def judge(self, exit_code: int, tail: bytes) -> Final:
        """Why the agent ended. `tail` is the end of its output."""
        self.look()
        if not self._observer.answered and exit_code and (why := cli_errors.refused(tail)):
            return Final("unusable", why)
        known = self._agent.known
        if not known.cli.read(self._agent.launch.words).structured:
            tail = cli_errors.prose(tail)  # a model's words that look like a result are words
        final = known.transcript.ending(exit_code, tail, self._session.tail())
        self._agent.pricing.settle(final.bill, self._agent.run.meter)  # its own bill counts
        cut_off = self._cut_off(tail) if final.ending == "done" else ""
        return Final("crashed", cut_off) if cut_off else final

    def not_made(self) -> list[str]:
        """The calls that were found not to have happened, and that it did not make again."""
        return interruptions.not_made(self._agent.run)

    def _cut_off(self, tail: bytes) -> str:
        """Why an exit with 0 is not the end of its task: some agents exit so when a signal stops them. Empty if it is.

        | a call is under way | its model answered after its last call | it printed something | done |
        |---|---|---|---|
        | yes | any | any | no |
        | no | yes, or it made none | any | yes |
        | no | no | any | no, where its transcript tells of answers |
        | no | nothing is known of answers | yes | yes |
        | no | nothing is known of answers, and it made a call | no | no |

        One that has put a call aside ends with that.
        """
        with self._lock:
            if self.calls.is_busy:
                return "exited with 0 in the middle of a call"
            if self._approvals.put_aside:
                return ""
            unheard = self.responses.awaits_answer and (self._observer.answered or not tail.strip())
        return "exited with 0 after a call, without a last word" if unheard else ""

    def finish(self) -> None:
        """The agent ended well: record its last beat as done. Raises EffectInDoubt if one of its calls is in doubt, and
        WaitsForPerson if one waits for an approval."""
        if self._agent.launch.interactive:
            self.responses.leave()
        else:
            self.responses.finish({"exit_code": 0}, accept_unknown=self._agent.launch.accept_unknown)
        with self._lock:
            self._approvals.finish()

    @property
    def waits(self) -> bool:
        """Whether a person has to answer before the run can be done, or the agent to hear an answer."""
        with self._lock:
            return self._approvals.waits

    @property
    def paid(self) -> bool:
        """Whether its account has paid for an answer in this attempt."""
        return self._observer.paid

    def conclude(self) -> None:
        """The agent had finished in an earlier attempt and is not started again. Raises EffectInDoubt if one of its calls is
        in doubt, and WaitsForPerson if a person has to answer."""
        self.responses.leave(accept_unknown=self._agent.launch.accept_unknown)
        with self._lock:
            self._approvals.finish()

    def remove_copy(self) -> None:
        """The run is over, and so is its agent: what hooks and shims ran is not needed any more."""
        self._client.remove()

    def close(self) -> None:
        """Keep the transcript as far as it was read, for the next attempt."""
        self.hooks.closed.set()
        self._close_http()
        with contextlib.suppress(OutlastError, OSError):
            self.look()
            self._session.flush()
