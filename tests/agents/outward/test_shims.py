"""Shims, really executed: harmless calls become the real program at once, others go to the client, words untouched."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.agents.outward import rules, shims
from outlast.agents.outward.classify import classify_argv
from tests.agents.outward.classes import TABLES

CLIENT = "import json\nENTRY = lambda words: print(json.dumps(['client', *words]))\n"
REAL = f"#!{sys.executable} -IS\nimport json, sys\nprint(json.dumps(['real', *sys.argv[1:]]))\n"


class ShimmedPath:
    def __init__(self, folder: Path) -> None:
        self.shims, self.real, self.client = (
            folder / "shims",
            folder / "real ' $x\n",
            folder / "a\nclient's.py",
        )
        self.shims.mkdir()
        self.real.mkdir()
        self.client.write_text(CLIENT)

    def program(self, name: str) -> None:
        for path, text in (
            (self.real / name, REAL),
            (
                self.shims / name,
                shims.shim_script(
                    name, str(self.real / name), sys.executable, str(self.client), folder=str(self.shims)
                ),
            ),
        ):
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, *words: str, path: str | None = None) -> list[str]:
        done = subprocess.run(
            [str(self.shims / words[0]), *words[1:]],
            env={"PATH": f"{self.shims}:{self.real}:{os.defpath}" if path is None else path},
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
            check=True,
        )
        who: list[str] = json.loads(done.stdout)
        return who


@pytest.fixture
def world(tmp_path: Path) -> ShimmedPath:
    return ShimmedPath(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["git", "status"],
        ["git", "fetch", "origin"],
        ["git", "commit", "-m", "a b\nc"],
        ["git"],
        ["curl", "-s", "http://host/path"],
        ["curl", "-fsSL", "-o", "out", "http://host"],
        ["wget", "-q", "http://host"],
        ["npm", "install"],
        ["kubectl", "get", "pods"],
        ["docker", "build", "-t", "x", "."],
        ["gh", "pr", "view", "7"],
    ],
)
def test_a_harmless_call_never_starts_python(world: ShimmedPath, words: list[str]) -> None:
    world.program(words[0])
    assert world.run(*words) == ["real", *words[1:]]


@pytest.mark.parametrize(
    "words",
    [
        ["git", "push"],
        ["git", "-C", "a b", "push", "origin", "x"],
        ["curl", "-X", "POST", "http://host"],
        ["curl", "-sd", "x", "http://host"],
        ["curl", "--data-binary", "@f", "http://host"],
        ["npm", "publish"],
        ["ssh", "host", "true"],
        ["gh", "pr", "comment", "7"],
        ["gh", "api", "graphql"],
    ],
)
def test_a_call_that_may_be_outward_goes_to_the_client_with_its_words(
    world: ShimmedPath, words: list[str]
) -> None:
    world.program(words[0])
    assert world.run(*words) == ["client", words[0], str(world.real / words[0]), *words[1:]]


def test_strange_words_arrive_as_they_were_given(world: ShimmedPath) -> None:
    world.program("git")
    strange = [
        "",
        " ",
        "a\nb",
        "*",
        "$HOME",
        "`id`",
        "'",
        '"',
        "\\",
        "--",
        "-n",
        "é",
        "a\udcffb",
        "[",
        "push)",
        ";;",
    ]
    assert world.run("git", *strange) == ["real", *strange]
    assert world.run("git", *strange, "push")[3:] == [*strange, "push"]


def test_no_outward_call_of_the_tables_passes_a_shim_unseen() -> None:
    """The triggers are derived from the same data; here they are held against every row that is one plain command."""
    checked = 0
    for table in TABLES.values():
        for text in (*table.same, *table.other):
            words = text.split()
            if (
                any(letter in text for letter in "'\"$;&|()<>\n`#=")
                or words[0] not in shims.shimmed_programs()
            ):
                continue
            assert classify_argv(words, "/", known=rules.load([rules.LOOPBACK])), text
            assert _triggered(words), text
            checked += 1
    assert checked > 60


def _triggered(words: list[str]) -> bool:
    patterns = shims.triggers(words[0])
    script = f"for word do case $word in {' | '.join(patterns)}) exit 0 ;; esac; done; exit 1"
    found = subprocess.run(["sh", "-c", script, "sh", *words[1:]], check=False, timeout=60).returncode == 0
    return found or patterns == ("*",)


def test_the_real_program_is_the_one_behind_the_shims_on_the_path_of_the_caller(
    world: ShimmedPath, tmp_path: Path
) -> None:
    """A login shell may have another PATH than the agent: the shim is no reason to get another version than without it."""
    world.program("git")
    other = tmp_path / "other"
    other.mkdir()
    (other / "git").write_text(REAL.replace("'real'", "'other'"))
    (other / "git").chmod(0o755)
    assert world.run("git", "status", path=f"{world.shims}:{other}:{world.real}") == ["other", "status"]
    assert world.run("git", "status", path=f"{other}:{world.shims}:{world.real}") == ["real", "status"]
    assert world.run("git", "status", path=f"{world.shims}:{other}:{world.shims}:relative:") == [
        "real",
        "status",
    ]
    assert world.run("git", "status", path=str(other)) == ["real", "status"], "it is called by its own path"
    assert world.run("git", "push", path=f"{world.shims}:{other}")[2] == f"{other}/git"


def test_two_folders_of_shims_end_at_the_real_program(world: ShimmedPath, tmp_path: Path) -> None:
    """An agent under outlast may start another one."""
    world.program("git")
    inner = tmp_path / "inner"
    inner.mkdir()
    script = shims.shim_script("git", str(world.shims / "git"), sys.executable, "/c", folder=str(inner))
    (inner / "git").write_text(script)
    (inner / "git").chmod(0o755)
    for path in (f"{inner}:{world.shims}:{world.real}", f"{world.shims}:{inner}:{world.shims}:{world.real}"):
        done = subprocess.run(
            [inner / "git", "status"], env={"PATH": path}, capture_output=True, timeout=60, check=True
        )
        assert json.loads(done.stdout) == ["real", "status"]


def test_a_shim_never_finds_itself() -> None:
    for paths in (("git", "/p", "/c"), ("/g", "p", "/c"), ("/g", "/p", "c"), ("/g\0", "/p", "/c")):
        with pytest.raises(ValueError, match="absolute"):
            shims.shim_script("git", *paths)


def test_a_program_of_the_user_s_has_a_shim_and_one_made_local_only_does_not_gain_one() -> None:
    known = rules.load(
        [
            {"kind": "fax", "programs": ["fax"], "commands": ["send"]},
            {"kind": "odd", "programs": ["odd"], "commands": ["it's"]},
            {"kind": "x", "programs": ["quiet"], "local": True},
        ]
    )
    programs = shims.shimmed_programs(known)
    assert {"fax", "odd", "git", "curl", "gh", "npm"} <= set(programs)
    assert "quiet" not in programs
    assert shims.triggers("fax", known) == ("send",)
    assert shims.triggers("odd", known) == ("*",)


def test_every_shim_is_a_script_that_sh_accepts(tmp_path: Path) -> None:
    for name in shims.shimmed_programs():
        script = tmp_path / name
        script.write_text(shims.shim_script(name, f"/usr/bin/{name}", "/usr/bin/python3", "/x/client.py"))
        subprocess.run(["sh", "-n", str(script)], check=True, timeout=60)


NAMES = "real behind place word first skip value file needed home name client command".split()


@pytest.mark.parametrize(
    "words",
    [
        ["git", "status"], ["git", "-C", ".", "log", "push"], ["npm", "ls"], ["curl", "-X", "GET", "http://h"], ["curl", "http://h"],
        ["wget", "http://h"], ["gh", "pr", "list"], ["docker", "ps"], ["cargo", "build"],
    ],
)  # fmt: skip
def test_the_program_has_the_variables_of_its_caller(tmp_path: Path, words: list[str]) -> None:
    """A variable that the caller has exported is exported again with whatever its shim puts into it."""
    real, shim = tmp_path / "real", tmp_path / words[0]
    real.write_text(f"#!{sys.executable} -IS\nimport json, os\nprint(json.dumps(dict(os.environ)))\n")
    shim.write_text(shims.shim_script(words[0], str(real), sys.executable, "/dev/null", folder=str(tmp_path)))
    for path in (real, shim):
        path.chmod(0o700)
    given = {name: f"the caller's {name}" for name in NAMES}
    done = subprocess.run(
        [str(shim), *words[1:]],
        env={"PATH": os.defpath, **given},
        capture_output=True,
        timeout=60,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert {name: seen.get(name) for name in NAMES} == given
    assert set(seen) <= {"PATH", "PWD", "LC_CTYPE", *NAMES}
