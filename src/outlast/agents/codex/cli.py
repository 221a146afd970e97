"""Codex's command line and hooks: how it is recognised, started and resumed. Its rollout is in transcript.py.
Read from 0.166.
"""

import hashlib
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from outlast.agents.codex import provider, rollout
from outlast.agents.common import (
    argv,
    background,
    hook_reply,
    json_lines,
    launch as common_launch,
    own_server,
    providers,
    versions,
)
from outlast.agents.common.grammar import Grammar
from outlast.agents.events import BatchEnd, Session, ToolEnd, ToolStart
from outlast.agents.release import Names
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, CommandLine, Hook, McpServer

PACKAGES = ("@openai/codex",)
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
NAMES = Names(
    frozenset(("codex", "codex.exe")),
    frozenset(PACKAGES),
    file=re.compile(rf"{_SCRIPT.pattern}|(?:^|/)codex-(?:x86_64|aarch64)-[\w-]+(?:\.exe)?$"),
)
GRAMMAR = Grammar(names=NAMES, table=TABLE, subcommands=NO_SESSION, elsewhere=("--help", "--version"))
ID = re.compile(r"[0-9a-fA-F-]{8,64}")


class CodexCli:
    """Its npm package is a small node program around the real one. Where that is found, it is what we start and hold."""

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        if not GRAMMAR.opens_session(words, program):
            return False
        start = common_launch.start(words, program, NAMES)
        named = argv.positionals(argv.split(words[start:], TABLE))
        return not (named[:1] and named[0] in HEADLESS and named[1:2] and named[1] in NO_SESSION_IN_EXEC)

    def read(self, words: Sequence[str]) -> CommandLine:
        parts = GRAMMAR.parts(words)
        is_unrecorded = argv.has(parts, "--ephemeral")
        return CommandLine(
            prompt=_prompt(parts),
            headless=_is_headless(parts),
            trusting=argv.has(parts, TRUSTING) or argv.value(parts, "--sandbox") == "danger-full-access",
            structured=argv.has(parts, "--json"),
            unrecorded="--ephemeral keeps no rollout" if is_unrecorded else "",
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = GRAMMAR.split(ask.words)
        head, environment = _unwrapped(ask, start)
        headless = _is_headless(parts) and not ask.interactive
        program = shutil.which(head[-1], path=ask.environment.get("PATH")) or head[-1]
        if ask.interactive:
            parts = _at_terminal(parts, program)
        hooks: tuple[str, ...] = ()
        if ask.hook:
            hooks = _hook_flags(ask.hook, parts, program)
            parts = _without_hooks(parts)
        if ask.mcp is not None:
            hooks += ("--config", _mcp_setting(ask.mcp))
        if ask.routes:
            ours = provider.CodexLogin(parts, ask.environment).routed(ask)
            parts, theirs = provider.split(parts, ours)
            hooks += (*theirs, *(word for one in ours for word in (provider.SETTING, one)))
            environment = {**environment, **providers.no_proxy(ask)}
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

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        # Outside a repository it refuses to work because nothing could be undone there; outlast saves the files.
        mode = (TRUSTING,) if trusting else ("--sandbox", "workspace-write")
        return ("codex", "exec", "--skip-git-repo-check", *mode, "--", prompt)

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("codex", "resume", session)

    # --- its hooks ---

    def hooks_off(self, ask: Ask) -> str:
        return ""

    def hook(self, data: bytes) -> Hook:
        read = json_lines.record(data)
        if read is None:
            return Hook("other")
        known, lane = json_lines.text(read, "tool_use_id"), json_lines.text(read, "agent_id")
        match json_lines.text(read, "hook_event_name"):
            case "PreToolUse":
                given = json_lines.raw(read.get("tool_input"))
                started = ToolStart(known, json_lines.text(read, "tool_name"), given, lane)
                return Hook("pre", (started,) if known else ())
            case "PostToolUse":
                output = rollout.output_text(read.get("tool_response"))
                ok, task = not rollout.is_aborted(output), background.codex(output)
                ended = ToolEnd(known, ok, output, lane, sure=False, task=task)
                return Hook("post", (ended,) if known else ())
            case "Stop":
                return Hook("other", (BatchEnd(lane),))
            case "SessionStart" | "UserPromptSubmit":
                session = json_lines.text(read, "session_id")
                known_session = Session(session, json_lines.text(read, "transcript_path"))
                return Hook("other", (known_session,) if session and not lane else ())
            case _:
                return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        event = json_lines.text(json_lines.record(data), "hook_event_name") or "PreToolUse"
        return hook_reply.reply(event, answer), 0


def read_login(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> provider.CodexLogin:
    """The login that a command would use."""
    return provider.CodexLogin(GRAMMAR.parts(words), environment)


# --- the command, read and written ----------------------------------------------------------------------------


def _is_headless(parts: argv.Parts) -> bool:
    named = argv.positionals(parts)
    return bool(named) and named[0] in HEADLESS


def _prompt(parts: argv.Parts) -> str:
    headless = _is_headless(parts)
    skipped = _subcommands(parts, headless)
    if skipped > int(headless) and not argv.has(parts, "--last"):
        skipped += 1  # the session's id
    at = argv.prompt_at(parts, skipped)
    return "" if at is None or parts[at].words == ("-",) else parts[at].words[0]


def _unwrapped(ask: Ask, start: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """The program to start, and its variables: the one that the npm package wraps, if it can be found."""
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
    handler = (
        f'{{type="command",command={providers.toml_string(line)},timeout={Timing.current().hook_timeout_s}}}'
    )
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


def _mcp_setting(server: McpServer) -> str:
    """Our MCP server for this run, besides the user's own. It gives a server few of its variables, so they are named."""
    string = providers.toml_string
    variables = ",".join(f"{name}={string(value)}" for name, value in server.variables.items())
    words = ",".join(map(string, server.command[1:]))
    return (
        f"mcp_servers.{own_server.NAME}={{command={string(server.command[0])},args=[{words}],env={{{variables}}},"
        'default_tools_approval_mode="approve"}'
    )


def trust_hash(label: str, line: str) -> str:
    """By what Codex knows a hook that a person has looked at."""
    hook = {"async": False, "command": line, "timeout": Timing.current().hook_timeout_s, "type": "command"}
    return f"sha256:{hashlib.sha256(msgspec.json.encode({'event_name': label, 'hooks': [hook]})).hexdigest()}"


def _setting(part: argv.Part) -> str:
    return part.values[-1].strip() if part.values and part.names[-1:] == ("--config",) else ""


def _given_hooks(parts: argv.Parts, event: str) -> tuple[str, int]:
    """The hooks for an event that the user's own flags give, and how many groups they are: the last flag counts."""
    for part in reversed(parts):
        name, _, value = _setting(part).partition("=")
        if name.strip() == f"hooks.{event}" and value.strip().startswith("[") and value.strip().endswith("]"):
            try:
                groups = len(tomllib.loads(f"hooks={value}")["hooks"])
            except (tomllib.TOMLDecodeError, TypeError, RecursionError):
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
    return versions.parts(versions.by_package(program, PACKAGES))


def _subcommands(parts: argv.Parts, headless: bool) -> int:
    """How many positional words are commands, not arguments: `exec`, `exec resume`, `resume`."""
    named = argv.positionals(tuple(part for part in parts if not part.literal))
    inner = named[1:] if headless else named
    return int(headless) + (bool(inner) and inner[0] in GOES_ON)


def _named_session(parts: argv.Parts) -> str:
    """The session that the user goes on with, where it is an id and not a fork of it."""
    named = argv.positionals(parts)
    for at, word in enumerate(named[:2]):
        if word == "resume" and at + 1 < len(named) and ID.fullmatch(named[at + 1]):
            return named[at + 1]
    return ""


def _plain(parts: argv.Parts, headless: bool) -> argv.Parts:
    """The flags of a command, without its session and its prompt."""
    rest = argv.without(parts, "--last", "--all", argv.END)
    first = _at(rest, 0) if headless else None
    return tuple(part for at, part in enumerate(rest) if part.names or at == first)


def _resumed(
    parts: argv.Parts, headless: bool, session: str, prompt: str, hooks: Sequence[str]
) -> tuple[str, ...]:
    words = argv.joined(_plain(parts, headless))
    return (*words, "resume", *hooks, session, *((argv.END, prompt) if prompt else ()))


def _fresh(parts: argv.Parts, headless: bool, prompt: str) -> argv.Parts:
    words = _plain(parts, headless)
    return (*words, *argv.literal(prompt))
