"""The agent of `outlast demo`, in a process of its own: a scripted task under one design, which reports what it does.

Called as `python -m outlast.chaos.demo.agent FOLDER URL DESIGN PACE_S [pause]`; see `ReportingWorld` for `pause`."""

import json
import sys
import time
from pathlib import Path

import outlast
from outlast.chaos.eval.designs import DESIGNS
from outlast.chaos.eval.world import Instants, World
from outlast.chaos.tasks.script import Ask, Body, Do, Here, Script, Task, Write

STEPS = ("read the issue", "write the fix", "comment on the issue", "open a pull request", "close the issue")
COMMENT = "comment"


def _body(here: Here) -> Body:
    match here.step:
        case "read the issue":
            return (yield Ask("summary", "what is asked for"))
        case "write the fix":
            patch = yield Ask("patch", "the fix")
            yield Write("fix.py", patch)
            return "fix.py"
        case "comment on the issue":
            text = yield Ask("comment", "what was wrong, in two sentences")
            posted = yield Do(COMMENT, "probed", {"issue": 7, "text": text})
            return posted["url"]
        case "open a pull request":
            opened = yield Do("pull request", "keyed", {"branch": "fix-7"})
            return opened["url"]
        case _:
            closed = yield Do("close", "keyed", {"issue": 7})
            return closed["url"]


DEMO = Task(Script("demo", _body, list(STEPS)), "Fix issue 7 and say so")


class ReportingWorld(World):
    """A world that reports to its parent, line by line, what the agent is about to do and did.

    With `pause` it stops after the comment was posted and before anybody recorded that, and waits to be killed.
    """

    def __init__(self, folder: Path, url: str, pace_s: float, *, pause: bool) -> None:
        super().__init__(folder, url, "demo", Instants(folder, None))
        self._pace_s = pace_s
        self._pause = pause

    def note(self, what: str, label: str) -> None:
        super().note(what, label)
        if what == "begin":
            report_line("begin", label)
            time.sleep(self._pace_s)
        elif what == "sent":
            report_line("sent", label)

    def ask(self, decision: str, about: str, size: int = 0, context: str = "") -> str:
        report_line("asked", decision)
        return super().ask(decision, about, size, context)

    def look(self, what: str, body: object, identity: str, patience_s: float | None = None) -> object:
        found = super().look(what, body, identity, patience_s)
        report_line("looked", "there" if isinstance(found, outlast.Happened) else "not there")
        return found

    def mark(self, name: str) -> None:
        if self._pause and name == "act.replied":
            report_line("paused", "")
            sys.stdin.read()


def report_line(what: str, about: str) -> None:
    """Print one line for the parent."""
    sys.stdout.write(json.dumps([what, about]) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    folder, url, design, pace_s, *pause = arguments
    world = ReportingWorld(Path(folder), url, float(pace_s), pause=bool(pause))
    world.work.mkdir(exist_ok=True)
    DESIGNS[design](world, DEMO)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
