"""Reads branch and remotes from a repository's own files, without running git.
The ref format `reftable` is not followed: the answer is then "unknown". Of an include with a condition only aliases count.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

FILE_MAX = 1 << 20
PARENTS_MAX = 64
SYMBOLIC_MAX = 5
INCLUDES_MAX = 10  # as deep as git follows them
GIVEN_MAX = 16  # of GIT_CONFIG_COUNT

Key = tuple[str, str, str]  # section, its name, key
Config = dict[Key, str]
Entries = list[tuple[Key, str]]  # in the order in which git reads them

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SECTION = re.compile(r"\[([A-Za-z0-9.-]+)(?:\s+\"((?:[^\"\\]|\\.)*)\")?\]\s*(.*)")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository's folders, branch (empty when detached or unknown) and configuration."""

    top: str  # the folder that relative paths of remotes start from
    folder: str  # of this worktree
    common: str  # shared by all worktrees
    branch: str
    config: Mapping[tuple[str, str, str], str]

    def addresses(self, remote: str) -> list[str]:
        """All that decides where a push to a remote goes: its addresses, and what is put in their place."""
        return sorted(
            f"{section} {name} {key} {value}"
            for (section, name, key), value in self.config.items()
            if section == "url" or (section == "remote" and name == remote and "url" in key)
        )

    def get(self, section: str, name: str, key: str) -> str:
        return self.config.get((section, name, key), "")

    @property
    def remotes(self) -> list[str]:
        """In the order of the configuration."""
        return list(dict.fromkeys(name for section, name, _ in self.config if section == "remote"))

    def url(self, remote: str, *, push: bool = False) -> str:
        return (self.get("remote", remote, "pushurl") if push else "") or self.get("remote", remote, "url")

    def has(self, ref: str) -> bool:
        """Whether there is such a ref."""
        if ".." in ref or ref.startswith("/"):
            return False
        if os.path.isfile(os.path.join(self.common, ref)):
            return True
        return f" {ref}\n" in self._packed()

    def commit(self, name: str) -> str:
        """The hash that a ref, a branch, a tag or `HEAD` names; empty if unknown."""
        if _SHA.fullmatch(name):
            return name
        for ref in (name, f"refs/{name}", f"refs/tags/{name}", f"refs/heads/{name}"):
            found = self._value(ref)
            for _ in range(SYMBOLIC_MAX):
                if found.startswith("ref: "):
                    found = self._value(found.removeprefix("ref: ").strip())
            if _SHA.fullmatch(found):
                return found
        return ""

    def _value(self, ref: str) -> str:
        """The written value of a ref: a hash, or `ref: ` and another one."""
        if ".." in ref or ref.startswith("/"):
            return ""
        folder = self.common if ref.startswith("refs/") else self.folder
        if loose := _read(os.path.join(folder, ref)).strip():
            return loose
        packed = re.search(rf"^([0-9a-f]+) {re.escape(ref)}$", self._packed(), re.MULTILINE)
        return packed[1] if packed else ""

    def _packed(self) -> str:
        return _read(os.path.join(self.common, "packed-refs"))


def find(cwd: str | None, environment: Mapping[str, str], git_dir: str = "") -> Repository | None:
    """The repository that git would find from this folder."""
    git_dir = git_dir or environment.get("GIT_DIR", "")
    if git_dir:
        folder = os.path.join(cwd or "", git_dir)
        return _open(os.path.dirname(folder), folder, environment) if os.path.isabs(folder) else None
    place = cwd or ""
    for _ in range(PARENTS_MAX):
        if not os.path.isabs(place):
            return None
        inner = os.path.join(place, ".git")
        if os.path.isdir(inner):
            return _open(place, inner, environment)
        if os.path.isfile(inner):
            pointed = _read(inner).removeprefix("gitdir:").strip()
            return _open(place, os.path.join(place, pointed), environment) if pointed else None
        if os.path.isfile(os.path.join(place, "HEAD")) and os.path.isdir(os.path.join(place, "objects")):
            return _open(place, place, environment)
        if place == os.path.dirname(place):
            return None
        place = os.path.dirname(place)
    return None


def _open(top: str, folder: str, environment: Mapping[str, str]) -> Repository | None:
    head = _read(os.path.join(folder, "HEAD")).strip()
    if not head:
        return None
    common = _read(os.path.join(folder, "commondir")).strip()
    common = os.path.normpath(os.path.join(folder, common)) if common else folder
    branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""
    entries = _user_entries(environment)
    for path in (os.path.join(common, "config"), os.path.join(folder, "config.worktree")):
        entries += _entries(path, environment.get("HOME", ""))
    config_here = _config([*entries, *_given_entries(environment)])
    return Repository(top, folder, common, "" if branch.startswith(".") else branch, config_here)


def of_the_user(environment: Mapping[str, str]) -> Config:
    """What git reads outside of any repository."""
    return _config(_user_entries(environment))


def from_environment(environment: Mapping[str, str]) -> Config:
    """What GIT_CONFIG_COUNT and GIT_CONFIG_PARAMETERS say, which goes before every file."""
    return _config(_given_entries(environment))


def config(path: str) -> Config:
    """What a file says, with the files that it includes."""
    return _config(_entries(path))


def _config(entries: Entries) -> Config:
    """Of a key that is given several times the last value, as git has it. A remote has all its addresses: `url`, `url 2`, …"""
    found = Config()
    given = Counter[Key]()
    for (section, name, key), value in entries:
        given[(section, name, key)] += 1
        number = given[(section, name, key)] if key in ("url", "pushurl") else 1
        found[(section, name, key if number == 1 else f"{key} {number}")] = value
    return found


def _user_entries(environment: Mapping[str, str]) -> Entries:
    home = environment.get("HOME", "")
    settings = environment.get("XDG_CONFIG_HOME") or (os.path.join(home, ".config") if home else "")
    files = [environment.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"]
    if given := environment.get("GIT_CONFIG_GLOBAL"):
        files.append(given)
    else:
        files += [os.path.join(settings, "git", "config")] if settings else []
        files += [os.path.join(home, ".gitconfig")] if home else []
    return [entry for path in files for entry in _entries(path, home)]


def _given_entries(environment: Mapping[str, str]) -> Entries:
    found: Entries = []
    count = environment.get("GIT_CONFIG_COUNT", "")
    for number in range(min(int(count), GIVEN_MAX) if re.fullmatch("[0-9]{1,4}", count) else 0):
        key = environment.get(f"GIT_CONFIG_KEY_{number}", "")
        found += _keyed(key, environment.get(f"GIT_CONFIG_VALUE_{number}", ""))
    for quoted in re.findall(
        r"'((?:[^']|'\\'')*)'(?!=)", environment.get("GIT_CONFIG_PARAMETERS", "").replace("'='", "=")
    ):
        key, _, value = quoted.partition("=")
        found += _keyed(key, value)
    return found


def _keyed(key: str, value: str) -> Entries:
    """`remote.origin.url` in its three parts."""
    section, _, rest = key.partition(".")
    name, _, last = rest.rpartition(".")
    return [((section.lower(), name, last.lower()), value)] if last else []


def _entries(path: str, home: str = "", depth: int = 0) -> Entries:
    """What a file says, in its order, with the files that it includes."""
    found: Entries = []
    section, name = "", ""
    for line in _read(path).replace("\\\n", "").splitlines():
        line = line.strip()
        if head := _SECTION.match(line):
            section, name = head[1].lower(), re.sub(r"\\(.)", r"\1", head[2] or "")
            line = head[3]
        if not line or line[0] in "#;":
            continue
        key, _, value = line.partition("=")
        key, value = key.strip().lower(), re.sub(r"\s+[#;].*", "", value).strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if section.startswith("include") and key == "path" and depth < INCLUDES_MAX:
            value = os.path.join(home, value[2:]) if value[:2] == "~/" else value
            more = _entries(os.path.join(os.path.dirname(path), value), home, depth + 1)
            found += more if section == "include" else [entry for entry in more if entry[0][0] == "alias"]
        found.append(((section, name, key), value))
    return found


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_MAX).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def without_credentials(url: str) -> str:
    """A URL that may be shown and stored."""
    try:
        parts = urlsplit(url)
        if "@" not in parts.netloc or "://" not in url:
            return url
        user, _, host = parts.netloc.rpartition("@")
        address = f"{user}@{host}" if parts.scheme == "ssh" and ":" not in user else host
        return urlunsplit((parts.scheme, address, parts.path, parts.query, parts.fragment))
    except ValueError:
        return re.sub(r"//[^/@]*@", "//", url)


_SCP_LIKE = re.compile(r"(?:[^@/:]+@)?([^/:]+):(?!/)(.+)")


def host_and_path(url: str) -> tuple[str, str]:
    """Where a remote lies: its host (with a port that is not the default) and path, without `.git`."""
    try:
        parts = urlsplit(url)
        if parts.scheme and parts.hostname:
            default = {"https": 443, "http": 80, "ssh": 22, "git": 9418}.get(parts.scheme)
            port = f":{parts.port}" if parts.port and parts.port != default and parts.scheme != "ssh" else ""
            return parts.hostname + port, parts.path.strip("/").removesuffix(".git")
    except ValueError:
        return "", ""
    if match := _SCP_LIKE.fullmatch(url):
        return match[1], match[2].strip("/").removesuffix(".git")
    return "", ""
