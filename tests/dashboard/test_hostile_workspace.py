"""Looking at a workspace whose agent meant harm: nothing it chose is run, waited for, or written outside of a folder."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import outlast
from outlast.cli.main import main
from outlast.dashboard import documents
from outlast.dashboard.actions import perform
from outlast.dashboard.run import pages
from outlast.dashboard.saves import cache, saves
from outlast.errors import RunRefused, SaveFailed, WorkspaceRefused
from outlast.runs import reader as runs_reader
from outlast.settings import TIMING
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store
from outlast.workspace import new_folder
from outlast.workspace.git import command
from outlast.workspace.git.reader import ObjectReader
from tests.support.environment import TIMEOUT_S, Isolated
from tests.support.vaults import git_words, seeing, vault_of

PIPE = "[include]\n\tpath = {}\n"
# Every setting by which git runs a program that somebody else names.
PROGRAMS = (
    "core.fsmonitor", "core.hooksPath", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "core.gitProxy",
    "core.alternateRefsCommand", "gpg.program", "gpg.ssh.program", "gpg.x509.program", "diff.external", "diff.trap.command",
    "diff.trap.textconv", "filter.trap.clean", "filter.trap.smudge", "filter.trap.process", "merge.trap.driver",
    "credential.helper", "sequence.editor", "interactive.diffFilter", "uploadpack.packObjectsHook",
    "remote.origin.uploadpack", "remote.origin.receivepack",
)  # fmt: skip


def git_in(folder: Path, *words: str, stdin: bytes | None = None) -> str:
    forging = words[0] == "hash-object" and bool(seeing(folder))  # saves lie in the vault
    done = subprocess.run(
        ["git", *(["--git-dir", vault_of(folder)] if forging else git_words(folder, words)), *words],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | seeing(folder),
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.decode().strip()


@dataclass
class GuardedWork:
    """A run of two beats in a repository, and a folder beside it that nobody may touch."""

    folder: Path
    store: Store
    run: str

    @property
    def beside(self) -> Path:
        return self.folder.parent / "beside"

    def newest(self) -> str:
        return git_in(self.folder, "rev-parse", f"refs/outlast/{self.run}/beat")

    def restore(self, save: str, name: str = "to") -> documents.Done:
        to = str(self.folder.parent / name)
        return perform.do(
            self.store, documents.Wish(act="restore", run=self.run, save=save, folder=to), "somebody"
        )

    def forge(self, *entries: tuple[bytes, bytes, str]) -> str:
        """Put a save in the place of the newest whose files are these entries of a tree."""
        save = self.newest()
        commit = git_in(self.folder, "cat-file", "commit", save)
        old = git_in(self.folder, "rev-parse", f"{save}^{{tree}}")
        forged = commit.replace(old, tree(self.folder, *entries), 1).encode() + b"\n"
        made = git_in(
            self.folder, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=forged
        )
        git_in(self.folder, "update-ref", f"refs/outlast/{self.run}/beat", made)
        return made


def blob(folder: Path, data: bytes) -> str:
    return git_in(folder, "hash-object", "-w", "--stdin", stdin=data)


def tree(folder: Path, *entries: tuple[bytes, bytes, str]) -> str:
    """A tree as git itself would never write it."""
    data = b"".join(b"%b %b\0%b" % (mode, name, bytes.fromhex(oid)) for mode, name, oid in entries)
    return git_in(folder, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=data)


@pytest.fixture
def work(state: Isolated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedWork]:
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git_in(folder, "init", "-q", "-b", "main")
    (folder / "file").write_text("one\n")
    git_in(folder, "add", ".")
    git_in(folder, "commit", "-qm", "first")
    with outlast.run("t", workspace=folder) as run:
        for beat in run.beats():
            if beat.number > 2:
                break
            (folder / "file").write_text(f"{beat.number}\n")
            git_in(folder, "commit", "-qam", f"beat {beat.number}")
            beat.done(beat.number)
    store = open_store(None)
    yield GuardedWork(folder, store, run.id)
    store.close()


# -- what a save names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["page", "command", "in place"])
@pytest.mark.parametrize("name", [b"..", b"../beside", b".git"])
def test_a_forged_save_writes_nothing_outside_of_its_folder(work: GuardedWork, name: bytes, way: str) -> None:
    evil = blob(work.folder, b"evil\n")
    inner = tree(work.folder, (b"100755", b"config", evil))
    below = tree(work.folder, (b"40000", b"beside", inner)) if name == b".." else inner
    forged = work.forge((b"40000", name, below), (b"100644", b"a", evil))
    config = (work.folder / ".git/config").read_bytes()
    if way == "page":
        assert not work.restore(forged).ok
    elif way == "command":
        to = str(work.folder.parent / "to")
        assert main(["restore", forged, "--to", to, "--workspace", str(work.folder)]) != 0
    else:
        assert main(["restore", forged, "--workspace", str(work.folder)]) != 0
    assert not work.beside.exists()
    assert (work.folder / ".git/config").read_bytes() == config
    assert b"evil" not in b"".join(path.read_bytes() for path in work.folder.parent.glob("to/.git*/config"))


def test_a_folder_whose_name_only_looks_like_gits_is_brought_back(work: GuardedWork) -> None:
    inner = tree(work.folder, (b"100644", b"config", blob(work.folder, b"fine\n")))
    assert work.restore(work.forge((b"40000", b".GIT", inner))).ok
    assert (work.folder.parent / "to/.GIT/config").read_text() == "fine\n"


# -- programs ------------------------------------------------------------------------------------------------------


def plant(work: GuardedWork, trap: Path) -> None:
    """Name a program wherever git takes one from the settings of a repository, and have a signed commit to verify."""
    for key in PROGRAMS:
        git_in(work.folder, "config", key, str(trap.parent if key == "core.hooksPath" else trap))
    for name in ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman"):
        (trap.parent / name).write_bytes(trap.read_bytes())
        (trap.parent / name).chmod(0o755)
    (work.folder / ".git/info/attributes").write_text("* filter=trap diff=trap merge=trap\n")
    for key, value in {
        "log.showSignature": "true", "remote.origin.url": f"ext::{trap}", "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none", "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1", "alias.log": f"!{trap}", "alias.cat-file": f"!{trap}",
    }.items():  # fmt: skip
        git_in(work.folder, "config", key, value)


def sign(work: GuardedWork) -> None:
    """A commit that says it is signed: whoever shows signatures asks a program about it."""
    head = git_in(work.folder, "cat-file", "commit", "HEAD").encode()
    lines, _, message = head.partition(b"\n\n")
    signature = b"gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"  # no real one
    data = lines + b"\n" + signature + b"\n\n" + message + b"\n"
    made = git_in(work.folder, "hash-object", "-t", "commit", "-w", "--stdin", stdin=data)
    git_in(work.folder, "update-ref", "refs/heads/main", made)


def test_no_program_of_a_repositorys_settings_is_run_by_looking_at_it(
    work: GuardedWork, tmp_path: Path
) -> None:
    sign(work)
    traps, ran = tmp_path / "traps", tmp_path / "ran"
    traps.mkdir()
    trap = traps / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\nexit 1\n')
    trap.chmod(0o755)
    save = work.newest()
    plant(work, trap)
    assert "beat 2" in pages.context(work.store, work.run).text
    assert saves.saves(work.store, work.run).total
    for against in ("before", "head"):
        assert not saves.diff(work.store, work.run, save, against).problem  # type: ignore[arg-type]
    to = str(tmp_path / "foreseen")
    perform.foresee(work.store, documents.Wish(act="restore", run=work.run, save=save, folder=to))
    perform.foresee(work.store, documents.Wish(act="fork", run=work.run, beat=1, folder=to))
    main(["restore", save, "--dry-run", "--workspace", str(work.folder)])
    main(["diff", save, "--workspace", str(work.folder)])
    main(["saves", work.run])
    with ObjectReader(vault_of(work.folder), command.environment()) as reader:
        assert not reader.has("1" * 40)  # a partial clone would fetch it
    assert work.restore(save).ok
    main(["restore", save, "--workspace", str(work.folder), "--force"])
    assert not ran.exists(), ran.read_text()
    with pytest.raises(AssertionError):
        git_in(work.folder, "diff", "HEAD~1", "HEAD")
    assert ran.exists(), "the traps are real"


# -- what never answers --------------------------------------------------------------------------------------------


def test_a_memory_that_points_to_what_has_no_end_is_not_read(work: GuardedWork) -> None:
    os.mkfifo(work.folder / "pipe")
    with (work.folder / "large").open("wb") as file:
        file.truncate(runs_reader.FILE_BYTES_MAX + 1)
    (work.folder / "note").write_text("x")
    with outlast.run("t", workspace=work.folder) as run:
        for beat in run.beats():
            for name, uri in {
                "p": "file:pipe",
                "z": "file:/dev/zero",
                "l": "file:large",
                "n": "file:note",
            }.items():
                beat.remember(name, uri)
            beat.done()
            break
    text = pages.context(work.store, work.run).text
    for line in (
        "p: file:pipe (missing)", "z: file:/dev/zero (missing)", "l: file:large (too large to check)",
        "n: file:note (unchanged)",
    ):  # fmt: skip
        assert line in text


def test_many_large_files_are_not_all_read_for_one_context(
    work: GuardedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_reader, "MEMORY_READ_MAX", 2500)
    with outlast.run("t", workspace=work.folder) as run:
        for beat in run.beats():
            for number in range(5):
                (work.folder / f"n{number}").write_bytes(bytes(1000))
                beat.remember(f"m{number}", f"file:n{number}")
            beat.done()
            break
    text = pages.context(work.store, work.run).text
    assert text.count("(unchanged)") == 2
    assert text.count("(too large to check)") == 3


ASKED: dict[str, Callable[[GuardedWork, str], str]] = {
    "saves": lambda work, _: saves.saves(work.store, work.run).problem,
    "diff": lambda work, save: saves.diff(work.store, work.run, save, "before").problem,
    "context": lambda work, _: pages.context(work.store, work.run).text,
    "restore": lambda work, save: str(
        perform.foresee(
            work.store, documents.Wish(act="restore", run=work.run, save=save, folder=f"{work.folder}-new")
        )
    ),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_git_that_waits_for_ever_is_ended_and_told(
    work: GuardedWork, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = work.newest()
    pipe = work.folder.parent / "pipe"
    os.mkfifo(pipe)
    with (work.folder / ".git/config").open("a") as config:
        config.write(PIPE.format(pipe))
    within = command.within
    monkeypatch.setattr(command, "within", lambda _: within(0.3))
    began_s = time.monotonic()
    assert "git did not finish in" in ASKED[what](work, save)
    assert time.monotonic() - began_s < TIMEOUT_S / 2


def test_a_child_that_is_read_from_ends_with_its_time(work: GuardedWork) -> None:
    with command.within(3), ObjectReader(vault_of(work.folder), command.environment()) as reader:
        assert reader.has(work.newest())
        pipe = work.folder.parent / "pipe"
        os.mkfifo(pipe)
        with (vault_of(work.folder) / "config").open("a") as config:
            config.write(PIPE.format(pipe))
        reader.close()
        with pytest.raises(SaveFailed, match="did not finish"):
            reader.has(git_in(work.folder.parent, "hash-object", "--stdin", stdin=b"x"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["HEAD", "packed-refs", "refs/outlast/pipe"])
def test_a_pipe_in_the_place_of_gits_own_files_is_not_waited_for(
    work: GuardedWork, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "dashboard.git_s=1")
    path = (vault_of(work.folder) if "outlast" in name else work.folder / ".git") / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    ended = threading.Event()

    def ask() -> None:
        saves.saves(work.store, work.run)
        ended.set()

    threading.Thread(target=ask, daemon=True).start()
    assert ended.wait(TIMEOUT_S / 2)


def test_few_wait_for_one_workspace_at_a_time(work: GuardedWork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMING, "dashboard.turn_wait_s=0.05")
    summary = work.store.list(RunFilter(runs=(work.run,)))[0]
    go_on, all_in = threading.Event(), threading.Barrier(cache.LOOKING_MAX + 1)

    def wait() -> None:
        with cache.patience(summary):
            all_in.wait(TIMEOUT_S)
            go_on.wait(TIMEOUT_S)

    threads = [threading.Thread(target=wait) for _ in range(cache.LOOKING_MAX)]
    for thread in threads:
        thread.start()
    all_in.wait(TIMEOUT_S)
    with pytest.raises(RunRefused, match="wait for the workspace"), cache.patience(summary):
        pass
    assert "wait for the workspace" in saves.saves(work.store, work.run).problem
    go_on.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert saves.saves(work.store, work.run).total


# -- folders that are swapped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["the folder", "above it"])
def test_a_link_that_comes_after_the_check_is_not_followed(
    work: GuardedWork, where: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    to = tmp_path / "to" if where == "the folder" else tmp_path / "above" / "to"
    (to if where == "the folder" else to.parent).symlink_to(elsewhere)
    with pytest.raises(WorkspaceRefused), new_folder.claim_folder(to, 0o700):
        pass
    assert not list(elsewhere.iterdir())


def test_a_folder_that_is_swapped_while_it_is_held_is_noticed(tmp_path: Path) -> None:
    to, elsewhere = tmp_path / "to", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with (
        pytest.raises(SaveFailed, match="was replaced by something else"),
        new_folder.claim_folder(to, 0o700) as claim,
    ):
        claim.check()
        to.rename(tmp_path / "moved")
        to.symlink_to(elsewhere)
        claim.check()
    assert to.is_symlink(), "it is not ours to take away"


def test_a_restore_that_is_given_a_link_says_so_and_writes_nothing(work: GuardedWork, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "to").symlink_to(elsewhere)
    assert not work.restore(work.newest()).ok
    with cache.opened(work.store, work.store.list(RunFilter(runs=(work.run,)))[0]) as saver:
        held = cache.of_run(saver, work.run).found[0][0]
        from outlast.workspace.restore import restore as workspace_restore

        with pytest.raises(WorkspaceRefused):
            workspace_restore.materialise(saver, held, tmp_path / "to")
    assert not list(elsewhere.iterdir())


# -- very many saves -----------------------------------------------------------------------------------------------


def test_of_very_many_saves_the_newest_are_listed_and_the_others_bit_by_bit(
    work: GuardedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache._saves._values.clear()  # of other runs, that tests before this one looked at
    every = saves.saves(work.store, work.run)
    assert every.total >= 3
    assert not every.more
    for _, kept in list(cache._saves._values.items()):
        assert kept[1] == every.total
    cache._saves._values.clear()
    cache._saves._held = 0
    monkeypatch.setattr(cache, "SAVES_MAX", 2)
    some = saves.saves(work.store, work.run)
    assert some.total == 2
    assert "newest 2" in some.more
    assert [each.point for each in some.saves] == [each.point for each in every.saves[:2]]
    told = saves.diff(work.store, work.run, every.saves[-1].point.commit, "before")
    assert "newest 2" in told.problem
    monkeypatch.setattr(cache, "SAVES_MAX", 100)
    assert saves.saves(work.store, work.run) == every
