"""Private git folders that outlast makes for itself: git accepts them, and converts nothing in them."""

import contextlib
import os
from pathlib import Path

from outlast.store import durable


def git_dir_form(git_dir: Path) -> str:
    """The hash format of a private repository; empty if there is none, or an unfinished one."""
    with contextlib.suppress(OSError):
        if (git_dir / "HEAD").stat().st_size:
            return "sha256" if "sha256" in (git_dir / "config").read_text() else "sha1"
    return ""


def make_git_dir(git_dir: Path, form: str, more: str = "") -> None:
    """Make a private repository that git accepts. Its attributes overrule the worktree's: bytes stay as they are."""
    for name in ("objects/pack", "objects/info", "refs/heads", "info"):
        durable.make_folder(git_dir / name)
    write_config(git_dir, form, more)
    _put(git_dir / "info" / "attributes", "* -text -eol -ident -filter -working-tree-encoding -diff -merge\n")
    _put(git_dir / "info" / "exclude", "")
    _put(git_dir / "HEAD", "ref: refs/heads/none\n")  # last: if it exists, the others do


def write_config(git_dir: Path, form: str, more: str = "") -> None:
    """Write the settings of a private repository, durably; `more` follows them."""
    version, extension = ("1", f"[extensions]\n\tobjectformat = {form}\n") if form != "sha1" else ("0", "")
    _put(
        git_dir / "config",
        f"[core]\n\trepositoryformatversion = {version}\n\tbare = false\n{extension}{more}",
    )


def seeing(*folders: Path) -> dict[str, str]:
    """The variable that makes git see these folders of objects as well."""
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(os.fsdecode(quoted(folder)) for folder in folders)}


def quoted(path: Path) -> bytes:
    """A folder quoted for git's list of object folders."""
    name = os.fsencode(path)
    if not set(name) & set(b':"\n'):
        return name
    return b'"' + name.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _put(path: Path, text: str) -> None:
    """Write a file durably and atomically: an empty HEAD after a power cut would not be a repository."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    durable.sync_folder(path.parent)
