"""Untracked texts that hold a key are kept apart as files with a secret name are; what is tracked or declared is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from outlast.workspace import rules
from outlast.workspace.capture.special import secrets
from outlast.workspace.types import Save
from tests.core.test_secret_formats import plain
from tests.support import environment
from tests.workspace.test_guards import PRIVATE_KEY, is_anywhere, left
from tests.workspace.test_hints import check
from tests.workspace.workspace import BASE, Workspace, placed

TOKEN = b"ghp_" + plain(36).encode()
KEPT = "secret: GitHub token, kept apart"
NOTES = b"to log in use " + TOKEN + b" and be quick\n"


def secrets_of(place: Workspace, save: Save) -> list[str]:
    return [secret.path for secret in place.held(save).meta.secrets]


@pytest.mark.parametrize("kind", ["repository", "folder"])
def test_a_text_with_a_key_is_kept_apart_and_comes_back_when_asked(kind: str, tmp_path: Path) -> None:
    with placed(tmp_path, BASE if kind == "repository" else "true") as place:
        place.write("notes.txt", NOTES)
        place.write("deep/er/run.log", b"line\n" * 50_000 + NOTES)
        place.write("config.yaml", b"key: |\n  " + PRIVATE_KEY + b"  hush\n")
        place.write("plain.txt", b"harmless")
        (place.folder / "notes.txt").chmod(0o600)
        before = place.files()
        saved = place.save()
        assert left(saved) == {
            "notes.txt": KEPT,
            "deep/er/run.log": KEPT,
            "config.yaml": "secret: private key, kept apart",
        }
        assert TOKEN.decode() not in repr(place.held(saved).meta)
        assert place.content(saved, "plain.txt") == b"harmless"
        assert not is_anywhere(place.saver.repo().git_dir, TOKEN)
        assert is_anywhere(secrets.git_dir(place.saver.private), NOTES)
        place.empty()
        place.restore(saved)
        assert not (place.folder / "notes.txt").exists()
        assert len(place.restore(saved, with_secrets=True).secrets) == 3
        assert place.files() == before
        assert (place.folder / "notes.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, 3 << 20])
def test_nothing_of_a_large_text_with_a_key_stays_in_the_repository(place: Workspace, size: int) -> None:
    place.write(
        "run.log", b"".join(b"%08d a line of a log\n" % n for n in range(size // 22 + 1))[:size] + NOTES
    )
    place.write("z.txt", b"read after it")
    saved = place.save()
    assert left(saved) == {"run.log": KEPT}
    assert not is_anywhere(place.folder / ".git", b"a line of a log")
    assert place.content(saved, "z.txt") == b"read after it"
    place.fsck()


def test_a_tracked_text_is_saved_whatever_it_holds(place: Workspace) -> None:
    place.sh(
        f"echo '{TOKEN.decode()}' | tee notes.txt staged.txt; git add .; git commit -qm notes -- notes.txt; echo more >> notes.txt; echo more >> staged.txt"
    )
    saved = place.save()
    assert left(saved) == {}
    assert place.content(saved, "notes.txt") == place.content(saved, "staged.txt") == TOKEN + b"\nmore\n"
    assert not secrets_of(place, saved)


def test_only_text_is_looked_into(place: Workspace) -> None:
    place.write("image", b"\0\1\2" + NOTES)
    assert left(place.save()) == {}


def test_a_link_is_not_followed(place: Workspace, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(NOTES)
    place.sh("ln -s ../elsewhere link2")
    assert left(place.save()) == {}


def test_what_a_save_does_not_take_is_not_kept_apart_either(tmp_path: Path) -> None:
    """A text too big for a save and a folder that is left out as a whole are listed as such."""
    limits = rules.Limits(file_bytes=5_000, folder_files=10)
    with placed(tmp_path) as place:
        place.limits = limits
        place.write("run.log", b"a line\n" * 1_000 + NOTES)
        for number in range(12):
            place.write(f"heap/{number}", NOTES)
        found = left(place.save())
        assert found == {"run.log": "big", "heap/": "12 untracked files"}


# -- a file that becomes a secret, and one that is none any more -----------------------------------------------------


@pytest.mark.parametrize("hinted", [False, True])
def test_a_file_that_gets_a_key_leaves_the_saves_until_the_key_is_gone(
    place: Workspace, hinted: bool
) -> None:
    if hinted:
        place.saver.watch()
        place.save("beat")
    place.write("notes.txt", b"harmless\n")
    then = place.save("beat")
    place.write("notes.txt", NOTES)
    apart = place.save("beat")
    assert (left(then), left(apart)) == ({}, {"notes.txt": KEPT})
    assert place.content(apart, "notes.txt") is None
    place.write("b.txt", b"another")
    later = place.save("beat")
    assert (later.hinted, left(later), secrets_of(place, later)) == (
        hinted,
        {"notes.txt": KEPT},
        ["notes.txt"],
    )
    place.write("notes.txt", b"harmless again\n")
    after = place.save("beat")
    assert (left(after), secrets_of(place, after)) == ({}, [])
    assert place.content(after, "notes.txt") == b"harmless again\n"
    assert not is_anywhere(place.folder / ".git", TOKEN)


def test_a_restore_goes_both_ways_between_a_text_and_a_secret(place: Workspace) -> None:
    place.write("notes.txt", b"harmless\n")
    then = place.save()
    place.write("notes.txt", NOTES)
    apart = place.save()
    before = place.restore(then).before
    assert (place.folder / "notes.txt").read_bytes() == b"harmless\n"
    place.restore(apart)
    assert (place.folder / "notes.txt").read_bytes() == b"harmless\n", "what a save lacks stays"
    place.restore(apart, with_secrets=True)
    assert (place.folder / "notes.txt").read_bytes() == NOTES
    place.write("notes.txt", NOTES + b"newer\n")
    newer = place.restore(apart, with_secrets=True).before
    assert (place.folder / "notes.txt").read_bytes() == NOTES
    assert newer is not None
    place.restore(newer, with_secrets=True)
    assert (place.folder / "notes.txt").read_bytes() == NOTES + b"newer\n"
    place.restore(then)
    assert before is not None
    place.restore(before, with_secrets=True)
    assert (place.folder / "notes.txt").read_bytes() == NOTES
    assert not is_anywhere(place.folder / ".git", TOKEN)


@pytest.mark.parametrize("hinted", [False, True])
def test_a_secret_that_the_person_adds_is_saved_from_then_on(place: Workspace, hinted: bool) -> None:
    if hinted:
        place.saver.watch()
        place.save("beat")
    place.write("notes.txt", NOTES)
    assert left(place.save("beat")) == {"notes.txt": KEPT}
    place.sh("git add notes.txt")
    saved = place.save("beat")
    assert (saved.hinted, left(saved), place.content(saved, "notes.txt")) == (hinted, {}, NOTES)
    place.sh("git rm -q --cached notes.txt; echo more >> notes.txt")
    saved = place.save("beat")
    assert (left(saved), place.content(saved, "notes.txt")) == ({"notes.txt": KEPT}, None)
    if hinted:
        place.write("b.txt", b"another")
        check(place)


def test_many_texts_with_a_key_are_kept_apart_at_once(place: Workspace) -> None:
    place.saver.watch()
    place.save("beat")
    for number in range(1_200):
        place.write(f"logs/{number}.txt", b"%d " % number + NOTES)
    place.sh("git add -f logs/7.txt")
    saved = check(place)
    assert len(saved.left_out) == 1_199
    assert place.content(saved, "logs/7.txt") == b"7 " + NOTES


# -- every way in agrees ---------------------------------------------------------------------------------------------


def test_a_preview_says_what_a_save_would(place: Workspace) -> None:
    place.write("notes.txt", NOTES)
    now = place.saver.peek()
    assert now.secrets == {b"notes.txt"}
    saved = place.save()
    assert place.held(saved).tree == now.tree
    assert place.saver.peek().tree == now.tree


def test_an_ignored_text_with_a_key_is_kept_apart_before_a_restore_writes_over_it(place: Workspace) -> None:
    place.write("notes.txt", b"harmless\n")
    saved = place.save()
    place.sh("echo notes.txt >> .git/info/exclude")
    place.write("notes.txt", NOTES)
    assert left(place.save()) == {}
    before = place.restore(saved).before
    assert before is not None
    assert left(before) == {"notes.txt": KEPT}
    assert (place.folder / "notes.txt").read_bytes() == b"harmless\n"
    assert not is_anywhere(place.folder / ".git", TOKEN)
    place.restore(before, with_secrets=True)
    assert (place.folder / "notes.txt").read_bytes() == NOTES


def test_the_untracked_texts_of_a_repository_inside_are_looked_into(place: Workspace) -> None:
    place.sh("git init -q nest; echo tracked > nest/t")
    place.write("nest/t", NOTES)
    place.sh("git -C nest add t; git -C nest commit -qm t")
    place.write("nest/notes.txt", NOTES)
    place.write("nest/t", NOTES + b"more\n")
    saved = place.save()
    assert left(saved) == {"nest/notes.txt": KEPT}
    assert place.content(saved, "nest/t") == NOTES + b"more\n"
    place.sh("rm nest/notes.txt nest/t")
    place.restore(saved, with_secrets=True)
    assert (place.folder / "nest/notes.txt").read_bytes() == NOTES
    assert (place.folder / "nest/t").read_bytes() == NOTES + b"more\n"


# -- what a person says ----------------------------------------------------------------------------------------------

NAMED = {
    ("notes.txt", "notes.txt"), ("notes.txt", "deep/notes.txt"), ("*.txt", "deep/notes.txt"), ("fixtures/", "a/fixtures/b/c.txt"),
    ("fixtures", "fixtures/c.txt"), ("docs/*.md", "docs/a.md"), ("docs/", "docs/deep/a.md"), ("a/**/c", "a/c"), ("a/**/c", "a/b/b/c"),
    ("**/c", "c"), ("**/c", "a/b/c"), ("a/**", "a/b/c"), ("a/b", "a/b/c"), ("[ab].t?t", "a.txt"), ("a/**/**/c", "a/c"), (".env", ".env"),
}  # fmt: skip
NOT_NAMED = {
    ("notes.txt", "notes.txt.bak"), ("docs/*.md", "docs/deep/a.md"), ("docs/*.md", "a/docs/a.md"), ("a/**/c", "b/a/c"), ("a/b", "c/a/b"),
    ("*.txt", "txt"), ("[!a].txt", "a.txt"), ("a/**/c", "a/b"), ("A.txt", "a.txt"), ("", "a"), ("docs/a", "docs"),
}  # fmt: skip


@pytest.mark.parametrize(("pattern", "path"), sorted(NAMED))
def test_a_pattern_names_what_git_would_ignore_by_it(pattern: str, path: str, place: Workspace) -> None:
    assert rules.is_named(path.encode(), pattern)
    assert place.sh(f"printf '%s\\n' '{pattern}' > .git/info/exclude; git check-ignore --no-index '{path}'")


@pytest.mark.parametrize(("pattern", "path"), sorted(NOT_NAMED))
def test_a_pattern_names_nothing_else(pattern: str, path: str, place: Workspace) -> None:
    assert not rules.is_named(path.encode(), pattern)
    assert not place.sh(
        f"printf '%s\\n' '{pattern}' > .git/info/exclude; git check-ignore --no-index '{path}'", ok=False
    )


def test_a_pattern_takes_no_longer_for_a_hostile_name() -> None:
    name = b"/".join([b"a" * 255] * 15)
    assert not rules.is_named(name, "/".join(["**", "*a" * 40 + "b"] * 20))
    assert rules.is_named(name, "**/" + "*a" * 40)


def test_what_a_person_declares_no_secret_is_saved(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        place.limits = rules.Limits(not_secret=("fixtures/", ".env.ci"))
        for name in ("fixtures/login.txt", ".env.ci", "notes.txt", ".env", "nest/fixtures/a"):
            place.write(name, NOTES)
        saved = place.save()
        assert left(saved) == {"notes.txt": KEPT, ".env": "secret, kept apart"}
        assert place.content(saved, "fixtures/login.txt") == place.content(saved, ".env.ci") == NOTES


@pytest.mark.parametrize("anew", [False, True])
def test_the_next_save_goes_by_what_is_declared_then_though_no_file_changed(
    tmp_path: Path, anew: bool
) -> None:
    """Also the first save of a version that looks into files, after one that did not."""
    with placed(tmp_path) as place:
        place.limits = rules.Limits(not_secret=("notes.txt",))
        place.write("notes.txt", NOTES)
        assert place.content(place.save("beat"), "notes.txt") == NOTES
        place.saver.tend()
        for declared, why in (((), KEPT), (("*.txt",), None), ((), KEPT)):
            place.limits = rules.Limits(not_secret=declared)
            if anew:
                place.anew()
            else:
                place.saver.limits = place.limits
            assert place.saver.peek().secrets == ({b"notes.txt"} if why else set())
            saved = place.save("beat")
            assert left(saved) == ({"notes.txt": why} if why else {})
            assert place.content(saved, "notes.txt") == (None if why else NOTES)
            place.saver.tend()


def test_a_save_of_before_that_holds_a_key_is_restored_as_it_is(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        place.limits = rules.Limits(not_secret=("notes.txt",))
        place.write("notes.txt", NOTES)
        saved = place.save()
        place.limits = None
        place.anew()
        place.write("notes.txt", NOTES + b"newer\n")
        before = place.restore(saved).before
        assert (place.folder / "notes.txt").read_bytes() == NOTES
        assert before is not None
        assert left(before) == {"notes.txt": KEPT}
        place.restore(before, with_secrets=True)
        assert (place.folder / "notes.txt").read_bytes() == NOTES + b"newer\n"


# -- what it costs ---------------------------------------------------------------------------------------------------

SAVES = """
import sys
from pathlib import Path
from outlast.store.local import Local
from outlast.workspace.capture.saver import Saver
from outlast.workspace.types import Purpose
saver = Saver(Path("w"), Local(Path("state").absolute()))
saver.capture(Purpose(kind="manual", run="r1"))
"""


def test_a_text_is_opened_once_to_look_into_it_and_to_save_it(place: Workspace, tmp_path: Path) -> None:
    environment.need_tool("strace")
    place.write("new.txt", b"harmless\n")
    place.write("large.txt", b"harmless\n" * 200_000)
    calls = tmp_path / "calls"
    words = ["strace", "-f", "-e", "trace=openat", "-o", str(calls), sys.executable, "-c", SAVES]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=environment.TIMEOUT_S, capture_output=True)
    opened = calls.read_text()
    assert [opened.count(f'/{name}"') for name in ("new.txt", "large.txt")] == [1, 1]
