"""Codex: what its command line, rollout and hooks mean, and how it is started and resumed.

Read from 0.166. Its npm package is a small node program around the real one; where the real one is found, that is what
is started, so that it is what we hold.
"""

import hashlib
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast.agents import Adapter, ByLogin
from outlast.agents.codex import provider, rollout
from outlast.agents.common import (
    argv,
    background,
    endings,
    json_lines,
    launch as common_launch,
    providers,
    versions,
)
from outlast.agents.events import AgentEvent, BatchEnd, Final, Limit, Retry, Session, Text, ToolEnd, ToolStart
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, Caps, Cut, Hook

NAME = "codex"
PACKAGES = ("@openai/codex",)
TRIED = versions.TestedVersions("codex", (0, 160), (0, 166), "see `codex update`")
TAIL_LINES_MAX = 40
HOOKED = {
    "SessionStart": "session_start",
    "UserPromptSubmit": "user_prompt_submit",
    "PreToolUse": "pre_tool_use",
    "PostToolUse": "post_tool_use",
    "Stop": "stop",
}
# Hooks that nobody has trusted do not run. Ours are trusted for the run by their hash, as this version makes it; for
# any other there is only the flag that trusts all of them, also those that came with a repository, and prints so.
HASHED = (0, 166)
LAYER = "/<session-flags>/config.toml"  # what Codex calls the settings of its command line

TABLE = argv.Table(
    valued=frozenset(
        """--config --enable --disable --remote --remote-auth-token-env --model --local-provider --profile --sandbox --cd
        --add-dir --ask-for-approval --thread-source --cyber-access-program --output-schema --color
        --output-last-message""".split()
    ),
    listed=frozenset({"--image"}),
    bare=frozenset(
        """--json --oss --strict-config --approve-for-me --dangerously-bypass-approvals-and-sandbox --worktree --search
        --dangerously-bypass-hook-trust --no-alt-screen --no-daemon --skip-git-repo-check --ephemeral --last --all --help
        --ignore-user-config --ignore-rules --version --full-auto""".split()
    ),
    aliases={
        "-c": "--config", "-i": "--image", "-m": "--model", "-p": "--profile", "-s": "--sandbox", "-C": "--cd",
        "-a": "--ask-for-approval", "-o": "--output-last-message", "-h": "--help", "-V": "--version",
        "--experimental-json": "--json", "--yolo": "--dangerously-bypass-approvals-and-sandbox",
    },
)  # fmt: skip
HEADLESS = ("exec", "e")
NO_SESSION = frozenset(
    """agents review login logout mcp plugin app-server remote-control completion update doctor sandbox debug apply a queue
    archive delete migrate-rollouts migrate-nfs-db unarchive cloud exec-server features help mcp-server""".split()
)
NO_SESSION_IN_EXEC = ("review", "help")
GOES_ON = ("resume", "fork")  # subcommands after which a session's id stands
TRUSTING = "--dangerously-bypass-approvals-and-sandbox"
# What only `exec` knows.
EXEC_FLAGS = (
    "--json", "--skip-git-repo-check", "--ephemeral", "--ignore-user-config", "--ignore-rules", "--output-schema", "--color",
    "--output-last-message", "--thread-source", "--cyber-access-program",
)  # fmt: skip

_SCRIPT = re.compile(r"@openai/codex/bin/codex\.m?js$")
NAMES = common_launch.Names(
    frozenset(("codex", "codex.exe")),
    frozenset(PACKAGES),
    file=re.compile(rf"{_SCRIPT.pattern}|(?:^|/)codex-(?:x86_64|aarch64)-[\w-]+(?:\.exe)?$"),
)
_ID = re.compile(r"[0-9a-fA-F-]{8,64}")
_V7 = re.compile(r"(0[0-9a-f]{7})-([0-9a-f]{4})-7[0-9a-f]{3}(?:-[0-9a-f]+){2}")


class Codex(ByLogin):
    """The adapter. The clock is an argument."""

    name = NAME
    caps = Caps(
        intent=("hooks", "shims", "transcript"), resume=True, mends=True, tells=True, response_ids=True
    )

    def __init__(self, clock: Callable[[], datetime] = common_launch.now) -> None:
        self._clock = clock
        self._models = rollout.Models()
        self._sessions = background.Sessions()

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        start = common_launch.start(words, program, NAMES)
        if start is None:
            return False
        parts = argv.split(words[start:], TABLE)
        named = argv.positionals(parts)
        if argv.has(parts, "--help", "--version") or (named[:1] and named[0] in NO_SESSION):
            return False
        return not (named[:1] and named[0] in HEADLESS and named[1:2] and named[1] in NO_SESSION_IN_EXEC)

    def is_headless(self, words: Sequence[str]) -> bool:
        named = argv.positionals(_parts(words)[1])
        return bool(named) and named[0] in HEADLESS

    def prompt(self, words: Sequence[str]) -> str:
        parts = _parts(words)[1]
        headless = self.is_headless(words)
        skipped = _subcommands(parts, headless)
        if skipped > int(headless) and not argv.has(parts, "--last"):
            skipped += 1  # the session's id
        at = argv.prompt_at(parts, skipped)
        return "" if at is None or parts[at].words == ("-",) else parts[at].words[0]

    def version(self, program: str, run: versions.Runner | None = None) -> str:
        return versions.of(program, PACKAGES, run)

    def problem(self, version: str) -> str:
        return TRIED.problem(version)

    def untested(self, version: str) -> str:
        return TRIED.untested(version)

    def unkept(self, ask: Ask) -> str:
        parts = _parts(ask.words)[1]
        return (
            "--ephemeral keeps no rollout" if argv.has(parts, "--ephemeral") and not ask.interactive else ""
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = _parts(ask.words)
        head, environment = _unwrapped(ask, start)
        headless = self.is_headless(ask.words) and not ask.interactive
        program = shutil.which(head[-1], path=ask.environment.get("PATH")) or head[-1]
        if ask.interactive:
            parts = _at_terminal(parts, program)
        hooks: tuple[str, ...] = ()
        if ask.hook:
            hooks = _hook_flags(ask.hook, parts, program)
            parts = _without_hooks(parts)
        if ask.routes:
            ours = provider.CodexLogin(parts, ask.environment).routed(ask)
            parts, theirs = provider.split(parts, ours)
            hooks += (*theirs, *(word for one in ours for word in (provider.SETTING, one)))
            environment = {**environment, **providers.reaching(ask)}
        if ask.session is not None:
            if argv.has(parts, "--ephemeral"):
                return None
            command = _resumed(parts, headless, ask.session.session, ask.prompt, hooks)
            return AgentCommand((*head, *command), environment, ask.session.session)
        if ask.prompt:
            parts = _fresh(parts, headless, ask.prompt)
        at = _at(parts, 0) if headless else None
        before = () if at is None else argv.joined(parts[: at + 1])
        after = argv.joined(parts if at is None else parts[at + 1 :])
        return AgentCommand((*head, *before, *hooks, *after), environment, _named_session(parts))

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("codex", "resume", session)

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        # Outside a repository it refuses to work because nothing could be undone there; outlast saves the files.
        mode = (TRUSTING,) if trusting else ("--sandbox", "workspace-write")
        return ("codex", "exec", "--skip-git-repo-check", *mode, "--", prompt)

    def trusting(self, words: Sequence[str]) -> bool:
        parts = _parts(words)[1]
        return argv.has(parts, TRUSTING) or argv.value(parts, "--sandbox") == "danger-full-access"

    # --- its provider ---

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        parts = _parts(words)[1]
        return provider.CodexLogin(parts, environment).model(parts)

    def login(self, ask: Ask) -> provider.CodexLogin:
        return _login(ask)

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        folder = _sessions(session, ask)
        return None if folder is None else max(folder.glob(f"*/*/*/rollout-*-{session}.jsonl"), default=None)

    def place(self, session: str, ask: Ask) -> Path | None:
        """By the moment that its id tells, which it was made at."""
        folder, found = _sessions(session, ask), self.transcript(session, ask)
        made = _V7.fullmatch(session)
        if folder is None or found is not None or made is None:
            return found
        at = datetime.fromtimestamp(int(made[1] + made[2], 16) // 1000, UTC)
        return folder / f"{at:%Y/%m/%d}" / f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{session}.jsonl"

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        read = rollout.read(line)
        if read is None:
            return ()
        head, payload = read
        match head.type:
            case "session_meta":
                session = json_lines.text(payload, "id")
                return (Session(session),) if session else ()
            case "response_item":
                return (*rollout.item(payload), *self._sessions.take(payload))
            case "turn_context":
                self._models.learn(payload)
                return ()
            case "token_usage_record":
                return rollout.usage(payload, self._models.of(payload))
            case "event_msg":
                return self._event(payload, head)
            case _:
                return ()

    def _event(self, payload: json_lines.Record, line: rollout.RolloutLine) -> Iterator[AgentEvent]:
        kind = json_lines.text(payload, "type")
        if kind == "token_count":  # written once a response and its calls are over
            limits = json_lines.inner(payload, "rate_limits")
            yield from rollout.windows(limits, self._said_at(line))
            limit = rollout.limit(limits)
            if limit is not None:
                yield limit
            yield BatchEnd()
        elif kind in ("task_complete", "turn_aborted"):
            words = json_lines.text(payload, "error", "message")
            if words:
                yield Text(words)
                final = self._failed(payload, words, self._said_at(line))
                if final.ending in ("usage_limit", "rate_limit"):
                    yield Limit(final.reset_at, final.text)
            yield BatchEnd()
        elif kind == "stream_error":
            yield Retry(0, json_lines.text(payload, "message"))

    def _said_at(self, line: rollout.RolloutLine) -> datetime:
        return json_lines.moment(line.timestamp) or self._clock()

    # --- its hooks ---

    def hook(self, data: bytes) -> Hook:
        read = json_lines.record(data)
        if read is None:
            return Hook("other")
        known = json_lines.text(read, "tool_use_id")
        match json_lines.text(read, "hook_event_name"):
            case "PreToolUse":
                started = ToolStart(
                    known, json_lines.text(read, "tool_name"), json_lines.raw(read.get("tool_input"))
                )
                return Hook("pre", (started,) if known else ())
            case "PostToolUse":
                output = rollout.told(read.get("tool_response"))
                ok, task = not rollout.is_aborted(output), background.codex(output)
                ended = ToolEnd(known, ok, output, sure=False, task=task)
                return Hook("post", (ended,) if known else ())
            case "Stop":
                return Hook("other", (BatchEnd(),))
            case "SessionStart" | "UserPromptSubmit":
                session = json_lines.text(read, "session_id")
                told = Session(session, json_lines.text(read, "transcript_path"))
                return Hook("other", (told,) if session else ())
            case _:
                return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        """A denial stops the call (PreToolUse), the prompt, the turn (PostToolUse), or the stopping of it (Stop)."""
        if answer.allowed and not answer.reason:
            return b"", 0
        event = json_lines.text(json_lines.record(data), "hook_event_name") or "PreToolUse"
        return msgspec.json.encode(_reply(event, answer)), 0

    # --- how it ended ---

    def structured(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--json")

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        if exit_code < 0 or exit_code >= 128:
            return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")
        for line in json_lines.backwards(transcript, TAIL_LINES_MAX):
            read = rollout.read(line)
            if read is None or read[0].type != "event_msg":
                continue
            head, payload = read
            kind = json_lines.text(payload, "type")
            if kind == "turn_aborted":
                return Final("crashed", json_lines.text(payload, "reason") or "interrupted")
            words = json_lines.text(payload, "error", "message")
            if kind == "task_complete" and words:
                final = self._failed(payload, words, self._said_at(head))
                full = rollout.full_until(transcript) if final.ending == "usage_limit" else None
                return Final(final.ending, final.text, full) if full is not None else final
            if kind in ("task_complete", "task_started"):
                break
        words = _last_words(tail)
        if exit_code == 0:
            return Final("done", endings.said(words))
        told = endings.match(NAME, words, self._clock())
        return told or Final("crashed", endings.said(words) or f"exit code {exit_code}")

    def _failed(self, payload: json_lines.Record, words: str, now: datetime) -> Final:
        info = json_lines.at(payload, "error", "codex_error_info")
        named = info if isinstance(info, str) else next(iter(info), "") if isinstance(info, dict) else ""
        if named == "usage_limit_exceeded":
            return Final("usage_limit", endings.said(words), endings.reset_at(words, now))
        if named == "context_window_exceeded":
            return Final("context", endings.said(words))
        if named == "unauthorized":
            return Final("auth", endings.said(words))
        status = json_lines.number(info, named, "http_status_code") if isinstance(info, dict) else 0
        if named == "internal_server_error":
            status = 500
        return endings.by_status(status, words, NAME, now)

    # --- its rollout, mended ---

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """As the protocol has it. A last line that is torn goes; to mend twice changes nothing more."""
        return rollout.mended(transcript, cuts)


# --- the command, read and written ----------------------------------------------------------------------------


def _parts(words: Sequence[str]) -> tuple[int, argv.Parts]:
    start = common_launch.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


def _login(ask: Ask) -> provider.CodexLogin:
    return provider.CodexLogin(_parts(ask.words)[1], ask.environment)


def _unwrapped(ask: Ask, start: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """What to start, and with which variables: the program that the npm package wraps, where it can be found."""
    word = ask.words[start - 1]
    real = versions.real(shutil.which(word, path=ask.environment.get("PATH")) or word)
    if not _SCRIPT.search(real):
        return ask.words[:start], {}
    native = native_program(Path(real))
    if native is None:
        return ask.words[:start], {}
    return (*ask.words[: common_launch.prefix(ask.words)], str(native)), {
        "CODEX_MANAGED_BY_NPM": "1",
        "CODEX_MANAGED_PACKAGE_ROOT": str(Path(real).parents[1]),
    }


def native_program(script: Path) -> Path | None:
    """The program that the node script of the npm package would start."""
    package = script.parents[1]
    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(os.uname().machine, "x64")
    platform = f"codex-{os.uname().sysname.lower()}-{machine}"
    places = (package.parent / platform, package / "node_modules" / "@openai" / platform, package)
    for place in places:
        for found in sorted(place.glob("vendor/*/bin/codex")):
            if os.access(found, os.X_OK):
                return found
    return None


def _hook_flags(command: Sequence[str], parts: argv.Parts, program: str) -> tuple[str, ...]:
    """Hooks for this run only, beside the user's own: those in files stay, those among the flags are written again."""
    line = shlex.join(command)
    handler = f'{{type="command",command={_quoted(line)},timeout={Timing.current().hook_timeout_s}}}'
    flags: list[str] = []
    trusted: list[str] = []
    for event, label in HOOKED.items():
        theirs, groups = _given_hooks(parts, event)
        flags += ["--config", f"hooks.{event}=[{theirs}{{hooks=[{handler}]}}]"]
        trusted.append(f'"{LAYER}:{label}:{groups}:0"={{trusted_hash="{trust_hash(label, line)}"}}')
    known = _known(program)[:2] == HASHED
    if known and not any(_setting(part).startswith(("hooks.state", "hooks=")) for part in parts):
        return (*flags, "--config", f"hooks.state={{{','.join(trusted)}}}")
    return (*flags, "--dangerously-bypass-hook-trust")


def trust_hash(label: str, line: str) -> str:
    """By what Codex knows a hook that a person has looked at."""
    hook = {"async": False, "command": line, "timeout": Timing.current().hook_timeout_s, "type": "command"}
    return f"sha256:{hashlib.sha256(msgspec.json.encode({'event_name': label, 'hooks': [hook]})).hexdigest()}"


def _quoted(text: str) -> str:
    """A text for TOML: what JSON writes is also that."""
    return msgspec.json.encode(text).decode()


def _setting(part: argv.Part) -> str:
    return part.values[-1].strip() if part.values and part.names[-1:] == ("--config",) else ""


def _given_hooks(parts: argv.Parts, event: str) -> tuple[str, int]:
    """The hooks for an event that the user's own flags give, and how many groups they are: the last flag counts."""
    for part in reversed(parts):
        name, _, value = _setting(part).partition("=")
        if name.strip() == f"hooks.{event}" and value.strip().startswith("[") and value.strip().endswith("]"):
            try:
                groups = len(tomllib.loads(f"hooks={value}")["hooks"])
            except (tomllib.TOMLDecodeError, TypeError):
                return "", 0
            return (value.strip()[1:-1].rstrip().rstrip(",") + ",", groups) if groups else ("", 0)
    return "", 0


def _without_hooks(parts: argv.Parts) -> argv.Parts:
    """Without the flags that ours repeat."""
    ours = tuple(f"hooks.{event}=" for event in HOOKED)
    return tuple(part for part in parts if not _setting(part).replace(" ", "").startswith(ours))


def _at(parts: argv.Parts, number: int) -> int | None:
    """Where the n-th positional word stands."""
    found = [at for at, part in enumerate(parts) if not part.names]
    return found[number] if number < len(found) else None


def _at_terminal(parts: argv.Parts, program: str) -> argv.Parts:
    """The same command for a person: without `exec`, and without what only that knows; in a process that is ours.

    A server that serves all terminals of the user would know nothing of this run's hooks, nor die with it.
    """
    at = _at(parts, 0)
    if at is not None and parts[at].words[0] in HEADLESS:
        parts = argv.without(parts[:at] + parts[at + 1 :], *EXEC_FLAGS)
    if argv.has(parts, "--no-daemon") or _known(program)[:2] < HASHED:
        return parts
    return (argv.Part(("--no-daemon",), ("--no-daemon",)), *parts)


def _known(program: str) -> tuple[int, ...]:
    return versions.parts(versions.named(program, PACKAGES))


def _subcommands(parts: argv.Parts, headless: bool) -> int:
    """How many positional words are commands, not arguments: `exec`, `exec resume`, `resume`."""
    named = argv.positionals(tuple(part for part in parts if not part.literal))
    inner = named[1:] if headless else named
    return int(headless) + (bool(inner) and inner[0] in GOES_ON)


def _named_session(parts: argv.Parts) -> str:
    """The session that the user goes on with, where it is an id and not a fork of it."""
    named = argv.positionals(parts)
    for at, word in enumerate(named[:2]):
        if word == "resume" and at + 1 < len(named) and _ID.fullmatch(named[at + 1]):
            return named[at + 1]
    return ""


def _plain(parts: argv.Parts, headless: bool) -> argv.Parts:
    """The flags of a command, without the words that say with which session it goes on and what it is told."""
    kept = argv.without(parts, "--last", "--all", argv.END)
    first = _at(kept, 0) if headless else None
    return tuple(part for at, part in enumerate(kept) if part.names or at == first)


def _sessions(session: str, ask: Ask) -> Path | None:
    """The folder of all rollouts; None where there is no home, or that is no id."""
    home = ask.environment.get("HOME", "")
    codex_home = ask.environment.get("CODEX_HOME") or (os.path.join(home, ".codex") if home else "")
    return Path(codex_home) / "sessions" if codex_home and _ID.fullmatch(session) else None


def _resumed(
    parts: argv.Parts, headless: bool, session: str, prompt: str, hooks: Sequence[str]
) -> tuple[str, ...]:
    words = argv.joined(_plain(parts, headless))
    return (*words, "resume", *hooks, session, *((argv.END, prompt) if prompt else ()))


def _fresh(parts: argv.Parts, headless: bool, prompt: str) -> argv.Parts:
    words = _plain(parts, headless)
    return (*words, argv.Part((argv.END,), (argv.END,)), argv.Part((prompt,), values=(prompt,), literal=True))


def _last_words(tail: bytes) -> str:
    """What it said last: the message of a JSON line, or the errors among its lines of text."""
    for line in json_lines.backwards(tail, TAIL_LINES_MAX):
        read = json_lines.record(line) if line.startswith(b"{") else None
        if read is not None:
            words = json_lines.text(read, "error", "message") or json_lines.text(read, "message")
            words = words or json_lines.text(read, "item", "text")
            if words:
                return words
    text = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace")
    errors = [line for line in text.splitlines() if line.startswith("ERROR: ")]
    return errors[-1].removeprefix("ERROR: ") if errors else text.strip()


def _reply(event: str, answer: Answer) -> dict[str, object]:
    if answer.allowed:
        if event in ("Stop", "SessionEnd"):
            return {}
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": answer.reason}}
    reason = answer.reason or "denied by outlast"
    match event:
        case "PreToolUse":
            denial = {"permissionDecision": "deny", "permissionDecisionReason": reason}
            return {"hookSpecificOutput": {"hookEventName": event, **denial}}
        case "Stop" | "UserPromptSubmit":
            return {"decision": "block", "reason": reason}
        case _:
            return {"continue": False, "stopReason": reason}


ADAPTER: Adapter = Codex()
