"""Marks that versions before the vault left in repositories whose saves name secrets, and the notes of them."""

import contextlib
import re
from pathlib import Path

MARK = "outlast-id"
_NOTE = "repositories"
_FORM = re.compile(r"[0-9a-f]{32}")


def mark(common_dir: Path) -> str:
    """What identifies a repository wherever it is moved or copied to; empty if it has no mark yet."""
    with contextlib.suppress(OSError):
        text = (common_dir / MARK).read_text(encoding="ascii", errors="replace").strip()
        return text if _FORM.fullmatch(text) else ""
    return ""


def noted_repositories(private: Path) -> dict[str, str]:
    """The repositories that have saves with a workspace's secrets: their marks, and where each was then."""
    with contextlib.suppress(FileNotFoundError):
        lines = (private / _NOTE).read_text(encoding="utf-8", errors="replace").splitlines()
        return {own: at for own, _, at in (line.partition(" ") for line in lines) if _FORM.fullmatch(own)}
    return {}
