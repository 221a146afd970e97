"""Gemini CLI: what its command line, chat files and hooks mean, and how it is started and resumed.

Read from 0.61.0. It obeys a system settings file only when that and every folder above it belong to root, so its hooks
come with a home of the run's own that is the user's in all else. Its hooks carry no id of the call: one is made of the
call itself, here and for the chat file, where a call is found only once it has ended.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from uuid import UUID

import msgspec

from outlast.agents import ByLogin
from outlast.agents.common import (
    argv,
    background,
    endings,
    json_lines,
    launch as common_launch,
    providers,
    versions,
)
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Final,
    Response,
    Session,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.agents.gemini import chat, provider
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, Caps, Cut, Hook
from outlast.core import values
from outlast.errors import UsageError

LINES_BACK_MAX = 50
NAME = "gemini"
PACKAGES = ("@google/gemini-cli",)
TRIED = versions.TestedVersions("gemini", (0, 50), (0, 61), f"`npm install -g {PACKAGES[0]}`")
HOME = ("GEMINI_CLI_HOME", "")
TAIL_LINES_MAX = 40
CHATS_MAX = 10_000
HEAD_BYTES = 4096
HOOKED = ("SessionStart", "BeforeTool", "AfterTool", "AfterAgent")
FOLDERS = ("tmp", "history")
FILES = ("oauth_creds.json", "google_accounts.json", "installation_id", "trustedFolders.json")

TABLE = argv.Table(
    valued=frozenset(
        """--model --prompt --prompt-interactive --approval-mode --session-file --session-id --delete-session
        --output-format""".split()
    ),
    optional=frozenset(["--resume", "--worktree"]),
    listed=frozenset(
        """--policy --admin-policy --allowed-mcp-server-names --allowed-tools --extensions
        --include-directories""".split()
    ),
    bare=frozenset(
        """--debug --skip-trust --sandbox --yolo --acp --experimental-acp --list-extensions --list-sessions
        --screen-reader --raw-output --accept-raw-output-risk --version --help""".split()
    ),
    aliases={
        "-d": "--debug", "-m": "--model", "-p": "--prompt", "-i": "--prompt-interactive", "-w": "--worktree",
        "-s": "--sandbox", "-y": "--yolo", "-e": "--extensions", "-l": "--list-extensions", "-r": "--resume",
        "-o": "--output-format", "-v": "--version", "-h": "--help",
    },
)  # fmt: skip
SUBCOMMANDS = frozenset("mcp extensions extension skills skill hooks hook gemma".split())
ELSEWHERE = (
    "--version", "--help", "--acp", "--experimental-acp", "--list-extensions", "--list-sessions", "--delete-session",
)  # fmt: skip
SESSION_FLAGS = ("--resume", "--session-id", "--session-file")
PROMPTS = ("--prompt", "--prompt-interactive")
NAMES = common_launch.Names(
    frozenset(["gemini"]),
    frozenset([*PACKAGES, "gemini-cli"]),
    file=re.compile(r"@google/gemini-cli/(?:[\w.-]+/)*[\w.-]+\.js$"),
)

# Its exit code for an API's error is the HTTP status as far as it fits into a byte; the others are its own.
STATUSES = {status & 0xFF: status for status in (400, 401, 403, 408, 413, 429, 500, 502, 503, 504)}
ENDINGS: dict[int, Final] = {
    41: Final("auth", "it could not authenticate"),
    53: Final("turns", "it reached its limit of turns"),
    130: Final("crashed", "interrupted"),
}


_RETRY = re.compile(r"retry in [\w. ]{1,40}", re.IGNORECASE)


class _HookInput(msgspec.Struct, frozen=True):
    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    tool_name: str = ""
    tool_input: msgspec.Raw = values.NULL
    tool_response: msgspec.Raw = values.NULL


_hook_input: "msgspec.json.Decoder[_HookInput]" = msgspec.json.Decoder(_HookInput)


class Gemini(ByLogin):
    """The adapter. The clock and the maker of session ids are arguments."""

    name = NAME
    caps = Caps(
        intent=("hooks", "shims", "transcript"), resume=True, preassigned_session=True, mends=True, tells=True
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
        parts = argv.split(words[start:], TABLE)
        return argv.opens_session(parts, SUBCOMMANDS, ELSEWHERE)

    def is_headless(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--prompt")

    def prompt(self, words: Sequence[str]) -> str:
        parts = _parts(words)[1]
        named = argv.value(parts, *PROMPTS)
        return " ".join(argv.positionals(parts)) if named is None else named

    def version(self, program: str, run: versions.Runner | None = None) -> str:
        return versions.of(program, PACKAGES, run)

    def problem(self, version: str) -> str:
        return TRIED.problem(version)

    def untested(self, version: str) -> str:
        return TRIED.untested(version)

    def blind(self, ask: Ask) -> str:
        """Why its hooks will not run although they are asked for; empty when they will."""
        real = _real(ask)
        settings = _settings(real) if real is not None else {}
        if json_lines.at(settings, "hooksConfig", "enabled") is False:
            return "its settings switch hooks off (hooksConfig.enabled)"
        return ""

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = _parts(ask.words)
        if ask.session is not None:
            session = ask.session.session
            self._undouble(session, ask)
            parts = _with(argv.without(parts, *SESSION_FLAGS), "--resume", session)
        elif ask.prompt or not argv.has(parts, *SESSION_FLAGS):
            session = self._fresh_id()
            parts = _with(argv.without(parts, *SESSION_FLAGS), "--session-id", session)
        else:
            session = _named(parts)
        if ask.prompt or (ask.interactive and ask.session is not None):
            parts = tuple(part for part in argv.without(parts, *PROMPTS) if part.names)
        said = ask.prompt or (argv.value(parts, "--prompt") if ask.interactive else "")
        if said:
            name = "--prompt-interactive" if ask.interactive else "--prompt"
            parts = (*parts, argv.Part((f"{name}={said}",), (name,), (said,)))
        if ask.interactive:
            parts = argv.without(parts, "--prompt", "--output-format")
        # Without this the program that we start only starts another, which a kill does not reach.
        routed = _login(ask).variables(ask) if ask.routes else {}
        environment = {"GEMINI_CLI_NO_RELAUNCH": "true", **_home(ask), **routed}
        return AgentCommand((*ask.words[:start], *argv.joined(parts)), environment, session)

    def _undouble(self, session: str, ask: Ask) -> None:
        """A resumed Gemini reads each result twice, and once more with each resume, unless the file says otherwise."""
        chats = self._chats(session, ask)
        if not chats:
            return
        path = chats[0]
        for other in chats[1:]:
            # Each resume leaves a file without a message, for which the next Gemini deletes the session, both files.
            if chat.is_empty(common_launch.settings(other)):
                other.unlink(missing_ok=True)
        data = path.read_bytes()
        more = chat.mended(data, ())[len(data) :]
        if more:
            with path.open("ab") as file:
                file.write(more)

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("gemini", "--resume", session)

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        return ("gemini", f"--approval-mode={'yolo' if trusting else 'auto_edit'}", f"--prompt={prompt}")

    def trusting(self, words: Sequence[str]) -> bool:
        parts = _parts(words)[1]
        return argv.has(parts, "--yolo") or argv.value(parts, "--approval-mode") == "yolo"

    # --- its provider ---

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        return _read_login(environment, cwd).model(argv.value(_parts(words)[1], "--model") or "")

    def login(self, ask: Ask) -> provider.GeminiLogin:
        return _login(ask)

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        """The oldest chat file of the session: a resume goes on in it, and leaves an empty one beside it."""
        return next(iter(self._chats(session, ask)), None)

    def _chats(self, session: str, ask: Ask) -> list[Path]:
        real = _real(ask)
        if real is None or not re.fullmatch(r"[\w-]{8,128}", session):
            return []
        found = sorted(real.glob(f"tmp/*/chats/session-*-{session[:8]}.jsonl"))[:CHATS_MAX]
        return [path for path in found if _is_of(path, session)]

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        read = chat.read(line)
        if read is None or not read.id:
            return
        if read.type == "gemini":
            yield from _said(read)
        elif read.type == "user" and b'"functionResponse"' in line:
            yield BatchEnd()

    # --- its hooks ---

    def hook(self, data: bytes) -> Hook:
        read = json_lines.decode(data, _hook_input)
        if read is None:
            return Hook("other")
        match read.hook_event_name:
            case "BeforeTool":
                call = call_id(read.tool_name, read.tool_input)
                return Hook("pre", (ToolStart(call, read.tool_name, read.tool_input),))
            case "AfterTool":
                call = call_id(read.tool_name, read.tool_input)
                ok, said = _outcome(read.tool_response)
                return Hook("post", (ToolEnd(call, ok, said, task=background.gemini(said)),))
            case "SessionStart" if read.session_id:
                return Hook("other", (Session(read.session_id, _resolved(read.transcript_path)),))
            case "AfterAgent":
                return Hook("other", (BatchEnd(),))
            case _:
                return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        """It wants JSON or nothing. A denial stops the call; after a tool it would hide the result, so that is told."""
        read = json_lines.decode(data, _hook_input) or _HookInput("BeforeTool")
        if answer.allowed:
            if not answer.reason or read.hook_event_name not in ("AfterTool", "SessionStart"):
                return b"", 0
            told = {"hookEventName": read.hook_event_name, "additionalContext": answer.reason}
            return msgspec.json.encode({"hookSpecificOutput": told}), 0
        reason = answer.reason or "denied by outlast"
        if read.hook_event_name == "BeforeTool":
            return msgspec.json.encode({"decision": "deny", "reason": reason}), 0
        return msgspec.json.encode({"continue": False, "stopReason": reason}), 0

    # --- how it ended ---

    def structured(self, words: Sequence[str]) -> bool:
        return argv.value(_parts(words)[1], "--output-format") in ("json", "stream-json")

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        words = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace").strip()
        if exit_code < 0 or exit_code in (137, 143):
            return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")
        error = _error(tail)
        if exit_code in STATUSES:
            final = endings.by_status(STATUSES[exit_code], error or words, NAME, self._clock())
            return endings.with_reset(
                final, words, self._clock()
            )  # its log holds more of what its provider said
        told = endings.match(NAME, error, self._clock()) if error else None
        if told is not None:
            return told
        if exit_code in ENDINGS:
            return ENDINGS[exit_code]
        if error and "loop" in error.lower():
            return Final("refused", endings.said(error))
        if exit_code == 0 and not error:
            if _is_unanswered(transcript):  # stopped by a signal it exits 0 as well
                return Final("crashed", "it ended, with exit code 0, before its model had answered")
            return Final("done", endings.said(words))
        told = endings.match(NAME, words, self._clock())
        return told or Final("crashed", endings.said(error or words) or f"exit code {exit_code}")

    # --- its transcript, mended ---

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        return chat.mended(transcript, cuts)


def _is_unanswered(transcript: bytes) -> bool:
    """Whether the last word in the chat is not the model's: the results of calls, or calls that were asked for."""
    for line in json_lines.backwards(transcript, LINES_BACK_MAX):
        read = chat.read(line)
        if read is not None and read.type == "gemini":
            return bool(read.tool_calls)
        if read is not None and read.type == "user":
            return b'"functionResponse"' in line
    return False


def call_id(name: str, given: msgspec.Raw) -> str:
    """A call's id, made of what it is: the same in its hooks and in the chat file."""
    try:
        value: object = msgspec.json.decode(given) if given else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        value = bytes(given).decode("utf-8", "replace")
    try:
        told = msgspec.json.encode([name, value], order="deterministic")
    except (UnicodeError, RecursionError, ValueError):
        told = bytes(given)
    return f"gemini-{blake2b(told, digest_size=12).hexdigest()}"


def _parts(words: Sequence[str]) -> tuple[int, argv.Parts]:
    start = common_launch.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


def _with(parts: argv.Parts, name: str, word: str) -> argv.Parts:
    return (argv.Part((name, word), (name,), (word,)), *parts)


def _named(parts: argv.Parts) -> str:
    """The session that the user named, where it is an id; `latest` and numbers are learned from a hook."""
    named = (
        argv.value(parts, "--resume") if argv.has(parts, "--resume") else argv.value(parts, "--session-id")
    )
    try:
        return str(UUID(named)) if named else ""
    except ValueError:
        return ""


def _real(ask: Ask) -> Path | None:
    home = common_launch.home(ask.environment, *HOME)
    return None if home is None else home / ".gemini"


def _login(ask: Ask) -> provider.GeminiLogin:
    return _read_login(ask.environment, ask.cwd)


def _read_login(environment: Mapping[str, str], cwd: Path) -> provider.GeminiLogin:
    home = common_launch.home(environment, *HOME)
    settings = {} if home is None else providers.json_file(home / ".gemini/settings.json")
    return provider.GeminiLogin(settings, environment, cwd, home)


def _home(ask: Ask) -> dict[str, str]:
    """A home of the run's own with our hooks in its settings; the user's in all else."""
    real = _real(ask)
    if real is None or not (ask.hook or ask.routes):
        return {}
    settings: json_lines.Record = _settings(real)
    if ask.routes:
        settings = providers.merged(settings, _login(ask).selected)
    if ask.hook:
        settings = with_hooks(settings, ask.hook)
    own = {"settings.json": msgspec.json.encode(keeping(dict(settings)))}
    home = ask.folder / "gemini-home"
    common_launch.overlay(home / ".gemini", real, own, folders=FOLDERS, files=FILES)
    return {HOME[0]: str(home)}


def _settings(real: Path) -> json_lines.Record:
    path = real / "settings.json"
    try:
        data = common_launch.settings(path)
        found = (
            json_lines.record(common_launch.uncommented(data.decode("utf-8")).encode())
            if data.strip()
            else {}
        )
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"gemini's settings {path} cannot be read", hint="it must be a JSON object"
        ) from error
    if found is None:
        raise UsageError(f"gemini's settings {path} cannot be understood", hint="it must be a JSON object")
    return found


def with_hooks(settings: json_lines.Record, command: Sequence[str]) -> dict[str, object]:
    """Settings with one more hook for each event that we hear of; the user's own stay, and run as well."""
    theirs = json_lines.inner(settings, "hooks")
    ours = {
        "name": "outlast",
        "type": "command",
        "command": common_launch.shell(command),
        "timeout": Timing.current().hook_timeout_s * 1000,
    }
    hooks: dict[str, object] = dict(theirs)
    for event in HOOKED:
        hooks[event] = [*json_lines.items(theirs, event), {"hooks": [ours]}]
    return {**settings, "hooks": hooks}


def keeping(settings: dict[str, object]) -> dict[str, object]:
    """Settings under which it deletes no sessions at its start, unless the user says which it may."""
    general = json_lines.inner(settings, "general")
    if "sessionRetention" in general:
        return settings
    return {**settings, "general": {**general, "sessionRetention": {"enabled": False}}}


def _is_of(path: Path, session: str) -> bool:
    try:
        with path.open("rb") as file:
            return f'"sessionId":"{session}"'.encode() in file.read(HEAD_BYTES)
    except OSError:
        return False


def _resolved(path: str) -> str:
    """The chat file in the user's own home, not through the run's."""
    try:
        return os.path.realpath(path) if path else ""
    except (OSError, ValueError):
        return ""


def _said(read: chat.ChatLine) -> Iterator[AgentEvent]:
    yield Response(read.id)
    if not read.tool_calls:  # it is written again with each change: only the first time are its words new
        words = chat.spoken(read.content)
        if words:
            yield Text(words)
    for call in read.tool_calls or ():
        known = call_id(call.name, call.args)
        yield ToolStart(known, call.name, call.args)
        if call.status in ("success", "error", "cancelled"):
            said = chat.answered(call.result)
            yield ToolEnd(known, call.status == "success", said, task=background.gemini(said))
    if read.tokens is not None:
        yield UsageReport(chat.spent(read.tokens), "response", read.id, read.model)


def _outcome(response: msgspec.Raw) -> tuple[bool, str]:
    read = json_lines.record(bytes(response)) or {}
    error = json_lines.text(read, "error", "message") or json_lines.text(read, "error")
    said = json_lines.text(read, "llmContent") or chat.spoken(
        json_lines.raw(json_lines.at(read, "llmContent"))
    )
    return not error, said or error


def _error(tail: bytes) -> str:
    """What its result says went wrong, in either of its formats for programs."""
    for line in json_lines.backwards(tail, TAIL_LINES_MAX):
        read = json_lines.record(line) if b'"error"' in line else None
        if read is not None and json_lines.text(read, "type") in ("", "result", "error"):  # not a tool's
            found = json_lines.text(read, "error", "message") or json_lines.text(read, "error")
            if found:
                return found
    start = tail.rfind(b'\n  "error": {')
    found_at = re.search(rb'"message": ("(?:[^"\\]|\\.)*")', tail[start:]) if start >= 0 else None
    return json_lines.text(json_lines.record(b'{"m":' + found_at[1] + b"}") or {}, "m") if found_at else ""


ADAPTER = Gemini()
