"""Addresses and files as settings and options name them: whether they can be what they are said to be. Pure."""

import re

from outlast.errors import UsageError

_URL = re.compile(r"https?://[^\s/@]+(/\S*)?")
_SITE = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?")


def url_or_file(text: str) -> None:
    """A URL, or a file that holds one. Raises UsageError."""
    if "://" not in text:
        whole_path(text)
    elif _URL.fullmatch(text) is None or not text.isascii():
        raise UsageError("it must be an http or https URL without a user", hint="like https://ntfy.sh/TOPIC")


def whole_path(text: str) -> None:
    """A path from the top or from home: nobody can tell beside which folder a relative one lies. Raises UsageError."""
    if text and (not text.startswith(("/", "~/")) or not text.isprintable()):
        raise UsageError("it must be a whole path", hint="like ~/.config/outlast/slack, a file of mode 600")


def site(text: str) -> None:
    """The address of a whole site, or nothing. Raises UsageError."""
    if text and _SITE.fullmatch(text) is None:
        raise UsageError("it must be the address of a site", hint="like https://runs.example.com")


def without_path(text: str) -> str:
    """A URL to be shown: of a webhook or a topic the path is a password. Anything else stays as it is."""
    scheme, mark, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}/…" if mark and (slash and path) else text
