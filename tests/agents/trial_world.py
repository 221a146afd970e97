"""What happens to the world of a trial beside kills: a full disk, damaged transcripts, a worktree that is gone.

Nothing here knows a plan; trial.py says when."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from pathlib import Path

STATE_MB = 48
_BLOCK = 1 << 16
# Where the sessions of each CLI lie, below its home.
_SESSIONS = {
    "claude": ".claude/projects",
    "codex": ".codex/sessions",
    "kimi-code": ".kimi-code/sessions",
    "kimi-cli": ".kimi/sessions",
    "gemini": ".gemini/tmp",
    "opencode": ".local/share/opencode",
}


class SmallDisk:
    """A tmpfs in place of a folder, to be filled. It needs root."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._filler = folder, folder / "filler"
        size = f"size={STATE_MB}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True, capture_output=True)

    def fill(self) -> None:
        """Until not a byte more goes in."""
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as out:
            while True:
                out.write(bytes(_BLOCK))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self, kept: Path) -> None:
        """Unmount it; what lay there is copied for whoever looks into the trial."""
        self.free()
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(self._folder, kept, symlinks=True)
        subprocess.run(["umount", "-l", self._folder], check=False, capture_output=True)


def transcripts(agent: str, home: Path) -> list[Path]:
    """The files of its sessions, the newest last."""
    folder = home / _SESSIONS[agent]
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    lines = [path for path in found if agent == "opencode" or path.suffix in (".jsonl", ".json")]
    return sorted(lines, key=lambda path: path.stat().st_mtime_ns)


def tear(agent: str, home: Path, rng: random.Random) -> str:
    """The newest loses a piece of its last line, as when a disk was cut off."""
    newest = next((path for path in reversed(transcripts(agent, home)) if path.suffix == ".jsonl"), None)
    if newest is None:
        return "no transcript to tear"
    content = newest.read_bytes()
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    size = rng.randint(last, max(last, len(content) - 1))
    os.truncate(newest, size)
    return f"tore {newest.name} from {len(content)} to {size} bytes"


def delete(agent: str, home: Path) -> str:
    """All of them."""
    gone = transcripts(agent, home)
    for path in gone:
        path.unlink()
    return f"deleted {len(gone)} transcripts"


def delete_copies(root: Path) -> str:
    """Those that outlast has made."""
    gone = [path for path in root.glob("runs/*/agent/*") if path.is_file()]
    for path in gone:
        path.unlink()
    return f"deleted {len(gone)} copies"
