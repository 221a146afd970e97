"""The values between the gateway and the meter: calls, refusals, usage, walls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from outlast.core.values import Usage, Window

Kind = Literal["anthropic", "responses", "chat", "gemini"]
# complete: to its last byte. client, upstream: who cut it. gateway: we were closed. unreached: nothing was sent.
Ended = Literal["complete", "client", "upstream", "gateway", "unreached"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a model's answer, before it is forwarded. `model` and `output_max` as far as they can be read."""

    id: str
    kind: Kind
    host: str
    model: str = ""
    request_bytes: int = 0
    output_max: int | None = None
    tools: bool = False  # whether the request offers tools: titles and other asides do not


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call is not forwarded: the agent reads these words as its API's error."""

    words: str


@dataclass(frozen=True, slots=True)
class Wall:
    """A limit of the account that an answer named; `resets_at` is None if the answer has no time."""

    kind: Literal["usage_limit", "rate_limit"]
    resets_at: datetime | None
    words: str


@dataclass(frozen=True, slots=True)
class CallUsage:
    """The outcome of one forwarded call. `key`: the provider's id of the response, else our id of the call.

    `status` is 0 where no answer came. `message`: the words of `Meter.words` that this call carried to the model.
    """

    call: Call
    key: str
    model: str
    usage: Usage
    status: int
    ended: Ended
    limit: Wall | None = None
    windows: tuple[Window, ...] = ()
    message: str = ""


class Meter(Protocol):
    """Decides and counts. All methods are called in the gateway's thread: be quick, every stream waits meanwhile.

    A `before` that raises refuses the call; after an `after` that raised, every further call is refused.
    """

    def before(self, call: Call) -> Refusal | None:
        """Whether the call may be forwarded."""

    def closed(self) -> Refusal | None:
        """Whether nothing more may be sent, also nothing that does not look like a call."""

    def after(self, spent: CallUsage) -> None:
        """Exactly once for each call that `before` let pass, whatever became of it."""

    def words(self) -> str:
        """A message for the agent, or nothing. The gateway carries a message until a call has delivered it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's network settings, as in the environment of the agent: proxies and certificates."""

    environment: Mapping[str, str] = field(default_factory=dict)

    def first(self, *names: str) -> str:
        """The first of these variables that is set, in either case."""
        for name in names:
            for spelled in (name.lower(), name.upper()):
                if self.environment.get(spelled):
                    return self.environment[spelled]
        return ""
