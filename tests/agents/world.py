"""A world for a real agent CLI: a home with its settings, a repository, a scripted model and the external witness.

`World.command` gives the command and environment that run it headless and bare. Nothing here starts outlast.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from outlast.chaos.witness.client import Performance, Witness
from tests.agents import tools
from tests.agents.model import Model
from tests.agents.namespace import Namespace
from tests.agents.script import Call, Script, bash
from tests.agents.tools import Tool
from tests.support import processes
from tests.support.environment import Isolated, isolate, skip_or_fail

RUN_LIMIT_S = 180.0  # a start takes seconds, or a minute on a machine that does much else
KEY = "sk-ant-fake"
# mini-swe-agent ends when a command says so, and only then.
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

# Kept from the caller's environment; everything else (keys, proxies, an agent's own variables) stays outside.
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL")


@dataclass(frozen=True, slots=True)
class Started:
    """How to start an agent: the command (in the namespace where there is one) and its whole environment."""

    argv: list[str]
    env: dict[str, str]
    session: str | None  # the agent's own session id, where the caller chooses it


def need(name: str, version: str | None = None) -> Tool:
    """The CLI, or a visible skip (in CI a failure)."""
    found = tools.find(name, version)
    if found is None:
        wanted = tools.recipe(name, version)
        skip_or_fail(f"needs {wanted.name} {wanted.version}: ./dev test-agents fetches it")
    return found


class World:
    """Everything around one or several agents. Threads and processes of it end with `close`."""

    def __init__(self, folder: Path, script: Script, *, isolated: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.isolated: Isolated = isolate(folder)
        self.home = self.isolated.home
        self.work = folder / "work"
        self.network = Namespace() if isolated else None
        listen = None if self.network is None else self.network.listen
        self.model = Model(script, folder / "model.log", listen=listen)
        self.witness: Witness = self.inside(lambda: Witness.start(folder / "witness.log"))
        self._git_init()

    def _git_init(self) -> None:
        self.work.mkdir()
        (self.work / "README").write_text("a repository for an agent\n")
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            subprocess.run(["git", *words], cwd=self.work, env=self.isolated.environ(), check=True)

    def close(self) -> None:
        self.witness.stop()
        self.model.close()
        if self.network is not None:
            self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the network -------------------------------------------------------------------------------------------

    def inside(self, function: Callable[[], Any]) -> Any:
        """Call it where the model and the witness can be reached."""
        return function() if self.network is None else self.network.call(function)

    def namespaced(self, argv: Sequence[str | Path]) -> list[str]:
        """The command, started where the model and the witness can be reached; the process id is its own."""
        words = [str(word) for word in argv]
        return words if self.network is None else self.network.namespaced(words)

    # -- the outside world -------------------------------------------------------------------------------------

    def posting(self, name: str, *, body: object = None, flags: str = "", then: str = "") -> Call:
        """A call of the agent's shell that does something to the world; its identity is the name alone, so that
        other flags or words in the body are still the same thing done twice."""
        data = json.dumps({"body": body})
        url = f"{self.witness.url}/act/blind/{name}"
        command = f"curl -sS {flags} -X POST -H 'Witness-Id: {name}' -d '{data}' {url}"
        return bash(f"{command}; {then}" if then else command)

    def performed(self) -> list[Performance]:
        """What was done to the world, by the witness's log."""
        return self.witness.performances()

    # -- agents ------------------------------------------------------------------------------------------------

    def environment(self, tool: Tool) -> dict[str, str]:
        """A whole environment for that CLI: this home, its switches, and nothing of the caller's but PATH and such."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        # opencode believes PWD before it asks where it is.
        place = {"PWD": str(self.work)}
        return {**kept, **tool.environment, **self.isolated.variables, **place, **_SETUPS[tool.name](self)}

    def command(
        self,
        name: str,
        prompt: str,
        *,
        version: str | None = None,
        session: str | None = None,
        more: Sequence[str] = (),
        namespaced: bool = True,
    ) -> Started:
        """Run it headless and bare, with its settings in place. `session` resumes that session of the agent."""
        tool = need(name, version)
        env = self.environment(tool)
        fresh = str(uuid.uuid4()) if tool.name in PREASSIGNED else None
        words = [*tool.command, *_ARGUMENTS[tool.name](prompt, fresh, session, list(more))]
        argv = self.namespaced(words) if namespaced else words
        return Started(argv, env, session or fresh)

    def session_of(self, started: Started, output: str) -> str:
        """The agent's own session id: the one we chose, the one it has said, or (Kimi Code) what its index says."""
        said = re.search(r'"(?:thread_id|sessionID|session_id)":"([^"]+)"', output)
        found = started.session or (said[1] if said else None)
        index = self.home / ".kimi-code/session_index.jsonl"
        if found is None and index.exists():
            found = json.loads(index.read_text().splitlines()[-1])["sessionId"]
        assert found is not None, f"no session id in {output!r}"
        return found

    @contextlib.contextmanager
    def running(self, started: Started, output: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Start it in the repository, in a session of its own; at the end of the block it and its group are killed."""
        with open(output, "wb") as sink:
            process = subprocess.Popen(
                started.argv,
                cwd=self.work,
                env=started.env,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            processes.kill_group(process)

    def run(self, started: Started, *, limit_s: float = RUN_LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Run it to its end in the repository."""
        return subprocess.run(
            started.argv,
            cwd=self.work,
            env=started.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )


# --- the command line of each CLI -----------------------------------------------------------------------------

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


_ARGUMENTS: Mapping[str, Arguments] = {
    "claude": _claude,
    "codex": _codex,
    "kimi-code": _kimi_code,
    "kimi-cli": _kimi_cli,
    "gemini": _gemini,
    "opencode": _opencode,
    "mini-swe-agent": _mini,
    "aider": _aider,
}


# --- the settings and switches of each CLI --------------------------------------------------------------------


def _set_claude(world: World) -> dict[str, str]:
    project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    seed = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "bypassPermissionsModeAccepted": True,
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {str(world.work.resolve()): project},
    }
    _write_once(world.home / ".claude.json", json.dumps(seed))
    return {
        "ANTHROPIC_BASE_URL": world.model.url,
        "ANTHROPIC_API_KEY": KEY,
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }


def _set_codex(world: World) -> dict[str, str]:
    _write_once(
        world.home / ".codex/config.toml",
        f"""model = "fake-model"
model_provider = "fake"

[model_providers.fake]
name = "fake"
base_url = "{world.model.url}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false
""",
    )
    return {"CODEX_HOME": str(world.home / ".codex"), "FAKE_KEY": "fake"}


def _kimi_config(world: World, *, capabilities: bool) -> str:
    return f"""default_model = "fake"
telemetry = false

[providers.fake]
type = "kimi"
base_url = "{world.model.url}/v1"
api_key = "fake"

[models.fake]
provider = "fake"
model = "fake-model"
max_context_size = 200000
{'capabilities = ["tool_use"]' if capabilities else ""}
"""


def _set_kimi_code(world: World) -> dict[str, str]:
    _write_once(world.home / ".kimi-code/config.toml", _kimi_config(world, capabilities=True))
    return {
        "KIMI_CODE_HOME": str(world.home / ".kimi-code"),
        "KIMI_DISABLE_TELEMETRY": "1",
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
    }


def _set_kimi_cli(world: World) -> dict[str, str]:
    _write_once(world.home / ".kimi/config.toml", _kimi_config(world, capabilities=False))
    return {"KIMI_CLI_NO_AUTO_UPDATE": "1"}


def _set_gemini(world: World) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    _write_once(world.home / ".gemini/settings.json", json.dumps(settings))
    return {
        "GEMINI_API_KEY": "fake",
        "GOOGLE_GEMINI_BASE_URL": world.model.url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }


def _set_opencode(world: World) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "fake",
        "options": {"baseURL": f"{world.model.url}/v1", "apiKey": "fake"},
        "models": {"fake-model": {"name": "fake", "limit": {"context": 200_000, "output": 8_000}}},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
        "provider": {"fake": provider},
        "permission": {"*": "allow"},
    }
    folder = world.isolated.config_home / "opencode"
    _write_once(folder / "opencode.json", json.dumps(settings))
    # With any plugin it waits until its own package is installed here, for more than a minute when there is no
    # network. This says that it is; a plugin in plain JavaScript does not need it.
    (folder / "node_modules").mkdir(exist_ok=True)
    depends = {"dependencies": {"@opencode-ai/plugin": "1.18.33"}}
    _write_once(folder / "package.json", json.dumps(depends))
    _write_once(folder / "package-lock.json", json.dumps({"lockfileVersion": 3, "packages": {"": depends}}))
    return {
        "XDG_DATA_HOME": str(world.home / ".local/share"),
        "XDG_CACHE_HOME": str(world.home / ".cache"),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def _openai(world: World) -> dict[str, str]:
    url = f"{world.model.url}/v1"
    return {
        "OPENAI_API_BASE": url,
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "fake",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _set_mini(world: World) -> dict[str, str]:
    world.model.script = world.model.script.with_options(finish=SUBMIT)
    return _openai(world) | {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_GLOBAL_CONFIG_DIR": str(world.home / ".config/mini-swe-agent"),
    }


def _set_aider(world: World) -> dict[str, str]:
    world.model.script = world.model.script.with_options(count="turns")
    return _openai(world) | {"AIDER_ANALYTICS": "false"}


_SETUPS: Mapping[str, Callable[[World], dict[str, str]]] = {
    "claude": _set_claude,
    "codex": _set_codex,
    "kimi-code": _set_kimi_code,
    "kimi-cli": _set_kimi_cli,
    "gemini": _set_gemini,
    "opencode": _set_opencode,
    "mini-swe-agent": _set_mini,
    "aider": _set_aider,
}


def _write_once(path: Path, text: str) -> None:
    """Settings, unless they are there: the CLI, or the test, may have changed them since."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
