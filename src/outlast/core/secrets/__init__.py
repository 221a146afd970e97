"""Finds what looks like a secret in a text, by rules that are data, and masks it. Pure.

The rules know shapes, not meanings: a password that stands alone looks like any other word."""

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import msgspec

from outlast import decoders
from outlast.core.command_words import passwords
from outlast.core.secrets.formats import FORMATS, SERVICES

MARK = "[masked:{}]"


class Rule(msgspec.Struct, frozen=True):
    """A shape. Masks what the group `secret` matches, or everything.

    A match contains one of the `hints`, in any case. Most texts contain none, and looking for them costs almost nothing.
    Each pattern is linear in the text: a literal beginning, then runs that are bounded or have nothing after them.
    """

    name: str
    pattern: str
    hints: tuple[str, ...]


_WORD_BEFORE = r"(?<![A-Za-z0-9_])"
_UNMASKED = r"(?!\[masked:)"
RULES = (
    Rule(
        "private key",
        r"-----? ?BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)? ?-----?(?s:.*?)"
        r"(?:-----? ?END[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)? ?-----?|\Z)",  # a truncated key is as secret
        ("private key",),
    ),
    Rule(
        "private key",  # PuTTY's
        r"PuTTY-User-Key-File-[0-9]:(?s:.*?)(?:Private-MAC: [0-9a-f]{1,128}|\Z)",
        ("putty-user-key-file",),
    ),
    Rule(
        "authorization",
        rf"(?i:{_WORD_BEFORE}authorization\"?\s{{0,8}}[:=]\s{{0,8}}\"?(?:bearer|basic|token)\s{{1,8}})"
        rf"(?P<secret>{_UNMASKED}[^\s\"',;]{{6,}})",
        ("authorization",),
    ),
    Rule(
        "bearer token",
        rf"(?i:{_WORD_BEFORE}bearer\s{{1,8}})(?=[A-Za-z._~+/-]{{0,64}}[0-9])"
        r"(?P<secret>[A-Za-z0-9._~+/-]{16,}=*)",
        ("bearer",),
    ),
    Rule(
        "password in a URL",
        rf"://[^\s/:@\"']{{0,128}}:(?P<secret>{_UNMASKED}[^\s/@\"']{{1,256}})(?=@)",
        ("://",),
    ),
    Rule(
        "secret in a URL",
        r"(?i:[?&;](?:password|passwd|pwd|secret|client_secret|token|access_token|refresh_token|auth_token|api_?key)=)"
        rf"(?P<secret>{_UNMASKED}[^&;#\s\"']+)",
        ("password=", "passwd=", "pwd=", "secret=", "token=", "api_key=", "apikey="),
    ),
    Rule(
        "password of a command",
        rf"{_WORD_BEFORE}(?:curl|wget|https?|xhs?|httpie|jf|jfrog|lftp|ldapsearch|influx|smbclient)\s[^\n]{{0,160}}?(?<=\s)"
        rf"(?:-u|--user|-a|--auth|-U)[= ]\s{{0,4}}[\"']?[^\s:\"']{{1,64}}:(?P<secret>{_UNMASKED}[^\s\"']{{3,256}})",
        ("curl", "wget", "http", "xh", "jf", "lftp", "ldapsearch", "influx", "smbclient"),
    ),
    Rule(
        "cookie",
        rf"(?i:{_WORD_BEFORE}(?:set-)?cookie:\s{{0,8}})(?P<secret>{_UNMASKED}[^\s=;,\"']{{1,128}}=[^\n\"']{{3,8192}})",
        ("cookie:",),
    ),
    Rule(
        "secret of a form",  # at the beginning of a body; further on it is as in a URL
        r"\A(?i:(?:password|passwd|pwd|secret|client_secret|token|access_token|refresh_token|auth_token|api_?key)=)"
        rf"(?P<secret>{_UNMASKED}[^&;#\s\"'$<{{/.~][^&;#\s\"'$<{{]{{3,1024}})(?=&|\Z)",
        ("password=", "passwd=", "pwd=", "secret=", "token=", "api_key=", "apikey="),
    ),
    Rule(
        "secret of an option",
        rf"(?<!\S)--(?:[a-z]{{1,16}}-){{0,3}}(?:password|passwd|passphrase|token|secret|api-?key|oauth2-bearer)"
        rf"(?:=|[ \t]{{1,4}}(?=[\"']|[^\s\"'-]{{0,63}}[0-9!@#%^*+?]))"
        rf"(?:\"(?P<secret>{_UNMASKED}(?!\$)[^\"\n]{{1,1024}})\"|'(?P<single>{_UNMASKED}[^'\n]{{1,1024}})'"
        rf"|(?P<plain>{_UNMASKED}[^\s\"'$<>{{}}()|;&`-][^\s\"'<>|;&`]{{3,1024}}))",
        ("password", "passwd", "passphrase", "token", "secret", "api-key", "apikey", "oauth2-bearer"),
    ),
    Rule(
        "password in a configuration",  # NuGet's
        rf"(?i:<add\s{{1,8}}key=\"(?:cleartext)?password\"\s{{1,8}}value=\")(?P<secret>{_UNMASKED}[^\"\n]{{1,256}})",
        ("<add",),
    ),
    Rule(
        "Freemius key",
        r"secret_key[\"']\s{0,8}=>\s{0,8}[\"'](?P<secret>sk_[^\s\"']{20,64})",
        ("secret_key",),
    ),
    Rule(
        "Kubernetes secret",
        r"kind:(?<![A-Za-z]kind:)[ \t]{0,8}[\"']?Secret\b(?s:.{0,400}?)\n(?:stringD|d)ata:[ \t]{0,8}\n"
        rf"(?P<secret>(?:[ \t]{{1,16}}{_UNMASKED}[^\n]{{1,65536}}(?:\n|\Z))++)",
        ("secret",),
    ),
    Rule(
        "Kubernetes secret",  # as kubectl prints it, in the order of the alphabet
        rf"\n(?:stringD|d)ata:[ \t]{{0,8}}\n(?P<secret>(?:[ \t]{{1,16}}{_UNMASKED}[^\n]{{1,65536}}\n)++)"
        r"(?=kind:[ \t]{0,8}[\"']?Secret\b)",
        ("secret",),
    ),
)
_VARIABLE = (
    rf"{_WORD_BEFORE}(?!(?:PUBLIC|PRIMARY|FOREIGN|SORT|PARTITION|CACHE|MAX|NEXT_PUBLIC|NUM|MIN)_)"
    r"(?:[A-Z][A-Z0-9_]{0,60}_(?:SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|PWD|PASS)|PASSWORD|PASSWD|PGPASSWORD|SSHPASS|REDISCLI_AUTH)"
)
_VARIABLE_HINTS = ("secret=", "token=", "password=", "passwd=", "passphrase=", "_pwd=", "pass=", "_auth=")
NAMED_RULES = (
    Rule(
        "Sidekiq secret",
        r"CONTRIBSYS__COM[\"']?\s{0,3}[=:]\s{0,3}[\"']?(?P<secret>[0-9a-f]{8}:[0-9a-f]{8})",
        ("contribsys",),
    ),
    Rule(
        "password",
        rf"(?i:(?:password|passwd|passphrase|pwd)[\"']?\s{{0,3}}(?:=>|:=|=|:)\s{{0,3}})"
        rf"(?P<quote>[\"'])(?P<secret>{_UNMASKED}[^\s\"'$<>{{}}]{{6,128}})(?P=quote)",
        ("passw", "passphrase", "pwd"),
    ),
    Rule(
        "password",
        rf"(?:PASSWORD|PASSWD|PASSPHRASE)=(?P<secret>{_UNMASKED}[^\s\"'$<>{{}}(]{{6,128}})",
        ("passw", "passphrase"),
    ),
    Rule(
        "secret of a variable",  # in quotes, perhaps with blanks
        rf"{_VARIABLE}=(?:\"(?P<secret>{_UNMASKED}(?!\$)[^\"\n]{{1,1024}})\"|'(?P<single>{_UNMASKED}[^'\n]{{1,1024}})')",
        _VARIABLE_HINTS,
    ),
    Rule(
        "secret of a variable",  # however short
        rf"{_VARIABLE}=(?P<secret>{_UNMASKED}(?!(?i:true|false|yes|no|on|off|none|null|nil|[01])(?![^\s\"';|&)]))"
        r"[^\s\"'$<>{}()|;&`*]{1,512})",
        _VARIABLE_HINTS,
    ),
    Rule(
        "secret of a variable",
        rf"{_WORD_BEFORE}(?!(?:PUBLIC|PRIMARY|FOREIGN|SORT|PARTITION|CACHE|MAX|NEXT_PUBLIC)_)[A-Z][A-Z0-9_]{{0,60}}"
        rf"_(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD)=[\"']?(?P<secret>{_UNMASKED}[^\s\"'$<>{{}}()|;&`*]{{6,512}})",
        ("_key=", "_secret=", "_token=", "_password=", "_passwd="),
    ),
)
# A value with the name before it. Name and value together decide whether it is a secret.
_GIVEN = re.compile(r"(?:=>|:=|[=:])\s{0,3}[\"'`]?(?P<secret>[A-Za-z0-9_=+/.~-]{14,512}+)(?![A-Za-z0-9_(\[])")
_NAME_CHARS = 80
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}(?=[\"'`]?\]?\s{0,3}\Z)")
_OF_SERVICE = re.compile(rf"(?<![A-Za-z0-9])(?i:{'|'.join(SERVICES)})(?![a-z])")
_OF_SECRET = re.compile(
    r"(?i)(?:(?:api|access|account|auth|client|consumer|encryption|master|private|secret|service|shared|signing|app)"
    r"[_.-]?(?:key|token|secret|pass)|auth|token|secret|credentials?)\Z"
)
_PLAIN = re.compile(r"[A-Za-z0-9_=-]{14,80}")
# Where a token can be: every token has at least so many characters without a blank.
_LONG = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z0-9_][A-Za-z0-9_.~+/=%|:@-]{13,}")

# A string in JSON, and whether it is the name of a field.
_STRING = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?')
# A list of strings alone: it may be the words of a command.
_WORDS = re.compile(rb'\[\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"(?:\s*+,\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+")++\s*+\]')
Names = frozenset[str]
NONE: Names = frozenset()


@cache
def _compiled(rules: tuple[Rule, ...]) -> tuple[tuple[Rule, re.Pattern[str]], ...]:
    return tuple((rule, re.compile(rule.pattern)) for rule in rules)


class TokenKind(NamedTuple):
    """What a token is, and its literal beginning."""

    name: str
    start: str


@cache
def formats() -> tuple[re.Pattern[str], dict[str, TokenKind]]:
    """All formats as one pattern, by their first letters, and each format's kind by the empty group at its end.

    The group of a format, with an `s` before it, is the secret in a token that is not all secret.
    """
    named: dict[str, TokenKind] = {}
    branches: dict[str, list[str]] = {}
    for form in FORMATS:
        for start in form.starts or ("",):
            group = f"f{len(named)}"
            named[group] = TokenKind(form.name, start)
            rest = form.rest.replace("?P<secret>", f"?P<s{group}>")
            branches.setdefault(start[:1], []).append(f"{re.escape(start[1:])}{rest}(?P<{group}>)")
    by_letter = [f"{letter}(?:{'|'.join(some)})" for letter, some in branches.items()]
    return re.compile(f"{_WORD_BEFORE}(?:{'|'.join(by_letter)})"), named


def mask(text: str) -> tuple[str, Names]:
    """The text with every secret replaced by a mark that names its kind, and these kinds.

    Three groups of rules apply one after the other: by what surrounds a secret, by the format of the token itself
    (`secrets/formats`), and by the name before it.
    """
    found: set[str] = set()
    text = _of_commands(text, found)
    text = _by_rules(RULES, text, found)
    text = _LONG.sub(partial(_tokens, found), text)
    text = _GIVEN.sub(partial(_named, found), text)
    return _by_rules(NAMED_RULES, text, found), frozenset(found)


def mask_words(words: Sequence[str]) -> tuple[list[str], Names]:
    """Mask secrets in the words of one command, each by the words around it: an option's value has no name of its own."""
    found: set[str] = set()
    masked = [str(word) for word in words]
    for number, start, end in reversed(list(passwords.in_words(words))):
        masked[number] = masked[number][:start] + MARK.format(_OF_COMMAND) + masked[number][end:]
        found.add(_OF_COMMAND)
    for at, word in enumerate(masked):
        before = f"{words[0]} {words[at - 1]} " if at > 1 else ""
        text, names = mask(before + word)
        text, names = (text[len(before) :], names) if text.startswith(before) else mask(word)
        if text != word:
            masked[at] = text
            found |= names
    return masked, frozenset(found)


_OF_COMMAND = "password of a command"


def _of_commands(text: str, found: set[str]) -> str:
    """Mask what known programs are given as a password."""
    lower = text.lower()
    if ("-" not in text and "=" not in text) or not any(hint in lower for hint in passwords.HINTS):
        return text
    parts, at = [], 0
    for start, end in passwords.in_text(text):
        parts += [text[at:start], MARK.format(_OF_COMMAND)]
        at = end
        found.add(_OF_COMMAND)
    return "".join((*parts, text[at:])) if parts else text


def _by_rules(rules: tuple[Rule, ...], text: str, found: set[str]) -> str:
    lower = text.lower()
    for rule, pattern in _compiled(rules):
        if not any(hint in lower for hint in rule.hints):
            continue
        text, count = pattern.subn(partial(_marked, MARK.format(rule.name)), text)
        if count:
            found.add(rule.name)
    return text


def _tokens(found: set[str], match: re.Match[str]) -> str:
    """Replace the tokens in a long word."""
    pattern, named = formats()

    def marked(token: re.Match[str]) -> str:
        group = token.lastgroup
        assert group is not None, "each format has a group at its end"
        name = named[group].name
        found.add(name)
        secret = f"s{group}" if f"s{group}" in pattern.groupindex else 0
        start, end = token.start(secret) - token.start(), token.end(secret) - token.start()
        return token[0][:start] + MARK.format(name) + token[0][end:]

    return pattern.sub(marked, match[0])


def _named(found: set[str], match: re.Match[str]) -> str:
    """Mask a named value if the name says that it is a secret and the value looks random."""
    value = match["secret"]
    if not any(char.isdigit() for char in value) or not any(char.isalpha() for char in value):
        return match[0]
    name = _NAME.search(match.string, max(0, match.start() - _NAME_CHARS), match.start())
    if name is None:
        return match[0]
    if _OF_SERVICE.search(name[0]) and (_PLAIN.fullmatch(value) or 80 <= len(value) <= 90):
        kind = "key of a service"
    elif len(value) >= 16 and _OF_SECRET.search(name[0]):
        kind = "secret by its name"
    else:
        return match[0]
    found.add(kind)
    return match[0].removesuffix(value) + MARK.format(kind)


def _marked(mark: str, match: re.Match[str]) -> str:
    named = next(
        (name for name in ("secret", "single", "plain") if match.re.groupindex.get(name) and match[name]), 0
    )
    start, end = match.span(named)
    whole, at = match[0], match.start()
    return whole[: start - at] + mark + whole[end - at :]


def mask_json(data: bytes) -> tuple[bytes, Names]:
    """Mask secrets in the texts of a JSON document. Field names and everything else stay byte for byte."""
    found: set[str] = set()

    def masked(match: re.Match[bytes]) -> bytes:
        if match[2] is not None:
            return match[0]
        try:
            text, names = mask(decoders.decode(match[1], str))
        except msgspec.DecodeError:
            return halved(match)
        found.update(names)
        return msgspec.json.encode(text) if names else match[0]

    def halved(match: re.Match[bytes]) -> bytes:
        """Escape half a surrogate pair, as a truncated text of an agent may have."""
        import json

        try:
            text, names = mask(json.loads(match[1].decode("utf-8", "surrogateescape"), strict=False))
        except ValueError:
            return match[0]
        found.update(names)
        return json.dumps(text).encode() if names else match[0]

    def of_command(match: re.Match[bytes]) -> bytes:
        try:
            words = decoders.decode(match[0], list[str])
        except msgspec.DecodeError:
            return match[0]
        masked_words, names = mask_words(words) if passwords.is_command(words) else (words, NONE)
        found.update(names)
        return msgspec.json.encode(masked_words) if names else match[0]

    return _STRING.sub(masked, _WORDS.sub(of_command, data)), frozenset(found)
