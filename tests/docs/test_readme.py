"""What the documents show runs as it stands: every python block, and every sh block that says `# runs`."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.environment import ROOT, TIMEOUT_S, Isolated
from tools import record_terminal

FENCE = re.compile(r"^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/design/*.md"))]


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of code in a document."""

    document: str
    language: str
    line: int
    body: str

    @property
    def runs(self) -> bool:
        first = self.body.split("\n", 1)[0]
        return self.language == "python" or (self.language == "sh" and "# runs" in first)

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def snippets(name: str, document: str) -> list[Snippet]:
    """The blocks of a document that must run."""
    found = (
        Snippet(name, match["language"], document.count("\n", 0, match.start()) + 2, match["body"])
        for match in FENCE.finditer(document)
    )
    return [snippet for snippet in found if snippet.runs]


SHOWN = [
    snippet
    for path in DOCUMENTS
    for snippet in snippets(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("snippet", SHOWN, ids=[each.place for each in SHOWN])
def test_a_snippet_runs(snippet: Snippet, state: Isolated, tmp_path: Path) -> None:
    if snippet.language == "python":
        argv = [sys.executable, "-W", "error", "-c", snippet.body]
    else:
        argv = [shutil.which("sh") or "/bin/sh", "-euc", snippet.body]
    environ = state.environ()
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    done = subprocess.run(
        argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{snippet.place} failed:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", ["README.md", "docs/python.md", "docs/effects.md", "docs/files.md"])
def test_the_documents_for_python_show_python(name: str) -> None:
    assert any(each.document == name and each.language == "python" for each in SHOWN)


def test_the_readme_shows_commands_that_run() -> None:
    assert sum(each.document == "README.md" and each.language == "sh" for each in SHOWN) >= 2


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
    document = "# x\n\n```python\n1\n```\n\n```sh\nnot me\n```\n\n```sh\n# runs\ntrue\n```\n"
    assert snippets("x.md", document) == [
        Snippet("x.md", "python", 4, "1\n"),
        Snippet("x.md", "sh", 12, "# runs\ntrue\n"),
    ]
