"""Following an agent's session: its id, its transcript as it grows, and the transcripts of its sub-agents."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from outlast.agents import KnownAgent
from outlast.agents.events import AgentEvent, Session, ToolEnd, UsageReport
from outlast.agents.values import Ask
from outlast.core import events as ev, values
from outlast.core.values import SessionMark
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.supervisor.agent.session.subagent_costs import NAME, Lanes
from outlast.supervisor.agent.session.transcript_copy import Mirror, read_whole
from outlast.supervisor.budget.pricing import Pricing

TAIL_BYTES = 1 << 18


class ResponseCosts:
    """The recorded cost of each response, by its key.

    Some agents write a response's cost into each of its lines, or write its line again. A beat may end in between.
    """

    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        self._before: dict[str, UsageReport] = {}  # on record before this attempt
        self._recorded: dict[str, values.Usage] = {}
        self._counted: dict[str, values.Usage] = {}  # since the last beat's end, beyond what was on record

    def unsettled(self, report: UsageReport) -> values.Usage:
        """How much of this response's cost is not on record yet. Of several reports the last one counts."""
        key = report.key
        if key in self._before:
            self._recorded[key] = self._pricing.cost(self._before.pop(key))
        cost = self._pricing.cost(report)
        self._counted[key] = cost.minus(self._recorded[key]) if key in self._recorded else cost
        return self._counted[key]

    def was_recorded(self, report: UsageReport) -> None:
        """This was on record before this attempt."""
        self._before[report.key] = report

    def settle(self) -> None:
        """All that was counted is on record."""
        for key, more in self._counted.items():
            self._recorded[key] = self._recorded.get(key, values.Usage()).plus(more)
        self._counted = {}


class SessionFollower:
    """Reads the agent's transcript and keeps a copy of it (`Mirror`). Does not interpret it."""

    def __init__(
        self, run: RunEngine, known: KnownAgent, folder: Path, pricing: Pricing, *, by_gateway: bool
    ) -> None:
        self._run, self._known, self._folder, self._pricing = run, known, folder, pricing
        self._by_gateway = by_gateway  # what goes through it is counted there, and not once more here
        self._mirror: Mirror | None = None
        self._lanes: Lanes | None = None
        self._ask: Ask | None = None
        self._reading = False  # a beat that ends while lines are read keeps only what was handed out
        self._spent_before: set[str] = set()  # reports of earlier beats, in files beside the transcript
        self._aside: set[str] = set()  # such reports of this beat
        self._costs = ResponseCosts(pricing)

    @property
    def tells_calls(self) -> bool:
        """Whether its transcript has every call too."""
        return "transcript" in self._known.release.caps.intent

    @property
    def is_followed(self) -> bool:
        """Whether its transcript is there and read as it grows."""
        path = self._mirror.path if self._mirror is not None else None
        return path is not None and path.exists()

    @property
    def tells_steps(self) -> bool:
        """Whether its transcript tells where each response ends, and all calls of one ask before the first runs."""
        return self._known.release.caps.tells_steps

    def begin(self, ask: Ask) -> None:
        """The agent is about to start: its earlier spending does not belong to this attempt."""
        self._spent_before = {event.key for event in self._known.billing.spent(ask)}
        self._ask = ask

    # -- the session -----------------------------------------------------------------------------------------------

    def resume(self, mirror: Mirror, known: SessionMark, path: Path | None) -> None:
        """Follow a session that an earlier attempt left."""
        self._mirror = mirror
        self._lanes = self._lanes_of(known.lanes, path)

    def _lanes_of(self, charged: values.Usage | None, path: Path | None = None) -> Lanes:
        transcript = self._known.transcript
        is_here = path is None or bool(transcript.beside(path).lanes)
        return Lanes(transcript, self._known.name, self._folder, charged if is_here else None, self._pricing)

    def forget(self) -> None:
        """Forget the session: outlast cannot resume it."""
        self._mirror = self._lanes = None

    def know(self, session: Session) -> None:
        """Record the session's id and transcript, as soon as they are known."""
        name, mirror = self._known.name, self._mirror
        if mirror is None or mirror.session != session.id:
            mirror = self._mirror = Mirror(self._folder, name, session.id)
            self._lanes = self._lanes_of(None)
            self.record(SessionMark(name, session.id, session.transcript))
        if session.transcript and mirror.path is None:
            mirror.follow(Path(session.transcript))

    def record(self, mark: SessionMark) -> None:
        """Put the session on record: later events belong to it."""
        self._run.drive(append(ev.SessionKnown(at=self._run.journal.now(), session=mark)))

    # -- its transcript --------------------------------------------------------------------------------------------

    def news(self) -> Iterator[tuple[AgentEvent, bool]]:
        """New transcript lines since the last look, as events; and whether the transcript now has the result of a call."""
        mirror, ask, transcript = self._mirror, self._ask, self._known.transcript
        if mirror is None or ask is None or self._reading:
            return
        if mirror.path is None or not mirror.path.exists():
            path = transcript.find(mirror.session, ask)
            if path is None:
                return
            mirror.follow(path)
        self._reading = True
        try:
            for line in mirror.news():
                for event in transcript.parse(line):
                    yield event, isinstance(event, ToolEnd)
        finally:
            self._reading = False

    def count_aside(self) -> None:
        """Count this attempt's spending that files beside the transcript report."""
        if self._ask is not None and not self._by_gateway:
            for event in self._known.billing.spent(self._ask):
                if event.key not in self._spent_before:
                    self._aside.add(event.key)
                    self._run.meter.count(event.key, self._pricing.cost(event))

    def count(self, report: UsageReport) -> None:
        """Count the usage of one response once, even if the transcript repeats it in a later beat."""
        # Without hooks no beat ends between two reports of a response, and the keys of Aider may name two.
        cost = self._costs.unsettled(report) if self.tells_calls else self._pricing.cost(report)
        self._run.meter.count(report.key, cost)

    def was_recorded(self, report: UsageReport) -> None:
        """The cost of this response was on record before this attempt."""
        self._costs.was_recorded(report)

    def beat_ended(self) -> None:
        """A beat ended, so everything counted so far is on record."""
        self._spent_before |= self._aside
        self._costs.settle()

    def copy(self) -> None:
        """Put the lines read so far into our copy."""
        if self._mirror is not None:
            self._mirror.copy()

    def flush(self) -> None:
        """The same, durable."""
        if self._mirror is not None:
            self._mirror.keep()

    def keep(self) -> SessionMark | None:
        """Make durable how far the session was read, with the cost of its sub-agents."""
        mirror, lanes = self._mirror, self._lanes
        if mirror is None:
            return None
        mark = msgspec.structs.replace(mirror.keep(), model=values.clip(self._pricing.used, 100))
        if lanes is None or mirror.path is None:
            return mark
        beside = self._known.transcript.beside(mirror.path)
        mirror.keep_beside(beside.sidecars)
        lanes.look(beside.lanes)
        more, charged = lanes.charge()
        if more is not None and not self._by_gateway:
            self._run.meter.count(NAME, more)
        return msgspec.structs.replace(mark, lanes=charged)

    def tail(self) -> bytes:
        """The end of the transcript."""
        path = self._mirror.path if self._mirror is not None else None
        return read_whole(path)[-TAIL_BYTES:] if path is not None else b""
