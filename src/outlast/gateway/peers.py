"""Which users of this machine are at the other ends of loopback connections, as the kernel's table says."""

import os
import socket
from pathlib import Path
from typing import Literal

End = tuple[str, int]

_TABLE = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID = 1, 2, 7
_ORDER: Literal["little", "big"] = "little" if socket.htons(1) != 1 else "big"


def foreign() -> set[tuple[str, str]]:
    """The IPv4 connections of other users than ours and root, each by its two ends as `written`; none where nobody can tell."""
    found: set[tuple[str, str]] = set()
    mine = {str(os.getuid()), "0"}
    try:
        with _TABLE.open() as rows:
            for row in rows:
                fields = row.split()
                if len(fields) > _UID and fields[_UID].isdigit() and fields[_UID] not in mine:
                    found.add((fields[_LOCAL], fields[_REMOTE]))
    except OSError:
        return set()
    return found


def written(end: End) -> str:
    """An address as the kernel writes it: hexadecimal, the bytes in the order of the machine."""
    number = int.from_bytes(socket.inet_aton(end[0]), _ORDER)
    return f"{number:08X}:{end[1]:04X}"
