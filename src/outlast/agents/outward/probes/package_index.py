"""Whether a version is on a package index, and whether a URL holds what was PUT there."""

import glob
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from outlast.agents.outward.probes import fetch
from outlast.agents.outward.probes.fetch import Deadline, Reply, Unreachable
from outlast.errors import DidNotHappen
from outlast.probes import CannotTell, Finding, Happened

FILE_MAX = 64 << 20
FILES_MAX = 256

Params = Mapping[str, str]
Environment = Mapping[str, str]


def _get(url: str, environment: Environment, deadline: Deadline, accept: str = "application/json") -> Reply:
    return fetch.get(url, environment, deadline, {"Accept": accept})


def _object(reply: Reply) -> dict[str, object]:
    try:
        data = json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise Unreachable("the index answers with something else than JSON") from error
    return data if isinstance(data, dict) else {}


# --- npm, crates ----------------------------------------------------------------------------------------------------


def look_npm(
    params: Params, recorded: Mapping[str, object], environment: Environment, deadline: Deadline
) -> Finding:
    """A version is listed once it is published, and never before."""
    registry = (params.get("registry") or "https://registry.npmjs.org").rstrip("/")
    reply = _get(f"{registry}/{quote(params['name'], safe='@')}", environment, deadline)
    if reply.status == 404:
        if params.get("scoped") and not recorded.get("listed"):
            return CannotTell("a private package looks like a missing one")
        return DidNotHappen("the package is not on the index")
    if reply.status != 200:
        return CannotTell(f"the index answers with status {reply.status}")
    versions = _object(reply).get("versions")
    if not isinstance(versions, dict):
        return CannotTell("the index lists no versions")
    if params["version"] in versions:
        if recorded.get("existed"):
            return DidNotHappen("the version was on the index before")
        return Happened({"version": params["version"]})
    return DidNotHappen("the version is not on the index")


def facts_npm(params: Params, environment: Environment, deadline: Deadline) -> dict[str, object]:
    registry = (params.get("registry") or "https://registry.npmjs.org").rstrip("/")
    reply = _get(f"{registry}/{quote(params['name'], safe='@')}", environment, deadline)
    versions = _object(reply).get("versions") if reply.status == 200 else None
    existed = isinstance(versions, dict) and params["version"] in versions
    return {"listed": reply.status == 200, "existed": existed} if reply.status in (200, 404) else {}


def look_cargo(
    params: Params, recorded: Mapping[str, object], environment: Environment, deadline: Deadline
) -> Finding:
    """Only crates.io, which can be asked for one version."""
    if params.get("registry") not in ("", None, "crates-io"):
        return CannotTell("how to ask this registry is not known")
    url = f"https://crates.io/api/v1/crates/{quote(params['name'])}/{quote(params['version'])}"
    reply = _get(url, environment, deadline)
    if reply.status == 200:
        return Happened({"version": params["version"]})
    return (
        DidNotHappen("the version is not on the index")
        if reply.status == 404
        else CannotTell(f"status {reply.status}")
    )


# --- PyPI -----------------------------------------------------------------------------------------------------------

_NAMED = {"": "https://pypi.org", "pypi": "https://pypi.org", "testpypi": "https://test.pypi.org"}
_HREF = re.compile(rb"<a\b[^>]*\bhref\s*=\s*[\"']([^\"'#?]{1,2000})", re.IGNORECASE)


def look_pypi(
    params: Params, recorded: Mapping[str, object], environment: Environment, deadline: Deadline
) -> Finding:
    """Happened if every file is listed. One file of several is neither: the upload was cut off between them."""
    listed = _listed(params, environment, deadline)
    before = recorded.get("before")
    if not listed or (isinstance(before, list | tuple) and listed <= set(before)):
        return DidNotHappen("no new file of this version is on the index")
    wanted = _files(params)
    if not wanted:
        return CannotTell("the version is on the index; whether all of its files are is not known")
    missing = sorted(wanted - listed)
    if missing:
        return CannotTell(f"{len(wanted) - len(missing)} of {len(wanted)} files are on the index")
    return Happened({"files": " ".join(sorted(wanted))})


def facts_pypi(params: Params, environment: Environment, deadline: Deadline) -> dict[str, object]:
    """The files of the version that are listed already."""
    return {"before": sorted(_listed(params, environment, deadline))}


def _listed(params: Params, environment: Environment, deadline: Deadline) -> set[str]:
    """Raises Unreachable unless the index answers."""
    index = _simple_index(params.get("registry", ""))
    if not index:
        raise Unreachable("where the index lists its files is not known")
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
    reply = _get(f"{index}/{quote(params['name'])}/", environment, deadline, accept)
    if reply.status not in (200, 404):
        raise Unreachable(f"the index answers with status {reply.status}")
    names = _names(reply) if reply.status == 200 else set()
    return {name for name in names if _is_of(name, params["name"], params["version"])}


def _simple_index(registry: str) -> str:
    if registry in _NAMED:
        return f"{_NAMED[registry]}/simple"
    try:
        parts = urlsplit(registry)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    host = parts.netloc.rpartition("@")[2].replace("upload.pypi.org", "pypi.org")
    path = parts.path.rstrip("/").removesuffix("/legacy").removesuffix("/simple")
    return f"{parts.scheme}://{host}{path}/simple"


def _names(reply: Reply) -> set[str]:
    if reply.headers.get("content-type", "").startswith("application/vnd.pypi.simple"):
        files = _object(reply).get("files")
        return (
            {str(item.get("filename")) for item in files if isinstance(item, dict)}
            if isinstance(files, list)
            else set()
        )
    links = (html.unescape(match.decode("utf-8", "replace")) for match in _HREF.findall(reply.body))
    return {unquote(link.rstrip("/").rpartition("/")[2]) for link in links}


def _is_of(file: str, name: str, version: str) -> bool:
    """`name-version.tar.gz` or `name-version-….whl`, however the name is spelled."""
    rest = re.sub(r"\.(?:tar\.gz|tar\.bz2|zip)$", "-", file)
    plain = re.sub(r"[-_.]+", "-", rest).lower()
    return plain.startswith(re.sub(r"[-_.]+", "-", f"{name}-{version}").lower() + "-")


def _files(params: Params) -> set[str]:
    """The files that were to be uploaded, as far as they lie there now."""
    folder = params.get("folder", "")
    if not folder:
        return set()
    patterns = [line for line in params.get("files", "").split("\n") if line] or ["dist/*"]
    found: set[str] = set()
    for pattern in patterns[:FILES_MAX]:
        for path in glob.glob(os.path.join(folder, pattern))[:FILES_MAX]:
            base = os.path.basename(path)
            if base.endswith((".whl", ".tar.gz", ".zip")) and _is_of(base, params["name"], params["version"]):
                found.add(base)
    return found


# --- HTTP -----------------------------------------------------------------------------------------------------------


def facts_put(params: Params, environment: Environment, deadline: Deadline) -> dict[str, object]:
    """The content to put, and the present content."""
    recorded: dict[str, object] = {"sha256": _wanted(params)}
    try:
        recorded["before"] = _state(params, environment, deadline)
    except Unreachable:
        recorded["before"] = None
    return recorded


def look_put(
    params: Params, recorded: Mapping[str, object], environment: Environment, deadline: Deadline
) -> Finding:
    """Happened if the URL has the content to put, DidNotHappen if it has the content from before."""
    now = _state(params, environment, deadline)
    before = recorded.get("before")
    moved = bool(params.get("moved")) and bool(params.get("file"))
    wanted = _wanted(params) if moved else str(recorded.get("sha256") or "") or params.get("sha256", "")
    if moved and before is not None and now == before:
        return DidNotHappen("the URL holds what it held before")
    if wanted and now == wanted:
        return Happened({"sha256": wanted})
    if before is not None and now == before:
        return DidNotHappen("the URL holds what it held before")
    return CannotTell("the URL holds something else")


def facts_delete(params: Params, environment: Environment, deadline: Deadline) -> dict[str, object]:
    return {"before": _state(params, environment, deadline)}


def look_delete(
    params: Params, recorded: Mapping[str, object], environment: Environment, deadline: Deadline
) -> Finding:
    """Happened if something was there and is gone."""
    now, before = _state(params, environment, deadline), recorded.get("before")
    if now == "absent":
        return Happened() if before not in (None, "absent") else CannotTell("nothing was seen there before")
    return (
        DidNotHappen("it is still there")
        if before is not None and before == now
        else CannotTell("it is there")
    )


def _state(params: Params, environment: Environment, deadline: Deadline) -> str:
    """The digest of what the URL holds, or `absent`. Raises Unreachable for any other answer."""
    reply = _get(params["url"], environment, deadline, "*/*")
    if reply.status in (404, 410):
        return "absent"
    if reply.status != 200:
        raise Unreachable(f"the URL answers with status {reply.status}")
    return hashlib.sha256(reply.body).hexdigest()


def _wanted(params: Params) -> str:
    if not params.get("file"):
        return params.get("sha256", "")
    try:
        if not os.path.isfile(params["file"]) or os.path.getsize(params["file"]) > FILE_MAX:
            return ""
        with open(params["file"], "rb") as file:
            content = file.read(FILE_MAX)
    except (OSError, ValueError):
        return ""
    if params.get("strip"):
        content = content.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")
    return hashlib.sha256(content).hexdigest()
