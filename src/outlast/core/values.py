"""The values that events are made of: payloads, usage, budgets, contracts, memory refs."""

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

V_co = TypeVar("V_co", covariant=True)
PAYLOAD_INLINE_MAX_BYTES = 4096
NULL = msgspec.Raw(b"null")


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of everything on disk: frozen, and defaults are not written."""


class Payload(Value, frozen=True):
    """A recorded value: JSON inline, or a content-addressed blob when it is large."""

    v: msgspec.Raw = NULL
    blob: str = ""
    size: int = 0


NOTHING = Payload()


class Usage(Value, frozen=True):
    """The cost of a model's answer. Tokens by kind; money in integer micro-dollars; the time an agent lived.

    `estimated`: some of it is an upper bound. `subscription`: some of it is paid by a subscription. `unpriced`: some of
    it has no known price.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_microusd: int = 0
    estimated: bool = False
    time_ms: int = 0
    subscription: bool = False
    unpriced: bool = False

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    def plus(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cost_microusd + other.cost_microusd,
            self.estimated or other.estimated,
            self.time_ms + other.time_ms,
            self.subscription or other.subscription,
            self.unpriced or other.unpriced,
        )

    def minus(self, other: "Usage") -> "Usage":
        """The usage less a part, never below zero."""
        return Usage(
            max(0, self.input - other.input),
            max(0, self.output - other.output),
            max(0, self.cache_read - other.cache_read),
            max(0, self.cache_write - other.cache_write),
            max(0, self.cost_microusd - other.cost_microusd),
            self.estimated,
            max(0, self.time_ms - other.time_ms),
            self.subscription,
            self.unpriced,
        )


class Window(Value, frozen=True):
    """The share of a subscription's window that is used up, as the agent's CLI reported it: a gauge, not a sum."""

    used_pct: float
    resets_at: datetime | None = None
    name: str = ""


class Answer(msgspec.Struct, Generic[V_co], frozen=True):
    """A return value of a decision's function: the value to record, and its cost."""

    value: V_co
    usage: Usage = Usage()


class Allowance(Value, frozen=True):
    """A budget: a limit per unit, or None. `until`: a moment; `reserve_pct`: the share reserved for the run's own ending."""

    tokens: int | None = None
    cost_microusd: int | None = None
    time_s: int | None = None
    beats: int | None = None
    window_pct: int | None = None
    until: datetime | None = None
    reserve_pct: int | None = None

    def plus(self, more: "Allowance") -> "Allowance":
        """The budget with more on top. A unit without a limit stays without one."""
        names = ("tokens", "cost_microusd", "time_s", "beats", "window_pct")
        pairs = {name: (getattr(self, name), getattr(more, name)) for name in names}
        return msgspec.structs.replace(
            self, **{name: None if a is None else a + (b or 0) for name, (a, b) in pairs.items()}
        )

    def minus(self, less: "Allowance") -> "Allowance":
        """The budget without what was moved elsewhere. A limit stays above zero. A share of a window cannot be moved."""
        names = ("tokens", "cost_microusd", "time_s", "beats")
        pairs = {name: (getattr(self, name), getattr(less, name)) for name in names}
        return msgspec.structs.replace(
            self, **{name: None if a is None else max(1, a - (b or 0)) for name, (a, b) in pairs.items()}
        )


class Contract(Value, frozen=True):
    """What the run must reach (goal), prove (checks) and never break (invariants)."""

    goal: str = ""
    checks: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return digest(msgspec.json.encode(self))

    @property
    def title(self) -> str:
        line = self.goal.strip().split("\n", 1)[0]
        return line if len(line) <= 160 else line[:159] + "…"


class MemoryRef(Value, frozen=True):
    """A pointer to what the agent wants back. The digest shows whether it is still the same."""

    name: str
    uri: str
    digest: str = ""


class Parent(Value, frozen=True):
    """The beat that a child run belongs to."""

    run: str
    beat: int
    root: str


class Origin(Value, frozen=True):
    """Where a run was begun, so that it is found again when its project is called otherwise.

    `folder` is a real path and `inode` its number; `program` is the real path of the Python program; `named`: the caller
    gave the project's name.
    """

    folder: str = ""
    inode: int = 0
    program: str = ""
    named: bool = False


class ForkPoint(Value, frozen=True):
    """The save point that a forked run starts from."""

    run: str
    beat: int
    seq: int


class SessionMark(Value, frozen=True):
    """How far an agent CLI's own transcript was at a save point. `lanes`: what its sub-agents had cost by then."""

    agent: str
    session: str
    path: str = ""
    length: int = 0
    digest: str = ""
    lanes: Usage | None = None
    model: str = ""


class Check(Value, frozen=True):
    """One check and its result."""

    command: str
    exit_code: int
    output: str = ""


def digest(data: bytes) -> str:
    """A short content digest, for comparing; not for naming blobs."""
    import hashlib  # loads OpenSSL, which would add 3 ms to importing outlast

    return hashlib.blake2b(data, digest_size=16).hexdigest()


def scrub(text: str) -> str:
    """A text that can be written: lone surrogates, as in names that are not UTF-8, become escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def clip(text: str, bytes_max: int) -> str:
    """The beginning of a text that takes at most so many bytes of JSON, in any script."""
    text = scrub(text)
    if len(msgspec.json.encode(text)) - 2 <= bytes_max:
        return text
    chars = bytes_max
    while len(msgspec.json.encode(text[:chars])) - 2 > bytes_max - 3:
        chars = chars * 3 // 4
    return text[:chars] + "…"


def shorten(text: str, chars_max: int) -> str:
    """The beginning of a text, marked where it was cut."""
    text = scrub(text)
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"
