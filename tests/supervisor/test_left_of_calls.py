"""What a call started and left: nobody finds out that the call did not happen, and it is not made again, while that may do it yet.

The witness says what was done. A program waits for a file, so that each test knows what lives when."""

import contextlib
import os
import signal
import sys
from collections import Counter

import pytest

from tests.supervisor.guarded_loop import GuardedLoop
from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S
from tests.support.processes import alive, gone, wait_for

# The real curl waits in the program itself, or in a child of it.
WAITING = """#!/bin/sh
waits() {{ echo $$ > {folder}/begun.new; mv {folder}/begun.new {folder}/begun; while [ ! -e {folder}/go ]; do sleep 0.05; done; }}
[ ! -e {folder}/go ] || exec /usr/bin/curl "$@"
{how}
"""
ITSELF = 'waits; exec /usr/bin/curl "$@"'
LATER = 'waits; sleep 1; exec /usr/bin/curl "$@"'  # a moment after whoever does not wait for it has gone on
CHILD = """sh -c 'exec 2>/dev/null; echo $$ > "$0/begun.new"; mv "$0/begun.new" "$0/begun"; while [ ! -e "$0/go" ]; do sleep 0.05; done; exec /usr/bin/curl "$@"' {folder} "$@"
exit $?"""


class Waiting(GuardedLoop):
    """A script with one post, whose program waits for `go`."""

    def __init__(self, host: Host, how: str) -> None:
        super().__init__(host)
        how = how.format(folder=self.folder)
        (self.folder / "bin" / "curl").write_text(WAITING.format(folder=self.folder, how=how))
        self.post = self.post.replace("$item", "a")

    def begun(self) -> int:
        """The process that is about to post."""
        place = self.folder / "begun"
        return int(wait_for(lambda: place.exists() and place.read_text(), what=f"the post: {self.said}"))

    def go(self) -> None:
        (self.folder / "go").touch()

    def all_killed_but(self, left: int) -> None:
        """Everything of the host is killed with -9 at once, except this process."""
        kept = {left, self.host.witness.pid}

        def none_else() -> bool:
            others = [pid for pid in self.host.processes() if pid not in kept]
            # The oldest first: a guardian that sees the others die would stop this one. None is stopped before: the kernel
            # would send SIGHUP to its group.
            for pid in sorted(others):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not others

        wait_for(none_else, what="the end of everything else")
        assert alive(left)


# -- a program whose shim its caller stops ---------------------------------------------------------------------------

CANCELLED = """
import os, pathlib, shlex, signal, subprocess, time
folder = pathlib.Path({folder!r})
def until(what):
    while not what():
        time.sleep(0.02)
process = subprocess.Popen(shlex.split({post!r}))
until((folder / "begun").exists)
program = int((folder / "begun").read_text())
process.send_signal({number})
process.wait()
(folder / "go").touch()
def gone():
    try:
        return pathlib.Path(f"/proc/{{program}}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
until(gone)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"])
def test_a_program_that_its_caller_stops_ends_with_its_shim(host: Host, name: str) -> None:
    loop = Waiting(host, ITSELF)
    script = loop.folder / "cancels.py"
    given = {"folder": str(loop.folder), "post": loop.post, "number": signal.Signals[name].value}
    script.write_text(CANCELLED.format(**given))
    loop.script.write_text(f"exec {sys.executable} {script}\n")
    assert loop.run("--guard") == 3, loop.said
    assert loop.posted() == Counter(), "it was cancelled, and was done all the same"
    assert [each["state"] for each in loop.effects()] == ["in_doubt"], "nobody knows how far it came"


# -- a person or an agent who says that it did not happen ------------------------------------------------------------

SETTLED = """
{post} &
until [ -e {folder}/begun ]; do sleep 0.05; done
kill -9 $!; wait $!
outlast settle $OUTLAST_RUN 1.1 --did-not; echo "settled with $?" >> {folder}/settled
{then}
while kill -0 $(cat {folder}/begun) 2>/dev/null; do sleep 0.05; done
outlast settle $OUTLAST_RUN 1.1 {finding}; echo "settled with $?" >> {folder}/settled
touch {folder}/go
{again}
"""


@pytest.mark.parametrize(
    ("then", "finding"), [("touch {folder}/go", "--happened"), ("kill -9 $(cat {folder}/begun)", "--did-not")]
)
def test_that_a_call_did_not_happen_is_refused_while_a_process_of_it_lives(
    host: Host, then: str, finding: str
) -> None:
    loop = Waiting(host, CHILD)
    again = loop.post if finding == "--did-not" else "true"
    given = {"folder": loop.folder, "post": loop.post, "finding": finding, "again": again}
    loop.script.write_text(SETTLED.format(then=then.format(folder=loop.folder), **given))
    if loop.run("--guard") == 3:  # the script ended before the last word was taken in
        assert loop.run() == 0, loop.said
    assert (loop.folder / "settled").read_text() == "settled with 2\nsettled with 0\n", loop.said
    assert "effect 1.1 may still be under way in pid" in loop.said
    assert loop.posted() == Counter("a")


# -- a process in a cleaned environment that outlives everything else --------------------------------------------------


@pytest.mark.parametrize("words", ["", 'env -i PATH="$PATH" '], ids=["as it is", "cleaned"])
def test_what_a_dead_attempts_program_left_is_stopped_before_its_call_is_made_again(
    host: Host, words: str
) -> None:
    loop = Waiting(host, CHILD)
    loop.script.write_text(f"{words}{loop.post}\n")
    process = loop.start("--guard")
    left = loop.begun()
    loop.all_killed_but(left)
    process.wait(TIMEOUT_S)
    assert loop.run() == 3, loop.said
    assert not alive(left), "it would post beside the next one"
    loop.settled_by_a_person()
    loop.go()
    assert loop.run() == 0, loop.said
    assert loop.posted() == Counter("a")


ACT = """
import os, sys, time
from pathlib import Path
from outlast.chaos.witness.client import Client
url, folder, what = sys.argv[1:]
folder = Path(folder)
if what == "look":
    sys.exit(0 if Client(url).find("a") else 1)
(folder / "begun.new").write_text(str(os.getpid()))
(folder / "begun.new").rename(folder / "begun")
while not (folder / "go").exists():
    time.sleep(0.02)
Client(url).act("probed", "a", {"for": "a"}, marker="a")
"""


def test_the_command_of_an_effect_in_a_cleaned_environment_is_stopped_before_it_is_looked_up(
    host: Host,
) -> None:
    act = host.folder / "act.py"
    act.write_text(ACT)
    loop = Waiting(host, ITSELF)
    do = f"{sys.executable} -P {act} {host.witness.url} {loop.folder}"
    loop.script.write_text(f"outlast effect post --probe '{do} look' -- env -i {do} do\n")
    process = loop.start()
    left = loop.begun()
    loop.all_killed_but(left)
    process.wait(TIMEOUT_S)
    (loop.folder / "begun").unlink()
    again = loop.start()
    try:
        assert loop.begun() != left
        assert not alive(left), "it would post beside the next one"
    finally:
        loop.go()
    assert again.wait(TIMEOUT_S) == 0, loop.said
    gone([left])
    assert Counter(each.marker for each in host.witness.performances()) == Counter("a")


# -- what the command of an effect left running ------------------------------------------------------------------------


def leaving(loop: Waiting, form: str, probe: str = "") -> None:
    """An effect whose command starts the post in the background, and ends when that has begun."""
    inner = loop.folder / "inner.sh"
    post = form.format(post=f"{loop.post} > /dev/null 2>&1")
    until = f"until [ -e {loop.folder}/begun ]; do sleep 0.05; done"
    inner.write_text(f"echo $$ > {loop.folder}/inner\n{post}\n[ -e {loop.folder}/go ] || {until}\n")
    loop.script.write_text(f"outlast effect post {probe} -- bash {inner}\n")


@pytest.mark.parametrize("guard", [(), ("--guard",)], ids=["plain", "guarded"])
@pytest.mark.parametrize("form", ["{post} &", "setsid {post} &"])
def test_what_the_command_of_an_effect_left_running_is_waited_for(
    host: Host, form: str, guard: tuple[str, ...]
) -> None:
    loop = Waiting(host, LATER)
    leaving(loop, form)
    process = loop.start(*guard)
    loop.begun()
    inner = int((loop.folder / "inner").read_text())
    wait_for(lambda: not alive(inner), what="the end of the command")
    loop.go()
    assert process.wait(TIMEOUT_S) == 0, loop.said
    assert loop.posted() == Counter("a")
    assert [each["state"] for each in loop.effects()] == ["confirmed"]


@pytest.mark.parametrize("probe", ["", "--probe 'exit 1'", "--key k --unknown reissue"])
def test_what_the_command_of_an_effect_left_running_and_never_ends_is_in_doubt(
    host: Host, probe: str
) -> None:
    """After a limit, which this test makes short. Nobody believes that it did not happen, and it is not done again beside it."""
    host.timing = "supervisor.background_s=0.2"
    loop = Waiting(host, ITSELF)
    leaving(loop, "setsid {post} &", probe)
    assert loop.run() == 3, loop.said
    assert loop.posted() == Counter()
    [doubt] = loop.doubts()
    assert doubt["state"] == "in_doubt", loop.said
    assert "still be under way" in loop.said
