"""The settings and switches of each agent CLI: written into a home, they lead it to the scripted model and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.agents.agent_world import AgentWorld

KEY = "sk-ant-fake"
# mini-swe-agent ends when a command says so, and only then.
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def _set_claude(world: AgentWorld) -> dict[str, str]:
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


def _set_codex(world: AgentWorld) -> dict[str, str]:
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


def _kimi_config(world: AgentWorld, *, capabilities: bool) -> str:
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


def _set_kimi_code(world: AgentWorld) -> dict[str, str]:
    _write_once(world.home / ".kimi-code/config.toml", _kimi_config(world, capabilities=True))
    return {
        "KIMI_CODE_HOME": str(world.home / ".kimi-code"),
        "KIMI_DISABLE_TELEMETRY": "1",
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
    }


def _set_kimi_cli(world: AgentWorld) -> dict[str, str]:
    _write_once(world.home / ".kimi/config.toml", _kimi_config(world, capabilities=False))
    return {"KIMI_CLI_NO_AUTO_UPDATE": "1"}


def _set_gemini(world: AgentWorld) -> dict[str, str]:
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


def _set_opencode(world: AgentWorld) -> dict[str, str]:
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


def _openai(world: AgentWorld) -> dict[str, str]:
    url = f"{world.model.url}/v1"
    return {
        "OPENAI_API_BASE": url,
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "fake",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _set_qwen(world: AgentWorld) -> dict[str, str]:
    settings = {"privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False}}
    _write_once(world.home / ".qwen/settings.json", json.dumps(settings))
    return {
        "OPENAI_API_KEY": "fake",
        "OPENAI_BASE_URL": f"{world.model.url}/v1",
        "OPENAI_MODEL": "fake-model",
    }


def _set_mini(world: AgentWorld) -> dict[str, str]:
    world.model.script = world.model.script.with_options(finish=SUBMIT)
    return _openai(world) | {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_GLOBAL_CONFIG_DIR": str(world.home / ".config/mini-swe-agent"),
    }


def _set_aider(world: AgentWorld) -> dict[str, str]:
    world.model.script = world.model.script.with_options(count="turns")
    return _openai(world) | {"AIDER_ANALYTICS": "false"}


SETTINGS: Mapping[str, Callable[[AgentWorld], dict[str, str]]] = {
    "claude": _set_claude,
    "codex": _set_codex,
    "kimi-code": _set_kimi_code,
    "kimi-cli": _set_kimi_cli,
    "gemini": _set_gemini,
    "opencode": _set_opencode,
    "qwen": _set_qwen,
    "mini-swe-agent": _set_mini,
    "aider": _set_aider,
}


def _write_once(path: Path, text: str) -> None:
    """Settings, unless they are there: the CLI, or the test, may have changed them since."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
