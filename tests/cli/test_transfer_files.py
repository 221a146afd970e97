"""A run's files go with it: two stores, two clones, real processes, and what git says of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from outlast.operations.transfer import archive_file
from tests.cli.clones import Clone, run_of
from tests.cli.command_line import Cli
from tests.support.vaults import vault_of

# -- into a clone -----------------------------------------------------------------------------------------------------


def test_the_saves_come_into_a_clone_and_the_run_goes_on_there(
    source: Clone, there: Clone, file: Path, tmp_path: Path
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
    source: Clone, there: Clone, file: Path
) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    (there.folder / "below").mkdir()
    said = there.at(there.folder / "below").cli.ok("import", file)
    assert f"its saves are in the repository of {there.folder}" in said.err
    assert there.refs() == source.refs()
    there.finished()


def test_only_what_the_clone_lacks_is_put_into_it(source: Clone, there: Clone, file: Path) -> None:
    (source.folder / "large").write_bytes(os.urandom(3 << 20))
    source.git("add", ".")
    source.git("commit", "-qm", "large")
    there.git("pull", "-q")
    there.git("gc", "-q")
    source.worked()
    written = source.cli.ok("export", "1411", "-o", file, "--json").json
    assert written["bundle_bytes"] > 3 << 20
    there.cli.ok("import", file)
    new = [path for path in (vault_of(there.folder) / "objects/pack").iterdir() if path.stat().st_nlink == 1]
    assert 0 < sum(path.stat().st_size for path in new) < 1 << 20


def test_commits_the_clone_never_saw_come_along_and_head_needs_a_word(
    source: Clone, there: Clone, file: Path
) -> None:
    source.git("switch", "-qc", "work")
    (source.folder / "committed").write_text("by the agent")
    source.git("add", ".")
    source.git("commit", "-qm", "on a branch that nobody pushed")
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    before = there.untouched()
    said = there.cli.ok("import", file)
    assert "the run left HEAD on work at" in said.err
    assert there.untouched() == before
    refused = there.start()
    assert refused.code == 1
    assert "WorkspaceMoved" in refused.err
    there.finished(moved=True)
    assert there.read("committed") == "by the agent"
    assert there.git("log", "--format=%s", "work").splitlines() == ["on a branch that nobody pushed", "first"]


def test_refs_that_say_something_else_are_refused_and_kept(source: Clone, there: Clone, file: Path) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    beat = next(name for name in source.refs() if name.endswith("/beat"))
    (there.folder / "kept").write_text("other")
    there.cli.ok("save")
    there.git("checkout", "-q", "kept")
    there.git("update-ref", beat, there.git("rev-parse", "HEAD").strip())
    refs, before = there.refs(), there.untouched()
    answer = there.cli("import", file)
    assert answer.code == 2
    assert "nothing was changed" in answer.complaint
    assert (there.refs(), there.untouched(), there.cli.tasks()) == (refs, before, [])
    there.cli.ok("import", file, "--workspace", there.folder.parent / "new")
    there.at(there.folder.parent / "new").finished()


def test_a_second_store_on_the_same_repository_takes_the_saves(
    source: Clone, file: Path, tmp_path: Path
) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    second = source.with_store_of(tmp_path / "second")
    second.cli.ok("import", file)
    source.cli.ok("gc", "--older-than", "0s")
    second.finished()


def test_a_repository_with_other_hashes_is_refused(
    source: Clone, there: Clone, file: Path, tmp_path: Path
) -> None:
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    other = there.at(tmp_path / "other")
    other.git("init", "-q", "--object-format=sha256")
    answer = other.cli("import", file)
    assert "a repository with sha256" in answer.complaint
    assert other.refs() == {}


# -- into a new folder ------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_made_from_the_saves(
    source: Clone, there: Clone, file: Path, tmp_path: Path
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
    source: Clone, there: Clone, file: Path, tmp_path: Path
) -> None:
    source.worked(commit="in the third beat")
    source.cli.ok("export", "1411", "-o", file)
    there.cli.ok("import", file, "--workspace", tmp_path / "made")
    made = there.at(tmp_path / "made")
    assert made.git("log", "-1", "--format=%s") == "in the third beat\n"
    assert made.read("unfinished") == "half a beat"
    made.finished()


def test_where_no_repository_is_around_the_run_gets_a_folder_of_its_own(
    source: Clone, there: Clone, file: Path, tmp_path: Path
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
    plain = Clone(cli)
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


def test_a_folder_of_the_other_kind_is_refused(
    source: Clone, there: Clone, file: Path, tmp_path: Path
) -> None:
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
    assert "is not a folder" in refused.complaint
    assert there.cli.tasks() == []


# -- copies -----------------------------------------------------------------------------------------------------------


def test_a_copy_brings_its_saves_under_the_name_of_the_fork(
    source: Clone, there: Clone, file: Path, tmp_path: Path
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
    source: Clone, there: Clone, file: Path
) -> None:
    source.worked()
    source.cli.ok("fork", "1411", "--at", "1", "--task", "1412", "--yes")
    source.cli.ok("export", "1412", "-o", file)
    there.cli.ok("import", file)
    there.cli.ok("restore", "1412", "--to", there.folder.parent / "again")
    assert there.read("changed", there.folder.parent / "again") == "in beat 1"
    there.finished(task="1412")
    assert there.names() == ["changed", "kept", "made1", "made2", "made3", "made4"]


# -- what does not go along -------------------------------------------------------------------------------------------


def test_untracked_secrets_stay_and_the_run_goes_on_without_them(
    source: Clone, there: Clone, file: Path, tmp_path: Path
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
    assert "untracked secrets were not exported: .env" in said.err
    there.finished()
    assert not (there.folder / ".env").exists()


def test_a_secret_that_is_there_stays_as_it_is(source: Clone, there: Clone, file: Path) -> None:
    (source.folder / ".env").write_text("PASSWORD=of-the-source")
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    (there.folder / ".env").write_text("PASSWORD=of-this-host")
    there.cli.ok("import", file)
    there.worked(until=3)
    there.finished()
    assert there.read(".env") == "PASSWORD=of-this-host"


@pytest.mark.parametrize("case", ["no saves", "shallow"])
def test_a_run_whose_saves_cannot_go_along_goes_without_and_that_is_said(
    source: Clone, there: Clone, file: Path, case: str
) -> None:
    if case == "shallow":
        (source.folder / "kept").write_text("more")
        source.git("commit", "-qam", "second")
        shallow = source.folder.parent / "shallow"
        source.git("clone", "-q", "--depth=1", f"file://{source.folder}", shallow)
        source = source.at(shallow)
    source.worked()
    if case == "no saves":
        vault = vault_of(source.folder)
        shutil.rmtree(vault / "refs/outlast")
        for pack in (vault / "objects/pack").iterdir():
            pack.unlink()
    answer = source.cli("--project", str(source.folder / ".git"), "export", "1411", "-o", file)
    assert answer.code == 0, answer.err
    why = {
        "no saves": "no save of it is in the repository",
        "shallow": "is a shallow clone",
    }
    assert [
        line for line in answer.err.splitlines() if line.startswith("without files: ") and why[case] in line
    ]
    assert archive_file.manifest_of(file).version == archive_file.VERSION_WITHOUT_FILES
    there.cli.ok("import", file)
    assert there.refs() == {}


def test_a_workspace_that_is_gone_is_exported_from_its_repository(
    source: Clone, there: Clone, file: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    source.git("worktree", "add", "-q", "--detach", tree)
    source.worked(folder=tree)
    shutil.rmtree(tree)
    source.cli.ok("export", "1411", "-o", file)
    there.cli.ok("import", file)
    assert there.refs() == source.refs()
