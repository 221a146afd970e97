"""Control groups: where a process is in their hierarchies, and a group of our own that no process can leave.

Only cgroup v2 can hold and kill a group; for memory counters the older v1 works too."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlast.processes.proc import look
from outlast.processes.signals import send

GROUPS_MAX = 256
KILL_ROUNDS_MAX = 200
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a process's group in one hierarchy, and the folder where that hierarchy is mounted."""

    folder: Path
    mount: Path
    version: int

    def upwards(self) -> Iterator[Path]:
        """The folder, the one above it, and so on up to the mount."""
        folder = self.folder
        while folder != self.mount and self.mount in folder.parents:
            yield folder
            folder = folder.parent
        yield self.mount


def unified(pid: int | str = "self") -> Place | None:
    """Where a process is in the v2 hierarchy; None if that is not mounted."""
    return _place(pid, version=2, controller="")


def memory(pid: int | str = "self") -> Place | None:
    """Where a process's memory is counted: in v1 if that has the controller, else in v2."""
    return _place(pid, version=1, controller="memory") or unified(pid)


def _place(pid: int | str, *, version: int, controller: str) -> Place | None:
    mounted, path = _mounted(version, controller), _path(pid, controller)
    if mounted is None or path is None:
        return None
    mount, root = mounted
    inside = path.removeprefix(root) if root != "/" and f"{path}/".startswith(f"{root}/") else path
    folder = mount / inside.strip("/")
    return Place(folder, mount, version) if ".." not in folder.parts and folder.is_dir() else None


def _path(pid: int | str, controller: str) -> str | None:
    """The group in the hierarchy with this controller; the v2 hierarchy has no controller names."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return None


def _mounted(version: int, controller: str) -> tuple[Path, str] | None:
    """The mount point of the hierarchy, and the group that the mount shows as its root."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        mount, _, kind = line.partition(" - ")
        fields, (fstype, _, options) = mount.split(" "), kind.split(" ", 2)
        if version == 2 and fstype == "cgroup2":
            return Path(fields[4]), fields[3]
        if version == 1 and fstype == "cgroup" and controller in options.split(","):
            return Path(fields[4]), fields[3]
    return None


@dataclass(frozen=True, slots=True)
class Group:
    """A cgroup v2 of our own: a process in it stays in it, with all it starts, and one write kills them all."""

    folder: Path

    @classmethod
    def make(cls, name: str) -> "Group | None":
        """Make a group below our own, or take an old one of that name; None if there is no v2 or we may not."""
        assert _PLAIN_WORD.fullmatch(name), "a group's name is one plain word"
        place = unified()
        if place is None:
            return None
        folder = place.folder / name
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            return None
        group = cls(folder)
        if os.access(folder / "cgroup.procs", os.W_OK):
            return group
        group.remove()
        return None

    def add(self, pid: int) -> bool:
        """Put a process in, and with it all that it will start; False if the kernel refuses."""
        try:
            (self.folder / "cgroup.procs").write_text(str(pid))
        except OSError:
            return False
        return True

    def pids(self) -> list[int]:
        """The processes in it and in the groups below; those of another pid namespace are not visible."""
        found: set[int] = set()
        for folder in self._folders():
            with contextlib.suppress(OSError):
                found.update(int(word) for word in (folder / "cgroup.procs").read_text().split())
        return sorted(found - {0})

    def kill(self) -> None:
        """SIGKILL all in it: at once if the kernel has cgroup.kill, else again and again until none is left."""
        try:
            (self.folder / "cgroup.kill").write_text("1")
        except OSError:
            self._kill_each()

    def _kill_each(self) -> None:
        for _ in range(KILL_ROUNDS_MAX):
            found = [proc for pid in self.pids() if (proc := look(pid)) is not None and not proc.is_zombie]
            if not found:
                return
            for proc in found:
                if proc.pid != os.getpid():
                    send(proc, signal.SIGKILL)

    def remove(self) -> bool:
        """Remove the group and those below; False while a process is in it."""
        for folder in reversed(self._folders()):
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not self.folder.exists()

    def _folders(self) -> list[Path]:
        """The group and those below, a parent before its children, at most `GROUPS_MAX`."""
        return subtree(self.folder)


def subtree(folder: Path) -> list[Path]:
    """A group's folder and those below it, a parent before its children, at most `GROUPS_MAX`."""
    found = [folder]
    for parent in found:
        with contextlib.suppress(OSError):
            found += [entry for entry in parent.iterdir() if entry.is_dir()]
        if len(found) >= GROUPS_MAX:
            break
    return found[:GROUPS_MAX]
