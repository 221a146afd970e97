"""Where a `git push` would go: remote and refs, with git's defaults, from the repository's own files."""

import os
import re
from collections.abc import Mapping

from outlast.agents.outward import content
from outlast.agents.outward.targets import git_config
from outlast.agents.outward.targets.base import Matched, ReadBack, Target, folder_of, joined
from outlast.agents.outward.targets.git_config import Repository

REFSPECS_MAX = 64


def push(matched: Matched) -> Target | None:
    """`push REMOTE REF…`; deletions as `push-delete REMOTE REF…`."""
    parsed, call = matched.parsed, matched.call
    folder = folder_of(matched, "C")
    git_dir = parsed.option("git-dir") or call.environment.get("GIT_DIR", "")
    repository = git_config.find(folder or None, call.environment, git_dir)
    branch = matched.branch or (repository.branch if repository else "")
    given = list(matched.rest)
    remote = given.pop(0) if given else parsed.option("repo")
    remote = _remote_name(repository, branch, remote, folder)
    pairs = _pairs(given, parsed.flags, repository, branch, remote)
    if branch:  # where HEAD is by the time that somebody looks is another matter
        pairs = [(f"refs/heads/{branch}" if source == "HEAD" else source, target) for source, target in pairs]
    deletes = bool(pairs) and all(not source for source, _ in pairs)
    refs = sorted({target for _, target in pairs})
    params = {
        "remote": remote,
        "folder": folder,
        "git_dir": git_dir,
        "refspecs": "\n".join(f"{source}:{target}" for source, target in pairs[:REFSPECS_MAX]),
        "moved": "yes" if call.moved else "",
    }
    signature = joined("push-delete" if deletes else "push", remote, *refs)
    probe = ReadBack("git-push", params) if len(pairs) <= REFSPECS_MAX else None
    commits = None if call.moved else _commits(repository, pairs)
    place = None if call.moved else _leads_to(matched, repository, remote)
    return Target(signature, probe, content=content.of(commits=commits, remote=place))


_LEADING = re.compile(r"(?:remote|url)\..+|remote\.pushdefault", re.IGNORECASE)


def _leads_to(matched: Matched, repository: Repository | None, remote: str) -> bytes | None:
    """Where a remote lies, by all that is configured of it; None where that is not known."""
    if repository is None:
        return None
    given = [word for word in matched.parsed.options.get("c", ()) if _LEADING.match(word)]
    return content.packed([remote, *given, *repository.addresses(remote)])


def _commits(repository: Repository | None, pairs: list[tuple[str, str]]) -> bytes | None:
    """What is pushed where; None where a commit cannot be named before git runs."""
    if repository is None:
        return None
    parts = []
    for source, target in pairs[: REFSPECS_MAX + 1]:
        commit = repository.commit(source) if source else "deleted"
        if not commit or "*" in target:
            return None
        parts.append(f"{commit} {target}")
    return content.packed(sorted(parts)) if len(pairs) <= REFSPECS_MAX else None


def _remote_name(repository: Repository | None, branch: str, given: str, folder: str) -> str:
    if given:
        if repository and given not in repository.remotes:
            meant = {_place(given, folder), _place(given, repository.top)}
            for name in repository.remotes:
                urls = repository.url(name), repository.url(name, push=True)
                if meant & {_place(url, repository.top) for url in urls if url}:
                    return name
        return git_config.without_credentials(given)
    if repository is None:
        return "origin"
    chosen = (
        repository.get("branch", branch, "pushremote")
        or repository.get("remote", "", "pushdefault")
        or repository.get("branch", branch, "remote")
    )
    return chosen or (repository.remotes[0] if len(repository.remotes) == 1 else "origin")


def _place(url: str, folder: str) -> tuple[str, str]:
    """Where a URL or path leads, however it is written: host and path, or the path here."""
    host, path = git_config.host_and_path(url)
    if host:
        return host.lower(), path
    path = url.removeprefix("file://")
    return "", os.path.normpath(os.path.join(folder, path)).removesuffix(".git")


def _pairs(
    given: list[str], flags: frozenset[str], repository: Repository | None, branch: str, remote: str
) -> list[tuple[str, str]]:
    """(what is pushed, the ref that it is pushed to); nothing is pushed where a ref is deleted."""
    if flags & {"--mirror"}:
        return [("refs/*", "refs/*")]
    pairs: list[tuple[str, str]] = []
    if flags & {"--all", "--branches"}:
        pairs.append(("refs/heads/*", "refs/heads/*"))
    if flags & {"--tags"}:
        pairs.append(("refs/tags/*", "refs/tags/*"))
    tag = False
    for word in given:
        if word == "tag" and not tag:
            tag = True
            continue
        pairs.append(_pair(f"refs/tags/{word}" if tag else word, flags, repository, branch))
        tag = False
    return pairs or [_default(repository, branch, remote)]


def _pair(refspec: str, flags: frozenset[str], repository: Repository | None, branch: str) -> tuple[str, str]:
    source, colon, target = refspec.lstrip("+").partition(":")
    if refspec in (":", "+:"):
        return ("refs/heads/*", "refs/heads/*")
    if flags & {"--delete", "-d"}:
        return ("", _full(source, repository))
    if not colon:
        if source in ("HEAD", "@"):
            return ("HEAD", f"refs/heads/{branch}" if branch else "HEAD")
        return (source, _full(source, repository))
    target = target or source
    if target in ("HEAD", "@") and branch:
        target = f"refs/heads/{branch}"
    return (source, _full(target, repository))


def _full(ref: str, repository: Repository | None) -> str:
    """The ref by its full name. A name that is both or neither is a branch's, as almost always."""
    if ref.startswith("refs/") or ref == "HEAD":
        return ref
    ref = ref.removeprefix("heads/")
    if ref.startswith("tags/"):
        return f"refs/{ref}"
    if repository and not repository.has(f"refs/heads/{ref}") and repository.has(f"refs/tags/{ref}"):
        return f"refs/tags/{ref}"
    return f"refs/heads/{ref}"


def _default(repository: Repository | None, branch: str, remote: str) -> tuple[str, str]:
    """The source and the target ref that git pushes if none is named."""
    if repository is None:
        return ("HEAD", f"refs/heads/{branch}" if branch else "HEAD")
    if configured := repository.get("remote", remote, "push"):
        return _pair(configured, frozenset(), repository, branch)
    if repository.get("push", "", "default") == "matching":
        return ("refs/heads/*", "refs/heads/*")
    merge = repository.get("branch", branch, "merge")
    upstream = repository.get("push", "", "default") in ("upstream", "tracking")
    if upstream and merge and repository.get("branch", branch, "remote") == remote:
        return ("HEAD", merge)
    return ("HEAD", f"refs/heads/{branch}" if branch else "HEAD")


def branch_after(words: tuple[str, ...], folder: str | None, environment: Mapping[str, str]) -> str:
    """The branch that a `git checkout`, `switch`, `branch -m` or `init -b` goes to; empty if none, or unknown."""
    rest = [word for word in words[1:] if word not in ("-q", "--quiet", "-f", "--force", "--")]
    while rest[:1] == ["-C"]:
        folder = os.path.join(folder, rest[1]) if folder and len(rest) > 1 else None
        rest = rest[2:]
    match rest:
        case ["checkout", "-b" | "-B", name, *_] | ["switch", "-c" | "-C" | "--create", name, *_]:
            return name
        case ["branch", "-m" | "-M", name] | ["branch", "-m" | "-M", _, name] | ["init", "-b", name, *_]:
            return name
        case ["checkout" | "switch", name]:
            # The name may be a file's: only a branch that is there, or is to be made from a remote's, counts.
            repository = git_config.find(folder, environment)
            refs = [
                f"refs/heads/{name}",
                *(f"refs/remotes/{remote}/{name}" for remote in _remotes(repository)),
            ]
            return name if repository and any(repository.has(ref) for ref in refs) else ""
        case _:
            return ""


def _remotes(repository: Repository | None) -> list[str]:
    return repository.remotes[:REFSPECS_MAX] if repository else []
