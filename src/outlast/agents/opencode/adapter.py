"""opencode: what its command line means, how it is started and resumed, and a small plugin of the run's own.

Read from 1.18.33. Its sessions lie in a SQLite file that only it may write, so nothing is mended there; a resumed
opencode says itself that a call was interrupted. What it did is read from a journal that the plugin writes, in the
shape of `opencode run --format json`. The plugin asks before each call, and a call that is not allowed is not made.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from outlast.agents import ByLogin
from outlast.agents.common import (
    argv,
    endings,
    json_lines,
    launch as common_launch,
    providers,
    repair,
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
from outlast.agents.opencode import provider
from outlast.agents.values import AgentCommand, Answer, Ask, Caps, Cut, Hook
from outlast.core import values
from outlast.errors import UsageError

NAME = "opencode"
PACKAGES = ("opencode-ai", "opencode-linux", "opencode-darwin")
TRIED = versions.TestedVersions("opencode", (1, 0), (1, 18), "see `opencode upgrade`")
CONTENT = provider.CONTENT
PLUGIN_FILE = "opencode-plugin.js"
JOURNAL_FILE = "opencode-journal.jsonl"
TAIL_LINES_MAX = 40
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
NAMES = common_launch.Names(
    frozenset(["opencode"]),
    frozenset(["opencode-ai"]),
    file=re.compile(r"/opencode-(?:ai|(?:linux|darwin)-[\w-]+)/bin/opencode(?:\.exe)?$"),
)
_SESSION = re.compile(r"ses_[A-Za-z0-9]{1,64}")

PLUGIN = """\
// Written by outlast for one run; see agents/opencode/adapter.py there. It asks before each call, and fails closed.
import { spawn } from "node:child_process"
import { appendFileSync } from "node:fs"

const command = COMMAND
const journal = JOURNAL
const said_max = 1 << 20
const models_max = 10_000
const children = new Set()
const models = new Map() // by the message that a step is part of

const lane = (session) => (children.has(session) ? session : "")
const note = (record) => {
  try {
    appendFileSync(journal, JSON.stringify(record) + "\\n")
  } catch {}
}
const ask = (input) =>
  new Promise((resolve, reject) => {
    let said = ""
    const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    child.on("error", (error) => reject(new Error(`outlast could not be asked, so this was not done: ${error.message}`)))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (data) => {
      if (said.length < said_max) said += data
    })
    child.on("close", (code) => {
      if (code === 0) resolve(said)
      else reject(new Error(said.trim() || "outlast did not allow this, so it was not done"))
    })
    child.stdin.end(JSON.stringify(input))
  })

export const Outlast = async ({ directory }) => {
  const told = (name, call, more) => ({
    hook_event_name: name,
    session_id: call.sessionID,
    lane: lane(call.sessionID),
    cwd: directory,
    tool_name: call.tool,
    tool_call_id: call.callID,
    ...more,
  })
  return {
    "tool.execute.before": async (call, output) => {
      await ask(told("PreToolUse", call, { tool_input: output.args }))
    },
    "tool.execute.after": async (call, output) => {
      const result = typeof output?.output === "string" ? output.output : JSON.stringify(output ?? null)
      try {
        const words = await ask(told("PostToolUse", call, { tool_output: result }))
        if (words && typeof output?.output === "string") output.output += "\\n" + words
      } catch {}
    },
    event: async ({ event }) => {
      const of = event.properties ?? {}
      if (event.type === "session.created") {
        if (of.info?.parentID) children.add(of.info.id)
        else {
          note({ type: "session", sessionID: of.info?.id })
          await ask({ hook_event_name: "SessionStart", session_id: of.info?.id, cwd: directory }).catch(() => {})
        }
      } else if (event.type === "session.error") {
        note({ type: "error", sessionID: of.sessionID, lane: lane(of.sessionID), error: of.error })
      } else if (event.type === "message.updated") {
        if (of.info?.modelID && models.size < models_max) models.set(of.info.id, of.info.modelID)
      } else if (event.type === "message.part.updated") {
        const part = of.part ?? {}
        const record = { sessionID: part.sessionID, lane: lane(part.sessionID), model: models.get(part.messageID), part }
        if (part.type === "step-start") note({ type: "step_start", ...record })
        if (part.type === "step-finish") note({ type: "step_finish", ...record })
        if (part.type === "text" && part.time?.end) note({ type: "text", ...record })
        if (part.type === "tool" && ["completed", "error"].includes(part.state?.status)) note({ type: "tool_use", ...record })
      }
    },
  }
}
"""


# --- the shapes of its lines; what is not named is skipped unread --------------------------------------------


class _Cache(msgspec.Struct, frozen=True):
    read: int = 0
    write: int = 0


class _Tokens(msgspec.Struct, frozen=True):
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: _Cache = _Cache()


class _State(msgspec.Struct, frozen=True):
    status: str = ""
    input: msgspec.Raw = values.NULL
    output: str | None = ""
    error: str | None = ""


class _Part(msgspec.Struct, frozen=True):
    id: str = ""
    message_id: str = msgspec.field(default="", name="messageID")
    type: str = ""
    text: str = ""
    tool: str = ""
    call_id: str = msgspec.field(default="", name="callID")
    state: _State | None = None
    tokens: _Tokens | None = None
    cost: float = 0.0


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    session_id: str = msgspec.field(default="", name="sessionID")
    lane: str = ""
    model: str = ""
    part: _Part | None = None


class _HookInput(msgspec.Struct, frozen=True):
    hook_event_name: str = ""
    session_id: str = ""
    lane: str = ""
    tool_name: str = ""
    tool_call_id: str = ""
    tool_input: msgspec.Raw = values.NULL
    tool_output: str | None = ""


_line: "msgspec.json.Decoder[_Line]" = msgspec.json.Decoder(_Line)
_hook_input: "msgspec.json.Decoder[_HookInput]" = msgspec.json.Decoder(_HookInput)


class OpenCode(ByLogin):
    """The adapter. The clock is an argument."""

    name = NAME
    caps = Caps(intent=("hooks", "shims"), resume=True, tells=True)

    def __init__(self, clock: Callable[[], datetime] = common_launch.now) -> None:
        self._clock = clock

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        start = common_launch.start(words, program, NAMES)
        if start is None:
            return False
        parts = argv.split(words[start:], TABLE)
        return argv.opens_session(parts, SUBCOMMANDS, ELSEWHERE)

    def is_headless(self, words: Sequence[str]) -> bool:
        parts = _parts(words)[1]
        return _is_run(parts) and not argv.has(parts, "--interactive")

    def prompt(self, words: Sequence[str]) -> str:
        parts = _parts(words)[1]
        return (
            " ".join(argv.positionals(parts)[1:]) if _is_run(parts) else argv.value(parts, "--prompt") or ""
        )

    def version(self, program: str, run: versions.Runner | None = None) -> str:
        return versions.of(program, PACKAGES, run)

    def problem(self, version: str) -> str:
        return TRIED.problem(version)

    def untested(self, version: str) -> str:
        return TRIED.untested(version)

    def blind(self, ask: Ask) -> str:
        """Why its plugin will not run although it is asked for; empty when it will."""
        if argv.has(_parts(ask.words)[1], "--pure") or ask.environment.get("OPENCODE_PURE") in ("1", "true"):
            return "--pure switches plugins off"
        if ask.environment.get("OPENCODE_DISABLE_EXTERNAL_PLUGINS") in ("1", "true"):
            return "OPENCODE_DISABLE_EXTERNAL_PLUGINS switches plugins off"
        return ""

    def launch(self, ask: Ask) -> AgentCommand | None:
        start, parts = _parts(ask.words)
        named = argv.value(parts, "--session") or ""
        session = named if _SESSION.fullmatch(named) and not argv.has(parts, "--fork") else ""
        if ask.session is not None or ask.prompt:
            session = ask.session.session if ask.session is not None else ""
            parts = argv.without(parts, *SESSION_FLAGS, *FIRST_ONLY)
            parts = _going_on(parts, session, ask.prompt, interactive=ask.interactive)
        elif ask.interactive and self.is_headless(ask.words):
            parts = _going_on(argv.without(parts, *FIRST_ONLY), "", self.prompt(ask.words), interactive=True)
        return AgentCommand((*ask.words[:start], *argv.joined(parts)), _environment(ask), session)

    def resume_words(self, session: str) -> tuple[str, ...]:
        return ("opencode", "--session", session)

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Without `--auto` it does what its settings allow, which edits are, and refuses what they have it ask about."""
        return ("opencode", "run", *(("--auto",) if trusting else ()), "--", prompt)

    def trusting(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--auto")

    # --- its provider ---

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        return providers.bare(_read_login(words, environment, cwd).model)

    def login(self, ask: Ask) -> provider.OpencodeLogin:
        return _login(ask)

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        """The journal of the run's own: opencode's session itself is in its SQLite file, and not ours to copy."""
        path = ask.folder / JOURNAL_FILE
        return path if path.is_file() else None

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        read = json_lines.decode(line, _line) if b'"type"' in line else None
        if read is None:
            return
        if read.type == "session" and read.session_id:
            yield Session(read.session_id)
        elif read.part is not None:
            yield from _told(read, read.part)

    # --- its hooks: the plugin's own words ---

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
                return Hook("post", (ToolEnd(read.tool_call_id, True, read.tool_output or "", read.lane),))
            case "SessionStart" if read.session_id:
                return Hook("other", (Session(read.session_id),))
            case _:
                return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        reason = answer.reason.encode("utf-8", "replace")
        return (reason, 0) if answer.allowed else (reason or b"denied by outlast", DENIED)

    # --- how it ended ---

    def structured(self, words: Sequence[str]) -> bool:
        return argv.value(_parts(words)[1], "--format") == "json"

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        words = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace").strip()
        if exit_code < 0 or exit_code >= 128:
            return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")
        error = _last_error(transcript) or _last_error(tail)
        if error is not None:
            return self._by_error(error)
        if exit_code == 0:
            return Final("done", endings.said(words))
        told = endings.match(NAME, words, self._clock())
        return told or Final("crashed", endings.said(words) or f"exit code {exit_code}")

    def _by_error(self, error: json_lines.Record) -> Final:
        """An error is its last word also where it exits 0."""
        name = json_lines.text(error, "name")
        said = json_lines.text(error, "data", "message") or name
        if name == "MessageAbortedError":
            return Final("crashed", "interrupted")
        if name == "ProviderAuthError":
            return Final("auth", endings.said(said))
        if name in ("ContextOverflowError", "MessageOutputLengthError"):
            return Final("context", endings.said(said))
        return endings.by_status(json_lines.number(error, "data", "statusCode"), said, NAME, self._clock())

    # --- its transcript, mended ---

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """Nothing to mend: what a resumed opencode reads is in its SQLite file."""
        return repair.whole(transcript)


def _parts(words: Sequence[str]) -> tuple[int, argv.Parts]:
    start = common_launch.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


def _is_run(parts: argv.Parts) -> bool:
    return argv.positionals(parts)[:1] == ("run",)


def _going_on(parts: argv.Parts, session: str, prompt: str, *, interactive: bool) -> argv.Parts:
    """The command with another session and other words to say, after `run` or without it."""
    is_run = _is_run(parts)
    at = next((index for index, part in enumerate(parts) if not part.names), len(parts))
    kept = (
        parts
        if not is_run
        else parts[:at] + tuple(part for part in parts[at + 1 :] if part.names and part.names != (argv.END,))
    )
    if session:
        kept = (*kept, argv.Part(("--session", session), ("--session",), (session,)))
    if interactive:
        kept = argv.without(kept, "--format", "--auto", "--thinking", "--variant") if is_run else kept
        given = (argv.Part((f"--prompt={prompt}",), ("--prompt",), (prompt,)),) if prompt else ()
        return (*argv.without(kept, "--prompt"), *given)
    run = (argv.Part(("run",), values=("run",)),)
    said = (
        (argv.Part((argv.END,), (argv.END,)), argv.Part((prompt,), values=(prompt,), literal=True))
        if prompt
        else ()
    )
    return (*run, *kept, *said)


def _login(ask: Ask) -> provider.OpencodeLogin:
    return _read_login(ask.words, ask.environment, ask.cwd)


def _read_login(words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> provider.OpencodeLogin:
    parts = _parts(words)[1]
    folder = cwd / (argv.value(parts, "--dir") or "")
    return provider.OpencodeLogin(argv.value(parts, "--model") or "", environment, folder)


def _environment(ask: Ask) -> dict[str, str]:
    """The plugin and the routes, by a setting in the environment that opencode adds to those in files."""
    if not ask.hook and not ask.routes:
        return {}
    theirs = ask.environment.get(CONTENT, "")
    config = (
        json_lines.record(common_launch.uncommented(theirs).encode("utf-8", "replace"))
        if theirs.strip()
        else {}
    )
    if config is None:
        raise UsageError(f"opencode's {CONTENT} cannot be understood", hint="it must be a JSON object")
    if ask.routes:
        config = providers.merged(config, _login(ask).routed(ask))
    if ask.hook:
        config = {**config, "plugin": [*json_lines.items(config, "plugin"), _plugin(ask).resolve().as_uri()]}
    return {CONTENT: json.dumps(config), **providers.reaching(ask)}


def _plugin(ask: Ask) -> Path:
    """The plugin's file, written for this run."""
    if ask.session is None:  # what another session wrote is not this one's
        with contextlib.suppress(FileNotFoundError):
            (ask.folder / JOURNAL_FILE).rename(ask.folder / f"before-{JOURNAL_FILE}")
    source = PLUGIN.replace("COMMAND", json.dumps(list(ask.hook)), 1)
    source = source.replace("JOURNAL", json.dumps(str(ask.folder / JOURNAL_FILE)), 1)
    return common_launch.private(ask.folder / PLUGIN_FILE, source.encode("utf-8", "surrogateescape"))


def _told(line: _Line, part: _Part) -> Iterator[AgentEvent]:
    lane = line.lane
    match line.type:
        case "step_start":
            yield Response(part.message_id, lane)
        case "text":
            yield Text(part.text, lane)
        case "tool_use" if part.call_id and part.state is not None:
            state = part.state
            yield ToolStart(part.call_id, part.tool, state.input, lane)
            ok = state.status == "completed"
            yield ToolEnd(part.call_id, ok, (state.output if ok else state.error) or "", lane)
        case "step_finish":
            if part.tokens is not None:
                model = providers.bare(line.model)
                yield UsageReport(
                    _spent(part.tokens, part.cost), "response", part.id or part.message_id, model, lane
                )
            yield BatchEnd(lane)
        case _:
            return


def _spent(tokens: _Tokens, cost_usd: float) -> values.Usage:
    counts = (tokens.input, tokens.output + tokens.reasoning, tokens.cache.read, tokens.cache.write)
    sent, received, read, write = (json_lines.number({"n": each}, "n") for each in counts)
    return values.Usage(sent, received, read, write, json_lines.number({"n": cost_usd * 1e6}, "n"))


def _last_error(data: bytes) -> json_lines.Record | None:
    """The error that it told last, if nothing was done after it."""
    for line in json_lines.backwards(data, TAIL_LINES_MAX):
        read = json_lines.record(line)
        if read is None:
            continue
        kind = json_lines.text(read, "type")
        if kind == "error":
            return json_lines.inner(read, "error")
        if kind in ("step_finish", "text", "tool_use"):
            return None
    return None


ADAPTER = OpenCode()
