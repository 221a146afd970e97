"""Kimi Code: what its command line, `wire.jsonl` and hooks mean, and how it is started and resumed.

Read from 2.1.0. Hooks can only be set in its home's config.toml: it is given a home of the run's own that is the
user's in all else. It fails open: a hook that exits with anything but 2, or late, lets the call run.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from outlast.agents import Common
from outlast.agents.common import (
    argv,
    background,
    endings,
    json_lines,
    launch as common_launch,
    providers,
    repair,
    versions,
)
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Final,
    Response,
    Retry,
    Session,
    TaskEnd,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.agents.kimi import provider
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, Caps, Cut, Hook, Payment, Route
from outlast.core import values
from outlast.errors import UsageError

NAME = "kimi-code"
PACKAGES = ("@moonshot-ai/kimi-code",)
TRIED = versions.TestedVersions("Kimi Code", (2, 0), (2, 1), "see `kimi upgrade`")
HOME = ("KIMI_CODE_HOME", ".kimi-code")
TAIL_LINES_MAX = 40
INDEX_MAX_BYTES = 64 << 20
ALIASES_MAX = 256
HOOKED = ("SessionStart", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "StopFailure")
# What it makes in its home, and must come to lie in the user's.
FOLDERS = ("sessions", "logs", "cache", "credentials")
FILES = ("session_index.jsonl", "device_id")

TABLE = argv.Table(
    valued=frozenset("--model --prompt --output-format --skills-dir --agent --agent-file --add-dir".split()),
    optional=frozenset(["--session"]),
    bare=frozenset("--version --continue --yolo --auto --plan --help".split()),
    aliases={
        "-V": "--version", "-S": "--session", "-r": "--session", "--resume": "--session", "-c": "--continue",
        "-y": "--yolo", "-m": "--model", "-p": "--prompt", "-h": "--help",
    },
)  # fmt: skip
SUBCOMMANDS = frozenset(
    """export fork provider session acp web server rc remote login doctor vis install-desktop migrate upgrade
    update""".split()
)
ELSEWHERE = ("--version", "--help")
SESSION_FLAGS = ("--session", "--continue")
NAMES = common_launch.Names(
    frozenset(["kimi"]),
    frozenset(PACKAGES),
    file=re.compile(r"@moonshot-ai/kimi-code(?:-[\w-]+)?/(?:[\w.-]+/)*[\w.-]+$"),
)
_SESSION = re.compile(r"[A-Za-z0-9][\w-]{0,127}")


# --- the shapes of its lines; what is not named is skipped unread --------------------------------------------


class _Tokens(msgspec.Struct, frozen=True, rename="camel"):
    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0


class _Part(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    output: msgspec.Raw = values.NULL
    is_error: bool | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    uuid: str = ""
    turn_id: str = ""
    step: int = 0
    step_uuid: str = ""
    tool_call_id: str = ""
    name: str = ""
    args: msgspec.Raw = values.NULL
    part: _Part | None = None
    result: _Result | None = None


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str = ""
    status: str = ""
    exit_code: int | None = None


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    info: _Task | None = None
    agent_id: str = ""
    event: _Event | None = None
    model: str = ""
    model_alias: str = ""
    usage: _Tokens | None = None
    time: int = 0
    failed_attempt: int = 0
    error_message: str = ""


class HookInput(msgspec.Struct, frozen=True):
    """A hook's input; kimi-cli writes the same."""

    hook_event_name: str = ""
    session_id: str = ""
    tool_name: str = ""
    tool_call_id: str = ""
    tool_input: msgspec.Raw = values.NULL
    tool_output: msgspec.Raw = values.NULL
    error: msgspec.Raw = values.NULL


_line: "msgspec.json.Decoder[_Line]" = msgspec.json.Decoder(_Line)
_hook_input: "msgspec.json.Decoder[HookInput]" = msgspec.json.Decoder(HookInput)
_WANTED = re.compile(
    rb'"type":\s?"(?:context\.append_loop_event|usage\.record|llm\.request|task\.terminated|turn\.(?:ended|step\.retrying))"'
)


class KimiCode(Common):
    """The adapter. The clock is an argument."""

    name = NAME
    caps = Caps(intent=("hooks", "shims", "transcript"), resume=True, mends=True)

    def __init__(self, clock: Callable[[], datetime] = common_launch.now) -> None:
        self._clock = clock
        self._models: dict[str, str] = {}  # by the names that the user's settings give them

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        start = common_launch.start(words, program, NAMES)
        if start is None or (start == 1 and common_launch.is_python(program) and not NAMES.is_file(program)):
            return False  # kimi-cli has the same name, and is a Python script
        parts = argv.split(words[start:], TABLE)
        return argv.opens_session(parts, SUBCOMMANDS, ELSEWHERE)

    def is_headless(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--prompt")

    def prompt(self, words: Sequence[str]) -> str:
        return argv.value(_parts(words)[1], "--prompt") or ""

    def version(self, program: str, run: versions.Runner | None = None) -> str:
        return versions.of(program, PACKAGES, run)

    def problem(self, version: str) -> str:
        return TRIED.problem(version)

    def untested(self, version: str) -> str:
        return TRIED.untested(version)

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = _parts(ask.words)
        session = _named(parts)
        if ask.session is not None:
            session = ask.session.session
            # It refuses to be given an agent's definition together with a session.
            parts = argv.without(parts, *SESSION_FLAGS, "--agent", "--agent-file", "--plan")
            parts = (*parts, argv.Part(("--session", session), ("--session",), (session,)))
        elif ask.prompt:
            session, parts = "", argv.without(parts, *SESSION_FLAGS)
        if ask.interactive:
            parts = argv.without(parts, "--prompt", "--output-format")
        elif ask.prompt:
            word = f"--prompt={ask.prompt}"
            parts = (*argv.without(parts, "--prompt"), argv.Part((word,), ("--prompt",), (ask.prompt,)))
        environment = {**_home(ask), **_login(ask).variables(ask)}
        return AgentCommand((*ask.words[:start], *argv.joined(parts)), environment, session)

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("kimi", "--session", session)

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Headless it never asks: it has no safer mode, and refuses the flags that say so."""
        return ("kimi", f"--prompt={prompt}")

    def trusting(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--prompt", "--auto")

    # --- its provider ---

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        return _read_login(words, environment).model

    def billing(self, ask: Ask) -> Payment:
        return _login(ask).billing()

    def account(self, ask: Ask) -> str:
        return _login(ask).account()

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        routed = _login(ask).gateway(ask, route)
        try:
            if isinstance(routed, str) or provider.is_rewritten(_config(routed), routed):
                return routed
        except OSError:
            return "its config.toml cannot be read"
        return "its config.toml has a base_url that cannot be found there: write each on a line of its own"

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        home = common_launch.home(ask.environment, *HOME)
        if home is None or not _SESSION.fullmatch(session):
            return None
        return next(iter(sorted(home.glob(f"sessions/*/{session}/agents/main/wire.jsonl"))), None)

    def lanes(self, transcript: Path) -> tuple[Path, ...]:
        """The transcripts of its sub-agents, which are files beside its own."""
        found = sorted(transcript.parent.parent.glob("*/wire.jsonl"))
        return tuple(path for path in found if path != transcript)

    def sidecars(self, transcript: Path) -> tuple[Path, ...]:
        return (transcript.parents[2] / "state.json",)

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        if not _WANTED.search(line):
            return
        read = json_lines.decode(line, _line)
        if read is None:
            return
        lane = "" if read.agent_id in ("", "main") else read.agent_id
        match read.type:
            case "context.append_loop_event" if read.event is not None:
                yield from _looped(read.event, lane)
            case "llm.request":
                if read.model_alias and len(self._models) < ALIASES_MAX:
                    self._models[read.model_alias] = read.model
            case "usage.record" if read.usage is not None:
                # The step's end tells the same once more, with its provider's id; a kill can come before that.
                model = providers.bare(self._models.get(read.model, read.model))
                yield UsageReport(_spent(read.usage), "response", f"{read.agent_id}@{read.time}", model, lane)
            case "turn.step.retrying":
                yield Retry(bounded(read.failed_attempt), endings.said(read.error_message))
            case "turn.ended":
                yield BatchEnd(lane)
            case "task.terminated" if read.info is not None and read.info.exit_code is not None:
                ended = read.info
                if ended.status in ("completed", "failed"):  # else it was killed
                    yield TaskEnd(
                        ended.task_id, ended.exit_code == 0, f"{ended.status}, exit code {ended.exit_code}"
                    )
            case _:
                return

    # --- its hooks ---

    def hook(self, data: bytes) -> Hook:
        return hooked(data)

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        return answered(data, answer)

    # --- how it ended ---

    def structured(self, words: Sequence[str]) -> bool:
        return argv.value(_parts(words)[1], "--output-format") in ("json", "stream-json")

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        words = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace").strip()
        for line in json_lines.backwards(transcript, TAIL_LINES_MAX):
            read = json_lines.record(line) if b'"turn.ended"' in line else None
            if read is None or json_lines.text(read, "type") != "turn.ended":
                continue
            final = self._by_turn(read)
            if final is not None:
                return final
            break
        return self._by_exit(exit_code, words)

    def _by_turn(self, turn: json_lines.Record) -> Final | None:
        match json_lines.text(turn, "reason"):
            case "cancelled":
                return Final("crashed", "interrupted")
            case "failed":
                code, name, message = (
                    json_lines.text(turn, "error", key) for key in ("code", "name", "message")
                )
                status = json_lines.number(turn, "error", "details", "statusCode")
                return endings.by_status(status, f"{code}: {name}: {message}", NAME, self._clock())
            case "filtered":
                return Final("refused", "the answer was filtered")
            case _:
                return None

    def _by_exit(self, exit_code: int, words: str) -> Final:
        if exit_code < 0 or exit_code >= 128:
            return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")
        if exit_code == 0:
            return Final("done", endings.said(words))
        told = endings.match(NAME, words, self._clock())
        return told or Final("crashed", endings.said(words) or f"exit code {exit_code}")

    # --- its transcript, mended ---

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """Each cut call gets its result, and its step an end; a call that the file lost is written again."""
        calls, ended, agent, time = _calls(transcript)
        cut_off = {cut.id: cut for cut in cuts if cut.id not in ended}
        here = [(calls[known], cut) for known, cut in cut_off.items() if known in calls]
        events: list[object] = [_result(call, cut) for call, cut in here]
        steps = {call.step_uuid: call for call, _ in here if call.step_uuid not in ended}
        events += [_ended(step, call.turn_id, call.step) for step, call in steps.items()]
        lost = [cut for known, cut in cut_off.items() if known not in calls]
        if lost:
            events += _lost_step(lost)
        return repair.added(transcript, [_record(agent, time, event) for event in events])


def _parts(words: Sequence[str]) -> tuple[int, argv.Parts]:
    start = common_launch.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


def _named(parts: argv.Parts) -> str:
    named = argv.value(parts, "--session") or ""
    return named if _SESSION.fullmatch(named) else ""


def _login(ask: Ask) -> provider.KimiLogin:
    return _read_login(ask.words, ask.environment)


def _read_login(words: Sequence[str], environment: Mapping[str, str]) -> provider.KimiLogin:
    home = common_launch.home(environment, *HOME)
    config = providers.toml_text(providers.text(home / "config.toml")) if home is not None else {}
    named = argv.value(_parts(words)[1], "--model") or ""
    return provider.KimiLogin(config, environment, named, env_first=False)


def _config(ask: Ask) -> bytes:
    """The text of its settings, as a routed ask is to have it."""
    home = common_launch.home(ask.environment, *HOME)
    return b"" if home is None else provider.rewritten(common_launch.settings(home / "config.toml"), ask)


def _home(ask: Ask) -> dict[str, str]:
    """A home of the run's own with our hooks and routes in its settings; the user's in all else."""
    real = common_launch.home(ask.environment, *HOME)
    if real is None or not (ask.hook or ask.routes):
        return {}
    config = with_hooks(_config(ask), ask.hook) if ask.hook else _config(ask)
    home = common_launch.overlay(
        ask.folder / "kimi-code-home", real, {"config.toml": config}, folders=FOLDERS, files=FILES
    )
    return {HOME[0]: str(home)}


def with_hooks(config: bytes, command: Sequence[str]) -> bytes:
    """The user's config.toml with one more hook for each event that we hear of; raises UsageError where it cannot be."""
    tables = [
        f"[[hooks]]\nevent = {_quoted(event)}\ncommand = {_quoted(common_launch.shell(command))}\ntimeout = {Timing.current().hook_timeout_s}\n"
        for event in HOOKED
    ]
    merged = b"\n".join([config, *(table.encode() for table in tables)])
    try:
        tomllib.loads(merged.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            "Kimi Code's config.toml cannot be given a hook: it is no TOML, or it has `hooks` on one line",
            hint="write its hooks as [[hooks]] tables; `kimi doctor` checks the file",
        ) from error
    return merged


def _quoted(text: str) -> str:
    """A TOML string, which JSON's with plain characters is."""
    return msgspec.json.encode(text).decode()


def _looped(event: _Event, lane: str) -> Iterator[AgentEvent]:
    match event.type:
        case "step.begin":
            yield Response(event.uuid, lane)
        case "content.part" if event.part is not None and event.part.type == "text":
            yield Text(event.part.text, lane)
        case "tool.call" if event.tool_call_id:
            yield ToolStart(event.tool_call_id, event.name, event.args, lane)
        case "tool.result" if event.tool_call_id:
            result = event.result or _Result()
            said = spoken(result.output)
            yield ToolEnd(
                event.tool_call_id, result.is_error is not True, said, lane, task=background.kimi(said)
            )
        case "step.end":
            yield BatchEnd(lane)
        case _:
            return


def _spent(tokens: _Tokens) -> values.Usage:
    return values.Usage(
        bounded(tokens.input_other),
        bounded(tokens.output),
        bounded(tokens.input_cache_read),
        bounded(tokens.input_cache_creation),
    )


def bounded(count: int) -> int:
    """A count as it may be recorded: never below 0, and never absurd."""
    return min(max(count, 0), json_lines.NUMBER_MAX)


def spoken(output: msgspec.Raw) -> str:
    """A result's words: a text, or the texts among its parts."""
    try:
        value: object = msgspec.json.decode(output) if output else ""
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return ""
    if isinstance(value, str):
        return json_lines.text({"text": value}, "text")
    parts = value if isinstance(value, list) else [value]
    return "".join(json_lines.text(part, "text") or json_lines.text(part, "message") for part in parts)


def hooked(data: bytes) -> Hook:
    """A hook's input, as Kimi Code and kimi-cli write it."""
    read = json_lines.decode(data, _hook_input)
    if read is None:
        return Hook("other")
    known = read.tool_call_id
    match read.hook_event_name:
        case "PreToolUse" if known:
            return Hook("pre", (ToolStart(known, read.tool_name, read.tool_input),))
        case "PostToolUse" if known:
            said = spoken(read.tool_output)
            return Hook("post", (ToolEnd(known, True, said, task=background.kimi(said)),))
        case "PostToolUseFailure" if known:
            return Hook("post", (ToolEnd(known, False, spoken(read.error)),))
        case "PreToolUse":
            return Hook("pre")
        case "SessionStart" if read.session_id:
            return Hook("other", (Session(read.session_id),))
        case "Stop" | "StopFailure":
            return Hook("other", (BatchEnd(),))
        case _:
            return Hook("other")


def answered(data: bytes, answer: Answer) -> tuple[bytes, int]:
    """A denial counts before a tool, a prompt or a stop; the other hooks are not waited for."""
    if answer.allowed:
        return b"", 0
    denial = {"permissionDecision": "deny", "permissionDecisionReason": answer.reason or "denied by outlast"}
    return msgspec.json.encode({"hookSpecificOutput": denial}), 0


# --- mending ---------------------------------------------------------------------------------------------------


def _calls(transcript: bytes) -> tuple[dict[str, _Event], set[str], str, int]:
    """The calls by their id, what ended (calls and steps), whose transcript it is, and when it was last written to."""
    calls: dict[str, _Event] = {}
    ended: set[str] = set()
    agent, time = "main", 0
    for line in json_lines.lines(transcript):
        read = json_lines.decode(line, _line) if b'"context.append_loop_event"' in line else None
        if read is None or read.event is None:
            continue
        agent, time = read.agent_id or agent, max(read.time, time)
        if read.event.type == "tool.call":
            calls[read.event.tool_call_id] = read.event
        elif read.event.type == "tool.result":
            ended.add(read.event.tool_call_id)
        elif read.event.type == "step.end":
            ended.add(read.event.uuid)
    return calls, ended, agent, time


def _record(agent: str, time: int, event: object) -> object:
    return {"type": "context.append_loop_event", "agentId": agent, "event": event, "time": time}


def _result(call: _Event, cut: Cut) -> object:
    # No error: Kimi would put before it that the execution failed, which nobody knows.
    return {
        "type": "tool.result",
        "parentUuid": call.uuid,
        "toolCallId": cut.id,
        "result": {"output": cut.text},
    }


def _ended(step: str, turn: str, number: int) -> object:
    return {"type": "step.end", "uuid": step, "turnId": turn, "step": number, "finishReason": "tool_use"}


def _lost_step(cuts: Sequence[Cut]) -> Iterator[object]:
    """A step with calls of which the file knows nothing."""
    step = repair.stable("step", *(cut.id for cut in cuts))
    place = {"turnId": "0", "step": 1}
    yield {"type": "step.begin", "uuid": step, **place}
    calls = {cut.id: repair.stable("call", cut.id) for cut in cuts}
    for cut in cuts:
        call = {"type": "tool.call", "uuid": calls[cut.id], **place, "stepUuid": step, "toolCallId": cut.id}
        yield {**call, "name": cut.name, "args": repair.plain(cut.input)}
    for cut in cuts:
        yield _result(_Event(uuid=calls[cut.id]), cut)
    yield _ended(step, "0", 1)


ADAPTER = KimiCode()
