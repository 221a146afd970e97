"""Real agent CLIs at pinned versions, in a cache folder: found there (or on PATH), fetched from their registries.

`find` never uses the network; `fetch` does, through npm and pip as this machine has them set up. From the shell:
`python -m tests.agents.tools fetch [NAME…]` and `… list`. How a CLI is run is in `worlds`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "OUTLAST_TEST_AGENTS"
FETCH_LIMIT_S = 900.0
VERSION_LIMIT_S = 60.0
PARALLEL = 2
COMPLETE = "outlast-tool.json"  # written last, before the rename


class Unavailable(Exception):
    """It cannot be had here: a registry out of reach, or no interpreter that it runs on."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to fetch. `entry` is the program inside the folder, `wrapper` the npm front of a native one."""

    name: str
    version: str
    program: str  # what people type
    entry: str
    npm: tuple[str, ...] = ()
    pypi: tuple[str, ...] = ()
    wrapper: str | None = None
    node: str | None = None  # an own node, inside the folder
    python: tuple[tuple[int, int], tuple[int, int]] = ((3, 10), (3, 15))  # from, and below
    alone: bool = False  # without what the package asks for

    @property
    def key(self) -> str:
        return f"{self.name}-{self.version}"


@dataclass(frozen=True, slots=True)
class Tool:
    """A CLI that is here. `command` starts it; `environment` is to be laid over the caller's own."""

    name: str
    version: str
    command: list[str]
    environment: dict[str, str]
    wrapper: list[str] | None = None  # the same through its npm wrapper, where that is another process
    cached: bool = True


def _arch(x64: str, arm64: str) -> str:
    return arm64 if platform.machine() in ("aarch64", "arm64") else x64


_CPU = _arch("x64", "arm64")
_CODEX_CPU = _arch("x86_64", "aarch64")
_CLAUDE = f"@anthropic-ai/claude-code-linux-{_CPU}"


def _claude(version: str) -> Recipe:
    # The platform package alone: the front package asks for a newer node than the program, which needs none.
    return Recipe(
        "claude", version, "claude", f"node_modules/{_CLAUDE}/claude", npm=(f"{_CLAUDE}@{version}",)
    )


def _kimi_cli(version: str, *, alone: bool = False) -> Recipe:
    return Recipe(
        "kimi-cli",
        version,
        "kimi",
        "venv/bin/kimi",
        pypi=(f"kimi-cli=={version}",),
        python=((3, 12), (3, 15)),
        alone=alone,
    )


# The first of a name is the one that is meant when no version is given.
RECIPES: tuple[Recipe, ...] = (
    _claude("2.1.325"),
    _claude("2.1.197"),
    Recipe(
        "codex",
        "0.166.0",
        "codex",
        f"node_modules/@openai/codex-linux-{_CPU}/vendor/{_CODEX_CPU}-unknown-linux-musl/bin/codex",
        npm=("@openai/codex@0.166.0",),
        wrapper="node_modules/@openai/codex/bin/codex.js",
    ),
    Recipe(
        "kimi-code",
        "2.1.0",
        "kimi",
        "node_modules/@moonshot-ai/kimi-code/dist/main.mjs",
        npm=("@moonshot-ai/kimi-code@2.1.0", f"node-linux-{_CPU}@24.21.0"),
        node=f"node_modules/node-linux-{_CPU}/bin/node",
    ),
    _kimi_cli("1.51.0"),
    _kimi_cli("1.52.0", alone=True),  # the farewell release uses nothing of the 350 MB that it asks for
    Recipe(
        "gemini",
        "0.61.0",
        "gemini",
        "node_modules/@google/gemini-cli/bundle/gemini.js",
        npm=("@google/gemini-cli@0.61.0",),
    ),
    Recipe(  # outlast does not know it: a plain command, under guard
        "qwen",
        "0.15.10",
        "qwen",
        "node_modules/@qwen-code/qwen-code/cli.js",
        npm=("@qwen-code/qwen-code@0.15.10",),
    ),
    Recipe(
        "opencode",
        "1.18.33",
        "opencode",
        f"node_modules/opencode-linux-{_CPU}/bin/opencode",
        npm=(f"opencode-linux-{_CPU}@1.18.33",),
    ),
    Recipe(
        "mini-swe-agent",
        "2.4.6",
        "mini",
        "venv/bin/mini",
        # This litellm imports mcp and does not ask for it.
        pypi=("mini-swe-agent==2.4.6", "litellm==1.106.2", "mcp==2.3.0"),
    ),
    Recipe(
        "aider",
        "0.86.2",
        "aider",
        "venv/bin/aider",
        pypi=("aider-chat==0.86.2",),
        python=((3, 10), (3, 13)),
    ),
)


def recipe(name: str, version: str | None = None) -> Recipe:
    """The pinned recipe of that name, also as `name@version`. Raises LookupError."""
    name, _, told = name.partition("@")
    version = version or told or None
    for known in RECIPES:
        if known.name == name and version in (None, known.version):
            return known
    raise LookupError(
        f"no pinned agent {name} {version or ''}; there are {', '.join(r.key for r in RECIPES)}"
    )


def cache() -> Path:
    """The cache folder. The home is asked of the system: inside tests, HOME is a test's own."""
    told = os.environ.get(FOLDER_VARIABLE)
    if told:
        return Path(told)
    base = os.environ.get("XDG_CACHE_HOME") or Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache")
    return Path(base, "outlast-agents")


# --- finding ------------------------------------------------------------------------------------------------


def find(name: str, version: str | None = None) -> Tool | None:
    """The CLI from the cache, else from PATH (only one of that version, if one is given), else None."""
    wanted = recipe(name, version)
    folder = cache() / wanted.key
    if (folder / COMPLETE).exists():
        return _tool(wanted, folder)
    return _installed(wanted, any_version=version is None and "@" not in name)


def _tool(wanted: Recipe, folder: Path) -> Tool:
    path = f"{folder / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    wrapper = None
    if wanted.wrapper is not None and (node := shutil.which("node")) is not None:
        wrapper = [node, str(folder / wanted.wrapper)]
    program = str(folder / "bin" / wanted.program)
    return Tool(wanted.name, wanted.version, [program], {"PATH": path}, wrapper)


def _installed(wanted: Recipe, *, any_version: bool) -> Tool | None:
    program = shutil.which(wanted.program)
    if program is None:
        return None
    try:
        said = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_LIMIT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\d+\.\d+\.\d+", said)
    # Two different programs are called kimi; the Python one says its name before the version.
    if found is None or (
        wanted.program == "kimi" and ("kimi, version" in said) != (wanted.name == "kimi-cli")
    ):
        return None
    if not any_version and found[0] != wanted.version:
        return None
    return Tool(wanted.name, found[0], [program], {}, cached=False)


# --- fetching -----------------------------------------------------------------------------------------------


def fetch(name: str, version: str | None = None) -> Tool:
    """The CLI from the cache, fetched if it is not there. Two fetchers at once: one waits. Raises Unavailable."""
    wanted = recipe(name, version)
    final = cache() / wanted.key
    final.parent.mkdir(parents=True, exist_ok=True)
    with _locked(final.parent / f".{wanted.key}.lock"):
        if not (final / COMPLETE).exists():
            for stale in final.parent.glob(f".{wanted.key}.new-*"):
                shutil.rmtree(stale)  # of a fetcher that was killed: we hold the lock
            staging = final.parent / f".{wanted.key}.new-{os.getpid()}"
            try:
                _build(wanted, staging, final)
                shutil.rmtree(final, ignore_errors=True)
                staging.rename(final)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return _tool(wanted, final)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(wanted: Recipe, staging: Path, final: Path) -> None:
    (staging / "bin").mkdir(parents=True)
    if wanted.npm:
        _npm(wanted, staging)
    else:
        _pip(wanted, staging, final)
    entry = staging / wanted.entry
    if not entry.exists():
        raise Unavailable(f"{wanted.key}: the package has no {wanted.entry}")
    entry.chmod(entry.stat().st_mode | 0o555)
    os.symlink(Path("..", wanted.entry), staging / "bin" / wanted.program)
    if wanted.node is not None:
        os.symlink(Path("..", wanted.node), staging / "bin" / "node")
    (staging / COMPLETE).write_text(json.dumps({"name": wanted.name, "version": wanted.version}) + "\n")


def _npm(wanted: Recipe, staging: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable(f"{wanted.key}: needs npm")
    quiet = [
        "--no-audit",
        "--no-fund",
        "--no-save",
        "--no-package-lock",
        "--ignore-scripts",
        "--loglevel=error",
    ]
    _run(wanted, [npm, "install", "--prefix", str(staging), *quiet, "--engine-strict=false", *wanted.npm])


def _pip(wanted: Recipe, staging: Path, final: Path) -> None:
    python = _python(*wanted.python)
    if python is None:
        (major, minor), (_, below) = wanted.python
        raise Unavailable(f"{wanted.key}: needs Python {major}.{minor} or newer, below {major}.{below}")
    venv = staging / "venv"
    _run(wanted, [python, "-m", "venv", str(venv)])
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(wanted, [*pip, *(["--no-deps"] if wanted.alone else []), *wanted.pypi])
    # Scripts name the environment's own place, which is about to change.
    for path in (venv / "bin").iterdir():
        if path.is_file() and not path.is_symlink():
            raw = path.read_bytes()
            path.write_bytes(raw.replace(os.fsencode(staging), os.fsencode(final)))


def _run(wanted: Recipe, argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{wanted.key}: no answer in {FETCH_LIMIT_S:.0f} s: {argv[0]}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise Unavailable(f"{wanted.key}: exit code {done.returncode} of {' '.join(argv)}\n{said}")


def _python(low: tuple[int, int], below: tuple[int, int]) -> str | None:
    """An interpreter that can make environments and is new enough: on PATH, or among pyenv's."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path(home, ".pyenv"), "versions")
    # The newest first: kimi-cli 1.51 does not run on 3.12.1, whose dataclasses stumble over its generic ones.
    names = [f"{low[0]}.{minor}" for minor in reversed(range(low[1], below[1]))]
    candidates = []
    for name in names:
        candidates += [f"python{name}", *(str(path) for path in sorted(pyenv.glob(f"{name}.*/bin/python")))]
    candidates += [sys.executable, "python3"]
    check = f"import sys, venv, ensurepip; sys.exit(not {low} <= sys.version_info[:2] < {below})"
    for candidate in candidates:
        try:
            usable = subprocess.run([candidate, "-c", check], capture_output=True, check=False, timeout=60)
        except OSError:
            continue
        if usable.returncode == 0:
            return candidate
    return None


# --- the shell's side ---------------------------------------------------------------------------------------


def _fetch_all(names: Sequence[str]) -> int:
    wanted = [recipe(name) for name in names] or list(RECIPES)
    missing = 0

    def one(entry: Recipe) -> tuple[Recipe, Tool | Unavailable]:
        try:
            return entry, fetch(entry.name, entry.version)
        except Unavailable as error:
            return entry, error

    with ThreadPoolExecutor(PARALLEL) as pool:
        for done in as_completed([pool.submit(one, entry) for entry in wanted]):
            entry, got = done.result()
            if isinstance(got, Unavailable):
                missing += 1
                print(f"missing: {got}", file=sys.stderr, flush=True)
            else:
                print(f"{entry.key:24} {got.command[0]}", flush=True)
    in_ci = os.environ.get("CI", "").lower() in ("true", "1")
    if missing and not in_ci:
        print(f"warning: {missing} agents are missing; their tests are skipped", file=sys.stderr)
    return 1 if missing and in_ci else 0


def _list() -> int:
    for entry in RECIPES:
        got = find(entry.name, entry.version)
        print(f"{entry.key:24} {got.command[0] if got else '-'}")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.agents.tools", description="real agent CLIs for the tests")
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("fetch", help="fetch these (NAME or NAME@VERSION), or all")
    fetching.add_argument("names", nargs="*", metavar="NAME")
    commands.add_parser("list", help="what is here")
    options = parser.parse_args(arguments)
    try:
        return _fetch_all(options.names) if options.command == "fetch" else _list()
    except LookupError as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
