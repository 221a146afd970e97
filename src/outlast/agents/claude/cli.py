"""Claude Code's command line and hooks: how it is recognised, started and resumed.
Read from 2.1.197 and 2.1.325. Its transcript is in transcript.py.
"""

import codecs
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.agents.claude import lines, provider
from outlast.agents.common import (
    argv,
    exit_codes,
    hook_reply,
    json_lines,
    launch as common_launch,
    providers,
    versions,
)
from outlast.agents.common.grammar import Grammar, wants_json
from outlast.agents.events import BatchEnd, Session, ToolEnd, ToolStart
from outlast.agents.release import Names
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, CommandLine, Hook, HttpHook
from outlast.core import values
from outlast.errors import UsageError

PACKAGES = ("@anthropic-ai/claude-code",)
SETTINGS_MAX_BYTES = 4 << 20
SETTINGS_FILE = "claude-settings.json"
# SessionStart is left out: it is the one hook whose runs show in stream-json output.
HOOKED = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "SessionEnd")
# A version that does not know an event ignores the whole file without a word (seen: 2.0.0, 2.1.0), and hooks are how
# outward calls are held: these are asked for only where the version is known and has them.
HOOKED_LATER = ("PostToolUseFailure", "PostToolBatch")
LATER = (2, 1, 197)
# From here on a hook by HTTP can deny what nobody answers (`onFailure`). Before, the call passes: the command hook stays.
BY_HTTP = (2, 1, 325)
# They touch files and nothing else, so no hook runs before them: the end of their batch tells them. Any other tool has one.
FILE_TOOLS = (
    "Edit",
    "Glob",
    "Grep",
    "LS",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "Read",
    "TodoRead",
    "TodoWrite",
    "Write",
)
OTHER_TOOLS = f"^(?!(?:{'|'.join(FILE_TOOLS)})$)"
UNRECORDED = "--no-session-persistence"

TABLE = argv.Table(
    valued=frozenset(
        """--agent --agents --append-system-prompt --append-system-prompt-file --autocompact --debug-file --effort
        --environment --fallback-model --input-format --json-schema --max-budget-usd --max-thinking-tokens --max-turns
        --model --name --output-format --permission-mode --permission-prompt-tool --permission-prompts --plugin-dir
        --plugin-url --remote-control-session-name-prefix --session-id --setting-sources --settings --system-prompt
        --system-prompt-file --system-prompt-snapshot --advisor --managed-settings --resume-session-at --rewind-files
        --sdk-url --task-budget --team-name --teammate-mode --thinking --thinking-display --workload --prefill
        --parent-session-id --plan-mode-instructions --plugin-dir-no-mcp --append-subagent-system-prompt
        --append-subagent-system-prompt-file --fast-mode --agent-id --agent-name --agent-type --agent-color""".split()
    ),
    optional=frozenset(
        "--resume --from-pr --debug --worktree --cloud --remote --teleport --remote-control --rc --prompt-suggestions".split()
    ),
    listed=frozenset(
        """--add-dir --allowedTools --disallowedTools --betas --file --mcp-config --tools --channels
        --dangerously-load-development-channels""".split()
    ),
    bare=frozenset(
        """--print --continue --verbose --version --help --fork-session --no-session-persistence --bare --brief --chrome
        --no-chrome --dangerously-skip-permissions --allow-dangerously-skip-permissions --disable-slash-commands --ide
        --include-hook-events --include-partial-messages --replay-user-messages --safe-mode --strict-mcp-config --tmux
        --forward-subagent-text --restricted --exclude-dynamic-system-prompt-sections --ax-screen-reader
        --background --desktop""".split()
    ),
    aliases={
        "-p": "--print", "-c": "--continue", "-r": "--resume", "-v": "--version", "-h": "--help", "-d": "--debug",
        "-n": "--name", "-w": "--worktree", "--bg": "--background", "--allowed-tools": "--allowedTools",
        "--disallowed-tools": "--disallowedTools",
    },
)  # fmt: skip

# Commands that start no session, and flags that start one which this process does not hold.
SUBCOMMANDS = frozenset(
    """agents attach auth auto-mode config doctor gateway import install login logout logs mcp migrate-installer plugin
    plugins project purge respawn rm setup-token stop kill ultrareview update upgrade""".split()
)
ELSEWHERE = (
    "--version",
    "--help",
    "--background",
    "--cloud",
    "--remote",
    "--environment",
    "--desktop",
    "--teleport",
)
OTHER_SESSION = ("--resume", "--continue", "--from-pr", "--teleport")
SESSION_FLAGS = (
    *OTHER_SESSION,
    "--session-id",
    "--fork-session",
    "--resume-session-at",
    "--rewind-files",
    "--prefill",
)
STDIN_FLAGS = ("--input-format", "--replay-user-messages")
# Those that only work, or only make sense, where nobody is at the terminal.
PRINTING = (
    "--print", "--output-format", "--include-partial-messages", "--include-hook-events", "--json-schema",
    "--max-budget-usd", "--max-turns", "--no-session-persistence", "--permission-prompt-tool", "--permission-prompts",
    "--prompt-suggestions", "--forward-subagent-text", *STDIN_FLAGS,
)  # fmt: skip

NAMES = Names(
    frozenset(("claude", "claude.exe")),
    frozenset(PACKAGES),
    file=re.compile(
        r"(?:^|/)(?:@anthropic-ai/claude-code(?:-[\w-]+)?/(?:[\w.-]+/)*(?:cli\.m?js|claude(?:\.exe)?)"
        r"|claude/versions/\d[\w.-]*)$"
    ),
)
GRAMMAR = Grammar(names=NAMES, table=TABLE, subcommands=SUBCOMMANDS, elsewhere=ELSEWHERE)


class _BatchCall(msgspec.Struct, frozen=True):
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: msgspec.Raw = values.NULL
    tool_response: msgspec.Raw = msgspec.Raw(b"")


class _HookInput(msgspec.Struct, frozen=True):
    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    agent_id: str | None = None
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: msgspec.Raw = values.NULL
    tool_response: msgspec.Raw = msgspec.Raw(b"")
    error: str = ""
    tool_calls: list[_BatchCall] = []


_hook_input: "msgspec.json.Decoder[_HookInput]" = decoders.of_json(_HookInput)


class ClaudeCli:
    """The maker of session ids is an argument."""

    def __init__(self, fresh_id: Callable[[], str] = common_launch.fresh_id) -> None:
        self._fresh_id = fresh_id

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        return GRAMMAR.opens_session(words, program)

    def read(self, words: Sequence[str]) -> CommandLine:
        parts = GRAMMAR.parts(words)
        at = argv.prompt_at(parts)
        is_piped = at is None or argv.value(parts, "--input-format") == "stream-json"
        bypasses = argv.value(parts, "--permission-mode") == "bypassPermissions"
        return CommandLine(
            prompt="" if at is None or is_piped else parts[at].words[0],
            headless=argv.has(parts, "--print"),
            trusting=bypasses or argv.has(parts, "--dangerously-skip-permissions"),
            structured=wants_json(parts),
            unrecorded=f"{UNRECORDED} keeps no transcript" if argv.has(parts, UNRECORDED) else "",
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = GRAMMAR.split(ask.words)
        if ask.session is not None and argv.has(parts, UNRECORDED):
            return None
        if ask.interactive:
            parts = argv.without(parts, *PRINTING)
        session = ""
        if ask.session is not None:
            session = ask.session.session
            parts = argv.without(parts, *SESSION_FLAGS, *STDIN_FLAGS)
            parts = argv.with_prompt(parts, ask.prompt) if ask.prompt else _without_prompt(parts)
            added: tuple[str, ...] = ("--resume", session)
        elif ask.prompt:  # a fresh session from a rebuilt context: whatever the user named is another one
            session = self._fresh_id()
            parts = argv.with_prompt(argv.without(parts, *SESSION_FLAGS, *STDIN_FLAGS), ask.prompt)
            added = ("--session-id", session)
        elif argv.has(parts, *OTHER_SESSION, "--session-id"):
            session = _named_session(parts)
            added = ()
        else:
            session = self._fresh_id()
            added = ("--session-id", session)
        variables = provider.variables(ask)
        by_http = self._by_http(parts, ask)
        if by_http:
            variables |= providers.direct(ask)
        if ask.hook or variables:
            added += ("--settings", str(_write_settings(parts, ask, variables, by_http=by_http)))
            parts = argv.without(parts, "--settings")
        defers = self._defers(parts, ask)
        return AgentCommand(
            (*ask.words[:start], *added, *argv.joined(parts)), variables, session, by_http, defers
        )

    def _defers(self, parts: argv.Parts, ask: Ask) -> bool:
        """Whether a hook may put a call aside: only where nobody is at the terminal, and in a version that was tried. One that
        does not know the word might let the call pass."""
        printing = argv.has(parts, "--print") and not ask.interactive
        return (
            printing and bool(ask.hook) and _version(ask) >= LATER and not argv.has(parts, "--input-format")
        )

    def _by_http(self, parts: argv.Parts, ask: Ask) -> bool:
        """Whether its hooks come by HTTP: its version can deny what nobody answers, and nothing may keep them from us."""
        if (
            ask.by_http is None
            or not ask.hook
            or _version(ask) < BY_HTTP
            or argv.has(parts, "--managed-settings")
        ):
            return False
        login = provider.ClaudeLogin(parts, ask.environment, ask.cwd)
        return not provider.forbids_http(login)

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        mode = ("--dangerously-skip-permissions",) if trusting else ("--permission-mode", "acceptEdits")
        return ("claude", "-p", *mode, "--", prompt)

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("claude", "--resume", session)

    # --- its hooks ---

    def hooks_off(self, ask: Ask) -> str:
        parts = GRAMMAR.parts(ask.words)
        for flag in ("--bare", "--safe-mode"):
            if argv.has(parts, flag):
                return f"{flag} switches hooks off"
        if ask.environment.get("CLAUDE_CODE_SIMPLE") in ("1", "true"):
            return "CLAUDE_CODE_SIMPLE switches hooks off"
        login = provider.ClaudeLogin(parts, ask.environment, ask.cwd)
        if json_lines.flag(login.settings, "disableAllHooks"):
            return "its settings switch hooks off (disableAllHooks)"
        return ""

    def hook(self, data: bytes) -> Hook:
        read = json_lines.decode(data, _hook_input)
        if read is None:
            return Hook("other")
        lane, known = read.agent_id or "", read.tool_use_id
        match read.hook_event_name:
            case "PreToolUse":
                started = ToolStart(known, read.tool_name, read.tool_input, lane)
                return Hook("pre", (started,) if known else ())
            case "PostToolUse":
                task = lines.task_of(read.tool_response)
                ended = ToolEnd(known, True, lines.text_of(read.tool_response), lane, task=task)
                return Hook("post", (ended,) if known else ())
            case "PostToolUseFailure":
                return Hook(
                    "post",
                    (ToolEnd(known, False, read.error, lane, code=exit_codes.claude(read.error)),)
                    if known
                    else (),
                )
            case "PostToolBatch":
                return Hook("other", (*_of_batch(read, lane), BatchEnd(lane)), ends_batch=not lane)
            case "Stop" | "SubagentStop":
                return Hook("other", (BatchEnd(lane),))
            case "UserPromptSubmit" | "SessionStart":
                session = Session(read.session_id, read.transcript_path)
                return Hook("other", (session,) if read.session_id and not lane else ())
            case _:
                return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        read = json_lines.decode(data, _hook_input)
        event = read.hook_event_name if read else "PreToolUse"
        if answer.aside and event == "PreToolUse":
            return hook_reply.aside(answer), 0
        return hook_reply.reply(event, answer), 0


def _of_batch(read: _HookInput, lane: str) -> Iterator[ToolStart | ToolEnd]:
    """The calls of a batch that no other hook tells of. How they ended its transcript says better."""
    for call in read.tool_calls:
        if call.tool_name in FILE_TOOLS and call.tool_use_id:
            yield ToolStart(call.tool_use_id, call.tool_name, call.tool_input, lane)
            yield ToolEnd(call.tool_use_id, True, lines.text_of(call.tool_response), lane, sure=False)


def read_login(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> provider.ClaudeLogin:
    """The login that a command would use."""
    return provider.ClaudeLogin(GRAMMAR.parts(words), environment, cwd)


def _named_session(parts: argv.Parts) -> str:
    """The session that the user named, where it is an id; `--continue`, names and forks are learned from a hook."""
    resumes = argv.has(parts, "--resume") and not argv.has(parts, "--fork-session")
    return common_launch.uuid_or_empty(argv.value(parts, "--resume" if resumes else "--session-id"))


def _without_prompt(parts: argv.Parts) -> argv.Parts:
    at = argv.prompt_at(parts)
    return parts if at is None else parts[:at] + parts[at + 1 :]


def _version(ask: Ask) -> tuple[int, ...]:
    return versions.parts(versions.by_package(_program(ask), PACKAGES))


def _write_settings(parts: argv.Parts, ask: Ask, variables: Mapping[str, str], *, by_http: bool) -> Path:
    """The user's settings of this command with our hooks and variables, in a file of the run's own."""
    given = argv.value(parts, "--settings")
    settings = _read_settings(given, ask.cwd) if given else {}
    known = _version(ask) >= LATER
    path = ask.folder / SETTINGS_FILE
    if by_http and ask.by_http is not None:
        settings = with_http_hooks(settings, ask.by_http)
    elif ask.hook:
        settings = with_hooks(settings, ask.hook, (*HOOKED, *HOOKED_LATER) if known else HOOKED)
    if variables:
        settings = {**settings, "env": {**json_lines.inner(settings, "env"), **variables}}
    data = msgspec.json.encode(settings)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(data)
    return path


def _read_settings(given: str, cwd: Path) -> Mapping[str, object]:
    hint = "it must be a JSON object, or a file that holds one"
    if given.lstrip().startswith("{"):
        data = given.encode("utf-8", "replace")
    else:
        try:
            with (cwd / given).open("rb") as file:
                data = file.read(SETTINGS_MAX_BYTES).removeprefix(codecs.BOM_UTF8)
        except FileNotFoundError as error:
            raise UsageError(f"claude's --settings {given!r:.80} is not found", hint=hint) from error
        except (OSError, ValueError) as error:
            raise UsageError(f"claude's --settings {given!r:.80} cannot be read", hint=hint) from error
    settings = json_lines.record(data)
    if settings is None:
        raise UsageError(f"claude's --settings {given!r:.80} cannot be understood", hint=hint)
    return settings


def _program(ask: Ask) -> str:
    word = ask.words[GRAMMAR.split(ask.words)[0] - 1]
    return shutil.which(word, path=ask.environment.get("PATH")) or word


def with_hooks(
    settings: Mapping[str, object], command: Sequence[str], events: Sequence[str]
) -> dict[str, object]:
    """Settings with one more hook for each of the events; the user's own stay, and run as well."""
    theirs = json_lines.inner(settings, "hooks")
    ours = {"type": "command", "command": shlex.join(command), "timeout": Timing.current().hook_timeout_s}
    hooks: dict[str, object] = dict(theirs)
    for event in events:
        hooks[event] = [*json_lines.items(theirs, event), {"matcher": "*", "hooks": [ours]}]
    return {**settings, "hooks": hooks}


def with_http_hooks(settings: Mapping[str, object], hook: HttpHook) -> dict[str, object]:
    """The same by HTTP. What nobody answers before a call denies it; after a call nothing can be denied any more."""
    theirs = json_lines.inner(settings, "hooks")
    ours = {
        "type": "http", "url": hook.url, "headers": {hook.header: hook.secret}, "timeout": Timing.current().http_hook_s,
    }  # fmt: skip
    hooks: dict[str, object] = dict(theirs)
    for event in (*HOOKED, *HOOKED_LATER):
        is_of_tool = event in ("PreToolUse", "PostToolUse", "PostToolUseFailure")
        denies = {"onFailure": "block"} if event == "PreToolUse" else {}
        entry = {"matcher": OTHER_TOOLS if is_of_tool else "*", "hooks": [ours | denies]}
        hooks[event] = [*json_lines.items(theirs, event), entry]
    return {**settings, "hooks": hooks}
