"""opencode's command line and its plugin's hooks: how it is recognised, started and resumed. Read from 1.18.33."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.agents.common import argv, hook_reply, json_lines, launch as common_launch, own_server, providers
from outlast.agents.common.grammar import Grammar
from outlast.agents.events import Session, ToolStart
from outlast.agents.opencode import provider, transcript
from outlast.agents.opencode.plugin import PLUGIN
from outlast.agents.opencode.transcript import JOURNAL_FILE
from outlast.agents.release import Names
from outlast.agents.values import AgentCommand, Answer, Ask, CommandLine, Hook
from outlast.core import values
from outlast.errors import UsageError

PACKAGES = ("opencode-ai", "opencode-linux", "opencode-darwin")
CONTENT = provider.CONTENT
PLUGIN_FILE = "opencode-plugin.js"
DENIED = 2

TABLE = argv.Table(
    valued=frozenset(
        """--log-level --command --session --model --agent --format --title --attach --password --username --dir --port
        --variant --prompt --hostname""".split()
    ),
    listed=frozenset(["--file"]),
    bare=frozenset(
        """--help --version --print-logs --pure --continue --fork --share --thinking --interactive --auto
        --mdns""".split()
    ),
    aliases={
        "-h": "--help", "-v": "--version", "-c": "--continue", "-s": "--session", "-m": "--model", "-f": "--file",
        "-p": "--password", "-u": "--username", "-i": "--interactive",
    },
)  # fmt: skip
SUBCOMMANDS = frozenset(
    """completion acp mcp attach debug providers auth agent upgrade uninstall serve web models stats export import
    github pr session plugin plug db""".split()
)
ELSEWHERE = ("--version", "--help", "--attach")
SESSION_FLAGS = ("--session", "--continue", "--fork")
FIRST_ONLY = ("--command", "--file", "--title")
NAMES = Names(
    frozenset(["opencode"]),
    frozenset(["opencode-ai"]),
    file=re.compile(r"/opencode-(?:ai|(?:linux|darwin)-[\w-]+)/bin/opencode(?:\.exe)?$"),
)
GRAMMAR = Grammar(names=NAMES, table=TABLE, subcommands=SUBCOMMANDS, elsewhere=ELSEWHERE)
_SESSION = re.compile(r"ses_[A-Za-z0-9]{1,64}")


class _HookInput(msgspec.Struct, frozen=True):
    hook_event_name: str = ""
    session_id: str = ""
    lane: str = ""
    tool_name: str = ""
    tool_call_id: str = ""
    tool_input: msgspec.Raw = values.NULL
    tool_output: str | None = ""
    exit_code: object = None


_hook_input: "msgspec.json.Decoder[_HookInput]" = decoders.of_json(_HookInput)


class OpencodeCli:
    """A small plugin of the run's own asks before each call, and reports what it did."""

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        return GRAMMAR.opens_session(words, program)

    def read(self, words: Sequence[str]) -> CommandLine:
        parts = GRAMMAR.parts(words)
        is_run = _is_run(parts)
        return CommandLine(
            prompt=" ".join(argv.positionals(parts)[1:]) if is_run else argv.value(parts, "--prompt") or "",
            headless=is_run and not argv.has(parts, "--interactive"),
            trusting=argv.has(parts, "--auto"),
            structured=argv.value(parts, "--format") == "json",
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = GRAMMAR.split(ask.words)
        named = argv.value(parts, "--session") or ""
        session = named if _SESSION.fullmatch(named) and not argv.has(parts, "--fork") else ""
        if ask.session is not None or ask.prompt:
            session = ask.session.session if ask.session is not None else ""
            parts = argv.without(parts, *SESSION_FLAGS, *FIRST_ONLY)
            parts = _going_on(parts, session, ask.prompt, interactive=ask.interactive)
        elif ask.interactive and (line := self.read(ask.words)).headless:
            parts = _going_on(argv.without(parts, *FIRST_ONLY), "", line.prompt, interactive=True)
        return AgentCommand((*ask.words[:start], *argv.joined(parts)), _environment(ask), session)

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Without `--auto` it does what its settings allow, such as edits, and refuses where they make it ask."""
        return ("opencode", "run", *(("--auto",) if trusting else ()), "--", prompt)

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("opencode", "--session", session)

    # --- its hooks: the plugin's own words ---

    def hooks_off(self, ask: Ask) -> str:
        parts = GRAMMAR.parts(ask.words)
        if argv.has(parts, "--pure") or ask.environment.get("OPENCODE_PURE") in ("1", "true"):
            return "--pure switches plugins off"
        if ask.environment.get("OPENCODE_DISABLE_EXTERNAL_PLUGINS") in ("1", "true"):
            return "OPENCODE_DISABLE_EXTERNAL_PLUGINS switches plugins off"
        return ""

    def hook(self, data: bytes) -> Hook:
        read = json_lines.decode(data, _hook_input)
        if read is None:
            return Hook("other")
        match read.hook_event_name:
            case "PreToolUse":
                return Hook(
                    "pre", (ToolStart(read.tool_call_id, read.tool_name, read.tool_input, read.lane),)
                )
            case "PostToolUse":
                output = read.tool_output or ""
                ended = transcript.ended(read.tool_call_id, read.tool_name, output, read.lane, read.exit_code)
                return Hook("post", (ended,))
            case "SessionStart" if read.session_id:
                return Hook("other", (Session(read.session_id),))
            case _:
                return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        reason = answer.reason.encode("utf-8", "replace")
        return (reason, 0) if answer.allowed else (reason or hook_reply.DENIED.encode(), DENIED)


def read_login(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> provider.OpencodeLogin:
    """The login that a command would use."""
    parts = GRAMMAR.parts(words)
    folder = cwd / (argv.value(parts, "--dir") or "")
    return provider.OpencodeLogin(argv.value(parts, "--model") or "", environment, folder)


def _is_run(parts: argv.Parts) -> bool:
    return argv.positionals(parts)[:1] == ("run",)


def _going_on(parts: argv.Parts, session: str, prompt: str, *, interactive: bool) -> argv.Parts:
    """The command with another session and other words to say, after `run` or without it."""
    is_run = _is_run(parts)
    at = next((index for index, part in enumerate(parts) if not part.names), len(parts))
    rest = (
        parts
        if not is_run
        else parts[:at] + tuple(part for part in parts[at + 1 :] if part.names and part.names != (argv.END,))
    )
    if session:
        rest = (*rest, argv.with_word("--session", session))
    if interactive:
        rest = argv.without(rest, "--format", "--auto", "--thinking", "--variant") if is_run else rest
        given = (argv.with_equals("--prompt", prompt),) if prompt else ()
        return (*argv.without(rest, "--prompt"), *given)
    run = (argv.Part(("run",), values=("run",)),)
    return (*run, *rest, *(argv.literal(prompt) if prompt else ()))


def _environment(ask: Ask) -> dict[str, str]:
    """The plugin and the routes, by a setting in the environment that opencode adds to those in files."""
    if not ask.hook and not ask.routes:
        return {}
    theirs = ask.environment.get(CONTENT, "")
    config = (
        json_lines.record(common_launch.without_comments(theirs).encode("utf-8", "replace"))
        if theirs.strip()
        else {}
    )
    if config is None:
        raise UsageError(f"opencode's {CONTENT} cannot be understood", hint="it must be a JSON object")
    if ask.routes:
        config = providers.merged(config, read_login(ask.words, ask.environment, ask.cwd).routed(ask))
    if ask.hook:
        config = {**config, "plugin": [*json_lines.items(config, "plugin"), _plugin(ask).resolve().as_uri()]}
    if ask.mcp is not None:
        ours = {
            "type": "local",
            "command": list(ask.mcp.command),
            "environment": dict(ask.mcp.variables),
            "enabled": True,
        }
        config = {**config, "mcp": {**json_lines.inner(config, "mcp"), own_server.NAME: ours}}
    return {CONTENT: json.dumps(config), **providers.no_proxy(ask)}


def _plugin(ask: Ask) -> Path:
    """The plugin's file, written for this run."""
    if ask.session is None:  # what another session wrote is not this one's
        with contextlib.suppress(FileNotFoundError):
            (ask.folder / JOURNAL_FILE).rename(ask.folder / f"before-{JOURNAL_FILE}")
    source = PLUGIN.replace("COMMAND", json.dumps(list(ask.hook)), 1)
    source = source.replace("JOURNAL", json.dumps(str(ask.folder / JOURNAL_FILE)), 1)
    return common_launch.private(ask.folder / PLUGIN_FILE, source.encode("utf-8", "surrogateescape"))
