"""Gemini CLI's provider: which model, whose account, and where its calls go.
Variables come from the environment, then from the nearest .env file.
"""

from collections.abc import Mapping
from pathlib import Path

from outlast.agents.common import json_lines, providers
from outlast.agents.values import Ask, Payment, Route

OAUTH, API_KEY, VERTEX, ADC, GATEWAY = (
    "oauth-personal", "gemini-api-key", "vertex-ai", "compute-default-credentials", "gateway",
)  # fmt: skip
BASE_URL, VERTEX_URL, ASSIST_URL = "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "CODE_ASSIST_ENDPOINT"
API = "https://generativelanguage.googleapis.com"
# With Google's own login: its answers wrap Gemini's in a `response`.
ASSIST = "https://cloudcode-pa.googleapis.com"
HOME = ("GEMINI_CLI_HOME", "")
SYSTEM = Path("/etc/gemini-cli/settings.json")


class GeminiLogin:
    """The login, by the settings and the environment.

    `named`: the model among the flags of the command. `home`: the folder that .gemini lies in.
    """

    def __init__(
        self,
        named: str,
        settings: json_lines.Record,
        environment: Mapping[str, str],
        cwd: Path,
        home: Path | None,
    ) -> None:
        system = providers.json_file(SYSTEM)
        project = providers.json_file(cwd / ".gemini/settings.json")
        self.settings = providers.merged(providers.merged(settings, project), system)
        self._home = home
        self.environment = {**_dotenv(cwd, home), **environment}
        self._named = named

    @property
    def kind(self) -> str:
        """How it authenticates; empty where nothing says."""
        selected = json_lines.text(self.settings, "security", "auth", "selectedType")
        selected = selected or json_lines.text(self.settings, "selectedAuthType")
        if selected:
            return selected
        if self.environment.get("GOOGLE_GENAI_USE_GCA") == "true":
            return OAUTH
        if self.environment.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
            return VERTEX
        if self.environment.get(BASE_URL):
            return GATEWAY
        return API_KEY if self.environment.get("GEMINI_API_KEY") else ""

    @property
    def place(self) -> tuple[str, str]:
        """The variable that says where its calls go, and where that is."""
        if self.kind in (OAUTH, ADC):
            return ASSIST_URL, self.environment.get(ASSIST_URL) or ASSIST
        if self.kind == VERTEX:
            return VERTEX_URL, self.environment.get(VERTEX_URL) or _vertex(self.environment)
        return BASE_URL, self.environment.get(BASE_URL) or API

    @property
    def model(self) -> str:
        named = self._named or self.environment.get("GEMINI_MODEL", "")
        settings = json_lines.at(self.settings, "model")
        return named or json_lines.text(settings, "name") or (settings if isinstance(settings, str) else "")

    def payment(self) -> Payment:
        if self.kind == OAUTH:
            return "subscription"
        return "api" if self.kind else "unknown"

    def account(self) -> str:
        if self.kind == OAUTH:
            path = "google_accounts.json"
            accounts = {} if self._home is None else providers.json_file(self._home / ".gemini" / path)
            return providers.account("google", json_lines.text(accounts, "active"))
        if self.kind == VERTEX:
            return providers.account("google", self.environment.get("GOOGLE_CLOUD_PROJECT", ""))
        return providers.account("google", self.environment.get("GEMINI_API_KEY", ""))

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        if not self.kind:
            return "how it authenticates is unknown: see `security.auth.selectedType` in its settings"
        return providers.routed(ask, [self.place[1]], route)

    def variables(self, ask: Ask) -> dict[str, str]:
        """The further variables of a routed ask."""
        if not ask.routes:
            return {}
        variable, upstream = self.place
        return {variable: providers.local(ask, upstream), **providers.no_proxy(ask)}

    @property
    def selected(self) -> dict[str, object]:
        """The settings that keep it authenticating as it did: a base URL alone would have it take another way."""
        return {"security": {"auth": {"selectedType": self.kind}}}


def _vertex(environment: Mapping[str, str]) -> str:
    location = environment.get("GOOGLE_CLOUD_LOCATION", "")
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com" if location not in ("", "global") else (
        "https://aiplatform.googleapis.com"
    )  # fmt: skip


def _dotenv(cwd: Path, home: Path | None) -> dict[str, str]:
    """The variables of the one .env file that it reads: the nearest above, else the user's."""
    folders = (*providers.above(cwd), *((home,) if home is not None else ()))
    paths = (path for folder in folders for path in (folder / ".gemini/.env", folder / ".env"))
    found = next((path for path in paths if path.is_file()), None)
    return {} if found is None else providers.dotenv(found)
