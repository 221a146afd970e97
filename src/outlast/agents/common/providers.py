"""Where an agent's calls go and who pays for them: what the agents have in common. Keys are read, never kept.
How each CLI learns its base URL is its own matter.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from outlast.agents.common import json_lines, launch
from outlast.agents.values import Ask, Route

TRUE = ("1", "true", "yes", "on")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
LOOPBACK = "127.0.0.1,localhost"
FOLDERS_MAX = 64
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w{0,127})\s*=\s*(.*?)\s*$")


def account(provider: str, known: str) -> str:
    """An account's name: its provider and a digest of a key or an id. The key cannot be found from it."""
    if not known:
        return ""
    digest = blake2b(known.encode("utf-8", "replace"), digest_size=6, person=b"outlast account").hexdigest()
    return f"{provider}:{digest}"


def host(url: str) -> str:
    """A provider's name where only its address is known."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def routed(ask: Ask, upstreams: Iterable[str], route: Route) -> Ask | str:
    """The ask with a local address for each upstream; or why not, where one is not an address."""
    found = {url.rstrip("/"): "" for url in upstreams}
    strange = [url for url in found if not url.startswith(("http://", "https://")) or not host(url)]
    if not found or strange:
        return (
            f"{strange[0]!r:.80} is not an HTTP address"
            if strange
            else "it does not name the address of a model"
        )
    return msgspec.structs.replace(ask, routes={url: route(url) for url in found})


def local(ask: Ask, upstream: str) -> str:
    """The address that stands for an upstream; itself if none does."""
    return ask.routes.get(upstream.rstrip("/"), upstream)


def no_proxy(ask: Ask) -> dict[str, str]:
    """The variables that let the agent reach this machine directly and not through a proxy."""
    return direct(ask) if ask.routes else {}


def direct(ask: Ask) -> dict[str, str]:
    """The same, whatever it wants of this machine."""
    if not any(ask.environment.get(spelled) for name in PROXIES for spelled in (name, name.lower())):
        return {}
    given = ask.environment.get("NO_PROXY") or ask.environment.get("no_proxy") or ""
    merged = f"{given},{LOOPBACK}" if given else LOOPBACK
    return {"NO_PROXY": merged, "no_proxy": merged}


def is_set(environment: Mapping[str, str], *names: str) -> bool:
    """Whether one of these switches is on."""
    return any(environment.get(name, "").strip().lower() in TRUE for name in names)


def toml_string(text: str) -> str:
    """A text for TOML, which is written as JSON writes it."""
    return bytes(json_lines.raw(text)).decode()


def bare(model: str) -> str:
    """A model's own name, without those of the providers that it is reached through."""
    return model.rpartition("/")[2]


# --- settings; a file that cannot be read counts as empty ------------------------------------


def text(path: Path) -> str:
    try:
        return launch.settings(path).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def json_file(path: Path) -> json_lines.Record:
    """A JSON file, with or without comments."""
    return json_text(text(path).removeprefix("\ufeff"))


def json_text(source: str) -> json_lines.Record:
    return json_lines.record(launch.without_comments(source).encode("utf-8", "replace")) or {}


def toml_text(source: str) -> json_lines.Record:
    try:
        return tomllib.loads(source)
    except (ValueError, RecursionError):
        return {}


def dotenv(path: Path) -> dict[str, str]:
    """The variables that a .env file sets."""
    found: dict[str, str] = {}
    for line in text(path).splitlines():
        assigned = _ASSIGNED.match(line)
        if assigned is None:
            continue
        value = assigned[2]
        quote = value[:1] if value[:1] in ("'", '"') else ""
        end = value.find(quote, 1) if quote else -1
        found[assigned[1]] = value[1:end] if end > 0 else value.partition(" #")[0].strip()
    return found


def above(folder: Path) -> tuple[Path, ...]:
    """A folder and those that it lies in, nearest first."""
    return (folder, *folder.parents)[:FOLDERS_MAX]


def merged(under: Mapping[str, object], over: Mapping[str, object], depth: int = 16) -> dict[str, object]:
    """Settings laid over others: tables are merged, all else is replaced."""
    made = dict(under)
    for key, value in over.items():
        below = made.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping) and depth > 0
        made[key] = merged(json_lines.inner(below), json_lines.inner(value), depth - 1) if both else value
    return made
