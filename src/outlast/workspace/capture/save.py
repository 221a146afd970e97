"""One save in progress: reads what changed into a pack, and ties it together in three commits. See `Saver.capture`."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from outlast import faults
from outlast.errors import SaveDamaged, SaveFailed
from outlast.store import locks
from outlast.workspace import repo, rules, saves
from outlast.workspace.capture import meta as capture_meta, refresh_index, stat_cache
from outlast.workspace.capture.files import Deadline, Findings, Reader
from outlast.workspace.capture.hints import (
    HintedFiles,
    HintTracker,
    NotEnough,
    find,
    is_lasting,
    left_out_again,
    room_taken,
    young_files,
)
from outlast.workspace.capture.meta import named_objects
from outlast.workspace.capture.private_index import Look, PrivateIndex, in_quarantine
from outlast.workspace.capture.quarantine import Quarantine
from outlast.workspace.capture.special import (
    damage,
    modules,
    nested_repos,
    permissions,
    secrets as special_secrets,
    submodules,
)
from outlast.workspace.capture.special.git_folder import GitFolder
from outlast.workspace.capture.special.secret_files import SecretFiles
from outlast.workspace.capture.user_index import UserIndex
from outlast.workspace.git import command, objects, refs
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.trees import TreeEditor
from outlast.workspace.types import (
    Meta,
    Module,
    NestedRepo,
    Purpose,
    Save,
    SavePreview,
    Secret,
    message_of,
    raw,
    text,
)
from outlast.workspace.vault import bring_in, partial as partial_clone
from outlast.workspace.vault.bring_in import BringIn, Tips

if TYPE_CHECKING:
    from outlast.workspace.capture.saver import Saver

TAKE_IN_AT_ONCE = 5_000


class SaveInProgress:
    """One save in progress: see `Saver` for what it consists of."""

    def __init__(
        self,
        saver: "Saver",
        purpose: Purpose,
        deadline: Deadline,
        hinting: HintTracker | None,
        also: frozenset[bytes] = frozenset(),
        apart: frozenset[bytes] = frozenset(),
    ) -> None:
        self._saver, self._purpose, self._deadline, self._hinting = saver, purpose, deadline, hinting
        self._hinted = False  # whether this save used hints alone
        self._repo, self._base = saver.repo(), saver.base()
        self._findings = Findings()
        self._quarantine = Quarantine(saver.private, saver.reader())
        self._index = UserIndex(self._repo, self._quarantine, purpose.run)
        self._tracked: list[bytes] = []
        self._outdated: list[tuple[PrivateIndex, stat_cache.Area]] = []  # indexes to update at the end
        self._secret_files = SecretFiles(saver.limits.not_secret)
        self._requested = special_secrets.sort_requested(self._secret_files, self._root, also, apart)
        self._head = repo.head(self._repo)
        # A changed index may change what is saved of these, although no file changed.
        self._excused: set[bytes] = set()
        self._listing: tuple[stat_cache.Stamp, command.Running] | None = None
        self._written = False
        self._moved = (
            False  # HEAD, index or a merge's names changed: the vault may lack objects of the user's
        )

    @property
    def _root(self) -> bytes:
        return os.fsencode(self._repo.folder) + b"/"

    def make(self) -> Save | None:
        """Make the save, durable; None if there is nothing to save."""
        known = self._remembered()
        with (
            PackWriter(self._repo.packs, self._repo.algo, lazy=True, known=self._is_saved) as pack,
            self._quarantine.opened(),
        ):
            memory = known if known is not None else self._begin(pack)
            self._findings.ages = stat_cache.FileAges(memory)
            self._check_head(memory)
            self._editor = TreeEditor(
                memory.tree or None, self._quarantine.read, self._repo.algo, self._saver.trees
            )
            self._findings.modes = permissions.Modes(
                memory, self._quarantine.read, self._repo.algo, self._saver.trees
            )
            self._start_listing(memory)
            self._moved = self._index.take(memory, pack, self._head.oid)
            if known is None or not self._take_hinted(memory, pack):
                prefixes = self._take_files(memory, pack)
                self._judge(memory, comparable=known is not None)
                memory.insides = self._take_inside(memory, pack, prefixes)
            quiet = self._hinted and not self._findings.changed
            tree = memory.tree if quiet else self._editor.write(pack.add)
            memory.modes = self._findings.modes.write(pack, self._editor, self._root)
            secrets = self._keep_secrets(memory)
            save = self._finish(memory, pack, tree, memory.insides, secrets)
        if save is None:  # what was read is in no pack, so it must be read again
            self._saver.forget()
        else:
            self._remember(memory)
        return save

    def _is_saved(self, oid: str) -> bool:
        """Whether an object need not be written, as a file is only read again."""
        return self._findings.ages.is_saved(oid)

    def _remembered(self) -> stat_cache.Memo | None:
        """What the last save found; nothing if it went by other rules about secrets."""
        known = self._saver.remembered()
        return known if known is None or known.not_secret == list(self._saver.limits.not_secret) else None

    def _keep_secrets(self, memory: stat_cache.Memo) -> tuple[Secret, ...]:
        found = self._findings
        found.secrets |= self._requested.apart
        found.kinds = self._requested.kinds | found.kinds
        secrets, failed = special_secrets.save_secrets(
            self._saver.private, self._root, found.secrets, memory, self._findings.ages
        )
        for path, file_stat in found.secrets.items():
            why = failed.get(path) or rules.apart_reason(found.kinds.get(path, ""))
            found.leave(path, why, file_stat.st_size)
        found.left_out.sort(key=lambda left: left.path)
        return secrets

    def _remember(self, memory: stat_cache.Memo) -> None:
        found = self._findings
        idle = (
            self._hinted
            and not (found.changed or self._moved or self._written)
            and memory.left_out == found.left_out
        )
        memory.left_out = found.left_out
        if self._outdated:
            self._saver.unremember()
            for base, area in self._outdated:
                refresh_index.take_in(base, area)
        if not idle:
            self._saver.remember(memory)
        if self._hinting is not None:
            self._hinting.done(looked=not self._hinted)
        files, size = self._saver.room if self._hinted else (0, 0)
        self._saver.room = (files + found.room[0], size + found.room[1])

    def peek(self) -> SavePreview:
        """The tree a save would have. Writes and remembers nothing."""
        known = self._remembered()
        with (
            PackWriter(self._repo.packs, self._repo.algo, lazy=True, known=self._is_saved) as pack,
            self._quarantine.opened(),
        ):
            memory = known if known is not None else self._begin(pack)
            self._findings.ages = stat_cache.FileAges(memory)
            self._editor = TreeEditor(memory.tree or None, self._quarantine.read, self._repo.algo)
            self._findings.modes = permissions.Modes(
                memory, self._quarantine.read, self._repo.algo, self._saver.trees
            )
            self._start_listing(memory)
            self._take_files(memory, pack)

            found = self._findings
            tree = self._editor.write(partial(self._quarantine.hold, pack))
            return SavePreview(tree, tuple(found.left_out), frozenset(found.secrets), self._quarantine.held)

    def _begin(self, pack: PackWriter) -> stat_cache.Memo:
        """Nothing is remembered: begin with the user's index, unless a power cut left it without its objects."""
        self._saver.unremember()  # the memo would belong to another private index than the new one
        memory = permissions.begin(self._repo, self._saver.reader(), self._purpose.run)
        memory.not_secret = list(self._saver.limits.not_secret)
        try:
            nested_repos.forget(self._saver.private)
            damage.check_index(self._repo, self._repo.index)
            self._tracked = self._base.begin()
            if self._base.index_is_there:
                self._quarantine.place.mkdir()
                memory.tree = self._base.tree(self._quarantine.place)
                self._quarantine.collect(pack)
                memory.lost = not self._is_whole(memory.tree)
        except (SaveFailed, SaveDamaged):
            if damage.can_be_listed(self._repo, self._repo.index):
                raise
            memory.lost = True
        if memory.lost:
            memory.tree, self._tracked = "", []
            self._base.drop()
        return memory

    def _is_whole(self, tree: str) -> bool:
        tips = [tree, self._head.oid] if self._head.oid else [tree]
        return damage.is_whole(
            self._repo, tips, self._index.vouching(), in_quarantine(self._repo, self._quarantine.place)
        )

    def _check_head(self, memory: stat_cache.Memo) -> None:
        """A save cannot hold a commit that a power cut left without its objects: treat HEAD as unborn."""
        head = self._head
        if memory.lost and head.oid and not damage.is_whole(self._repo, [head.oid], self._index.vouching()):
            self._head = repo.Head("", head.branch or "refs/heads/lost")

    # -- files ---------------------------------------------------------------------------------------------------

    def _take_hinted(self, memory: stat_cache.Memo, pack: PackWriter) -> bool:
        """Read only what hints name; False if that is not enough. Final saves look at everything if there is time."""
        if (
            self._hinting is None
            or memory.lost
            or (self._purpose.kind != "beat" and not self._deadline.is_short())
        ):
            return False
        try:
            paths = self._hinting.take()
            if self._listing is not None:
                paths |= self._newly_tracked(memory)
            paths |= {
                raw(left.path)
                for left in memory.left_out
                if not is_lasting(left.why) and left.path[-1] != "/"
            }
            paths = paths.union(young_files(memory))
            self._editor.prefetch(paths, self._quarantine.read_many)
            named = (
                find(paths, self._root, self._base, self._editor, memory)
                if paths
                else HintedFiles({}, [], set())
            )
            self._findings.room = room_taken(named, self._saver.room, self._editor, memory)
        except NotEnough:
            return False
        reader = self._reader(memory, b"", self._base, pack)
        reader.take_paths(named.there, named.gone, set(memory.forced))
        lasting, secret_ones = left_out_again(memory, named.seen, self._root)
        self._findings.left_out += lasting
        self._findings.secrets |= {path: file_stat for path, (file_stat, _) in secret_ones.items()}
        self._findings.kinds |= {path: kind for path, (_, kind) in secret_ones.items()}
        self._update_later(memory.areas[b""], self._base)
        self._hinted = True
        return True

    def _newly_tracked(self, memory: stat_cache.Memo) -> set[bytes]:
        """What a changed index may add without a change of files: tracked files are saved, whatever the rules say."""
        before = set(memory.forced)
        self._list_forced(memory)
        if self._saver.skips_wrongly(memory.forced) or any(
            left.path.endswith("/") for left in memory.left_out
        ):
            raise NotEnough("the index changed what must be looked at")
        return {raw(left.path) for left in memory.left_out} | before.symmetric_difference(memory.forced)

    def _start_listing(self, memory: stat_cache.Memo) -> None:
        stamp = self._index.stamp()
        self._excused = {
            *memory.forced,
            *self._requested.plain,
            *(raw(left.path) for left in memory.left_out),
        }
        if stamp is not None and stamp != memory.forced_stamp:
            self._listing = (stamp, self._quarantine.started(self._base.start_listing()))

    def _list_forced(self, memory: stat_cache.Memo) -> None:
        if self._listing is not None:
            (memory.forced_stamp, listing), self._listing = self._listing, None
            try:
                damage.check_index(self._repo, self._repo.index)
                memory.forced = command.names(listing.result())
            except SaveFailed:
                if damage.can_be_listed(self._repo, self._repo.index):
                    raise
        elif self._index.stamp() is None:
            memory.forced, memory.forced_stamp = [], None

    def _judge(self, memory: stat_cache.Memo, *, comparable: bool) -> None:
        """Check whether this look at everything found changes that hints should have named."""
        if self._hinting is None:
            return
        found = [path for path in self._findings.changed if not _is_in(path, memory.areas)]
        self._findings.missed = self._hinting.judge(
            found if comparable else [], self._excused.union(memory.forced)
        )
        if self._saver.skips_wrongly(memory.forced):
            self._saver.skip_less(memory.forced)

    def _take_files(self, memory: stat_cache.Memo, pack: PackWriter) -> list[bytes]:
        """Read everything that changed, here and in nested repositories; return where those are."""
        if self._hinting is not None:
            self._hinting.look()
        look = self._base.look(self._deadline.left_s())
        self._list_forced(memory)
        inside = nested_repos.find(self._repo, self._saver.private, look, self._deadline)
        for key in [key for key in memory.areas if key and key.removesuffix(b".git/") not in inside]:
            self._leave(memory, key)
        self._area(memory, b"", self._base, look, pack, [*self._tracked, *memory.forced])
        for prefix, (base, found) in inside.items():
            self._area(memory, prefix, base, found, pack, nested_repos.tracked_and_ignored(base.repo))
        return list(inside)

    def _leave(self, memory: stat_cache.Memo, key: bytes) -> None:
        """A nested repository that is gone: its place is read again, as plain files."""
        del memory.areas[key]
        self._editor.remove(key.rstrip(b"/"))
        self._findings.modes.drop_all(key.rstrip(b"/"))
        nested_repos.forget(self._saver.private, key)
        for prefix, area in memory.areas.items():
            if key.startswith(prefix):
                for path in [path for path in area.entries if (prefix + path).startswith(key)]:
                    del area.entries[path]

    def _area(
        self,
        memory: stat_cache.Memo,
        prefix: bytes,
        base: PrivateIndex,
        look: Look,
        pack: PackWriter,
        tracked: Sequence[bytes],
    ) -> None:
        self._editor.prefetch(
            [prefix + path for path in (*look.changed, *look.gone, *look.others)], self._quarantine.read_many
        )
        also = [
            path.removeprefix(prefix)
            for path in self._requested.plain
            if _innermost(path, memory.areas) == prefix
        ]
        self._reader(memory, prefix, base, pack).take(look, [*tracked, *also])
        self._update_later(memory.areas[prefix], base)

    def _reader(self, memory: stat_cache.Memo, prefix: bytes, base: PrivateIndex, pack: PackWriter) -> Reader:
        area = memory.areas.setdefault(prefix, stat_cache.Area())
        return Reader(
            base, prefix, area, pack, self._editor, self._findings, self._saver.limits, self._deadline, memory.digests,
            self._secret_files,
        )  # fmt: skip

    def _update_later(self, area: stat_cache.Area, base: PrivateIndex) -> None:
        """Update the index within the save only if nobody does it between two saves."""
        limit = TAKE_IN_AT_ONCE if base is self._base else refresh_index.TAKE_IN_ABOVE
        if area.exceeds(limit):
            self._outdated.append((base, area))

    # -- nested repositories -----------------------------------------------------------------------------------

    def _take_inside(
        self, memory: stat_cache.Memo, pack: PackWriter, prefixes: Sequence[bytes]
    ) -> tuple[NestedRepo, ...]:
        """The git folders of nested repositories, as one tree."""
        if not prefixes:
            memory.inside, self._findings.modules = "", []
            return ()
        editor = TreeEditor(memory.inside or None, self._quarantine.read, self._repo.algo)
        self._findings.modules = []
        folder = GitFolder(self._repo, memory, pack, self._findings, self._quarantine.read)
        found = [folder.take(prefix, editor) for prefix in prefixes]
        memory.inside = editor.write(pack.add)
        return tuple(inside for inside in found if inside is not None)

    # -- the commits ---------------------------------------------------------------------------------------------

    def _finish(
        self,
        memory: stat_cache.Memo,
        pack: PackWriter,
        tree: str,
        inside: tuple[NestedRepo, ...],
        secrets: tuple[Secret, ...],
    ) -> Save | None:
        progress = self._saver.progress().files()
        rest = self._rest(memory, progress, secrets)
        purpose = self._purpose
        chmodded = self._findings.modes.changed
        if purpose.if_dirty and not chmodded and not self._is_dirty(memory, tree, progress):
            memory.tree = memory.tree or tree
            return None
        gist = self._rest(memory, progress, secrets, index=memory.index_tree + memory.stages)
        if purpose.if_changed and memory.commit and (memory.tree, memory.gist) == (tree, gist):
            return None
        same = (memory.tree, memory.rest, memory.run) == (tree, rest, purpose.run) and memory.commit
        if same and purpose.kind == "beat" and not self._findings.missed:
            return self._save(memory.commit, memory.ref, stat_cache.now())
        save = self._write(memory, pack, tree, rest, progress, inside, secrets)
        memory.gist = gist
        return save

    def _rest(
        self,
        memory: stat_cache.Memo,
        progress: dict[bytes, bytes],
        secrets: tuple[Secret, ...],
        index: str = "",
    ) -> str:
        """One digest of everything in a save except the worktree's tree."""
        beside, left_out = (memory.inside, memory.modes), self._findings.left_out
        parts = [self._head, index or memory.index_oid, beside, sorted(progress.items()), secrets, left_out]
        return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=16).hexdigest()

    def _is_dirty(self, memory: stat_cache.Memo, tree: str, progress: dict[bytes, bytes]) -> bool:
        """Whether there is anything that HEAD does not have."""
        empty = objects.oid_of("tree", b"", self._repo.algo)
        if self._repo.shadow:
            return tree != empty and tree != memory.tree
        if (
            memory.lost
            or memory.unreadable
            or self._findings.left_out
            or any(name != repo.RESTING for name in progress)
        ):
            return True
        held = self._index.tree_of(self._head.oid) if self._head.oid else empty
        if memory.index_tree != held:
            return True
        if memory.insides:
            return tree != submodules.clean_tree(
                self._repo, held, memory.links, memory.insides, self._quarantine.read
            )
        return tree != held and not self._base.matches_user_index(self._editor)

    def _write(
        self,
        memory: stat_cache.Memo,
        pack: PackWriter,
        tree: str,
        rest: str,
        progress: dict[bytes, bytes],
        inside: tuple[NestedRepo, ...],
        secrets: tuple[Secret, ...],
    ) -> Save:
        purpose, at = self._purpose, stat_cache.now()
        previous, number = self._previous(memory)
        warning = self._warning(memory)
        inner = self._anchor_modules(memory, pack, at)
        meta = Meta(
            kind=purpose.kind, at=at, looked_at=self._findings.since, number=number + 1, run=purpose.run, task=purpose.task, reason=purpose.reason,
            beat=purpose.beat, seq=purpose.seq, folder=text(self._repo.folder), head=self._head.oid, branch=self._head.branch,
            index=bool(memory.index_oid), shadow=self._repo.shadow, boot_id=locks.boot_id(),
            hinted=self._hinted, left_out=tuple(self._findings.left_out), secrets=secrets, inside=inside + nested_repos.empty_links(self._repo, memory.links, inside),
            removed=self._findings.removed, warning=warning, umask=f"{memory.umask:03o}", modules=memory.modules,
            linked=self._repo.git_dir != self._repo.common_dir,
        )  # fmt: skip
        held, named = named_objects(self._saver.reader(), progress) if not memory.lost else ({}, [])
        objects_named = sorted([*named, *(entry.oid for entry in held.values())])
        self._moved = self._moved or memory.named != objects_named
        moved = self._moved or memory.head != self._head.oid or not memory.commit
        if moved:
            memory.repository = capture_meta.repository(self._repo, self._head, pack)
        entries = capture_meta.entries(self._repo, memory, pack, meta, progress) | held
        head = [self._head.oid] if self._head.oid else []
        message = message_of(purpose)

        def commit(tree: str, parents: list[str], text: str) -> str:
            return pack.add("commit", objects.commit_bytes(tree, parents, objects.WHO, at, text))

        beside = [*previous, *named, *filter(None, [memory.modules])]
        m = commit(pack.add("tree", objects.tree_bytes(entries)), beside, f"meta of: {message}")
        i = commit(memory.index_tree, [*head, m], f"index of: {message}")
        w = commit(tree, [*head, i], message)
        brought = None
        if moved:
            index_tree = memory.index_tree
            brought = self._bring_in(pack, [*head, *objects_named], index_tree, previous, inner)
        pack.close()
        if brought is not None:
            brought.done()
        ref = self._ref(at)
        self._saver.unremember()
        self._written = True
        faults.point("save.before_ref")
        refs.write_ref(self._repo.vault, ref, w, old=refs.ANY)
        faults.point("save.ref_written")
        memory.commit, memory.tree, memory.rest, memory.ref = w, tree, rest, ref
        memory.run, memory.number, memory.head = purpose.run, number + 1, self._head.oid
        memory.named, memory.place = objects_named, self._saver.place_stamp()
        return self._save(w, ref, at, warning)

    def _anchor_modules(self, memory: stat_cache.Memo, pack: PackWriter, at: datetime) -> list[Module]:
        """The submodules; a commit is remembered that reaches what they need."""
        found = self._findings.modules
        if found is None:  # a hinted save found none of them changed
            tree = TreeEditor(memory.inside or None, self._quarantine.read, self._repo.algo)
            found = modules.in_save(self._repo.folder, memory.insides, tree, self._quarantine.read)
        if memory.modules_in != memory.inside or not memory.commit:
            memory.modules, memory.modules_in = modules.commit_of(found, pack, at), memory.inside
            self._moved = self._moved or bool(found)
        return found

    def _bring_in(
        self,
        pack: PackWriter,
        named: Sequence[str],
        index_tree: str,
        known: Sequence[str],
        inner: Sequence[Module],
    ) -> BringIn | None:
        """Bring what this save reaches in the user's repository into the vault; its loose objects into our pack."""
        place, has = self._repo, self._saver.vault_reader()
        if place.shadow:
            return None
        copy = self._quarantine.place / "index-copy"
        index = next((path for path in (copy, place.index) if path.exists()), None)
        tips = [Tips(place.git_dir, place.common_dir, named, index, known)]
        tips += [Tips(each.git_dir, each.git_dir, list(each.needs), None, known) for each in inner]
        wanted = {*named, index_tree}.union(*(each.needs for each in inner))
        for _ in range(2):
            brought = BringIn(place.vault, place.algo, has, tips)
            brought.take(pack)
            lacking = has.lacking([oid for oid in wanted if not pack.holds(oid)])
            if not lacking:
                return brought
            bring_in.forget(place.vault)  # and look at everything
        raise SaveFailed(
            f"the repository of {place.folder} lacks object {lacking[0]}, which the save needs",
            hint="see `git fsck` there",
        )

    def _save(self, commit: str, ref: str, at: datetime, warning: str = "") -> Save:
        found = self._findings
        return Save(
            commit, ref, self._purpose.kind, at, self._purpose.reason, self._hinted, tuple(found.left_out),
            text(self._repo.folder), found.taken, found.removed, warning,
        )  # fmt: skip

    def _previous(self, memory: stat_cache.Memo) -> tuple[list[str], int]:
        """The newest save of this run, which the new save keeps reachable, and its number."""
        if memory.commit and memory.run == self._purpose.run:
            return [memory.commit], memory.number
        found = saves.newest(self._repo, self._saver.reader(), self._purpose.run)
        return ([found.commit], found.meta.number) if found is not None else ([], 0)

    def _warning(self, memory: stat_cache.Memo) -> str:
        warning = capture_meta.warning(
            memory, self._findings, self._editor, self._findings.missed, self._repo
        )
        begins = not memory.commit and self._head.oid  # later saves lack no more than the first
        return "; ".join(
            filter(None, [warning, partial_clone.warning(self._repo, [self._head.oid]) if begins else ""])
        )

    def _ref(self, at: datetime) -> str:
        name = ref = saves.ref_of(self._purpose.run, self._purpose.kind, at)
        number = 1
        while self._purpose.kind != "beat" and refs.read_ref(self._repo.vault, ref) is not None:
            number += 1
            ref = f"{name}-{number}"
        return ref


def _innermost(path: bytes, areas: Iterable[bytes]) -> bytes:
    """The nested repository that a path is in; the workspace itself is the empty path."""
    return max((key for key in areas if path.startswith(key)), key=len, default=b"")


def _is_in(path: bytes, areas: Iterable[bytes]) -> bool:
    """Whether a path is in a nested repository, for which hints only say that something changed."""
    return any(key and path.startswith(key) for key in areas)
