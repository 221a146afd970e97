from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from outlast.workspace.git import trees
from outlast.workspace.git.objects import EXEC, FILE, LINK, SHA1, TREE, Entry, oid_of
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.trees import TreeEditor
from tests.support import sweeps
from tests.workspace.gitrepo import GitRepo

Files = dict[bytes, Entry]
NAMES = st.sampled_from(
    [b"a", b"a.b", b"a-b", b"a0", b"b", b"a\n", b"\xff\xfe", b" ", b"a ", b'"', b"\\", b"\x01"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(b"/".join)
ENTRIES = st.builds(
    lambda mode, text: Entry(mode, oid_of("blob", text, SHA1)),
    st.sampled_from([FILE, EXEC, LINK]),
    st.sampled_from([b"1", b"2", b"3"]),
)
EDITS = st.lists(st.tuples(PATHS, st.none() | ENTRIES), max_size=20)


class Objects(dict[str, bytes]):
    """Where trees are written, in memory; counts what is read."""

    reads = 0

    def add(self, kind: str, data: bytes) -> str:
        oid = oid_of(kind, data, SHA1)
        self[oid] = data
        return oid

    def read(self, oid: str) -> bytes:
        self.reads += 1
        return self[oid]


def _put(files: Files, path: bytes, entry: Entry) -> None:
    """What putting a file means, on a plain mapping."""
    _remove(files, path)
    for at, byte in enumerate(path):
        if byte == ord("/"):
            files.pop(path[:at], None)
    files[path] = entry


def _remove(files: Files, path: bytes) -> None:
    for name in [name for name in files if name == path or name.startswith(path + b"/")]:
        del files[name]


def _apply(edits: list[tuple[bytes, Entry | None]], editor: TreeEditor, files: Files) -> None:
    for path, entry in edits:
        if entry is None:
            assert editor.remove(path) == any(name == path or name.startswith(path + b"/") for name in files)
            _remove(files, path)
        else:
            editor.put(path, *entry)
            _put(files, path, entry)


def _written(files: Files) -> tuple[str, Objects]:
    store = Objects()
    editor = TreeEditor(None, store.read, SHA1)
    for path, entry in files.items():
        editor.put(path, *entry)
    return editor.write(store.add), store


def test_any_edits_end_as_the_tree_that_git_lists(repo: GitRepo) -> None:
    for text in (b"1", b"2", b"3"):
        repo.git("hash-object", "-w", "--stdin", stdin=text)

    def convert(entry: Entry) -> Entry:
        texts = {oid_of("blob", text, SHA1): oid_of("blob", text, repo.algo) for text in (b"1", b"2", b"3")}
        return Entry(entry.mode, texts[entry.oid])

    def read(oid: str) -> bytes:
        return repo.git("cat-file", "tree", oid)

    cache: trees.Cache = {}

    @settings(max_examples=sweeps.examples(25))
    @given(EDITS, EDITS)
    def check(first: list[tuple[bytes, Entry | None]], second: list[tuple[bytes, Entry | None]]) -> None:
        files: Files = {}
        base = None
        for edits in (first, second):
            editor = TreeEditor(base, read, repo.algo, cache)
            _apply([(path, entry and convert(entry)) for path, entry in edits], editor, files)
            with PackWriter(repo.packs, repo.algo) as pack:
                base = editor.write(pack.add)
                pack.close()
            lines = repo.git("ls-tree", "-r", "-z", base).split(b"\0")[:-1]
            listed = {line.split(b"\t", 1)[1]: line.split(b"\t", 1)[0].split() for line in lines}
            assert listed == {
                path: [b"%06o" % entry.mode, b"blob", entry.oid.encode()] for path, entry in files.items()
            }

    check()
    repo.fsck()
    repo.verify_packs()


class Editing(RuleBasedStateMachine):
    """Edits, looks and writes in any order agree with a plain mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Objects()
        self.cache: trees.Cache = {}
        self.editor = TreeEditor(None, self.store.read, SHA1, self.cache)
        self.files: Files = {}

    @rule(path=PATHS, entry=ENTRIES)
    def put(self, path: bytes, entry: Entry) -> None:
        self.editor.put(path, *entry)
        _put(self.files, path, entry)

    @rule(path=PATHS)
    def remove(self, path: bytes) -> None:
        _apply([(path, None)], self.editor, self.files)

    @rule(path=PATHS)
    def look(self, path: bytes) -> None:
        below = {name: entry for name, entry in self.files.items() if name.startswith(path + b"/")}
        found = self.editor.get(path)
        if below:
            assert found is not None
            assert found.mode == TREE
        else:
            assert found == self.files.get(path)
        at = {path: self.files[path]} if path in self.files else {}
        assert dict(self.editor.walk(path)) == below | at

    @rule(path=PATHS)
    def graft(self, path: bytes) -> None:
        """Put a whole tree that was written before."""
        inner = {
            b"x/y": Entry(FILE, oid_of("blob", b"1", SHA1)),
            b"z": Entry(LINK, oid_of("blob", b"2", SHA1)),
        }
        oid, store = _written(inner)
        self.store.update(store)
        self.editor.put(path, TREE, oid)
        _put(self.files, path, Entry(TREE, oid))
        del self.files[path]
        self.files.update({path + b"/" + name: entry for name, entry in inner.items()})

    @rule(again=st.booleans())
    def write(self, again: bool) -> None:
        oid = self.editor.write(self.store.add)
        assert oid == _written(self.files)[0]
        if again:
            self.editor = TreeEditor(oid, self.store.read, SHA1, self.cache)

    @invariant()
    def walks_the_same(self) -> None:
        assert dict(self.editor.walk()) == self.files


def test_edits_looks_and_writes_in_any_order_agree_with_a_plain_mapping() -> None:
    run_state_machine_as_test(
        Editing, settings=settings(max_examples=sweeps.examples(100), stateful_step_count=25, deadline=None)
    )


@given(EDITS, EDITS)
def test_the_difference_of_two_trees_turns_one_into_the_other(
    first: list[tuple[bytes, Entry | None]], second: list[tuple[bytes, Entry | None]]
) -> None:
    old: Files = {}
    _apply(first, TreeEditor(None, {}.__getitem__, SHA1), old)
    new = dict(old)
    for path, entry in second:
        _remove(new, path) if entry is None else _put(new, path, entry)
    (a, store), (b, others) = _written(old), _written(new)
    store.update(others)
    changes = list(trees.diff(a, b, store.read, SHA1))
    assert {path: (was, now) for path, was, now in changes} == {
        path: (old.get(path), new.get(path)) for path in old | new if old.get(path) != new.get(path)
    }
    assert len({path for path, _, _ in changes}) == len(changes)
    assert {path: was for path, was, _ in trees.diff(a, None, store.read, SHA1)} == old


def _wide(folders: int, files: int) -> Iterator[tuple[bytes, Entry]]:
    entry = Entry(FILE, oid_of("blob", b"", SHA1))
    for folder in range(folders):
        for file in range(files):
            yield b"%d/%d" % (folder, file), entry


def test_an_edit_reads_and_writes_only_the_trees_on_its_way() -> None:
    base, store = _written(dict(_wide(30, 5)))
    wrote: list[bytes] = []

    def add(kind: str, data: bytes) -> str:
        wrote.append(data)
        return store.add(kind, data)

    editor = TreeEditor(base, store.read, SHA1)
    editor.put(b"7/new", FILE, oid_of("blob", b"x", SHA1))
    changed = editor.write(add)
    assert (store.reads, len(wrote)) == (2, 2)
    store.reads = 0
    assert [path for path, _, _ in trees.diff(base, changed, store.read, SHA1)] == [b"7/new"]
    assert store.reads == 4


def test_an_edit_that_changes_nothing_gives_the_same_tree() -> None:
    base, store = _written(dict(_wide(3, 3)))
    editor = TreeEditor(base, store.read, SHA1)
    editor.put(b"1/1", FILE, oid_of("blob", b"", SHA1))
    assert editor.get(b"1") == TreeEditor(base, store.read, SHA1).get(b"1")
    assert editor.write(store.add) == base


def test_the_cache_spares_reading_and_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    base, store = _written(dict(_wide(30, 5)))
    cache: trees.Cache = {}
    assert len(list(TreeEditor(base, store.read, SHA1, cache).walk())) == 150
    store.reads = 0
    assert len(list(TreeEditor(base, store.read, SHA1, cache).walk())) == 150
    assert store.reads == 0
    monkeypatch.setattr(trees, "CACHE_ENTRIES_MAX", 50)
    assert len(list(TreeEditor(base, store.read, SHA1, cache).walk())) == 150
    TreeEditor(None, store.read, SHA1, cache).write(store.add)
    assert sum(len(tree) + 1 for tree in cache.values()) <= 50


def test_a_path_deeper_than_the_stack_is_no_problem() -> None:
    store = Objects()
    deep = b"/".join([b"d"] * 5000)
    editor = TreeEditor(None, store.read, SHA1)
    editor.put(deep, FILE, oid_of("blob", b"", SHA1))
    oid = editor.write(store.add)
    assert [path for path, _ in TreeEditor(oid, store.read, SHA1).walk()] == [deep]
    assert [path for path, _, _ in trees.diff(None, oid, store.read, SHA1)] == [deep]
    assert editor.remove(deep)
    assert editor.write(store.add) == TreeEditor(None, store.read, SHA1).write(store.add)


@pytest.mark.parametrize("path", [b"", b"/a", b"a/", b"a//b", b"../a", b"a/./b"])
@pytest.mark.parametrize("what", ["put", "get", "remove"])
def test_a_path_that_leads_elsewhere_is_refused(path: bytes, what: str) -> None:
    editor = TreeEditor(None, {}.__getitem__, SHA1)
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: editor.put(path, FILE, "a" * 40),
        "get": lambda: editor.get(path),
        "remove": lambda: editor.remove(path),
    }
    with pytest.raises(AssertionError, match="not a path"):
        calls[what]()
