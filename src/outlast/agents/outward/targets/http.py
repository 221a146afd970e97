"""Which HTTP calls change something, and what: curl, wget, httpie and its kin, `gh api`. Reading is not outward."""

import hashlib
import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import SplitResult, urlsplit

from outlast.agents.outward.targets import body as http_body, forge, hosts, wget
from outlast.agents.outward.targets.base import Matched, ReadBack, Target, is_known, joined
from outlast.agents.outward.targets.url_globs import globbed

SAFE = frozenset(["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "QUERY"])
URLS_MAX = 16


@dataclass(slots=True)
class _Request(http_body.Sent):
    """What a command line says of the call that it would make."""

    method: str = ""
    get: bool = False
    several: bool = False  # requests of their own, each with options or files of its own
    fails_early: bool = False  # at the first of several that failed
    globs: bool = True  # braces and brackets in a URL make several of it
    unseen: bool = False  # a file of options that we do not read
    elsewhere: bool = False  # an option may make it go elsewhere than its URLs say
    unproxied: str = ""  # hosts for which no proxy is used
    sends_email: bool = False
    sure: bool = False  # it ends with another exit code than 0 when the server does not accept


def resolve(matched: Matched) -> Target | None:
    """`METHOD host/path`, without query; an act on a forge by the forge's own signature."""
    program = matched.call.program
    if program == "gh":
        request = _gh_api(matched)
    elif program == "curl":
        request = _curl(matched.call.words[1:])
        if own := _curlrc(matched):
            request.asides.append(own)
            options = _options_in(own)
            request.elsewhere = request.elsewhere or options is None or bool(_ELSEWHERE_WORD.search(options))
            request.unseen = request.unseen or bool(_SENDING_WORD.search(options or ""))
    elif program == "wget":
        request = _wget(matched)
    else:
        request = _httpie(matched.call.words[1:], program, fed=matched.call.fed)
    target = _target(matched, request)
    if target is None or request.unseen or request.sends_email or request.elsewhere:
        return target
    named = tuple(map(hosts.of_url, request.urls))
    return replace(target, hosts=hosts.direct(named, matched.call.environment, request.unproxied))


def _target(matched: Matched, request: _Request) -> Target | None:
    method = request.method.upper()
    if request.get and not method:
        method = "GET"
    if not method:
        method = "POST" if request.data else "GET"
        method = "PUT" if request.data and all(name == "upload-file" for name, _ in request.data) else method
    if request.sends_email:
        return Target(
            joined("mail", *sorted(value for name, value in request.data if name == "mail-rcpt")), kind="mail"
        )
    if method in SAFE and not request.unseen:
        return None
    urls = request.urls or ["*"]
    if request.unseen:
        return Target(
            joined(method if method not in SAFE else "*", *(_shown(url) for url in urls[:URLS_MAX])),
            sure=False,
        )
    request.one_of_many = len(urls) > 1 and not (request.fails_early and request.sure)
    sure = request.sure and not request.one_of_many and not request.several
    content = "" if request.several else http_body.content(matched, request)
    if len(urls) == 1 and (target := _forge(matched, method, urls[0], request)) is not None:
        return replace(target, sure=sure, content=content) if target.signature else None
    probe = _probe(matched, method, urls[0], request) if len(urls) == 1 else None
    signature = joined(method, *sorted(_shown(url) for url in urls[:URLS_MAX]))
    return Target(signature, probe, sure=sure, content=content)


def split(url: str) -> SplitResult | None:
    """The parts of a URL as these programs read it: without a scheme it is http."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        _ = parts.port  # raises if it is no number
        return parts if parts.hostname else None
    except ValueError:
        return None


def _shown(url: str) -> str:
    parts = split(url)
    if parts is None:
        return re.sub(r"//[^/@\s]*@", "//", url.partition("?")[0])
    return _host(parts) + _path(parts.path)


_ENCODED = re.compile(r"%(2[dDeE]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE])")  # what needs no encoding


def _path(path: str) -> str:
    """The path as a server reads it: `//x`, `/./x` and `/%78` are `/x`."""
    path = _ENCODED.sub(lambda found: chr(int(found[1], 16)), path)
    plain = posixpath.normpath(f"/{path.lstrip('/')}")
    return plain + "/" if path.endswith(("/", "/.", "/..")) and plain != "/" else plain


def _host(parts: SplitResult) -> str:
    host = hosts.plain(parts.hostname or "")
    host = f"[{host}]" if ":" in host else host
    default = {"https": 443, "http": 80}.get(parts.scheme.lower())
    return host if parts.port in (None, default) else f"{host}:{parts.port}"


def _forge(matched: Matched, method: str, url: str, request: _Request) -> Target | None:
    """An act on a forge; one without a signature if it only reads (a GraphQL query); None if it is something else."""
    parts = split(url)
    if parts is None:
        return None
    body = "".join(value for _, value in request.data) if len(request.data) == 1 else ""
    known = is_known(matched.call, body)
    if matched.call.program == "gh":
        fields: dict[str, object] = dict(value.partition("=")[::2] for _, value in request.data)
        if query_text := _gh_query(matched, request):
            fields["query"] = query_text
    else:
        fields = forge.json_object(body)
    if (
        parts.path.rstrip("/").endswith("/graphql")
        and isinstance(query := fields.get("query"), str)
        and query
    ):
        if "mutation" not in query:
            return Target("") if known and "$(" not in query and query != _UNREAD else None
        names = re.findall(r"[{]\s*(\w+)\s*\(", query)
        return Target(joined(method, _shown(url), *names[:4]))
    target = forge.from_api(method, parts.scheme.lower(), _host(parts), _path(parts.path), fields, known)
    if target and target.probe and matched.call.program == "gh":
        host = "" if _host(parts) == "api.github.com" else _host(parts)
        params = {**target.probe.params, "api": "", "host": host}
        target = replace(target, probe=ReadBack(target.probe.name, params))
    return target and replace(target, another="held")


_UNREAD = "?"


def _gh_query(matched: Matched, request: _Request) -> str:
    """The texts of all its queries: `-F query=@FILE` names a file, and one that we cannot read may change anything."""
    found = list[str]()
    for option, field_ in request.data:
        name, _, value = field_.partition("=")
        if name == "query" and option == "field" and value.startswith("@"):
            content = http_body.file_content(matched, value[1:])
            value = content.decode("utf-8", "replace") if content is not None else _UNREAD
        if name == "query":
            found.append(value)
    return _UNREAD if _UNREAD in found else "\n".join(found)


def _probe(matched: Matched, method: str, url: str, request: _Request) -> ReadBack | None:
    """PUT and DELETE can be read back at the same URL; one with a query may carry a key, and is not kept."""
    parts = split(url)
    if parts is None or parts.query or "$" in url or not is_known(matched.call, url):
        return None
    clean = f"{parts.scheme.lower()}://{_host(parts)}{parts.path or '/'}"
    if method == "DELETE":
        return ReadBack("http-delete", {"url": clean})
    if method != "PUT" or len(request.data) != 1:
        return None
    name, value = request.data[0]
    params = {"url": clean, "moved": "yes" if matched.call.moved else ""}
    from_file = name in ("upload-file", "body-file", "post-file") or (
        value.startswith("@") and name != "data-raw"
    )
    if name in ("form", "form-string", "item", "data-urlencode") or not is_known(matched.call, value):
        return None
    if not from_file:
        return ReadBack(
            "http-put",
            params | {"sha256": hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()},
        )
    path = value.removeprefix("@") if name != "upload-file" else value
    if path in ("-", ".") or not matched.call.cwd:
        return None
    if name == "upload-file" and clean.endswith("/"):
        params["url"] = clean + os.path.basename(path)
    strip = "yes" if name in ("data", "data-ascii") else ""  # curl takes line ends out of these
    return ReadBack("http-put", params | {"file": os.path.join(matched.call.cwd, path), "strip": strip})


# --- curl -----------------------------------------------------------------------------------------------------------

_CURL_SHORT_VALUES = frozenset("AbcCdDeEFHKmoPQrtTuUwxXyYz")
_CURL_SHORT = {
    "A": "user-agent", "b": "cookie", "c": "cookie-jar", "C": "continue-at", "d": "data", "D": "dump-header", "e": "referer",
    "E": "cert", "F": "form", "H": "header", "K": "config", "m": "max-time", "o": "output", "P": "ftp-port",
    "Q": "quote", "r": "range", "t": "telnet-option", "T": "upload-file", "u": "user", "U": "proxy-user", "w": "write-out",
    "x": "proxy", "X": "request", "y": "speed-time", "Y": "speed-limit", "z": "time-cond",
}  # fmt: skip
_CURL_FLAGS = {
    "a": "append", "B": "use-ascii", "f": "fail", "G": "get", "I": "head", "L": "location", "n": "netrc", ":": "next", "g": "globoff",
}  # fmt: skip
_CURL_DATA = (
    "data",
    "data-ascii",
    "data-binary",
    "data-raw",
    "data-urlencode",
    "json",
    "form",
    "form-string",
    "upload-file",
)
_CURL_VALUES = frozenset(
    "request url config quote mail-from mail-rcpt mail-auth header user user-agent referer cookie cookie-jar output "
    "output-dir max-time connect-timeout retry retry-delay retry-max-time proxy proxy-user cacert capath cert cert-type "
    "key key-type pass interface resolve connect-to range limit-rate write-out dump-header form-escape url-query "
    "oauth2-bearer aws-sigv4 unix-socket abstract-unix-socket max-filesize max-redirs speed-limit speed-time "
    "time-cond trace trace-ascii stderr ciphers tls-max continue-at ftp-port ftp-method noproxy socks5 "
    "socks5-hostname socks4 socks4a proxy1.0 proto proto-default proto-redir dns-servers doh-url etag-save etag-compare create-file-mode "
    "expect100-timeout happy-eyeballs-timeout-ms keepalive-time local-port netrc-file parallel-max pinnedpubkey "
    "preproxy pubkey rate request-target sasl-authzid service-name tlsuser tlspassword variable hostpubmd5 "
    "hostpubsha256 curves crlfile alt-svc hsts engine login-options telnet-option tftp-blksize".split()
) | frozenset(_CURL_DATA)


_CURL_ELSEWHERE = frozenset(
    "proxy proxy1.0 preproxy socks4 socks4a socks5 socks5-hostname resolve connect-to request-target unix-socket "
    "abstract-unix-socket dns-servers doh-url alt-svc location location-trusted".split()
)


# Who asks, and by which way: others may be the same call, made once more.
_CURL_ASIDE = _CURL_ELSEWHERE - {"request-target", "location", "location-trusted"} | frozenset(
    "user proxy-user oauth2-bearer aws-sigv4 cert cert-type key key-type pass login-options mail-auth netrc-file "
    "tlsuser tlspassword netrc netrc-optional interface sasl-authzid service-name".split()
)
# What only changes how curl works or tells of it.
_CURL_NEUTRAL = frozenset(
    "output output-dir max-time connect-timeout retry retry-delay retry-max-time cookie-jar cacert capath crlfile limit-rate "
    "write-out dump-header max-filesize max-redirs speed-limit speed-time trace trace-ascii stderr ciphers curves tls-max "
    "ftp-port ftp-method noproxy proto proto-default proto-redir etag-save create-file-mode expect100-timeout "
    "happy-eyeballs-timeout-ms keepalive-time local-port parallel-max pinnedpubkey pubkey rate hostpubmd5 hostpubsha256 hsts "
    "engine tftp-blksize".split()
)
_CURL_ASKS = frozenset(
    "append use-ascii crlf path-as-is form-escape request-target".split()
)  # of those without a value


_ELSEWHERE_WORD = re.compile(rf"(?m)^\s*-*(?:{'|'.join(map(re.escape, sorted(_CURL_ELSEWHERE)))}|x)\b")
_SENDING_WORD = re.compile(
    r"(?m)^\s*-*(?:data|json|form|upload-file|request|config|quote|mail-rcpt)|^\s*-[dFTXKQ]"
)
CURLRC_MAX = 64 << 10


def _curl(words: Sequence[str]) -> _Request:
    request = _Request()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("--") and len(word) > 2:
            expanded = word.startswith("--expand-")
            name = _curl_long(word[2:].removeprefix("expand-"))
            value = ""
            if expanded and name in _CURL_VALUES:  # with variables of curl's own in it
                request.unseen = request.unseen or name in (*_CURL_DATA, "request", "config")
                request.elsewhere = True
            if name in _CURL_VALUES:
                value = words[at] if at < len(words) else ""
                at += 1
            _curl_take(request, name, value)
        elif word.startswith("-") and len(word) > 1:
            for place, letter in enumerate(word[1:], start=2):
                if letter not in _CURL_SHORT_VALUES:
                    _curl_take(request, _CURL_FLAGS.get(letter, ""), "")
                    continue
                value = word[place:]
                if not value:
                    value = words[at] if at < len(words) else ""
                    at += 1
                _curl_take(request, _CURL_SHORT.get(letter, ""), value)
                break
        else:
            request.urls.append(word)
    if request.globs:
        _open_globs(request)
    return request


def _open_globs(request: _Request) -> None:
    """What is known of the addresses: one that only the shell can make may stand for several."""
    opened = [globbed(url) if getattr(url, "known", True) else [url] for url in request.urls]
    files = [value for name, value in request.data if name == "upload-file"]
    unknown = [url for url in request.urls if not getattr(url, "known", True)]
    request.several = request.several or any(len(globbed(each)) > 1 for each in (*files, *unknown))
    request.urls = [url for urls in opened for url in urls]


def _curlrc(matched: Matched) -> str:
    """The user's own file of options that curl would read; `-q` as the first word keeps it from that."""
    if matched.call.words[1:2] in (("-q",), ("--disable",)):
        return ""
    given = matched.call.environment
    homes = [given.get(name, "") for name in ("CURL_HOME", "XDG_CONFIG_HOME", "HOME")]
    places = [f"{home}/{name}" for home in homes if home for name in (".curlrc", "curlrc")]
    if not given.get("XDG_CONFIG_HOME"):
        places += [f"{home}/.config/curlrc" for home in homes if home]
    return next((place for place in places if os.access(place, os.R_OK)), "")


def _options_in(path: str) -> str | None:
    """The text of a file of options; None if it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read(CURLRC_MAX)
    except OSError:
        return None


def _curl_long(given: str) -> str:
    """The option's whole name: older versions of curl take a beginning that only one option has."""
    known = {
        *_CURL_VALUES,
        *_CURL_ASKS,
        "get",
        "head",
        "globoff",
        "netrc",
        "netrc-optional",
        "next",
        "fail",
        "fail-with-body",
        "location",
        "location-trusted",
        "silent",
        "show-error",
        "compressed",
    }
    if given in known or len(given) < 3:
        return given
    longer = [name for name in known if name.startswith(given)]
    return longer[0] if len(longer) == 1 else given


def _curl_take(request: _Request, name: str, value: str) -> None:
    if name == "request":
        request.method = value
    elif name == "url":
        request.urls.append(value)
    elif name in ("get", "head"):
        request.get = True
    elif name in ("no-get", "no-head"):
        request.get = False
    elif name in ("fail", "fail-with-body"):
        request.sure = True
    elif name in ("no-fail", "no-fail-with-body"):
        request.sure = False
    elif name in _CURL_DATA:
        request.data.append((name, value))
    elif name == "config":
        request.unseen = True
    elif name == "fail-early":
        request.fails_early = True
    elif name == "globoff":
        request.globs = False
    elif name == "next":
        request.several = True
    elif name == "noproxy":
        request.unproxied += f",{value}"
    elif name in ("mail-from", "mail-rcpt"):
        request.sends_email = True
        request.data.append((name, value))
    elif name in ("header", "proxy-header"):
        request.elsewhere = request.elsewhere or _names_another(value)
        request.headers.append(value)
    elif name == "url-query":
        request.queries.append(
            ("data-raw", value[1:]) if value.startswith("+") else ("data-urlencode", value)
        )
    elif name == "cookie":
        (request.aside if "=" in value else request.asides).append(value)
    elif name in ("user-agent", "referer"):
        request.headers.append(f"{name}: {value}")
    else:
        _curl_take_option(request, name, value)


def _curl_take_option(request: _Request, name: str, value: str) -> None:
    """An option that is no part of the body: whether it says what is asked, or only by whom and how."""
    request.elsewhere = request.elsewhere or name in _CURL_ELSEWHERE
    if name == "quote":
        request.method = request.method or "QUOTE"
    if name in _CURL_ASIDE:
        request.aside.append(f"{name} {value}".rstrip())
    elif name in _CURL_ASKS or (name in _CURL_VALUES and name not in _CURL_NEUTRAL):
        request.options.append(f"{name} {value}".rstrip())


def _names_another(header: str) -> bool:
    """Whether a header, or a file of headers, may make a local server pass the call on."""
    name, _, value = header.partition(":")
    host = name.strip().lower() == "host" and not hosts.is_loopback(hosts.of_url(value.strip()))
    return host or header.startswith("@")


# --- the others -----------------------------------------------------------------------------------------------------


def _wget(matched: Matched) -> _Request:
    found = wget.request(matched.call.words[1:], matched.call.environment)
    # It follows redirects unasked, also with a body.
    return _Request(
        found.urls, found.data, headers=found.headers, aside=found.aside, asides=found.asides,
        method=found.method, unseen=found.unseen, elsewhere=True, sure=not found.unseen,
    )  # fmt: skip


_HTTPIE_VALUES = frozenset(
    "-a --auth -A --auth-type -o --output -p --print --session --session-read-only --timeout --proxy --verify --cert "
    "--cert-key --style -s --pretty --format-options --max-redirects --ssl --response-charset --boundary --bearer".split()
)
_HTTPIE_WHO = (
    "-a",
    "--auth",
    "-A",
    "--auth-type",
    "--bearer",
    "--session",
    "--session-read-only",
    "--cert",
    "--cert-key",
)
_HTTPIE_FOLLOWS = re.compile(r"--follow|-[A-Za-z]*F[A-Za-z]*")
_HTTPIE_ITEM = re.compile(r"[^=:@]*?(:=@|=@|:=|==|=|@|:)")


def _httpie(words: Sequence[str], program: str, *, fed: bool) -> _Request:
    checks = "--check-status" in words or program in ("xh", "xhs")  # which do so by themselves
    request = _Request(sure=checks and "--no-check-status" not in words)
    positionals: list[str] = []
    ignores_stdin = False
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, value = word.partition("=")
        if name == "--raw":
            request.data.append(("data-raw", value if equals else words[at] if at < len(words) else ""))
            at += 0 if equals else 1
        elif name in ("--proxy", "--resolve", "--unix-socket") or _HTTPIE_FOLLOWS.fullmatch(word):
            request.elsewhere = True
            at += 1 if name.startswith("--") and name != "--follow" and not equals else 0
        elif name in _HTTPIE_VALUES:
            if name in _HTTPIE_WHO:
                request.aside.append(f"{name} {value if equals else words[at] if at < len(words) else ''}")
            at += 0 if equals else 1
        elif word in ("--form", "-f", "--multipart"):
            request.options.append(word[:3])
        elif word in ("--ignore-stdin", "-I") or word == "--offline":
            ignores_stdin = True
        elif not word.startswith("-"):
            positionals.append(word)
    if program == "httpie" and positionals[:1] and positionals[0] in ("http", "https"):
        del positionals[0]
    if positionals and re.fullmatch(r"[A-Za-z]{3,10}", positionals[0]) and len(positionals) > 1:
        request.method = positionals.pop(0)
    if positionals:
        url = positionals.pop(0)
        scheme = "https://" if program in ("https", "xhs") else "http://"
        url = f"localhost{url}" if url.startswith(":") else url
        request.urls.append(url if "://" in url else scheme + url)
    for item in positionals:
        match = _HTTPIE_ITEM.match(item)
        request.elsewhere = request.elsewhere or _names_another(item)
        if match and match[1] == "==":
            request.queries.append(("data-raw", item.replace("==", "=", 1)))
        elif match and match[1] == ":":
            request.headers.append(item)
        elif match:
            request.data.append(("item", item))
    if fed and not ignores_stdin and not request.data:
        request.data.append(("item", "@-"))
    return request


def _gh_api(matched: Matched) -> _Request:
    parsed, environment = matched.parsed, matched.call.environment
    request = _Request(method=parsed.option("method"), sure=True)
    for name in ("raw-field", "field", "input"):
        request.data += [(name, value) for value in parsed.options.get(name, ())]
    request.headers += parsed.options.get("header", ())
    request.options += [f"preview {value}" for value in parsed.options.get("preview", ())]
    host = parsed.option("hostname") or environment.get("GH_HOST", "")
    path = (matched.rest[0] if matched.rest else "?").lstrip("/")
    if "{owner}" in path or "{repo}" in path or ":owner" in path:
        place = forge.place_of(matched)
        path = path.replace("{owner}/{repo}", place.repo).replace(":owner/:repo", place.repo)
        host = host or ("" if place.host == "github.com" else place.host)
    if "://" in path:
        request.urls.append(path)
    else:
        request.urls.append(
            f"https://{host}/api/v3/{path}"
            if host not in ("", "github.com")
            else f"https://api.github.com/{path}"
        )
    return request
