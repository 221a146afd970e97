"""The providers in the settings of Kimi Code and of kimi-cli: which model, whose account, and where the calls go.
Kimi Code reads a variable where its settings name no address; kimi-cli reads it before its settings.
"""

import re
from collections.abc import Mapping

from outlast.agents.common import json_lines, providers
from outlast.agents.values import Ask, Payment, Route

CODE_HOME = ("KIMI_CODE_HOME", ".kimi-code")
CLI_HOME = ("KIMI_SHARE_DIR", ".kimi")
# By the type of a provider: the variable with its address, and where it is without one.
KIMI = ("KIMI_BASE_URL", "https://api.moonshot.ai/v1")
OPENAI = ("OPENAI_BASE_URL", "https://api.openai.com/v1")
ANTHROPIC = ("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
GEMINI = ("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com")
TYPES = {
    "kimi": KIMI, "openai": OPENAI, "openai_legacy": OPENAI, "openai_responses": OPENAI, "anthropic": ANTHROPIC,
    "google-genai": GEMINI, "google_genai": GEMINI, "gemini": GEMINI,
}  # fmt: skip
KEYS = {
    "KIMI_BASE_URL": "KIMI_API_KEY", "OPENAI_BASE_URL": "OPENAI_API_KEY", "ANTHROPIC_BASE_URL": "ANTHROPIC_API_KEY",
    "GOOGLE_GEMINI_BASE_URL": "GOOGLE_API_KEY",
}  # fmt: skip
OF_ENVIRONMENT = "KIMI_MODEL_BASE_URL"  # Kimi Code's, of the model that the environment describes
_BASE_URL = re.compile(r"""(?m)^(\s*base_url\s*=\s*)(?:"([^"\\\n]*)"|'([^'\n]*)')""")


class KimiLogin:
    """The login, by the settings and the environment. `env_first`: the environment goes first, as in kimi-cli."""

    def __init__(
        self, config: json_lines.Record, environment: Mapping[str, str], model: str, *, env_first: bool
    ) -> None:
        self.config, self.environment, self.env_first = config, environment, env_first
        self._model = model or json_lines.text(config, "default_model")

    @property
    def model(self) -> str:
        named = self.environment.get("KIMI_MODEL_NAME", "")
        configured = json_lines.text(self.config, "models", self._model, "model")
        return providers.bare(named or configured or self._model)

    @property
    def describes_model(self) -> bool:
        """Whether the environment describes a model with all that belongs to it."""
        return not self.env_first and bool(self.environment.get("KIMI_MODEL_NAME", "").strip())

    @property
    def provider(self) -> json_lines.Record:
        """The provider of the model that would be used."""
        named = json_lines.text(self.config, "models", self._model, "provider")
        return json_lines.inner(
            self.config, "providers", named or json_lines.text(self.config, "default_provider")
        )

    def place(self, provider: json_lines.Record) -> tuple[str, str]:
        """A provider's address, and the variable that names it; no variable where its settings do."""
        variable, default = TYPES.get(json_lines.text(provider, "type"), ("", ""))
        heard = self.environment.get(variable, "") if variable in ("KIMI_BASE_URL", "OPENAI_BASE_URL") else ""
        if self.env_first and heard:
            return heard, variable
        url = json_lines.text(provider, "base_url")
        if url:
            return url, ""
        return self.environment.get(variable, "") or default, variable

    def places(self) -> list[tuple[str, str]]:
        """The addresses of all providers, each with the variable that names it."""
        found = [
            self.place(json_lines.inner(each)) for each in json_lines.inner(self.config, "providers").values()
        ]
        if self.describes_model:
            kind = self.environment.get("KIMI_MODEL_PROVIDER_TYPE", "").strip() or "kimi"
            default = TYPES.get(kind, KIMI)[1]
            found.append((self.environment.get(OF_ENVIRONMENT) or default, OF_ENVIRONMENT))
        models = json_lines.inner(self.config, "models").values()
        found += [(json_lines.text(one, "base_url"), "") for one in models]
        return [place for place in found if place[0]]

    def payment(self) -> Payment:
        if self.describes_model:
            return "api"
        provider = self.provider
        if not provider:
            return "unknown"
        variable = TYPES.get(json_lines.text(provider, "type"), ("", ""))[0]
        overridden = self.env_first and self.environment.get(KEYS.get(variable, ""))
        return "subscription" if json_lines.inner(provider, "oauth") and not overridden else "api"

    def account(self) -> str:
        if self.describes_model:
            return providers.account("kimi", self.environment.get("KIMI_MODEL_API_KEY", ""))
        provider = self.provider
        where = self.place(provider)[0]
        variable = TYPES.get(json_lines.text(provider, "type"), ("", ""))[0]
        exported, configured = (
            self.environment.get(KEYS.get(variable, ""), ""),
            json_lines.text(provider, "api_key"),
        )
        # Of a login only the name of its place is at hand: one per home.
        login = json_lines.text(provider, "oauth", "key")
        home = self.environment.get("HOME", "")
        key = (exported or configured) if self.env_first else (configured or exported)
        return providers.account(providers.host(where), key or (f"{login} {home}" if login else ""))

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        return providers.routed(ask, [address for address, _ in self.places()], route)

    def variables(self, ask: Ask) -> dict[str, str]:
        """The further variables of a routed ask."""
        if not ask.routes:
            return {}
        named = {variable: providers.local(ask, address) for address, variable in self.places() if variable}
        return {**named, **providers.no_proxy(ask)}

    def routed(self, ask: Ask) -> dict[str, object]:
        """The settings, with what stands for each address that they name."""
        found = dict(self.config)
        named = json_lines.inner(self.config, "providers")
        if not ask.routes or not named:
            return found
        found["providers"] = {
            name: {
                **json_lines.inner(one),
                "base_url": providers.local(ask, json_lines.text(one, "base_url")),
            }
            if json_lines.text(one, "base_url")
            else one
            for name, one in named.items()
        }
        return found


def with_routes(config: bytes, ask: Ask) -> bytes:
    """The text of the settings with the routed addresses; unchanged if there is none."""
    if not ask.routes:
        return config
    text = config.decode("utf-8", "replace")

    def instead(found: re.Match[str]) -> str:
        url = (found[2] if found[2] is not None else found[3]).rstrip("/")
        return f'{found[1]}"{ask.routes[url]}"' if url in ask.routes else found[0]

    return _BASE_URL.sub(instead, text).encode()


def has_only_routes(config: bytes, ask: Ask) -> bool:
    """Whether no provider in it goes anywhere but where it is to go."""
    read = providers.toml_text(config.decode("utf-8", "replace"))
    tables = (json_lines.inner(read, name) for name in ("providers", "models"))
    urls = [json_lines.text(one, "base_url") for table in tables for one in table.values()]
    return all(url in ask.routes.values() for url in urls if url)
