"""Which agent a command starts: recognised from the command, and nothing that only looks like one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from outlast.agents import registry
from outlast.agents.common import versions
from outlast.agents.timing import Timing

NPM = "/usr/lib/node_modules"


@pytest.mark.parametrize(
    ("line", "program", "name"),
    [
        ("claude -p hello", "/usr/bin/claude", "claude"),
        ("claude", "/usr/bin/claude", "claude"),
        ("/opt/x/claude/versions/2.1.325 -p hello", "/opt/x/claude/versions/2.1.325", "claude"),
        (f"{NPM}/@anthropic-ai/claude-code-linux-x64/claude -p hello", "", "claude"),
        ("npx @anthropic-ai/claude-code -p hello", "/usr/bin/npx", "claude"),
        ("npx -y @anthropic-ai/claude-code@2.1.325 -p hello", "/usr/bin/npx", "claude"),
        ("pnpm dlx @anthropic-ai/claude-code -p hello", "/usr/bin/pnpm", "claude"),
        (f"node {NPM}/@anthropic-ai/claude-code/cli.js -p hello", "/usr/bin/node", "claude"),
        ("./claude-loop.sh", "/srv/claude-loop.sh", None),
        ("claude-monitor", "/usr/bin/claude-monitor", None),
        ("cat claude", "/bin/cat", None),
        ("npx prettier claude", "/usr/bin/npx", None),
        ("node server.js claude", "/usr/bin/node", None),
        ("claude mcp list", "/usr/bin/claude", None),
        ("claude update", "/usr/bin/claude", None),
        ("claude --version", "/usr/bin/claude", None),
        ("claude --bg do-it", "/usr/bin/claude", None),
        ("claude --model opus doctor", "/usr/bin/claude", None),
        ("claude explain-mcp", "/usr/bin/claude", "claude"),
        ("codex exec hello", "/usr/bin/codex", "codex"),
        ("codex", "/usr/bin/codex", "codex"),
        ("codex -m o3 e hello", "/usr/bin/codex", "codex"),
        ("npx @openai/codex exec hello", "/usr/bin/npx", "codex"),
        (f"node {NPM}/@openai/codex/bin/codex.js exec hello", "/usr/bin/node", "codex"),
        ("codex login", "/usr/bin/codex", None),
        ("codex exec review", "/usr/bin/codex", None),
        ("codex --help", "/usr/bin/codex", None),
        ("codex-linter exec", "/usr/bin/codex-linter", None),
        ("make", "/usr/bin/make", None),
        ("", "", None),
    ],
)
def test_a_command_is_recognised(line: str, program: str, name: str | None) -> None:
    found = registry.recognise(tuple(line.split()), program)
    assert (found.name if found else None) == name


def test_a_link_to_an_agent_is_that_agent(tmp_path: Path) -> None:
    real = tmp_path / "claude/versions/2.1.325"
    real.parent.mkdir(parents=True)
    real.touch()
    link = tmp_path / "cc"
    link.symlink_to(real)
    found = registry.recognise(("cc", "-p", "hello"), str(link))
    assert found is not None
    assert found.name == "claude"


def test_the_others_are_listed_and_an_unknown_name_is_none() -> None:
    assert registry.NAMES == (
        "claude",
        "codex",
        "kimi-code",
        "kimi-cli",
        "gemini",
        "opencode",
        "aider",
        "mini-swe-agent",
    )
    assert registry.by_name("nobody") is None
    claude = registry.by_name("claude")
    assert claude is not None
    assert claude is registry.by_name("claude")


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_name_of_an_agent_holds_the_word_that_it_is_imported_for(name: str) -> None:
    agent = registry.by_name(name)
    assert agent is not None
    names = agent.release.names
    known = [*names.programs, *names.packages, *names.modules, names.file.pattern if names.file else ""]
    assert [each for each in known if each and registry.HINTS[name] not in each] == []


def test_a_command_that_is_no_agent_imports_no_agent_and_nothing_that_minds_one() -> None:
    code = (
        "import sys; from outlast.supervisor.attempt import attempt; from outlast.agents import registry; "
        "assert registry.recognise(('true', '--', 'x'), '/bin/true') is None; "
        "print(*(name for name in sys.modules if name.startswith('outlast.agents.')"
        " or name in ('outlast.supervisor.agent.hooks', 'outlast.supervisor.agent.calls.outward', 'ssl', 'http.client')))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    seam = [f"outlast.agents.{part}" for part in ("events", "registry", "release", "values")]
    assert sorted(done.stdout.split()) == seam


@given(st.lists(st.text(max_size=12), max_size=5), st.text(max_size=20))
def test_no_command_makes_it_fail(words: list[str], program: str) -> None:
    registry.recognise(words, program)
    for name in ("claude", "codex"):
        kind = registry.by_name(name)
        assert kind is not None
        kind.cli.detect(words, program)
        kind.cli.read(words)
        versions.problem(kind.release, program)


# --- versions ---------------------------------------------------------------------------------------------------


def test_a_version_is_read_from_the_package_or_the_path_without_running_it(tmp_path: Path) -> None:
    package = tmp_path / "node_modules/@anthropic-ai/claude-code"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@anthropic-ai/claude-code", "version": "2.1.325"}')
    (package / "bin/cli.js").touch()
    link = tmp_path / "claude"
    link.symlink_to(package / "bin/cli.js")
    native = tmp_path / "versions/2.1.197"
    native.parent.mkdir()
    native.touch()
    names = ("@anthropic-ai/claude-code",)
    assert versions.by_package(str(link), names) == "2.1.325"
    assert versions.by_package(str(native), names) == "2.1.197"
    assert versions.by_package(str(link), ("other",)) == ""
    assert versions.by_package(str(tmp_path / "nothing"), names) == ""
    (package / "package.json").write_text("{" * 1000)
    assert versions.by_package(str(link), names) == ""


def test_a_version_that_no_file_tells_is_asked_for_in_time() -> None:
    asked: list[tuple[Sequence[str], float]] = []
    claude = registry.by_name("claude")
    assert claude is not None

    def run(words: Sequence[str], timeout_s: float) -> str:
        asked.append((words, timeout_s))
        return "2.1.325 (Claude Code)"

    assert versions.of(claude.release, "/nowhere/claude", run) == "2.1.325"
    assert asked == [(["/nowhere/claude", "--version"], Timing().version_s)]

    def fails(words: Sequence[str], timeout_s: float) -> str:
        raise TimeoutError

    assert versions.of(claude.release, "/nowhere/claude", fails) == ""


def test_a_distribution_is_found_beside_its_script(tmp_path: Path) -> None:
    (tmp_path / "lib/python3.13/site-packages/kimi_cli-1.51.0.dist-info").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kimi").touch()
    assert versions.by_distribution(os.fspath(tmp_path / "bin/kimi"), "kimi-cli") == "1.51.0"
    assert versions.by_distribution(os.fspath(tmp_path / "bin/kimi"), "aider-chat") == ""


@pytest.mark.parametrize(
    ("agent", "version", "problem", "untested"),
    [
        ("claude", "1.0.128", "too old", ""),
        ("claude", "2.0.0", "", ""),
        ("claude", "2.1.325", "", ""),
        ("claude", "3.0.0", "", "newer than what outlast was tried with"),
        ("claude", "", "", "cannot be read"),
        ("codex", "0.39.0", "too old", ""),
        ("codex", "0.166.0", "", ""),
        ("codex", "1.0.0", "", "newer"),
    ],
)
def test_a_version_too_old_is_refused_and_one_too_new_is_named(
    agent: str, version: str, problem: str, untested: str
) -> None:
    kind = registry.by_name(agent)
    assert kind is not None
    assert problem in versions.problem(kind.release, version)
    assert bool(problem) == bool(versions.problem(kind.release, version))
    said = versions.untested(kind.release, version)
    assert untested in said
    assert bool(untested) == bool(said)
