"""An export or import with files that is killed ends with the same command; a hostile archive changes nothing."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from outlast.operations.transfer import archive_file
from tests.cli.clones import Clone, run_of
from tests.support import strace
from tests.support.environment import skip_or_fail
from tests.support.sweeps import Sweep
from tests.support.vaults import vault_of

# -- killed -----------------------------------------------------------------------------------------------------------


def test_an_export_with_files_killed_anywhere_is_ended_by_the_same_command(
    source: Clone, file: Path, tmp_path: Path, sweep: Sweep
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
    source: Clone, there: Clone, file: Path, tmp_path: Path, into: str, sweep: Sweep
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
    source: Clone, there: Clone, file: Path, tmp_path: Path
) -> None:
    if reason := strace.available():
        skip_or_fail(reason)
    source.worked()
    source.cli.ok("export", "1411", "-o", file)
    out = tmp_path / "trace"
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
    assert there.cli.program(*words).code == 0
    told = [line.split(None, 1)[1] for line in out.read_text().splitlines()]
    in_refs = [at for at, line in enumerate(told) if line.startswith("rename") and "/refs/outlast/" in line]
    assert in_refs
    packed = [
        at
        for at, line in enumerate(told)
        if line.startswith("rename") and ".git/objects/pack/pack-" in line.split(", ")[-1]
    ]
    seen = max(at for at in packed if at < min(in_refs))
    flushed = [line for line in told[:seen] if line.startswith("fsync") and "/pack/pack-" in line]
    assert {".pack", ".idx"} <= {f".{line.rpartition('.')[2][:4].rstrip('>)')}" for line in flushed}
    whole = next(
        at
        for at, line in enumerate(told)
        if at > seen and line.startswith("fsync") and "/objects/pack>" in line
    )
    assert not [line for line in told if line.startswith("syncfs")]
    assert min(in_refs) > whole
    folder = next(at for at, line in enumerate(told) if at > max(in_refs) and line.startswith("fsync"))
    assert "/refs/outlast/" in told[folder]
    database = [
        at for at, line in enumerate(told) if "outlast.db-wal" in line and line.startswith("fdatasync")
    ]
    assert database
    assert database[-1] > folder


# -- hostile ----------------------------------------------------------------------------------------------------------


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
    source: Clone, there: Clone, file: Path, tmp_path: Path, case: str
) -> None:
    source.worked()
    run = run_of(source)
    source.cli.ok("export", "1411", "-o", file)
    bundle, ref = tmp_path / "evil.bundle", f"refs/outlast/{run}/beat"
    if case in ("dotdot", "dotgit"):
        blob = source.git("rev-parse", "HEAD:kept").strip()
        git_dir = f"--git-dir={vault_of(source.folder)}"
        (tmp_path / "tree").write_bytes(
            b"100644 %b\0" % (b".." if case == "dotdot" else b".git") + bytes.fromhex(blob)
        )
        tree = source.git(
            git_dir, "hash-object", "-t", "tree", "-w", "--literally", tmp_path / "tree"
        ).strip()
        source.git("update-ref", ref, source.git(git_dir, "commit-tree", tree, "-m", "evil").strip())
    words = {"branch": ["main", ref], "thin": [f"main..{ref}"]}.get(case, [ref])
    main = source.git("rev-parse", "HEAD").strip()
    source.git(f"--git-dir={vault_of(source.folder)}", "update-ref", "refs/heads/main", main)
    source.git(f"--git-dir={vault_of(source.folder)}", "bundle", "create", "-q", bundle, *words)
    data = bundle.read_bytes()
    forged(file, {"cut": data[:-100], "nothing": b"# v2 git bundle\n\n"}.get(case, data))
    before = there.untouched()
    answer = there.cli("import", file)
    assert answer.code != 0
    assert "the bundle of the saves" in answer.complaint
    assert (there.untouched(), there.refs(), there.cli.tasks()) == (before, {}, [])
