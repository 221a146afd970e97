"""Passwords of stores that hosts share, as long as this process lives: in no file, process list or agent's environment.

Another process of outlast gets them through a pipe (`handed`)."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping

VARIABLE = "OUTLAST_CREDENTIALS_FD"
PASSWORD = "PGPASSWORD"
_STORE = "OUTLAST_STORE"
_URL = re.compile(r"(--store=)?(postgres(?:ql)?://.*)", re.DOTALL)
_SUSPECT = re.compile(r"//[^/]*:[^/]*@|password=")
_BYTES_MAX = 1 << 15  # fits into a pipe that nobody reads yet

_known: dict[str, dict[str, str]] = {}  # options of libpq, by the URL without them


def remember(url: str, options: Mapping[str, str]) -> None:
    """From now on, `of` has these options for a URL without them."""
    _known[url] = dict(options)


def of(url: str) -> dict[str, str]:
    """What to tell libpq besides a URL without passwords."""
    return dict(_known.get(url, {}))


def take_from_environment(url: str) -> None:
    """PGPASSWORD has opened this store: keep it, and remove it from our environment."""
    value = os.environ.pop(PASSWORD, "")
    if value:
        _known.setdefault(url, {})["password"] = value


def without(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables for a program that is not outlast: without the password of a store."""
    secrets = {options.get("password") for options in _known.values()}
    return {name: value for name, value in variables.items() if name != PASSWORD or value not in secrets}


@contextlib.contextmanager
def handed() -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """For one process of outlast that is started in this block: the variables and descriptors that give it the passwords."""
    if not _known:
        yield {}, ()
        return
    fd = _pipe(_known)
    try:
        yield {VARIABLE: str(fd)}, (fd,)
    finally:
        os.close(fd)


def _pipe(options: Mapping[str, Mapping[str, str]]) -> int:
    import json

    data = json.dumps(options).encode()
    assert len(data) <= _BYTES_MAX, "a process has few stores"
    ours, theirs = os.pipe()
    os.write(theirs, data)
    os.close(theirs)
    return ours


def begin() -> None:
    """At the start of a command: take what another process handed us, and move passwords out of sight.

    A password in our words or our environment can be seen by others as long as we live: so we begin again without it.
    """
    given = os.environ.pop(VARIABLE, "")
    if given.isdigit():
        _take_in(int(given))
    words = sys.orig_argv[1:]
    end = words.index("--") if "--" in words else len(words)
    store = os.environ.get(_STORE, "")
    if not any(_is_suspect(word) for word in (store, *words[:end])):
        return
    plain = [*map(_hidden, words[:end]), *words[end:]]
    if store:
        os.environ[_STORE] = _hidden(store)
    if plain == words and os.environ.get(_STORE, "") == store:
        return
    fd = _pipe(_known)
    os.set_inheritable(fd, True)
    os.execve(sys.executable, [sys.executable, *plain], {**os.environ, VARIABLE: str(fd)})


def hide_in_environment() -> None:
    """Take the password out of OUTLAST_STORE, for a program that uses outlast and starts others."""
    store = os.environ.get(_STORE, "")
    if store and _is_suspect(store):
        os.environ[_STORE] = _hidden(store)


def _take_in(fd: int) -> None:
    import json

    with contextlib.suppress(OSError, ValueError), open(fd, "rb") as file:
        _known.update(json.loads(file.read()))


def _is_suspect(word: str) -> bool:
    found = _URL.fullmatch(word)
    return found is not None and _SUSPECT.search(found[2]) is not None


def shown(text: str) -> str:
    """The name of a store without its password."""
    return _hidden(text)


def _hidden(word: str) -> str:
    """The word without its password, which is remembered. One that is no URL stays: it is refused in due course."""
    from outlast.errors import StoreRefused
    from outlast.store.postgres import address

    found = _URL.fullmatch(word)
    if found is None or not _is_suspect(word):
        return word
    try:
        return f"{found[1] or ''}{address.parse(found[2]).url}"
    except StoreRefused:
        return word
