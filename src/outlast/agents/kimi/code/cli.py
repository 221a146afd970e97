"""Kimi Code's command line and hooks: how it is recognised, started and resumed. Its transcript is in transcript.py.
Read from 2.1.0.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from outlast.agents.common import argv, json_lines, launch as common_launch, own_server, providers
from outlast.agents.common.grammar import Grammar, wants_json
from outlast.agents.kimi import common, provider
from outlast.agents.kimi.code.transcript import SESSION
from outlast.agents.release import Names
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, CommandLine, Hook, Payment, Route
from outlast.errors import UsageError

PACKAGES = ("@moonshot-ai/kimi-code",)
HOOKED = ("SessionStart", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "StopFailure")
# What it makes in its home, and must come to lie in the user's.
FOLDERS = ("sessions", "logs", "cache", "credentials")
FILES = ("session_index.jsonl", "device_id")
MCP_FILE = "mcp.json"

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
NAMES = Names(
    frozenset(["kimi"]),
    frozenset(PACKAGES),
    file=re.compile(r"@moonshot-ai/kimi-code(?:-[\w-]+)?/(?:[\w.-]+/)*[\w.-]+$"),
)
GRAMMAR = Grammar(names=NAMES, table=TABLE, subcommands=SUBCOMMANDS, elsewhere=ELSEWHERE)


class KimiCodeCli:
    """Hooks can only be set in its home's config.toml, so it gets a home of the run's own that is the user's in all else.

    It fails open: a hook that exits with anything but 2, or late, lets the call run.
    """

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        # kimi-cli has the same name, and is a Python script.
        start = common_launch.start(words, program, NAMES)
        if start == 1 and common_launch.is_python(program) and not NAMES.is_file(program):
            return False
        return GRAMMAR.opens_session(words, program)

    def read(self, words: Sequence[str]) -> CommandLine:
        parts = GRAMMAR.parts(words)
        return CommandLine(
            prompt=argv.value(parts, "--prompt") or "",
            headless=argv.has(parts, "--prompt"),
            trusting=argv.has(parts, "--prompt", "--auto"),
            structured=wants_json(parts),
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = GRAMMAR.split(ask.words)
        session = _named(parts)
        if ask.session is not None:
            session = ask.session.session
            # It refuses to be given an agent's definition together with a session.
            parts = argv.without(parts, *SESSION_FLAGS, "--agent", "--agent-file", "--plan")
            parts = (*parts, argv.with_word("--session", session))
        elif ask.prompt:
            session, parts = "", argv.without(parts, *SESSION_FLAGS)
        if ask.interactive:
            parts = argv.without(parts, "--prompt", "--output-format")
        elif ask.prompt:
            parts = (*argv.without(parts, "--prompt"), argv.with_equals("--prompt", ask.prompt))
        environment = {**_home(ask), **read_login(ask.words, ask.environment, ask.cwd).variables(ask)}
        return AgentCommand((*ask.words[:start], *argv.joined(parts)), environment, session)

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Headless it never asks: it has no safer mode, and refuses the flags that say so."""
        return ("kimi", f"--prompt={prompt}")

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("kimi", "--session", session)

    # --- its hooks ---

    def hooks_off(self, ask: Ask) -> str:
        return ""

    def hook(self, data: bytes) -> Hook:
        return common.hook(data)

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        return common.answer(data, answer)


class KimiCodeLogin:
    """Its login. A gateway is only possible where each address in its config.toml can be replaced."""

    def __init__(self, known: provider.KimiLogin) -> None:
        self._known = known
        self.variables = known.variables

    @property
    def model(self) -> str:
        return self._known.model

    def payment(self) -> Payment:
        return self._known.payment()

    def account(self) -> str:
        return self._known.account()

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        routed = self._known.gateway(ask, route)
        try:
            if isinstance(routed, str) or provider.has_only_routes(_config(routed), routed):
                return routed
        except OSError:
            return "its config.toml cannot be read"
        return "its config.toml has a base_url that cannot be found there: write each on a line of its own"


def read_login(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> KimiCodeLogin:
    """The login that a command would use."""
    home = common_launch.home(environment, *provider.CODE_HOME)
    config = providers.toml_text(providers.text(home / "config.toml")) if home is not None else {}
    named = argv.value(GRAMMAR.parts(words), "--model") or ""
    return KimiCodeLogin(provider.KimiLogin(config, environment, named, env_first=False))


def _named(parts: argv.Parts) -> str:
    named = argv.value(parts, "--session") or ""
    return named if SESSION.fullmatch(named) else ""


def _config(ask: Ask) -> bytes:
    """The text of its settings, as a routed ask is to have it."""
    home = common_launch.home(ask.environment, *provider.CODE_HOME)
    return b"" if home is None else provider.with_routes(common_launch.settings(home / "config.toml"), ask)


def _home(ask: Ask) -> dict[str, str]:
    """A home of the run's own with our hooks and routes in its settings; the user's in all else."""
    real = common_launch.home(ask.environment, *provider.CODE_HOME)
    if real is None or not (ask.hook or ask.routes):
        return {}
    config = with_hooks(_config(ask), ask.hook) if ask.hook else _config(ask)
    own = {"config.toml": config}
    if ask.mcp is not None:
        theirs = providers.json_file(real / MCP_FILE)
        servers = own_server.listed(json_lines.inner(theirs, "mcpServers"), ask.mcp)
        own[MCP_FILE] = msgspec.json.encode({**theirs, "mcpServers": servers})
    home = common_launch.overlay(ask.folder / "kimi-code-home", real, own, folders=FOLDERS, files=FILES)
    return {provider.CODE_HOME[0]: str(home)}


def with_hooks(config: bytes, command: Sequence[str]) -> bytes:
    """The user's config.toml with one more hook for each event that we hear of; raises UsageError where it cannot be."""
    tables = [
        f"[[hooks]]\nevent = {providers.toml_string(event)}\ncommand = {providers.toml_string(common_launch.shell(command))}\ntimeout = {Timing.current().hook_timeout_s}\n"
        for event in HOOKED
    ]
    merged = b"\n".join([config, *(table.encode() for table in tables)])
    try:
        tomllib.loads(merged.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            "cannot add a hook to Kimi Code's config.toml: it is not valid TOML, or it has `hooks` on one line",
            hint="write its hooks as [[hooks]] tables; `kimi doctor` checks the file",
        ) from error
    return merged
