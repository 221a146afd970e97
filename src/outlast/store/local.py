"""This host's half of a store: the folder of its locks, sockets, logs and notes, and where in it each of them lies.

What several hosts could share is in the `Store`. Nothing here knows what the files say: that is with those who write them.
Guardians import this, so it imports little.
"""

import hashlib
import os
import time
from pathlib import Path

SOCKET_BYTES_MAX = 100  # a name for a socket is no longer than this on any system


def place_of(folder: Path) -> str:
    """A short stable name for a folder, for what is kept about it."""
    return hashlib.blake2b(os.fsencode(folder), digest_size=10).hexdigest()


class Local:
    """The folder that a host keeps for a store. Asking for a place makes nothing there."""

    __slots__ = ("folder", "runs")

    def __init__(self, folder: Path) -> None:
        assert folder.is_absolute(), f"this host's folder is named in full, not as {folder}"
        self.folder = folder
        self.runs = self.folder / "runs"  # locks and folders of all runs

    def __repr__(self) -> str:
        return f"Local({str(self.folder)!r})"

    # -- of the store as a whole -----------------------------------------------------------------------------------

    @property
    def mark(self) -> Path:
        """Says which event was the last that the whole store acknowledged to this host."""
        return self.folder / "mark"

    @property
    def ballast(self) -> Path:
        """Room that is given back when the disk is full."""
        return self.folder / "ballast"

    @property
    def waking_lock(self) -> Path:
        """One at a time wakes what died."""
        return self.folder / "waking.lock"

    @property
    def importing(self) -> Path:
        """Notes on imports that are under way."""
        return self.folder / "importing"

    def imported(self, run: str) -> Path:
        """The workspace of a run that was imported to no folder of the user's."""
        return self.folder / "imported" / run

    def room_bytes(self) -> int:
        """What may still be written on its disk."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    # -- of a run --------------------------------------------------------------------------------------------------

    def run_folder(self, run: str) -> Path:
        """What is kept beside a run's journal: logs, state file, socket, the agent's own files."""
        return self.runs / run

    def run_lock(self, run: str) -> Path:
        """The file whose lock proves that a holder lives."""
        return self.runs / f"{run}.lock"

    def act_lock(self, run: str) -> Path:
        """The file that is locked while an act is under way."""
        return self.runs / f"{run}.act"

    def kind_lock(self, run: str, what: str) -> Path:
        """One at a time does acts of this kind on a run."""
        return self.run_folder(run) / f"{what}.lock"

    def guardian_lock(self, run: str) -> Path:
        """Held by the guardian of a run as long as it lives."""
        return self.run_folder(run) / "guardian.lock"

    def guardian_note(self, run: str) -> Path:
        """What a guardian left word of."""
        return self.run_folder(run) / "guardian.json"

    def keeper_note(self, run: str) -> Path:
        """Who keeps a script, for later starts."""
        return self.run_folder(run) / "keeper.json"

    def state_file(self, run: str) -> Path:
        """What a glance wants to know of a run."""
        return self.run_folder(run) / "active_state.json"

    def agent_folder(self, run: str) -> Path:
        """Copies of the agent's transcripts."""
        return self.run_folder(run) / "agent"

    def client_folder(self, run: str) -> Path:
        """Copies of what the hooks and shims of its agent run."""
        return self.run_folder(run) / "client"

    def supervisor_log(self, run: str) -> Path:
        """What a supervisor says that nobody watches."""
        return self.run_folder(run) / "supervisor.log"

    def detached_log(self) -> Path:
        """A new one, for what is said before a run has its name."""
        return self.runs / f"detached-{os.getpid()}-{time.time_ns()}.log"

    def socket(self, run: str) -> Path:
        """In the run's folder, or, where that name is too long for a socket, in a short private place."""
        folder = self.run_folder(run)
        path = folder / "socket"
        return path if len(os.fsencode(path)) <= SOCKET_BYTES_MAX else _short_place() / place_of(folder)

    # -- of workspaces ---------------------------------------------------------------------------------------------

    @property
    def workspaces(self) -> Path:
        """What is kept about every workspace that was saved."""
        return Path(os.path.abspath(self.folder)) / "workspaces"

    def private_of(self, folder: Path) -> Path:
        """The private folder of a workspace, by its real path: index, memo, locks, secrets, a repository of its own."""
        return self.workspaces / place_of(folder)

    def privates(self) -> list[Path]:
        """The private folders of all workspaces."""
        return sorted(self.workspaces.glob("*/"))

    @property
    def anchored(self) -> Path:
        """Names the runs whose saves this store gave an anchor."""
        return self.workspaces / "anchored"


def _short_place() -> Path:
    import tempfile

    short = Path(tempfile.gettempdir()) / f"outlast-{os.getuid()}"
    short.mkdir(mode=0o700, exist_ok=True)
    if short.stat().st_uid != os.getuid() or short.stat().st_mode & 0o077:
        return Path(tempfile.mkdtemp(prefix="outlast-"))
    return short
