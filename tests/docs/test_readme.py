"""What the documents show runs as it stands: every python block, and every sh block that says `runs` after its language."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.shown_world import ShownWorld
from tests.support.environment import ROOT, TIMEOUT_S, Isolated
from tools import record_terminal

FENCE = re.compile(r"^```(?P<language>\w+)(?P<mark>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "benchmarks/README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/design/*.md")),
]


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of code in a document."""

    document: str
    language: str
    line: int
    body: str
    mark: str = ""

    @property
    def runs(self) -> bool:
        return self.language == "python" or (self.language == "sh" and "runs" in self.mark.split())

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def snippets(name: str, document: str) -> list[Snippet]:
    """The blocks of a document that must run."""
    found = (
        Snippet(
            name, match["language"], document.count("\n", 0, match.start()) + 2, match["body"], match["mark"]
        )
        for match in FENCE.finditer(document)
    )
    return [snippet for snippet in found if snippet.runs]


SHOWN = [
    snippet
    for path in DOCUMENTS
    for snippet in snippets(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
]


# A block that needs a world of its own, with a run to look at.
WHOLE = ("README.md", "docs/effects.md", "docs/files.md")
OF_A_RUN = [each for each in SHOWN if each.language == "sh" and each.document not in WHOLE]
BY_ITSELF = [each for each in SHOWN if each not in OF_A_RUN]


@pytest.mark.parametrize("snippet", BY_ITSELF, ids=[each.place for each in BY_ITSELF])
def test_a_snippet_runs(snippet: Snippet, state: Isolated, tmp_path: Path) -> None:
    if snippet.language == "python":
        environ = state.environ(PYTHONPATH=str(ROOT))  # for the package of the benchmarks
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", snippet.body], cwd=tmp_path, env=environ, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    else:
        done = ShownWorld(tmp_path, state).run(snippet.body)
    assert done.returncode == 0, f"{snippet.place} failed:\n{done.stdout}{done.stderr}"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("snippet", OF_A_RUN, ids=[each.place for each in OF_A_RUN])
def test_a_command_with_scripted_stand_ins_runs(snippet: Snippet, state: Isolated, tmp_path: Path) -> None:
    world = ShownWorld(tmp_path, state)
    if "--task 1411 " not in snippet.body:
        world.begin_1411()
    done = world.run(snippet.body)
    assert done.returncode == 0, f"{snippet.place} failed:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", ["README.md", "docs/python.md", "docs/effects.md", "docs/files.md"])
def test_the_documents_for_python_show_python(name: str) -> None:
    assert any(each.document == name and each.language == "python" for each in SHOWN)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("README.md", 2),
        ("docs/loops.md", 2),
        ("docs/commands.md", 20),
        ("docs/agents.md", 2),
        ("docs/budgets.md", 1),
    ],
)
def test_the_documents_show_commands_that_run(name: str, least: int) -> None:
    assert sum(each.document == name and each.language == "sh" for each in SHOWN) >= least


def test_the_recorded_terminal_is_what_it_would_be_today() -> None:
    """Up to times and ids. `./dev record` writes it afresh."""
    shown = record_terminal.recorded((ROOT / "README.md").read_text(encoding="utf-8"))
    again = record_terminal.record()
    assert record_terminal.without_times_and_ids(shown) == record_terminal.without_times_and_ids(again)
    assert "comments posted: 1\n" in again


def test_a_recording_that_tells_something_else_is_noticed() -> None:
    same = record_terminal.without_times_and_ids
    assert same("1411  done  12:13:19  iuhmu6xzhkhf") == same("1411  done  09:01:00  e443n82e6ted")
    assert same("comments posted: 1") != same("comments posted: 2")
    assert same("1411  in doubt  1") != same("1411  done  1")


def test_blocks_are_found_by_their_language_and_mark() -> None:
    document = "# x\n\n```python\n1\n```\n\n```sh\nnot me\n```\n\n```sh runs\ntrue\n```\n"
    assert snippets("x.md", document) == [
        Snippet("x.md", "python", 4, "1\n"),
        Snippet("x.md", "sh", 12, "true\n", " runs"),
    ]
