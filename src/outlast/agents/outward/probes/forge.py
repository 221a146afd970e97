"""Whether a pull request, issue, comment or release is there: read from the API that GitHub and Gitea share."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlencode

from outlast.agents.outward.probes import fetch
from outlast.agents.outward.probes.fetch import Deadline, Reply, Unreachable
from outlast.agents.outward.targets.forge import digest
from outlast.errors import DidNotHappen
from outlast.probes import CannotTell, Finding, Happened

PAGES_MAX = 4
PAGE_ITEMS = 50
ITEMS_MAX = 1000
SKEW = timedelta(seconds=60)

Params = Mapping[str, str]


class Forge:
    """One repository's API, with the token that is meant for its host."""

    def __init__(self, params: Params, environment: Mapping[str, str], deadline: Deadline) -> None:
        self.params, self.environment, self.deadline = params, environment, deadline
        self.base = _base(params, environment)
        self.repo = f"{self.base}/repos/{quote(params.get('repo', ''))}"
        self.headers = {"Accept": "application/json"}
        token = _token(self.base, environment)
        if token and fetch.may_carry_secrets(self.base):
            self.headers["Authorization"] = f"token {token}"

    def get(self, url: str) -> Reply:
        return fetch.get(url, self.environment, self.deadline, self.headers)

    def item(self, path: str) -> tuple[int, dict[str, object]]:
        reply = self.get(f"{self.repo}{path}")
        data = _json(reply) if reply.status == 200 else {}
        return reply.status, data if isinstance(data, dict) else {}

    def items(self, path: str, **query: str) -> tuple[list[dict[str, object]], bool]:
        """A listing, and whether it is whole. Raises Unreachable unless it can be read."""
        found: list[dict[str, object]] = []
        for page in range(1, PAGES_MAX + 1):
            parameters = {**query, "page": str(page), "per_page": str(PAGE_ITEMS), "limit": str(PAGE_ITEMS)}
            reply = self.get(f"{self.repo}{path}?{urlencode(parameters)}")
            data = _json(reply) if reply.status == 200 else None
            if not isinstance(data, list):
                raise Unreachable(f"the forge answers with status {reply.status}")
            found += [item for item in data if isinstance(item, dict)]
            if 'rel="next"' not in reply.headers.get("link", "") and len(data) < PAGE_ITEMS:
                return found, True
        return found[:ITEMS_MAX], False

    def server_time(self) -> datetime | None:
        reply = self.get(self.repo)
        if reply.status != 200:
            raise Unreachable(f"the forge answers with status {reply.status}")
        try:
            return parsedate_to_datetime(reply.headers.get("date", "")).astimezone(UTC)
        except (ValueError, TypeError):
            return None


def _json(reply: Reply) -> object:
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise Unreachable("the forge answers with something else than JSON") from error


def _base(params: Params, environment: Mapping[str, str]) -> str:
    if params.get("api"):
        return params["api"].rstrip("/")
    host = params.get("host", "").lower()
    if params.get("flavour") == "gitea":
        server = environment.get("GITEA_SERVER_URL", "").rstrip("/")
        if server and host in ("", fetch.host_of(server)):
            return f"{server}/api/v1"
        return f"https://{host}/api/v1"
    named = environment.get("GITHUB_API_URL", "").rstrip("/")
    public = host in ("", "github.com", "api.github.com")
    if named and (public or host == fetch.host_of(named)):
        return named
    return "https://api.github.com" if public else f"https://{host}/api/v3"


def _token(base: str, environment: Mapping[str, str]) -> str:
    """Only the token of this very host: another host's would be given away."""
    host = fetch.host_of(base)
    named = [
        (
            ("api.github.com", fetch.host_of(environment.get("GITHUB_API_URL", ""))),
            ("GH_TOKEN", "GITHUB_TOKEN"),
        ),
        (
            (environment.get("GH_HOST", "").lower(),),
            ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_TOKEN"),
        ),
        ((fetch.host_of(environment.get("GITEA_SERVER_URL", "")),), ("GITEA_TOKEN", "GITEA_SERVER_TOKEN")),
    ]
    for hosts, variables in named:
        if host and host in hosts:
            for variable in variables:
                if value := environment.get(variable, "").strip():
                    return value if value.isprintable() else ""
    return ""


# --- what was there before ------------------------------------------------------------------------------------------


def facts(name: str, params: Params, environment: Mapping[str, str], deadline: Deadline) -> dict[str, object]:
    """The present state of the forge, as far as the later look needs it. Raises Unreachable."""
    forge = Forge(params, environment, deadline)
    if name in ("comment", "issue"):
        moment = forge.server_time()
        if moment is None:
            raise Unreachable("the forge does not say what time it is")
        since = (moment - SKEW).strftime("%Y-%m-%dT%H:%M:%SZ")
        items, whole = _listed(forge, name, since)
        return {"since": since, "before": [_id(item) for item in items]} if whole else {}
    if name == "pr":
        items, whole = _pulls(forge)
        return {"before": [_id(item) for item in items]} if whole else {}
    if name == "release":
        status, _ = forge.item(f"/releases/tags/{quote(params.get('tag', ''), safe='')}")
        return {"existed": status == 200} if status in (200, 404) else {}
    return {}


def _id(item: Mapping[str, object]) -> int:
    value = item.get("id")
    return value if isinstance(value, int) else 0


def _listed(forge: Forge, name: str, since: str) -> tuple[list[dict[str, object]], bool]:
    query = {"since": since} if since else {}
    if name == "comment":
        return forge.items(f"/issues/{quote(forge.params.get('number', ''))}/comments", **query)
    items, whole = forge.items("/issues", state="all", type="issues", **query)
    return [item for item in items if not item.get("pull_request")], whole


def _pulls(forge: Forge) -> tuple[list[dict[str, object]], bool]:
    head = forge.params.get("head", "")
    query = {"state": "all"}
    if forge.params.get("flavour") != "gitea":
        query["head"] = f"{forge.params.get('repo', '').partition('/')[0]}:{head}"
    items, whole = forge.items("/pulls", **query)
    return [item for item in items if _at(item, "head", "ref") == head], whole


def _at(item: Mapping[str, object], *keys: str) -> object:
    value: object = item
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


# --- what is there now ----------------------------------------------------------------------------------------------


def look(
    name: str,
    params: Params,
    recorded: Mapping[str, object],
    environment: Mapping[str, str],
    deadline: Deadline,
) -> Finding:
    """The forge's finding. Raises Unreachable."""
    forge = Forge(params, environment, deadline)
    if name == "pr":
        return _look_for_pull(forge, recorded)
    if name == "state":
        return _look_at_state(forge)
    if name == "release":
        return _look_for_release(forge, recorded)
    return _look_for_text(forge, name, recorded)


def _before(recorded: Mapping[str, object]) -> set[object] | None:
    before = recorded.get("before")
    return set(before) if isinstance(before, list | tuple) else None


def _look_for_pull(forge: Forge, recorded: Mapping[str, object]) -> Finding:
    items, whole = _pulls(forge)
    before = _before(recorded)
    if items and before is None:
        return CannotTell("a pull request from that branch is there; whether it was before is not known")
    if new := [item for item in items if before is not None and _id(item) not in before]:
        return Happened(_result(new[0]))
    if not whole:
        return CannotTell("there is more than was read")
    return DidNotHappen("no new pull request from that branch")


def _look_for_text(forge: Forge, name: str, recorded: Mapping[str, object]) -> Finding:
    since = recorded.get("since")
    items, whole = _listed(forge, name, since if isinstance(since, str) else "")
    before = _before(recorded)
    new = [item for item in items if before is None or _id(item) not in before]
    params = forge.params
    if params.get("marker"):
        marked = [item for item in new if params["marker"] in str(item.get("body") or "")]
        if marked:
            return Happened(_result(marked[0]))
        return (
            DidNotHappen("nothing there has its mark") if whole else CannotTell("there is more than was read")
        )
    keys = [key for key in ("title", "body") if params.get(f"{key}_sha256")]
    alike = [
        item
        for item in new
        if all(digest(str(item.get(key) or "")) == params[f"{key}_sha256"] for key in keys)
    ]
    if not alike:
        return (
            DidNotHappen(f"no such {name} is there") if whole else CannotTell("there is more than was read")
        )
    if not keys:
        return CannotTell(f"a new {name} is there; whether it is this one is not known")
    if before is None:
        return CannotTell("one like it is there; whether it was before is not known")
    return Happened(_result(alike[0]))


def _look_at_state(forge: Forge) -> Finding:
    verb, number = forge.params.get("verb"), quote(forge.params.get("number", ""))
    status, item = forge.item(f"/pulls/{number}" if verb == "merge" else f"/issues/{number}")
    if status != 200 or "state" not in item:
        return CannotTell(f"the forge answers with status {status}")
    if verb == "merge":
        is_so = bool(item.get("merged"))
        if not is_so and forge.params.get("auto"):
            return CannotTell("it is to be merged later, which cannot be seen")
    else:
        is_so = item["state"] == ("closed" if verb == "close" else "open")
    return Happened(_result(item)) if is_so else DidNotHappen(f"its state is {item['state']!s:.20}")


def _look_for_release(forge: Forge, recorded: Mapping[str, object]) -> Finding:
    status, item = forge.item(f"/releases/tags/{quote(forge.params.get('tag', ''), safe='')}")
    if status == 200:
        return DidNotHappen("it was there before") if recorded.get("existed") else Happened(_result(item))
    if status != 404 or forge.params.get("draft"):
        return CannotTell(f"the forge answers with status {status}")
    repository, _ = forge.item("")
    return (
        DidNotHappen("no such release") if repository == 200 else CannotTell("the repository cannot be read")
    )


def _result(item: Mapping[str, object]) -> dict[str, str]:
    keys = ("html_url", "number", "id", "tag_name")
    return {key: str(item[key])[:300] for key in keys if item.get(key) is not None}
