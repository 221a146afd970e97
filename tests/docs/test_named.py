"""Everything a user can meet has a name, and every name is in the documentation."""

import ast
import importlib
import inspect
import re
import tomllib
from argparse import ArgumentParser, _SubParsersAction
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tests.support.environment import ROOT
from tests.support.source import PACKAGE, Source

DESIGN = ROOT / "docs/design"
LINES_MAX = {"README.md": 240, "ARCHITECTURE.md": 280}
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _documentation() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS if path.exists())


def unnamed(names: list[str], text: str, *, before: str = "") -> list[str]:
    """The names that the text does not contain as whole words (after `before`, where that is given)."""
    return [name for name in names if not re.search(rf"(?<![\w.-]){re.escape(before + name)}(?![\w-])", text)]


def _classes(module: ModuleType) -> list[type]:
    own = (cls for _, cls in inspect.getmembers(module, inspect.isclass) if cls.__module__ == module.__name__)
    return [cls for cls in own if not cls.__name__.startswith("_")]


def _errors() -> list[str]:
    module = importlib.import_module("outlast.errors")
    return [cls.__name__ for cls in _classes(module) if issubclass(cls, BaseException)]


def _events() -> list[str]:
    """Class names and tags: the one is met in Python, the other in `log --json` and on disk."""
    module = importlib.import_module("outlast.core.events")
    names = []
    for cls in _classes(module):
        if issubclass(cls, msgspec.Struct) and isinstance(cls.__struct_config__.tag, str):
            names += [cls.__name__, cls.__struct_config__.tag]
    return names


def _crash_points() -> list[str]:
    return list(importlib.import_module("outlast.faults").POINTS)


def _commands() -> list[str]:
    """All subcommands, nested ones as `chaos eval`, from the parser that the program itself uses."""
    module = importlib.import_module("outlast.cli.main")
    for name in ("parser", "build_parser", "make_parser"):
        if callable(build := getattr(module, name, None)) and isinstance(parser := build(), ArgumentParser):
            return _subcommands(parser)
    pytest.fail("outlast.cli.main has no function `build_parser() -> ArgumentParser`", pytrace=False)


def _subcommands(parser: ArgumentParser, prefix: str = "") -> list[str]:
    names = []
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            shown = {choice.dest for choice in action._choices_actions}  # a hidden one has no help text
            for name, child in action.choices.items():
                if name in shown:
                    names += [prefix + name, *_subcommands(child, f"{prefix}{name} ")]
    return names


def test_every_error_is_documented() -> None:
    assert unnamed(_errors(), _documentation()) == []


def test_every_event_is_documented() -> None:
    assert unnamed(_events(), (DESIGN / "events.md").read_text(encoding="utf-8")) == []


def test_every_crash_point_is_documented() -> None:
    assert unnamed(_crash_points(), (DESIGN / "crash-points.md").read_text(encoding="utf-8")) == []


def test_every_command_is_documented() -> None:
    commands = _commands()
    assert commands, "the parser has no subcommands"
    assert unnamed(commands, _documentation(), before="outlast ") == []


def test_every_link_between_documents_leads_somewhere() -> None:
    documents = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    assert [
        f"{path.relative_to(ROOT)}: {target}"
        for path in documents
        if path.exists()
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
        if not Path(path.parent, target).exists()
    ] == []


# Where a path in the documents of the design may begin. Rooms of the supervisor and of workspace are named within their own page.
BASES = {
    "": (ROOT, PACKAGE),
    "agents.md": (PACKAGE / "supervisor", PACKAGE / "supervisor/agent"),
    "crash-matrix.md": (ROOT / "tests/crash",),
    "supervisor.md": (PACKAGE / "supervisor",),
    "workspace.md": (PACKAGE / "workspace",),
}
# Written by users, or beside them; no part of the repository.
THEIRS = {"outlast.toml", "config.toml", "prices.toml", "outward.toml", "R/outward.toml"}
MODULE = re.compile(r"(?<![\w./~$<-])((?:\w+/)*\w+\.(?:py|toml|sh))\b")
FUNCTIONS = re.compile(r"`((?:\w+/)*\w+\.py)`: ((?:`[\w.]+`(?:, )?)+)")


def _found(path: str, document: Path) -> Path | None:
    bases = (*BASES[""], *BASES.get(document.name, ()))
    return next((base / path for base in bases if (base / path).is_file()), None)


def test_every_module_that_the_design_names_is_there() -> None:
    documents = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted(DESIGN.glob("*.md"))]
    assert [
        f"{document.relative_to(ROOT)}: {path}"
        for document in documents
        for code in re.findall(r"`([^`\n]+)`", document.read_text(encoding="utf-8"))
        for path in MODULE.findall(code)
        if path not in THEIRS and _found(path, document) is None
    ] == []


def test_the_layers_in_architecture_are_those_that_the_contracts_enforce_and_they_exist() -> None:
    told = (
        (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Layers")[2].partition("\n## ")[0]
    )
    shown = set(re.findall(r"\w+", told))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layered = [each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    for contract in layered:
        folder = ROOT / "src" / contract["containers"][0].replace(".", "/")
        names = re.findall(r"\w+", " ".join(contract["layers"]))
        assert [
            name for name in names if not (folder / name).is_dir() and not (folder / f"{name}.py").is_file()
        ] == []
        if folder in (PACKAGE, PACKAGE / "supervisor"):
            assert [name for name in names if name not in shown] == []


def test_every_function_that_a_reader_is_sent_to_is_there() -> None:
    document = ROOT / "ARCHITECTURE.md"
    sent = FUNCTIONS.findall(document.read_text(encoding="utf-8"))
    assert len(sent) > 20
    missing = []
    for path, names in sent:
        found = _found(path, document)
        text = found.read_text(encoding="utf-8") if found is not None else ""
        missing += [
            f"{path}: {name}"
            for name in re.findall(r"`([\w.]+)`", names)
            for part in name.split(".")
            if not re.search(rf"^\s*(?:(?:async )?def|class) {part}\b|^{part}\b.*=", text, re.MULTILINE)
        ]
    assert missing == []


def test_every_place_in_the_state_folder_is_in_the_table_of_files() -> None:
    source = Source(PACKAGE / "store/local.py")
    names = {
        node.right.value
        for node in ast.walk(source.tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and isinstance(node.right, ast.Constant)
    }
    assert {"mark", "ballast", "guardian.json"} <= names
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Every file on disk")[2]
    table = text.partition("\n## ")[0]
    assert [name for name in sorted(names) if not re.search(rf"/{re.escape(name)}(?![\w-])", table)] == []


def test_the_upgrade_that_hints_name_is_the_one_in_the_documents() -> None:
    command = importlib.import_module("outlast.errors").UPGRADE.split("`")[1]
    assert f"`{command}`" in (ROOT / "docs/setup.md").read_text(encoding="utf-8")
    hints = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if "install -U outlast" in path.read_text(encoding="utf-8")
    ]
    assert hints == [], "outlast is on no package index"


def test_readme_and_architecture_stay_short() -> None:
    lengths = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in LINES_MAX}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX[name]} == {}


def test_every_link_to_a_heading_finds_it() -> None:
    documents = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    assert [
        f"{path.relative_to(ROOT)}: {target}#{anchor}"
        for path in documents
        for target, anchor in re.findall(
            r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)", path.read_text(encoding="utf-8")
        )
        if anchor not in _anchors(path.parent / target if target else path)
    ] == []


def _anchors(document: Path) -> set[str]:
    """What the headings of a document are called in links, as GitHub calls them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_name_inside_another_is_not_named() -> None:
    assert unnamed(["act.intended", "Parked"], "act.intended_twice UnParked") == ["act.intended", "Parked"]
    assert unnamed(["act.intended", "Parked"], "`act.intended`, Parked.") == []
    assert unnamed(["ls", "run"], "`outlast ls --all`, run", before="outlast ") == ["run"]
