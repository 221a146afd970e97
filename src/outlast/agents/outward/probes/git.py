"""Whether a push happened: compares the remote's refs now with those before and those that it should set.
`git ls-remote` runs outside the repository, so no configuration that an agent wrote there takes part. Never prompts.
"""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from outlast.agents.outward.probes.fetch import Deadline, Unreachable
from outlast.agents.outward.targets import git_config
from outlast.errors import DidNotHappen
from outlast.probes import CannotTell, Finding, Happened

OUTPUT_MAX = 8 << 20
REFS_MAX = 2000

_VARIABLES_PASSED_ON = (
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "GIT_SSL_NO_VERIFY",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
)
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class _Question:
    """About which call, with what, until when."""

    params: Mapping[str, str]
    environment: Mapping[str, str]
    deadline: Deadline


def facts(params: Mapping[str, str], environment: Mapping[str, str], deadline: Deadline) -> dict[str, object]:
    """The refs to push, and the remote's refs now. Empty parts: could not be read."""
    question = _Question(params, environment, deadline)
    local = _local(question)
    try:
        before: Mapping[str, str] | None = _remote(question)
    except Unreachable:
        before = None
    targets = {target for _, target in _pairs(params)} | set(local)
    known = None if before is None else {ref: sha for ref, sha in before.items() if _wanted(ref, targets)}
    return {"local": local, "before": known}


def look(
    params: Mapping[str, str],
    recorded: Mapping[str, object],
    environment: Mapping[str, str],
    deadline: Deadline,
) -> Finding:
    """Happened if every ref has its new value, DidNotHappen if every one has its old value."""
    question = _Question(params, environment, deadline)
    pairs = _pairs(params)
    if any("$" in target or target == "HEAD" or "\n" in target for _, target in pairs):
        return CannotTell("which ref was to be pushed is not known")
    before = _texts(recorded.get("before"))
    local = _texts(recorded.get("local")) or {}
    now = _remote(question)
    fresh = _local(question)
    moved = bool(params.get("moved"))
    refs: dict[str, str] = {}  # ref -> what was to be pushed, empty for a deletion
    for source, target in pairs:
        if "*" in target:
            known = {**local, **fresh} if moved else local
            refs |= {ref: sha for ref, sha in known.items() if _wanted(ref, {target})}
        else:
            refs[target] = "" if not source else local.get(target, "?")
    if not refs:
        return CannotTell("no ref to look for")
    answers = []
    for ref, wanted in refs.items():
        was = None if before is None else before.get(ref, "")
        latest = fresh.get(ref, "?") if wanted else ""
        if moved or wanted == "?":
            answers.append(_judge_moved(question, was, now.get(ref, ""), latest))
        else:
            answers.append(_judge(question, was, now.get(ref, ""), wanted))
    if all(answer == "yes" for answer in answers):
        return Happened({ref: now.get(ref, "") for ref in refs})
    if all(answer == "no" for answer in answers):
        return DidNotHappen(f"the remote is as it was: {', '.join(sorted(refs)[:4])}")
    return CannotTell(f"{answers.count('yes')} of {len(answers)} refs are as they were to become")


def _judge(
    question: _Question,
    was: str | None,
    now: str,
    wanted: str,
) -> str:
    if now == wanted:
        return "yes"
    if was is not None and now == was:
        return "no"
    # Somebody may have pushed on top of ours.
    ours_is_below = wanted and now and _is_ancestor(question, wanted, now)
    return "yes" if ours_is_below else "?"


def _judge_moved(
    question: _Question,
    was: str | None,
    now: str,
    latest: str,
) -> str:
    """The same command line may have made the commit first: then only what the branch is now can be compared."""
    if was is not None and now == was:
        return "no" if latest or was else "yes"
    if not latest:
        return "yes" if not now else "?"
    if now == latest:
        return "yes"
    ours = was is not None and now and _is_ancestor(question, now, latest)
    return "yes" if ours else "?"


def _pairs(params: Mapping[str, str]) -> list[tuple[str, str]]:
    pairs = []
    for line in params.get("refspecs", "").split("\n")[:REFS_MAX]:
        source, _, target = line.partition(":")
        if target:
            pairs.append((source, target))
    return pairs


def _wanted(ref: str, targets: set[str]) -> bool:
    return ref in targets or any(target.endswith("*") and ref.startswith(target[:-1]) for target in targets)


def _texts(value: object) -> dict[str, str] | None:
    if not isinstance(value, Mapping):
        return None
    return {str(key): str(item) for key, item in value.items()}


def _local(question: _Question) -> dict[str, str]:
    """Target ref -> what the local side has for it now."""
    found: dict[str, str] = {}
    for source, target in _pairs(question.params):
        if "*" in source:
            listed = _git(
                question,
                "for-each-ref",
                "--format=%(objectname) %(refname)",
                source[:-1],
            )
            for line in (listed or "").splitlines()[:REFS_MAX]:
                sha, _, ref = line.partition(" ")
                if not ref.startswith("refs/remotes/"):
                    found[ref] = sha
        elif source:
            answer = _git(question, "rev-parse", "--verify", "-q", "--end-of-options", source) or ""
            if _SHA.fullmatch(answer.strip()):
                found[target] = answer.strip()
    return found


def _is_ancestor(question: _Question, older: str, newer: str) -> bool:
    if not (_SHA.fullmatch(older) and _SHA.fullmatch(newer)):
        return False
    return _git(question, "merge-base", "--is-ancestor", older, newer) is not None


def _remote(question: _Question) -> dict[str, str]:
    """The remote's refs. Raises Unreachable."""
    params, given = question.params, question.params.get("remote", "")
    repository = git_config.find(
        params.get("folder") or None, question.environment, params.get("git_dir", "")
    )
    url = repository.url(given, push=True) if repository and given in repository.remotes else given
    if repository and (url.startswith(".") or os.path.isabs(url)):
        url = os.path.normpath(os.path.join(repository.top, url))
    if not url or (url == given and not re.search(r"[/:]", url)):
        raise Unreachable("the remote is not configured")
    listed = _run(["ls-remote", "--", url], "/", question)
    if listed is None:
        raise Unreachable("the remote does not answer")
    pairs = [line.split("\t", 1) for line in listed.splitlines()]
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2 and _SHA.fullmatch(pair[0])}


def _git(question: _Question, *words: str) -> str | None:
    folder, git_dir = question.params.get("folder") or "/", question.params.get("git_dir")
    if not os.path.isdir(folder):
        return None
    return _run([*(["--git-dir", git_dir] if git_dir else []), *words], folder, question)


def _run(words: list[str], folder: str, question: _Question) -> str | None:
    """Git's output, None if it fails. Killed with all it started at the deadline."""
    environment = question.environment
    git = shutil.which("git", path=environment.get("PATH") or os.defpath)
    if git is None:
        return None
    variables = {
        k: v for k, v in environment.items() if not k.startswith("GIT_") or k in _VARIABLES_PASSED_ON
    }
    variables |= {
        "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": "", "SSH_ASKPASS_REQUIRE": "never",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C",
    }  # fmt: skip
    variables.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes -oConnectTimeout=5")
    safe = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never"]
    left_s = question.deadline.left_s()
    with subprocess.Popen(
        [git, *safe, *words],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        timer = threading.Timer(left_s, _kill_group, [process.pid])
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout, "it was asked for"
            output = process.stdout.read(OUTPUT_MAX + 1)
            if len(output) > OUTPUT_MAX:
                _kill_group(process.pid)
            code = process.wait()
        finally:
            timer.cancel()
    return output.decode("utf-8", "replace") if code == 0 and len(output) <= OUTPUT_MAX else None


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it ended by itself
