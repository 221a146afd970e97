"""Running git: without its locks, hooks, prompts or variables from outside, and never with a failure overlooked."""

import functools
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from outlast import settings
from outlast.errors import SaveFailed

_QUIET = (
    "core.fsmonitor=false", "core.untrackedCache=false", "core.hooksPath=/dev/null", "core.preloadIndex=true",
    "core.quotePath=false", "gc.auto=0", "maintenance.auto=false", "safe.directory=*", "submodule.recurse=false",
    "core.splitIndex=false",
    "core.checkStat=default", "core.trustctime=true", "core.fileMode=true", "core.symlinks=true", "core.ignoreCase=false",
)  # fmt: skip
# What would change bytes on their way. The worktree's own .gitattributes are overruled by the private info/attributes.
RAW = ("core.autocrlf=false", "core.safecrlf=false", "core.eol=lf", "core.attributesFile=/dev/null")
_WORDS = tuple(word for setting in _QUIET for word in ("-c", setting))
RAW_WORDS = tuple(word for setting in RAW for word in ("-c", setting))


HELPER = "OUTLAST_HELPER"  # marks what works for us, beside what is watched


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for git: ours, without what tells git where to work, and without questions."""
    return settings.environment(
        without="GIT_",
        GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0", GIT_NO_LAZY_FETCH="1", LC_ALL="C", **{HELPER: "1"},
        **(changes or {}),
    )  # fmt: skip


@functools.cache
def _program(search_path: str) -> str:
    """Where git is: looking for it at every start costs a failed exec for each folder before."""
    return shutil.which("git", path=search_path) or "git"


class Running:
    """A git that was started; `result` waits for it."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        git_dir: Path | None = None,
        work_tree: Path | None = None,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        ok: tuple[int, ...] = (0,),
        options: Sequence[str] = (),
    ) -> None:
        places = [f"--git-dir={git_dir}"] if git_dir is not None else []
        places += [f"--work-tree={work_tree}"] if work_tree is not None else []
        self._words, self._ok, self._stdin = words, ok, stdin
        self.said = b""
        env = environment(variables)
        try:
            self._process = subprocess.Popen(
                [_program(env.get("PATH", "")), *_WORDS, *options, *places, *words], cwd=cwd or work_tree or git_dir, env=env,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        except FileNotFoundError as error:
            where = cwd or work_tree or git_dir
            if where is not None and not where.is_dir():
                raise SaveFailed(f"{where} is gone", hint="put it back, or name another folder") from error
            raise SaveFailed(
                "git is not installed", hint="install it: `apt install git`, `brew install git`"
            ) from error
        except OSError as error:
            where = cwd or work_tree or git_dir
            raise SaveFailed(f"git cannot be started in {where}: {error.strerror}") from error

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.returncode

    def result(self, timeout_s: float | None = None) -> bytes:
        """What it printed. Any exit code that was not expected is a failure, said in git's own words."""
        try:
            out, self.said = self._process.communicate(self._stdin, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise SaveFailed(
                f"`git {self._words[0]}` was not done in the {timeout_s:.1f} s that were left"
            ) from error
        finally:
            self.stop()
        if self._process.returncode not in self._ok:
            said = self.said.decode(errors="replace").strip().splitlines() or ["no word why"]
            raise SaveFailed(f"`git {self._words[0]}` failed with {self._process.returncode}: {said[-1]}")
        return out

    def stop(self) -> None:
        """Kill it if it runs still. Nothing is left of it."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def run(
    words: Sequence[str],
    *,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    ok: tuple[int, ...] = (0,),
    timeout_s: float | None = None,
    options: Sequence[str] = (),
) -> bytes:
    """Run git to its end; what it printed."""
    started = Running(
        words,
        git_dir=git_dir,
        work_tree=work_tree,
        cwd=cwd,
        variables=variables,
        stdin=stdin,
        ok=ok,
        options=options,
    )
    return started.result(timeout_s)


def names(listed: bytes) -> list[bytes]:
    """Names that git printed with -z."""
    return listed.split(b"\0")[:-1]


def listed(paths: Sequence[bytes]) -> bytes:
    """Names for git to read with -z."""
    return b"".join([path + b"\0" for path in paths])
