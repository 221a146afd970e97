"""Which commands on a far machine only read: a closed list of programs, each with options that change nothing.
Whatever is not on it counts as outward, and so does every text whose words only the far shell could tell.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

COMMAND_MAX = 16 << 10

# With any words at all these only read.
_PLAIN = frozenset(
    "ls cat uptime uname whoami id df du free ps head tail grep egrep fgrep stat pwd which echo true test wc md5sum sha1sum "
    "sha256sum w who last nproc lscpu arch groups cd".split()
)
_NO_OUTPUT = re.compile(r"\d?>\s*/dev/null|\d>&\d")
_SEPARATORS = re.compile(r"[;&|\n]+")
_UNTOLD = (
    "`",
    "$(",
    "${",
    "<",
    ">",
    "(",
    ")",
    "{",
    "}",
)  # substitutions, redirections, functions: nothing is guessed of them


def only_read(command: str) -> bool:
    """Whether every command of a text is on the list. Quotes are not weighed: what they hide makes a text outward, never local."""
    text = _NO_OUTPUT.sub(" ", command).replace(r"\(", " ").replace(r"\)", " ")
    if len(command) > COMMAND_MAX or any(mark in text for mark in _UNTOLD):
        return False
    parts = [part for part in _SEPARATORS.split(text) if part.strip()]
    return bool(parts) and all(map(_reads, parts))


def _reads(part: str) -> bool:
    try:
        program, *words = shlex.split(part)
    except ValueError:
        return False
    program = program.rpartition("/")[2] if program.startswith(("/bin/", "/usr/bin/")) else program
    if program in _PLAIN:
        return True
    look = _WITH_OPTIONS.get(program)
    return look is not None and "$" not in part and "*" not in program and look(words)


def _options(
    short: str, long: str = "", values: str = "", *, words: bool = False
) -> Callable[[Sequence[str]], bool]:
    """A program that may have these options and no others: letters, whole names, and those of them that take a value."""
    names, taking = frozenset(long.split()), frozenset(values.split())

    def look(given: Sequence[str]) -> bool:
        at = 0
        while at < len(given):
            word = given[at]
            at += 1
            if word.startswith("--"):
                name, equals, _ = word[2:].partition("=")
                if name not in names and name not in taking:
                    return False
                at += 1 if name in taking and not equals else 0
            elif word.startswith("-") and len(word) > 1:
                for place, letter in enumerate(word[1:], start=2):
                    if letter in taking:
                        at += 1 if place == len(word) else 0
                        break
                    if letter not in short:
                        return False
            elif not words:
                return False
        return True

    return look


def _date(words: Sequence[str]) -> bool:
    """A format is a word with a plus; any other word sets the clock."""
    return _options("uR", "utc universal rfc-email debug", "d r I iso-8601 date reference rfc-3339")(
        [word for word in words if not word.startswith("+")]
    )


_FIND = frozenset(
    "-name -iname -path -ipath -wholename -regex -iregex -type -size -mtime -mmin -atime -amin -ctime -cmin -newer -maxdepth "
    "-mindepth -print -print0 -printf -ls -o -or -a -and -not -user -group -uid -gid -perm -empty -links -inum -readable "
    "-writable -executable -xdev -mount -prune -follow -depth -daystart -true -false -H -L -P".split()
)


def _find(words: Sequence[str]) -> bool:
    return all(word in _FIND or not word.startswith("-") or re.fullmatch(r"-\d+\w?", word) for word in words)


def _systemctl(words: Sequence[str]) -> bool:
    return words[:1] != [] and words[0] in ("status", "is-active", "is-enabled", "is-failed", "list-units")


_WITH_OPTIONS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "date": _date,
    "find": _find,
    "env": _options("0", "null"),
    "printenv": _options("0", "null", words=True),
    "hostname": _options("fsidIA", "fqdn long short ip-address all-ip-addresses all-fqdns domain"),
    "dmesg": _options(
        "THWwxkuLrthSP", "ctime human follow follow-new decode kernel userspace reltime notime nopager raw syslog color",
        "f l facility level time-format since until",
    ),
    "journalctl": _options(
        "fxerakqlmN", "no-pager no-full full all follow pager-end catalog quiet merge reverse utc no-hostname dmesg "
        "list-boots disk-usage verify system user header no-tail",
        "u n b p o t S U g unit lines boot priority output identifier since until grep case-sensitive output-fields",
        words=True,
    ),
    "file": _options("bikLhNprsz0", "brief mime mime-type mime-encoding dereference no-dereference", words=True),
    "top": _options("bHicS1", "", "n d p u o w"),
    "systemctl": _systemctl,
}  # fmt: skip
