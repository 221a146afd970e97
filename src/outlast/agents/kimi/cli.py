"""kimi-cli, the Python program that Kimi Code replaced: its command line, files and hooks, how it is started and resumed.

Read from 1.51.0. It writes two files for a session: `wire.jsonl` tells all that happened and is what we read;
`context.jsonl` is what a resume reads, and learns of a call only when every call of its step has ended.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import md5
from pathlib import Path

import msgspec

from outlast.agents import ByLogin
from outlast.agents.common import (
    argv,
    background,
    endings,
    json_lines,
    launch as common_launch,
    repair,
    versions,
)
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Final,
    Response,
    Retry,
    TaskEnd,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.agents.kimi import code, provider
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, Caps, Cut, Hook
from outlast.core import values
from outlast.errors import UsageError

NAME = "kimi-cli"
LAST = "1.51.0"  # the last release that does anything
EMPTY = (1, 52)  # says farewell and exits 0, whatever it is asked
OLDEST = (1, 40)
HOME = ("KIMI_SHARE_DIR", ".kimi")
RETRYABLE = 75
CONFIG_FILE = "kimi-cli-config.json"
FIRST_LINE_MAX_BYTES = 4 << 20
HOOKED = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "StopFailure")
NESTED_MAX = 8

TABLE = argv.Table(
    valued=frozenset(
        """--work-dir --add-dir --config --config-file --model --prompt --input-format --output-format --agent
        --agent-file --mcp-config-file --mcp-config --skills-dir --max-steps-per-turn --max-retries-per-step
        --max-ralph-iterations --skills-dir""".split()
    ),
    optional=frozenset(["--session"]),
    bare=frozenset(
        """--version --verbose --debug --continue --thinking --no-thinking --yolo --plan --afk --print --acp --wire
        --final-message-only --quiet --help""".split()
    ),
    aliases={
        "-V": "--version", "-w": "--work-dir", "-S": "--session", "-r": "--session", "--resume": "--session",
        "-C": "--continue", "-m": "--model", "-y": "--yolo", "--yes": "--yolo", "--auto-approve": "--yolo",
        "-p": "--prompt", "-c": "--prompt", "--command": "--prompt", "-h": "--help",
    },
)  # fmt: skip
SUBCOMMANDS = frozenset("login logout acp mcp info export plugin term vis web migrate".split())
ELSEWHERE = ("--version", "--help", "--acp", "--wire")
SESSION_FLAGS = ("--session", "--continue")
PRINTING = ("--print", "--quiet", "--output-format", "--input-format", "--final-message-only")
NAMES = common_launch.Names(
    frozenset(["kimi", "kimi-cli"]),
    frozenset(["kimi-cli"]),
    frozenset(["kimi_cli"]),
    re.compile(r"/kimi_cli/__main__\.py$"),
)
_SESSION = re.compile(r"[A-Za-z0-9][\w.-]{0,127}")


# --- the shapes of its lines; what is not named is skipped unread --------------------------------------------


class _Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: str | None = ""


class _Tokens(msgspec.Struct, frozen=True):
    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0


class _Returned(msgspec.Struct, frozen=True):
    is_error: bool = False
    output: msgspec.Raw = values.NULL
    message: str = ""


class _Payload(msgspec.Struct, frozen=True):
    n: int = 0
    type: str = ""
    text: str = ""
    id: str = ""
    function: _Function | None = None
    token_usage: _Tokens | None = None
    message_id: str | None = ""
    tool_call_id: str = ""
    return_value: _Returned | None = None
    next_attempt: int = 0
    error_type: str = ""
    status_code: int | None = None
    agent_id: str | None = None
    parent_tool_call_id: str | None = None
    event: msgspec.Raw = values.NULL
    payload: msgspec.Raw = values.NULL


class _Task(msgspec.Struct, frozen=True):
    task_id: str = ""
    status: str = ""
    exit_code: int | None = None


class _Message(msgspec.Struct, frozen=True):
    type: str = ""
    payload: _Payload | None = None


class _Line(msgspec.Struct, frozen=True):
    timestamp: float = 0.0
    message: _Message | None = None


_line: "msgspec.json.Decoder[_Line]" = msgspec.json.Decoder(_Line)
_message: "msgspec.json.Decoder[_Message]" = msgspec.json.Decoder(_Message)
_task: "msgspec.json.Decoder[_Task]" = msgspec.json.Decoder(_Task)


class KimiCli(ByLogin):
    """The adapter. The clock and the maker of session names are arguments."""

    name = NAME
    caps = Caps(
        intent=("hooks", "shims", "transcript"),
        resume=True,
        preassigned_session=True,
        mends=True,
        response_ids=True,
    )

    def __init__(
        self,
        clock: Callable[[], datetime] = common_launch.now,
        fresh_id: Callable[[], str] = common_launch.fresh_id,
    ) -> None:
        self._clock = clock
        self._fresh_id = fresh_id

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        start = common_launch.start(words, program, NAMES)
        if start is None:
            return False
        if start == 1 and os.path.basename(words[0]) == "kimi" and not common_launch.is_python(program):
            return False  # Kimi Code has the same name
        parts = argv.split(words[start:], TABLE)
        return argv.opens_session(parts, SUBCOMMANDS, ELSEWHERE)

    def is_headless(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--print", "--quiet")

    def prompt(self, words: Sequence[str]) -> str:
        return argv.value(_parts(words)[1], "--prompt") or ""

    def version(self, program: str, run: versions.Runner | None = None) -> str:
        return versions.distribution(program, NAME) or (versions.asked(program, run) if run else "")

    def problem(self, version: str) -> str:
        found = versions.parts(version)
        if found >= EMPTY:
            return (
                f"kimi-cli {version} is an empty farewell release that exits 0 without doing anything: "
                f"`uv tool install kimi-cli=={LAST}`, or Kimi Code: `npm install -g @moonshot-ai/kimi-code`"
            )
        if found and found < OLDEST:
            return f"kimi-cli {version} is too old: `uv tool install kimi-cli=={LAST}`"
        return ""

    def untested(self, version: str) -> str:
        return "" if versions.parts(version) else "the version of kimi-cli cannot be read"

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = _parts(ask.words)
        if ask.session is not None:
            session = ask.session.session
            # Asked for a session that it does not find, it begins one of that name and says nothing.
            if not self._knows(session, ask):
                return None
            self._catch_up(session, ask)
            parts = _in_session(parts, session)
        elif ask.prompt or not argv.has(parts, *SESSION_FLAGS):
            session = self._fresh_id()
            parts = _in_session(parts, session)
        else:
            named = argv.value(parts, "--session") or ""
            session = named if _SESSION.fullmatch(named) else ""
        if ask.interactive:
            said = ("--prompt",) if ask.session is not None else ()
            parts = argv.without(parts, *PRINTING, *said)
        if ask.prompt:
            word = f"--prompt={ask.prompt}"
            parts = argv.without(parts, "--prompt", "--input-format")
            parts = (*parts, argv.Part((word,), ("--prompt",), (ask.prompt,)))
        environment = _login(ask).variables(ask) if ask.routes else {}
        if ask.hook or ask.routes:
            parts = _with_config(parts, ask)
        return AgentCommand((*ask.words[:start], *argv.joined(parts)), environment, session)

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("kimi", "--session", session)

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Headless it approves everything itself: it has no safer mode."""
        return ("kimi", "--print", f"--prompt={prompt}")

    def trusting(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--print", "--quiet", "--yolo", "--afk")

    # --- its provider ---

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        return _read_login(words, environment, cwd).model

    def login(self, ask: Ask) -> provider.KimiLogin:
        return _login(ask)

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        folder = _folder(session, ask)
        return folder / "wire.jsonl" if folder is not None and (folder / "wire.jsonl").is_file() else None

    def sidecars(self, transcript: Path) -> tuple[Path, ...]:
        """What its model is given is in the first one."""
        return (transcript.with_name("context.jsonl"), transcript.with_name("state.json"))

    def _knows(self, session: str, ask: Ask) -> bool:
        folder, home = _folder(session, ask), common_launch.home(ask.environment, *HOME)
        if folder is None or home is None or not (folder / "context.jsonl").is_file():
            return False
        if not _has_beginning(folder / "context.jsonl"):
            return False
        try:
            known = json_lines.record(common_launch.settings(home / "kimi.json"))
        except OSError:
            return False
        paths = [json_lines.text(place, "path") for place in json_lines.items(known or {}, "work_dirs")]
        return any(_hashed(path) == folder.parent.name for path in paths)

    def _catch_up(self, session: str, ask: Ask) -> None:
        """The calls whose result is in the one file, as it is when that was mended, come into the other as well."""
        folder = _folder(session, ask)
        wire = self.transcript(session, ask)
        if folder is None or wire is None:
            return
        path = folder / "context.jsonl"
        context = path.read_bytes()
        said, ended = last_step(wire.read_bytes())
        full = repair.added(context, _context_messages(context, ended, said))
        if full != context:
            common_launch.private(path, full)

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        if b'"message"' not in line:
            return
        read = json_lines.decode(line, _line)
        if read is None or read.message is None:
            return
        yield from _told(read.message, f"{read.timestamp:.6f}", "", 0)

    # --- its hooks ---

    def hook(self, data: bytes) -> Hook:
        return code.hooked(data)

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        return code.answered(data, answer)

    # --- how it ended ---

    def structured(self, words: Sequence[str]) -> bool:
        return argv.value(_parts(words)[1], "--output-format") in ("json", "stream-json")

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        words = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace").strip()
        unbroken = _BREAK.sub("", words)  # it breaks its last words into lines of 80 characters
        if exit_code < 0 or exit_code >= 128:
            return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")
        if exit_code == 0:
            if "kimi-cli is no longer maintained" in words:
                return Final("crashed", self.problem("1.52"))
            return Final("done", endings.said(words))
        if "Interrupted by user" in words:
            return Final("crashed", "interrupted")
        for told in (words, unbroken):
            final = endings.match(NAME, told, self._clock())
            if final is not None:
                return final
        status = _STATUS.search(words)
        if status:
            return endings.by_status(int(status[1]), unbroken, NAME, self._clock())
        if exit_code == RETRYABLE:
            return Final("network", endings.said(words))
        return Final("crashed", endings.said(words) or f"exit code {exit_code}")

    # --- its transcript, mended ---

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """`context.jsonl` gets the calls with their results; `wire.jsonl` only the results that it lacks."""
        if _is_wire(transcript):
            return repair.added(transcript, _wire_results(transcript, cuts))
        return repair.added(transcript, _context_messages(transcript, cuts))


_BREAK = re.compile(r"\n(?=\S)")
_STATUS = re.compile(r"Error code: (\d{3})\b")


def _parts(words: Sequence[str]) -> tuple[int, argv.Parts]:
    start = common_launch.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


def _in_session(parts: argv.Parts, session: str) -> argv.Parts:
    return (
        *argv.without(parts, *SESSION_FLAGS),
        argv.Part(("--session", session), ("--session",), (session,)),
    )


def _has_beginning(context: Path) -> bool:
    """Whether somebody spoke before the model did: a file that was taken away under a live kimi-cli goes on in the middle."""
    with context.open("rb") as file:
        first = json_lines.record(file.readline(FIRST_LINE_MAX_BYTES))
    return first is None or json_lines.text(first, "role") not in ("assistant", "tool")


def _hashed(path: str) -> str:
    return md5(path.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def _folder(session: str, ask: Ask) -> Path | None:
    """The session's folder, which its working directory's path names."""
    home = common_launch.home(ask.environment, *HOME)
    if home is None or not _SESSION.fullmatch(session):
        return None
    named = argv.value(_parts(ask.words)[1], "--work-dir")
    work = os.path.normpath(ask.cwd / named) if named else str(ask.cwd)
    for path in (work, os.path.realpath(work)):
        folder = home / "sessions" / _hashed(path) / session
        if folder.is_dir():
            return folder
    return next(iter(sorted(home.glob(f"sessions/*/{session}"))), None)


def _login(ask: Ask) -> provider.KimiLogin:
    return _read_login(ask.words, ask.environment, ask.cwd)


def _read_login(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> provider.KimiLogin:
    """By the settings that it would read; those that cannot be read tell nothing here."""
    parts = _parts(words)[1]
    try:
        config = _config(parts, environment, cwd)
    except UsageError:
        config = {}
    return provider.KimiLogin(config, environment, argv.value(parts, "--model") or "", env_first=True)


def _with_config(parts: argv.Parts, ask: Ask) -> argv.Parts:
    """The user's settings with our hooks and routes, in a file of the run's own."""
    theirs: Mapping[str, object] = _config(parts, ask.environment, ask.cwd)
    if ask.routes:
        theirs = _login(ask).routed(ask)
    ours = [
        {"event": event, "command": common_launch.shell(ask.hook), "timeout": Timing.current().hook_timeout_s}
        for event in HOOKED
    ]
    if ask.hook:
        theirs = {**theirs, "hooks": [*json_lines.items(theirs, "hooks"), *ours]}
    path = common_launch.private(ask.folder / CONFIG_FILE, msgspec.json.encode(theirs))
    given = argv.Part(("--config-file", str(path)), ("--config-file",), (str(path),))
    return (*argv.without(parts, "--config", "--config-file"), given)


def _config(parts: argv.Parts, environment: Mapping[str, str], cwd: Path) -> Mapping[str, object]:
    given, named = argv.value(parts, "--config"), argv.value(parts, "--config-file")
    home = common_launch.home(environment, *HOME)
    path = cwd / named if named else (home or cwd) / "config.toml"
    try:
        text = given if given is not None else common_launch.settings(path).decode("utf-8")
        is_json = (given is not None and given.lstrip().startswith("{")) or path.suffix.lower() == ".json"
        config: object = json.loads(text or "{}") if is_json else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            "kimi-cli's settings cannot be read", hint=f"see {path}" if given is None else "see --config"
        ) from error
    return config if isinstance(config, dict) else {}


def _told(message: _Message, key: str, lane: str, depth: int) -> Iterator[AgentEvent]:
    payload = message.payload or _Payload()
    match message.type:
        case "StepBegin":
            if payload.n > 1:
                yield BatchEnd(lane)
            yield Response(key, lane)
        case "ContentPart" if payload.type == "text":
            yield Text(payload.text, lane)
        case "ToolCall" if payload.id and payload.function is not None:
            called = payload.function
            yield ToolStart(payload.id, called.name, json_lines.parsed(called.arguments or "{}"), lane)
        case "ToolResult" if payload.tool_call_id:
            result = payload.return_value or _Returned(is_error=True)
            said = code.spoken(result.output) or result.message
            yield ToolEnd(payload.tool_call_id, not result.is_error, said, lane, task=background.kimi(said))
        case "Notification" if payload.type in ("task.completed", "task.failed"):
            ended = json_lines.decode(bytes(payload.payload), _task)
            if ended is not None and ended.exit_code is not None:
                yield TaskEnd(
                    ended.task_id, ended.exit_code == 0, f"{ended.status}, exit code {ended.exit_code}"
                )
        case "StatusUpdate" if payload.token_usage is not None:
            yield UsageReport(_spent(payload.token_usage), "response", payload.message_id or key, "", lane)
        case "StepRetry":
            reason = f"{payload.error_type} {payload.status_code or ''}".strip()
            yield Retry(code.bounded(payload.next_attempt - 1), reason)
        case "TurnEnd":
            yield BatchEnd(lane)
        case "SubagentEvent" if depth < NESTED_MAX:
            inner = json_lines.decode(bytes(payload.event), _message)
            if inner is not None:
                yield from _told(
                    inner, key, payload.agent_id or payload.parent_tool_call_id or "subagent", depth + 1
                )
        case _:
            return


def _spent(tokens: _Tokens) -> values.Usage:
    return values.Usage(
        code.bounded(tokens.input_other),
        code.bounded(tokens.output),
        code.bounded(tokens.input_cache_read),
        code.bounded(tokens.input_cache_creation),
    )


# --- mending ---------------------------------------------------------------------------------------------------


def _is_wire(transcript: bytes) -> bool:
    first = json_lines.record(next(json_lines.lines(transcript), b"")) or {}
    return "message" in first or "protocol_version" in first


def _wire_results(transcript: bytes, cuts: Sequence[Cut]) -> Iterator[object]:
    started: set[str] = set()
    ended: set[str] = set()
    time = 0.0
    for line in json_lines.lines(transcript):
        read = json_lines.decode(line, _line) if b'"Tool' in line else None
        if read is None or read.message is None or read.message.payload is None:
            continue
        time = max(time, read.timestamp)
        if read.message.type == "ToolCall":
            started.add(read.message.payload.id)
        elif read.message.type == "ToolResult":
            ended.add(read.message.payload.tool_call_id)
    for cut in cuts:
        if cut.id in started - ended:
            value = {"is_error": False, "output": cut.text, "message": "", "display": [], "extras": None}
            payload = {"tool_call_id": cut.id, "return_value": value}
            yield {"timestamp": time, "message": {"type": "ToolResult", "payload": payload}}


def last_step(wire: bytes) -> tuple[str, list[Cut]]:
    """What was said in the last step, and its calls with the results that they had."""
    said = ""
    started: dict[str, ToolStart] = {}
    ended: dict[str, ToolEnd] = {}
    for line in json_lines.lines(wire):
        for event in ADAPTER.parse(line):
            match event:
                case Response(lane=""):
                    said, started, ended = "", {}, {}
                case Text(lane=""):
                    said += event.text
                case ToolStart(lane=""):
                    started[event.id] = event
                case ToolEnd(lane=""):
                    ended[event.id] = event
                case _:
                    pass
    calls = [(start, ended[call]) for call, start in started.items() if call in ended]
    return said, [Cut(start.id, start.name, start.input, end.output) for start, end in calls]


def _context_messages(transcript: bytes, cuts: Sequence[Cut], said: str = "") -> Iterator[object]:
    """What the step would have written at its end."""
    called: set[str] = set()
    ended: set[str] = set()
    for line in json_lines.lines(transcript):
        read = json_lines.record(line) if b'"tool_call' in line else None
        if read is None:
            continue
        called |= {json_lines.text(call, "id") for call in json_lines.items(read, "tool_calls")}
        ended.add(json_lines.text(read, "tool_call_id"))
    lost = [cut for cut in cuts if cut.id not in called and cut.id not in ended]
    if lost:
        calls = [
            {
                "type": "function",
                "id": cut.id,
                "function": {"name": cut.name, "arguments": json.dumps(repair.plain(cut.input))},
            }
            for cut in lost
        ]
        yield {"role": "assistant", "content": said, "tool_calls": calls}
    for cut in cuts:
        if cut.id not in ended:
            yield {"role": "tool", "content": cut.text, "tool_call_id": cut.id}


ADAPTER = KimiCli()
