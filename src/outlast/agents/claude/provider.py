"""Claude Code's provider: which model, whose account, and where its calls go.
Variables in its settings go before the environment; user, project, local, `--settings`, managed: the last one counts.
"""

from collections.abc import Mapping
from pathlib import Path

from outlast.agents.common import argv, json_lines, providers
from outlast.agents.values import Ask, Payment, Route

FIRST_PARTY = "https://api.anthropic.com"
BASE_URL = "ANTHROPIC_BASE_URL"
# Away from its maker's own address it leaves out some of what it can; the gateway passes on to that very address.
ASSUMED = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"
MANAGED = Path("/etc/claude-code/managed-settings.json")
MANAGED_MORE = "managed-settings.d"  # beside it: more of them, by name
FETCHED = "remote-settings.json"  # in its own folder: what its organisation said last
ELSEWHERE = (
    "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS", "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD", "CLAUDE_CODE_USE_GATEWAY",
)  # fmt: skip
KEYS = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY")
OAUTH_TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"


class ClaudeLogin:
    """The login, by the settings, the environment and the flags of a command."""

    def __init__(self, parts: argv.Parts, environment: Mapping[str, str], cwd: Path) -> None:
        home = environment.get("HOME", "")
        self._home = Path(home) if home else None
        config = environment.get("CLAUDE_CONFIG_DIR", "")
        self._config = Path(config) if config else Path(home) / ".claude" if home else None
        self._named = bool(config)
        self.settings: dict[str, object] = {}
        for layer in self._layers(parts, cwd):
            self.settings = providers.merged(self.settings, layer)
        self.managed: dict[str, object] = {}
        for path in self._managed_files():
            self.managed = providers.merged(self.managed, providers.json_file(path))
        self.settings = providers.merged(self.settings, self.managed)
        set_there = json_lines.inner(self.settings, "env")
        self.environment = {**environment, **{key: str(value) for key, value in set_there.items()}}
        named = argv.value(parts, "--model") or self.environment.get("ANTHROPIC_MODEL")
        self.model = named or json_lines.text(self.settings, "model")

    def _layers(self, parts: argv.Parts, cwd: Path) -> list[json_lines.Record]:
        sources = (argv.value(parts, "--setting-sources") or "user,project,local").split(",")
        places = {
            "user": None if self._config is None else self._config / "settings.json",
            "project": cwd / ".claude/settings.json",
            "local": cwd / ".claude/settings.local.json",
        }
        files = [path for name, path in places.items() if path is not None and name in sources]
        found = [providers.json_file(path) for path in files]
        given = argv.value(parts, "--settings") or ""
        if given.lstrip().startswith("{"):
            found.append(providers.json_text(given))
        elif given:
            found.append(providers.json_file(cwd / given))
        return found

    def _managed_files(self) -> list[Path]:
        more = sorted(MANAGED.with_name(MANAGED_MORE).glob("[!.]*.json"))
        return [MANAGED, *more, *([self._config / FETCHED] if self._config is not None else [])]

    @property
    def upstream(self) -> str:
        return (self.environment.get(BASE_URL) or FIRST_PARTY).rstrip("/")

    @property
    def key(self) -> str:
        """A key that goes before every login; the name of a helper program stands for its key."""
        found = next((self.environment[name] for name in KEYS if self.environment.get(name)), "")
        return found or json_lines.text(self.settings, "apiKeyHelper")

    @property
    def is_elsewhere(self) -> bool:
        return providers.is_set(self.environment, *ELSEWHERE)

    @property
    def has_oauth(self) -> bool:
        if self.environment.get(OAUTH_TOKEN):
            return True
        credentials = {} if self._config is None else providers.json_file(self._config / ".credentials.json")
        return bool(json_lines.inner(credentials, "claudeAiOauth"))

    def known(self) -> json_lines.Record:
        """The user's data that it keeps: no credentials but an old key."""
        folder = self._config if self._named else self._home
        return {} if folder is None else providers.json_file(folder / ".claude.json")

    def payment(self) -> Payment:
        if self.key or self.is_elsewhere:
            return "api"
        if self.has_oauth:
            return "subscription"
        return "api" if json_lines.text(self.known(), "primaryApiKey") else "unknown"

    def account(self) -> str:
        provider = "anthropic" if self.upstream == FIRST_PARTY else providers.host(self.upstream)
        if self.is_elsewhere:
            return ""
        if self.key:
            return providers.account(provider, self.key)
        user = json_lines.text(self.known(), "oauthAccount", "accountUuid")
        return providers.account(
            provider,
            self.environment.get(OAUTH_TOKEN) or user or json_lines.text(self.known(), "primaryApiKey"),
        )

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        if self.is_elsewhere:
            return "its calls go to a cloud that wants them signed for its own address"
        if BASE_URL in json_lines.inner(self.managed, "env"):
            return f"{MANAGED} says where its calls go"
        return providers.routed(ask, [self.upstream], route)


# With any of these nobody can say whether its hooks reach us by HTTP: a list of the addresses that they may have, a sandbox
# with a proxy of its own.
_HTTP_HOOKS = "allowedHttpHookUrls"


def forbids_hooks(login: ClaudeLogin) -> str:
    """Why none of our hooks runs; empty if nothing keeps them from it."""
    if json_lines.flag(login.settings, "disableAllHooks"):
        return "its settings switch hooks off (disableAllHooks)"
    if json_lines.flag(login.managed, "allowManagedHooksOnly"):
        return "its managed settings allow no other hooks (allowManagedHooksOnly)"
    locked = login.managed.get("strictPluginOnlyCustomization", False)
    if locked is False or (isinstance(locked, list) and "hooks" not in locked):
        return ""
    return "its managed settings allow no other hooks (strictPluginOnlyCustomization)"


def forbids_http(login: ClaudeLogin) -> bool:
    """Whether its settings may keep hooks by HTTP from an address of this machine."""
    if _HTTP_HOOKS in login.settings or json_lines.flag(
        json_lines.inner(login.settings, "sandbox"), "enabled"
    ):
        return True
    set_there = json_lines.inner(login.settings, "env")
    return any(name.upper() in (*providers.PROXIES, "NO_PROXY") for name in set_there)


def variables(ask: Ask) -> dict[str, str]:
    """The further variables, and settings, of a routed ask."""
    if not ask.routes:
        return {}
    ((upstream, stands_for_it),) = ask.routes.items()
    assumed = {ASSUMED: "1"} if upstream == FIRST_PARTY else {}
    return {BASE_URL: stands_for_it, **assumed, **providers.no_proxy(ask)}
