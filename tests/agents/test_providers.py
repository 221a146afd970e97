"""Which model, whose account, and where the calls go: by the settings and the environment alone, with no secret kept."""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from outlast.agents import KnownAgent, registry
from outlast.agents.common import providers
from outlast.agents.values import AgentCommand, Ask
from tests.agents.checks import ask, launched, mark
from tests.support import sweeps

SECRET = "sk-very-secret-0123456789"
LOCAL = "http://127.0.0.1:9/s/"


def kind(name: str) -> KnownAgent:
    found = registry.by_name(name)
    assert found is not None
    return found


class Home:
    """A user's home, with files in it, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        (folder / "run").mkdir()

    def write(self, name: str, content: object) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    def ask(self, line: str, **environment: str) -> Ask:
        told = {"HOME": str(self.folder), "PATH": "/nowhere", **environment}
        return ask(line, self.folder, environment=told, cwd=self.work, folder=self.folder / "run")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def billed(name: str, asked: Ask) -> tuple[str, str]:
    """How it is paid, and whether its account is known; the secret shows in neither."""
    me = kind(name)
    account = me.billing.account(asked)
    assert SECRET not in account
    assert account == me.billing.account(asked)
    return me.billing.payment(asked), account.partition(":")[0]


def routed(name: str, asked: Ask) -> tuple[list[str], AgentCommand]:
    """The providers that it would have called, and how it is started instead."""
    seen: list[str] = []

    def route(url: str) -> str:
        seen.append(url)
        return f"{LOCAL}{len(seen) - 1}"

    found = kind(name).billing.gateway(asked, route)
    assert isinstance(found, Ask), found
    return seen, launched(kind(name), found)


def unrouted(name: str, asked: Ask) -> str:
    found = kind(name).billing.gateway(asked, lambda url: LOCAL)
    assert isinstance(found, str), found
    return found


# --- Claude Code --------------------------------------------------------------------------------------------------

OAUTH = {"claudeAiOauth": {"accessToken": SECRET, "subscriptionType": "max"}}


@pytest.mark.parametrize(
    ("files", "environment", "meant"),
    [
        ({}, {}, ("unknown", "")),
        ({}, {"ANTHROPIC_API_KEY": SECRET}, ("api", "anthropic")),
        ({}, {"ANTHROPIC_AUTH_TOKEN": SECRET, "ANTHROPIC_BASE_URL": "https://proxy.example/x"}, ("api", "proxy.example")),
        ({}, {"CLAUDE_CODE_OAUTH_TOKEN": SECRET}, ("subscription", "anthropic")),
        ({".claude/.credentials.json": OAUTH}, {}, ("subscription", "")),
        ({".claude/.credentials.json": OAUTH, ".claude.json": {"oauthAccount": {"accountUuid": "u"}}}, {}, ("subscription", "anthropic")),
        ({".claude/.credentials.json": OAUTH}, {"ANTHROPIC_API_KEY": SECRET}, ("api", "anthropic")),
        ({".claude/.credentials.json": OAUTH, ".claude/settings.json": {"apiKeyHelper": "pass show x"}}, {}, ("api", "anthropic")),
        ({".claude/.credentials.json": OAUTH, "work/.claude/settings.local.json": {"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}}, {}, ("api", "")),
        ({".claude.json": {"primaryApiKey": SECRET}}, {}, ("api", "anthropic")),
        ({".claude/.credentials.json": "no json"}, {}, ("unknown", "")),
    ],
)  # fmt: skip
def test_how_claude_is_paid(
    home: Home, files: dict[str, Any], environment: dict[str, str], meant: tuple[str, str]
) -> None:
    for name, content in files.items():
        home.write(name, content)
    assert billed("claude", home.ask("claude -p x", **environment)) == meant


def test_where_claude_calls_is_set_in_its_settings_as_well(home: Home) -> None:
    home.write(
        ".claude/settings.json", {"model": "opus", "env": {"ANTHROPIC_BASE_URL": "https://a.example/b/"}}
    )
    asked = home.ask('claude --settings {"env":{"X":"1"}} -p x', ANTHROPIC_BASE_URL="https://ignored.example")
    seen, launch = routed("claude", asked)
    assert seen == ["https://a.example/b"]
    assert launch.environment == {"ANTHROPIC_BASE_URL": f"{LOCAL}0"}
    path = Path(launch.command[launch.command.index("--settings") + 1])
    assert json.loads(path.read_text())["env"] == {"X": "1", "ANTHROPIC_BASE_URL": f"{LOCAL}0"}
    assert launch.command.count("--settings") == 1
    me = kind("claude")
    assert me.billing.model(asked.words, asked.environment, asked.cwd) == "opus"
    assert me.billing.model(("claude", "--model", "m"), asked.environment, asked.cwd) == "m"
    plain, launch = routed(
        "claude", home.ask("claude --setting-sources project -p x", HTTPS_PROXY="http://p:1")
    )
    assert plain == ["https://api.anthropic.com"]
    assert launch.environment["_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"] == "1"
    assert "127.0.0.1" in launch.environment["NO_PROXY"]
    assert "signed" in unrouted("claude", home.ask("claude -p x", CLAUDE_CODE_USE_VERTEX="true"))


# --- Codex --------------------------------------------------------------------------------------------------------

TOKENS = {"OPENAI_API_KEY": None, "tokens": {"access_token": SECRET, "account_id": "acc"}}
CUSTOM = 'model = "m"\nmodel_provider = "mine"\n[model_providers.mine]\nbase_url = "https://mine.example/v1"\nenv_key = "MINE"\n'


@pytest.mark.parametrize(
    ("files", "environment", "meant"),
    [
        ({}, {}, ("unknown", "")),
        ({".codex/auth.json": TOKENS}, {}, ("subscription", "openai")),
        ({".codex/auth.json": TOKENS}, {"CODEX_API_KEY": SECRET}, ("api", "openai")),
        ({".codex/auth.json": {"OPENAI_API_KEY": SECRET}}, {}, ("api", "openai")),
        ({".codex/auth.json": TOKENS, ".codex/config.toml": CUSTOM}, {"MINE": SECRET}, ("api", "mine.example")),
        ({"other/auth.json": TOKENS}, {"CODEX_HOME": "HOME/other"}, ("subscription", "openai")),
    ],
)  # fmt: skip
def test_how_codex_is_paid(
    home: Home, files: dict[str, Any], environment: dict[str, str], meant: tuple[str, str]
) -> None:
    for name, content in files.items():
        home.write(name, content)
    told = {key: value.replace("HOME", str(home.folder)) for key, value in environment.items()}
    assert billed("codex", home.ask("codex exec x", **told)) == meant


@pytest.mark.parametrize(
    ("config", "line", "upstream", "flags"),
    [
        ("", "codex exec x", "https://api.openai.com/v1", [f'openai_base_url="{LOCAL}0"']),
        ('openai_base_url = "https://eu.example/v1"', "codex exec x", "https://eu.example/v1", [f'openai_base_url="{LOCAL}0"']),
        (CUSTOM, "codex exec x", "https://mine.example/v1",
         [f'model_providers.mine.base_url="{LOCAL}0"', "model_providers.mine.supports_websockets=false"]),
        (CUSTOM, 'codex exec -c model_providers.mine.base_url="https://b.example" x', "https://b.example",
         ['model_providers.mine.base_url="https://b.example"', f'model_providers.mine.base_url="{LOCAL}0"',
          "model_providers.mine.supports_websockets=false"]),
        (CUSTOM, 'codex exec -c model_provider="openai" x', "https://api.openai.com/v1",
         [f'openai_base_url="{LOCAL}0"', 'model_provider="openai"']),
        (f"{CUSTOM}[profiles.p]\nmodel_provider='openai'", "codex exec -p p x", "https://api.openai.com/v1", [f'openai_base_url="{LOCAL}0"']),
    ],
)  # fmt: skip
def test_where_codex_calls(home: Home, config: str, line: str, upstream: str, flags: list[str]) -> None:
    home.write(".codex/config.toml", config)
    asked = home.ask(line, CODEX_API_KEY=SECRET)
    seen, launch = routed("codex", asked)
    assert seen == [upstream]
    words = launch.command
    assert [words[at + 1] for at, word in enumerate(words) if word in ("--config", "-c")] == flags
    assert words[-1] == "x"
    resumed = msgspec.structs.replace(asked, session=mark("codex", "0" * 32), prompt="on")
    _, launch = routed("codex", resumed)
    assert LOCAL in " ".join(launch.command[launch.command.index("resume") :]), "a resume goes the same way"


def test_with_its_subscription_codex_calls_elsewhere_and_some_cannot_be_routed(home: Home) -> None:
    home.write(".codex/auth.json", TOKENS)
    home.write(".codex/config.toml", 'model = "gpt-9"')
    assert routed("codex", home.ask("codex exec x"))[0] == ["https://chatgpt.com/backend-api/codex"]
    assert "ollama" in unrouted("codex", home.ask("codex exec --oss x"))
    assert "which login" in unrouted("codex", home.ask("codex exec x", CODEX_HOME=str(home.work)))
    assert "not known" in unrouted("codex", home.ask("codex exec -c model_provider=who x"))
    asked = home.ask("codex exec x")
    assert kind("codex").billing.model(asked.words, asked.environment, asked.cwd) == "gpt-9"
    assert kind("codex").billing.model(("codex", "exec", "-m", "o9"), asked.environment, asked.cwd) == "o9"


# --- Kimi ---------------------------------------------------------------------------------------------------------

KIMI = """default_model = "k"
[providers.a]
type = "kimi"
base_url = "https://api.kimi.com/coding/v1"
api_key = ""
[providers.a.oauth]
key = "oauth/kimi-code"
[providers.b]
type = "openai"
base_url = 'https://b.example/v1/'
api_key = "sk-very-secret-0123456789"
[models.k]
provider = "a"
model = "kimi-for-coding"
[models.other]
provider = "b"
model = "org/gpt"
"""
NAMES = [("kimi-code", ".kimi-code", "kimi -p x"), ("kimi-cli", ".kimi", "kimi-cli --print -p x")]


@pytest.mark.parametrize(("name", "folder", "line"), NAMES)
def test_how_kimi_is_paid_and_where_it_calls(home: Home, name: str, folder: str, line: str) -> None:
    home.write(f"{folder}/config.toml", KIMI)
    me, asked, other = kind(name), home.ask(line), home.ask(f"{line} -m other")
    assert billed(name, asked) == ("subscription", "api.kimi.com")
    assert billed(name, other) == ("api", "b.example")
    assert me.billing.model(asked.words, asked.environment, asked.cwd) == "kimi-for-coding"
    assert me.billing.model(other.words, other.environment, other.cwd) == "gpt"
    seen, launch = routed(name, asked)
    assert seen == ["https://api.kimi.com/coding/v1", "https://b.example/v1"]
    if name == "kimi-code":
        written = (Path(launch.environment["KIMI_CODE_HOME"]) / "config.toml").read_text()
    else:
        written = Path(launch.command[launch.command.index("--config-file") + 1]).read_text()
    assert "https://" not in written
    assert f"{LOCAL}0" in written
    assert f"{LOCAL}1" in written
    assert (home.folder / folder / "config.toml").read_text() == KIMI


def test_kimi_by_the_environment(home: Home) -> None:
    home.write(".kimi/config.toml", KIMI)
    told = {"KIMI_BASE_URL": "https://env.example/v1", "KIMI_API_KEY": SECRET, "KIMI_MODEL_NAME": "kimi-k9"}
    asked = home.ask("kimi-cli --print -p x", **told)
    assert billed("kimi-cli", asked) == ("api", "env.example")
    assert kind("kimi-cli").billing.model(asked.words, asked.environment, asked.cwd) == "kimi-k9"
    seen, launch = routed("kimi-cli", asked)
    assert seen[0] == "https://env.example/v1"
    assert launch.environment == {"KIMI_BASE_URL": f"{LOCAL}0"}
    told = {"KIMI_MODEL_NAME": "m", "KIMI_MODEL_API_KEY": SECRET, "KIMI_MODEL_BASE_URL": "https://e.example"}
    seen, launch = routed("kimi-code", home.ask("kimi -p x", **told))
    assert (seen, launch.environment["KIMI_MODEL_BASE_URL"]) == (["https://e.example"], f"{LOCAL}0")
    home.write(".kimi-code/config.toml", 'providers = {a = {type = "kimi", base_url = "https://x.example"}}')
    assert "a line of its own" in unrouted("kimi-code", home.ask("kimi -p x"))
    assert billed("kimi-cli", home.ask("kimi-cli --print --config {nonsense -p x")) == ("unknown", "")


# --- Gemini, opencode, aider, mini-swe-agent ----------------------------------------------------------------------


def test_how_gemini_is_paid_and_where_it_calls(home: Home) -> None:
    line = "gemini -p x"
    assert billed("gemini", home.ask(line)) == ("unknown", "")
    assert "selectedType" in unrouted("gemini", home.ask(line))
    home.write("work/.env", f"# mine\nexport GEMINI_API_KEY='{SECRET}'\nGEMINI_MODEL=gemini-x # the best\n")
    asked = home.ask(line)
    assert billed("gemini", asked) == ("api", "google")
    assert kind("gemini").billing.model(asked.words, asked.environment, asked.cwd) == "gemini-x"
    seen, launch = routed("gemini", asked)
    assert seen == ["https://generativelanguage.googleapis.com"]
    assert launch.environment["GOOGLE_GEMINI_BASE_URL"] == f"{LOCAL}0"
    settings = Path(launch.environment["GEMINI_CLI_HOME"]) / ".gemini/settings.json"
    assert json.loads(settings.read_text())["security"]["auth"]["selectedType"] == "gemini-api-key"
    home.write(".gemini/settings.json", {"security": {"auth": {"selectedType": "oauth-personal"}}})
    home.write(".gemini/google_accounts.json", {"active": "me@example.org"})
    assert billed("gemini", asked) == ("subscription", "google")
    seen, launch = routed("gemini", asked)
    assert seen == ["https://cloudcode-pa.googleapis.com"]
    assert launch.environment["CODE_ASSIST_ENDPOINT"] == f"{LOCAL}0"


def test_how_opencode_is_paid_and_where_it_calls(home: Home) -> None:
    line = "opencode run x"
    assert "which model" in unrouted("opencode", home.ask(line))
    assert billed("opencode", home.ask(line)) == ("unknown", "")
    home.write(".config/opencode/opencode.jsonc", '{"model": "anthropic/claude-9", // mine\n}')
    asked = home.ask(line, ANTHROPIC_API_KEY=SECRET, OPENCODE_CONFIG_CONTENT='{"theme": "t"}')
    assert billed("opencode", asked) == ("api", "anthropic")
    assert kind("opencode").billing.model(asked.words, asked.environment, asked.cwd) == "claude-9"
    seen, launch = routed("opencode", asked)
    assert seen == ["https://api.anthropic.com/v1"]
    content = json.loads(launch.environment["OPENCODE_CONFIG_CONTENT"])
    assert content == {"theme": "t", "provider": {"anthropic": {"options": {"baseURL": f"{LOCAL}0"}}}}
    mine = {"provider": {"mine": {"options": {"baseURL": "{env:MINE}/v1"}}}, "small_model": "mine/tiny"}
    home.write("work/opencode.json", mine)
    seen, _ = routed("opencode", home.ask(f"{line} -m openai/gpt-9", MINE="https://m.example"))
    assert seen == ["https://api.openai.com/v1", "https://m.example/v1"]
    assert "not known" in unrouted("opencode", home.ask(f"{line} -m who/m", MINE="https://m.example"))
    home.write(".local/share/opencode/auth.json", {"anthropic": {"type": "oauth", "access": SECRET}})
    assert billed("opencode", asked)[0] == "subscription"
    assert "its own way" in unrouted("opencode", asked)


def test_where_aider_calls_and_what_counts_more_than_the_environment(home: Home) -> None:
    assert "which model" in unrouted("aider", home.ask("aider -m x"))
    home.write("work/.env", "OPENAI_API_BASE=https://dotenv.example/v1\n")
    home.write(".aider.conf.yml", "model: openai/gpt-9 # mine\n")
    asked = home.ask("aider -m x", OPENAI_API_BASE="https://env.example/v1", OPENAI_API_KEY=SECRET)
    assert billed("aider", asked) == ("api", "openai")
    assert kind("aider").billing.model(asked.words, asked.environment, asked.cwd) == "gpt-9"
    seen, launch = routed("aider", asked)
    assert seen == ["https://dotenv.example/v1"]
    path = Path(launch.command[launch.command.index("--env-file") + 1])
    given = providers.dotenv(path)
    assert (given["OPENAI_BASE_URL"], given["AIDER_OPENAI_API_BASE"]) == (f"{LOCAL}0", f"{LOCAL}0")
    assert path.stat().st_mode & 0o777 == 0o600
    assert not any(LOCAL in word for word in launch.command), "it writes its command line into its history"
    seen, launch = routed("aider", home.ask("aider --model sonnet --openai-api-base https://no.example -m x"))
    assert seen == ["https://api.anthropic.com"]
    assert providers.dotenv(path)["ANTHROPIC_API_BASE"] == f"{LOCAL}0"
    assert "--openai-api-base" not in launch.command
    assert "not known" in unrouted("aider", home.ask("aider --model bedrock/x -m x"))
    assert routed("aider", home.ask("aider -m x --model claude-9"))[0] == ["https://api.anthropic.com"]


def test_where_mini_swe_agent_calls_and_what_it_spent(home: Home) -> None:
    line, me = "mini -y -t x", kind("mini-swe-agent")
    home.write(".config/mini-swe-agent/.env", f"MSWEA_MODEL_NAME='openai/gpt-9'\nOPENAI_API_KEY={SECRET}\n")
    asked = home.ask(line)
    assert billed("mini-swe-agent", asked) == ("api", "openai")
    assert me.billing.model(asked.words, asked.environment, asked.cwd) == "gpt-9"
    seen, launch = routed("mini-swe-agent", asked)
    assert (seen, launch.environment["OPENAI_API_BASE"]) == (["https://api.openai.com/v1"], f"{LOCAL}0")
    base = "model.model_kwargs.api_base"
    seen, launch = routed("mini-swe-agent", home.ask(f"{line} -c mini.yaml -c {base}=https://b.example/v1"))
    assert seen == ["https://b.example/v1"]
    assert f"{base}={LOCAL}0" in launch.command
    home.write("work/my.yaml", "model:\n  model_kwargs:\n    api_base: https://c.example\n")
    assert base in unrouted("mini-swe-agent", home.ask(f"{line} -c my.yaml"))
    used = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 30}}
    response = {"id": "r1", "model": "gpt-9", "usage": used}
    home.write(
        "run/mini-swe-agent.traj.json", {"messages": [{}, {"extra": {"response": response, "cost": 0.5}}]}
    )
    (spent,) = me.billing.spent(asked)
    assert (spent.key, spent.model, spent.scope) == ("r1", "gpt-9", "response")
    kinds = (spent.values.input, spent.values.output, spent.values.cache_read, spent.values.cost_microusd)
    assert kinds == (70, 7, 30, 500_000)
    home.write("run/mini-swe-agent.traj.json", "{torn")
    assert list(me.billing.spent(asked)) == []


# --- all of them --------------------------------------------------------------------------------------------------


def test_two_keys_are_two_accounts_and_neither_can_be_read_from_its_name() -> None:
    one, other = providers.account("p", SECRET), providers.account("p", SECRET + "x")
    assert one != other
    assert providers.account("p", "") == ""
    assert base64.b64encode(SECRET.encode()).decode() not in one
    assert len(one) < 32


@settings(deadline=None, max_examples=sweeps.examples(40))
@given(st.sampled_from(registry.NAMES), st.text(max_size=60), st.lists(st.text(max_size=12), max_size=4))
def test_no_settings_make_it_fail(
    tmp_path_factory: pytest.TempPathFactory, name: str, text: str, words: list[str]
) -> None:
    home = tmp_path_factory.mktemp("home")
    written = text.encode("utf-8", "surrogatepass")
    for path in (
        ".claude/settings.json", ".codex/config.toml", ".kimi-code/config.toml", ".kimi/config.toml", ".env",
        ".gemini/settings.json", ".config/opencode/opencode.json", ".aider.conf.yml",
    ):  # fmt: skip
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(written)
    asked = ask(("x", *words), home)
    me = kind(name)
    assert isinstance(me.billing.model(asked.words, asked.environment, asked.cwd), str)
    assert me.billing.payment(asked) in ("api", "subscription", "unknown")
    assert isinstance(me.billing.account(asked), str)
    assert isinstance(me.billing.gateway(asked, lambda url: url), Ask | str)
    assert list(me.billing.spent(asked)) == []
