"""This host's half of a store: the folder of its locks, sockets, logs and notes, and the place of each in it.

What several hosts could share is in the `Store`. Nothing here knows the files' contents. Guardians import this."""

import contextlib
import hashlib
import os
import stat
import time
from pathlib import Path

SOCKET_BYTES_MAX = 100  # the longest socket name that works on every system


def place_of(folder: Path) -> str:
    """A short stable name for a folder, for files about it."""
    return hashlib.blake2b(os.fsencode(folder), digest_size=10).hexdigest()


class Local:
    """The folder that a host has for a store. Asking for a path creates nothing."""

    __slots__ = ("folder", "runs")

    def __init__(self, folder: Path) -> None:
        assert folder.is_absolute(), f"the folder's path must be absolute: {folder}"
        self.folder = folder
        self.runs = self.folder / "runs"  # locks and folders of all runs

    def __repr__(self) -> str:
        return f"Local({str(self.folder)!r})"

    # -- of the store as a whole -----------------------------------------------------------------------------------

    @property
    def mark(self) -> Path:
        """Names the last event that the store acknowledged to this host."""
        return self.folder / "mark"

    @property
    def turn(self) -> Path:
        """Locked by the process whose turn it is to write."""
        return self.folder / "turn"

    @property
    def ballast(self) -> Path:
        """Room that is released when the disk is full."""
        return self.folder / "ballast"

    @property
    def waking_lock(self) -> Path:
        """Held by `resume --all`: one at a time."""
        return self.folder / "waking.lock"

    @property
    def importing(self) -> Path:
        """Notes on imports in progress."""
        return self.folder / "importing"

    @property
    def notices(self) -> Path:
        """Notices that are on their way to a person."""
        return self.folder / "notices"

    @property
    def channels(self) -> Path:
        """What became of the last notice on each channel."""
        return self.folder / "channels.json"

    @property
    def link_secret(self) -> Path:
        """Signs the links of notices."""
        return self.folder / "link.secret"

    @property
    def page_note(self) -> Path:
        """Where a running page is reached from elsewhere; locked while it runs."""
        return self.folder / "page"

    def imported(self, run: str) -> Path:
        """The workspace of a run imported without a folder of the user's."""
        return self.folder / "imported" / run

    def room_bytes(self) -> int:
        """How many bytes its disk still has room for."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    # -- of a run --------------------------------------------------------------------------------------------------

    def run_folder(self, run: str) -> Path:
        """The files beside a run's journal: logs, state file, socket, the agent's own files."""
        return self.runs / run

    def roster(self, run: str) -> Path:
        """Which processes were started for the run's calls."""
        return self.run_folder(run) / "roster"

    def run_lock(self, run: str) -> Path:
        """The file whose lock proves that a holder lives."""
        return self.runs / f"{run}.lock"

    def act_lock(self, run: str) -> Path:
        """The file that is locked while an act is performed."""
        return self.runs / f"{run}.act"

    def kind_lock(self, run: str, what: str) -> Path:
        """Held for this kind of act on a run: one process at a time."""
        return self.run_folder(run) / f"{what}.lock"

    def guardian_lock(self, run: str) -> Path:
        """Held by the run's guardian while it lives."""
        return self.run_folder(run) / "guardian.lock"

    def guardian_note(self, run: str) -> Path:
        """The file with the guardian's note about a dead supervisor."""
        return self.run_folder(run) / "guardian.json"

    def keeper_note(self, run: str) -> Path:
        """Which process keeps a script's run, for later starts."""
        return self.run_folder(run) / "keeper.json"

    def state_file(self, run: str) -> Path:
        """The run's state for people and scripts."""
        return self.run_folder(run) / "active_state.json"

    def agent_folder(self, run: str) -> Path:
        """Copies of the agent's transcripts."""
        return self.run_folder(run) / "agent"

    def client_folder(self, run: str) -> Path:
        """Copies of what the hooks and shims of its agent run."""
        return self.run_folder(run) / "client"

    def supervisor_log(self, run: str) -> Path:
        """The output of a supervisor that nobody watches."""
        return self.run_folder(run) / "supervisor.log"

    def detached_log(self) -> Path:
        """A new log for a detached start whose run has no id yet."""
        return self.runs / f"detached-{os.getpid()}-{time.time_ns()}.log"

    def socket(self, run: str) -> Path:
        """In the run's folder, or in a short private place if that path is too long for a socket."""
        folder = self.run_folder(run)
        path = folder / "socket"
        return path if len(os.fsencode(path)) <= SOCKET_BYTES_MAX else self._short_place() / place_of(folder)

    def _short_place(self) -> Path:
        """A private folder with a short name. Another user can plant anything under the name that everybody can guess."""
        import tempfile

        usual = Path(tempfile.gettempdir()) / f"outlast-{os.getuid()}"
        with contextlib.suppress(OSError):
            usual.mkdir(mode=0o700)
        if _is_private(usual):
            return usual
        noted = self.folder / "sockets"  # names the folder that takes its place, for those who come after us
        with contextlib.suppress(OSError):
            other = Path(os.readlink(noted))
            if _is_private(other):
                return other
            noted.unlink()
        other = Path(tempfile.mkdtemp(prefix="outlast-"))
        with contextlib.suppress(OSError):
            noted.symlink_to(other)
        return other

    # -- of workspaces ---------------------------------------------------------------------------------------------

    @property
    def workspaces(self) -> Path:
        """The folder with outlast's data about every saved workspace."""
        return Path(os.path.abspath(self.folder)) / "workspaces"

    @property
    def vaults(self) -> Path:
        """The private repositories of all saves, one for each repository of the user's."""
        return Path(os.path.abspath(self.folder)) / "vaults"

    def private_of(self, folder: Path) -> Path:
        """The private folder of a workspace, by its real path: index, memo, locks, secrets, its own repository."""
        return self.workspaces / place_of(folder)

    def privates(self) -> list[Path]:
        """The private folders of all workspaces."""
        return sorted(self.workspaces.glob("*/"))

    @property
    def anchored(self) -> Path:
        """Lists the runs whose saves this store anchored."""
        return self.workspaces / "anchored"


def _is_private(folder: Path) -> bool:
    """Whether this is a folder, not a link to one, that nobody but us can look into or change."""
    try:
        folder_stat = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(folder_stat.st_mode)
        and folder_stat.st_uid == os.getuid()
        and not folder_stat.st_mode & 0o077
    )
