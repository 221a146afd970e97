"""Saves of a run and what changed in them, with real repositories and runs."""

import json
import os
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random

import msgspec
import pytest

import outlast
from outlast import settings
from outlast.cli.main import main
from outlast.dashboard import documents
from outlast.dashboard.saves import patches, saves as dashboard_saves
from outlast.errors import UnknownRun, UsageError
from outlast.operations.saves import diff as saves_diff
from outlast.operations.saves.diff import FileChange
from outlast.settings import TIMING
from outlast.store.protocol import RunFilter
from outlast.workspace.git import command as gits
from tests.dashboard.saved_work import HOSTILE, Work, git, writes


def said(*words: str) -> str:
    out = StringIO()
    try:
        with redirect_stdout(out):
            assert main(list(words)) == 0
    finally:
        settings.tolerate(None)  # as a process that looks does, and this one is others' too
    return out.getvalue()


# -- the list ---------------------------------------------------------------------------------------------------------


def test_saves_are_those_that_the_command_lists_and_paged(work: Work) -> None:
    run = work.beats(*(writes(f"{number}\n") for number in range(7)))
    work.beats(writes("other\n"), task="another")
    wanted = json.loads(said("saves", run, "--json"))
    assert len(wanted) == 9
    pages = [dashboard_saves.saves(work.store, run, number, 4) for number in (1, 2, 3)]
    found = [each.point for page in pages for each in page.saves]
    assert json.loads(msgspec.json.encode(found)) == wanted
    assert [(page.total, page.page, page.pages, len(page.saves)) for page in pages] == [
        (9, 1, 3, 4),
        (9, 2, 3, 4),
        (9, 3, 3, 1),
    ]
    assert dashboard_saves.saves(work.store, run, 99, 4) == pages[2]
    assert dashboard_saves.saves(work.store, run, -1, 4) == pages[0]
    assert [each.point.commit for each in work.saves(run)] == [each.commit for each in found], (
        "also known ones"
    )


def test_new_saves_of_a_known_run_are_listed_and_dropped_ones_are_not(work: Work) -> None:
    run = work.beats(writes("a\n"))
    before = work.saves(run)
    work.beats(writes("a\n"), writes("b\n"))
    after = work.saves(run)
    assert [each.point.commit for each in after][-len(before) :] == [each.point.commit for each in before]
    assert len(after) > len(before)
    for name in git(work.folder, "for-each-ref", "--format=%(refname)", f"refs/outlast/{run}/").split():
        git(work.folder, "update-ref", "-d", name)
    assert dashboard_saves.saves(work.store, run).total == 0


def test_the_command_beside_a_save_brings_it_back_into_a_new_folder(work: Work) -> None:
    run = work.beats(writes("wanted\n"), writes("later\n"))
    row = next(each for each in work.saves(run) if (each.point.kind, each.point.beat) == ("beat", 1))
    words = shlex.split(row.restore)
    assert (words[0], words[1], words[3]) == ("outlast", "restore", "--to")
    assert not Path(words[4]).exists()
    said(*words[1:])
    assert (Path(words[4]) / "file").read_text() == "wanted\n"
    assert (work.folder / "file").read_text() == "later\n"
    again = next(each for each in work.saves(run) if each.point.commit == row.point.commit)
    assert again.restore != row.restore, "that folder is there now"


def test_saves_of_a_folder_without_a_repository(work: Work, tmp_path: Path) -> None:
    work.folder = tmp_path / "plain"
    work.folder.mkdir()
    run = work.beats(writes("a\n"), writes("a\nb\n"))
    assert work.diff(run).lines_added == 1
    against_head = work.diff(run, "head")
    assert (against_head.other, against_head.lines_added, against_head.problem) == ("", 2, "")


@pytest.mark.parametrize("how", ["no workspace", "no git", "bad settings", "not a folder"])
def test_a_workspace_that_cannot_be_read_is_a_problem_and_no_error(
    work: Work, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = work.beats(writes("a\n"))
    commit = work.saves(run)[0].point.commit
    if how == "no workspace":
        with outlast.run("plain") as plain:
            pass
        run = plain.id
    elif how == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif how == "bad settings":
        (work.folder / "outlast.toml").write_text("[save]\nwhere = 7\n")
    else:
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(work.folder)
        work.folder.write_text("a file")
    for problem in (
        dashboard_saves.saves(work.store, run).problem,
        dashboard_saves.diff(work.store, run, commit, "before").problem,
        dashboard_saves.diff(work.store, run, commit, "head").problem,
    ):
        assert problem
        assert problem.isprintable()
    assert dashboard_saves.saves(work.store, run).saves == ()


def test_many_threads_ask_at_once(work: Work) -> None:
    run = work.beats(*(writes(f"{number}\n") for number in range(5)))
    commits = [each.point.commit for each in work.saves(run)]
    wanted = [dashboard_saves.diff(work.store, run, commit, "before") for commit in commits]
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda commit: dashboard_saves.diff(work.store, run, commit, "before"), commits * 4)
        )
        lists = list(pool.map(lambda _: dashboard_saves.saves(work.store, run).total, range(8)))
    assert found == wanted * 4
    assert lists == [len(commits)] * 8


# -- the difference ---------------------------------------------------------------------------------------------------


def rebuilt(old: list[str], file: documents.FilePatch) -> list[str]:
    """The new lines, from the old ones and what is shown; each line must stand where it says it does."""
    new: list[str] = []
    at = 0  # how many of the old lines are used up
    for line in file.lines:
        if line.kind in ("hunk", "note"):
            continue
        if line.old is not None:
            new += old[at : line.old - 1]
            at = line.old
            assert old[at - 1] == line.text
        else:
            assert line.new is not None
            missing = line.new - 1 - len(new)
            new += old[at : at + missing]
            at += missing
        if line.new is not None:
            assert line.new == len(new) + 1
            new.append(line.text)
    return new + old[at:]


def test_shown_lines_with_their_numbers_make_the_new_file_of_the_old(work: Work, rng: Random) -> None:
    words = [
        "",
        "a",
        "b",
        " b",
        "+b",
        "-b",
        "@@ -1 +1 @@",
        "diff --git a/x b/x",
        "\\ No newline",
        "é…",
        HOSTILE,
        "\r",
    ]
    texts = [[rng.choice(words) for _ in range(rng.randrange(60))] for _ in range(6)]
    files = ["".join(f"{line}\n" for line in text) for text in texts]
    run = work.beats(*(writes(text) for text in files))
    for number in range(1, len(texts)):
        found = work.diff(run, nth=len(texts) - 1 - number)
        if texts[number] == texts[number - 1]:
            assert found.files == ()
            continue
        (file,) = found.files
        assert not file.cut
        assert rebuilt(texts[number - 1], file) == texts[number]
        kinds = [line.kind for line in file.lines]
        assert (kinds.count("added"), kinds.count("deleted")) == (found.lines_added, found.lines_deleted)


def test_a_save_is_compared_with_the_one_before_and_with_head(work: Work) -> None:
    run = work.beats(writes("one\ntwo\nTHREE\n"), writes("ONE\ntwo\nTHREE\n"))
    before, head = work.diff(run), work.diff(run, "head")
    assert [(line.kind, line.old, line.new, line.text) for line in before.files[0].lines] == [
        ("hunk", None, None, "@@ -1,3 +1,3 @@"),
        ("deleted", 1, None, "one"),
        ("added", None, 1, "ONE"),
        ("context", 2, 2, "two"),
        ("context", 3, 3, "THREE"),
    ]
    assert (before.lines_added, head.lines_added) == (1, 2)
    assert head.other == git(work.folder, "rev-parse", "HEAD")
    assert before.other == next(
        each.point.commit for each in work.saves(run) if (each.point.kind, each.point.beat) == ("beat", 1)
    )
    assert (before.kind, before.reason, before.against, head.against) == ("beat", "beat 2", "before", "head")
    git(work.folder, "commit", "-qam", "all")
    assert work.diff(run, "head").files == (), "HEAD is where it is now"


def test_a_repository_without_a_commit_is_compared_with_nothing(work: Work, tmp_path: Path) -> None:
    work.folder = tmp_path / "new"
    work.folder.mkdir()
    git(work.folder, "init", "-q")
    run = work.beats(writes("a\nb\n"))
    found = work.diff(run, "head")
    assert (found.other, found.lines_added, found.files[0].file.change) == ("", 2, "added")


def test_links_modes_binaries_and_odd_names_are_shown(work: Work) -> None:
    def change(folder: Path) -> None:
        (folder / "script").chmod(0o755)
        (folder / "linked").unlink()
        (folder / "linked").symlink_to("file")
        (folder / "bin").write_bytes(bytes(range(256)))
        (folder / f'{HOSTILE.replace("/", "|")}\n\t"é').write_text("x\n")
        (folder / os.fsdecode(b"\xff\xfe")).write_text("y")
        (folder / "a").unlink()
        (folder / "a").mkdir()
        (folder / "a/b").write_bytes(b"\0\1")
        (folder / "a-b").write_text("z\n")
        (folder / "last").write_text("last\n")

    def begin(folder: Path) -> None:
        for name in ("script", "linked", "a"):
            (folder / name).write_text("text\n")

    run = work.beats(begin, change)
    found = {file.file.path: file for file in work.diff(run).files}
    assert [line.text for line in found["script"].lines] == ["new mode 100755"]
    assert found["linked"].file.change == "kind"
    assert [line.text for line in found["linked"].lines if line.kind in ("added", "deleted")] == [
        "text",
        "file",
    ]
    assert (found["bin"].lines, found["bin"].cut, found["bin"].file.lines_added) == ((), False, None)
    odd = next(file for path, file in found.items() if path.startswith("<script>"))
    assert [line.text for line in odd.lines if line.kind == "added"] == ["x"]
    raw = next(file for path, file in found.items() if path.startswith("\ufffd"))
    assert [line.kind for line in raw.lines] == ["hunk", "added", "note"]
    assert (found["a"].lines, found["a"].cut) == ((), True), "a folder is in its place"
    assert [line.text for line in found["a-b"].lines if line.kind == "added"] == ["z"]
    assert [line.text for line in found["last"].lines if line.kind == "added"] == ["last"]


def test_the_files_lines_and_bytes_of_a_difference_are_bounded(work: Work) -> None:
    def change(folder: Path) -> None:
        for number in range(250):
            (folder / f"n{number:03}").write_text("x\n" * 30)
        (folder / "a-huge").write_text("y\n" * (patches.BIG_LINES + 1))
        (folder / "b-long").write_text("z\n" * 1_000)
        (folder / "c-wide").write_text("w" * 100_000)

    found = work.diff(work.beats(change))
    assert (found.files_total, len(found.files), found.cut) == (253, dashboard_saves.FILES_MAX, True)
    assert found.lines_added == 250 * 30 + patches.BIG_LINES + 1 + 1_000 + 1
    files = {file.file.path: file for file in found.files}
    assert (files["a-huge"].lines, files["a-huge"].cut) == ((), True)
    assert (len(files["b-long"].lines), files["b-long"].cut) == (patches.FILE_LINES_MAX, True)
    assert max(len(line.text) for line in files["c-wide"].lines) == patches.LINE_CHARS_MAX
    assert sum(len(file.lines) for file in found.files) == patches.LINES_MAX
    assert [files[f"n{number:03}"].cut for number in (0, 180)] == [False, True]


def test_a_patch_that_git_did_not_print_whole_is_cut_where_it_ends() -> None:
    changes = [FileChange(name, "changed", 1, 1) for name in "abc"]
    piece = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-old\n+new\n"
    printed = "".join(piece.format(name) for name in "ab").encode()[:-5]
    found = patches.patches(changes, set("abc"), printed, whole=False)
    assert [(len(file.lines), file.cut) for file in found] == [(3, False), (2, True), (0, True)]


def test_only_saves_of_the_run_can_be_read(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    run = work.beats(writes("secret\n"))
    other = work.beats(writes("other\n"), task="other")
    mine = work.saves(run)[0].point.commit
    assert dashboard_saves.diff(work.store, run, mine[:10], "before").save == mine
    theirs = work.saves(other)[0].point.commit
    parts = [git(work.folder, "rev-parse", f"{mine}{part}") for part in ("^{tree}", "^2", "^2^2")]
    for commit in (
        git(work.folder, "rev-parse", "HEAD"), theirs, *parts, mine[:3], "abc", "HEAD", "--help", "0" * 40, "a" * 65, "",
        f"{mine}^", mine.upper(), f"{mine}\n", "../x",
    ):  # fmt: skip
        with pytest.raises(UsageError):
            dashboard_saves.diff(work.store, run, commit, "before")
    with pytest.raises(UnknownRun):
        dashboard_saves.diff(work.store, "nobody", mine, "before")


def _be_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A git that does something else where it is to compare."""
    tools = tmp_path / "tools"
    tools.mkdir()
    does = script.format(pids=tmp_path / "pids")
    lines = [
        "#!/bin/sh",
        f'for word; do [ "$word" = diff ] && {{ {does}; }}; done',
        f'exec {shutil.which("git")} "$@"',
    ]
    (tools / "git").write_text("\n".join(lines))
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")


def _gone(tmp_path: Path) -> None:
    assert not any(Path(f"/proc/{pid}").exists() for pid in (tmp_path / "pids").read_text().split())


def test_a_git_that_hangs_is_killed_and_told(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = work.beats(writes("a\n"))
    commit = work.saves(run)[0].point.commit
    _be_git(tmp_path, monkeypatch, "echo $$ >> {pids}; exec sleep 1000")
    monkeypatch.setenv(TIMING, "dashboard.diff_s=0.3")
    found = dashboard_saves.diff(work.store, run, commit, "before")
    assert "did not finish in" in found.problem
    assert (found.save, found.files) == (commit, ())
    _gone(tmp_path)


def test_a_git_that_prints_without_end_is_read_to_the_bound(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gits.Running(["version"]).beginning(1_000, 20.0)[1]
    _be_git(tmp_path, monkeypatch, "echo $$ >> {pids}; yes & exec yes")
    data, whole = gits.Running(["diff"], cwd=work.folder).beginning(100_000, 20.0)
    assert (len(data), whole) == (100_000, False)
    _gone(tmp_path)


def test_the_first_files_of_very_many_are_told(work: Work) -> None:
    run = work.beats(lambda folder: [(folder / f"{number:04}").write_text("x\n") for number in range(300)])
    with dashboard_saves.cache.opened(work.store, work.store.list(RunFilter(runs=(run,)))[0]) as saver:
        held = dashboard_saves.cache.of_run(saver, run).found[-2][0]
        with saves_diff.between(saver, None, held.tree) as pair:
            everything, all_of_them = pair.first_files(1 << 20, 20.0)
            some, not_all = pair.first_files(1_000, 20.0)
    assert (len(everything), all_of_them, not_all) == (301, True, False)
    assert some == everything[: len(some)]
    assert 50 < len(some) < 200
