"""Where a test finds the saves of a folder: the vault that names it, in a state folder near it or in the test's home."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from outlast.workspace.types import text
from outlast.workspace.vault import identity


def vault_of(folder: Path) -> Path:
    """The vault that a folder was saved to last."""
    found = _found(folder)
    assert found is not None, f"no vault of {folder}"
    return found


def _found(folder: Path) -> Path | None:
    shown = text(Path(os.path.realpath(folder)))
    found = [
        vault
        for vaults in _near(folder)
        for vault, owner in identity.all_vaults(vaults)
        if shown in owner.folders or owner.common_dir == text(Path(os.path.realpath(folder / ".git")))
    ]
    return max(found, key=lambda vault: (vault / "owner.json").stat().st_mtime_ns, default=None)


def seeing(folder: Path) -> dict[str, str]:
    """The variable with which git, asked in a folder, also sees what is in its vault."""
    vault = _found(folder)
    return {} if vault is None else {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(vault / "objects")}


def shown(folder: Path, what: str) -> bytes:
    """What `git show` prints of a save of a folder, for example of `COMMIT:FILE`."""
    words = ["git", f"--git-dir={vault_of(folder)}", "show", what]
    return subprocess.run(words, capture_output=True, check=True).stdout


def git_words(folder: Path, words: Sequence[object]) -> list[str]:
    """How git is told where to look: what is said of our refs is asked of the vault, all else of the folder."""
    of_saves = any("refs/outlast" in str(word) for word in words) and words[0] not in ("fetch", "push")
    vault = _found(folder) if of_saves else None
    return ["-C", str(folder)] if vault is None else ["-C", str(vault.parent), f"--git-dir={vault}"]


def _near(folder: Path) -> Iterator[Path]:
    if "XDG_STATE_HOME" in os.environ:
        yield Path(os.environ["XDG_STATE_HOME"]) / "outlast" / "vaults"
    for above in list(folder.parents)[:3]:
        for pattern in (
            "vaults",
            "*/vaults",
            "*/*/vaults",
            ".local/state/outlast/vaults",
            "*/.local/state/outlast/vaults",
        ):
            with contextlib.suppress(FileNotFoundError):  # others' folders come and go
                yield from above.glob(pattern)
