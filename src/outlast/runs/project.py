"""Which project a folder belongs to: the repository's common git folder, so that all worktrees of a clone are one."""

from pathlib import Path


def project_of(folder: Path) -> str:
    """The real path of the repository's common git folder, else of the folder itself."""
    real = folder.resolve()
    for here in (real, *real.parents):
        marker = here / ".git"
        if marker.is_dir():
            return str(marker.resolve())
        if marker.is_file():
            return str(_common(marker))
    return str(real)


def _common(marker: Path) -> Path:
    """Follow a worktree's `.git` file to the common folder of the clone."""
    text = marker.read_text(errors="replace").strip()
    if not text.startswith("gitdir:"):
        return marker.parent
    folder = (marker.parent / text[len("gitdir:") :].strip()).resolve()
    pointer = folder / "commondir"
    if pointer.is_file():
        return (folder / pointer.read_text().strip()).resolve()
    return folder
