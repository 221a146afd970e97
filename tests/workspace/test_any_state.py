"""Any state that operations can bring about, saved twice, wrecked in any way, comes back as it was."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, strategies as st

from outlast.errors import SaveFailed
from outlast.workspace.git import trees
from outlast.workspace.git.objects import Entry
from outlast.workspace.types import Save
from tests.support import sweeps
from tests.workspace.workspace import Picture, Workspace, same

EXAMPLES, EXAMPLES_SLOW = 40, 300
RETRIES_MAX = 40
MEMORY = Path("/dev/shm")  # nothing here is about disks: flushes need not cost anything

PATHS = st.sampled_from(
    [b"a", b"b", b"d", b"d/a", b"d/b", b"d/e", b"d/e/f", b"\xff", b"-x", b"new\nline", b" ", b"x.ign", b"d/y.ign", b"n/a", b"n/z"]
)  # fmt: skip
BYTES = st.sampled_from(
    [b"", b"1\n", b"2\n", b"crlf\r\n", b"\0\xff\r\n", b"longer text\nof lines\n", b"$Id$\n"]
)
FLAGS = [
    "skip-worktree",
    "no-skip-worktree",
    "assume-unchanged",
    "no-assume-unchanged",
    "chmod=+x",
    "force-remove",
]
TEMPLATE = """
git init -q -b main; printf '*.ign\\n' > .gitignore; echo 1 > a; mkdir d; echo 2 > d/a; echo 3 > d/b; git add -A; git commit -qm one
git branch other; git checkout -q other; echo other > a; echo o > o; git add -A; git commit -qm other; git checkout -q main
echo main > a; git commit -qam two
git init -q n; cd n; echo n > a; git add a; git commit -qm n
"""


def quoted(data: bytes) -> str:
    return "$'" + "".join(f"\\x{byte:02x}" for byte in data) + "'"


def about(script: str) -> st.SearchStrategy[str]:
    return PATHS.map(lambda path: script.replace("PATH", quoted(path)))


def written() -> st.SearchStrategy[str]:
    """A file in the place of whatever was there; a folder above it in the place of a file."""
    made = 'p=PATH; q=$(dirname -- "$p"; echo x); q=${q%?x}; test -d "$q" || { rm -rf -- "$q"; mkdir -p -- "$q"; }; rm -rf -- "$p"; printf DATA > ./"$p"'
    return st.builds(
        lambda path, data: made.replace("PATH", quoted(path)).replace(
            "DATA", quoted(data).replace("%", "%%")
        ),
        PATHS,
        BYTES,
    )


CHANGES = st.one_of(
    written(),
    written(),
    about("rm -rf -- PATH"),
    about("chmod +x -- PATH"),
    about("chmod -x -- PATH"),
    about("rm -rf -- PATH; ln -s d -- PATH"),
    about("rm -rf -- PATH; ln -s nowhere -- PATH"),
    about("git add -f -- PATH"),
    about("git add -N -f -- PATH"),
    about("git rm -qr --cached -- PATH"),
    about("touch -d '1 hour ago' -- PATH"),
    st.builds(lambda flag, path: f"git update-index --{flag} -- {quoted(path)}", st.sampled_from(FLAGS), PATHS),
    st.builds(lambda old, new: f"git mv -f -- {quoted(old)} {quoted(new)}", PATHS, PATHS),
    st.sampled_from(
        [
            "git add -A", "git commit -qm more", "git commit -qam all", "git checkout -q other", "git checkout -q --detach", "git merge -q other",
            "git cherry-pick other", "git rebase -q other", "git update-index --split-index", "git config core.autocrlf true",
            "echo '* text=auto ident' > .gitattributes", "rm -f .gitignore", "git pack-refs --all", "git update-index --refresh", "cd n; git add -A",
            "cd n; git commit -qam n", "git sparse-checkout set --no-cone /d/", "git update-index --index-version 4",
        ]
    ),
)  # fmt: skip
WRECKS = st.one_of(
    CHANGES,
    st.sampled_from(
        [
            "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +", "git reset -q --hard", "git clean -qffd", "git merge --abort",
            "git rebase --abort", "git checkout -qf other", "git checkout -qf main", "rm -rf n", "rm -rf d; mkdir d", "git add -A; git commit -qm w",
            "git reflog expire --expire=now --all; git gc -q --prune=now", "rm -f .git/index", "git branch -D other", "git sparse-checkout disable",
        ]
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="outlast-template-", dir=MEMORY if MEMORY.is_dir() else None))
    Workspace(folder / "w", folder / "state").sh(TEMPLATE)
    yield folder
    shutil.rmtree(folder)


def run(place: Workspace, scripts: list[str]) -> None:
    place.sh("\n".join(f"({script}) </dev/null" for script in scripts), ok=False)


def checked(place: Workspace) -> tuple[Save, Picture]:
    """A save that has just what is there, whether it is made on top of others or from nothing."""
    picture = place.picture()
    saved = place.save()
    same(picture, place.picture(), "after the save")
    with contextlib.closing(Workspace(place.folder, place.state.with_name("fresh"))) as fresh:
        assert in_tree(fresh, fresh.save(run="r2")) == in_tree(place, saved), (
            "a save from nothing has another tree"
        )
    shutil.rmtree(fresh.state)
    seen = place.sh(
        "git ls-files -z -o --exclude-standard; git ls-files -z -c", GIT_OPTIONAL_LOCKS="0"
    ).split(b"\0")[:-1]
    files, held = place.files(), in_tree(place, saved)
    assert not {path for path in seen if path in files and path not in held}
    return saved, picture


def in_tree(place: Workspace, saved: Save) -> dict[bytes, Entry]:
    held, reader = place.held(saved), place.saver.reader()
    editor = trees.TreeEditor(held.tree, lambda oid: reader.read(oid)[1], place.saver.repo().algo)
    return dict(editor.walk())


def in_the_way(place: Workspace, saved: Save) -> bytes | None:
    """Restore; what is ignored and in the way is refused and named."""
    try:
        place.restore(saved, force=True)
    except SaveFailed as error:
        name, refused, _ = str(error).partition(" is in the way")
        if not refused:
            raise
        return name.encode().decode("unicode_escape").encode("latin-1")
    return None


def restored(place: Workspace, saved: Save, picture: Picture) -> None:
    """What is in the way is moved away by hand, as the hint says, until all is there."""
    for _ in range(RETRIES_MAX):
        if (name := in_the_way(place, saved)) is None:
            break
        path = os.fsencode(place.folder) + b"/" + name
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    after, wanted = place.picture(), in_tree(place, saved)
    for each in (picture, after):  # what is ignored stays as it is, and is compared no further
        files = each["files"]
        assert isinstance(files, dict)
        each["files"] = {path: found for path, found in files.items() if path in wanted}
    same(picture, after, "after the restore")
    place.fsck()


def trip(template: Path, first: list[str], second: list[str], wreck: list[str], back: int) -> None:
    with tempfile.TemporaryDirectory(prefix="outlast-state-", dir=template.parent) as folder:
        shutil.copytree(template / "w", Path(folder) / "w", symlinks=True)
        with contextlib.closing(Workspace(Path(folder) / "w", Path(folder) / "state")) as place:
            run(place, first)
            made = [checked(place)]
            run(place, second)
            made.append(checked(place))
            if back == 0:
                place.anew()
            run(place, wreck)
            restored(place, *made[back])


ANY = hypothesis.given(
    first=st.lists(CHANGES, max_size=8), second=st.lists(CHANGES, max_size=8), wreck=st.lists(WRECKS, max_size=6), back=st.integers(0, 1)
)  # fmt: skip
LOOP = hypothesis.example(first=[], second=["rm -rf d; > d"], wreck=["rm -rf d; ln -s d d"], back=0)
CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


@hypothesis.settings(max_examples=sweeps.examples(EXAMPLES), suppress_health_check=CHECKS)
@LOOP
@ANY
def test_any_state_comes_back(
    template: Path, first: list[str], second: list[str], wreck: list[str], back: int
) -> None:
    trip(template, first, second, wreck, back)


@pytest.mark.campaign
@hypothesis.settings(max_examples=EXAMPLES_SLOW, suppress_health_check=CHECKS)
@ANY
def test_any_state_comes_back_however_long_one_tries(
    template: Path, first: list[str], second: list[str], wreck: list[str], back: int
) -> None:
    trip(template, first, second, wreck, back)
