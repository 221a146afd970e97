"""aider: as far as it allows. No hooks, no sessions, no ids; a history file in Markdown, and costs in words.

Read from 0.86.2. What it does to the world it does through git and through the commands that it is told to run: those
are seen by the PATH shims. A resume restores the chat from the history file, of which nothing needs mending.
"""

import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from outlast.agents import (
    AgentEvent,
    Answer,
    Ask,
    BatchEnd,
    Caps,
    Common,
    Cut,
    Final,
    Hook,
    Launch,
    Response,
    Text,
    Usage,
    argv,
    endings,
    reading,
    starting,
    versions,
)
from outlast.core import values

NAME = "aider"
DISTRIBUTION = "aider-chat"
TRIED = versions.Tried("aider", (0, 80), (0, 86), "see `aider --upgrade`")
HISTORY_FILE = ".aider.chat.history.md"
HISTORY_VARIABLE = "AIDER_CHAT_HISTORY_FILE"

TABLE = argv.Table(
    valued=frozenset("--message --message-file --chat-history-file --model --config --load --apply --exit-code".split()),
    bare=frozenset(
        """--restore-chat-history --no-restore-chat-history --yes-always --gui --browser --version --help --exit
        --just-check-update --upgrade --install-main-branch --show-repo-map --show-prompts --lint --commit""".split()
    ),
    aliases={
        "-m": "--message", "--msg": "--message", "-f": "--message-file", "-c": "--config", "-h": "--help",
        "--yes": "--yes-always", "--update": "--upgrade",
    },
)  # fmt: skip
ELSEWHERE = (
    "--version", "--help", "--exit", "--just-check-update", "--upgrade", "--install-main-branch", "--show-repo-map",
    "--show-prompts", "--gui", "--browser", "--list-models", "--models",
)  # fmt: skip
NAMES = starting.Names(
    frozenset(["aider"]),
    frozenset(["aider-chat", "aider"]),
    frozenset(["aider"]),
    re.compile(r"/aider/__main__\.py$"),
)
# `> Tokens: 2.1k sent, 33 received. Cost: $0.0012 message, $0.0045 session.`
_TOKENS = re.compile(
    r"> Tokens: ([\d.]{1,12})(k|M)? sent,(?: ([\d.]{1,12})(k|M)? cache write,)?(?: ([\d.]{1,12})(k|M)? cache hit,)?"
    r" ([\d.]{1,12})(k|M)? received\.(?: Cost: \$([\d.]{1,16}) message)?"
)
_SCALE = {"": 1, "k": 1_000, "M": 1_000_000}


class Aider(Common):
    """The adapter. The clock is an argument. Its session is named after its history file."""

    name = NAME
    caps = Caps(intent=("shims",), resume=True, preassigned_session=True)
    stop_signal = signal.SIGTERM  # SIGINT only asks whether to go on

    def __init__(self, clock: Callable[[], datetime] = starting.now) -> None:
        self._clock = clock

    # --- the command ---

    def detect(self, words: Sequence[str], program: str) -> bool:
        start = starting.start(words, program, NAMES)
        return start is not None and not argv.has(argv.split(words[start:], TABLE), *ELSEWHERE)

    def is_headless(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--message", "--message-file")

    def prompt(self, words: Sequence[str]) -> str:
        return argv.value(_parts(words)[1], "--message") or ""

    def version(self, program: str, run: versions.Runner | None = None) -> str:
        return versions.distribution(program, DISTRIBUTION) or (versions.asked(program, run) if run else "")

    def problem(self, version: str) -> str:
        return TRIED.problem(version)

    def untested(self, version: str) -> str:
        return TRIED.untested(version)

    def launch(self, ask: Ask) -> Launch | None:
        start, parts = _parts(ask.words)
        history = str(_history(parts, ask))
        if ask.session is not None:
            if not Path(history).is_file():
                return None
            parts = argv.without(
                parts, "--restore-chat-history", "--no-restore-chat-history", "--message", "--message-file"
            )
            added: tuple[str, ...] = ("--restore-chat-history",)
        elif ask.prompt or (ask.interactive and self.is_headless(ask.words)):
            parts = argv.without(parts, "--message", "--message-file")
            added = ()
        else:
            return Launch(ask.words, {}, history)
        if ask.prompt and not ask.interactive:
            added += (f"--message={ask.prompt}",)
        return Launch((*ask.words[:start], *added, *argv.joined(parts)), {}, history)

    def resume_words(self, session: str) -> tuple[str, ...]:
        given = () if os.path.basename(session) in ("", HISTORY_FILE) else ("--chat-history-file", session)
        return ("aider", "--restore-chat-history", *given)

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """It edits unasked; what else it would ask about is refused where nobody answers."""
        return ("aider", *(("--yes-always",) if trusting else ()), f"--message={prompt}")

    def trusting(self, words: Sequence[str]) -> bool:
        return argv.has(_parts(words)[1], "--yes-always")

    # --- its files ---

    def transcript(self, session: str, ask: Ask) -> Path | None:
        path = _history(_parts(ask.words)[1], ask)
        return path if path.is_file() else None

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        """A response is known by the line that says what it cost, which comes after it."""
        kept = line[: reading.TEXT_MAX_CHARS].strip()
        if not kept or kept[0] in b"#":
            return ()
        words = kept.decode("utf-8", "replace")
        if kept[0] not in b">":
            return (Text(values.scrub(words)),)
        cost = _TOKENS.match(words)
        if cost is None:
            return ()
        # Only its words tell one from another: two that cost the same to the last digit count once.
        return Response(words), Usage(_spent(cost), "response", words), BatchEnd()

    # --- it has no hooks ---

    def hook(self, data: bytes) -> Hook:
        return Hook("other")

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        return b"", 0

    # --- how it ended ---

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        """It exits 0 whatever its model's provider said: the last words tell."""
        words = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace").strip()
        if exit_code < 0 or exit_code >= 128:
            return Final("crashed", f"ended by signal {-exit_code if exit_code < 0 else exit_code - 128}")
        failure = _FAILURE.search(words)
        if failure is not None and not _ANSWERED.search(words, failure.start()):
            told = endings.match(NAME, words[failure.start() :], self._clock())
            if told is not None:
                return told
            return Final("crashed", endings.said(words[failure.start() :]))
        if exit_code == 0:
            return Final("done", endings.said(words))
        told = endings.match(NAME, words, self._clock())
        return told or Final("crashed", endings.said(words) or f"exit code {exit_code}")

    # --- its transcript, mended ---

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """Nothing to mend: it holds what was said, and no calls."""
        return transcript


_ANSWERED = re.compile(r"^Tokens: [\d.]{1,12}[kM]? sent", re.MULTILINE)
_FAILURE = re.compile(
    r"\blitellm\.\w+(?:Error|Exception)?\b|Model .{1,80} has hit a token limit|^Unknown context window",
    re.MULTILINE,
)


def _parts(words: Sequence[str]) -> tuple[int, argv.Parts]:
    start = starting.start(words, "", NAMES) or 1
    return start, argv.split(words[start:], TABLE)


def _history(parts: argv.Parts, ask: Ask) -> Path:
    """Where it keeps its chats: as told, else at the root of the repository that it works in."""
    named = argv.value(parts, "--chat-history-file") or ask.environment.get(HISTORY_VARIABLE, "")
    if named:
        return ask.cwd / named
    for folder in (ask.cwd, *ask.cwd.parents):
        if (folder / ".git").exists():
            return folder / HISTORY_FILE
    return ask.cwd / HISTORY_FILE


def _spent(found: re.Match[str]) -> values.Usage:
    sent, write, hit, received = (_count(found[n], found[n + 1]) for n in (1, 3, 5, 7))
    return values.Usage(sent, received, hit, write, _count(found[9], "M"), estimated=True)


def _count(number: str | None, scale: str | None) -> int:
    try:
        return min(int(float(number) * _SCALE[scale or ""]), reading.NUMBER_MAX) if number else 0
    except (ValueError, OverflowError):
        return 0


ADAPTER = Aider()
