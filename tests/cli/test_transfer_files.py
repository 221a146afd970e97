"""A run's files go with it: two stores, two clones, real processes, and what git says of it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from outlast.operations.transfer import archive_file
from tests.cli.conftest import Answer, Cli
from tests.support import strace
from tests.support.environment import TIMEOUT_S, Isolated, skip_or_fail
from tests.support.sweeps import Sweep

AGENT = """
import subprocess
import sys
from pathlib import Path
import outlast

task, folder, until, moved = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "moved"
with outlast.run(task, workspace=folder, moved=moved) as run:
    run.plan(["one", "two", "three", "four"])
    for beat in run.beats():
        if beat.number > until:
            if sys.argv[5]:
                subprocess.run(["git", "-C", folder, "commit", "-qam", sys.argv[5]], check=True)
            (folder / "unfinished").write_text("half a beat")
            break
        (folder / f"made{beat.number}").write_text(f"by beat {beat.number}")
        (folder / "changed").write_text(f"in beat {beat.number}")
        beat.done(beat.number)
print(run.status)
"""


@dataclass(frozen=True)
class Host:
    """A store with a folder to stand in, as on a machine of its own."""

    cli: Cli

    @property
    def folder(self) -> Path:
        return self.cli.folder

    def at(self, folder: Path) -> "Host":
        folder.mkdir(parents=True, exist_ok=True)
        return Host(replace(self.cli, folder=folder))

    def with_store_of(self, home: Path) -> "Host":
        (home / ".config").mkdir(parents=True)
        return Host(replace(self.cli, isolated=Isolated(home, home / ".local/state", home / ".config")))

    def git(self, *words: str | Path, folder: Path | None = None) -> str:
        done = subprocess.run(
            ["git", "-C", folder or self.folder, *words],
            env=self.cli.environ | {"GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def start(
        self,
        *,
        task: str = "1411",
        folder: Path | None = None,
        until: int = 9,
        moved: bool = False,
        commit: str = "",
    ) -> Answer:
        """One attempt of the agent, in a process of its own."""
        words = [task, str(folder or self.folder), str(until), "moved" if moved else "", commit]
        return self.cli._run([sys.executable, "-c", AGENT, *words], {})

    def worked(self, until: int = 2, **more: Any) -> None:
        answer = self.start(until=until, **more)
        assert (answer.code, answer.out) == (0, "interrupted\n"), answer.err

    def finished(self, **more: Any) -> None:
        answer = self.start(**more)
        assert (answer.code, answer.out) == (0, "done\n"), answer.err

    def refs(self, folder: Path | None = None) -> dict[str, str]:
        listed = self.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/outlast", folder=folder)
        return dict(line.split(" ") for line in listed.splitlines())

    def untouched(self) -> tuple[str, ...]:
        """All that an import into a repository must leave as it is."""
        index = self.folder / ".git/index"
        own = [line for line in self.git("for-each-ref").splitlines() if "refs/outlast/" not in line]
        return (
            *own, self.git("symbolic-ref", "HEAD"), self.git("status", "--porcelain"), index.read_bytes().hex(),
            *sorted(path.name for path in (self.folder / ".git").iterdir()), self.git("stash", "list"),
        )  # fmt: skip

    def names(self, folder: Path | None = None) -> list[str]:
        return sorted(path.name for path in (folder or self.folder).iterdir() if path.name != ".git")

    def read(self, name: str, folder: Path | None = None) -> str:
        return ((folder or self.folder) / name).read_text()


@pytest.fixture
def source(cli: Cli) -> Host:
    """A clone in which a run has done two beats and was stopped in the third."""
    host = Host(cli)
    host.git("init", "-q", "-b", "main")
    (host.folder / "kept").write_text("kept")
    (host.folder / "changed").write_text("at first")
    host.git("add", ".")
    host.git("commit", "-qm", "first")
    return host


@pytest.fixture
def there(source: Host, tmp_path: Path) -> Host:
    """Another clone of the same repository, with another store."""
    folder = tmp_path / "there" / "clone"
    source.git("clone", "-q", source.folder, folder)
    return source.with_store_of(tmp_path / "there" / "home").at(folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.outlast.tar.gz"


def run_of(host: Host, task: str = "1411") -> str:
    run = host.cli.show(task)["run"]
    assert isinstance(run, str)
    return run


# -- into a clone ------------------------------------------------------------------------------------------------------


def test_the_saves_come_into_a_clone_and_the_run_goes_on_there(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    source.worked()
    run, before = run_of(source), there.untouched()
    said = source.cli.ok("export", "1411", "-o", file)
    assert "files: " in said.err
    told = there.cli.ok("import", file, "--workspace", there.folder, "--json").json
    assert there.untouched() == before
    assert there.refs() == source.refs()
    assert {name.split("/")[2] for name in there.refs()} == {run}
    assert told["workspace"] == str(there.folder)
    assert (told["files"]["new"], told["files"]["head_differs"]) == (False, False)
    there.cli.ok("restore", run, "--to", tmp_path / "again")
    assert there.names(tmp_path / "again") == ["changed", "kept", "made1", "made2", "unfinished"]
    there.cli.ok("restore", f"{run}@1", "--to", tmp_path / "first")
    assert there.read("changed", tmp_path / "first") == "in beat 1"
    there.finished()
    assert there.names() == ["changed", "kept", "made1", "made2", "made3", "made4"]
    assert [there.read(f"made{beat}") for beat in (1, 4)] == ["by beat 1", "by beat 4"]
    assert there.cli.show()["run"] == run
    assert there.git("fsck", "--strict", "--no-dangling") == ""


def test_the_clone_around_the_person_is_taken_where_no_folder_is_named(
    source: Host, there: Host, file: Path
) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    (there.folder / "below").mkdir()
    said = there.at(there.folder / "below").cli.ok("import", file)
    assert f"its saves are in the repository of {there.folder}" in said.err
    assert there.refs() == source.refs()
    there.finished()


def test_only_what_the_clone_lacks_is_put_into_it(source: Host, there: Host, file: Path) -> None:
    (source.folder / "large").write_bytes(os.urandom(3 << 20))
    source.git("add", ".")
    source.git("commit", "-qm", "large")
    there.git("pull", "-q")
    source.worked()
    written = source.cli.ok("export", "1411", "-o", file, "--json").json
    assert written["bundle_bytes"] > 3 << 20
    packs = set((there.folder / ".git/objects/pack").iterdir())
    there.cli.ok("import", file)
    new = set((there.folder / ".git/objects/pack").iterdir()) - packs
    assert 0 < sum(path.stat().st_size for path in new) < 1 << 20


def test_commits_the_clone_never_saw_come_along_and_head_needs_a_word(
    source: Host, there: Host, file: Path
) -> None:
    source.git("switch", "-qc", "work")
    (source.folder / "committed").write_text("by the agent")
    source.git("add", ".")
    source.git("commit", "-qm", "on a branch that nobody pushed")
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    before = there.untouched()
    said = there.cli.ok("import", file)
    assert "it left HEAD on work at" in said.err
    assert there.untouched() == before
    refused = there.start()
    assert refused.code == 1
    assert "WorkspaceMoved" in refused.err
    there.finished(moved=True)
    assert there.read("committed") == "by the agent"
    assert there.git("log", "--format=%s", "work").splitlines() == ["on a branch that nobody pushed", "first"]


def test_refs_that_say_something_else_are_refused_and_kept(source: Host, there: Host, file: Path) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    beat = next(name for name in source.refs() if name.endswith("/beat"))
    there.git("update-ref", beat, "HEAD")
    refs, before = there.refs(), there.untouched()
    answer = there.cli("import", file)
    assert answer.code == 2
    assert "nothing was changed" in answer.complaint
    assert (there.refs(), there.untouched(), there.cli.tasks()) == (refs, before, [])
    there.cli.ok("import", file, "--workspace", there.folder.parent / "new")
    there.at(there.folder.parent / "new").finished()


def test_a_second_store_on_the_same_repository_takes_the_saves_that_are_there(
    source: Host, file: Path, tmp_path: Path
) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    second = source.with_store_of(tmp_path / "second")
    refs, packs = source.refs(), source.git("count-objects", "-v")
    second.cli.ok("import", file)
    assert (second.refs(), second.git("count-objects", "-v")) == (refs, packs)
    source.cli.ok("gc", "--older-than", "0s")
    assert second.refs() == refs, "the store that handed the run off let go of its saves"
    second.finished()


def test_a_repository_with_other_hashes_is_refused(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    other = there.at(tmp_path / "other")
    other.git("init", "-q", "--object-format=sha256")
    answer = other.cli("import", file)
    assert "a repository with sha256" in answer.complaint
    assert other.refs() == {}


# -- into a new folder -------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_made_from_the_saves(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    source.git("switch", "-qc", "work")
    source.worked()
    (source.folder / "kept").write_text("staged")
    source.git("add", "kept")
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    new = there.at(tmp_path).cli.ok("import", file, "--workspace", "made").err
    made = there.at(tmp_path / "made")
    assert f"its files are in {made.folder}" in new
    assert made.names() == ["changed", "kept", "made1", "made2", "unfinished"]
    assert made.git("status", "--porcelain", "-b") == source.git("status", "--porcelain", "-b")
    assert made.git("log", "--format=%H") == source.git("log", "--format=%H")
    made.finished()
    assert made.names() == ["changed", "kept", "made1", "made2", "made3", "made4"]


def test_what_the_agent_committed_in_the_beat_in_flight_is_its_own_in_a_new_folder_too(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    source.worked(commit="in the third beat")
    source.cli.ok("export", "1411", "-o", file)
    there.cli.ok("import", file, "--workspace", tmp_path / "made")
    made = there.at(tmp_path / "made")
    assert made.git("log", "-1", "--format=%s") == "in the third beat\n"
    assert made.read("unfinished") == "half a beat"
    made.finished()


def test_where_no_repository_is_around_the_run_gets_a_folder_of_its_own(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    source.worked()
    run = run_of(source)
    source.cli.ok("export", "1411", "-o", file)
    nowhere = there.at(tmp_path / "nowhere")
    told = nowhere.cli.ok("import", file, "--json").json
    own = nowhere.cli.root / "imported" / run
    assert (told["workspace"], told["files"]["new"]) == (str(own), True)
    nowhere.cli.ok("restore", run, "--to", tmp_path / "again")
    assert nowhere.read("made2", tmp_path / "again") == "by beat 2"
    nowhere.finished(folder=own)
    assert nowhere.cli.show()["run"] == run
    assert list(tmp_path.joinpath("nowhere").iterdir()) == []


def test_files_of_a_folder_in_no_repository_go_along(cli: Cli, file: Path, tmp_path: Path) -> None:
    plain = Host(cli)
    (plain.folder / "kept").write_text("kept")
    plain.worked()
    run = run_of(plain)
    assert plain.cli.ok("export", "1411", "-o", file, "--json").json["bundle_bytes"] > 0
    second = plain.with_store_of(tmp_path / "second").at(tmp_path / "elsewhere")
    told = second.cli.ok("import", file, "--workspace", tmp_path / "new", "--json").json
    assert told["files"]["new"]
    made = second.at(tmp_path / "new")
    assert made.names() == ["changed", "kept", "made1", "made2", "unfinished"]
    second.cli.ok("restore", run, "--to", tmp_path / "again")
    made.finished()
    third = plain.with_store_of(tmp_path / "third").at(tmp_path / "copied")
    (third.folder / "kept").write_text("copied by hand")
    third.cli.ok("import", file, "--workspace", third.folder)
    assert third.names() == ["kept"]
    third.finished()
    assert third.read("kept") == "kept"


def test_a_folder_of_the_other_kind_is_refused(source: Host, there: Host, file: Path, tmp_path: Path) -> None:
    plain = source.with_store_of(tmp_path / "plain-home").at(tmp_path / "plain")
    (plain.folder / "kept").write_text("kept")
    plain.worked()
    plain.cli.ok("export", "1411", "-o", tmp_path / "plain.tar.gz")
    refused = there.cli("import", tmp_path / "plain.tar.gz", "--workspace", there.folder)
    assert "worked in no repository" in refused.complaint
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    refused = there.cli("import", file, "--workspace", plain.folder)
    assert "worked in a repository" in refused.complaint
    refused = there.cli("import", file, "--workspace", file)
    assert "is no folder" in refused.complaint
    assert there.cli.tasks() == []


# -- copies ------------------------------------------------------------------------------------------------------------


def test_a_copy_brings_its_saves_under_the_name_of_the_fork(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file, "--copy")
    for host in (source, there):  # beside the source, and in another clone
        fork = host.cli.ok("import", file, "--task", "other", "--json").json
        mine = {name for name in host.refs() if name.split("/")[2] == fork["run"]}
        assert f"refs/outlast/{fork['run']}/beat" in mine
        for number, save in enumerate((fork["run"], "other@2", "other@1")):
            to = tmp_path / f"{fork['run']}-{number}"
            host.cli.ok("restore", save, "--to", to)
            assert host.read("changed", to) == f"in beat {1 if number == 2 else 2}"
        if host is there:
            host.finished(task="other")
    source.finished()
    assert there.cli.ok("import", file, "--task", "once-more", "--json").json["run"] != fork["run"]


def test_a_fork_that_was_never_started_takes_the_saves_of_its_source_along(
    source: Host, there: Host, file: Path
) -> None:
    source.worked()
    source.cli.ok("fork", "1411", "--at", "1", "--task", "1412", "--yes")
    source.cli.ok("export", "1412", "-o", file)
    there.cli.ok("import", file)
    there.cli.ok("restore", "1412", "--to", there.folder.parent / "again")
    assert there.read("changed", there.folder.parent / "again") == "in beat 1"
    there.finished(task="1412")
    assert there.names() == ["changed", "kept", "made1", "made2", "made3", "made4"]


# -- what does not go along --------------------------------------------------------------------------------------------


def test_untracked_secrets_stay_and_the_run_goes_on_without_them(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    (source.folder / ".env").write_text("PASSWORD=do-not-carry-me-anywhere")
    source.worked()
    for words in ((), ("--with-secrets",)):
        said = source.cli.ok("export", "1411", "-o", file, *words)
        assert "untracked secrets stay here: .env" in said.err
        bundle = tmp_path / "saves.bundle"
        bundle.write_bytes(b"".join(archive_file.read_bundle(file)))
        probe = there.at(tmp_path / f"probe{len(words)}")
        probe.git("init", "-q")
        probe.git("fetch", "-q", bundle, "refs/outlast/*:refs/outlast/*")
        held = subprocess.run(
            ["git", "-C", probe.folder, "cat-file", "--batch-all-objects", "--batch"],
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        assert b"by beat 2" in held
        assert b"do-not-carry-me" not in held
    said = there.cli.ok("import", file)
    assert "untracked secrets did not come along: .env" in said.err
    there.finished()
    assert not (there.folder / ".env").exists()


def test_a_secret_that_is_there_stays_as_it_is(source: Host, there: Host, file: Path) -> None:
    (source.folder / ".env").write_text("PASSWORD=of-the-source")
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    (there.folder / ".env").write_text("PASSWORD=of-this-host")
    there.cli.ok("import", file)
    there.worked(until=3)
    there.finished()
    assert there.read(".env") == "PASSWORD=of-this-host"


@pytest.mark.parametrize("case", ["no saves", "gone", "shallow"])
def test_a_run_whose_saves_cannot_go_along_goes_without_and_that_is_said(
    source: Host, there: Host, file: Path, case: str
) -> None:
    if case == "shallow":
        (source.folder / "kept").write_text("more")
        source.git("commit", "-qam", "second")
        shallow = source.folder.parent / "shallow"
        source.git("clone", "-q", "--depth=1", f"file://{source.folder}", shallow)
        source = source.at(shallow)
    source.worked()
    if case == "no saves":
        for name in source.refs():
            source.git("update-ref", "-d", name)
        source.git("reflog", "expire", "--all", "--expire=now")
        for pack in (source.folder / ".git/objects/pack").iterdir():
            pack.unlink()
    elif case == "gone":
        shutil.rmtree(source.folder)
        source = source.at(source.folder)
    answer = source.cli("--project", str(source.folder / ".git"), "export", "1411", "-o", file)
    assert answer.code == 0, answer.err
    why = {
        "no saves": "no save of it is in the repository",
        "gone": "no save of it is in",
        "shallow": "is a shallow clone",
    }
    assert [
        line for line in answer.err.splitlines() if line.startswith("without files: ") and why[case] in line
    ]
    assert archive_file.manifest_of(file).version == archive_file.VERSION_WITHOUT_FILES
    there.cli.ok("import", file)
    assert there.refs() == {}


def test_a_workspace_that_is_gone_is_exported_from_its_repository(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    source.git("worktree", "add", "-q", "--detach", tree)
    source.worked(folder=tree)
    shutil.rmtree(tree)
    source.cli.ok("export", "1411", "-o", file)
    there.cli.ok("import", file)
    assert there.refs() == source.refs()


# -- killed ------------------------------------------------------------------------------------------------------------


def test_an_export_with_files_killed_anywhere_is_ended_by_the_same_command(
    source: Host, file: Path, tmp_path: Path, sweep: Sweep
) -> None:
    source.worked()
    refs = source.refs()
    for nth in sweep:
        world = source.cli.copied(tmp_path / str(nth))
        died = world.killed_at(nth, "export", "1411", "-o", file)
        if died:
            assert not file.exists() or world.show()["status"] == "handed_off", f"killed at crash point {nth}"
            again = world.forked("export", "1411", "-o", file)
            assert again.code == 0, again.err
        assert world.show()["status"] == "handed_off"
        assert [path.name for path in file.parent.glob(f".{file.name}*")] == [], f"crash point {nth}"
        other = source.with_store_of(tmp_path / f"{nth}-home").at(tmp_path / f"{nth}-there")
        other.cli.forked("import", file, "--workspace", "new")
        assert refs.items() <= other.refs(tmp_path / f"{nth}-there/new").items(), f"crash point {nth}"
        file.unlink()
        sweep.met(died)
    assert sweep.total > 4
    assert source.refs() == refs


@pytest.mark.sampled(1)
@pytest.mark.parametrize("into", ["clone", "new", "copy"])
def test_an_import_with_files_killed_anywhere_is_ended_by_the_same_command(
    source: Host, there: Host, file: Path, tmp_path: Path, into: str, sweep: Sweep
) -> None:
    source.worked()
    run, copy = run_of(source), ["--copy"] if into == "copy" else []
    source.cli.ok("export", "1411", "-o", file, *copy)
    task = "1411-fork-1" if copy else "1411"
    met = []
    for nth in sweep:
        clone = tmp_path / str(nth) / "clone"
        shutil.copytree(there.folder, clone)
        host = there.with_store_of(tmp_path / str(nth) / "home").at(clone)
        words = ("import", file, "--workspace", clone.parent / "new" if into == "new" else clone)
        died = host.cli.killed_at(nth, *words)
        if died:
            again = host.cli.forked(*words)
            assert again.code == 0 or "already in this store" in again.complaint, (
                f"crash point {nth}: {again.err}"
            )
        folder = clone.parent / "new" if into == "new" else clone
        made = host.cli.show(task)
        assert made["project"] == str(folder / ".git")
        assert (made["run"] == run) == (not copy)
        wanted = {name.replace(run, made["run"]): oid for name, oid in source.refs().items()}
        refs = {name: oid for name, oid in host.refs(folder).items() if "/pre-restore/" not in name}
        assert refs == wanted, f"killed at crash point {nth}"
        if into == "new":
            assert host.names(folder) == ["changed", "kept", "made1", "made2", "unfinished"]
        assert host.git("fsck", "--connectivity-only", folder=folder) is not None
        assert list((host.cli.root / "importing").glob("[0-9a-f]*")) == [] or again.code
        assert not list(folder.glob(".git/outlast-importing*")), f"killed at crash point {nth}"
        met.append(nth)
        sweep.met(died)
    assert sweep.total > 6
    host.finished(task=task, folder=folder)


@pytest.mark.strace
def test_everything_is_durable_before_the_first_ref_and_all_refs_before_the_run(
    source: Host, there: Host, file: Path, tmp_path: Path
) -> None:
    if reason := strace.available():
        skip_or_fail(reason)
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    out, packs = tmp_path / "trace", there.folder / ".git/objects/pack"
    calls = "trace=fsync,fdatasync,syncfs,rename,renameat,renameat2,pwrite64"
    words = [
        "strace",
        "-f",
        "-y",
        "-e",
        calls,
        "-o",
        str(out),
        sys.executable,
        "-m",
        "outlast",
        "import",
        str(file),
    ]
    assert there.cli._run(words, {}).code == 0
    told = [line.split(None, 1)[1] for line in out.read_text().splitlines()]
    seen = next(
        at for at, line in enumerate(told) if line.startswith("rename") and str(packs) in line.split(", ")[-1]
    )
    flushed = [line for line in told[:seen] if line.startswith("fsync") and "/pack/pack-" in line]
    assert {".pack", ".idx"} <= {f".{line.rpartition('.')[2][:4].rstrip('>)')}" for line in flushed}
    whole = next(at for at, line in enumerate(told) if at > seen and line.startswith("syncfs"))
    in_refs = [at for at, line in enumerate(told) if line.startswith("rename") and "/refs/outlast/" in line]
    assert in_refs
    assert min(in_refs) > whole
    folder = next(at for at, line in enumerate(told) if at > max(in_refs) and line.startswith("fsync"))
    assert "/refs/outlast/" in told[folder]
    database = [
        at for at, line in enumerate(told) if "outlast.db-wal" in line and line.startswith("fdatasync")
    ]
    assert database
    assert database[-1] > folder


# -- hostile -----------------------------------------------------------------------------------------------------------


def forged(file: Path, bundle: bytes) -> None:
    """The same archive with other files in it, and a manifest that fits."""
    contents = archive_file.verify(file)
    blobs = {archive_file.digest_of(data): data for data in archive_file.read_blobs(file)}
    entry = archive_file.Entry(len(bundle), archive_file.digest_of(bundle))
    manifest = replace_digests(contents.manifest, entry)
    place = file.with_name("forged.bundle")
    place.write_bytes(bundle)
    with file.open("wb") as out:
        archive_file.write(out, manifest, contents.journals, blobs, blobs.__getitem__, place)


def replace_digests(manifest: archive_file.Manifest, entry: archive_file.Entry) -> archive_file.Manifest:
    told = json.loads(archive_file.msgspec.json.encode(manifest))
    told["digests"][archive_file.BUNDLE] = {"size": entry.size, "digest": entry.digest}
    return archive_file.msgspec.json.decode(json.dumps(told), type=archive_file.Manifest)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", ["branch", "thin", "dotdot", "dotgit", "cut", "nothing"])
def test_a_bundle_that_would_do_harm_is_refused_and_nothing_is_changed(
    source: Host, there: Host, file: Path, tmp_path: Path, case: str
) -> None:
    source.worked()
    run = run_of(source)
    source.cli.ok("export", "1411", "-o", file)
    bundle, ref = tmp_path / "evil.bundle", f"refs/outlast/{run}/beat"
    if case in ("dotdot", "dotgit"):
        blob = source.git("rev-parse", "HEAD:kept").strip()
        (tmp_path / "tree").write_bytes(
            b"100644 %b\0" % (b".." if case == "dotdot" else b".git") + bytes.fromhex(blob)
        )
        tree = source.git("hash-object", "-t", "tree", "-w", "--literally", tmp_path / "tree").strip()
        source.git("update-ref", ref, source.git("commit-tree", tree, "-m", "evil").strip())
    words = {"branch": ["main", ref], "thin": [f"main..{ref}"]}.get(case, [ref])
    source.git("bundle", "create", "-q", bundle, *words)
    data = bundle.read_bytes()
    forged(file, {"cut": data[:-100], "nothing": b"# v2 git bundle\n\n"}.get(case, data))
    before = there.untouched()
    answer = there.cli("import", file)
    assert answer.code != 0
    assert "the bundle of the saves" in answer.complaint
    assert (there.untouched(), there.refs(), there.cli.tasks()) == (before, {}, [])
