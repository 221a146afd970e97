"""Which hosts are this machine itself, and which host a word names. By their text alone: nothing is looked up.
`ipaddress` is slow to import, and every shim would.
"""

import _socket
import re
from collections.abc import Mapping
from urllib.parse import unquote

_NAMES = frozenset(["localhost", "ip6-localhost", "ip6-loopback"])
_V6 = re.compile(r"(?:0{0,4}:){2,7}0{0,3}[01]?")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,12}")


def is_loopback(host: str) -> bool:
    """`localhost` and names below it, 127.0.0.0/8, ::1, 0.0.0.0 and ::, as URLs and options write them."""
    plain = host.removesuffix(".").lower()
    if ":" in plain:
        plain = plain.removeprefix("[").removesuffix("]").partition("%")[0].removeprefix("::ffff:")
    if plain in _NAMES or re.fullmatch(r"[a-z0-9.-]+\.localhost", plain):
        return True
    return _V6.fullmatch(plain) is not None or _is_loopback_v4(plain)


def _is_loopback_v4(text: str) -> bool:
    address = _v4(text)
    return address is not None and (address == 0 or address >> 24 == 127)


def _v4(text: str) -> int | None:
    """As the C library reads numbers: `127.1` and `0x7f.1` are 127.0.0.1, `0127.0.0.1` is 87.0.0.1."""
    parts = text.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    try:
        numbers = [
            int(part, 16 if part[:2] in ("0x", "0X") else 8 if part[0] == "0" else 10) for part in parts
        ]
    except ValueError:  # an 8 or 9 in an octal number
        return None
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (4 - len(first)):
        return None
    return last + sum(number << 24 - 8 * place for place, number in enumerate(first))


def plain(host: str) -> str:
    """A host as it is written most often: `3221225986`, `192.0.514` and `::ffff:192.0.2.2` are `192.0.2.2`, `a.test.` is `a.test`."""
    name = unquote(host).lower().removeprefix("[").removesuffix("]")
    if ":" in name:
        address, percent, zone = name.partition("%")
        try:
            name = _socket.inet_ntop(_socket.AF_INET6, _socket.inet_pton(_socket.AF_INET6, address))
        except OSError:
            return name
        mapped = name.removeprefix("::ffff:")
        return mapped if "." in mapped and mapped != name else name + percent + zone
    name = name.removesuffix(".")
    number = _v4(name)
    return name if number is None else ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


_URL = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^/?#@\s\\]*@)?"
    r"(\[[0-9A-Fa-f:.%]+\]|[^/?#:@\s\\\[\]]+)"
    r"(?::(?:[0-9]*|\$\w+|\$\{\w+\}))?(?:[/?#].*)?",  # a port may be a variable of the shell
    re.DOTALL,
)
_PLACE = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^/:@\s]*@)?(\[[^\]]*\]|[^/:@\s\[\]]*)[:/].*", re.DOTALL
)


def of_url(url: str) -> str:
    """The host of a URL, with or without its scheme; empty where that is not plain."""
    found = _URL.fullmatch(url)
    return found[1] if found else ""


def of_place(word: str) -> str:
    """The host of a place as scp and rsync write it: `user@host:path`, `host::module`, `rsync://host/module`."""
    found = _PLACE.fullmatch(word)
    return found[1] if found else ""


def of_image(name: str) -> str:
    """The registry that stands in an image's name; empty where it has none, and the program knows which."""
    first, slash, _ = name.removeprefix("docker://").removeprefix("oci://").partition("/")
    return of_url(first) if slash and ("." in first or ":" in first or first == "localhost") else ""


PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
UNPROXIED = ("no_proxy", "NO_PROXY")


def direct(hosts: tuple[str, ...], environment: Mapping[str, str], unproxied: str = "") -> tuple[str, ...]:
    """These hosts, or () if a proxy variable applies: its loopback may be another machine's."""
    if not any(environment.get(name) for name in PROXIES):
        return hosts
    listed = ",".join([unproxied, *(environment.get(name, "") for name in UNPROXIED)])
    excepted = {part.strip().lstrip(".").strip("[]").lower() for part in listed.split(",")}
    is_direct = "*" in excepted or all(host.strip("[]").lower() in excepted for host in hosts)
    return hosts if is_direct else ()
