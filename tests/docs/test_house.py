"""The house rules that a machine can check. Each test's name is the rule; STYLE is in CONTRIBUTING.md."""

import ast
import json
import os
import pwd
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.environment import ROOT, TIMEOUT_S, Isolated
from tests.support.source import PACKAGE, Source, python_files, repository_files

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
FOLDER_MODULES_MAX = 15
ATTRIBUTES_MAX = 20
DOCSTRING_LINES_MAX = 3
LONG_DOCSTRINGS = {PACKAGE / "errors.py"}  # it draws the tree of exceptions
# One module for each command, however many commands there are.
LONG_FOLDERS = {PACKAGE / "cli/commands"}
# Words that end like a participle and are names that everybody uses.
NOUNS = {
    "framing",
    "listing",
    "masking",
    "pricing",
    "shimming",
    "standing",
    "timing",
}  # shimming: a path that older shims name

# Durations that no `timing.py` has, by the reason.
TIMES_ELSEWHERE = {
    # What a person may give at most, or what a setting is unless given.
    "settings.py": {"YEAR_S", "AGE_MAX_S"},
    "core/budget.py": {"TIME_MAX_S"},
    "core/recovery.py": {"KEY_TTL_S"},
    "runs/engine/beat.py": {"TIMEOUT_MAX_S"},
    "store/protocol.py": {"LEASE_TTL_S"},
    "probes.py": {"SETTLE_S"},
    # The core is pure: it is told no settings. A parked run's wake-up time is recorded with this much of a jitter.
    "core/restarts.py": {"JITTER_MAX_MS"},
    # Processes that import nothing of ours.
    "supervisor/client/hook.py": {"LIMIT_S"},
    "supervisor/client/shim.py": {"LIMIT_S"},
    "chaos/witness/server.py": {"REQUEST_LIMIT_S"},
    # How coarse a file system's clock is: younger files may change again and look the same.
    "workspace/repo.py": {"YOUNG_NS"},
    "workspace/git/packs.py": {"YOUNG_NS"},
    "workspace/capture/stat_cache.py": {"_COARSE_S", "_STEP_NS"},
    # Formats: the buckets of a histogram, the pieces of a chart, the key of a sort.
    "web/metrics.py": {"BUCKETS_S"},
    "dashboard/charts.py": {"PIECE_S"},
    "dashboard/overview/filters.py": {"_LONG_S"},
    # Conversions.
    "web/html/formats.py": {"MINUTE_S", "HOUR_S", "DAY_S"},
}

# Words that say neither what a thing is nor what it holds: no part of a name.
EMPTY_WORDS = {"told", "kept", "asked", "said", "mail", "desk", "purse"}
# By file: names that a recorded format fixes. A field of a struct keeps its key with `msgspec.field(name=...)` instead.
FIXED_BY_A_FORMAT: dict[str, set[str]] = {"core/events.py": {"QuestionAsked"}}  # its tag is question_asked

READS_ENVIRONMENT = {"settings", "store"}
PRINTS = {"cli", "chaos"}
WAITS = {"timeout", "timeout_s", "limit_s", "wait_s", "git_s"}
WAITING = {"wait", "settimeout", "sleep", "acquire"}
POLLS = {ROOT / "tests/support/processes.py"}  # the one bounded wait for a condition, which all others use

ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"}
PRINTING = {"print", "sys.stdout.write", "sys.stderr.write", "sys.__stdout__.write", "sys.__stderr__.write"}
BACKEND = re.compile("Sqlite" + r"Store\b|store\.sqlite\.store\b")
SLEEPING = {"time.sleep", "asyncio.sleep"}
DECODING = {
    "msgspec.convert",
    *(
        f"msgspec.{form}.{name}"
        for form in ("json", "msgpack", "toml", "yaml")
        for name in ("decode", "Decoder")
    ),
}
CLOCKS = {
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
}


def test_only_settings_and_store_read_the_environment() -> None:
    assert [
        source.at(node)
        for source in python_files(PACKAGE)
        if source.place not in READS_ENVIRONMENT
        for _, node in source.mentions(ENVIRONMENT)
    ] == []


def test_the_core_asks_no_clock() -> None:
    assert [
        source.at(node) for source in python_files(PACKAGE / "core") for _, node in source.mentions(CLOCKS)
    ] == []


def test_only_the_store_and_its_tests_name_a_backend() -> None:
    """Others know the protocol and open by URL."""
    theirs = (PACKAGE / "store", ROOT / "tests/store")
    sources = [Source(path) for path in repository_files() if path.suffix == ".py"]
    assert [
        f"{source.path.relative_to(ROOT)}:{number}: {word}"
        for source in sources
        if not any(source.path.is_relative_to(folder) for folder in theirs)
        for number, line in enumerate(source.text.splitlines(), 1)
        for word in BACKEND.findall(line)
    ] == []


def test_no_store_is_taken_for_a_folder() -> None:
    """Its shared half has no folder; this host's is `store.local`."""
    assert [
        source.at(node)
        for source in python_files(PACKAGE)
        if source.place != "store"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("root", "folder", "database")
        and re.search(r"(^|\.)_?store$", source.full_name(node.value) or "")
    ] == []


def test_the_library_never_prints() -> None:
    assert [
        source.at(node)
        for source in python_files(PACKAGE)
        if source.place not in PRINTS
        for _, node in source.calls(PRINTING)
    ] == []


def test_no_test_sleeps() -> None:
    """A test waits for what it waits for: a lock, a line, an exit. Yielding to the loop is not sleeping."""
    assert [
        source.at(call)
        for source in python_files(ROOT / "tests")
        if source.path not in POLLS
        for name, call in source.calls(SLEEPING)
        if name == "time.sleep" or not _is_zero(call)
    ] == []


def _is_zero(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def test_only_decoders_decodes_by_type() -> None:
    """Elsewhere two threads that first decode a type at once end their process by SIGSEGV: `decoders.py` says why."""
    assert [
        source.at(node)
        for source in python_files(PACKAGE)
        if source.path != PACKAGE / "decoders.py"
        for node in _typed_decodes(source)
    ] == []


def _typed_decodes(source: Source) -> list[ast.expr]:
    """Where msgspec's own decoders are named, but for calls that are given no type, and `Decoder[T]` as an annotation."""
    mentions = [node for _, node in source.mentions(DECODING)]
    if not mentions:
        return []
    nodes = list(ast.walk(source.tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    called = {id(call.func) for call in calls}
    harmless = {id(call.func) for call in calls if not _has_type(source, call)}
    harmless |= {
        id(node.value) for node in nodes if isinstance(node, ast.Subscript) and id(node) not in called
    }
    return [node for node in mentions if id(node) not in harmless]


def _has_type(source: Source, call: ast.Call) -> bool:
    name = source.full_name(call.func) or ""
    data = 0 if name.endswith("Decoder") else 1
    return (
        name == "msgspec.convert"
        or len(call.args) > data
        or any(keyword.arg in ("type", None) for keyword in call.keywords)
    )


def test_a_function_fits_on_a_screen() -> None:
    assert [
        f"{source.at(node)} {node.name} has {lines} lines"
        for source in python_files(PACKAGE)
        if source.text.count("\n") > FUNCTION_LINES_MAX
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := _lines(node)) > FUNCTION_LINES_MAX
    ] == []


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_a_file_holds_one_idea() -> None:
    assert [
        f"{source.path.relative_to(ROOT)} has {lines} lines"
        for source in python_files(PACKAGE)
        if (lines := source.text.count("\n")) > FILE_LINES_MAX
    ] == []


def test_a_module_says_in_three_lines_what_lives_there() -> None:
    """A longer story belongs to the class or function it is about, or to docs/design."""
    assert [
        f"{source.path.relative_to(ROOT)} has {lines}"
        for source in python_files(PACKAGE)
        if source.path not in LONG_DOCSTRINGS
        and not 1 <= (lines := _docstring_lines(source.tree)) <= DOCSTRING_LINES_MAX
    ] == []


def _docstring_lines(module: ast.Module) -> int:
    first = module.body[0] if module.body else None
    if not isinstance(first, ast.Expr) or ast.get_docstring(module) is None:
        return 0
    return (first.end_lineno or first.lineno) - first.lineno + 1


def test_a_folder_reads_like_a_table_of_contents() -> None:
    folders = Counter(
        source.path.parent for source in python_files(PACKAGE) if source.path.name != "__init__.py"
    )
    assert {
        str(folder.relative_to(ROOT)): count
        for folder, count in folders.items()
        if count > FOLDER_MODULES_MAX and folder not in LONG_FOLDERS
    } == {}


def test_a_module_is_named_for_a_thing_or_a_command() -> None:
    """A participle says that something happened, not what lives there."""
    assert [
        str(source.path.relative_to(ROOT))
        for source in python_files(PACKAGE)
        if re.search(r"(ing|ed)$", source.path.stem) and source.path.stem not in NOUNS
    ] == []


def _names_in(tree: ast.Module) -> set[tuple[int, str]]:
    """Every name that is given there, with its line: of a variable, a parameter, an attribute, a function, a class, an import."""
    found: set[tuple[int, str | None]] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ExceptHandler():
                found.add((node.lineno, node.name))
            case ast.MatchAs() | ast.MatchStar():
                found.add((node.lineno, node.name))
            case ast.MatchMapping():
                found.add((node.lineno, node.rest))
            case ast.arg():
                found.add((node.lineno, node.arg))
            case ast.Name(ctx=ast.Store()):
                found.add((node.lineno, node.id))
            case ast.Attribute(ctx=ast.Store()):
                found.add((node.lineno, node.attr))
            case ast.alias():
                found.add((node.lineno, node.asname))
    return {(line, name) for line, name in found if name}


def _is_empty(name: str) -> bool:
    """Whether one of its words, between underscores or capitals, is empty."""
    return not EMPTY_WORDS.isdisjoint(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def test_a_name_says_what_it_holds() -> None:
    """`told`, `kept`, `asked` and their like fit everything: a message, an answer, a file's state, what is left of a budget."""
    found: list[str] = []
    for source in python_files(PACKAGE):
        file = str(source.path.relative_to(PACKAGE))
        names = {(1, part) for part in source.path.relative_to(PACKAGE).with_suffix("").parts}
        for line, name in sorted(names | _names_in(source.tree)):
            if _is_empty(name) and name not in FIXED_BY_A_FORMAT.get(file, ()):
                found.append(f"{file}:{line} {name}")
    assert found == []


def _times_in(source: Source) -> set[str]:
    """The names of a module's constants of time."""
    return {
        name.id
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and re.fullmatch(r"_?[A-Z][A-Z0-9_]*_(S|MS|NS)", name.id)
    }


def test_how_long_a_package_waits_stands_in_its_timing() -> None:
    """A constant of time in a module cannot be made shorter for a test, and says nothing of the others."""
    found = {str(source.path.relative_to(PACKAGE)): _times_in(source) for source in python_files(PACKAGE)}
    assert {file: names for file, names in found.items() if names} == TIMES_ELSEWHERE


def _seconds_in(tree: ast.Module) -> list[ast.Call]:
    """The calls that are given a number of seconds to wait. Below 0.01 it is a floor: 0 would mean not to wait at all."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(
            isinstance(number, ast.Constant)
            and isinstance(number.value, int | float)
            and number.value is not True
            and number.value >= 0.01
            for given in _waits_of(node)
            for number in ast.walk(given)
        )
    ]


def _waits_of(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call that say how long it waits."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    named = [each.value for each in call.keywords if each.arg in WAITS]
    return named + (call.args[:1] if name in WAITING else [])


def test_no_call_waits_for_a_number() -> None:
    """How long it waits stands in its package's timing, with the reason."""
    assert [source.at(call) for source in python_files(PACKAGE) for call in _seconds_in(source.tree)] == []


def test_a_public_class_has_its_name_alone_in_its_package() -> None:
    assert _classes_with_one_name(python_files(PACKAGE)) == {}


def test_a_public_class_has_its_name_alone_in_the_tests() -> None:
    """But for the samples of the type checker, which are programs of their own."""
    samples = ROOT / "tests/types"
    sources = [each for each in python_files(ROOT / "tests") if not each.path.is_relative_to(samples)]
    assert _classes_with_one_name(sources) == {}


def _classes_with_one_name(sources: Iterable[Source]) -> dict[tuple[str, str], list[str]]:
    """Where they are, by place (for the tests there is only one) and name."""
    places: dict[tuple[str, str], list[str]] = {}
    for source in sources:
        place = source.place if source.path.is_relative_to(PACKAGE) else "tests"
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault((place, node.name), []).append(source.at(node))
    return {name: where for name, where in places.items() if len(where) > 1}


def test_an_object_has_few_attributes() -> None:
    """Of its own, that is: what its methods assign to `self`. One with more is several objects."""
    assert [
        f"{source.at(node)} {node.name} has {count}"
        for source in python_files(PACKAGE)
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and (count := len(_attributes(node))) > ATTRIBUTES_MAX
    ] == []


def _attributes(node: ast.ClassDef) -> set[str]:
    targets = [
        target
        for each in ast.walk(node)
        if isinstance(each, ast.Assign | ast.AnnAssign)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
    ]
    flat = [
        part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    return {
        part.attr
        for part in flat
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self"
    }


IMPORTING = """
import importlib, json, os, sys, threading
from pathlib import Path

def world():
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    return {
        "threads": threading.active_count(),
        "children": children.read_text() if children.exists() else "",
        "descriptors": len(os.listdir("/dev/fd")),
        "variables": dict(os.environ),
    }

before = world()
for name in sys.argv[2:]:
    importlib.import_module(name)
Path(sys.argv[1]).write_text(json.dumps([before, world()]))
"""


def _modules() -> list[str]:
    names = []
    for source in python_files(PACKAGE):
        parts = source.path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] != "__main__":
            names.append(".".join(parts).removesuffix(".__init__"))
    return names


@pytest.mark.parametrize("modules", [["outlast"], _modules()], ids=["outlast", "every module"])
def test_importing_has_no_side_effects(modules: list[str], state: Isolated, tmp_path: Path) -> None:
    """No output, thread, process, open descriptor, changed variable, or new file in the home or working folder."""
    work, report = tmp_path / "work", tmp_path / "report.json"
    work.mkdir()
    files = sorted(state.home.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", IMPORTING, report, *modules],
        cwd=work,
        env=state.environ(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    before, after = json.loads(report.read_text())
    assert after == before
    assert list(work.iterdir()) == []
    assert sorted(state.home.rglob("*")) == files


# Where this machine gets its packages is asked of pip, so that no such place needs to be named here.
PUBLIC_HOSTS = {"pypi.org", "files.pythonhosted.org", "github.com"}
PLACES = ("index-url", "extra-index-url", "find-links", "trusted-host", "proxy")


def _places_of_this_machine() -> set[str]:
    """Words that would tell on which machine a file was written."""
    home = pwd.getpwuid(os.getuid()).pw_dir  # not $HOME, which is the test's own
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=os.environ | {"HOME": home},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    places = {str(ROOT), f"{home}/"} | _places_in(listed.stdout)
    return {place for place in places if len(place) > 4}


def _places_in(pip_config: str) -> set[str]:
    """Hosts and folders among pip's settings; a folder of one level, like /tmp, tells nothing."""
    places = set()
    for line in pip_config.splitlines():
        key, _, value = line.partition("=")
        if key.rpartition(".")[2] in PLACES:
            for word in re.split(r"\s|,|\\n", value.strip("'\"")):
                url = urlsplit(word if "://" in word else f"//{word}" if word[:1] != "/" else word)
                places |= {url.hostname or ""} - PUBLIC_HOSTS
                places |= {url.path.rstrip("/")} if not url.hostname and url.path.count("/") > 1 else set()
    return places - {""}


# A person's folder, or a package source other than the default one, written into a file.
TELLTALES = [
    re.compile(r"/(?:home|Users)/(?!you\b|user\b|me\b|\$|<|\{)[\w.-]+/"),
    re.compile(r"(?i)(?:index[-_]url|find[-_]links|trusted[-_]host)[ =]+[\w/.]"),
]


def test_no_file_tells_on_which_machine_it_was_written() -> None:
    places = _places_of_this_machine()
    found = []
    for path in repository_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if any(place in line for place in places) or any(telltale.search(line) for telltale in TELLTALES):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_the_rules_see_what_they_forbid() -> None:
    """A rule that finds nothing because it is blind is worse than none."""
    probe = Source(Path("probe.py"))
    probe.__dict__["text"] = (
        "import os as o, time\nfrom time import sleep as nap\nfrom datetime import datetime\n"
        "o.environ['A']\nnap(1)\ntime.sleep(1)\nprint()\ndatetime.now()\n"
    )
    forbidden = {"os.environ", "time.sleep", "datetime.datetime.now", "print"}
    assert {name for name, _ in probe.mentions(forbidden)} == forbidden
    assert [name for name, _ in probe.calls({"time.sleep"})] == ["time.sleep"] * 2
    assert list(probe.calls({"os.fork"})) == []
    times = Source(Path("times.py"))
    times.__dict__["text"] = (
        "GRACE_S = 6.0\n_WAIT_MS: int = 5\nREST_S, SHARE = 1.0, 20\nSIZE = 7\nclass A:\n    B_S = 1\n"
    )
    assert _times_in(times) == {"GRACE_S", "_WAIT_MS", "REST_S"}
    waits = ast.parse(
        "a.wait(min(left_s, 0.5))\nrun(timeout=60)\nrun(timeout_s=t.git_s)\nlock.acquire(False)\na.settimeout(max(0.001, b))\n"
        "time.sleep(1)\na.wait(0)\n"
    )
    assert sorted(call.lineno for call in _seconds_in(waits)) == [1, 2, 6]
    named = ast.parse(
        "import a as b_told\ndef kept(asked, *said, **mail):\n    x.desk = [purse for purse in y]\n    (TOLD := 1)\n"
        "class KeptFile:\n    was_told: int\nwith a as _said: pass\nlambda asked_s: told\n"
        "match a:\n    case {'a': kept, **said}: pass\n    case [*told]: pass\ntry: pass\nexcept A as mail: pass\n"
        "untold = keptness = oath.told\n"
    )
    assert sorted(line for line, name in _names_in(named) if _is_empty(name)) == [
        1, 2, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8, 10, 10, 11, 13,
    ]  # fmt: skip
    decodes = Source(Path("decodes.py"))
    decodes.__dict__["text"] = (
        "import msgspec\nfrom msgspec import convert\nmsgspec.json.decode(b'')\nmsgspec.json.Decoder()\n"
        "a: msgspec.json.Decoder[A]\nmsgspec.json.decode(b'', type=A)\nmsgspec.json.Decoder(A)\nconvert(1, A)\n"
        "msgspec.msgpack.Decoder[A](A)\npartial(msgspec.msgpack.decode, type=A)\nmsgspec.json.decode(b'', **more)\n"
    )
    assert sorted(node.lineno for node in _typed_decodes(decodes)) == [6, 7, 8, 9, 10, 11]
    assert TELLTALES[0].search("/home/" + "alice/project")
    assert TELLTALES[1].search("pip install --index-url" + " https://example.invalid/simple")
    config = "global.find-links='/srv/wheels/a'\n:env:.index-url='https://u:p@host.invalid:8/simple'\ninstall.user='1'"
    assert _places_in(config) == {"/srv/wheels/a", "host.invalid"}
