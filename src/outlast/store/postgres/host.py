"""Which machine this is for a shared store, and when a free lock file here proves that a process is dead."""

import contextlib
import os
import uuid
from pathlib import Path

from outlast.store import durable, locks
from outlast.store.local import Local

_MACHINE_ID = Path("/etc/machine-id")


class Host:
    """This host's identity in a store's local folder: made once, and made anew in a copy of it on another machine."""

    def __init__(self, local: Local) -> None:
        self.machine = f"{machine_id()} {os.uname().nodename}"
        path = local.folder / "host"
        known = _read(path)
        if known is None or known[1] != self.machine:
            known = (uuid.uuid4(), self.machine)
            durable.write_durably(path, f"{known[0]}\n{known[1]}\n".encode())
            known = _read(path) or known  # of two at once the last one's name stays
        self.id = known[0]

    def proves_death(self, machine: str, boot_id: str) -> bool:
        """Whether a lock file that is free here now was held by no living process: it was held under this kernel, or on this
        machine before it was rebooted. In a container the same folder may be another machine's volume."""
        if boot_id == locks.boot_id() and boot_id != "unknown":
            return True
        return bool(machine_id()) and machine == self.machine and not in_container()


def machine_id() -> str:
    """The machine's own id; empty where it has none."""
    with contextlib.suppress(OSError):
        return _MACHINE_ID.read_text().strip()
    return ""


def in_container() -> bool:
    """Whether this process lives in a container, as far as can be told."""
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return True
    with contextlib.suppress(OSError):
        return b"container=" in Path("/proc/1/environ").read_bytes()
    return False  # an ordinary user cannot look; a machine id is a machine's own


def _read(path: Path) -> tuple[uuid.UUID, str] | None:
    try:
        lines = path.read_text().splitlines()
        return uuid.UUID(lines[0]), lines[1]
    except (OSError, ValueError, IndexError):
        return None
