"""What callers were told of calls that reach outside, until it is known whether they heard it. Kept in memory: a command
begins anew in its next attempt, and for an agent's session the result of its call says that a program was not heard of."""

import shlex
from collections.abc import Sequence

import msgspec

from outlast.core.values import shorten
from outlast.supervisor.agent.calls.calls import AgentCalls
from outlast.supervisor.agent.calls.identity import SAME, likeness as likeness_of, nearest
from outlast.supervisor.agent.calls.record import CallRecord, EndedProgram, OutwardCall
from outlast.supervisor.agent.calls.repeats import COMMAND_CHARS, UNSURE, Held, Holds
from outlast.supervisor.socket.delivery import Delivery


class _Told(msgspec.Struct, frozen=True):
    """One answer: how a program ended, or what became of an earlier call that is the same."""

    delivery: Delivery
    ended: EndedProgram | None = None
    effect: str = ""
    record: CallRecord | None = None


class CallAnswers:
    """Whoever was told nothing is told again, once, when it makes the same call again. Its caller holds the lock of the beat
    in flight, and calls `look` before anything is judged."""

    def __init__(self, holds: Holds, calls: AgentCalls) -> None:
        self._holds, self._calls = holds, calls
        self._told: list[_Told] = []
        self._owed: list[EndedProgram] = []
        self._denied: list[_Told] = []  # by hooks, and nothing was heard of the agent since

    def ended(self, delivery: Delivery, program: EndedProgram) -> None:
        """A caller is about to hear that its program ended well."""
        self._told.append(_Told(delivery, program))

    def answered(self, delivery: Delivery, held: Held, record: CallRecord, *, by_hook: bool = False) -> None:
        """A caller is about to hear what became of the call that its own repeats."""
        self.asked(held)
        if held.owed is None:
            self._holds.answered(held.effect, record)
        told = _Told(delivery, held.owed, held.effect, record)
        self._told.append(told)
        self._denied += [told] if by_hook else []

    def asked(self, held: Held) -> None:
        """A person is asked whether a call is the one that its caller never heard of."""
        self._owed = [each for each in self._owed if each is not held.owed]

    def look(self) -> None:
        """Who was killed before it heard its answer, or after: the call is answered again when it is made again."""
        rest = []
        for each in self._told:
            if each.delivery.look() == "lost":
                self._denied = [denied for denied in self._denied if denied is not each]
                self._take_back(each)
            elif not each.delivery.is_final:
                rest.append(each)
        self._told = rest

    def agent_went_on(self) -> None:
        """A hook tells of the agent: it has read what the hooks before told it."""
        self._denied = []

    def begins(self, outward: Sequence[OutwardCall]) -> None:
        """A program is about to do this. Where a hook has just denied it, that hook was killed with all that stood around its
        client, and the agent made the call: it has read nothing."""
        unread = [
            each
            for each in self._denied
            if each.record is not None and nearest(each.record.outward, outward)[0] in SAME
        ]
        for each in unread:
            self._take_back(each)
        self._denied = [each for each in self._denied if each not in unread]
        self._told = [each for each in self._told if each not in unread]

    def _take_back(self, told: _Told) -> None:
        if told.ended is not None:
            self._owed.append(told.ended)
            self._calls.unheard(told.ended.call)
        elif told.record is not None:
            self._holds.take_back(told.effect, told.record)

    def owed(self, again: Sequence[OutwardCall], program: str = "") -> Held | None:
        """What has to be said of a call whose first caller never heard that it was made; None where nothing has.

        `program`: the name of the very program that is about to run, which then ends as the first one did. One that starts
        it in other words (`npm run deploy`) is not answered in its place.
        """
        for each in self._owed:
            likeness, first = nearest(each.outward, again)
            if first is not None and likeness in SAME and program in ("", each.name):
                is_all = all(any(likeness_of(one, more) == "same" for one in each.outward) for more in again)
                is_same = is_all and not each.printed.cut
                return Held(
                    each.effect, _words(each, first), is_known=True, again=each.printed.out if is_same else None, owed=each
                )  # fmt: skip
        return None


def _words(program: EndedProgram, first: OutwardCall) -> str:
    command = f" ({shorten(shlex.join(first.words), COMMAND_CHARS)})" if first.words else ""
    sure = "" if all(each.sure for each in program.outward) else f" {UNSURE}"
    return (
        f"outlast did not repeat this call: {first.signature} was made just before, as effect {program.effect}{command}: it ended "
        f"with exit code 0, and its caller did not hear of that.{sure} Take it as done. If you mean a further one, make the call "
        "once more."
    )
