"""The worktree at the last save, as a private git index: git compares in C what changed since.

It is in a private git folder whose attributes overrule the worktree's: no filter runs, bytes are compared as they are."""

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from outlast import settings
from outlast.errors import SaveFailed, WorkspaceRefused
from outlast.workspace.capture.special import damage, permissions
from outlast.workspace.git import command
from outlast.workspace.git.git_dir import git_dir_form, make_git_dir, quoted
from outlast.workspace.git.trees import TreeEditor
from outlast.workspace.repo import Repo, excludes_file
from outlast.workspace.timing import Timing

_CONVERSIONS = ("text", "crlf", "eol", "ident", "filter", "working-tree-encoding")
_CLOSED = re.compile(rb"^warning: could not open directory '(.*)/': ", re.MULTILINE)
# Git cuts its messages at 4,096 bytes, so the end is missing for a folder whose path is too long for the kernel.
_TOO_LONG = re.compile(rb"^warning: could not open directory '((?!.*/': ).{3900,})/", re.MULTILINE)
_DEBUG_LINES = 5


class Look(msgspec.Struct, frozen=True):
    """What differs from the private index by stat data: a path may turn out to be unchanged when it is read."""

    changed: list[bytes]
    gone: list[bytes]
    others: list[bytes]
    nested: list[bytes]
    closed: list[bytes] = []  # folders that may not be read: their current content is unknown
    too_deep: list[bytes] = []  # folders with paths too long for the kernel


class PrivateIndex:
    """The private index of one worktree: the workspace, or a repository nested in it.

    It begins as a copy of the user's index, whose stat data spares hashing every file once.
    """

    def __init__(self, repo: Repo, private: Path) -> None:
        self.repo = repo
        self.git_dir = private / "look.git"
        self.index = self.git_dir / "index"
        self._doubted = self.git_dir / "index.doubted"  # when the index was written, until it is trusted
        self._doubt_ns = int(Timing.current().one_write_s * 1e9)
        self._own_rule = self._rule_against_own(private)
        self._excludes: object = None
        self._ignore_words: list[str] = []
        self.converts = False
        if git_dir_form(self.git_dir) != repo.algo.name:  # none yet, or made for another repository
            shutil.rmtree(self.git_dir, ignore_errors=True)
            make_git_dir(self.git_dir, repo.algo.name)
        self._link_objects()

    def _rule_against_own(self, private: Path) -> bytes:
        """Exclude a state folder inside the workspace: saving it would change it."""
        state = os.path.realpath(
            next(folder.parent for folder in private.parents if folder.name == "workspaces")
        )
        inside = os.path.relpath(state, self.repo.folder)
        if inside == ".":
            raise WorkspaceRefused(
                f"{state} is both the workspace and outlast's state folder",
                hint="point --store or OUTLAST_STORE to a folder of its own; one inside the workspace is left out of saves",
            )
        if inside == ".." or inside.startswith("../"):
            return b""
        rule = b"\n/" + re.sub(rb"([*?\[\]\\! #])", rb"\\\1", os.fsencode(inside))
        rules = rule + b"/\n"
        if state.endswith(".d") and os.path.isfile(
            state[:-2]
        ):  # a store given by its database file: the rest is beside it
            rules += b"".join(rule[:-2] + end for end in (b"", b"-wal", b"-shm", b"-journal")) + b"\n"
        return rules

    def _link_objects(self) -> None:
        """Make the objects of the vault and of the user's repository readable here; nothing is ever written there."""
        alternates = b"".join(quoted(folder) + b"\n" for folder in self.repo.object_folders)
        place = self.git_dir / "objects" / "info" / "alternates"
        if not place.exists() or place.read_bytes() != alternates:
            place.write_bytes(alternates)

    @property
    def index_is_there(self) -> bool:
        return self.index.exists()

    def drop(self) -> None:
        """Remove the private index: the next look treats every file as new."""
        self.index.unlink(missing_ok=True)

    # -- looking -------------------------------------------------------------------------------------------------

    def look(self, timeout_s: float | None = None) -> Look:
        """Run two gits at once: one compares known files, one walks for unknown ones."""
        self._copy_excludes()
        began_ns = time.time_ns()
        with (
            self._start(["ls-files", "-o", "-z", "--exclude-standard"]) as walking,
            self._start(
                ["diff-files", "-z", "--raw", "--no-renames", "--ignore-submodules=none"]
            ) as comparing,
        ):
            changed, gone = _compared(comparing.result(timeout_s))
            self._trust(began_ns)
            found = command.names(walking.result(timeout_s))
        nested = [name.rstrip(b"/") for name in found if name.endswith(b"/")]
        others = [name for name in found if not name.endswith(b"/")] if nested else found
        closed, too_deep = _CLOSED.findall(walking.messages), _TOO_LONG.findall(walking.messages)
        return Look(changed, gone, others, nested, closed, too_deep)

    def _distrust(self, index: Path) -> None:
        """Make git compare the content of files that changed just before their stat data was taken into the index.

        They may be in the middle of a write. Git does so for files as young as the index: so it is made to look older.
        """
        now_ns = time.time_ns()
        older_ns = min(index.stat().st_mtime_ns, now_ns - self._doubt_ns)
        self._doubted.write_text(str(now_ns))
        os.utime(index, ns=(older_ns, older_ns))

    def _trust(self, looked_ns: int) -> None:
        """The end of that, once a look that began late enough compared them."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            written_ns = int(self._doubted.read_text())
            if abs(looked_ns - written_ns) >= self._doubt_ns:
                os.utime(self.index, ns=(written_ns, written_ns))
                self._doubted.unlink()

    def ignored(self, paths: list[bytes], work_tree: Path | None = None) -> set[bytes]:
        """The paths that git ignores, here or in a folder with other ignore files."""
        self._copy_excludes()
        output = command.run(
            ["check-ignore", "-z", "--stdin", "--no-index"], stdin=command.listed(paths), ok=(0, 1),
            git_dir=self.git_dir, work_tree=work_tree or self.repo.folder, options=self._ignore_words,
        )  # fmt: skip
        return set(command.names(output))

    def matches_user_index(self, saved: TreeEditor) -> bool:
        """Whether the files are what the user's own index says. `saved` are the files that the save has.

        Uses stat data alone, so no filter runs; a file that was only touched counts as different. For files that the
        user told git not to look at, this checks that they have exactly the index's bytes, or are legitimately absent.
        """
        if self.repo.shadow or not self.repo.index.exists():
            return False
        copy = self.index.with_name("index.user")
        self._copy_index(copy)
        variables = {"GIT_INDEX_FILE": str(copy)}
        with (
            self._start(["ls-files", "-o", "-z", "--exclude-standard"], variables=variables) as untracked,
            self._start(
                ["diff-files", "-z", "--name-only", "--ignore-submodules=none"], variables=variables
            ) as changed,
            self._start(["ls-files", "-s", "-v", "-z"], variables=variables) as flagged,
        ):
            if untracked.result() or changed.result():
                return False
            lines = [line for line in command.names(flagged.result()) if not line.startswith(b"H")]
        for line in lines:
            entry, _, path = line.partition(b"\t")
            tag, mode, oid, _ = entry.split()
            found = saved.get(path)
            if found != (int(mode, 8), oid.decode()) and not (found is None and tag in b"Ss"):
                return False
        return True

    def tracked_and_ignored(self) -> list[bytes]:
        """Files that the user's index has although a rule ignores them: a walk does not find them."""
        if self.repo.shadow:
            return []
        try:
            return command.names(self.start_listing().result())
        except SaveFailed:
            if damage.can_be_listed(self.repo, self.repo.index):
                raise
            return []  # a power cut left the index empty, or it is garbage

    def start_listing(self) -> command.Running:
        """Start listing them in the background."""
        words = ["ls-files", "-z", "-c", "-i", "--exclude-standard"]
        return command.Running(words, git_dir=self.repo.git_dir, work_tree=self.repo.folder)

    def _copy_excludes(self) -> None:
        """Copy the ignore rules of the user's repository that are not in the worktree, when they changed."""
        config, exclude = (self.repo.common_dir / name for name in ("config", "info/exclude"))
        stamps = (_stamp(config), _stamp(exclude))
        if self._excludes == stamps:
            return
        rules = exclude.read_bytes() if not self.repo.shadow and exclude.is_file() else b""
        rules += self._own_rule
        place = self.git_dir / "info" / "exclude"
        new = place.with_name(f"exclude.{threading.get_ident()}")  # a watcher's thread may do this as well
        new.write_bytes(rules)
        new.replace(place)
        ignore_file = excludes_file(self.repo)
        self._ignore_words = ["-c", f"core.excludesFile={ignore_file}"] if ignore_file else []
        self._excludes = stamps

    def _start(self, words: list[str], variables: dict[str, str] | None = None) -> command.Running:
        return command.Running(
            words,
            git_dir=self.git_dir,
            work_tree=self.repo.folder,
            variables=variables,
            options=self._ignore_words,
        )

    def _run(
        self,
        words: list[str],
        stdin: bytes | None = None,
        ok: tuple[int, ...] = (0,),
        variables: dict[str, str] | None = None,
    ) -> bytes:
        return command.run(
            words, git_dir=self.git_dir, work_tree=self.repo.folder, stdin=stdin, ok=ok, variables=variables,
            options=self._ignore_words,
        )  # fmt: skip

    # -- beginning -----------------------------------------------------------------------------------------------

    def begin(self) -> list[bytes]:
        """Start anew from the user's index; return the tracked paths whose bytes it does not vouch for."""
        for path in (self.index, self.index.with_name("index.lock")):
            path.unlink(missing_ok=True)
        for shared in self.git_dir.glob("sharedindex.*"):
            shared.unlink()
        if self.repo.shadow or not self.repo.index.exists():
            self._run(["read-tree", "--empty"])
            return []
        self._copy_index(self.index)
        doubtful, dropped = self._unvouched()
        if dropped or doubtful:
            self._run(
                ["update-index", "-z", "--force-remove", "--stdin"],
                stdin=command.listed([*doubtful, *dropped]),
            )
        self._run(["update-index", "-q", "--refresh"], ok=(0, 1))
        self._distrust(self.index)
        return doubtful

    def _copy_index(self, to: Path) -> None:
        """Copy it with its time: entries as young as the index are racy, and git must keep seeing that."""
        for shared in self.repo.git_dir.glob("sharedindex.*"):
            shutil.copy2(shared, self.git_dir / shared.name)
        new = self.index.with_name("index.new")
        shutil.copy2(self.repo.index, new)
        new.replace(to)

    def _unvouched(self) -> tuple[list[bytes], list[bytes]]:
        """Tracked paths whose stat data says nothing about their bytes; and entries that are not files here."""
        doubtful: list[bytes] = []
        dropped: list[bytes] = []
        plain: dict[bytes, tuple[bytes, bytes]] = {}
        listed = self._run(["ls-files", "-z", "-s", "-v", "--debug"])
        attributes = False
        for entry, path, size in _debugged(listed):
            tag, mode, oid, stage = entry.split()
            attributes |= path == b".gitattributes" or path.endswith(b"/.gitattributes")
            if mode == b"160000":
                dropped.append(path)
            elif tag != b"H" or stage != b"0":
                doubtful.append(path)
            else:
                plain[path] = (oid, size)
        converted = self._converted(plain, attributes)
        self.converts = bool(converted)
        guarded = permissions.more_private(os.fsencode(self.repo.folder) + b"/", plain)
        return list(dict.fromkeys([*doubtful, *converted, *guarded])), dropped

    def _converted(self, plain: dict[bytes, tuple[bytes, bytes]], attributes: bool) -> list[bytes]:
        """Paths whose bytes git converts on the way into the repository, so that it has other bytes than the disk."""
        if _converts_all(self.repo):
            return list(plain)
        if not attributes and not _has_attributes(self.repo):
            return self._unequal(plain)
        output = command.run(
            ["check-attr", "-z", "--stdin", *_CONVERSIONS],
            git_dir=self.repo.git_dir, work_tree=self.repo.folder, stdin=command.listed(list(plain)),
        )  # fmt: skip
        fields = command.names(output)
        found = zip(fields[::3], fields[2::3], strict=True)
        return [
            *self._unequal(plain),
            *(path for path, value in found if value not in (b"unspecified", b"unset")),
        ]

    def _unequal(self, plain: dict[bytes, tuple[bytes, bytes]]) -> list[bytes]:
        """Paths whose file has another size than the repository's object, or whose object is missing.

        Git converted them by rules that are gone, or lost the object. Either way only the disk has the bytes.
        """
        stdin = b"".join([oid + b"\n" for oid, _ in plain.values()])
        words = ["cat-file", "--batch-check=%(objectsize)", "--buffer"]
        sizes = command.run(words, git_dir=self.git_dir, stdin=stdin).split(b"\n")
        return [
            path
            for (path, (_, size)), held in zip(plain.items(), sizes, strict=False)
            if size not in (held, b"0")
        ]

    def tree(self, quarantine: Path) -> str:
        """The tree of the private index. New tree objects go to `quarantine`."""
        return write_tree(self.repo, self.index, quarantine)

    # -- keeping up ----------------------------------------------------------------------------------------------

    def take_in(self, entries: dict[bytes, tuple[int, str] | None], index: Path | None = None) -> None:
        """Add what was saved to the private index or to a copy of it, so that the next look need not compare it."""
        index = index or self.index
        gone = "0" * self.repo.algo.hex_length
        lines = [
            b"%06o %s\t%s\0" % (mode_oid[0], mode_oid[1].encode(), path)
            if mode_oid is not None
            else b"0 %s\t%s\0" % (gone.encode(), path)
            for path, mode_oid in entries.items()
        ]
        index.with_name(f"{index.name}.lock").unlink(missing_ok=True)
        variables = {"GIT_INDEX_FILE": str(index)}
        self._run(["update-index", "-z", "--index-info"], stdin=b"".join(lines), variables=variables)
        self._run(["update-index", "-q", "--refresh"], ok=(0, 1), variables=variables)
        self._distrust(index)


def write_tree(repo: Repo, index: Path, quarantine: Path) -> str:
    """The tree of a writable index. Its new objects are loose ones in `quarantine`."""
    return start_write_tree(repo, index, quarantine).result().decode().strip()


def start_write_tree(
    repo: Repo, index: Path, quarantine: Path, ok: tuple[int, ...] = (0,)
) -> command.Running:
    """Start writing it in the background."""
    variables = {"GIT_INDEX_FILE": str(index), **in_quarantine(repo, quarantine)}
    return command.Running(["write-tree", "--missing-ok"], git_dir=repo.git_dir, variables=variables, ok=ok)


def in_quarantine(repo: Repo, quarantine: Path) -> dict[str, str]:
    """Variables that make git read from vault, repository and quarantine, and write only to quarantine."""
    return {"GIT_OBJECT_DIRECTORY": str(quarantine), **repo.seeing()}


def _debugged(listed: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The entries of an index from `ls-files --debug`: five lines about each follow its name."""
    head, *rest = listed.split(b"\0")
    for chunk in rest:
        *_, last, following = chunk.split(b"\n", _DEBUG_LINES)
        entry, _, path = head.partition(b"\t")
        yield entry, path, last.split(b"\t")[0].split()[-1]
        head = following


def _stamp(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        file_stat = path.stat()
        return file_stat.st_mtime_ns, file_stat.st_size
    return None


def _compared(output: bytes) -> tuple[list[bytes], list[bytes]]:
    fields = command.names(output)
    changed: list[bytes] = []
    gone: list[bytes] = []
    for about, path in zip(fields[::2], fields[1::2], strict=True):
        (gone if about.endswith(b" D") else changed).append(path)
    return changed, gone


def _converts_all(repo: Repo) -> bool:
    words = ["config", "--get-regexp", r"^core\.(autocrlf|eol)$"]
    lines = command.run(words, git_dir=repo.git_dir, ok=(0, 1)).decode(errors="replace").lower().splitlines()
    return any(line.split()[-1] not in ("false", "lf", "native") for line in lines if line.split())


def _has_attributes(repo: Repo) -> bool:
    """Whether attributes come from anywhere except the worktree's tracked files."""
    output = command.run(
        ["config", "--type=path", "--get", "core.attributesFile"], git_dir=repo.git_dir, ok=(0, 1)
    )
    known = [
        repo.folder / ".gitattributes",
        repo.common_dir / "info" / "attributes",
        Path(os.fsdecode(output.strip()))
        if output.strip()
        else settings.user_folder().parent / "git" / "attributes",
        Path("/etc/gitattributes"),
    ]
    return any(path.is_file() for path in known)
