"""What a save notes of the user's repository besides objects: its settings, refs and ignore rules, so that it can come back.

Bounded, and without credentials; of what is noted, a repository that comes back gets only what runs no program."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.store.durable import read_plain
from outlast.workspace import rules
from outlast.workspace.git import command, refs
from outlast.workspace.repo import Repo

ENTRY = b"repository"
FILE_BYTES_MAX = 1 << 20
REFS_MAX = 1_000
WORKTREE_CONFIG = b"config.worktree"
MAIN_HEAD = b"main-head"  # HEAD of the repository itself, where a save is of one of its worktrees
CONFIGS = (b"config", WORKTREE_CONFIG)
_FILES = {b"config": "config", b"exclude": "info/exclude", b"sparse-checkout": "info/sparse-checkout"}
_REF = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) (refs/\S+)")

# Settings that neither run a program nor lead to another file; of the others a repository gets none back.
_HARMLESS = (
    r"user\.(name|email)", r"core\.(autocrlf|eol|safecrlf|ignorecase|filemode|symlinks|quotepath|logallrefupdates|sparsecheckout"
    r"|sparsecheckoutcone|precomposeunicode|abbrev|splitindex|untrackedcache|sharedrepository|checkstat|trustctime)",
    r"remote\..+\.(url|pushurl|fetch|push|tagopt|prune|mirror|promisor|partialclonefilter)",
    r"branch\..+\.(remote|merge|rebase|pushremote|description)", r"(push|pull|fetch|rebase|status|color|index|gc|tag|rerere|feature|advice)"
    r"\.[a-z.]+", r"merge\.(ff|conflictstyle|renames|log|stat)", r"submodule\..+\.(url|active|branch|ignore)",
    r"extensions\.partialclone", r"init\.defaultbranch",
)  # fmt: skip
_NAMES = re.compile("|".join(f"(?:{pattern})" for pattern in _HARMLESS))
_RUNS = re.compile(r"(?i)^\s*(?:ext::|!)|::")  # a remote helper, or a shell


def files_of(place: Repo, branch: str) -> dict[bytes, bytes]:
    """What is noted of a repository, by name."""
    found = {b"refs": _refs(place, branch)}
    files = {name: place.common_dir / path for name, path in _FILES.items()}
    if place.git_dir != place.common_dir:
        files[MAIN_HEAD] = place.common_dir / "HEAD"
    for name, path in (files | {WORKTREE_CONFIG: place.git_dir / "config.worktree"}).items():
        with contextlib.suppress(OSError):
            data = read_plain(path)
            if len(data) <= FILE_BYTES_MAX:
                found[name] = rules.without_credentials(b"config", data) if name in CONFIGS else data
    return {name: data for name, data in found.items() if data}


def _refs(place: Repo, branch: str) -> bytes:
    """HEAD's branch and the others, tags and remotes, as many as are noted."""
    listed = refs.list_refs(place.common_dir, "refs/")
    names = [name for name in listed if not name.startswith("refs/outlast/")]
    first = [branch] if branch in listed else []
    chosen = list(dict.fromkeys([*first, *names]))[:REFS_MAX]
    return os.fsencode("".join(f"{listed[name]} {name}\n" for name in sorted(chosen)))


def refs_in(data: bytes) -> dict[str, str]:
    """The refs that were noted. A save is not trusted: names that git would not take are left out."""
    found = {}
    for line in os.fsdecode(data).splitlines()[:REFS_MAX]:
        match = _REF.fullmatch(line)
        if match is not None and refs.is_head(match[1], match[2]):
            found[match[2]] = match[1]
    return found


def harmless_config(data: bytes, room: Path, vault: Path) -> tuple[bytes, list[str]]:
    """The noted settings that run nothing, as a file; and the names of the others. Git is asked in the vault."""
    file = room / "noted-config"
    file.write_bytes(data)
    try:
        listed = command.names(
            command.run(["config", "--file", str(file), "--no-includes", "--list", "-z"], git_dir=vault)
        )
    except SaveFailed:
        return b"", ["config"]
    finally:
        file.unlink()
    lines, left = [], list[str]()
    for name, value in _settings(listed):
        if _NAMES.fullmatch(name.lower()) and not _RUNS.search(value):
            lines.append(_line(name, value))
        elif not name.startswith(
            ("core.repositoryformatversion", "core.bare", "core.worktree", "extensions.")
        ):
            left.append(name)
    return os.fsencode("".join(lines)), list(dict.fromkeys(left))


def _settings(listed: list[bytes]) -> Iterator[tuple[str, str]]:
    for line in listed:
        name, _, value = os.fsdecode(line).partition("\n")
        yield name, value


def _line(name: str, value: str) -> str:
    section, _, rest = name.partition(".")
    subsection, _, key = rest.rpartition(".")
    head = f'[{section} "{_escaped(subsection)}"]' if subsection else f"[{section}]"
    return f"{head}\n\t{key} = {quoted(value)}\n"


def quoted(value: str) -> str:
    """A value as git's settings have it."""
    escaped = _escaped(value).replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
