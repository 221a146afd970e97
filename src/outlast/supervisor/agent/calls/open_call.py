"""A call of an agent from its intent to its outcome: everything that is known of it meanwhile."""

import base64
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from outlast.agents.events import ToolEnd
from outlast.agents.outward.classify import runs_text
from outlast.core.values import clip
from outlast.supervisor.agent.calls.identity import is_part
from outlast.supervisor.agent.calls.left_processes import Left, LeftRunning
from outlast.supervisor.agent.calls.record import SHIM, CallRecord, OutwardCall
from outlast.supervisor.socket.wire import Output

# In the text of a call: another PATH than ours, or the very words of a shim.
_UNSURE = re.compile(
    r"PATH=|was not run:|\b(?:env|command)\s+-|\b(?:sudo|doas|su|runuser|chroot|unshare|nsenter|systemd-run|docker|podman)\s"
)
OUTPUT_BYTES_MAX = 100_000


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call with a recorded intent and no recorded outcome.

    It is *under way* until the agent gets its result. Its outward work may continue after that: then it is in the
    *background*, and has its outcome when that ends.

    | in the journal | here                    | what happened                                                             |
    |----------------|-------------------------|---------------------------------------------------------------------------|
    | intended       |                         | it may be made; `live` of its programs run                                |
    | intended       | `failed`                | the agent was told that it failed: it counts when the agent goes on       |
    | intended       | `background`            | the agent was told `returned`, and programs or a `task` of it run on      |
    | happened       | nothing is `unseen`     | all its programs ended well, and their exit codes say so                  |
    | in doubt       | `lost`                  | a program of it was killed. That is on record at once, before anything    |
    |                |                         | else is judged; what the agent is told of the call changes nothing of it  |
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
    returned: ToolEnd | None = None  # what the agent was told of one that is in the background
    task: str = ""  # what the agent calls what runs on
    began_s: float = 0.0
    left: Left = ()  # processes that it left behind when it returned, and that may do yet what no shim has seen
    printed: Output | None = None  # by a program below a guarded command: a later attempt prints it again
    unheard: bool = False  # a program of it ended well, and its caller did not hear of that
    heard: bool = False  # the model went on after it returned, while what it left ran on

    @classmethod
    def of(cls, call: str, key: str, beat: int, n: int, record: CallRecord) -> "OpenCall":
        """One that was put on record just now."""
        return cls(
            id=call, key=key, beat=beat, n=n, lane=record.lane, is_outward=bool(record.outward), record=record,
            recorded=record.outward, unseen=() if key.startswith(SHIM) else record.outward, runs=runs_text(record.input), programs=_shimmed(record),
            below=record.below, began_s=LeftRunning.now_s(),
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
        failed call ended well; `not_done`: which programs a shim refused. `unheard`: the
        caller of one was not told how it ended."""
        all_seen = self.is_outward and not self.unseen and not self.waits
        is_known = end.sure or all_seen or self.code or not end.ok
        ok = end.ok and not self.code if is_known else None
        code = self.code or end.code
        told: dict[str, Any] = {"ok": ok, "output": clip(end.output, OUTPUT_BYTES_MAX)}
        told |= {} if code is None else {"exit_code": code}
        told |= {"not_done": self.not_done} if self.not_done else {}
        told |= {"unheard": True} if self.unheard else {}
        told |= {} if self.printed is None else printed_of(self.printed)
        return told | ({"done": sorted(self.done)} if ok is False and self.done else {})


def printed_of(output: Output) -> dict[str, Any]:
    """A program's output in its recorded form: text stays text, so that secrets in it can be masked."""
    told: dict[str, Any] = {"cut": output.cut} if output.cut else {}
    try:
        return told | ({"out": output.out.decode()} if output.out else {})
    except UnicodeDecodeError:
        return told | {"out64": base64.b64encode(output.out).decode()}


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


def covering(
    calls: Iterable[OpenCall], program: Sequence[OutwardCall], *, background: bool
) -> OpenCall | None:
    """The one call that is on record as doing all that a program is about to do, and of which no shim has seen that yet.

    Of several in the background that do the same, any: whichever of them the program belongs to, one more has begun.
    """
    found = [
        each
        for each in calls
        if each.background == background
        and not each.lost
        and all(is_part(one, each.recorded) for one in program)
    ]
    if background and all(each.recorded == found[0].recorded for each in found):
        found = [each for each in found if all(is_part(one, each.unseen) for one in program)][:1]
    is_one = len(found) == 1 and all(is_part(one, found[0].unseen) for one in program)
    return found[0] if is_one else None
