"""The source tree as the house rules read it: files, syntax trees, and calls by their full names."""

import ast
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.support.environment import ROOT

PACKAGE = ROOT / "src/outlast"


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def place(self) -> str:
        """The module or package right under outlast: `store` for src/outlast/store/sqlite/store.py."""
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    def at(self, node: ast.stmt | ast.expr) -> str:
        return f"{self.path.relative_to(ROOT)}:{node.lineno}"

    @cached_property
    def _imported(self) -> dict[str, str]:
        """What each imported name stands for: `sleep` → `time.sleep`, `t` → `time`."""
        names = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    names[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    def full_name(self, node: ast.AST) -> str | None:
        """`time.sleep` for an expression that names it, however it was imported; None for other expressions."""
        match node:
            case ast.Name(id=name):
                return self._imported.get(name, name)
            case ast.Attribute(value=value, attr=attr):
                owner = self.full_name(value)
                return f"{owner}.{attr}" if owner else None
            case _:
                return None

    def mentions(self, wanted: Collection[str]) -> Iterator[tuple[str, ast.expr]]:
        """Every name and dotted name in the file that is, in full, one of those wanted."""
        for node in self._nodes(wanted):
            if isinstance(node, ast.Name | ast.Attribute) and (name := self.full_name(node)) in wanted:
                yield name, node

    def calls(self, wanted: Collection[str]) -> Iterator[tuple[str, ast.Call]]:
        """Every call of something that is, in full, one of those wanted."""
        for node in self._nodes(wanted):
            if isinstance(node, ast.Call) and (name := self.full_name(node.func)) in wanted:
                yield name, node

    def _nodes(self, wanted: Collection[str]) -> Iterator[ast.AST]:
        """A file without the last part of any of these names cannot name them: parsing is the slow part."""
        if any(name.rpartition(".")[2] in self.text for name in wanted):
            yield from ast.walk(self.tree)


@cache
def python_files(folder: Path) -> list[Source]:
    """All Python files under a folder; read and parsed once."""
    return [Source(path) for path in sorted(folder.rglob("*.py"))]


def repository_files() -> list[Path]:
    """Every file that is, or is about to be, in the repository; nothing that is ignored."""
    listed = subprocess.run(
        [
            "git",
            "-c",
            f"safe.directory={ROOT}",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return sorted(path for path in paths if path.is_file())
