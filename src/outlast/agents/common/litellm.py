"""litellm's providers, which aider and mini-swe-agent call through: whose account, and where the calls go, by the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outlast.agents.common import providers
from outlast.agents.values import Ask, Route


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: the variables that name its address (the first counts), its usual address, and its key's variable."""

    name: str
    variables: tuple[str, ...]
    default: str
    key: str

    def upstream(self, environment: Mapping[str, str]) -> str:
        return next((environment[name] for name in self.variables if environment.get(name)), self.default)

    def account(self, environment: Mapping[str, str]) -> str:
        return providers.account(self.name, environment.get(self.key, ""))


OPENAI = Provider(
    "openai", ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1", "OPENAI_API_KEY"
)
ANTHROPIC = Provider(
    "anthropic",
    ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
    "https://api.anthropic.com",
    "ANTHROPIC_API_KEY",
)
KNOWN = (
    OPENAI,
    ANTHROPIC,
    Provider(
        "gemini", ("GEMINI_API_BASE",), "https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY"
    ),
    Provider("openrouter", ("OPENROUTER_API_BASE",), "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    Provider("deepseek", ("DEEPSEEK_API_BASE",), "https://api.deepseek.com/beta", "DEEPSEEK_API_KEY"),
    Provider("groq", ("GROQ_API_BASE",), "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    Provider("mistral", ("MISTRAL_API_BASE",), "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    Provider("moonshot", ("MOONSHOT_API_BASE",), "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
)
# What a model without its provider's name begins with.
BARE = {"gpt-": OPENAI, "o1": OPENAI, "o3": OPENAI, "o4": OPENAI, "chatgpt-": OPENAI, "claude-": ANTHROPIC}


def of(model: str) -> Provider | None:
    """The provider that a model's name leads to."""
    prefix, slash, _ = model.partition("/")
    if slash:
        return next((one for one in KNOWN if one.name == prefix), None)
    return next((one for start, one in BARE.items() if model.startswith(start)), None)


def gateway(
    ask: Ask, route: Route, models: Sequence[str], environment: Mapping[str, str], address: str = ""
) -> Ask | str:
    """The ask with a route for each of these models; `address`: where the command itself says that they are."""
    named = [model for model in models if model]
    if not named:
        return "it does not say which model: give --model"
    found = [of(model) for model in named]
    unknown = [model for model, one in zip(named, found, strict=True) if one is None]
    if unknown:
        return f"where the calls for {unknown[0]!r:.80} go is not known here"
    return providers.routed(ask, [address or one.upstream(environment) for one in found if one], route)


def variables(ask: Ask, models: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that send a routed ask's calls where they are to go."""
    found = [one for model in models if (one := of(model)) is not None]
    return {name: providers.local(ask, one.upstream(environment)) for one in found for name in one.variables}
