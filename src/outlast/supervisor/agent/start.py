"""Starts an agent: for the first time, in its own session, or in a fresh one with everything it must know."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path

import msgspec

from outlast.agents import Transcript, registry
from outlast.agents.events import Session, ToolEnd, ToolStart, UsageReport
from outlast.agents.values import AgentCommand, Ask, Cut, HttpHook, McpServer
from outlast.core import events as ev, values
from outlast.core.values import SessionMark
from outlast.runs.engine.steps import append
from outlast.supervisor.agent import prompts
from outlast.supervisor.agent.agent import Agent
from outlast.supervisor.agent.approvals import CallApprovals
from outlast.supervisor.agent.calls import background, interruptions, outward as calls_outward, subagents
from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.record import SHIM
from outlast.supervisor.agent.calls.repeats import FRESH, Holds
from outlast.supervisor.agent.calls.shims import SHIMS, Shims
from outlast.supervisor.agent.client_copy import ClientCopy
from outlast.supervisor.agent.observer import AgentObserver
from outlast.supervisor.agent.responses import Responses
from outlast.supervisor.agent.session import choice, reconcile
from outlast.supervisor.agent.session.follower import SessionFollower
from outlast.supervisor.agent.session.transcript_copy import Mirror
from outlast.supervisor.agent.status_file import StatusFile
from outlast.supervisor.budget.pricing import Pricing
from outlast.supervisor.launch import background as launch_background
from outlast.supervisor.launch.environment import ATTEMPT, RUN, SOCKET
from outlast.supervisor.output.streams import piped
from outlast.supervisor.socket import http_hooks
from outlast.supervisor.socket.http_hooks import HttpHooks


def settle_left(agent: Agent, outward: OutwardCalls) -> list[Cut]:
    """Look up every call that an earlier attempt left without an outcome, before any call is held because of it.

    Returns what to tell the agent of background calls that were cut off with their attempt.
    """
    left = background.left(agent.run)
    interruptions.settle(agent.run, outward)
    return background.cuts(agent.run, left, agent.settle_words)


class AgentStart:
    """Builds the command line that starts the agent in one attempt.

    Before a session goes on, its transcript is made whole and true: our copy brings back what a kill took, and every call
    that was cut off gets a result that says what is known about it.
    """

    def __init__(
        self,
        agent: Agent,
        outward: OutwardCalls,
        session: SessionFollower,
        observer: AgentObserver,
        holds: Holds,
        responses: Responses,
        client: ClientCopy,
        approvals: CallApprovals,
        left: Sequence[Cut] = (),
    ) -> None:
        self._agent, self._run, self._known, self._outward = agent, agent.run, agent.known, outward
        self._session, self._observer, self._holds, self._responses = session, observer, holds, responses
        self._client, self._approvals, self._left = client, approvals, tuple(left)
        self._before = choice.last_ending(agent.run.journal)
        self.status = StatusFile(agent.folder)
        self.cuts: tuple[Cut, ...] = ()  # what the agent is told was cut off
        self._aside = ""  # the call that its session has put aside: resumed without a prompt, it asks about that one again
        self.begins_anew = False  # whether it gets its first prompt again, as that was typed or piped

    def command(
        self, words: tuple[str, ...], environment: dict[str, str], mark: str, http: HttpHooks | None = None
    ) -> AgentCommand:
        """How the agent is started. `environment` is given hooks and shims."""
        ask = self._ask(words, environment, mark)
        if http is not None:
            ask = msgspec.structs.replace(ask, by_http=HttpHook(http.url, http_hooks.SECRET, http.secret))
        self._session.begin(ask)
        if self._agent.gate is not None:
            ask = self._agent.gate.routed(self._known.billing, self._known.name, ask)
        cuts = interruptions.cuts(self._run, self._agent.settle_words)
        command = self._resumed(ask, cuts) or self._fresh(ask, cuts)
        if command.session:
            self._session.know(Session(command.session))
        self._say_limits(ask)
        return command

    def _ask(self, words: tuple[str, ...], environment: dict[str, str], mark: str) -> Ask:
        agent, cwd = self._agent, Path(self._agent.cwd)
        client = self._client.place()
        hook = calls_outward.hook_words(client, environment[SOCKET], mark, self._known.name)
        self._outward.shims = Shims(
            agent.folder / SHIMS, client, environment, self._outward.known, environment[SOCKET], mark, cwd
        )
        environment |= self._outward.shims.environment(environment)
        ask = Ask(
            words=words, environment=environment, cwd=cwd, folder=agent.folder, hook=hook,
            interactive=agent.launch.interactive, mcp=self._mcp(environment),
            status_line=self.status.command(self._run.task) if agent.launch.interactive else "",
        )  # fmt: skip
        agent.pricing.learn(self._known.billing, ask)
        return ask

    def _mcp(self, environment: Mapping[str, str]) -> McpServer | None:
        """Our MCP server for this attempt, if the agent is to have it. Some clients pass none of their own variables on."""
        if not self._run.settings["run_mcp"]:
            return None
        return McpServer(
            tuple(launch_background.ourselves("mcp")),
            {name: environment[name] for name in (RUN, ATTEMPT, SOCKET)},
        )

    def _say_limits(self, ask: Ask) -> None:
        """Tell the person once which calls outlast cannot see, and whether it can warn the agent."""
        agent, has_gate = self._agent, self._agent.gate is not None
        why = self._known.cli.hooks_off(ask)
        if why:
            self._observer.hooked = False
            agent.person.say(f"calls are seen by shims and afterwards only: {why}")
        agent.budget.can_tell = self._observer.hooked or has_gate
        agent.budget.by_gateway = has_gate and not (self._observer.hooked and self._known.release.caps.tells)
        why = self._known.cli.read(ask.words).unrecorded
        if why and not ask.interactive:
            uncounted = "" if has_gate else "no tokens are counted, and "
            agent.person.say(f"{why}: {uncounted}after a kill it starts from the beginning")

    # -- in its own session ----------------------------------------------------------------------------------------

    def _resumed(self, ask: Ask, cuts: list[Cut]) -> AgentCommand | None:
        """The command that resumes the last attempt's session; None if there is none that outlast can resume."""
        state, agent, session = self._run.state, self._known, self._session
        known = choice.to_go_on_with(self._run.journal) if agent.release.caps.resume else None
        if known is None or state.session is None or known.agent != agent.name:
            return None
        mirror = Mirror(self._agent.folder, agent.name, known.session)
        path = agent.transcript.find(known.session, ask) or (Path(known.path) if known.path else None)
        if choice.is_new_here(self._run.journal):
            path = agent.transcript.place(known.session, ask) or path
        if path is None and session.tells_calls:
            return None  # it was killed before its session came to be
        session.resume(mirror, known, path)
        if path is not None:
            rebuilt = self._rebuild(mirror, path, known, cuts, ask)
            if rebuilt is None:  # the session never came to be, or nothing of it can be trusted
                session.forget()
                return None
            cuts, of_subagents = rebuilt
        else:
            of_subagents = subagents.unheard(self._run.journal, {})
        self.cuts = (*cuts, *self._left)
        self._holds.read((known.agent, known.session), of_subagents)
        now = self._run.state.session  # what follows is the agent's own doing
        session.record(now if now is not None and now.session == known.session else known)
        prompt = ""
        if self._aside:
            self._approvals.tell_later()
        else:
            prompt = prompts.resumed(
                self._run.contract, *self._before, [*cuts, *self._left], interruptions.settled(self._run),
                self._agent.budget.wrap_up(), self._unnamed(ask), self._approvals.for_prompt(),
            )  # fmt: skip
        if ask.interactive and (agent.release.caps.mends or not cuts) and not self._left:
            prompt = ""  # a person speaks first, and what was cut off is told by the transcript
        return agent.cli.launch(msgspec.structs.replace(ask, session=mirror.mark, prompt=prompt))

    def _unnamed(self, ask: Ask) -> str:
        """The words about calls that neither the journal nor the transcript names, for an agent whose calls all pass a hook."""
        is_hooked = self._observer.hooked and not self._known.cli.hooks_off(ask)
        is_silent = not self._known.release.caps.mends and not choice.is_new_here(self._run.journal)
        return prompts.UNNAMED if is_hooked and is_silent else ""

    def _rebuild(
        self,
        mirror: Mirror,
        path: Path,
        mark: SessionMark,
        cuts: list[Cut],
        ask: Ask,
    ) -> tuple[list[Cut], set[str]] | None:
        """Make the transcript whole and true; return the calls that still have no result in it, and the effects that only a
        sub-agent heard of."""
        data, wrong = mirror.reconcile(path, mark)
        if wrong:
            whole = "the agent's transcript was made whole from our copy"
            how = whole if data else "outlast cannot resume from the agent's transcript"
            self._agent.person.say(f"{how}: {wrong}")
        if not data:
            return None
        started, ended = _calls(self._known.transcript, data)
        aside = reconcile.put_aside(self._run, self._known.transcript, data, ended)
        known = {each.id for each in (*cuts, *aside)}
        before, alone = reconcile.apart(self._run, mark.session, started, ended | known, is_whole=not wrong)
        put, others = reconcile.unrecorded(
            self._responses,
            [(start, self._observer.record_of(start, self._agent.cwd)) for start in alone],
            defers=self._known.release.caps.http_hooks,
        )
        if put:
            interruptions.settle(self._run, self._outward)
            cuts = reconcile.with_words(interruptions.cuts(self._run, self._agent.settle_words), put)
        of_subagents = subagents.unheard(self._run.journal, self._lanes(path, started))
        lost = interruptions.missing(self._run, cuts, ended, of_subagents) + others
        lost = [cut for cut in lost if cut.id not in {each.id for each in aside}]
        if self._asks_again(ask, [*before, *lost]):
            self._aside = "".join(each.id for each in aside)
        else:
            lost += aside
        self._count_surplus(mark, data)
        inside = [each for each in lost if not each.id.startswith(SHIM)]
        if self._known.release.caps.mends:
            data = self._known.transcript.mend(data, [*before, *inside]) if before or inside else data
        mirror.rebuild(path, data)
        mirror.restore_beside(self._known.transcript.beside(path).sidecars)
        if self._known.release.caps.mends:
            self._responses.end_now()  # what was cut off in it is told; the next response is another beat
        return lost, of_subagents

    def _asks_again(self, ask: Ask, others: Sequence[Cut]) -> bool:
        """Whether the session is resumed without a prompt, so that it asks about the call that it put aside: nothing else has to
        be told, and the call meets our hook."""
        has_news = others or self._left or interruptions.settled(self._run) or self._agent.budget.wrap_up()
        return not (has_news or ask.interactive or self._known.cli.hooks_off(ask))

    def _lanes(self, path: Path, started: Mapping[str, ToolStart]) -> dict[str, str]:
        """Which sub-agent made which call, by the agent's transcripts; empty for the agent's own calls."""
        lanes = {call: start.lane for call, start in started.items()}
        for each in self._known.transcript.beside(path).lanes:
            with contextlib.suppress(OSError):
                made, _ = _calls(self._known.transcript, each.read_bytes())
                lanes |= {call: start.lane for call, start in made.items()}
        return lanes

    def _count_surplus(self, mark: SessionMark, data: bytes) -> None:
        """Count the cost of everything since the last save point: of the beat in flight or of a person's turns."""
        transcript, session = self._known.transcript, self._session
        for event in _usage(transcript, data[: mark.length]):
            session.was_recorded(event)
        for event in _usage(transcript, data[mark.length :]):
            session.count(event)
        self._run.meter.was_charged(self._run.state.open_spent)

    # -- in a fresh one --------------------------------------------------------------------------------------------

    def _fresh(self, ask: Ask, cuts: list[Cut]) -> AgentCommand:
        state = self._run.state
        if state.session is not None and state.session.agent != self._known.name:
            self._charge_other(state.session, ask)
        prompt, self.cuts = "", (*cuts, *self._left)
        if state.beats or cuts:
            first_prompt = self._known.cli.read(ask.words).prompt or piped(self._agent.folder.parent)
            prompt = prompts.fresh(
                self._run.context(), first_prompt, [*cuts, *self._left], interruptions.settled(self._run),
                self._agent.budget.wrap_up(), self._approvals.for_prompt(),
            )  # fmt: skip
        self.begins_anew = not prompt
        self._holds.read(FRESH)  # it knows of nothing: what the run did outside is not done again unawares
        command = self._known.cli.launch(msgspec.structs.replace(ask, prompt=prompt))
        assert command is not None, "an agent can always be started anew"
        return command

    def _charge_other(self, known: SessionMark, ask: Ask) -> None:
        """Charge once for what an earlier, different agent spent since its last save point."""
        other = registry.by_name(known.agent)
        if other is None:
            return
        place = other.transcript.find(known.session, ask) or other.transcript.place(known.session, ask)
        path = Path(known.path) if known.path else place
        if path is None:
            return
        data, _ = Mirror(self._agent.folder, known.agent, known.session).reconcile(path, known)
        pricing = Pricing(other.billing.payment(ask))
        spent = {event.key: pricing.cost(event) for event in _usage(other.transcript, data[known.length :])}
        at, usage = self._run.journal.now(), reduce(values.Usage.plus, spent.values(), values.Usage())
        usage = usage.minus(self._run.state.open_spent)  # what the end of its attempt is on record with
        if not usage.tokens:
            return
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        mark = SessionMark(known.agent, known.session, str(path), len(data), digest)
        key = f"{known.agent} {known.session}"
        settled = ev.SpendSettled(at=at, key=key, usage=usage, source="transcript")
        self._run.drive(append(settled, ev.SessionKnown(at=at, session=mark)))


def _calls(transcript: Transcript, data: bytes) -> tuple[dict[str, ToolStart], set[str]]:
    """The calls in a transcript, and which of them have a result in it."""
    started: dict[str, ToolStart] = {}
    ended: set[str] = set()
    for line in data.splitlines():
        for event in transcript.parse(line):
            if isinstance(event, ToolStart):
                started[event.id] = event
            elif isinstance(event, ToolEnd):
                ended.add(event.id)
    return started, ended


def _usage(transcript: Transcript, data: bytes) -> Iterator[UsageReport]:
    for line in data.splitlines():
        for event in transcript.parse(line):
            if isinstance(event, UsageReport):
                yield event
