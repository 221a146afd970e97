"""A call of an agent from its intent to its outcome: everything that is known of it meanwhile."""

import base64
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from outlast.agents.events import ToolEnd
from outlast.agents.outward.classify import runs_text
from outlast.core import events as ev
from outlast.core.values import clip
from outlast.supervisor.agent.calls.identity import is_part
from outlast.supervisor.agent.calls.left_processes import Left, LeftRunning
from outlast.supervisor.agent.calls.record import SHIM, CallRecord, OutwardCall
from outlast.supervisor.socket.delivery import Delivery
from outlast.supervisor.socket.wire import Output

# In the text of a call: another PATH than ours, or the very words of a shim.
_UNSURE = re.compile(
    r"PATH=|was not run:|\b(?:env|command)\s+-|\b(?:sudo|doas|su|runuser|chroot|unshare|nsenter|systemd-run|docker|podman)\s"
)
OUTPUT_BYTES_MAX = 100_000
UNNAMED = "?"  # a task that no result has named yet
# The switches by which a model asks that its CLI runs a command in the background.
BACKGROUND = ("run_in_background", "is_background")


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call with a recorded intent and no recorded outcome.

    It is *under way* until the agent gets its result. Its outward work may continue after that: then it is in the
    *background*, and has its outcome when that ends.

    | in the journal | here                    | what happened                                                             |
    |----------------|-------------------------|---------------------------------------------------------------------------|
    | nothing        | `unwritten`             | it stays inside; a kill leaves it to the agent's transcript               |
    | intended       |                         | it may be made; `live` of its programs run                                |
    | intended       | `failed`                | the agent got a failure as its result: it counts when the agent goes on   |
    | intended       | `background`            | the agent got `returned` as its result; programs or a `task` of it run on |
    | happened       | nothing is `unseen`     | all its programs ended well, and their exit codes say so                  |
    | in doubt       | `lost`                  | a program of it was killed. That is on record at once, before anything    |
    |                |                         | else is judged; a result that the agent gets does not change it           |
    | confirmed, failed, in doubt, settled | not here | it is over                                                          |
    """

    id: str  # the agent's own; two calls of some agents have the same
    key: str  # the effect's; nothing else has it
    beat: int
    n: int
    lane: str
    is_outward: bool
    record: CallRecord
    recorded: tuple[OutwardCall, ...] = ()  # what its intent says that it does outside
    unseen: tuple[OutwardCall, ...] = ()  # of that, what no shim has seen yet
    programs: tuple[str, ...] = ()  # those that do it, one for each, if each is found on the PATH
    not_done: tuple[str, ...] = ()  # the signatures whose program its shim refused
    runs: bool = False  # programs, so that a shim may see what it does
    below: tuple[str, ...] = ()
    waits: int = 0  # programs that a shim saw begin and not end well yet
    live: int = 0  # programs that a shim saw begin and not end
    lost: bool = False  # a program of it was killed: whatever its own result says, nobody knows what it did
    sure: bool = True  # the exit codes so far say that it happened
    code: int = 0  # with which a program of it failed, by its shim
    done: frozenset[int] = frozenset()  # which of `recorded` ended with exit code 0, by their shims
    ended: ToolEnd | None = None  # of what only a shim saw: well, below a call that has not ended
    failed: ToolEnd | None = None  # what the agent says of a call that reaches outside and failed
    background: bool = False
    returned: ToolEnd | None = None  # the result that the agent got of one that is in the background
    task: str = ""  # the agent's own id of the task that runs on, or UNNAMED
    began_s: float = 0.0
    left: Left = ()  # processes that it left behind when it returned, and that may do yet what no shim has seen
    printed: Output | None = None  # by a program below a guarded command: a later attempt prints it again
    answers: tuple[Delivery, ...] = ()  # to callers of its programs, of those that ended well
    unheard: bool = False  # a program of it ended well, and its agent did not read of that
    unwritten: ev.EffectIntended | None = None  # its intent, of a local call: on record with its outcome
    heard: bool = False  # the model went on after it returned, while what it left ran on

    @classmethod
    def of(
        cls,
        call: str,
        key: str,
        beat: int,
        n: int,
        record: CallRecord,
        unwritten: ev.EffectIntended | None = None,
    ) -> "OpenCall":
        """One that was put on record just now, or that is `unwritten`."""
        return cls(
            id=call, key=key, beat=beat, n=n, lane=record.lane, is_outward=bool(record.outward), record=record,
            recorded=record.outward, unseen=() if key.startswith(SHIM) else record.outward, runs=runs_text(record.input), programs=_shimmed(record),
            below=record.below, began_s=LeftRunning.now_s(), unwritten=unwritten,
        )  # fmt: skip

    @property
    def unseen_programs(self) -> tuple[str, ...]:
        """The programs that do what no shim has seen yet."""
        pairs = zip(self.programs, self.recorded, strict=False)
        return tuple(program for program, each in pairs if each in self.unseen)

    @property
    def effect(self) -> str:
        """The id of its effect."""
        return f"{self.beat}.{self.n}"

    @property
    def asks_for_background(self) -> bool:
        """Whether its result comes before its command has ended: whatever its words are, they tell of no end."""
        given = self.record.input
        return self.runs and isinstance(given, dict) and any(given.get(each) is True for each in BACKGROUND)

    @property
    def runs_on(self) -> bool:
        """Whether a living process of this call does, or may still do, its outward work."""
        if self.by_shim:
            return self.ended is None and self.failed is None
        return self.live > 0 or bool(self.left and self.unseen)

    @property
    def by_shim(self) -> bool:
        """Whether only a shim saw it."""
        return self.key.startswith(SHIM)

    def result(self, end: ToolEnd) -> dict[str, Any]:
        """The recorded result. `ok` is None if no exit code is known.

        A failed program makes it a failure, even if the call succeeded (`git push || true`). `done`: which programs of a
        failed call ended well; `not_done`: which programs a shim refused. `unheard`: the caller of a program did not
        receive its result."""
        all_seen = self.is_outward and not self.unseen and not self.waits
        is_known = end.sure or all_seen or self.code or not end.ok
        ok = end.ok and not self.code if is_known else None
        code = self.code or end.code
        result: dict[str, Any] = {"ok": ok, "output": clip(end.output, OUTPUT_BYTES_MAX)}
        result |= {} if code is None else {"exit_code": code}
        result |= {"not_done": self.not_done} if self.not_done else {}
        is_unheard = self.unheard or any(each.look() == "lost" for each in self.answers)
        result |= {"unheard": True} if is_unheard else {}
        result |= {} if self.printed is None else printed_of(self.printed)
        return result | ({"done": sorted(self.done)} if ok is False and self.done else {})


def printed_of(output: Output) -> dict[str, Any]:
    """A program's output in its recorded form: text stays text, so that secrets in it can be masked."""
    printed: dict[str, Any] = {"cut": output.cut} if output.cut else {}
    try:
        return printed | ({"out": output.out.decode()} if output.out else {})
    except UnicodeDecodeError:
        return printed | {"out64": base64.b64encode(output.out).decode()}


def printed_again(result: object) -> bytes | None:
    """A program's output, from the recorded result of its call; None if it was too long to keep.

    A person who settles a call as happened may give its output as the result.
    """
    if isinstance(result, str):
        return f"{result}\n".encode()
    if not isinstance(result, dict):
        return b""
    if result.get("cut"):
        return None
    return base64.b64decode(result["out64"]) if "out64" in result else str(result.get("out", "")).encode()


def _shimmed(record: CallRecord) -> tuple[str, ...]:
    """The programs of a call that reach outside, if a shim stands before each, and only a shim says that one was not run.

    One named by its path has no shim, nor has one that is looked up on another PATH.
    """
    programs = tuple(each.words[0] for each in record.outward if each.words)
    text = str(record.input)
    is_sure = len(programs) == len(record.outward) and runs_text(record.input) and not _UNSURE.search(text)
    by_name = all(program in text and f"/{program}" not in text for program in programs)
    return programs if is_sure and by_name else ()


def left_by(
    calls: Iterable[OpenCall], program: Sequence[OutwardCall], orphan: Left
) -> tuple[bool, OpenCall | None]:
    """Whether a call in the background is known to have left this program's process, and which one, if no shim has seen that
    it does this. `orphan`: that process and those above it that were left, the oldest first.

    A process that was left while two calls were under way may belong to either. It most likely belongs to the later one.
    """
    for process in orphan:
        owners = [each for each in calls if process in each.left]
        if owners:
            able = [each for each in owners if not each.lost and _is_unseen(program, each)]
            return True, max(able, key=lambda each: each.began_s, default=None)
    return False, None


def _is_unseen(program: Sequence[OutwardCall], opened: OpenCall) -> bool:
    return all(is_part(one, opened.unseen) for one in program)


def covering(calls: Iterable[OpenCall], program: Sequence[OutwardCall]) -> OpenCall | None:
    """The one call that is on record as doing all that a program is about to do, and of which no shim has seen that yet.

    One in the background counts only where none under way does. Of several there that do the same, and where nobody knows
    which of them left the program, any.
    """
    alike = [each for each in calls if not each.lost and all(is_part(one, each.recorded) for one in program)]
    under_way = [each for each in alike if not each.background]
    if len(under_way) == 1 and _is_unseen(program, under_way[0]):
        return under_way[0]
    found = [each for each in alike if each.background]
    if all(each.recorded == found[0].recorded for each in found):
        found = [each for each in found if _is_unseen(program, each)][:1]
    return found[0] if len(found) == 1 and _is_unseen(program, found[0]) else None
