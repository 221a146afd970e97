"""The answers to calls that reach outside, until it is known whether the caller received them. They are held in memory: a
command starts afresh in its next attempt, and an agent's call records in its result that a program went unheard."""

import shlex
from collections.abc import Sequence

import msgspec

from outlast.core.values import shorten
from outlast.supervisor.agent.calls.calls import AgentCalls
from outlast.supervisor.agent.calls.identity import SAME, likeness as likeness_of, nearest
from outlast.supervisor.agent.calls.record import CallRecord, EndedProgram, OutwardCall
from outlast.supervisor.agent.calls.repeats import COMMAND_CHARS, UNSURE, Held, Holds
from outlast.supervisor.socket.delivery import Delivery


class _Answer(msgspec.Struct, frozen=True):
    """One answer: how a program ended, or what became of an earlier call that is the same."""

    delivery: Delivery
    ended: EndedProgram | None = None
    effect: str = ""
    record: CallRecord | None = None


class CallAnswers:
    """An answer that did not reach its caller is given again, once, when the same call is made again. Users of this class hold
    the lock of the beat in flight, and call `look` before they judge a call."""

    def __init__(self, holds: Holds, calls: AgentCalls) -> None:
        self._holds, self._calls = holds, calls
        self._pending: list[_Answer] = []
        self._owed: list[EndedProgram] = []
        self._denied: list[_Answer] = []  # by a hook, since the agent last gave a sign of life

    def ended(self, delivery: Delivery, program: EndedProgram) -> None:
        """A caller is about to receive the answer that its program ended well."""
        self._calls.answers(program.call, delivery)
        self._pending.append(_Answer(delivery, program))

    def answered(self, delivery: Delivery, held: Held, record: CallRecord, *, by_hook: bool = False) -> None:
        """A caller is about to receive the outcome of the earlier call that its own call repeats."""
        self.drop_owed(held)
        if held.owed is None:
            self._holds.answered(held.effect, record)
        answer = _Answer(delivery, held.owed, held.effect, record)
        self._pending.append(answer)
        self._denied += [answer] if by_hook else []

    def drop_owed(self, held: Held) -> None:
        """The outcome in `held` is owed to nobody any more: its caller receives it now, or a person decides about the call."""
        self._owed = [each for each in self._owed if each is not held.owed]

    def look(self) -> None:
        """Take back the answers whose caller was killed: the same call, made again, is answered again."""
        rest = []
        for each in self._pending:
            if each.delivery.look() == "lost":
                self._denied = [denied for denied in self._denied if denied is not each]
                self._take_back(each)
            elif not each.delivery.is_final:
                rest.append(each)
        self._pending = rest

    def agent_went_on(self) -> None:
        """A hook ran, so the agent has read the answers of the hooks before."""
        self._denied = []

    def begins(self, outward: Sequence[OutwardCall]) -> None:
        """A program is about to do this. If a hook has just denied the same, the hook was killed and the agent made the call
        all the same: it has not read that answer, so the answer is taken back."""
        unread = [
            each
            for each in self._denied
            if each.record is not None and nearest(each.record.outward, outward)[0] in SAME
        ]
        for each in unread:
            self._take_back(each)
        self._denied = [each for each in self._denied if each not in unread]
        self._pending = [each for each in self._pending if each not in unread]

    def _take_back(self, answer: _Answer) -> None:
        if answer.ended is not None:
            self._owed.append(answer.ended)
            self._calls.unheard(answer.ended.call)
        elif answer.record is not None:
            self._holds.take_back(answer.effect, answer.record)

    def owed(self, again: Sequence[OutwardCall], program: str = "") -> Held | None:
        """The answer for a call whose first caller never heard that it was made; None if no such call is the same.

        `program`: the name of the very program that is about to run, which then ends as the first one did. A program that
        starts it by other words (`npm run deploy`) is not answered in its place.
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
