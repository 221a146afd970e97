"""Fetching agent CLIs: whole or not at all, once for two fetchers, and said when it cannot be. No network: npm is ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents import tools
from tests.support.environment import ROOT, TIMEOUT_S

RECIPE = tools.recipe("opencode")
# Installs the one file that the recipe asks for; counts its calls; fails or dies on request.
NPM = """#!/bin/sh
echo called >> "$CALLS"
[ "$NPM_DOES" != fail ] || { echo no such registry >&2; exit 7; }
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/$(dirname "$ENTRY")"
[ "$NPM_DOES" != nothing ] || exit 0
printf '#!/bin/sh\\necho opencode 1.18.33\\n' > "$2/$ENTRY"
[ "$NPM_DOES" != die ] || kill -9 $PPID
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and an npm that needs no registry."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/npm").write_text(NPM)
    (tmp_path / "bin/npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("ENTRY", RECIPE.entry)
    monkeypatch.setenv("NPM_DOES", "install")
    monkeypatch.setenv(tools.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path / "calls"


def start() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.agents.tools", "fetch", "opencode"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out + err


def test_what_is_not_there_is_not_found_and_what_was_fetched_is(calls: Path) -> None:
    assert tools.find("opencode") is None
    fetched = tools.fetch("opencode")
    assert tools.find("opencode") == tools.find("opencode@1.18.33") == fetched
    said = subprocess.run(fetched.command, capture_output=True, text=True, check=True).stdout
    assert "1.18.33" in said
    tools.fetch("opencode")
    assert calls.read_text() == "called\n"


def test_two_fetchers_at_once_fetch_once(calls: Path) -> None:
    both = [start(), start()]
    assert [end(process)[0] for process in both] == [0, 0]
    assert calls.read_text() == "called\n"


def test_killed_halfway_nothing_is_found_and_the_next_fetch_clears_up(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_DOES", "die")
    assert end(start())[0] == -9
    assert tools.find("opencode") is None
    assert len(list(tools.cache().glob(".*.new-*"))) == 1
    monkeypatch.setenv("NPM_DOES", "install")
    tools.fetch("opencode")
    assert list(tools.cache().glob(".*.new-*")) == []


@pytest.mark.parametrize(("does", "says"), [("fail", "no such registry"), ("nothing", "the package has no")])
@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_what_cannot_be_had_is_said_and_fails_only_in_ci(
    calls: Path, monkeypatch: pytest.MonkeyPatch, does: str, says: str, ci: str, code: int
) -> None:
    monkeypatch.setenv("NPM_DOES", does)
    monkeypatch.setenv("CI", ci)
    returned, said = end(start())
    assert returned == code, said
    assert says in said
    assert [path.name for path in tools.cache().iterdir()] == [f".{RECIPE.key}.lock"]


def test_one_installed_by_its_user_is_found_on_path(calls: Path) -> None:
    program = calls.parent / "bin/opencode"
    program.write_text("#!/bin/sh\necho 1.19.0\n")
    program.chmod(0o755)
    found = tools.find("opencode")
    assert found is not None
    assert (found.version, found.command, found.cached) == ("1.19.0", [str(program)], False)
    assert tools.find("opencode", "1.18.33") is None


def test_a_name_that_is_not_pinned_is_an_error(calls: Path) -> None:
    with pytest.raises(LookupError, match="no pinned agent copilot"):
        tools.find("copilot")
    with pytest.raises(LookupError, match=r"no pinned agent claude 1\.0\.0"):
        tools.find("claude", "1.0.0")
