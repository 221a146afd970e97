"""Records the terminal in README: a small agent is killed with -9, the same line is typed again, and the run goes on.

`./dev record` writes it into README.md, between the markers; `./dev record --print` only prints it. See `Terminal`."""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from outlast.chaos.witness.client import Witness

README = Path(__file__).resolve().parents[1] / "README.md"
MARKERS = ("<!-- recorded by ./dev record -->\n", "<!-- end of the recording -->\n")
LIMIT_S = 60.0
LINE = "outlast run --task 1411 -- sh agent.sh"
WHAT_HAPPENED = "# kill -9 of outlast and all it started: the comment is posted, its outcome is not recorded"

AGENT = """\
outlast step fix -- sh -c 'date > fixed.txt; echo the bug is fixed'
outlast effect comment --probe './tracker find 1411' -- ./tracker comment 1411
outlast step tidy -- echo all tidied up
"""

# A command that talks to the witness. Like many, it can comment and look, and the far side does not dedupe.
TRACKER = """\
#!{python}
import sys
from outlast.chaos.witness.client import Client
tracker = Client({url!r})
what, *issue = sys.argv[1:]
if what == "comment":
    tracker.act("probed", "comment", "fixed", marker=issue[0])
elif what == "find":
    sys.exit(0 if tracker.find(issue[0]) else 1)
else:
    print("comments posted:", sum(tracker.counts().by_identity.values()))
"""


class Terminal:
    """A folder, a tracker, and what a person would see there. Everything shown is what the commands really printed.

    The tracker is the external witness of the tests: it posts the comment at once and answers late, so that the kill
    falls between the act and its record.
    """

    def __init__(self, folder: Path, world: Witness) -> None:
        self._folder, self._world = folder, world
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("OUTLAST_", "XDG_"))
        }
        beside = str(Path(sys.executable).parent)
        home = folder / "home"
        home.mkdir()
        self._variables = kept | {"HOME": str(home), "PATH": f"{beside}:{kept['PATH']}", "TZ": "UTC"}
        self._work = folder / "app"
        self._work.mkdir()
        self.shown: list[str] = []

    def write(self, name: str, text: str) -> None:
        """Put an executable file there."""
        path = self._work / name
        path.write_text(text)
        path.chmod(0o755)

    def type(self, line: str) -> None:
        """Run a line to its end, and show it with its output."""
        done = subprocess.run(
            ["sh", "-c", line], cwd=self._work, env=self._variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        self._show(line, done.stdout)

    def type_and_kill(self, line: str) -> None:
        """Run a line; when the tracker has the comment and has not answered, kill -9 everything that the line started."""
        self._world.fault("late_reply")
        process = subprocess.Popen(
            ["sh", "-c", f"{line}; :"], cwd=self._work, env=self._variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        until_s = time.monotonic() + LIMIT_S
        while not self._world.performances():
            if process.poll() is not None or time.monotonic() > until_s:
                raise SystemExit("error: the agent did not reach its comment")
            time.sleep(0.01)
        for pid in _below(process.pid)[1:]:  # not the shell, which reports its child's end
            os.kill(pid, signal.SIGKILL)
        printed, _ = process.communicate(timeout=LIMIT_S)
        self._show(line, printed)
        self.shown.append(WHAT_HAPPENED)
        self._world.release()

    def _show(self, line: str, printed: str) -> None:
        self.shown += [f"$ {line}", *printed.rstrip("\n").splitlines()]


def _below(top: int) -> list[int]:
    """A process and all its descendants, parents first."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue  # it has ended
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found = [top]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def record() -> str:
    """The terminal, as a block of Markdown."""
    with tempfile.TemporaryDirectory(prefix="outlast-record-") as base:
        folder = Path(base)
        with Witness.start(folder / "witness.log") as world:
            terminal = Terminal(folder, world)
            terminal.write("agent.sh", AGENT)
            terminal.write("tracker", TRACKER.format(python=sys.executable, url=world.url))
            terminal.type("cat agent.sh")
            terminal.type_and_kill(LINE)
            terminal.type("outlast ls")
            terminal.type(LINE)
            terminal.type("./tracker count")
            terminal.type("outlast log 1411 | grep effect | cut -c9-72")
    text = "\n".join(terminal.shown)
    return f"```console\n{text}\n```\n"


def without_times_and_ids(text: str) -> str:
    """The text in which two recordings of the same story are equal."""
    for pattern, word in (
        (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?", "<time>"),
        (r"\b\d\d:\d\d(:\d\d)?\b", "<time>"),
        (r"\b[a-z0-9]{12}\b", "<run>"),
        (r"\bpid \d+", "pid <pid>"),
        (r"\b[0-9a-f]{7,40}\b", "<commit>"),
        (r"\b\d+ (s|ms|seconds?)\b", "<age>"),
        (r"[ \t]+", " "),
    ):
        text = re.sub(pattern, word, text)
    return text


def recorded(document: str) -> str:
    """What a document shows between the markers."""
    begin, end = MARKERS
    return document.partition(begin)[2].partition(end)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=textwrap.shorten(__doc__ or "", 200))
    parser.add_argument("--print", action="store_true", help="only print it")
    text = record()
    if parser.parse_args().print:
        print(text, end="")
        return 0
    document = README.read_text(encoding="utf-8")
    begin, end = MARKERS
    before, found, rest = document.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"error: {README.name} has no markers {begin.strip()} and {end.strip()}")
    README.write_text(before + begin + text + end + rest.partition(end)[2], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
