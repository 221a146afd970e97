"""The command line of each agent CLI: headless, with every permission, fresh or in a session."""

from collections.abc import Callable, Mapping, Sequence

PREASSIGNED = {"claude", "gemini", "kimi-cli"}  # those whose session id the caller chooses
Arguments = Callable[[str, str | None, str | None, list[str]], list[str]]


def _claude(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    which = ["--resume", session] if session else ["--session-id", fresh or ""]
    how = ["--output-format", "stream-json", "--verbose"] if "--output-format" not in more else []
    return ["-p", prompt, *which, *how, "--dangerously-skip-permissions", *more]


def _codex(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    which = ["resume", session] if session else []
    return ["exec", *which, "--json", "--dangerously-bypass-approvals-and-sandbox", *more, prompt]


def _kimi_code(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    which = ["--session", session] if session else []
    return ["-p", prompt, *which, "--output-format", "stream-json", *more]


def _kimi_cli(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    return [
        "--print",
        "-p",
        prompt,
        "--output-format",
        "stream-json",
        "--session",
        session or fresh or "",
        *more,
    ]


def _gemini(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    which = ["--resume", session] if session else ["--session-id", fresh or ""]
    return [
        "-m",
        "gemini-2.5-flash",
        "--yolo",
        "--output-format",
        "stream-json",
        *which,
        *more,
        "-p",
        prompt,
    ]


def _qwen(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    which = ["--resume", session] if session else []
    return ["--yolo", "--auth-type", "openai", "-m", "fake-model", *which, *more, prompt]


def _opencode(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    which = ["--session", session] if session else []
    return ["run", "--format", "json", "--auto", *which, *more, prompt]


def _mini(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    return [
        "-t",
        prompt,
        "--yolo",
        "--exit-immediately",
        "-m",
        "openai/fake-model",
        "-o",
        "../traj.json",
        *more,
    ]


def _aider(prompt: str, fresh: str | None, session: str | None, more: list[str]) -> list[str]:
    quiet = [
        "--no-pretty",
        "--no-stream",
        "--no-check-update",
        "--no-show-release-notes",
        "--analytics-disable",
    ]
    quiet += ["--no-show-model-warnings", "--no-gitignore", "--no-detect-urls", "--map-tokens", "0"]
    quiet += ["--no-auto-commits", "--no-dirty-commits"]  # each would ask the model for a message
    # Its model has no tools: what should run is written to run.sh, and aider tests every edit by running that.
    how = ["--edit-format", "whole", "--yes-always", "--auto-test", "--test-cmd", "sh run.sh"]
    restored = ["--restore-chat-history"] if session else []
    return [
        "--model",
        "openai/fake-model",
        *quiet,
        *how,
        *restored,
        *more,
        "--message",
        prompt,
        "run.sh",
    ]


ARGUMENTS: Mapping[str, Arguments] = {
    "claude": _claude,
    "codex": _codex,
    "kimi-code": _kimi_code,
    "kimi-cli": _kimi_cli,
    "gemini": _gemini,
    "opencode": _opencode,
    "qwen": _qwen,
    "mini-swe-agent": _mini,
    "aider": _aider,
}


def without_session(argv: Sequence[str]) -> list[str]:
    """As a person types it: without a session of its own."""
    words = list(argv)
    for flag in ("--session-id", "--session"):
        if flag in words:
            at = words.index(flag)
            del words[at : at + 2]
    return words
