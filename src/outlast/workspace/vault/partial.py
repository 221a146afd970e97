"""What a partial clone lacks: its saves lack it, too, because outlast fetches nothing."""

from collections.abc import Sequence

from outlast.errors import SaveFailed
from outlast.workspace.git import command
from outlast.workspace.repo import Repo
from outlast.workspace.timing import Timing
from outlast.workspace.vault import sources

_NAMED_MAX = 3


def is_partial(place: Repo) -> bool:
    """Whether a repository may lack objects that another one has promised."""
    folders = sources.object_folders(place.common_dir)
    return any(any((folder / "pack").glob("*.promisor")) for folder in folders)


def warning(place: Repo, tips: Sequence[str]) -> str:
    """What a person should know about a save of these commits; empty for a repository that is whole."""
    if place.shadow or not is_partial(place):
        return ""
    words = ["rev-list", "--objects", "--quiet", "--missing=print", *tips, "--"]
    try:
        output = command.run(words, git_dir=place.git_dir, timeout_s=Timing.current().roots_s)
    except SaveFailed:
        return "the repository is a partial clone: saves have of its history only what it has"
    lacking = [line[1:] for line in output.decode().splitlines() if line.startswith("?")]
    if not lacking:
        return ""
    some = f"{len(lacking):,} object{'' if len(lacking) == 1 else 's'}"
    named = ", ".join(oid[:12] for oid in sorted(lacking)[:_NAMED_MAX])
    more = ", …" if len(lacking) > _NAMED_MAX else ""
    return f"the repository is a partial clone: it and its saves lack {some} of its history ({named}{more})"
