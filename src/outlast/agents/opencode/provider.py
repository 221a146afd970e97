"""opencode's provider: which model, whose account, and where its calls go, by the layers of its settings.
Only providers of named models get another address: setting one switches its provider on.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from outlast.agents.common import json_lines, providers
from outlast.agents.values import Ask, Payment, Route

CONTENT = "OPENCODE_CONFIG_CONTENT"
NAMES = ("config.json", "opencode.json", "opencode.jsonc")
# Where a provider is that the settings say nothing of; its key's variable.
KNOWN = {
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "google": ("https://generativelanguage.googleapis.com/v1beta", "GOOGLE_GENERATIVE_AI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "opencode": ("https://opencode.ai/zen/v1", "OPENCODE_API_KEY"),
    "deepseek": ("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "moonshotai": ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
}
_VARIABLE = re.compile(r"\{env:([^}]{1,128})\}")


class OpencodeLogin:
    """The login, by the settings and the environment of a command. `named`: the model among its flags."""

    def __init__(self, named: str, environment: Mapping[str, str], cwd: Path) -> None:
        self.environment = environment
        self.settings: dict[str, object] = {}
        for layer in _layers(environment, cwd):
            self.settings = providers.merged(self.settings, layer)
        self._model = named or json_lines.text(self.settings, "model")

    @property
    def model(self) -> str:
        return providers.bare(self._model)

    @property
    def models(self) -> list[str]:
        """The models that opencode would call, as far as its settings name them."""
        small = json_lines.text(self.settings, "small_model")
        agents = (json_lines.inner(self.settings, name).values() for name in ("agent", "mode"))
        others = [json_lines.text(one, "model") for table in agents for one in table]
        return [model for model in dict.fromkeys((self._model, small, *others)) if "/" in model]

    @property
    def ids(self) -> list[str]:
        return list(dict.fromkeys(model.partition("/")[0] for model in self.models))

    def upstream(self, provider: str) -> str:
        configured = json_lines.text(self.settings, "provider", provider, "options", "baseURL")
        configured = configured or json_lines.text(self.settings, "provider", provider, "api")
        heard = _VARIABLE.sub(lambda found: self.environment.get(found[1], ""), configured)
        return heard or KNOWN.get(provider, ("", ""))[0]

    def _auth(self, provider: str) -> json_lines.Record:
        data, home = self.environment.get("XDG_DATA_HOME", ""), self.environment.get("HOME", "")
        folder = Path(data) if data else Path(home) / ".local/share" if home else None
        content = self.environment.get("OPENCODE_AUTH_CONTENT", "")
        saved = {} if folder is None else providers.json_file(folder / "opencode/auth.json")
        return json_lines.inner(providers.json_text(content) if content else saved, provider)

    def _is_oauth(self, provider: str) -> bool:
        return json_lines.text(self._auth(provider), "type") == "oauth"

    def payment(self) -> Payment:
        if not self._model:
            return "unknown"
        return "subscription" if self._is_oauth(self._model.partition("/")[0]) else "api"

    def account(self) -> str:
        provider = self._model.partition("/")[0]
        auth = self._auth(provider)
        known = json_lines.text(auth, "accountId") or json_lines.text(auth, "key")
        configured = json_lines.text(self.settings, "provider", provider, "options", "apiKey")
        configured = _VARIABLE.sub(lambda found: self.environment.get(found[1], ""), configured)
        heard = self.environment.get(KNOWN.get(provider, ("", ""))[1] or " ", "")
        return providers.account(provider, configured or known or heard) if provider else ""

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        if "/" not in self._model:
            return "it does not say which model: give --model PROVIDER/MODEL, or `model` in its settings"
        for provider in self.ids:
            if self._is_oauth(provider):
                return f"its login to {provider} goes its own way, whatever its address"
            if not self.upstream(provider):
                return f"where the calls to {provider!r:.80} go is not known here: give its options a baseURL"
        return providers.routed(ask, [self.upstream(provider) for provider in self.ids], route)

    def routed(self, ask: Ask) -> dict[str, object]:
        """The settings that send a routed ask's calls where they are to go."""
        options = {one: {"baseURL": providers.local(ask, self.upstream(one))} for one in self.ids}
        return {"provider": {one: {"options": option} for one, option in options.items()}}


def _layers(environment: Mapping[str, str], cwd: Path) -> list[json_lines.Record]:
    """Its settings in the order in which they are laid over each other."""
    config, home = environment.get("XDG_CONFIG_HOME", ""), environment.get("HOME", "")
    own = Path(config) if config else Path(home) / ".config" if home else None
    paths = [own / "opencode" / name for name in NAMES] if own is not None else []
    named = environment.get("OPENCODE_CONFIG", "")
    paths += [cwd / named] if named else []
    folders = reversed(providers.above(cwd))
    paths += [
        folder / place / name for folder in folders for place in ("", ".opencode") for name in NAMES[1:]
    ]
    given = environment.get("OPENCODE_CONFIG_DIR", "")
    paths += [cwd / given / name for name in NAMES[1:]] if given else []
    return [
        *(providers.json_file(path) for path in paths),
        providers.json_text(environment.get(CONTENT, "")),
    ]
