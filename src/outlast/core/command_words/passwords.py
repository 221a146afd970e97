"""Finds passwords among the words of programs that are known to take them. Pure; linear in the text.

`secrets` masks what is found. What a program is asked in an option of another name is not known here."""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

WORDS_MAX = 256  # of one command
Span = tuple[int, int]


class _Options(NamedTuple):
    """Of one program: options whose value is a secret, and those with `user:secret`. Letters stand without a dash."""

    secret: str = ""
    pair: str = ""
    attached: str = ""  # only as in `-pSECRET`: with a blank behind it, it asks
    body: str = ""  # fields of a form
    cookie: str = ""
    values: str = ""  # other letters that take a value, so that what follows them is no option
    only_with: str = ""  # a word that has to be there
    split: str = ":"  # between user and secret


_DATABASE = _Options(attached="p", secret="password pass")
_LOGIN = _Options(secret="p password", only_with="login")
_HTTPIE = _Options(pair="a auth", secret="bearer", body="*")
_PROGRAMS: Mapping[str, _Options] = {
    "curl": _Options(
        "oauth2-bearer pass proxy-pass tlspassword proxy-tlspassword", "u user U proxy-user", "",
        "d data data-raw data-binary data-ascii data-urlencode F form form-string", "b cookie", "AbcCdDeEFHKmoPQrtTuUwxXyYz",
    ),
    "wget": _Options("password http-password http-passwd ftp-password proxy-password", "", "", "post-data body-data"),
    "http": _HTTPIE, "https": _HTTPIE, "xh": _HTTPIE, "xhs": _HTTPIE, "httpie": _HTTPIE,
    "gh": _Options(body="f raw-field F field"),
    "mysql": _DATABASE, "mariadb": _DATABASE, "mysqldump": _DATABASE, "mysqladmin": _DATABASE, "mysqlimport": _DATABASE,
    "mariadb-dump": _DATABASE, "mariadb-admin": _DATABASE,
    "redis-cli": _Options("a pass"), "valkey-cli": _Options("a pass"),
    "mongosh": _Options("p password"), "mongo": _Options("p password"), "mongodump": _Options("p password"),
    "mongorestore": _Options("p password"), "mongoimport": _Options("p password"), "mongoexport": _Options("p password"),
    "cqlsh": _Options("p password"), "sqlcmd": _Options("P"), "bcp": _Options("P"), "influx": _Options("password"),
    "clickhouse-client": _Options("password"), "ldapsearch": _Options("w"), "ldapmodify": _Options("w"), "ldapadd": _Options("w"),
    "sshpass": _Options("p"), "twine": _Options("p password"), "svn": _Options("password"),
    "docker": _LOGIN, "podman": _LOGIN, "nerdctl": _LOGIN, "helm": _LOGIN, "buildah": _LOGIN, "skopeo": _Options("", "creds src-creds dest-creds"),
    "crane": _LOGIN, "oras": _LOGIN, "az": _LOGIN, "oc": _LOGIN, "argocd": _Options("password", only_with="login"),
    "zip": _Options("P"), "unzip": _Options("P"), "7z": _Options(attached="p"), "gpg": _Options("passphrase"),
    "keytool": _Options("storepass keypass srcstorepass deststorepass"), "jarsigner": _Options("storepass keypass"),
    "openssl": _Options(pair="passin passout pass", secret="k"),
    "smbclient": _Options(pair="U user", split="%"), "lftp": _Options(pair="u user", split=","),
}  # fmt: skip
HINTS = tuple(sorted(_PROGRAMS))
_PROGRAM = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(sorted(map(re.escape, _PROGRAMS), key=len, reverse=True))})(?=[ \t])"
)
_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_WORD = re.compile(r"(?:[^\s\"';|&\\]|\\.|\"[^\"\n]*\"|'[^'\n]*'|&(?=[\w%-]{1,64}=))+")
_FIELD = re.compile(
    r"(?i:(?:\A|[&;?])(?:password|passwd|pwd|passphrase|secret|client_secret|token|access_token|refresh_token|auth_token|api_?key)=)"
    r"(?P<secret>[^&;#]+)"
)
# What stands for a secret and is none: a variable, a file, a mark of ours, a placeholder.
_STANDS_FOR_IT = re.compile(r"[$@<`]|\[masked:|\{\{|-?\Z|\*+\Z|env:|file:|stdin\Z")


def in_text(text: str) -> Iterator[Span]:
    """Where secrets stand among the words of known programs, in order."""
    at = 0
    while found := _PROGRAM.search(text, at):
        words: list[Span] = [found.span()]
        at = found.end()
        while len(words) < WORDS_MAX and (blanks := _BLANKS.match(text, at)):
            word = _WORD.match(text, blanks.end())
            if word is None:
                break
            words.append(word.span())
            at = word.end()
        for number, start, end in in_words([text[start:end] for start, end in words]):
            yield words[number][0] + start, words[number][0] + end


def is_command(words: Sequence[str]) -> bool:
    """Whether one of the words is a program that takes passwords."""
    return any(word.rpartition("/")[2] in _PROGRAMS for word in words[:WORDS_MAX])


def in_words(words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """The same for the words of a command: which word, and where in it."""
    program, options = "", _Options()
    at = 0
    while at < len(words):
        name = words[at].rpartition("/")[2]
        if name in _PROGRAMS:
            program, options = name, _PROGRAMS[name]
        elif program and (not options.only_with or options.only_with in words):
            at += yield from _of_word(words, at, options)
        at += 1


def _of_word(words: Sequence[str], at: int, options: _Options) -> Generator[tuple[int, int, int], None, int]:
    """The secrets of one word, or of the value behind it. Returns how many words behind it were its value."""
    word = words[at]
    if word.startswith("--") or (word.startswith("-") and _named(word[1:].partition("=")[0], options)):
        name, equals, _ = word.lstrip("-").partition("=")
        kind = _named(name, options) if len(name) > 1 or not word.startswith("--") else ""
        if kind and equals:
            yield from _spans(at, word, word.index("=") + 1, kind, options)
        elif kind and at + 1 < len(words):
            yield from _spans(at + 1, words[at + 1], 0, kind, options)
            return 1
    elif word.startswith("-") and len(word) > 1:
        for place, letter in enumerate(word[1:], start=1):
            kind = _named(letter, options) or ("secret" if letter in options.attached.split() else "")
            if kind and place + 1 < len(word):
                yield from _spans(at, word, place + 1, kind, options)
            elif kind and letter not in options.attached.split() and at + 1 < len(words):
                yield from _spans(at + 1, words[at + 1], 0, kind, options)
                return 1
            if kind or letter in options.values or not options.values:
                break
    elif options.body == "*":
        yield from _spans(at, word, 0, "body", options)
    return 0


def _named(name: str, options: _Options) -> str:
    """What the value of an option of this name is; empty where it is no secret."""
    for kind in ("secret", "pair", "body", "cookie"):
        if name in getattr(options, kind).split():
            return kind
    return ""


def _spans(at: int, word: str, start: int, kind: str, options: _Options) -> Iterator[tuple[int, int, int]]:
    """Where the secret stands in a value, without the quotes around it."""
    end = len(word)
    for quote in ('\\"', '"', "'"):
        if word.startswith(quote, start) and word.endswith(quote) and end - start >= 2 * len(quote):
            start, end = start + len(quote), end - len(quote)
            break
    if kind == "pair":
        split = word.find(options.split, start, end)
        start = split + 1 if split >= 0 else end
    if kind == "body":
        for field in _FIELD.finditer(word[start:end]):
            if not _STANDS_FOR_IT.match(field["secret"]):
                yield at, start + field.start("secret"), start + field.end("secret")
        return
    if kind == "cookie" and "=" not in word[start:end]:
        return  # the name of a file
    if start < end and not _STANDS_FOR_IT.match(word, start, end):
        yield at, start, end
