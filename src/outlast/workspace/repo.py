"""Which repository a workspace is in, and which vault its saves go to."""

import contextlib
import os
import re
import shlex
import stat
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlast import decoders, settings
from outlast.errors import SaveFailed, WorkspaceRefused
from outlast.store import durable
from outlast.workspace.git import command, git_dir, layout, objects, refs
from outlast.workspace.types import raw, text
from outlast.workspace.vault import identity

_FATAL = 128  # git's exit code when it gives up
YOUNG_NS = 4_000_000_000  # what changed so shortly before it was read may change again and look the same
# What git says about a `.git` that it cannot use. Anything else is a temporary failure.
_UNUSABLE = re.compile(
    rb"(?i)not a git repository|gitfile|too large to be a \.git file|must be run in a work tree|git repo version"
    rb"|unknown repository|extensions?\b|bad (?:config|numeric|boolean)|invalid (?:value|path)|core\.(?:bare|worktree)"
)
_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
IN_PROGRESS = (
    b"MERGE_HEAD", b"MERGE_MSG", b"MERGE_MODE", b"MERGE_RR", b"SQUASH_MSG", b"CHERRY_PICK_HEAD", b"REVERT_HEAD", b"REBASE_HEAD",
    b"ORIG_HEAD", b"AUTO_MERGE", b"BISECT_LOG", b"BISECT_NAMES", b"BISECT_TERMS", b"BISECT_START",
    b"BISECT_EXPECTED_REV", b"BISECT_ANCESTORS_OK", b"rebase-merge", b"rebase-apply", b"sequencer",
    b"refs/bisect", b"refs/rewritten",  # refs of a bisect and of a rebase with merges, which are beside HEAD
)  # fmt: skip


RESTING = b"ORIG_HEAD"  # stays when nothing is in progress any more


class Repo(msgspec.Struct, frozen=True):
    """A workspace's repository, and the vault of its saves. Nothing of ours is ever written to the first.

    A shadow has no index and no HEAD: all files are untracked, and its git folder is the vault's.
    """

    folder: Path
    git_dir: Path
    common_dir: Path
    algo: objects.Algo
    vault: Path
    shadow: bool = False
    refused: str = ""  # of a shadow: why the folder's own repository is not used
    own: Path | None = None  # of a nested repository: the git folder whose index says what is tracked there

    @property
    def packs(self) -> Path:
        return self.vault / "objects" / "pack"

    @property
    def object_folders(self) -> tuple[Path, ...]:
        """Where objects are that may be read: in the vault, and what was not brought in yet in the user's own."""
        return tuple(dict.fromkeys((self.vault / "objects", self.common_dir / "objects")))

    def seeing(self) -> dict[str, str]:
        """The variable that makes git see the vault and the user's repository at once."""
        return git_dir.seeing(*self.object_folders)

    @property
    def index(self) -> Path:
        return self.git_dir / "index"


class Head(msgspec.Struct, frozen=True):
    """HEAD: a branch, perhaps unborn, or a commit."""

    oid: str = ""
    branch: str = ""


def find(folder: Path, private: Path, *, shadow: bool = False) -> Repo:
    """The repository whose top level is exactly this folder, else a shadow; with its vault. Never one further up."""
    folder = Path(os.path.realpath(folder))
    refuse(folder)
    has_own = not shadow and os.path.lexists(folder / ".git")
    why = distrusted(folder) if has_own else ""
    found = own(folder) if has_own and not why else None
    vaults, noted = identity.vaults_of(private), noted_place(private)
    known = Path(os.fsdecode(raw(noted.vault))) if noted is not None and noted.vault else None
    if found is None:
        return shadow_of(folder, identity.of_folder(vaults, folder, known), refused=why)
    real = Path(os.path.realpath(found.common_dir))
    vault = identity.of_repository(vaults, real, found.algo.name, folder, known)
    return Repo(folder, found.git_dir, found.common_dir, found.algo, vault)


def shadow_of(folder: Path, vault: Path, *, refused: str = "") -> Repo:
    """A folder without a repository that git can use, and its vault."""
    return Repo(
        folder,
        vault,
        vault,
        objects.algo_named(git_dir.git_dir_form(vault)),
        vault,
        shadow=True,
        refused=refused,
    )


def distrusted(folder: Path) -> str:
    """Why git refuses the repository at a top level to this user, in words; empty if it does not.

    Anybody can make a `.git` in a folder that users share, with settings and hooks of theirs, and would get our saves. git
    refuses what belongs to others, unless the user's own settings list it in `safe.directory`; as root, what belongs to
    SUDO_UID is ours, too. git itself is asked only where that is not plain.
    """
    marker = folder / ".git"
    places = [folder, marker]
    with contextlib.suppress(OSError):
        found = layout.at(folder)
        places += [found.own] if found is not None else []
    mine = {os.geteuid()}
    if os.geteuid() == 0 and settings.variable("SUDO_UID").isdigit():
        mine.add(int(settings.variable("SUDO_UID")))
    with contextlib.suppress(OSError):
        if all(os.lstat(place).st_uid in mine for place in places):
            return ""
    given = {name: value for name, value in settings.inherited().items() if name.startswith("GIT_CONFIG_")}
    git = command.Running(
        ["rev-parse", "--git-dir"], cwd=folder, ok=(0, _FATAL), before=command.JUDGING_WORDS,
        variables={**given, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
    )  # fmt: skip
    git.result()
    if git.exit_code != _FATAL or b"ownership" not in git.messages:
        return ""
    return (
        f"git does not use the repository in {folder}, because it belongs to another user; its saves are kept apart"
        f" (if you trust it: `git config --global --add safe.directory {shlex.quote(str(folder))}`)"
    )


def refuse(folder: Path) -> None:
    """Raise WorkspaceRefused for `/`, the home folder, and what is not a folder."""
    if not folder.is_dir():
        raise WorkspaceRefused(f"not a folder: {folder}", hint="give the folder the agent works in")
    home = settings.home()
    real = Path(os.path.realpath(home)) if home is not None else Path("/")
    if folder == Path("/") or folder == real or folder in real.parents:
        raise WorkspaceRefused(
            f"{folder} is too big to save: it contains a whole home",
            hint="give the folder the agent works in",
        )


def git_stamp(folder: Path) -> object:
    """Changes when another `.git` appears, or when git may come to accept or refuse it."""
    place = folder / ".git"
    try:
        place_stat = place.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(place_stat.st_mode):
        return place_stat.st_ino, place_stat.st_mtime_ns, place_stat.st_uid
    found: list[object] = [place_stat.st_ino, place_stat.st_uid]
    for name in ("HEAD", "config"):
        with contextlib.suppress(OSError):
            inner = (place / name).stat()
            found.append(inner.st_size > 0 if name == "HEAD" else (inner.st_mtime_ns, inner.st_size))
    return tuple(found)


class Place(msgspec.Struct, frozen=True):
    """Where a folder's repository was at the last look."""

    folder: str
    git_dir: str
    common_dir: str
    shadow: bool
    vault: str = ""


def note_place(found: Repo, private: Path) -> None:
    """Remember where the repository is, in case the folder vanishes."""
    place = Place(
        str(found.folder), str(found.git_dir), str(found.common_dir), found.shadow, text(found.vault)
    )
    data = msgspec.json.encode(msgspec.to_builtins(place), order="sorted") if _is_text(place) else b"{}"
    with contextlib.suppress(OSError):
        if (private / "place.json").read_bytes() == data:
            return  # a reader writes nothing, and so works on a full disk
    new = private / "place.new"
    new.write_bytes(data)
    new.replace(private / "place.json")


def of_lost(folder: Path, private: Path, noted: Place) -> Repo:
    """The repository and the vault of a folder that is gone; a shadow where its repository is gone as well."""
    common, vaults = Path(noted.common_dir), identity.vaults_of(private)
    known = Path(os.fsdecode(raw(noted.vault))) if noted.vault else None
    if noted.shadow or not (common / "HEAD").exists():
        return shadow_of(folder, identity.of_folder(vaults, folder, known))
    form = command.run(["rev-parse", "--show-object-format"], git_dir=common).decode().strip()
    vault = identity.of_repository(vaults, Path(os.path.realpath(common)), form, folder, known)
    return Repo(folder, common, common, objects.algo_named(form), vault)


def of_vault(vault: Path) -> Repo:
    """The repository that a vault belongs to; if that is gone, a shadow of the folder that was saved last."""
    owner = identity.note_of(vault)
    common = Path(os.fsdecode(raw(owner.common_dir))) if owner.common_dir else vault
    folder = Path(os.fsdecode(raw(owner.folders[-1]))) if owner.folders else vault
    algo = objects.algo_named(git_dir.git_dir_form(vault))
    if common == vault or not (common / "HEAD").exists():
        return Repo(folder, vault, vault, algo, vault, shadow=True)
    return Repo(folder, common, common, algo, vault)


def noted_place(private: Path) -> Place | None:
    """Where the repository was; None if unknown."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decoders.decode((private / "place.json").read_bytes(), Place)
    return None


def _is_text(place: Place) -> bool:
    with contextlib.suppress(UnicodeError):
        "".join((place.folder, place.git_dir, place.common_dir)).encode()
        return True
    return False


class Own(NamedTuple):
    """The git folders of a folder's own repository."""

    git_dir: Path
    common_dir: Path
    algo: objects.Algo


def own(folder: Path) -> Own | None:
    """The folder's own repository; None only if git itself says that there is none it can use.

    Raises SaveFailed if git fails for any other reason: saves would silently go elsewhere, and be missed there.
    """
    words = ["rev-parse", "--is-bare-repository", "--show-object-format", "--absolute-git-dir", "--git-common-dir", "--show-toplevel"]  # fmt: skip
    git = command.Running(
        words, cwd=folder, variables={"GIT_CEILING_DIRECTORIES": str(folder.parent)}, ok=(0, _FATAL)
    )
    output = git.result()
    if git.exit_code == _FATAL:
        if _UNUSABLE.search(git.messages):
            return None  # a .git that git does not know: the files are saved all the same
        why = text(git.messages.strip().splitlines()[-1] if git.messages.strip() else b"no message")
        raise SaveFailed(
            f"git cannot say which repository {folder} is: {why}",
            hint="save again; if git keeps failing, see `git status` there",
        )
    bare, form, *lines = os.fsdecode(output).removesuffix("\n").split("\n")
    more = str(folder).count("\n")  # a folder's name may contain newlines
    top = "\n".join(lines[-1 - more :])
    if bare == "true" or len(lines) < 3 + more or Path(os.path.realpath(top)) != folder:
        return None
    places = lines[: -1 - more]
    split = 1 if len(places) == 2 else 1 + more
    own_dir, common = "\n".join(places[:split]), "\n".join(places[split:])
    common_dir = Path(os.path.normpath(folder / common))
    return Own(Path(own_dir), common_dir, objects.algo_named(form))


def head(repo: Repo) -> Head:
    """HEAD, read from its files."""
    if repo.shadow:
        return Head()
    try:
        content = os.fsdecode(durable.read_plain(repo.git_dir / "HEAD")).strip()
    except OSError as error:
        raise SaveFailed(f"cannot read HEAD of {repo.folder}: {error.strerror}") from error
    if not content.startswith("ref: "):
        if not _OID.fullmatch(content):
            raise SaveFailed(f"HEAD of {repo.folder} holds {content[:40]!r}", hint="see `git fsck`")
        return Head(oid=content)
    branch = content.removeprefix("ref: ").strip()
    if (repo.common_dir / "reftable").exists():
        oid = command.run(["rev-parse", "--verify", "-q", "HEAD"], git_dir=repo.git_dir, ok=(0, 1))
        return Head(oid.decode().strip(), text(os.fsencode(branch)))
    return Head(refs.read_ref(repo.common_dir, branch) or "", text(os.fsencode(branch)))


def branch_in(folder: Path) -> str:
    """The branch that is checked out in the repository whose top level is this folder; empty if there is none.

    git is not asked, unless the repository belongs to somebody else: this is looked up at the end of each beat.
    """
    with contextlib.suppress(SaveFailed, OSError):
        real = Path(os.path.realpath(folder))
        found = layout.at(real) if os.path.lexists(real / ".git") and not distrusted(real) else None
        if found is not None and layout.is_git_folder(found.own):
            ref = os.fsdecode(durable.read_plain(found.own / "HEAD")).strip()
            return (
                text(os.fsencode(ref.removeprefix("ref: ").strip())).removeprefix("refs/heads/")
                if ref.startswith("ref: ")
                else ""
            )
    return ""


class Progress:
    """The files of a merge, rebase, cherry-pick or bisect in progress. Read again only when they look changed."""

    def __init__(self, repo: Repo) -> None:
        self._top = os.fsencode(repo.git_dir) + b"/"
        self._names = () if repo.shadow else IN_PROGRESS
        self._read: dict[bytes, tuple[object, bytes]] = {}

    def files(self) -> dict[bytes, bytes]:
        """Their bytes, by their names in the git folder."""
        read: dict[bytes, tuple[object, bytes]] = {}
        for name in self._names:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                file_stat = os.lstat(self._top + name)
                for path in sorted(self._below(name)) if stat.S_ISDIR(file_stat.st_mode) else [name]:
                    read[path] = self._file(path)
        self._read = read
        return {path: data for path, (_, data) in read.items()}

    def _below(self, folder: bytes) -> list[bytes]:
        start = len(self._top)
        found = [os.path.join(here, name) for here, _, names in os.walk(self._top + folder) for name in names]
        return [path[start:] for path in found if os.path.isfile(path)]

    def _file(self, path: bytes) -> tuple[object, bytes]:
        now_ns, file_stat = time.time_ns(), os.stat(self._top + path)
        stamp = (file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_size, file_stat.st_ino)
        known = self._read.get(path)
        if known is not None and known[0] == stamp:
            return known
        data = durable.read_plain(self._top + path)
        return (stamp if now_ns - file_stat.st_ctime_ns > YOUNG_NS else None), data


def in_progress(repo: Repo) -> dict[bytes, bytes]:
    """The files of a merge, rebase, cherry-pick or bisect in progress, by their names in the git folder."""
    return Progress(repo).files()


def is_ancestor(place: Repo, older: str, newer: str) -> bool:
    """Whether one commit is in the history of another."""
    process = command.Running(
        ["merge-base", "--is-ancestor", older, newer],
        git_dir=place.vault,
        ok=(0, 1, 128),
        variables=place.seeing(),
    )
    process.result()
    return process.exit_code == 0


def excludes_file(repo: Repo) -> str:
    """The ignore file that the user's repository names, which a private one would not know; empty if it names none."""
    if repo.shadow:
        return ""
    output = command.run(
        ["config", "--type=path", "--get", "core.excludesFile"], git_dir=repo.git_dir, ok=(0, 1)
    )
    return os.fsdecode(output.removesuffix(b"\n"))


def workspace_around(folder: Path) -> Path:
    """The top level of the repository around a folder, else the folder itself. Never a whole home."""
    real = Path(os.path.realpath(folder))
    for here in (real, *real.parents):
        if layout.is_marked(here):
            try:
                refuse(here)
            except WorkspaceRefused:
                break
            return here if here == real or not distrusted(here) else real
    return real
