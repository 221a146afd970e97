"""The corpus of everyday commands: each has its class, and those that stay on this machine have none."""

import re
from pathlib import Path

import pytest

from outlast.agents.outward import rules, shims
from outlast.agents.outward.classify import classify
from tests.agents.outward import repository

CORPUS = Path(__file__).with_name("corpus.txt")
FORGE = frozenset(
    "pr-create merge comment edit review close issue-create release-create release-upload release-edit".split()
)
LEAST = 900  # lines: the list bounds the promise, so it must not shrink


def rows() -> list[tuple[str, str]]:
    kind, found = "", []
    for line in CORPUS.read_text().splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            kind = head[1]
        elif line and not line.startswith("#"):
            found.append((kind, line))
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    repository.on_main(tmp_path, '[remote "origin"]\n\turl = git@github.com:o/r.git\n')
    (tmp_path / "package.json").write_text('{"name": "pkg", "version": "1.2.3", "scripts": {"build": "tsc"}}')
    return tmp_path


def test_every_command_of_the_corpus_has_its_class(project: Path) -> None:
    wrong = []
    for kind, line in rows():
        found = {one.kind for one in classify("Bash", {"command": line}, str(project))}
        found = {"forge" if each in FORGE else each for each in found}  # its acts are kinds of their own
        if found != (set() if kind == "local" else {kind}):
            wrong.append(f"{line}: {sorted(found) or 'local'}, not {kind}")
    assert not wrong, "\n".join(wrong)


def test_the_corpus_is_large_and_has_lines_of_every_kind() -> None:
    lines = rows()
    assert len(lines) == len(set(lines)) >= LEAST
    assert {kind for kind, _ in lines} >= {rule.kind for rule in rules.load().all} - {"mcp"}


def test_what_the_corpus_calls_by_name_has_a_shim() -> None:
    """A plain outward command of the corpus is seen below the agent too."""
    shimmed = set(shims.shimmed_programs())
    plain = [
        line.split()[0] for kind, line in rows() if kind != "local" and re.fullmatch(r"[\w@./ -]+", line)
    ]
    named = [name for name in plain if "/" not in name and name not in LEFT]
    assert sorted(set(named) - shimmed) == []


# Starters of another program that leave the PATH as it is: that program has the shim.
LEFT = frozenset("timeout python python3 php nohup aws-vault chamber doppler dotenvx env-cmd".split())
