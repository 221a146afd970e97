"""The reader's zone of time: what their browser says, or else that of this machine."""

import os
import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]{0,31}(/[A-Za-z0-9_+\-]{1,31}){0,2}")
_LOCAL = "/etc/localtime"


def called(name: str) -> tuple[str, tzinfo] | None:
    """A zone by its IANA name; None if this machine knows no such zone."""
    if _NAME.fullmatch(name) is None:
        return None
    if name == "UTC":
        return name, UTC
    try:
        return name, ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def local() -> tuple[str, tzinfo]:
    """This machine's zone by its name, if it can be told that; else UTC or what is as far from it."""
    now = datetime.now(UTC).astimezone()
    try:
        _, _, name = os.readlink(_LOCAL).partition("zoneinfo/")
    except OSError:
        name = ""
    found = called(name)
    if found is not None and now.astimezone(found[1]).utcoffset() == now.utcoffset():
        return found
    offset = now.utcoffset()
    hours, rest = divmod(int(offset.total_seconds()) if offset else 0, 3600)
    whole = (
        called(f"Etc/GMT{-hours:+d}") if hours and not rest else None
    )  # their signs are the other way round
    return whole or ("UTC", UTC)
