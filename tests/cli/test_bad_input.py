import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.cli.command_line import Cli, work


@pytest.fixture
def world(cli: Cli) -> Cli:
    """A run in doubt and one that is done."""
    work(beats=3, doubt_at=3)
    work("finished")
    return cli


BAD = [
    ("show nope", "no such run: nope"),
    ("log nope", "no such run: nope"),
    ("open nope", "no such run: nope"),
    ("effects other:1411", "no such run: other:1411"),
    ("settle nope 3.1 --happened", "no such run: nope"),
    ("settle 1411 9.9 --happened", "has no effect 9.9; in doubt: 3.1 comment"),
    ("settle 1411 2.1 --happened", "is settled already as 'confirmed' by its own outcome"),
    ("settle 1411 3.1 --happened --result {not-json}", "is not JSON"),
    ("settle 1411 3.1 --did-not --result 1", "only an effect that happened has a result"),
    ("settle 1411 3.1", "one of these is missing: --happened --did-not --give-up"),
    ("settle 1411 3.1 --happened --did-not", "--did-not and --happened cannot be used together"),
    ("settle finished 1.1 --happened", "is done"),
    ("pause finished", "is done"),
    ("resume finished", "is done"),
    ("fork 1411 --at 4", "has no beat 4 to fork at; it has 0 to 2"),
    ("fork 1411 --at -1", "has no beat -1"),
    ("fork 1411 --at two", "--at must be a whole number, got two"),
    ("fork 1411 --at 1 --budget lots", "budget 'lots' cannot be read"),
    ("fork 1411 --at 1 --task finished --yes", "task finished has a run already"),
    ("budget nope", "no such run: nope"),
    ("budget 1411 --by day", "--by takes beat, tool or attempt, got day"),
    ("budget 1411 --add lots", "budget 'lots' cannot be read"),
    ("budget 1411 --add 200k", "has no limit to raise"),
    ("resume 1411 --budget +1k", "has no limit of tokens to raise"),
    ("resume 1411 --budget frogs=3", "no such unit of a budget: frogs"),
    ("resume 1411 --until 2020-01-01T07:00", "is past already"),
    ("resume --all --budget +1k", "--budget and --all cannot be used together"),
    ("export 1411 -o missing/folder/x.tar.gz", "there is no folder"),
    ("export 1411 -o notes.txt", "exists and is not an export"),
    ("import missing.tar.gz", "cannot be read"),
    ("import notes.txt", "cannot be imported"),
    ("gc --older-than soon", "not an age: 'soon'"),
    ("gc --older-than ", "not an age: ''"),
    ("context 1411 --tokens many", "--tokens must be a whole number, got many"),
    ("context 1411 --tokens 0", "--tokens must be 200 or more, got 0"),
    ("context 1411 --tokens -5", "--tokens must be 200 or more, got -5"),
    ("context 1411 --tokens 199", "--tokens must be 200 or more, got 199"),
    ("log 1411 --after -3", "--after must be 0 or more, got -3"),
    ("show 1411 --last -1", "--last must be 0 or more, got -1"),
    ("frobnicate", "no such command: frobnicate"),
    ("show", "RUN is missing"),
    ("show 1411 --frob", "no such option: --frob"),
    ("completion tcsh", "outlast completion takes bash, zsh or fish, got tcsh"),
    ("ls --store ftp://there", "no such kind of store: ftp"),
]


def test_bad_input_is_one_line_a_hint_exit_2_and_changes_nothing(world: Cli) -> None:
    (world.folder / "notes.txt").write_text("mine")
    before, files = world.rows(), sorted(world.folder.rglob("*"))
    for words, said in BAD:
        answer = world.forked(*words.split(" "))
        assert said in answer.complaint, words
        assert answer.code == 2, words
        assert world.rows() == before, words
        assert sorted(world.folder.rglob("*")) == files, words


def test_bad_input_from_a_real_command_line(world: Cli) -> None:
    for words, said in BAD[::8]:
        answer = world(*words.split(" "))
        assert said in answer.complaint, words


def test_settled_twice_says_as_what_and_by_whom(world: Cli) -> None:
    world.ok("settle", "1411", "3.1", "--did-not")
    before = world.rows()
    answer = world("settle", "1411", "3.1", "--happened")
    assert answer.complaint == "effect 3.1 'comment' is settled already as 'did not happen' by tester"
    assert (answer.code, world.rows()) == (2, before)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("variables", "file", "said"),
    [
        ({"OUTLAST_LEASE_S": "soon"}, "", "OUTLAST_LEASE_S: lease_s = 'soon' is invalid"),
        ({"OUTLAST_LEASE_S": "-1"}, "", "must be at least 1"),
        ({}, "idle_s = 'x'", "idle_s = 'x' is invalid"),
        ({"OUTLAST_GC_OLDER_THAN": "soon"}, "", "OUTLAST_GC_OLDER_THAN: gc_older_than = 'soon' is invalid"),
        ({"OUTLAST_GC_OLDER_THAN": "30"}, "", "OUTLAST_GC_OLDER_THAN: gc_older_than = '30' is invalid"),
        (
            {"OUTLAST_GC_OLDER_THAN": "200000d"},
            "",
            "OUTLAST_GC_OLDER_THAN: gc_older_than = '200000d' is invalid",
        ),
        (
            {},
            "[save]\nnot_secret = ['a', '/etc/x']",
            "save_not_secret = ['a', '/etc/x'] is invalid: not a pattern of files",
        ),
        (
            {},
            "[save]\nnot_secret = 'a/../b'",
            "save_not_secret = 'a/../b' is invalid: not a pattern of files",
        ),
        ({}, "warn_at = 'often'", "outlast.toml: warn_at = 'often' is invalid"),
        ({}, "warn_at = '75,190'", "outlast.toml: warn_at = '75,190' is invalid"),
        ({}, "warn_at = [75, 90]", "outlast.toml: warn_at = [75, 90] is invalid"),
        ({"OUTLAST_WARN_AT": "75;90"}, "", "OUTLAST_WARN_AT: warn_at = '75;90' is invalid"),
        (
            {"OUTLAST_CHECK_TIMEOUT_S": "inf"},
            "",
            "OUTLAST_CHECK_TIMEOUT_S: check_timeout_s = 'inf' must be at most",
        ),
        ({}, "check_timeout_s = nan", "outlast.toml: check_timeout_s = nan must be at least 0.1"),
        ({}, "key_ttl_s = 1_000_000_000_000_000_000", "must be at most 3,153,600,000"),
        ({}, "context_tokens_max = 100", "outlast.toml: context_tokens_max = 100 must be at least 200"),
        ({"OUTLAST_GATEWAY": "maybe"}, "", "OUTLAST_GATEWAY: gateway = 'maybe' is invalid"),
        (
            {"OUTLAST_STORE": "ftp://there"},
            "",
            "OUTLAST_STORE: store = 'ftp://there' is invalid: no such kind",
        ),
        ({"OUTLAST_STORE": "~nobody-here/x"}, "", "OUTLAST_STORE: store = '~nobody-here/x' is invalid"),
        ({}, "no_such = 1", "no such setting: no_such"),
        ({}, "notify = 'curl evil'", "only your own file may set it"),
        ({}, "[[[", "cannot read "),
    ],
)
def test_nonsense_settings_name_their_place(
    world: Cli, variables: dict[str, str], file: str, said: str
) -> None:
    if file:
        (world.folder / "outlast.toml").write_text(file)
    before = world.rows()
    for words in (["config"], ["gc"]) if file else (["config"], ["pause", "1411"]):
        answer = world(*words, **variables)
        assert said in answer.complaint
        assert "outlast config" not in answer.err, "it would say the same"
        assert answer.code == 2
    assert world.rows() == before
    if file:  # an agent can write it: that is said, and keeps nobody from looking or stopping
        answer = world("show", "1411")
        warning, *rest = answer.err.splitlines()
        assert (answer.code, [line.split(":")[0] for line in rest]) == (0, ["error", "hint"])
        assert warning.startswith("warning: setting ignored: ")
        assert said in warning
        assert world("pause", "1411").code == 0


def test_what_an_agent_wrote_into_the_repositorys_settings_takes_no_good_ones_along(cli: Cli) -> None:
    work()
    (cli.folder / "outlast.toml").write_text('notify = "x"\nwarn_at = "10"\nstore = "kept"\n')
    assert cli.ok("budget", "1411", "--json").json["chart"]["warn_at"] == [10]


def test_a_store_that_is_no_store_is_left_as_it_was(cli: Cli) -> None:
    cli.root.mkdir(parents=True)
    database = cli.root / "outlast.db"
    database.write_bytes(b"not a database, but somebody's file\n" * 100)
    content = database.read_bytes()
    answer = cli("show", "1411")
    assert "cannot use the store" in answer.complaint
    assert answer.code == 2
    assert database.read_bytes() == content
    examined = cli("doctor")
    assert (examined.code, "NEEDS A PERSON" in examined.out) == (3, True)
    assert database.read_bytes() == content


def test_an_unexpected_error_is_one_line_and_shows_its_trace_when_asked(cli: Cli) -> None:
    work(beats=1)
    broken = "import sys; from outlast.inspect import find; find.all_runs = None; from outlast.cli.main import main; sys.exit(main(sys.argv[1:]))"

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-P", "-c", broken, *words],
            cwd=cli.folder, env=cli.environ, capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = run("ls")
    assert done.returncode == 70, done.stderr
    assert done.stderr.splitlines()[0].startswith("error: unexpected TypeError")
    assert "--debug" in done.stderr.splitlines()[1]
    assert "Traceback" in run("ls", "--debug").stderr


def test_the_trace_of_a_supervised_command_is_shown_too_when_asked(cli: Cli) -> None:
    broken = "import sys; from outlast.supervisor import start as starting; starting.check = None; from outlast.cli.start import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", broken, "run", "--debug", "--", "true"],
        cwd=cli.folder, env=cli.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr, "TypeError" in done.stderr) == (70, True, True), (
        done.stderr
    )


def test_a_folder_that_is_gone_is_said_to_be(cli: Cli) -> None:
    work(beats=1)
    (cli.folder / "gone").mkdir()
    script = "import sys, os; os.rmdir(os.getcwd()); from outlast.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, "ls"],
        cwd=cli.folder / "gone", env=cli.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: the folder you are in is gone"


# -- files that somebody else wrote ------------------------------------------------------------------------------------


@pytest.fixture
def archive(cli: Cli) -> Path:
    """A good export, and a store that does not have its run."""
    work(beats=2, act=lambda **_: "x" * 10_000)
    cli.ok("export", "1411", "-o", "good.tar.gz")
    return cli.folder / "good.tar.gz"


def entries(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]


def pack(path: Path, contents: dict[str, bytes], *extra: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in extra:
            tar.addfile(info)


def changed(contents: dict[str, bytes], **fields: object) -> dict[str, bytes]:
    manifest = json.loads(contents["manifest.json"]) | fields
    return contents | {"manifest.json": json.dumps(manifest).encode()}


def resealed(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The contents with a manifest that fits them: what somebody would make who wants to be believed."""
    digests = {
        name: {"size": len(data), "digest": hashlib.blake2b(data, digest_size=32).hexdigest()}
        for name, data in contents.items()
        if name != "manifest.json"
    }
    return changed(contents, digests=digests)


def hostile(case: str, good: dict[str, bytes], path: Path) -> None:
    """Write the archive of one case."""
    run = json.loads(good["manifest.json"])["run"]
    journal = f"journals/{run}.jsonl"
    blob = next(name for name in good if name.startswith("blobs/"))
    lines = good[journal].splitlines(keepends=True)
    link = tarfile.TarInfo(blob)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    cases: dict[str, dict[str, bytes]] = {
        "traversal": resealed(good | {"../../evil": b"x"}),
        "absolute": resealed(good | {"/tmp/evil": b"x"}),
        "digest": good | {journal: good[journal].replace(b"text", b"TEXT")},
        "missing entry": {name: data for name, data in good.items() if name != blob},
        "missing blob": resealed({name: data for name, data in good.items() if name != blob}),
        "extra entry": good | {"blobs/" + "0" * 64: b""},
        "manifest last": dict(reversed(good.items())),
        "no manifest": {journal: good[journal]},
        "version": changed(good, version=99),
        "format": changed(good, format="something"),
        "another run": changed(good, run="aaaaaaaaaaaa"),
        "run id as path": changed(good, run="../../../../x"),
        "no opening": resealed(good | {journal: b"".join(lines[1:])}),
        "opened twice": resealed(good | {journal: good[journal] + lines[0]}),
        "another opening": resealed(good | {journal: good[journal].replace(run.encode(), b"aaaaaaaaaaaa", 1)}),
        "unknown event": resealed(good | {journal: good[journal] + b'{"t":"nonsense","at":"2026-01-01T00:00:00Z"}\n'}),
        "not events": resealed(good | {journal: b"\xff\x00 nonsense\n"}),
        "control characters": resealed(good | {journal: good[journal].replace(b'"1411"', b'"14\\u001b11"', 1)}),
    }  # fmt: skip
    if case == "symlink":
        pack(path, {name: data for name, data in good.items() if name != blob}, link)
    elif case == "bomb":
        big = tarfile.TarInfo(blob)
        big.size = 8 << 30
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(tarfile.TarInfo("manifest.json"))
            tar.fileobj.write(big.tobuf(tarfile.GNU_FORMAT))  # type: ignore[union-attr]
    else:
        pack(path, cases[case])


CASES = [
    "traversal", "absolute", "digest", "missing entry", "missing blob", "extra entry", "manifest last", "no manifest",
    "version", "format", "another run", "run id as path", "no opening", "opened twice", "another opening",
    "unknown event", "not events", "control characters", "symlink", "bomb",
]  # fmt: skip


def test_a_hostile_archive_is_refused_before_anything_is_written(
    cli: Cli, archive: Path, tmp_path: Path
) -> None:
    good = entries(archive)
    fresh = cli.empty(tmp_path)
    fresh.ok("import", _unrelated(cli, tmp_path))
    before = fresh.rows()
    for case in CASES:
        bad = tmp_path / "bad.tar.gz"
        hostile(case, good, bad)
        answer = fresh.forked("import", bad)
        assert answer.code == 2, (case, answer.err)
        assert "bad.tar.gz" in answer.complaint, case
        assert fresh.rows() == before, case
    pack(tmp_path / "same.tar.gz", good)
    fresh.ok("import", tmp_path / "same.tar.gz")


def _unrelated(cli: Cli, tmp_path: Path) -> Path:
    work("unrelated", beats=1)
    cli.ok("export", "unrelated", "-o", tmp_path / "unrelated.tar.gz")
    return tmp_path / "unrelated.tar.gz"


def test_a_torn_or_flipped_archive_is_refused(cli: Cli, archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    fresh = cli.empty(tmp_path)
    bad = tmp_path / "bad.tar.gz"
    middle = len(data) // 2
    torn = [data[:length] for length in (0, 5, middle, len(data) - 9, len(data) - 1)]
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    for content in (*torn, flipped):
        bad.write_bytes(content)
        answer = fresh.forked("import", bad)
        assert answer.code == 2, answer.err
        assert "cannot be imported" in answer.complaint
    assert fresh.rows().get("runs", []) == []


def test_what_is_here_already_is_not_imported(cli: Cli, archive: Path) -> None:
    before = cli.rows()
    answer = cli("import", archive)
    assert (answer.code, "is already in this store" in answer.complaint) == (2, True)
    assert "--take-back" in answer.err
    assert cli.rows() == before
