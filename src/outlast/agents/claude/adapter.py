"""Claude Code: what its command line, transcript and hooks mean, and how it is started and resumed.

Read from 2.1.197 and 2.1.325. SessionStart is not hooked: it is the one hook whose runs show in stream-json output.
"""

import codecs
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

import msgspec

from outlast.agents import Adapter, ByLogin
from outlast.agents.claude import provider, transcript as claude_transcript
from outlast.agents.claude.transcript import told
from outlast.agents.common import argv, endings, json_lines, launch as common_launch, versions
from outlast.agents.events import AgentEvent, BatchEnd, Final, ModelCost, Session, ToolEnd, ToolStart
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, Caps, Cut, Hook
from outlast.core import values
from outlast.errors import UsageError

NAME = "claude"
PACKAGES = ("@anthropic-ai/claude-code",)
TRIED = versions.TestedVersions("claude", (2, 0), (2, 1), "see `claude update`")
TAIL_LINES_MAX = 40
MODELS_MAX = 64  # of its bill that are read
SETTINGS_MAX_BYTES = 4 << 20
SETTINGS_FILE = "claude-settings.json"
HOOKED = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "SessionEnd")
# A version that does not know an event ignores the whole file without a word (seen: 2.0.0, 2.1.0), and hooks are how
# outward calls are held: these are asked for only where the version is known and has them.
HOOKED_LATER = ("PostToolUseFailure", "PostToolBatch")
LATER = (2, 1, 197)

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

NAMES = common_launch.Names(
    frozenset(("claude", "claude.exe")),
    frozenset(PACKAGES),
    file=re.compile(
        r"(?:^|/)(?:@anthropic-ai/claude-code(?:-[\w-]+)?/(?:[\w.-]+/)*(?:cli\.m?js|claude(?:\.exe)?)"
        r"|claude/versions/\d[\w.-]*)$"
    ),
)


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


_hook_input: "msgspec.json.Decoder[_HookInput]" = msgspec.json.Decoder(_HookInput)


class Claude(ByLogin):
    """The adapter. The clock and the maker of session ids are arguments."""

    name = NAME
    caps = Caps(
        intent=("hooks", "shims", "transcript"),
        resume=True,
        preassigned_session=True,
        mends=True,
        tells=True,
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
        parts = argv.split(words[start:], TABLE)
        return argv.opens_session(parts, SUBCOMMANDS, ELSEWHERE)

    def is_headless(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--print")

    def prompt(self, words: Sequence[str]) -> str:
        parts = _parts(words)[1]
        at = argv.prompt_at(parts)
        return (
            "" if at is None or argv.value(parts, "--input-format") == "stream-json" else parts[at].words[0]
        )

    def version(self, program: str, run: versions.Runner | None = None) -> str:
        return versions.of(program, PACKAGES, run)

    def problem(self, version: str) -> str:
        return TRIED.problem(version)

    def untested(self, version: str) -> str:
        return TRIED.untested(version)

    def blind(self, ask: Ask) -> str:
        """Why its hooks will not run although they are asked for; empty when they will."""
        parts = _parts(ask.words)[1]
        for flag in ("--bare", "--safe-mode"):
            if argv.has(parts, flag):
                return f"{flag} switches hooks off"
        if ask.environment.get("CLAUDE_CODE_SIMPLE") in ("1", "true"):
            return "CLAUDE_CODE_SIMPLE switches hooks off"
        if json_lines.flag(_login(ask).settings, "disableAllHooks"):
            return "its settings switch hooks off (disableAllHooks)"
        return ""

    def unkept(self, ask: Ask) -> str:
        parts = _parts(ask.words)[1]
        flag = "--no-session-persistence"
        return f"{flag} keeps no transcript" if argv.has(parts, flag) and not ask.interactive else ""

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = _parts(ask.words)
        if ask.session is not None and argv.has(parts, "--no-session-persistence"):
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
        if ask.hook or variables:
            added += ("--settings", str(_write_settings(parts, ask, variables)))
            parts = argv.without(parts, "--settings")
        return AgentCommand((*ask.words[:start], *added, *argv.joined(parts)), variables, session)

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("claude", "--resume", session)

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        mode = ("--dangerously-skip-permissions",) if trusting else ("--permission-mode", "acceptEdits")
        return ("claude", "-p", *mode, "--", prompt)

    def trusting(self, words: Sequence[str]) -> bool:
        parts = _parts(words)[1]
        bypasses = argv.value(parts, "--permission-mode") == "bypassPermissions"
        return bypasses or argv.has(parts, "--dangerously-skip-permissions")

    # --- its provider ---

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        parts = _parts(words)[1]
        return provider.ClaudeLogin(parts, environment, cwd).model(parts)

    def login(self, ask: Ask) -> provider.ClaudeLogin:
        return _login(ask)

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        path = self.place(session, ask)
        if path is None or path.is_file():
            return path
        return next(iter(sorted(path.parents[1].glob(f"*/{path.name}"))), None)

    def place(self, session: str, ask: Ask) -> Path | None:
        """Of the folder's project: it looks for a session nowhere else."""
        if not re.fullmatch(r"[\w.-]{1,128}", session) or session.startswith("."):
            return None
        home = ask.environment.get("HOME", "")
        config = ask.environment.get("CLAUDE_CONFIG_DIR") or (os.path.join(home, ".claude") if home else "")
        if not config:
            return None
        cwds = (str(ask.cwd), os.path.realpath(ask.cwd))
        paths = [Path(config) / "projects" / dashed(cwd) / f"{session}.jsonl" for cwd in cwds]
        return next((path for path in paths if path.is_file()), paths[-1])

    def lanes(self, transcript: Path) -> tuple[Path, ...]:
        """The transcripts of its sub-agents, which are files beside its own."""
        return tuple(sorted(transcript.with_suffix("").glob("subagents/agent-*.jsonl")))

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        """Also of its stream-json output, which alone tells of a subscription's windows."""
        if b'"rate_limit_event"' in line:
            return claude_transcript.windows(line)
        if b'"queue-operation"' in line:
            return claude_transcript.notified(line)
        read = claude_transcript.read(line)
        return claude_transcript.events(read, self._said_at(read)) if read is not None else ()

    def _said_at(self, line: claude_transcript.TranscriptLine) -> datetime:
        return json_lines.moment(line.timestamp) or self._clock()

    # --- its hooks ---

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
                task = claude_transcript.task_of(read.tool_response)
                ended = ToolEnd(known, True, told(read.tool_response), lane, task=task)
                return Hook("post", (ended,) if known else ())
            case "PostToolUseFailure":
                return Hook("post", (ToolEnd(known, False, read.error, lane),) if known else ())
            case "PostToolBatch" | "Stop" | "SubagentStop":
                return Hook("other", (BatchEnd(lane),))
            case "UserPromptSubmit" | "SessionStart":
                session = Session(read.session_id, read.transcript_path)
                return Hook("other", (session,) if read.session_id and not lane else ())
            case _:
                return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        """A denial stops the call (PreToolUse), the prompt, the agent (PostToolUse, PostToolBatch), or its stopping."""
        if answer.allowed and not answer.reason:
            return b"", 0
        read = json_lines.decode(data, _hook_input)
        return msgspec.json.encode(_reply(read.hook_event_name if read else "PreToolUse", answer)), 0

    # --- how it ended ---

    def structured(self, words: Sequence[str]) -> bool:
        return argv.value(_parts(words)[1], "--output-format") in ("json", "stream-json")

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        result = _result(tail)
        final = self._final(exit_code, tail, transcript, result)
        return msgspec.structs.replace(final, bill=_bill(result)) if result is not None else final

    def _final(
        self, exit_code: int, tail: bytes, transcript: bytes, result: json_lines.Record | None
    ) -> Final:
        words = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace").strip()
        if exit_code < 0 or exit_code >= 128:
            return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")
        if result is not None:
            final = self._by_result(result, exit_code)
            if final is not None:
                exact = self._by_transcript(transcript) if final.ending == "usage_limit" else None
                return exact if exact is not None and exact.ending == final.ending else final
        last = self._by_transcript(transcript)
        if last is not None:
            return last
        if exit_code == 0:
            return Final("done", endings.said(words))
        told = endings.match(NAME, words, self._clock())
        return told or Final("crashed", endings.said(words) or f"exit code {exit_code}")

    def _by_result(self, result: json_lines.Record, exit_code: int) -> Final | None:
        words = json_lines.text(result, "result")
        words = words or " ".join(
            error for error in json_lines.items(result, "errors") if isinstance(error, str)
        )
        reason = json_lines.text(result, "terminal_reason")
        subtype = json_lines.text(result, "subtype")
        if subtype == "error_max_turns":
            return Final("turns", endings.said(words))
        if subtype == "error_max_budget_usd":
            return Final("budget", endings.said(words))
        if subtype == "error_during_execution":
            return Final("crashed", "interrupted" if reason.startswith("aborted") else endings.said(words))
        if reason == "hook_stopped":
            return Final("hook_stopped", endings.said(words))
        if reason == "prompt_too_long":
            return Final("context", endings.said(words))
        if json_lines.text(result, "stop_reason") == "refusal":
            return Final("refused", endings.said(words))
        if json_lines.flag(result, "is_error"):
            return endings.by_status(
                json_lines.number(result, "api_error_status"), words, NAME, self._clock()
            )
        return Final("done", endings.said(words)) if exit_code == 0 else None

    def _by_transcript(self, transcript: bytes) -> Final | None:
        """What its last words in the transcript tell, where they are an error."""
        for line in json_lines.backwards(transcript, TAIL_LINES_MAX):
            if b'"hook_stopped_continuation"' in line:
                return Final("hook_stopped")
            read = claude_transcript.read(line)
            if read is None or read.message is None or read.type not in ("assistant", "user"):
                continue
            words = told(read.message.content)
            if read.type == "user":
                return Final("crashed", "interrupted") if claude_transcript.INTERRUPTED in words else None
            if read.is_api_error_message:
                return claude_transcript.failed(read, words, self._said_at(read))
            return Final("refused", endings.said(words)) if read.message.stop_reason == "refusal" else None
        return None

    # --- its transcript, mended ---

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        return claude_transcript.mended(transcript, cuts)


def dashed(path: str) -> str:
    """How a folder's path names its project: every character but letters and digits a dash."""
    return re.sub(r"[^a-zA-Z0-9]", "-", path)


def _parts(words: Sequence[str]) -> tuple[int, argv.Parts]:
    start = common_launch.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


def _login(ask: Ask) -> provider.ClaudeLogin:
    return provider.ClaudeLogin(_parts(ask.words)[1], ask.environment, ask.cwd)


def _named_session(parts: argv.Parts) -> str:
    """The session that the user named, where it is an id; `--continue`, names and forks are learned from a hook."""
    if argv.has(parts, "--fork-session"):
        named = argv.value(parts, "--session-id")
    else:
        named = (
            argv.value(parts, "--resume")
            if argv.has(parts, "--resume")
            else argv.value(parts, "--session-id")
        )
    try:
        return str(UUID(named)) if named else ""
    except ValueError:
        return ""


def _without_prompt(parts: argv.Parts) -> argv.Parts:
    at = argv.prompt_at(parts)
    return parts if at is None else parts[:at] + parts[at + 1 :]


def _write_settings(parts: argv.Parts, ask: Ask, variables: Mapping[str, str]) -> Path:
    """The user's settings of this command with our hooks and variables, in a file of the run's own."""
    given = argv.value(parts, "--settings")
    settings = _read_settings(given, ask.cwd) if given else {}
    known = versions.parts(versions.named(_program(ask), PACKAGES)) >= LATER
    path = ask.folder / SETTINGS_FILE
    if ask.hook:
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
    word = ask.words[_parts(ask.words)[0] - 1]
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


def _result(tail: bytes) -> json_lines.Record | None:
    """The result line among the last ones that it printed; with `--verbose`, json is one line with a list of all."""
    for line in json_lines.backwards(tail, TAIL_LINES_MAX):
        if b'"result"' not in line:
            continue
        printed: list[object] = [json_lines.record(line)] if line.startswith(b"{") else []
        if line.startswith(b"["):
            printed = json_lines.items(json_lines.record(b'{"all":' + line + b"}"), "all")[-1:]
        for one in printed:
            if json_lines.text(one, "type") == "result":
                return json_lines.inner(one)
    return None


def _bill(result: json_lines.Record) -> tuple[ModelCost, ...]:
    """What it says that it cost, by model. Without `modelUsage` nothing says which tokens the total is for."""
    rows = json_lines.inner(result, "modelUsage")
    return tuple(
        ModelCost(
            model,
            values.Usage(
                input=json_lines.number(rows, model, "inputTokens"),
                output=json_lines.number(rows, model, "outputTokens"),
                cache_read=json_lines.number(rows, model, "cacheReadInputTokens"),
                cache_write=json_lines.number(rows, model, "cacheCreationInputTokens"),
                cost_microusd=_micro(json_lines.at(rows, model, "costUSD")),
            ),
        )
        for model in list(rows)[:MODELS_MAX]
    )


def _micro(dollars: object) -> int:
    return json_lines.number({"n": dollars * 1e6 if isinstance(dollars, int | float) else 0}, "n")


def _reply(event: str, answer: Answer) -> dict[str, object]:
    if answer.allowed:
        if event in ("Stop", "SubagentStop", "SessionEnd"):
            return {}
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": answer.reason}}
    reason = answer.reason or "denied by outlast"
    match event:
        case "PreToolUse":
            denial = {"permissionDecision": "deny", "permissionDecisionReason": reason}
            return {"hookSpecificOutput": {"hookEventName": event, **denial}}
        case "Stop" | "SubagentStop" | "UserPromptSubmit":
            return {"decision": "block", "reason": reason}
        case _:
            return {"continue": False, "stopReason": reason}


ADAPTER: Adapter = Claude()
