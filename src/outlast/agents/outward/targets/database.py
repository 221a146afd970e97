"""Which database a migration or a client would act on, and whether that is a far one."""

import re

from outlast.agents.outward.targets import arguments, base
from outlast.agents.outward.targets.base import Matched, Target
from outlast.agents.outward.targets.hosts import is_loopback

_URL = re.compile(r"(?:jdbc:)?[a-z][a-z0-9+.-]*://(?:[^/@\s]*@)?(\[[^\]]*\]|[^/:?\s;,]*)", re.IGNORECASE)
_FILE = re.compile(r"(?:jdbc:)?(?:sqlite|sqlite3|file|h2)[:/]|.*\.(?:db|sqlite3?)$", re.IGNORECASE)
_HOST_OPTIONS = ("host", "bootstrap-server", "S")
_READS = re.compile(r"\s*(?:select|show|explain|describe|\\\\|\\[dl])", re.IGNORECASE)
_PRODUCTION = re.compile(r"prod(?:uction)?|staging|live", re.IGNORECASE)
STAGES = ("RAILS_ENV", "RACK_ENV", "NODE_ENV", "APP_ENV", "DJANGO_ENV", "FLASK_ENV")
_FILE_HERE = ""  # in place of a machine: a file or a socket, which no tunnel leads away from


def _hosts(matched: Matched) -> list[str]:
    """The machines that the words name."""
    found = [value for name in _HOST_OPTIONS for value in matched.parsed.options.get(name, ()) if value]
    hosts = [_FILE_HERE if host.startswith("/") else re.sub(r":\d+$", "", host) for host in found]
    for word in matched.call.words[1:]:
        if _FILE.match(word):
            hosts.append(_FILE_HERE)
        elif url := _URL.search(word):
            hosts.append(url[1] or _FILE_HERE)
    return hosts


def _named(matched: Matched, hosts: list[str]) -> Target:
    parts = [matched.call.program, *matched.command, *sorted(set(hosts))]
    sent = arguments.words(matched.call, matched.rule)
    return Target(base.joined(*parts), content=sent, hosts=tuple(hosts)) if hosts else base.words(matched)


def resolve(matched: Matched) -> Target | None:
    """Outward unless its words name only files. `classify` leaves out what goes to this machine."""
    found = _hosts(matched)
    hosts = [host for host in found if host != _FILE_HERE]
    return None if found and not hosts else _named(matched, hosts)


def far(matched: Matched) -> Target | None:
    """Outward only where its words name a machine, and not where it plainly reads."""
    found = [host for host in _hosts(matched) if host != _FILE_HERE]
    hosts = [host for host in found if not is_loopback(host)] or found
    texts = [text for name in ("command", "execute", "eval") for text in matched.parsed.options.get(name, ())]
    if not hosts or (texts and all(_READS.match(text) and ";" not in text.strip("; ") for text in texts)):
        return None
    return _named(matched, hosts)


def production(matched: Matched) -> Target | None:
    """Outward only where the call says that it means production."""
    call, flags = matched.call, matched.parsed.flags
    stages = [call.environment.get(name, "") for name in STAGES]
    stages += [word.partition("=")[2] for word in call.words if word.startswith(STAGES)]
    stages += matched.parsed.options.get("env", ())
    stages += ["production"] if call.program == "artisan" and "--force" in flags else []
    stage = next((each for each in stages if _PRODUCTION.fullmatch(each)), "")
    signature = base.joined(call.program, *matched.command[-1:], stage, call.cwd or "?")
    return Target(signature, content=arguments.words(call, matched.rule)) if stage else None
