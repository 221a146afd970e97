"""One attempt at a task, in a process of its own: forked from a warm parent, or started from nothing.

Called as `python -m outlast.chaos.eval.attempt FOLDER URL TRIAL TASK DESIGN`."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import outlast
from outlast import faults
from outlast.chaos.eval.designs import DESIGNS
from outlast.chaos.eval.world import Instants, World, append_line
from outlast.chaos.tasks.catalog import TASKS
from outlast.chaos.timing import Timing

DONE, FAILED, IN_DOUBT = 0, 1, 3


class Setting(NamedTuple):
    """Where an attempt takes place: its folder and the witness, and its trial, task and design."""

    folder: Path
    url: str
    trial: str
    task: str
    design: str


def attempt(setting: Setting, kill_at: int | None = None, world_of: type[World] = World) -> int:
    """Start or continue the task in this process. Returns an exit code, or never."""
    instants = Instants(setting.folder, kill_at)
    world = world_of(setting.folder, setting.url, setting.trial, instants)
    world.work.mkdir(parents=True, exist_ok=True)
    os.chdir(world.work)
    if setting.design == "outlast":
        faults.arm(instants.met)
    world.mark("process.start")
    try:
        DESIGNS[setting.design](world, TASKS[setting.task])
    except outlast.EffectInDoubt as error:
        append_line(setting.folder / "doubts.jsonl", str(error), sync=False)
        code = IN_DOUBT
    else:
        code = DONE
    world.mark("process.end")
    instants.close()
    return code


def forked(folder: Path, work: Callable[[], int]) -> str:
    """Run `work` in a forked child; return `done`, `in doubt`, `killed`, `hung` or the error.

    The child ends itself after a limit, so waiting for it needs none.
    """
    pid = os.fork()
    if pid == 0:
        code = FAILED
        try:
            signal.alarm(Timing.current().attempt_limit_s)
            code = work()
        except BaseException:
            (folder / "error.txt").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        how = {signal.SIGKILL: "killed", signal.SIGALRM: "hung"}
        return how.get(signal.Signals(os.WTERMSIG(status)), f"died of signal {os.WTERMSIG(status)}")
    code = os.WEXITSTATUS(status)
    if code in (DONE, IN_DOUBT):
        return "done" if code == DONE else "in doubt"
    error = folder / "error.txt"
    return error.read_text() if error.exists() else f"exit code {code}"


def main(arguments: list[str]) -> int:
    """An attempt from a cold start, which notes when each beat begins."""
    folder, *names = arguments
    return attempt(Setting(Path(folder), *names), world_of=_Timed)


class _Timed(World):
    def note(self, what: str, label: str) -> None:
        super().note(what, label)
        if what == "begin":
            append_line(self.folder / "begins.jsonl", [label, time.monotonic()], sync=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
