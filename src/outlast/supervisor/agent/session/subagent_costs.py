"""The cost of an agent's sub-agents, which write transcripts of their own beside that of their agent."""

from collections.abc import Sequence
from pathlib import Path

from outlast.agents import Transcript
from outlast.agents.events import UsageReport
from outlast.core import values
from outlast.supervisor.agent.session.transcript_copy import Mirror
from outlast.supervisor.budget.pricing import Pricing

NAME = "sub-agents"


class Lanes:
    """The sum over all sub-agents of one session. How much of it is charged stands in the session's mark.

    `charged` is None for a new session, and for one that came from elsewhere without its sub-agents' transcripts.
    """

    def __init__(
        self,
        transcript: Transcript,
        agent: str,
        folder: Path,
        charged: values.Usage | None,
        pricing: Pricing,
    ) -> None:
        self._transcript, self._agent, self._folder, self._pricing = transcript, agent, folder, pricing
        self._charged = charged if charged is not None else values.Usage()
        self._files: dict[Path, Mirror] = {}
        self._spent: dict[tuple[Path, str], values.Usage] = {}

    def look(self, lanes: Sequence[Path]) -> None:
        """Read the lines written to these transcripts since the last look."""
        for path in lanes:
            if path not in self._files:
                self._files[path] = Mirror(self._folder, self._agent, path.stem)
                self._files[path].follow(path)
            for line in self._files[path].news():
                for event in self._transcript.parse(line):
                    if isinstance(event, UsageReport):
                        self._spent[path, event.key] = self._pricing.cost(event)

    def charge(self) -> tuple[values.Usage | None, values.Usage | None]:
        """The usage to charge now, if any, and the sum that is charged with it."""
        total = values.Usage()
        for spent in self._spent.values():
            total = total.plus(spent)
        if total.tokens <= self._charged.tokens:
            return None, self._charged if self._charged.tokens else None
        more, self._charged = total.minus(self._charged), total
        return more, total
