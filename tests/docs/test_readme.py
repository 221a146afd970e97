"""What the README shows runs as it stands: every python block, and every sh block that says `# runs`."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.environment import ROOT, TIMEOUT_S, Isolated

FENCE = re.compile(r"^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of code in a document."""

    language: str
    line: int
    body: str

    @property
    def runs(self) -> bool:
        first = self.body.split("\n", 1)[0]
        return self.language == "python" or (self.language == "sh" and "# runs" in first)


def snippets(document: str) -> list[Snippet]:
    """The blocks of a document that must run."""
    found = (
        Snippet(match["language"], document.count("\n", 0, match.start()) + 2, match["body"])
        for match in FENCE.finditer(document)
    )
    return [snippet for snippet in found if snippet.runs]


README = snippets((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("snippet", README, ids=[f"README.md:{each.line}" for each in README])
def test_a_snippet_of_the_readme_runs(snippet: Snippet, state: Isolated, tmp_path: Path) -> None:
    if snippet.language == "python":
        argv = [sys.executable, "-W", "error", "-c", snippet.body]
    else:
        argv = [shutil.which("sh") or "/bin/sh", "-euc", snippet.body]
    environ = state.environ()
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    done = subprocess.run(
        argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"README.md:{snippet.line} failed:\n{done.stdout}{done.stderr}"


def test_the_readme_shows_python() -> None:
    assert any(snippet.language == "python" for snippet in README)


def test_blocks_are_found_by_their_language_and_mark() -> None:
    document = "# x\n\n```python\n1\n```\n\n```sh\nnot me\n```\n\n```sh\n# runs\ntrue\n```\n"
    assert snippets(document) == [Snippet("python", 4, "1\n"), Snippet("sh", 12, "# runs\ntrue\n")]
