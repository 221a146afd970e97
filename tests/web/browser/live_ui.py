"""What the browser looks at: the real `outlast ui` on a store, and real commands that work, die and go on."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from outlast.processes import reap
from outlast.store.local import Local
from outlast.store.protocol import RunFilter
from outlast.supervisor.guardian import lock
from tests.support import commands
from tests.support.browser_page import Page
from tests.support.environment import Isolated, skip_or_fail
from tests.support.journals.held_runs import HeldRuns, held
from tests.support.journals.night import make_night
from tests.support.place import Place
from tests.support.processes import kill_at_once, wait_for

STOP_S = 60.0
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
SEEN = (
    "color-contrast",
    "link-in-text-block",
    "target-size",
    "scrollable-region-focusable",
)  # what colours and width change
# A step after another until it is told to stop; it says in the repository how far it is.
LOOP = """
n=0
until [ -e ../stop ]; do
    n=$((n + 1))
    outlast step "step $n" -- sh -c "echo line $n >> work.txt; echo did $n"
    while [ -e ../hold ]; do sleep 0.02; done
    sleep 0.05
done
"""


class UiProcess:
    """`outlast ui` in a process of its own; started again, it serves at the same address."""

    def __init__(self, store: Path, env: dict[str, str], *words: str, log: Path) -> None:
        self._store, self._env, self._words, self._log = store, env, words, log
        self._port = 0
        self.url = ""
        self.start()

    def start(self) -> None:
        """Serve; the address is known when this returns."""
        command = [
            sys.executable, "-P", "-m", "outlast", "--store", str(self._store), "ui", "--port", str(self._port), *self._words,
        ]  # fmt: skip
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        told = self._process.stdout.readline().strip()
        assert told.startswith("http"), f"no address but {told!r}: {self._log.read_text()[-600:]}"
        self.told, self.url = told, told.partition("?")[0].rstrip("/")
        self._port = int(self.url.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; its exit code."""
        self._process.send_signal(number)
        code = self._process.wait(STOP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@contextlib.contextmanager
def served(store: Path, isolated: Isolated, *words: str, **more: str) -> Iterator[UiProcess]:
    """The dashboard of a store until the end of the block."""
    made = UiProcess(store, isolated.environ(**more), *words, log=isolated.home / "ui.log")
    try:
        yield made
    finally:
        if made._process.poll() is None:
            made.stop()
    said = (isolated.home / "ui.log").read_text()
    assert "Traceback" not in said, said[-2_000:]


@dataclass
class Morning:
    """A night's store, held alive and served."""

    root: Path
    served: UiProcess
    living: HeldRuns
    runs: dict[str, str]  # by task

    @property
    def url(self) -> str:
        return self.served.url

    def run_url(self, task: str, below: str = "") -> str:
        return f"{self.url}/runs/{self.runs[task]}{below}"


@contextlib.contextmanager
def morning(folder: Path, isolated: Isolated, *, hostile: bool = True) -> Iterator[Morning]:
    root = make_night(folder / "store", hostile=hostile)
    with held(root) as living, served(root, isolated) as made:
        runs = {summary.task: summary.run for summary in living.store.list(RunFilter())}
        yield Morning(root, made, living, runs)


@dataclass
class Desk(Place):
    """One repository, one home, one dashboard, and the commands that run under outlast."""

    def make(self) -> None:
        self.repository("work")
        (self.folder / "loop.sh").write_text(LOOP)

    def start(self, task: str, *words: str) -> subprocess.Popen[bytes]:
        """`outlast run` of the loop, at work when this returns."""
        argv = [*commands.ARGV, "run", "--task", task, *words, "--", "bash", "../loop.sh"]
        process = self.begin(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.head(task).beats >= 2 or None, what=f"two beats of {task}")
        return process

    def kill_all(self, task: str) -> None:
        """-9 to guardian, supervisor and agent of a run, all at one instant."""
        living = [process.pid for process in self.started if process.poll() is None]
        watcher = lock.of(Local(self.root), self.head(task).run)
        assert watcher is not None, f"nobody watches {task}"
        watching = [pid for pid in (watcher.guardian, watcher.supervisor) if pid]
        kill_at_once(
            [*living, *watching, *(found.pid for found in reap.find(self.head(task).run))], wait=True
        )
        for process in self.started:
            process.wait()

    def let_go(self) -> None:
        (self.folder / "stop").touch()

    def close(self) -> None:
        self.let_go()
        super().close()


# -- what is asked of every page -----------------------------------------------------------------------------------


def axe_source() -> str:
    """The accessibility checker, which the environment holds as a file."""
    spec = find_spec("axe_playwright_python")
    if spec is None or not spec.submodule_search_locations:
        skip_or_fail("needs axe-playwright-python (type: ./dev setup)")
    return Path(spec.submodule_search_locations[0], "axe.min.js").read_text()


def violations(page: Page, source: str, rules: Sequence[str] = TAGS) -> list[str]:
    """What hinders people from using the page as it is now, with the elements it is seen at."""
    page.send("Runtime.evaluate", expression=f"if (typeof axe !== 'object') {{ {source} }}")
    options = {"runOnly": list(rules), "resultTypes": ["violations"]}
    found = page.evaluate(f"axe.run(document, {json.dumps(options)}).then(r => r.violations)")
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
        for each in found
    ]


def sideways(page: Page) -> list[str]:
    """Elements that make the page wider than its window; none where it cannot be scrolled sideways."""
    return list(
        page.evaluate(
            "(() => { const wide = document.documentElement.clientWidth;"
            " if (document.documentElement.scrollWidth <= wide) return [];"
            " return [...document.querySelectorAll('body *')]"
            ".filter(e => e.getBoundingClientRect().right > wide + 1).map(e => e.outerHTML.slice(0, 160)).slice(0, 5)"
            " .concat(['width ' + document.documentElement.scrollWidth + ' of ' + wide]); })()"
        )
    )


def small_targets(page: Page, least: int = 24) -> Sequence[str]:
    """Buttons and fields that a finger misses. Links inside of text may be as high as the text."""
    return list(
        page.evaluate(
            "[...document.querySelectorAll('button, select, input:not([type=hidden]), summary, a.button, a.chip, nav a, .saves-all td a, .runs td a.mono')]"
            ".map(e => [e, e.getBoundingClientRect()]).filter(([e, b]) => b.width && b.height"
            f" && (b.height < {least} || b.width < {least})"
            " && !(e.matches('input[type=checkbox], input[type=radio]') && e.labels?.length))"
            ".map(([e, b]) => `${Math.round(b.width)}×${Math.round(b.height)} ${e.outerHTML.slice(0, 120)}`)"
        )
    )
