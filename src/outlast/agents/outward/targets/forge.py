"""The target of a call to a forge (GitHub, Gitea, GitLab; by gh, tea, hub, glab or plain HTTP).
The same act has the same signature whichever program does it: `comment owner/repo#7`, `pr-create owner/repo head`.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from outlast.agents.outward import content
from outlast.agents.outward.rules import NAMED, Another
from outlast.agents.outward.targets import arguments, git_config
from outlast.agents.outward.targets.base import Matched, ReadBack, Target, is_known, joined
from outlast.agents.outward.targets.body import file_content

UNTOLD = "untold"  # of the texts of an act, those that are given and not known now
MARKER = re.compile(r"<!-- ?outlast[: ][^>]{1,200}-->")

_NOUNS = {
    "pulls": "pr", "pull": "pr", "mr": "pr", "issues": "issue", "i": "issue", "releases": "release", "r": "release",
    "labels": "label", "milestones": "milestone", "repos": "repo", "organizations": "org",
}  # fmt: skip
_VERBS = {"new": "create", "c": "create", "note": "comment", "m": "merge", "e": "edit", "update": "edit"}
_NUMBERED = {
    "comment", "close", "merge", "edit", "review", "reopen", "ready", "delete", "lock", "unlock", "approve", "revoke",
    "transfer", "pin", "unpin", "develop", "rebase", "reject", "update-branch", "revert",
}  # fmt: skip


_REPO = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A repository on a forge. `api` is where its API begins, where the call itself said so."""

    repo: str
    host: str = ""
    api: str = ""
    flavour: str = "github"

    def __str__(self) -> str:
        """Its form in a signature: forges do not tell `O/R` from `o/r`."""
        host, repo = self.host.lower(), self.repo.lower() if _REPO.fullmatch(self.repo) else self.repo
        return repo if host in ("", "github.com", "api.github.com") else f"{host}/{repo}"

    @property
    def params(self) -> dict[str, str]:
        return {"repo": self.repo, "host": self.host, "api": self.api, "flavour": self.flavour}


def resolve(matched: Matched) -> Target | None:
    """gh, glab, tea and hub."""
    noun, verb = _act(matched)
    place = place_of(matched)
    rest = list(matched.rest)
    if rest and (found := _from_url(rest[0])):
        place, rest[0] = found
    branch = matched.branch or _branch(matched)
    texts = _texts(matched)
    if noun == "api":
        if (method := matched.parsed.option("method", "GET").upper()) in ("GET", "HEAD"):
            fields = matched.parsed.options.get("field") or matched.parsed.options.get("raw-field")
            if not fields or "method" in matched.parsed.options:
                return None
            method = "POST"
        sent = arguments.words(matched.call, matched.rule, whole=True)
        return Target(joined(method, place.host or "gitlab.com", *rest[:1]), content=sent, another=NAMED)
    written = [value for name in _TEXT_OPTIONS for value in matched.parsed.options.get(name, ())]
    more = {"words": _others(matched), "files": arguments.files(matched.call, written)}
    if (noun, verb) == ("pr", "create"):
        head = matched.parsed.option("head") or matched.parsed.option("source-branch") or branch or "*"
        return act(place, "pr-create", head, texts, more)
    if (noun, verb) == ("issue", "create"):
        return act(place, "issue-create", "", texts, more)
    if noun == "release":
        tag = matched.parsed.option("tag") or (rest[0] if rest else "*")
        draft = "yes" if matched.parsed.flags & {"-d", "--draft"} else ""
        return act(place, f"release-{verb}", tag, {**texts, "draft": draft}, more)
    if noun in ("pr", "issue") and verb in _NUMBERED:
        number = rest[0].lstrip("#!") if rest else ""
        if "auto" in " ".join(matched.parsed.flags):
            texts["auto"] = "yes"
        return act(place, verb, number or f"@{branch or '?'}", texts, more)
    sent = arguments.words(matched.call, matched.rule)
    return Target(joined(f"{noun}-{verb}", str(place), *rest[:2]), content=sent)


_MANY = frozenset(
    "edit release-edit release-upload release-delete-asset".split()
)  # acts of many kinds on one target
_TEXT_OPTIONS = frozenset(
    "title body description comment notes body-file notes-file message note repo head source-branch".split()
)
_WRITTEN_BY = frozenset(
    "--fill --fill-first --fill-verbose -e --editor --generate-notes --notes-from-tag --recover".split()
)


def _others(matched: Matched) -> bytes | None:
    """The words of a call besides its texts; None where what it sends is not among its words."""
    call, parsed, values = matched.call, matched.parsed, matched.rule.values
    if not all(word.known for word in call.words if word in (*parsed.positionals, *parsed.flags)):
        return None
    if parsed.flags & _WRITTEN_BY:
        return None
    given = [
        f"{name}={value}"
        for name in sorted(parsed.options)
        if name not in _TEXT_OPTIONS
        for value in parsed.options[name]
    ]
    if not all(
        is_known(call, value)
        for name, found in parsed.options.items()
        if name not in _TEXT_OPTIONS
        for value in found
    ):
        return None
    flags = [
        flag
        for flag in parsed.flags
        if flag.partition("=")[0] not in values and (flag[:2] not in values or flag[:2] == "--")
    ]
    operands = [] if call.program == "tea" and matched.command[0] in ("comment", "c") else matched.rest[1:]
    return content.packed([*given, *sorted(flags), "--", *operands] if given or flags or operands else [])


def act(
    place: Place,
    verb: str,
    what: str,
    texts: Mapping[str, str],
    more: Mapping[str, bytes | None] | None = None,
) -> Target:
    """The signature of an act, and the probe that reads it back where there is one. `more` is what it sends besides its texts."""
    params = {**place.params, **{name: text for name, text in texts.items() if name != UNTOLD}}
    readable = place.flavour != "gitlab" and _REPO.fullmatch(place.repo) is not None
    if verb == "pr-create":
        owner, _, branch = what.partition(":")
        what = branch if branch and owner.lower() == place.repo.partition("/")[0].lower() else what
    if verb in ("comment", "merge", "close", "reopen") and what.isdigit():
        probe = ReadBack(
            "comment" if verb == "comment" else "state", {**params, "number": what, "verb": verb}
        )
    elif verb == "pr-create" and what != "*" and "$" not in what:
        probe = ReadBack("pr", {**params, "head": what.rpartition(":")[2]})
    elif verb == "issue-create":
        probe = ReadBack("issue", params)
    elif verb == "release-create" and what != "*" and "$" not in what:
        probe = ReadBack("release", {**params, "tag": what})
    else:
        probe = None
    separator = "" if what.startswith("@") else ("#" if verb.partition("-")[2] == "" else " ")
    signature = joined(verb, f"{place}{separator}{what}" if what else str(place))
    sent: dict[str, bytes | None] = {"words": b"", "files": b"", **(more or {})}
    for name in ("title", "body"):
        is_untold = name in texts.get(UNTOLD, "").split()
        sent[name] = None if is_untold else texts.get(f"{name}_sha256", "").encode()
    another: Another | None = NAMED if verb in _MANY else None
    return Target(
        signature, probe if readable else None, kind=verb, content=content.of(**sent), another=another
    )


def texts_of(title: str, body: str, *, title_known: bool = True, body_known: bool = True) -> dict[str, str]:
    """The marks by which a title and a body are recognised later; empty if they are not known now."""
    marker = MARKER.search(body) if body else None
    known = {"title": title_known, "body": body_known}
    return {
        UNTOLD: " ".join(name for name, is_known in known.items() if not is_known),
        "title_sha256": digest(title) if title and title_known else "",
        "body_sha256": digest(body) if body and body_known else "",
        "marker": marker[0] if marker else "",
    }


def digest(text: str) -> str:
    """A forge may change line ends and trim; the rest it keeps."""
    plain = text.replace("\r\n", "\n").strip()
    return hashlib.sha256(plain.encode("utf-8", "surrogateescape")).hexdigest()


def _act(matched: Matched) -> tuple[str, str]:
    command = matched.command
    if command == ("pull-request",):
        return "pr", "create"
    if command[0] in ("comment", "c") and len(command) == 1:
        return "issue", "comment"
    noun = _NOUNS.get(command[0], command[0])
    verb = command[1] if len(command) > 1 else "run"
    return noun, _VERBS.get(verb, verb)


def _texts(matched: Matched) -> dict[str, str]:
    parsed, call = matched.parsed, matched.call
    title = parsed.option("title")
    body = (
        parsed.option("body")
        or parsed.option("description")
        or parsed.option("comment")
        or parsed.option("notes")
    )
    if path := parsed.option("body-file") or parsed.option("notes-file"):
        read = file_content(matched, path) if is_known(call, path) else None
        return texts_of(
            title,
            (read or b"").decode(errors="backslashreplace"),
            title_known=is_known(call, title),
            body_known=read is not None,
        )
    if parsed.option("message"):
        title, _, rest = parsed.option("message").partition("\n\n")
        body = rest if call.program == "hub" else parsed.option("message")
    if call.program == "tea" and matched.command[0] in ("comment", "c") and len(matched.rest) > 1:
        body = matched.rest[1]
    return texts_of(title, body, title_known=is_known(call, title), body_known=is_known(call, body))


def place_of(matched: Matched) -> Place:
    program, environment = matched.call.program, matched.call.environment
    flavour = {"glab": "gitlab", "tea": "gitea"}.get(program, "github")
    host = environment.get({"glab": "GITLAB_HOST", "tea": "GITEA_SERVER_URL"}.get(program, "GH_HOST"), "")
    host = git_config.host_and_path(host)[0] or host if "://" in host else host
    given = matched.parsed.option("repo") or (
        environment.get("GH_REPO", "") if program in ("gh", "hub") else ""
    )
    if given:
        url_host, path = git_config.host_and_path(given)
        if url_host:
            return Place(path, url_host, flavour=flavour)
        parts = given.strip("/").split("/")
        if len(parts) == 3 and flavour != "gitlab":
            return Place("/".join(parts[1:]), parts[0], flavour=flavour)
        return Place(given.strip("/"), host, flavour=flavour)
    repository = git_config.find(matched.call.cwd, environment)
    if repository:
        names = repository.remotes
        chosen = [name for name in names if repository.get("remote", name, "gh-resolved") == "base"]
        chosen += [name for name in ("upstream", "github", "origin") if name in names]
        for name in [*chosen, *names]:
            url_host, path = git_config.host_and_path(repository.url(name))
            if path:
                return Place(path, url_host, flavour=flavour)
    return Place(matched.call.cwd or "?", host, flavour=flavour)  # no forge, but not every folder is the same


def _branch(matched: Matched) -> str:
    repository = git_config.find(matched.call.cwd, matched.call.environment)
    return repository.branch if repository else ""


_WEB_URL = re.compile(
    r"(https?)://([^/\s@]+)/([^/\s]+/[^/\s]+)/(?:pull|pulls|issues|-/merge_requests|-/issues)/(\d+)\S*"
)


def _from_url(word: str) -> tuple[Place, str] | None:
    match = _WEB_URL.fullmatch(word)
    if not match:
        return None
    flavour = "gitea" if "/pulls/" in word else "gitlab" if "/-/" in word else "github"
    return Place(match[3], match[2], flavour=flavour), match[4]


_API_PATH = re.compile(r"(/.*?)?/?repos/([^/]+)/([^/]+)/(.+)")


def from_api(
    method: str, scheme: str, host: str, path: str, data: Mapping[str, object], known: bool
) -> Target | None:
    """A call to the API that GitHub and Gitea share, recognised by its path; None if it is some other call."""
    match = _API_PATH.fullmatch(path.rstrip("/"))
    if not match:
        return None
    prefix = match[1] or ""
    api = f"{scheme}://{host}{prefix}"
    flavour = "gitea" if prefix.endswith("/api/v1") else "github"
    place = Place(f"{unquote(match[2])}/{unquote(match[3])}", host, api, flavour)

    def text(name: str) -> str:
        value = data.get(name)
        return value if isinstance(value, str) else ""

    texts = texts_of(text("title"), text("body"), title_known=known, body_known=known)
    match (method, *match[4].split("/")):
        case ("POST", "issues", number, "comments"):
            return act(place, "comment", number, texts)
        case ("POST", "issues"):
            return act(place, "issue-create", "", texts)
        case ("POST", "pulls"):
            return act(place, "pr-create", text("head") or "*", texts)
        case ("POST" | "PUT", "pulls", number, "merge"):
            return act(place, "merge", number, texts)
        case ("POST", "pulls", number, "reviews"):
            return act(place, "review", number, texts)
        case ("PATCH", "issues" | "pulls", number):
            state = text("state")
            verb = {"closed": "close", "open": "reopen"}.get(state, "edit")
            return act(place, verb, number, texts)
        case ("POST", "releases"):
            draft = "yes" if data.get("draft") else ""
            return act(place, "release-create", text("tag_name") or "*", {**texts, "draft": draft})
        case _:
            return None


def json_object(text: str) -> dict[str, object]:
    """The object that a body holds, empty if it holds none."""
    try:
        value = json.loads(text) if text[:1] in "{ \n\t" else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
