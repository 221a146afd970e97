"""What a save leaves out of the repository, and why: secrets, big files, huge folders. Data, and functions on it.

Tracked and staged files are always saved. These rules apply to untracked ones only."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from outlast.settings import Settings, words

_SECRET_NAMES = re.compile(
    rb"""(?ix) (?: ^ | / ) (?:
        (?! [^/]* \b (?: example|sample|template|dist|defaults? ) (?: \.env )? $ ) [^/]* \.env (?: [.~_-] [^/]* )?
      | \.envrc
      | \.?(?: netrc | npmrc | pypirc | pgpass | git-credentials | htpasswd | dockercfg | terraformrc | vault-token )
      | id_ (?: rsa | dsa | ecdsa | ed25519 ) (?: [_-] [^/.]* )? (?: \.(?! (?:pub|py|go|rs|[cm]?[jt]sx?|md) $ ) [^/]* )?
      | \.ssh/ (?! known_hosts | authorized_keys | config $ ) [^/]+ (?<! \.pub )
      | [^/]* \. (?: pem | key | p12 | pfx | jks | keystore | kdbx | ppk | asc | gpg | ovpn )
      | credentials
      | (?: credentials | secrets? | service[-_]?account[^/]* | client_secret[^/]* | token s? ) \. (?: json | ya?ml | toml | ini | txt | xml | env )
      | (?: [^/]* [._-] )? kubeconfig (?: \.ya?ml )? | \.kube/config
      | \.docker/config\.json | \.config/gh/hosts\.yml | \.(?: codex | composer )/auth\.json
      | [^/]* \.tfvars | [^/]* \.tfstate (?: \.backup )?
    ) (?: ~ | \.bak | \.old | \.orig )? $"""
)
_GIT_SETTINGS = re.compile(
    rb"(?:^|/)(?:config(?:\.worktree)?|FETCH_HEAD)$|(?:^|/)(?:remotes|branches)/[^/]+$"
)
_GIT_CREDENTIALS = re.compile(rb"(?:^|/)(?:\.?git-credentials|credentials|[^/]*netrc)$")
_GIT_NAMES = re.compile(rb"(?:^|/)(?:refs|logs|objects)/")  # their names there are a branch or a hash
# Before the host of a URL: a password after the name, or a name that must be a token by its length or beginning.
_IN_URL = re.compile(
    rb"(?i)\b((?:https?|ftps?|socks\w*)://)(?:[^/\s@\"':]*:[^/\s@\"']+|[^/\s@\"':]{20,}|(?:gh[a-z]|glpat|github_pat)[_-][^/\s@\"':]+)@"
)
_IN_SETTING = re.compile(
    rb"""(?imx) ^ [ \t]* ( (?: \[ [^\]\n]* \] )? ) [ \t]*
    (?: (?: extraheader | (?:\w+[.-]?)? (?: pass(?:word|wd)? | token | secret ) ) [ \t]* = (?: [^\n]* \\\n )* [^\n]*
      | helper [ \t]* = [^\n]* password= (?: [^\n]* \\\n )* [^\n]* ) \n?"""
)


_APART_REASON = "secret{}, kept apart"
_ANY_FOLDERS = "**"


class Limits(msgspec.Struct, frozen=True):
    """How much untracked data goes into a save, and what is no secret although it looks like one."""

    file_bytes: int = 10 << 20
    folder_files: int = 20_000
    folder_bytes: int = 500 << 20
    digest_bytes: int = (
        64 << 20
    )  # read of files that are not saved, for their digests: nobody waits for gigabytes
    not_secret: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Settings) -> "Limits":
        """The limits that the settings give."""
        return cls(
            found["save_big_file_bytes"], found["save_folder_files"], found["save_folder_bytes"],
            not_secret=words(found["save_not_secret"]),
        )  # fmt: skip


def apart_reason(kind: str) -> str:
    """Why a secret is not in the repository. The kind is empty if its name gives it away."""
    return _APART_REASON.format(f": {kind}" if kind else "")


def apart_kind(why: str) -> str | None:
    """The kind from what `apart_reason` returned; None for another reason."""
    before, after = _APART_REASON.split("{}")
    is_one = why.startswith(before) and why.endswith(after)
    return why[len(before) : -len(after)].removeprefix(": ") if is_one else None


def is_named(path: bytes, pattern: str) -> bool:
    """Whether a pattern names a file, or a folder above it.

    As in .gitignore: a pattern without a slash is a name at any depth, another one is a path from the top; `*` stops at
    a slash, and `**` is any number of folders.
    """
    parts = [part for part in pattern.split("/") if part]
    if parts and "/" not in pattern.rstrip("/"):
        parts.insert(0, _ANY_FOLDERS)
    at = _with_none(parts, {0})
    for name in os.fsdecode(path).split("/"):
        at = _with_none(parts, {after for here in at for after in _after(parts, here, name)})
        if len(parts) in at:
            return bool(parts)
    return False


def _after(parts: Sequence[str], here: int, name: str) -> tuple[int, ...]:
    """Where in a pattern the next name of a path leads."""
    if here == len(parts):
        return ()
    if parts[here] == _ANY_FOLDERS:
        return (here,)
    return (here + 1,) if fnmatchcase(name, parts[here]) else ()


def _with_none(parts: Sequence[str], at: set[int]) -> set[int]:
    """These places in a pattern, and where no folder at all leads."""
    for here, part in enumerate(parts):
        if part == _ANY_FOLDERS and here in at:
            at.add(here + 1)
    return at


def is_secret_name(path: bytes) -> bool:
    """Whether an untracked file of this name is left out of the repository."""
    return _SECRET_NAMES.search(path) is not None


def may_hold_credentials(name: bytes) -> bool:
    """Whether a file of a git folder is one that people and programs write credentials into."""
    found = _GIT_SETTINGS.search(name) or _GIT_CREDENTIALS.search(name)
    return found is not None and _GIT_NAMES.search(name) is None


def without_credentials(name: bytes, data: bytes) -> bytes:
    """Such a file without its credentials: unchanged if it has none, empty if it holds nothing else."""
    if _GIT_CREDENTIALS.search(name):
        return b""
    return _IN_SETTING.sub(rb"\1", _IN_URL.sub(rb"\1", data))


def over_budget(sizes: Mapping[bytes, int], limits: Limits) -> dict[bytes, tuple[int, int]]:
    """Untracked folders with too many files or bytes: the deepest such folders, with their files and bytes.

    A folder that is still too big without those is one more, with the rest of its files.
    """
    found: dict[bytes, tuple[int, int]] = {}
    rest = dict(sizes)
    while more := _deepest(rest, limits):
        found |= more
        rest = {path: size for path, size in rest.items() if not more.keys() & set(_folders(path))}
    return found


def _deepest(sizes: Mapping[bytes, int], limits: Limits) -> dict[bytes, tuple[int, int]]:
    if len(sizes) <= limits.folder_files and sum(sizes.values()) <= limits.folder_bytes:
        return {}
    files, size = _sums(sizes)
    too_much = [
        folder
        for folder in files
        if files[folder] > limits.folder_files or size[folder] > limits.folder_bytes
    ]
    above = {parent for folder in too_much for parent in _folders(folder)}
    return {folder: (files[folder], size[folder]) for folder in too_much if folder not in above}


def room(sizes: Mapping[bytes, int], limits: Limits) -> tuple[int, int]:
    """How many files and bytes may be added anywhere before another folder can be over budget."""
    if len(sizes) <= limits.folder_files and sum(sizes.values()) <= limits.folder_bytes:
        return limits.folder_files - len(sizes), limits.folder_bytes - sum(sizes.values())
    files, size = _sums(sizes)
    within = [
        each for each in files if files[each] <= limits.folder_files and size[each] <= limits.folder_bytes
    ]
    most = max((files[each] for each in within), default=0)
    biggest = max((size[each] for each in within), default=0)
    return limits.folder_files - most, limits.folder_bytes - biggest


def _sums(sizes: Mapping[bytes, int]) -> tuple[Counter[bytes], Counter[bytes]]:
    files: Counter[bytes] = Counter()
    size: Counter[bytes] = Counter()
    for path, bytes_ in sizes.items():
        for folder in _folders(path):
            files[folder] += 1
            size[folder] += bytes_
    return files, size


def _folders(path: bytes) -> Sequence[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:end]) for end in range(1, len(parts))]
