"""kimi-cli's command line and hooks: how it is recognised, started and resumed. Its transcript is in transcript.py.
Read from 1.51.0, the last release that does anything.
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from outlast.agents.common import argv, json_lines, launch as common_launch, repair
from outlast.agents.common.grammar import wants_json
from outlast.agents.kimi import common, provider
from outlast.agents.kimi.cli import hook_result
from outlast.agents.kimi.cli.grammar import GRAMMAR, PRINTING, SESSION_FLAGS
from outlast.agents.kimi.cli.transcript import (
    SESSION,
    context_messages,
    folder_of,
    hashed,
    last_step,
    wire_of,
)
from outlast.agents.timing import Timing
from outlast.agents.values import AgentCommand, Answer, Ask, CommandLine, Hook
from outlast.errors import UsageError

CONFIG_FILE = "kimi-cli-config.json"
FIRST_LINE_MAX_BYTES = 4 << 20
HOOKED = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "StopFailure")


class KimiCliCli:
    """The maker of session names is an argument."""

    def __init__(self, fresh_id: Callable[[], str] = common_launch.fresh_id) -> None:
        self._fresh_id = fresh_id

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        return GRAMMAR.opens_session(words, program)

    def read(self, words: Sequence[str]) -> CommandLine:
        parts = GRAMMAR.parts(words)
        return CommandLine(
            prompt=argv.value(parts, "--prompt") or "",
            headless=argv.has(parts, "--print", "--quiet"),
            trusting=argv.has(parts, "--print", "--quiet", "--yolo", "--afk"),
            structured=wants_json(parts),
        )

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = GRAMMAR.split(ask.words)
        if ask.session is not None:
            session = ask.session.session
            # Asked for a session that it does not find, it begins one of that name and says nothing.
            if not _knows(session, ask):
                return None
            _catch_up(session, ask)
            parts = _in_session(parts, session)
        elif ask.prompt or not argv.has(parts, *SESSION_FLAGS):
            session = self._fresh_id()
            parts = _in_session(parts, session)
        else:
            named = argv.value(parts, "--session") or ""
            session = named if SESSION.fullmatch(named) else ""
        if ask.interactive:
            prompt_flag = ("--prompt",) if ask.session is not None else ()
            parts = argv.without(parts, *PRINTING, *prompt_flag)
        if ask.prompt:
            parts = argv.without(parts, "--prompt", "--input-format")
            parts = (*parts, argv.with_equals("--prompt", ask.prompt))
        environment = _login(ask).variables(ask) if ask.routes else {}
        if ask.hook or ask.routes:
            parts = _with_config(parts, ask)
        return AgentCommand((*ask.words[:start], *argv.joined(parts)), environment, session)

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Headless it approves everything itself: it has no safer mode."""
        return ("kimi", "--print", f"--prompt={prompt}")

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("kimi", "--session", session)

    # --- its hooks ---

    def hooks_off(self, ask: Ask) -> str:
        return ""

    def hook(self, data: bytes) -> Hook:
        return common.hook(data, hook_result.ended)

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        return common.answer(data, answer)


def read_login(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> provider.KimiLogin:
    """The login that a command would use. Settings that cannot be read count as empty."""
    parts = GRAMMAR.parts(words)
    try:
        config = _config(parts, environment, cwd)
    except UsageError:
        config = {}
    return provider.KimiLogin(config, environment, argv.value(parts, "--model") or "", env_first=True)


def _in_session(parts: argv.Parts, session: str) -> argv.Parts:
    return (
        *argv.without(parts, *SESSION_FLAGS),
        argv.with_word("--session", session),
    )


def _knows(session: str, ask: Ask) -> bool:
    folder, home = folder_of(session, ask), common_launch.home(ask.environment, *provider.CLI_HOME)
    if folder is None or home is None or not (folder / "context.jsonl").is_file():
        return False
    if not _has_beginning(folder / "context.jsonl"):
        return False
    try:
        known = json_lines.record(common_launch.settings(home / "kimi.json"))
    except OSError:
        return False
    paths = [json_lines.text(place, "path") for place in json_lines.items(known or {}, "work_dirs")]
    return any(hashed(path) == folder.parent.name for path in paths)


def _has_beginning(context: Path) -> bool:
    """Whether somebody spoke before the model did: a file that was taken away under a live kimi-cli goes on in the middle."""
    with context.open("rb") as file:
        first = json_lines.record(file.readline(FIRST_LINE_MAX_BYTES))
    return first is None or json_lines.text(first, "role") not in ("assistant", "tool")


def _catch_up(session: str, ask: Ask) -> None:
    """The calls whose result is in the one file, as it is when that was mended, come into the other as well."""
    folder = folder_of(session, ask)
    wire = wire_of(session, ask)
    if folder is None or wire is None:
        return
    path = folder / "context.jsonl"
    context = path.read_bytes()
    words, ended = last_step(wire.read_bytes())
    full = repair.append(context, context_messages(context, ended, words))
    if full != context:
        common_launch.private(path, full)


def _login(ask: Ask) -> provider.KimiLogin:
    return read_login(ask.words, ask.environment, ask.cwd)


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
    given = argv.with_word("--config-file", str(path))
    return (*argv.without(parts, "--config", "--config-file"), given)


def _config(parts: argv.Parts, environment: Mapping[str, str], cwd: Path) -> Mapping[str, object]:
    given, named = argv.value(parts, "--config"), argv.value(parts, "--config-file")
    home = common_launch.home(environment, *provider.CLI_HOME)
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
