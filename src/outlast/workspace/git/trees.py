"""Edits a git tree, touching only the folders on the way, and compares two trees.

Paths are bytes with slashes. Nothing recurses: a path may have more folders than Python has stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from outlast.workspace.git.objects import TREE, Algo, Entry, parse_tree, tree_bytes

CACHE_ENTRIES_MAX = 50_000

Read = Callable[[str], bytes]
ReadMany = Callable[[list[str]], dict[str, bytes]]
Cache = dict[str, dict[bytes, Entry]]
Change = tuple[bytes, Entry | None, Entry | None]
_NOTHING: dict[bytes, Entry] = {}


class _Loader:
    """Reads and parses trees through a cache. Do not change what it returns.

    The cache lives longer than the loader, across saves. The oldest trees are dropped when it has too many entries.
    """

    def __init__(self, read: Read, algo: Algo, cache: Cache | None) -> None:
        self._read = read
        self._algo = algo
        self._cache = cache
        self._held = sum(map(_room, cache.values())) if cache else 0

    def load(self, oid: str) -> dict[bytes, Entry]:
        found = self._cache.get(oid) if self._cache is not None else None
        if found is None:
            found = parse_tree(self._read(oid), self._algo)
            self.keep(oid, found)
        return found

    def load_many(self, oids: list[str], read_many: ReadMany) -> dict[str, dict[bytes, Entry]]:
        """The trees that exist, by object name. Those not known yet are read in one query."""
        cache = self._cache or {}
        found = {oid: cache[oid] for oid in oids if oid in cache}
        missing = [oid for oid in oids if oid not in found]
        for oid, data in read_many(missing).items() if missing else ():
            found[oid] = parse_tree(data, self._algo)
            self.keep(oid, found[oid])
        return found

    def keep(self, oid: str, entries: dict[bytes, Entry]) -> None:
        """Put a tree into the cache, unless it alone is too big."""
        cache = self._cache
        if cache is None or oid in cache or _room(entries) > CACHE_ENTRIES_MAX:
            return
        cache[oid] = entries
        self._held += _room(entries)
        while self._held > CACHE_ENTRIES_MAX and cache:
            self._held -= _room(cache.pop(next(iter(cache))))


def _room(entries: dict[bytes, Entry]) -> int:
    return len(entries) + 1  # an empty tree counts too


class _Folder:
    """A loaded tree. `entries` belongs to the cache until the first change."""

    __slots__ = ("below", "changed", "entries")

    def __init__(self, entries: dict[bytes, Entry]) -> None:
        self.entries = entries
        self.below: dict[bytes, _Folder] = {}
        self.changed = False

    def own(self) -> dict[bytes, Entry]:
        """The entries for changing: our own copy."""
        if not self.changed:
            self.entries = dict(self.entries)
            self.changed = True
        return self.entries


class TreeEditor:
    """A tree being changed. Before `write` it writes nothing, and reads only the folders on the way."""

    def __init__(self, base: str | None, read: Read, algo: Algo, cache: Cache | None = None) -> None:
        self._loader = _Loader(read, algo, cache)
        self._root = _Folder(self._loader.load(base) if base is not None else _NOTHING)

    def prefetch(self, paths: Iterable[bytes], read_many: ReadMany) -> None:
        """Read the folders on the way to these paths, each level at once. Missing ones are left out."""
        ways = {tuple(_parts(path)[:-1]) for path in paths}
        here = [(self._root, way) for way in ways if way]
        while here:
            oids = [entry.oid for folder, way in here if (entry := self._unread(folder, way[0])) is not None]
            read = self._loader.load_many(list(dict.fromkeys(oids)), read_many)
            for folder, way in here:
                entry = self._unread(folder, way[0])
                if entry is not None and entry.oid in read:
                    folder.below[way[0]] = _Folder(read[entry.oid])
            here = [
                (folder.below[way[0]], way[1:]) for folder, way in here if way[1:] and way[0] in folder.below
            ]

    @staticmethod
    def _unread(folder: _Folder, name: bytes) -> Entry | None:
        entry = folder.entries.get(name)
        return entry if entry is not None and entry.mode == TREE and name not in folder.below else None

    def put(self, path: bytes, mode: int, oid: str) -> None:
        """Set a path. It replaces a file on the way by a folder, and a folder at the path by the file."""
        *folders, name = _parts(path)
        here = self._root
        for part in folders:
            here = self._below(here, part) or self._make(here, part)
        entry = Entry(mode, oid)
        if here.entries.get(name) == entry and name not in here.below:
            return
        here.own()[name] = entry
        here.below.pop(name, None)

    def remove(self, path: bytes) -> bool:
        """Remove a file, or a folder with everything below, and folders that become empty; False if it did not exist."""
        *folders, name = _parts(path)
        way = [self._root]
        for part in folders:
            below = self._below(way[-1], part)
            if below is None:
                return False
            way.append(below)
        if name not in way[-1].entries:
            return False
        for here, part in zip(reversed(way), reversed([*folders, name]), strict=True):
            del here.own()[part]
            here.below.pop(part, None)
            if here.entries:
                break
        return True

    def get(self, path: bytes) -> Entry | None:
        """The entry at a path; a folder with unwritten changes below has an empty oid."""
        *folders, name = _parts(path)
        here = self._folder(folders)
        if here is None:
            return None
        entry = here.entries.get(name)
        if entry is not None and name in here.below and _is_changed(here.below[name]):
            return Entry(TREE, "")
        return entry

    def walk(self, prefix: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
        """Every file at or below a path, folder by folder. Do not change the editor meanwhile."""
        if prefix and (entry := self.get(prefix)) and entry.mode != TREE:
            yield prefix, entry
        here = self._folder(_parts(prefix) if prefix else [])
        todo = [(prefix and prefix + b"/", here)] if here is not None else []
        while todo:
            path, folder = todo.pop()
            for name, entry in folder.entries.items():
                if entry.mode == TREE:
                    below = folder.below.get(name) or _Folder(self._loader.load(entry.oid))
                    todo.append((path + name + b"/", below))
                else:
                    yield path + name, entry

    def write(self, add: Callable[[str, bytes], str]) -> str:
        """Pass every changed tree to `add(kind, data)`, lower ones first; return the root's oid. Editing may go on."""
        order = [(self._root, self._root, b"")]
        for folder, _, _ in order:  # the list grows meanwhile: every folder comes after its parent
            order.extend((below, folder, name) for name, below in folder.below.items())
        oid = ""
        for folder, above, name in reversed(order):
            if folder.changed or folder is self._root:
                oid = add("tree", tree_bytes(folder.entries))
                folder.changed = False
                self._loader.keep(oid, folder.entries)
                if folder is not self._root:
                    above.own()[name] = Entry(TREE, oid)
        return oid

    def _folder(self, parts: list[bytes]) -> _Folder | None:
        here: _Folder | None = self._root
        for part in parts:
            here = self._below(here, part) if here is not None else None
        return here

    def _below(self, here: _Folder, name: bytes) -> _Folder | None:
        found = here.below.get(name)
        if found is None:
            entry = here.entries.get(name)
            if entry is not None and entry.mode == TREE:
                found = here.below[name] = _Folder(self._loader.load(entry.oid))
        return found

    @staticmethod
    def _make(here: _Folder, name: bytes) -> _Folder:
        """An empty folder in place of nothing or of a file; `put` fills it at once."""
        here.own()[name] = Entry(TREE, "")
        made = here.below[name] = _Folder(_NOTHING)
        made.own()
        return made


def _is_changed(folder: _Folder) -> bool:
    todo = [folder]
    for here in todo:
        if here.changed:
            return True
        todo.extend(here.below.values())
    return False


def _parts(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    assert not {b"", b".", b".."} & set(parts), f"not a path inside a tree: {path!r}"
    return parts


def diff(
    a: str | None, b: str | None, read: Read, algo: Algo, cache: Cache | None = None
) -> Iterator[Change]:
    """Every file that differs: path, entry in `a`, entry in `b`. Equal subtrees are not read; None is the empty tree."""
    load = _Loader(read, algo, cache).load
    todo = [(b"", a, b)] if a != b else []
    while todo:
        path, old_oid, new_oid = todo.pop()
        old = load(old_oid) if old_oid is not None else _NOTHING
        new = load(new_oid) if new_oid is not None else _NOTHING
        for name in sorted(old.keys() | new.keys()):
            was, now = old.get(name), new.get(name)
            if was == now:
                continue
            old_file, old_tree = _either(was)
            new_file, new_tree = _either(now)
            if old_file is not None or new_file is not None:
                yield path + name, old_file, new_file
            if old_tree is not None or new_tree is not None:
                todo.append((path + name + b"/", old_tree, new_tree))


def _either(entry: Entry | None) -> tuple[Entry | None, str | None]:
    """A file's entry, or a tree's oid, or neither."""
    if entry is None:
        return None, None
    return (None, entry.oid) if entry.mode == TREE else (entry, None)
