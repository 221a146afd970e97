"""The words of wget: beginnings of options, clusters of letters, and what `-e` and a wgetrc say."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outlast.agents.outward.targets.body import Sent

WGETRC_MAX = 64 << 10

_SENDS = ("method", "post-data", "post-file", "body-data", "body-file")
_WHO = ("user", "password", "http-user", "http-password", "http-passwd", "referer", "user-agent")
_VALUES = frozenset(
    "accept accept-regex append-output backups base bind-address bind-dns-address body-data body-file ca-certificate "
    "ca-directory certificate certificate-type choose-config config connect-timeout crl-file cut-dirs default-page "
    "directory-prefix dns-servers dns-timeout domains dot-style egd-file encoding exclude-directories exclude-domains execute "
    "follow-tags ftp-password ftp-user header hsts-file http-passwd http-password http-user ignore-tags include-directories "
    "input-file input-metalink level limit-rate load-cookies local-encoding max-redirect metalink-index method output-document "
    "output-file password pinnedpubkey post-data post-file prefer-family preferred-location private-key private-key-type "
    "progress protocol-directories proxy-password proxy-user quota random-file read-timeout referer regex-type reject "
    "reject-regex rejected-log remote-encoding report-speed restrict-file-names save-cookies secure-protocol start-pos "
    "timeout tries user user-agent use-askpass wait waitretry warc-dedup warc-file warc-header warc-max-size warc-tempdir".split()
)
_NAMES = _VALUES | frozenset(
    "background cache ciphers clobber compression content-disposition continue convert-links cookies debug delete-after "
    "directories dont-remove-listing follow-ftp force-directories force-html glob help host-directories hsts "
    "html-extension http-keep-alive https-only if-modified-since ignore-case ignore-length inet4-only inet6-only iri "
    "keep-session-cookies metalink-over-http mirror netrc no no-verbose page-requisites parent passive-ftp proxy quiet "
    "recursive relative remove-listing retry-connrefused retry-on-host-error retry-on-http-error save-headers server-response "
    "show-progress span-hosts spider strict-comments timestamping trust-server-names unlink verbose version xattr".split()
)
_SHORT = {
    "e": "execute", "O": "output-document", "o": "output-file", "a": "append-output", "i": "input-file", "B": "base", "t": "tries",
    "T": "timeout", "w": "wait", "Q": "quota", "P": "directory-prefix", "U": "user-agent", "D": "domains", "A": "accept",
    "R": "reject", "I": "include-directories", "X": "exclude-directories", "l": "level", "n": "",
}  # fmt: skip


@dataclass(slots=True)
class WgetRequest(Sent):
    """What the words ask wget for."""

    method: str = ""
    unseen: bool = False  # a file of options, of which we do not know all


def request(words: Sequence[str], environment: Mapping[str, str]) -> WgetRequest:
    """What these words ask for, and the user's own file of options."""
    found = WgetRequest()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            found.urls += words[at:]
            break
        if word.startswith("--"):
            given, equals, value = word[2:].partition("=")
            name = _whole(given)
        elif word.startswith("-") and len(word) > 1:
            letter = next((place for place, letter in enumerate(word) if place and letter in _SHORT), 0)
            name, value = _SHORT.get(word[letter], "") if letter else "", word[letter + 1 :] if letter else ""
            equals = value
        else:
            found.urls.append(word)
            continue
        if name in _VALUES and not equals:
            value = words[at] if at < len(words) else ""
            at += 1
        _take(found, name, value)
    found.unseen = found.unseen or _sends_by_its_file(environment)
    return found


def _whole(given: str) -> str:
    """The option that a beginning stands for. Of several, one that sends: wget would refuse, or know it alone."""
    if given in _NAMES:
        return given
    longer = sorted(name for name in _NAMES if name.startswith(given))
    sending = [name for name in longer if name in _SENDS]
    return (sending or longer or [given])[0]


def _take(found: WgetRequest, name: str, value: str) -> None:
    if name == "method":
        found.method = value
    elif name in _SENDS:
        found.data.append(("data-raw" if name.endswith("-data") else name, value))
    elif name == "header":
        found.headers.append(value)
    elif name == "load-cookies":
        found.asides.append(value)
    elif name in _WHO:
        found.aside.append(f"{name} {value}")
    elif name == "config":
        found.unseen = True
    elif name == "execute":
        command, _, argument = value.partition("=")
        _take_command(found, command, argument.strip())


def _take_command(found: WgetRequest, command: str, argument: str) -> None:
    """A line of a wgetrc: letters, `_` and `-` count as nothing in its name."""
    plain = re.sub(r"[\s_-]", "", command).lower()
    options = (*_SENDS, "header", "load-cookies", *_WHO)
    name = next((each for each in options if each.replace("-", "") == plain), "")
    if name:
        _take(found, name, argument)


def _sends_by_its_file(environment: Mapping[str, str]) -> bool:
    path = environment.get("WGETRC") or (f"{environment['HOME']}/.wgetrc" if environment.get("HOME") else "")
    try:
        with open(os.path.expanduser(path), errors="replace") as file:
            lines = file.read(WGETRC_MAX).splitlines()
    except (OSError, ValueError):
        return False
    from_file = WgetRequest()
    for line in lines:
        command, _, argument = line.partition("=")
        _take_command(from_file, command, argument.strip())
    return bool(from_file.method or from_file.data)
