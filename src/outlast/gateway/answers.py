"""Reads the cost of an answer from a copy of its bytes: events of a stream or one JSON text, of four protocols.
Nothing a server sends makes it fail: the usage of an unreadable answer is unknown and gets estimated.
"""

import contextlib
from typing import TypeVar

import msgspec

from outlast import decoders
from outlast.core.values import Usage
from outlast.gateway.values import Kind

TOKENS_MAX = 10**12  # a number above it is nonsense, and must not reach the ledger
TEXT_MAX_CHARS = 500
SHORT_BYTES = 2_048  # of a text so short nothing is concluded
INPUT_BYTES_A_TOKEN = 3  # fewer bytes than a token of any known model has on average: an upper bound
OUTPUT_BYTES_A_TOKEN = 2
TOKENS_A_SECOND = 1_000  # no model writes faster
BYTES_A_TOKEN_MAX = 32  # of plain text: who says that so few tokens were so many bytes does not know, or lies
OUTPUT_UNKNOWN = 8_192  # for an answer of which nothing was seen, to a request that names no limit

Number = int | float | None  # a server may write 12.0

T = TypeVar("T")


class _Part(msgspec.Struct):
    """An object of which everything may be missing."""


# --- Anthropic Messages -------------------------------------------------------------------------------------


class _MessageUsage(_Part):
    input_tokens: Number = None
    output_tokens: Number = None
    cache_creation_input_tokens: Number = None
    cache_read_input_tokens: Number = None


class _Error(_Part):
    type: str | None = None
    code: str | int | None = None
    message: str | None = None
    status: str | None = None
    resets_at: Number = None
    resets_in_seconds: Number = None
    details: msgspec.Raw = msgspec.Raw(b"[]")


class _Message(_Part):
    id: str | None = None
    model: str | None = None
    usage: _MessageUsage | None = None


class _MessageDelta(_Part):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None


class _MessageEvent(_Message):
    type: str | None = None
    message: _Message | None = None
    delta: _MessageDelta | None = None
    error: _Error | None = None


# --- OpenAI -------------------------------------------------------------------------------------------------


class _Cached(_Part):
    cached_tokens: Number = None


class _ResponseUsage(_Part):
    input_tokens: Number = None
    output_tokens: Number = None
    input_tokens_details: _Cached | None = None


class _Response(_Part):
    id: str | None = None
    model: str | None = None
    usage: _ResponseUsage | None = None
    error: _Error | None = None


class _Item(_Part):
    encrypted_content: str | None = None


class _ResponseEvent(_Response):
    type: str | None = None
    response: _Response | None = None
    delta: msgspec.Raw = msgspec.Raw(b"")
    item: _Item | None = None
    code: str | None = None
    message: str | None = None


class _ChatUsage(_Part):
    prompt_tokens: Number = None
    completion_tokens: Number = None
    prompt_tokens_details: _Cached | None = None
    cached_tokens: Number = None  # Kimi
    prompt_cache_hit_tokens: Number = None  # DeepSeek


class _Function(_Part):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(_Part):
    function: _Function | None = None


class _ChatDelta(_Part):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _ChatMessage(_Part):
    content: msgspec.Raw = msgspec.Raw(b"")  # a text; some servers give parts


class _Choice(_Part):
    delta: _ChatDelta | None = None
    message: "_ChatMessage | None" = None  # of an answer that is no stream
    usage: _ChatUsage | None = None  # where Kimi once put it
    finish_reason: str | None = None


class _ChatEvent(_Part):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _ChatUsage | None = None
    error: _Error | None = None


# --- Gemini -------------------------------------------------------------------------------------------------


class _GeminiUsage(_Part):
    promptTokenCount: Number = None  # noqa: N815
    candidatesTokenCount: Number = None  # noqa: N815
    thoughtsTokenCount: Number = None  # noqa: N815
    cachedContentTokenCount: Number = None  # noqa: N815
    toolUsePromptTokenCount: Number = None  # noqa: N815


class _Candidate(_Part):
    content: msgspec.Raw = msgspec.Raw(b"")
    finishReason: str | None = None  # noqa: N815


class _GeminiEvent(_Part):
    candidates: list[_Candidate] | None = None
    usageMetadata: _GeminiUsage | None = None  # noqa: N815
    modelVersion: str | None = None  # noqa: N815
    responseId: str | None = None  # noqa: N815
    response: "_GeminiEvent | None" = None  # how Code Assist wraps it
    error: _Error | None = None


class Fault(msgspec.Struct, frozen=True):
    """An error that an answer speaks of, in whatever protocol."""

    codes: tuple[str, ...] = ()
    message: str = ""
    resets_at: float | None = None
    resets_in_s: float | None = None
    details: bytes = b""


class Reading:
    """The known facts about one answer so far."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.key = ""
        self.model = ""
        self.input = self.output = self.cache_read = self.cache_write = 0
        self.seen_bytes = 0  # of what the model said
        self.text_bytes = 0  # of it, or of a whole answer, what is surely text
        self.is_nonsense = False  # whether the provider gave a number that cannot be
        self.reported = False  # whether the provider gave numbers: of the whole answer, once it is complete
        self.final = False  # whether they are those of the whole answer, also if the rest of its bytes is cut
        self.fault: Fault | None = None

    def event(self, data: bytes) -> None:
        """One event of a stream, or a whole JSON body."""
        match self.kind:
            case "anthropic":
                self._anthropic(data)
            case "responses":
                self._responses(data)
            case "chat":
                self._chat(data)
            case "gemini":
                self._gemini(data)

    def usage(
        self, *, request_bytes: int, output_max: int | None, complete: bool, waited_s: float = float("inf")
    ) -> Usage:
        """Exact where the provider said so, else an upper bound that is marked."""
        lies = self.is_nonsense or self.output * BYTES_A_TOKEN_MAX + SHORT_BYTES < self.text_bytes
        if not lies and (self.final or (complete and self.reported)):
            return Usage(self.input, self.output, self.cache_read, self.cache_write)
        known = self.input or self.cache_read or self.cache_write
        input_bound = 0 if known else request_bytes // INPUT_BYTES_A_TOKEN + 1
        limit = _count(output_max) if output_max is not None else None
        if seen_bytes := max(self.seen_bytes, self.text_bytes if lies else 0):
            output_bound = seen_bytes // OUTPUT_BYTES_A_TOKEN + 1
            output_bound = output_bound if limit is None else min(output_bound, limit)
        else:
            output_bound = (
                OUTPUT_UNKNOWN
                if limit is None
                else int(min(limit, OUTPUT_UNKNOWN + waited_s * TOKENS_A_SECOND))
            )
        output_bound = max(output_bound, self.output)
        return Usage(
            self.input + input_bound, output_bound, self.cache_read, self.cache_write, estimated=True
        )

    # -- one protocol each -------------------------------------------------------------------------------------

    def _anthropic(self, data: bytes) -> None:
        event = decoded(data, _MESSAGE)
        if event is None:
            return
        if event.delta is not None:
            delta = event.delta
            self._saw(delta.text, delta.thinking, delta.partial_json)
        if event.error is not None:
            self._failed(event.error)
        message = event.message or event
        self._named(message.id, message.model)
        usage = message.usage
        if usage is not None:
            self.input = max(self.input, self._count(usage.input_tokens))
            self.output = max(self.output, self._count(usage.output_tokens))
            self.cache_write = max(self.cache_write, self._count(usage.cache_creation_input_tokens))
            self.cache_read = max(self.cache_read, self._count(usage.cache_read_input_tokens))
            self.final = self.final or (event.type != "message_start" and usage.output_tokens is not None)

    def _responses(self, data: bytes) -> None:
        event = decoded(data, _RESPONSE)
        if event is None:
            return
        if event.delta:
            self.seen_bytes += len(event.delta)
            self.text_bytes += len(event.delta)
        if event.item is not None and event.type == "response.output_item.done":
            self.seen_bytes += len(event.item.encrypted_content or "")
        if event.type == "error" and event.error is None:
            self._failed(_Error(code=event.code, message=event.message))
        response = event.response or event
        if event.response is not None or not (event.type or "").startswith("response."):
            self._named(response.id, response.model)
        if response.error is not None:
            self._failed(response.error)
        usage = response.usage
        if usage is not None:
            cached = self._count(
                usage.input_tokens_details.cached_tokens if usage.input_tokens_details else 0
            )
            self._prompt(self._count(usage.input_tokens), cached)
            self.output = max(self.output, self._count(usage.output_tokens))
            self.final = True

    def _chat(self, data: bytes) -> None:
        event = decoded(data, _CHAT)
        if event is None:
            return
        self._named(event.id, event.model)
        if event.error is not None:
            self._failed(event.error)
        usage = event.usage
        for choice in event.choices or ():
            usage = usage or choice.usage
            if choice.message is not None and bytes(choice.message.content).startswith(b'"'):
                self.text_bytes += len(choice.message.content)
            delta = choice.delta
            if delta is not None:
                self._saw(delta.content, delta.reasoning_content or delta.reasoning)
                for call in delta.tool_calls or ():
                    if call.function is not None:
                        self._saw(call.function.name, call.function.arguments)
        if usage is not None:
            details = usage.prompt_tokens_details
            cached_counts = (
                details.cached_tokens if details else None,
                usage.cached_tokens,
                usage.prompt_cache_hit_tokens,
            )
            self._prompt(self._count(usage.prompt_tokens), max(map(self._count, cached_counts)))
            self.output = max(self.output, self._count(usage.completion_tokens))
            self.reported = True
            # Some servers say it with every chunk: only beside the end of the answer is it of all of it.
            self.final = (
                self.final or not event.choices or any(choice.finish_reason for choice in event.choices)
            )

    def _gemini(self, data: bytes) -> None:
        if data.lstrip()[:1] == b"[":  # a stream that is one array
            for one in decoded(data, _ARRAY) or ():
                self._gemini(bytes(one))
            return
        event = decoded(data, _GEMINI)
        if event is None:
            return
        event = event.response or event
        self._named(event.responseId, event.modelVersion)
        if event.error is not None:
            self._failed(event.error)
        finished = False
        for candidate in event.candidates or ():
            self.seen_bytes += len(candidate.content)
            finished = finished or bool(candidate.finishReason)
        usage = event.usageMetadata
        if usage is not None:
            input_tokens = self._count(usage.promptTokenCount) + self._count(usage.toolUsePromptTokenCount)
            self._prompt(input_tokens, self._count(usage.cachedContentTokenCount))
            output_tokens = self._count(usage.candidatesTokenCount) + self._count(usage.thoughtsTokenCount)
            self.output = max(self.output, output_tokens)
            self.reported = True
            self.final = self.final or finished or not event.candidates

    # -- what they share ---------------------------------------------------------------------------------------

    def _prompt(self, whole: int, cached: int) -> None:
        """A prompt whose number includes what came from the cache; the latest number counts."""
        if whole or cached:
            self.cache_read = min(cached, whole) if whole else cached
            self.input = max(0, whole - cached)

    def _named(self, key: str | None, model: str | None) -> None:
        if key and not self.key:
            self.key = key[:TEXT_MAX_CHARS]
        if model and not self.model:
            self.model = model[:TEXT_MAX_CHARS]

    def _saw(self, *texts: str | None) -> None:
        for text in texts:
            if text:
                size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
                self.seen_bytes += size
                self.text_bytes += size

    def _count(self, number: Number) -> int:
        """A number of the provider's; one that cannot be is as good as none."""
        if number is not None and not 0 <= number <= TOKENS_MAX:
            self.is_nonsense, number = True, None
        return _count(number)

    def _failed(self, error: _Error) -> None:
        self.fault = _fault(error)


def fault_in(data: bytes) -> Fault | None:
    """The error in the body of an answer that is one."""
    found = decoded(data, _FAILED)
    if found is None:
        several = decoded(data, _ARRAY) or ()
        found = next((one for one in (decoded(bytes(raw), _FAILED) for raw in several) if one), None)
    return _fault(found.error) if found is not None and found.error is not None else None


def _fault(error: _Error) -> Fault:
    codes = tuple(str(code)[:TEXT_MAX_CHARS] for code in (error.type, error.code, error.status) if code)
    message = (error.message or "")[:TEXT_MAX_CHARS]
    return Fault(codes, message, error.resets_at, error.resets_in_seconds, bytes(error.details))


class _Failed(_Part):
    error: _Error | None = None


_MESSAGE = decoders.of_json(_MessageEvent)
_RESPONSE = decoders.of_json(_ResponseEvent)
_CHAT = decoders.of_json(_ChatEvent)
_GEMINI = decoders.of_json(_GeminiEvent)
_ARRAY = decoders.of_json(list[msgspec.Raw])
_FAILED = decoders.of_json(_Failed)


def decoded(data: "msgspec.Raw | bytes | None", decoder: "msgspec.json.Decoder[T]") -> T | None:
    """The value, or None if the bytes are no value: bytes from outside must not raise."""
    if data is None:
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        return decoder.decode(data)
    return None


def _count(number: Number) -> int:
    return int(min(max(0, number or 0), TOKENS_MAX))
