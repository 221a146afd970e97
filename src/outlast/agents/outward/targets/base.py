"""The target of an outward call: its signature, and how to read it back. Here: the ways that need no knowledge."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outlast.agents.outward import content, rules
from outlast.agents.outward.rules import Another, Parsed, Rule
from outlast.agents.outward.shell.programs import Call
from outlast.agents.outward.targets import arguments, remote_words
from outlast.agents.outward.targets.hosts import of_place

TEXT_MAX = 400


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The name of a probe of the catalogue, and its parameters from the call."""

    name: str
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """A signature and a way to look. Without a signature the call was seen not to be outward.

    A signature is verb and target, whatever the flags, their order and the words of the body; another target is another
    signature. Where part of a target cannot be known it stays as it is written, so a verbatim repetition has the same one.
    `content`: what it brings there, part by part (`outward/content.py`): a body, the commits of a push. Empty where nothing of
    that is known before it runs. `another`: as in a rule, where the target itself says it and not the rule.
    `sure`: when its program ends with exit code 0 it happened. An HTTP client may well end so when the server refused.
    """

    signature: str
    probe: ReadBack | None = None
    kind: str = ""
    sure: bool = True
    content: str = ""
    another: Another | None = None
    hosts: tuple[str, ...] = ()  # all machines that it goes to; empty where its words do not say


@dataclass(frozen=True, slots=True)
class Matched:
    """A call that a rule speaks of."""

    call: Call
    rule: Rule
    parsed: Parsed
    command: tuple[str, ...]  # the words that the rule's command matched
    rest: tuple[str, ...]  # the words after it
    branch: str = ""  # a command before it in the same text went to this branch
    bumped: bool = False  # a command before it in the same text may have raised the version


def folder_of(matched: Matched, *options: str) -> str:
    """The call's folder, or the one that an option names; empty if unknown."""
    place = matched.call.cwd or ""
    for option in options:
        for value in matched.parsed.options.get(option, ()):
            place = os.path.normpath(os.path.join(place, value)) if place else ""
    return place


def words(matched: Matched) -> Target:
    """Program, command, the words that name the target, and the options that belong to it."""
    rule, parsed = matched.rule, matched.parsed
    parts = [matched.call.program, *matched.command, *matched.rest[: rule.words]]
    for name in sorted(rule.targets):
        parts += [f"{name}={value}" for value in sorted(parsed.options.get(name, ()))]
    if rule.folder and not any(parsed.options.get(name) for name in rule.targets):
        parts.append(matched.call.cwd or "?")
    return Target(joined(*parts), content=_words_of(matched))


def is_known(call: Call, text: str) -> bool:
    """Whether the text stands as it is written, without an expansion that only the shell could make."""
    return not any(not word.known and text in word for word in call.words)


def joined(*parts: str) -> str:
    """The parts on one line, bounded."""
    text = " ".join(re.sub(r"\s+", " ", part).strip() for part in parts if part)
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


# What git, rsync and scp ask of the far side: the call that started them is the one that counts.
_TRANSPORT = re.compile(
    r"'?(git-(upload|receive)-(pack|archive)|git[ -]lfs|rsync --server|scp -[a-z]*[tf]|sftp|internal-sftp)"
)
_MORE = re.compile(r"[;&|\n`<>(]|\$\(")  # a command after the transport's own


def ssh(matched: Matched) -> Target | None:
    """Host and remote programs. Programs that only read, transports, tunnels and connection tests are not outward."""
    given: list[str] = list(matched.call.words[1:])
    words = given
    if matched.call.program == "sshpass":
        words = words[words.index("ssh") + 1 :] if "ssh" in words else words
    own, rest = _until_word(matched.rule, words)
    after, rest = _until_word(matched.rule, rest[1:], host=rest[:1])  # options may follow the host
    parsed = rules.parse(matched.rule, [*own, *after])
    if not rest or parsed.flags & {"-V", "-Q", "-G", "-N", "-O", "-s"}:
        return None
    host, command = rest[0], " ".join(rest[1:])
    if (_TRANSPORT.match(command) and not _MORE.search(command)) or (not command and host.startswith("git@")):
        return None
    if remote_words.only_read(command) and all(word.known for word in matched.call.words):
        return None
    programs = [os.path.basename(part.split()[0]) for part in re.split(r"[;&|\n]+", command) if part.split()]
    programs = [program for program in programs if program != "cd"]
    user = parsed.option("l")
    host = f"{user}@{host}" if user and "@" not in host else host
    port = parsed.option("p")
    signature = joined(
        "ssh", host.removeprefix("ssh://") + (f":{port}" if port and port != "22" else ""), *programs
    )
    is_whole = not matched.call.fed and all(word.known for word in matched.call.words)
    return Target(
        signature, content=content.of(words=command.encode("utf-8", "surrogatepass")) if is_whole else ""
    )


def _until_word(rule: Rule, words: Sequence[str], host: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The options that these words begin with; and `host`, with the words from the first one on that is none."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 2 if words[at] in rule.values else 1
    return list(words[:at]), [*host, *words[at:]]


_REMOTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://\S+|[^/\s:][^/\s:]*::?\S*)")


def copy(matched: Matched) -> Target | None:
    """scp, rsync and their kind: outward when something is written on the far side."""
    rest = list(matched.parsed.positionals)
    if matched.call.program in ("sftp", "lftp"):
        return Target(joined(matched.call.program, rest[0]), content=_words_of(matched)) if rest else None
    if matched.call.program == "rclone":
        writes = rest[:1] and rest[0] in (
            "copy",
            "sync",
            "move",
            "delete",
            "purge",
            "copyto",
            "moveto",
            "rcat",
            "mkdir",
        )
        is_far = writes and _REMOTE.fullmatch(rest[-1])
        return Target(joined("rclone", rest[0], rest[-1]), content=_words_of(matched)) if is_far else None
    if len(rest) < 2 or not _REMOTE.fullmatch(rest[-1]):
        return None
    flags = matched.parsed.flags
    if (
        matched.call.program == "rsync"
        and any(map(_SHORT_N.fullmatch, flags))
        and not flags & {"--no-n", "--no-dry-run"}
    ):
        return None
    sent = _words_of(matched, whole=_sends_files(matched, rest[:-1]))
    return Target(joined(matched.call.program, rest[-1]), content=sent, hosts=_copied_between(matched))


def _sends_files(matched: Matched, sources: list[str] | tuple[str, ...]) -> bool:
    """Whether what is copied lies in plain files here, which its content takes in."""
    folder = matched.call.cwd
    return folder is not None and all(os.path.isfile(os.path.join(folder, source)) for source in sources)


def _words_of(matched: Matched, *, whole: bool = False) -> str:
    return arguments.words(matched.call, matched.rule, whole=whole)


_SHORT_N = re.compile(r"-[A-Za-z0-9]*n[A-Za-z0-9]*")  # of rsync: a dry run, also among other letters
COPY_ELSEWHERE = ("RSYNC_RSH", "RSYNC_PROXY", "RSYNC_CONNECT_PROG")
_LED_ELSEWHERE = {  # options of ssh, also among other letters
    "scp": re.compile(r"-[A-Za-z0-9]*[oFJSD].*"),
    "rsync": re.compile(r"-[A-Za-z0-9]*e.*|--rsh.*|--rsync-path.*"),
}


def _copied_between(matched: Matched) -> tuple[str, ...]:
    """The machines that scp or rsync copies between; none where an option or a variable may lead elsewhere."""
    leads = _LED_ELSEWHERE[matched.call.program]
    if any(matched.call.environment.get(name) for name in COPY_ELSEWHERE):
        return ()
    if any(leads.fullmatch(word) for word in matched.call.words[1:]):
        return ()
    return tuple(of_place(word) for word in matched.parsed.positionals if _REMOTE.fullmatch(word))


def bucket(matched: Matched) -> Target | None:
    """Outward when a bucket is written; a download is not."""
    rest, verb = matched.rest, matched.command[-1]
    if not rest or (verb in ("cp", "sync", "rsync", "put") and not rest[-1].startswith(_BUCKETS)):
        return None
    if verb == "mv" and not any(word.startswith(_BUCKETS) for word in rest):
        return None
    sent = _words_of(matched, whole=_sends_files(matched, rest[:-1]))
    return Target(joined(matched.call.program, *matched.command, rest[-1]), content=sent)


_BUCKETS = ("s3://", "gs://", "b2://")


def gradle(matched: Matched) -> Target | None:
    """The folder, if a task among the words publishes elsewhere than on this machine."""
    tasks = [word.rpartition(":")[2] for word in matched.parsed.positionals]
    elsewhere = [task for task in tasks if not task.endswith("ToMavenLocal")]
    return (
        words(matched) if any(task.startswith(("publish", "uploadArchives")) for task in elsewhere) else None
    )


_SELECT = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)
_CHANGES = re.compile(
    r"\b(?:insert|update|delete|merge|create|drop|alter|truncate|export|load|call|grant|revoke|execute|begin)\b",
    re.IGNORECASE,
)


def bq_query(matched: Matched) -> Target | None:
    """A query that only selects, and keeps its result nowhere, reads."""
    text = " ".join(matched.rest)
    stores = any(flag.startswith(("--destination", "--append", "--replace")) for flag in matched.parsed.flags)
    reads = _SELECT.match(text) and not _CHANGES.search(text) and is_known(matched.call, text)
    return None if reads and not stores else words(matched)


def recipients(matched: Matched) -> Target | None:
    """The recipients. Without any the program only reads mail."""
    to = [*matched.parsed.positionals, *matched.parsed.options.get("to", ())]
    if matched.call.program == "sendmail" and "-t" in matched.call.words:
        to.append("(headers)")
    return Target(joined("mail", *sorted(set(to))), content=_words_of(matched, whole=True)) if to else None
