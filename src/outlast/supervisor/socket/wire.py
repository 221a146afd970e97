"""The supervisor's socket: versioned, length-prefixed JSON messages between hooks, shims and the supervisor.

A frame is four bytes of length, big-endian, and that many bytes of JSON. A malformed frame is refused."""

from typing import Literal

import msgspec

from outlast import decoders
from outlast.core.events import Finding, Policy
from outlast.errors import UsageError

VERSION = 1
FIRST = 1  # of a message that names none: those of the first version do not
FRAME_MAX_BYTES = 32 << 20
REFUSED = 125  # the exit code of what was not run


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of all messages. A side skips a field that it does not know; if that would be wrong, `VERSION` grows.

    `acks`: the sender acknowledges the answer as its last act (`connection.TAKEN`). An older sender does not.
    """

    version: int = FIRST
    attempt: str = ""
    acks: bool = False


class Intent(Message, frozen=True, tag="intent"):
    """A call is about to happen; answered with a Verdict when that is durable."""

    call: str
    name: str
    signature: str = ""
    input: msgspec.Raw = msgspec.Raw(b"null")
    policy: Policy = "tell"


class Outcome(Message, frozen=True, tag="outcome"):
    """A call ended, or was found out about."""

    call: str
    finding: Finding
    result: msgspec.Raw = msgspec.Raw(b"null")


class Budget(Message, frozen=True, tag="budget"):
    """Ask how much of the budget is left."""


class Note(Message, frozen=True, tag="note"):
    """Something to put on record: a stage, a memory ref (`name` and its pointer), a text, a script's own names.

    `hello` is answered with a Welcome, `ask` with a person's answer: to `text`, with `choices`, `within` a time; `command` with
    what that command printed (`launch/relayed_commands.py`). `spent` tells what the run `name`, started inside of this one, has
    cost so far. The others tell how a shell fares: `name` is its pid, `text` the signal or code.
    """

    kind: Literal[
        "stage",
        "remember",
        "text",
        "names",
        "hello",
        "spent",
        "command",
        "interrupted",
        "went_on",
        "killed",
        "left",
        "ask",
    ]
    text: str
    name: str = ""
    names: dict[str, str] = {}
    choices: tuple[str, ...] = ()
    within: str = ""


class Call(Message, frozen=True, tag="call"):
    """A script is about to run a command as a step or an effect; answered with Orders until one ends it.

    `missing` is the exit code where its program is not there: then it is answered from the record, or refused. `within`: which
    call of a script it was itself started for.
    """

    kind: Literal["step", "effect"]
    name: str
    words: tuple[str, ...]
    key: str = ""
    unknown: str = ""
    probe: str = ""
    retry_failed: bool = False
    missing: int = 0
    names: dict[str, str] = {}
    within: str = ""
    approve: bool = False  # a person approves it first, within `approve_within`
    approve_within: str = ""


class Hook(Message, frozen=True, tag="hook"):
    """An agent's hook was run, with this input. Its answer is a frame of one byte, the exit code, and what to print."""

    agent: str
    data: bytes


class Shim(Message, frozen=True, tag="shim"):
    """A program that may reach outside is about to run below an agent; answered with an Order, as a Call is.

    `variables`: those of its environment that name a target. `fed`: something may come through its standard input.
    `sent`: what came, where it is the content of the call. `sent_ns`: when it asked, by the monotonic clock; it waits for so
    long, and runs nothing after that. `call`: which call of a script it was started for, as its environment says.
    """

    words: tuple[str, ...]
    cwd: str
    variables: dict[str, str] = {}
    fed: bool = False
    sent: str | None = None
    sent_ns: int = 0
    call: str = ""
    steps: tuple[str, ...] = ()  # which steps of a script it is below: the server says so
    mark: str = ""  # with which its program is started: the server says so
    # The shim's process and those above it, the nearest first, by pid and start: the server says so. Empty: not known.
    above: tuple[tuple[int, int], ...] = ()


class ToolCall(Message, frozen=True, tag="tool"):
    """An agent calls a tool of `outlast mcp`, with arguments as in `tools.py`; answered with a Verdict whose body is its result, or
    with an Order that refuses."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class Order(Message, frozen=True, tag="order"):
    """The next act of the script's side. `run` and `probe` are answered with a Report; the others end the call.

    `call` marks what is started for it, so that it is found and stopped when the script's side dies. `keeps`: how many
    bytes of what a shim's program prints are reported. `wait`: a person must answer first, and the attempt is about to be
    stopped: the script's side stays where it is until then. `out`: what a shim prints in the place of its program, in base64.
    """

    do: Literal["run", "probe", "replay", "done", "refuse", "missing", "wait"]
    key: str = ""
    occurrence: int = 0  # which call of its name a step is
    call: str = ""
    exit_code: int = 0
    output: str = ""
    reason: str = ""
    hint: str = ""
    keeps: int = 0
    out: bytes = b""


class Started(Message, frozen=True, tag="started"):
    """The command of an order is about to run as this process, which says so itself and begins when it is answered.

    A Report follows when it has ended.
    """

    pid: int


class Report(Message, frozen=True, tag="report"):
    """The outcome of an order. Output lies in a file, as msgpack of `Output`.

    `missing`: the program cannot be started. `killed`: it died of a signal, not by an exit code that looks like one.
    `stopped`: a signal wanted us to end meanwhile. `ended_ns`: when it ended, by the monotonic clock. `unkept`: why its
    output could not be left anywhere. `out`: what a shim's program printed, in base64, if an Order asked for it; `cut`: how much more it was.
    """

    exit_code: int
    output: str = ""
    missing: str = ""
    killed: bool = False
    stopped: bool = False
    ended_ns: int = 0
    unkept: str = ""
    out: bytes = b""
    cut: int = 0


class Verdict(Message, frozen=True, tag="verdict"):
    """The answer: go on, or denied with the reason for the agent."""

    allowed: bool
    reason: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")


class Welcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """A script's data to go on: its names at the interruption, and the pipe for its notes."""

    pipe: str
    names: dict[str, str] = {}
    recovered: str = ""


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command's output in its recorded form, replayed to the byte. The other fields are as in a Report.

    `left`: what the command of an effect left running, for longer than that is waited for, in words.
    """

    exit_code: int
    out: bytes = b""
    err: bytes = b""
    cut: int = 0
    missing: str = ""
    killed: bool = False
    stopped: bool = False
    unkept: str = ""
    left: str = ""


class ShimAnswer(msgspec.Struct, frozen=True):
    """How a shim ends. With a `reason` its program was not run: `out` and the exit code stand for it."""

    reason: str = ""
    exit_code: int = 0
    out: bytes = b""


AnyMessage = (
    Intent | Outcome | Budget | Note | Verdict | Call | Hook | Shim | ToolCall | Order | Started | Report
)


def frame(message: AnyMessage) -> bytes:
    """A message as it goes over the socket."""
    body = msgspec.json.encode(msgspec.structs.replace(message, version=VERSION))
    if len(body) > FRAME_MAX_BYTES:
        raise UsageError(f"a message of {len(body):,} bytes is too large for the supervisor's socket")
    return len(body).to_bytes(4, "big") + body


def unframe(data: bytes | bytearray) -> tuple[AnyMessage | None, bytes | bytearray]:
    """The first whole message in the bytes received so far, and the rest; None while it is not whole."""
    if len(data) < 4:
        return None, data
    size = int.from_bytes(data[:4], "big")
    if size > FRAME_MAX_BYTES:
        raise UsageError(f"a frame of {size:,} bytes is too large")
    if len(data) < 4 + size:
        return None, data
    try:
        message: AnyMessage = decoders.decode(data[4 : 4 + size], AnyMessage)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UsageError(f"a message cannot be read: {error}") from error
    if message.version > VERSION:
        raise UsageError(
            f"one side of this run's socket is a newer outlast: a message has version {message.version},"
            f" and {VERSION} is understood; nothing was done",
            hint="use the outlast that started the run until it has ended, or stop it and resume it with the newer one",
        )
    return message, data[4 + size :]
