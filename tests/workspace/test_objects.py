from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings, strategies as st

from outlast.errors import SaveDamaged
from outlast.workspace.git import objects
from outlast.workspace.git.objects import EXEC, FILE, GITLINK, LINK, SHA1, SHA256, TREE, Entry
from tests.support import sweeps
from tests.workspace.gitrepo import GitRepo

AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)

MODES = {FILE: b"blob", EXEC: b"blob", LINK: b"blob", TREE: b"tree", GITLINK: b"commit"}
NAMES = (
    st.binary(min_size=1, max_size=6)
    .map(lambda name: name.replace(b"\0", b"a").replace(b"/", b"b"))
    .filter(lambda name: name not in (b".", b".."))
)
TRAPS = st.sampled_from([b"a", b"a.b", b"a-b", b"a0", b"ab", b"a\n", b"a\xff", b"a ", b"a\x01", b"a.", b"A"])
TREES = st.dictionaries(NAMES | TRAPS, st.sampled_from(sorted(MODES)), max_size=12)


def _listed(tree: dict[bytes, Entry]) -> bytes:
    return b"".join(
        b"%06o %b %b\t%b\0" % (entry.mode, MODES[entry.mode], entry.oid.encode(), name)
        for name, entry in tree.items()
    )


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff\r\n" * 1000])
def test_an_object_is_called_as_git_calls_it(repo: GitRepo, data: bytes) -> None:
    assert (
        objects.oid_of("blob", data, repo.algo)
        == repo.git("hash-object", "--stdin", stdin=data).decode().strip()
    )


def test_any_tree_is_written_byte_for_byte_as_git_writes_it(repo: GitRepo) -> None:
    @settings(max_examples=sweeps.examples(60))
    @given(TREES)
    def check(modes: dict[bytes, int]) -> None:
        names = sorted(modes)
        tree = {name: Entry(modes[name], objects.oid_of("blob", name, repo.algo)) for name in names}
        oid = repo.git("mktree", "-z", "--missing", stdin=_listed(tree)).decode().strip()
        data = objects.tree_bytes(tree)
        assert objects.oid_of("tree", data, repo.algo) == oid
        assert data == repo.git("cat-file", "tree", oid)
        assert objects.parse_tree(data, repo.algo) == tree
        assert list(objects.parse_tree(data, repo.algo)) == [
            line.split(b"\t", 1)[1] for line in repo.git("ls-tree", "-z", oid).split(b"\0")[:-1]
        ]

    check()


@given(TREES.filter(bool), st.integers(1, SHA1.raw_length))
def test_a_tree_that_is_cut_off_is_an_error(modes: dict[bytes, int], cut: int) -> None:
    data = objects.tree_bytes({name: Entry(mode, "a" * SHA1.hex_length) for name, mode in modes.items()})
    with pytest.raises(SaveDamaged):
        objects.parse_tree(data[:-cut], SHA1)


def test_a_commit_is_one_that_git_accepts_and_reads_the_same(repo: GitRepo) -> None:
    tree = repo.git("mktree", stdin=b"").decode().strip()
    parent = repo.git("commit-tree", tree, "-m", "first").decode().strip()
    at = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    data = objects.commit_bytes(
        tree, [parent, parent[:]], objects.WHO, at, "outlast: save\n\nOutlast-Task: ü\udcff\0"
    )
    oid = repo.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=data).decode().strip()
    shown = repo.git("log", "-1", "--encoding=none", "--format=%T %P|%an <%ae>|%cI|%B", oid)
    assert shown.startswith(
        f"{tree} {parent} {parent}|outlast <outlast@localhost>|2026-11-15T12:00:00".encode()
    )
    commit = objects.parse_commit(repo.git("cat-file", "commit", oid))
    assert commit == (
        tree,
        (parent, parent),
        AT,
        "outlast: save\n\nOutlast-Task: ü\udcff\N{REPLACEMENT CHARACTER}\n",
    )


def test_a_commit_of_anybody_is_read() -> None:
    data = (
        b"tree aa\nparent bb\nauthor A > B <a@b> 1 +0000\ncommitter A <a@b> 1700000000 -0730\n"
        b"gpgsig -----BEGIN\n tree no\n -----END\nencoding latin1\n\n\n\nfran\xe7ais\n\nparent no"
    )
    commit = objects.parse_commit(data)
    assert (commit.tree, commit.parents, commit.at.timestamp()) == ("aa", ("bb",), 1_700_000_000)
    assert commit.message == "\n\nfran\udce7ais\n\nparent no"
    assert objects.parse_commit(b"tree aa\ncommitter A <a> 99999999999999999999 +0000\n\n").at.year == 1970
    with pytest.raises(SaveDamaged):
        objects.parse_commit(b"")


def test_a_message_with_lone_surrogates_is_written_all_the_same() -> None:
    data = objects.commit_bytes("a" * 40, [], objects.WHO, AT, "task \ud800 x")
    assert data.endswith(b"\n\ntask ? x\n")


def test_the_algorithms_have_names() -> None:
    assert [objects.algo_named(name) for name in ("sha1", "sha256")] == [SHA1, SHA256]
    with pytest.raises(ValueError, match="md5"):
        objects.algo_named("md5")


@pytest.mark.parametrize("name", [b"", b".", b"..", b"../a", b"/a", b"a/b"])
def test_a_tree_with_a_name_that_leads_elsewhere_is_damaged(name: bytes) -> None:
    data = objects.tree_bytes(
        {b"a": Entry(FILE, "a" * SHA1.hex_length), name: Entry(TREE, "b" * SHA1.hex_length)}
    )
    with pytest.raises(SaveDamaged):
        objects.parse_tree(data, SHA1)
