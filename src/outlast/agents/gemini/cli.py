"""Gemini CLI's command line and hooks: how it is recognised, started and resumed. Its chat files are in transcript.py.
Read from 0.61.0.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.agents.common import argv, hook_reply, json_lines, launch as common_launch, own_server, providers
from outlast.agents.common.grammar import Grammar, wants_json
from outlast.agents.events import BatchEnd, Session, ToolStart
from outlast.agents.gemini import chat, provider, shell
from outlast.agents.gemini.transcript import call_id, chats_of, user_folder
from outlast.agents.release import Names
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, CommandLine, Hook
from outlast.core import values
from outlast.errors import UsageError

PACKAGES = ("@google/gemini-cli",)
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
NAMES = Names(
    frozenset(["gemini"]),
    frozenset([*PACKAGES, "gemini-cli"]),
    file=re.compile(r"@google/gemini-cli/(?:[\w.-]+/)*[\w.-]+\.js$"),
)
GRAMMAR = Grammar(names=NAMES, table=TABLE, subcommands=SUBCOMMANDS, elsewhere=ELSEWHERE)


class _HookInput(msgspec.Struct, frozen=True):
    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    tool_name: str = ""
    tool_input: msgspec.Raw = values.NULL
    tool_response: msgspec.Raw = values.NULL


_hook_input: "msgspec.json.Decoder[_HookInput]" = decoders.of_json(_HookInput)


class GeminiCli:
    """The maker of session ids is an argument.

    Gemini obeys a system settings file only when that and every folder above it belong to root, so its hooks come with a
    home of the run's own that is the user's in all else.
    """

    def __init__(self, fresh_id: Callable[[], str] = common_launch.fresh_id) -> None:
        self._fresh_id = fresh_id

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        return GRAMMAR.opens_session(words, program)

    def read(self, words: Sequence[str]) -> CommandLine:
        parts = GRAMMAR.parts(words)
        named = argv.value(parts, *PROMPTS)
        return CommandLine(
            prompt=" ".join(argv.positionals(parts)) if named is None else named,
            headless=argv.has(parts, "--prompt"),
            trusting=argv.has(parts, "--yolo") or argv.value(parts, "--approval-mode") == "yolo",
            structured=wants_json(parts),
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = GRAMMAR.split(ask.words)
        if ask.session is not None:
            session = ask.session.session
            _undouble(session, ask)
            parts = _with(argv.without(parts, *SESSION_FLAGS), "--resume", session)
        elif ask.prompt or not argv.has(parts, *SESSION_FLAGS):
            session = self._fresh_id()
            parts = _with(argv.without(parts, *SESSION_FLAGS), "--session-id", session)
        else:
            session = _named(parts)
        if ask.prompt or (ask.interactive and ask.session is not None):
            parts = tuple(part for part in argv.without(parts, *PROMPTS) if part.names)
        prompt = ask.prompt or (argv.value(parts, "--prompt") if ask.interactive else "")
        if prompt:
            name = "--prompt-interactive" if ask.interactive else "--prompt"
            parts = (*parts, argv.with_equals(name, prompt))
        if ask.interactive:
            parts = argv.without(parts, "--prompt", "--output-format")
        # Without this the program that we start only starts another, which a kill does not reach.
        routed = _login(ask).variables(ask) if ask.routes else {}
        environment = {"GEMINI_CLI_NO_RELAUNCH": "true", **_home(ask), **routed}
        return AgentCommand((*ask.words[:start], *argv.joined(parts)), environment, session)

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        return ("gemini", f"--approval-mode={'yolo' if trusting else 'auto_edit'}", f"--prompt={prompt}")

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("gemini", "--resume", session)

    # --- its hooks ---

    def hooks_off(self, ask: Ask) -> str:
        real = user_folder(ask)
        settings = _settings(real) if real is not None else {}
        if json_lines.at(settings, "hooksConfig", "enabled") is False:
            return "its settings switch hooks off (hooksConfig.enabled)"
        return ""

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
                ok, output = _outcome(read.tool_response)
                return Hook("post", (shell.ended(call, read.tool_name, ok, output),))
            case "SessionStart" if read.session_id:
                return Hook("other", (Session(read.session_id, _resolved(read.transcript_path)),))
            case "AfterAgent":
                return Hook("other", (BatchEnd(),))
            case _:
                return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        """Gemini wants JSON or nothing. A denial stops the call; after a call it stops the agent, since it would hide the result."""
        read = json_lines.decode(data, _hook_input) or _HookInput("BeforeTool")
        if answer.allowed:
            if not answer.reason or read.hook_event_name not in ("AfterTool", "SessionStart"):
                return b"", 0
            words = {"hookEventName": read.hook_event_name, "additionalContext": answer.reason}
            return msgspec.json.encode({"hookSpecificOutput": words}), 0
        reason = answer.reason or hook_reply.DENIED
        if read.hook_event_name == "BeforeTool":
            return msgspec.json.encode({"decision": "deny", "reason": reason}), 0
        return msgspec.json.encode({"continue": False, "stopReason": reason}), 0


def read_login(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> provider.GeminiLogin:
    """The login that a command would use."""
    home = common_launch.home(environment, *provider.HOME)
    settings = {} if home is None else providers.json_file(home / ".gemini/settings.json")
    named = argv.value(GRAMMAR.parts(words), "--model") or ""
    return provider.GeminiLogin(named, settings, environment, cwd, home)


def _login(ask: Ask) -> provider.GeminiLogin:
    return read_login(ask.words, ask.environment, ask.cwd)


def _with(parts: argv.Parts, name: str, word: str) -> argv.Parts:
    return (argv.with_word(name, word), *parts)


def _named(parts: argv.Parts) -> str:
    """The session that the user named, where it is an id; `latest` and numbers are learned from a hook."""
    flag = "--resume" if argv.has(parts, "--resume") else "--session-id"
    return common_launch.uuid_or_empty(argv.value(parts, flag))


def _undouble(session: str, ask: Ask) -> None:
    """A resumed Gemini reads each result twice, and once more with each resume, unless the file says otherwise."""
    chats = chats_of(session, ask)
    if not chats:
        return
    path = chats[0]
    for other in chats[1:]:
        # Each resume leaves a file without a message, for which the next Gemini deletes the session, both files.
        if chat.is_empty(common_launch.settings(other)):
            other.unlink(missing_ok=True)
    data = path.read_bytes()
    more = chat.mend(data, ())[len(data) :]
    if more:
        with path.open("ab") as file:
            file.write(more)


def _home(ask: Ask) -> dict[str, str]:
    """A home of the run's own with our hooks in its settings; the user's in all else."""
    real = user_folder(ask)
    if real is None or not (ask.hook or ask.routes):
        return {}
    settings: json_lines.Record = _settings(real)
    if ask.routes:
        settings = providers.merged(settings, _login(ask).selected)
    if ask.hook:
        settings = with_hooks(settings, ask.hook)
    if ask.mcp is not None:
        ours = own_server.entry(ask.mcp) | {"trust": True}
        settings = {
            **settings,
            "mcpServers": {**json_lines.inner(settings, "mcpServers"), own_server.NAME: ours},
        }
    own = {"settings.json": msgspec.json.encode(without_retention(dict(settings)))}
    home = ask.folder / "gemini-home"
    common_launch.overlay(home / ".gemini", real, own, folders=FOLDERS, files=FILES)
    return {provider.HOME[0]: str(home)}


def _settings(real: Path) -> json_lines.Record:
    path = real / "settings.json"
    try:
        data = common_launch.settings(path)
        found = (
            json_lines.record(common_launch.without_comments(data.decode("utf-8")).encode())
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


def without_retention(settings: dict[str, object]) -> dict[str, object]:
    """Settings under which it deletes no sessions at its start, unless the user says which it may."""
    general = json_lines.inner(settings, "general")
    if "sessionRetention" in general:
        return settings
    return {**settings, "general": {**general, "sessionRetention": {"enabled": False}}}


def _resolved(path: str) -> str:
    """The chat file in the user's own home, not through the run's."""
    try:
        return os.path.realpath(path) if path else ""
    except (OSError, ValueError):
        return ""


def _outcome(response: msgspec.Raw) -> tuple[bool, str]:
    read = json_lines.record(bytes(response)) or {}
    error = json_lines.text(read, "error", "message") or json_lines.text(read, "error")
    output = json_lines.text(read, "llmContent") or chat.text_of(
        json_lines.raw(json_lines.at(read, "llmContent"))
    )
    return not error, output or error
