"""Codex's provider: which model, whose account, and where its calls go, by the layers of its settings."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from outlast.agents.common import argv, json_lines, launch, providers
from outlast.agents.values import Ask, Payment, Route

HOME = ("CODEX_HOME", ".codex")
SYSTEM = Path("/etc/codex/config.toml")
MANAGED = Path("/etc/codex/managed_config.toml")
# It first asks for a WebSocket, and takes HTTP when that is refused. With ChatGPT's login its requests are zstd.
OPENAI = "openai"
API = "https://api.openai.com/v1"
CHATGPT = "https://chatgpt.com/backend-api/codex"
API_KEY = "CODEX_API_KEY"
UNROUTED = (
    "amazon-bedrock",
    "ollama",
    "lmstudio",
    "ollama-chat",
)  # signed for their own address, or on this machine
SETTING = "--config"


def setting(part: argv.Part) -> tuple[str, str]:
    """The key and the value of a setting among the flags; both empty for any other flag."""
    if not part.values or part.names[-1:] != (SETTING,):
        return "", ""
    key, _, value = part.values[-1].partition("=")
    return key.strip(), value.strip()


class CodexLogin:
    """The login, by the settings, the environment and the flags of a command."""

    def __init__(self, parts: argv.Parts, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._home = launch.home(environment, *HOME)
        self.settings: dict[str, object] = {}
        for layer in (*self._files(parts), *_flags(parts)):
            self.settings = providers.merged(self.settings, layer)
        self.managed = providers.toml_text(providers.text(MANAGED))
        self.settings = providers.merged(self.settings, self.managed)
        configured = json_lines.text(self.settings, "model_provider")
        oss = (argv.value(parts, "--local-provider") or "ollama") if argv.has(parts, "--oss") else ""
        self.provider = oss or configured or OPENAI
        self.model = argv.value(parts, "--model") or json_lines.text(self.settings, "model")

    def _files(self, parts: argv.Parts) -> list[json_lines.Record]:
        found = [providers.toml_text(providers.text(SYSTEM))]
        if self._home is None or argv.has(parts, "--ignore-user-config"):
            return found
        theirs = providers.toml_text(providers.text(self._home / "config.toml"))
        found.append(theirs)
        named = argv.value(parts, "--profile") or json_lines.text(theirs, "profile")
        if named and os.path.basename(named) == named:
            found.append(json_lines.inner(theirs, "profiles", named))
            found.append(providers.toml_text(providers.text(self._home / f"{named}.config.toml")))
        return found

    @property
    def _custom(self) -> json_lines.Record:
        return json_lines.inner(self.settings, "model_providers", self.provider)

    def _auth(self) -> json_lines.Record:
        return {} if self._home is None else providers.json_file(self._home / "auth.json")

    @property
    def has_chatgpt(self) -> bool:
        """Whether it is logged in to a subscription, and uses that."""
        auth = self._auth()
        is_key = json_lines.text(auth, "auth_mode") == "apikey" or bool(
            json_lines.text(auth, "OPENAI_API_KEY")
        )
        return not self.environment.get(API_KEY) and not is_key and bool(json_lines.inner(auth, "tokens"))

    @property
    def uses_login(self) -> bool:
        return self.provider == OPENAI or json_lines.flag(self._custom, "requires_openai_auth")

    @property
    def upstream(self) -> str:
        if self.provider != OPENAI:
            return json_lines.text(self._custom, "base_url") or API
        return json_lines.text(self.settings, "openai_base_url") or (CHATGPT if self.has_chatgpt else API)

    def payment(self) -> Payment:
        if not self.uses_login or self.environment.get(API_KEY):
            return "api"
        if self.has_chatgpt:
            return "subscription"
        return "api" if json_lines.text(self._auth(), "OPENAI_API_KEY") else "unknown"

    def account(self) -> str:
        if not self.uses_login:
            key = self.environment.get(json_lines.text(self._custom, "env_key"), "")
            return providers.account(providers.host(self.upstream), key)
        auth = self._auth()
        if self.has_chatgpt:
            return providers.account(OPENAI, json_lines.text(auth, "tokens", "account_id"))
        return providers.account(
            OPENAI, self.environment.get(API_KEY) or json_lines.text(auth, "OPENAI_API_KEY")
        )

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        if self.provider in UNROUTED:
            return f"its provider {self.provider} cannot be given another address"
        if self.provider != OPENAI and (not self._custom or "." in self.provider):
            return f"its provider {self.provider!r:.80} is not known here"
        if self.provider == OPENAI and self.payment() == "unknown":
            return "which login it uses is unknown: its auth.json does not say"
        if {"model_provider", "model_providers", "openai_base_url"} & set(self.managed):
            return f"{MANAGED} says where its calls go"
        return providers.routed(ask, [self.upstream], route)

    def routed(self, ask: Ask) -> tuple[str, ...]:
        """The settings that send a routed ask's calls where they are to go."""
        if not ask.routes:
            return ()
        url = providers.toml_string(providers.local(ask, self.upstream))
        if self.provider == OPENAI:
            return (f"openai_base_url={url}",)
        place = f"model_providers.{self.provider}"
        return (f"{place}.base_url={url}", f"{place}.supports_websockets=false")


def split(parts: argv.Parts, ours: Sequence[str]) -> tuple[argv.Parts, tuple[str, ...]]:
    """Split off user settings for these keys; they must come before ours."""
    keys = [one.partition("=")[0] for one in ours]
    theirs = [part for part in parts if _covers(setting(part)[0], keys)]
    return tuple(part for part in parts if part not in theirs), argv.joined(theirs)


def _covers(key: str, keys: Sequence[str]) -> bool:
    return bool(key) and any(ours == key or ours.startswith(f"{key}.") for ours in keys)


def _flags(parts: argv.Parts) -> list[json_lines.Record]:
    """The settings among the flags, each as a layer."""
    found: list[json_lines.Record] = []
    for part in parts:
        key, value = setting(part)
        if not key:
            continue
        layer: object = _value(value)
        for name in reversed(key.split(".")):
            layer = {name: layer}
        found.append(json_lines.inner(layer))
    return found


def _value(text: str) -> object:
    """A value as Codex reads it: as TOML, else as plain text."""
    try:
        return tomllib.loads(f"v={text}")["v"]
    except (ValueError, RecursionError):
        return text.strip("\"'")
