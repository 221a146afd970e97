"""A plain command under `outlast run --guard` in a test: a loop that posts and pushes, and can be stopped at exact instants.

The witness sees the posts; a hook of the remote repository notes each push durably."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import NAMED
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

ITEMS = ("a", "b", "c")

# Stops for good at the instant that is named in `armed`, once; somebody is about to kill it.
REACH = """
reach() {{
    [ "$(cat {folder}/armed)" = "$1" ] || return 0
    : > {folder}/armed
    echo $$ > {folder}/reached
    exec sleep 1000
}}
"""
# A program before the real one on the PATH, behind the shims.
CURL = """#!/bin/sh
{reach}
for item do :; done
reach "before post ${{item##*/}}"
{curl} "$@" || exit
reach "after post ${{item##*/}}"
"""
HOOK = """#!/bin/sh
{reach}
read old new ref
item=$(git log -1 --format=%s $new)
{note}
reach "{when} push $item"
"""
NOTE = "echo $item >> {folder}/pushed; sync {folder}/pushed"
POST = (
    "curl -fsS --connect-to {named}:80:{address} -H Witness-Id:$item -d {{}} http://{named}/act/blind/$item"
)
BASH = """set -eu
{reach}
for item in {items}; do
    said=$({post})
    echo "said $said"
    git log --format=%s | grep -qx $item || {{ echo $item >> a.txt; git commit -qam $item; }}
    git push -q origin HEAD:main
    reach "after item $item"
done
"""
PYTHON = """import os, subprocess
def reach(name):
    if open("{folder}/armed").read().strip() == name:
        open("{folder}/armed", "w").close()
        with open("{folder}/reached.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename("{folder}/reached.new", "{folder}/reached")
        os.execvp("sleep", ["sleep", "1000"])
def call(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
for item in "{items}".split():
    url = "http://{named}/act/blind/" + item
    print("said", call("curl", "-fsS", "--connect-to", "{named}:80:{address}", "-H", "Witness-Id:" + item, "-d", "{{}}", url), flush=True)
    if item not in call("git", "log", "--format=%s").split():
        with open("a.txt", "a") as file:
            file.write(item)
        call("git", "commit", "-qam", item)
    call("git", "push", "-q", "origin", "HEAD:main")
    reach("after item " + item)
"""


class GuardedLoop:
    """Task `t` on a host: the loop in one language."""

    def __init__(self, host: Host, language: str = "bash") -> None:
        self.host, self.folder = host, host.folder / "loop"
        self.folder.mkdir()
        self.armed("")
        self.work = host.repository("t")
        remote = host.folder / "remote.git"
        subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True, env=host.environ())
        subprocess.run(["git", "remote", "add", "origin", str(remote)], cwd=self.work, check=True)
        given = {"folder": self.folder, "reach": REACH.format(folder=self.folder), "named": NAMED}
        given |= {"items": " ".join(ITEMS), "address": host.witness.url.removeprefix("http://")}
        self._program(self.folder / "bin" / "curl", CURL.format(curl="/usr/bin/curl", **given))
        self._program(remote / "hooks" / "pre-receive", HOOK.format(when="before", note="", **given))
        note = NOTE.format(folder=self.folder)
        self._program(remote / "hooks" / "post-receive", HOOK.format(when="after", note=note, **given))
        text, program = (BASH, "bash") if language == "bash" else (PYTHON, sys.executable)
        self.script = self.folder / "loop.txt"
        self.post = POST.format(**given)
        self.script.write_text(text.format(post=self.post, **given))
        self.words = [program, str(self.script)]

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def armed(self, instant: str) -> None:
        """From now on it stops there, once."""
        (self.folder / "armed").write_text(f"{instant}\n")

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        path = f"{self.folder / 'bin'}:{self.host.environ()['PATH']}"
        return self.host.start("t", *self.words, options=options, PATH=path)

    def run(self, *options: str) -> int:
        """To its end: the exit code."""
        return self.start(*options).wait(TIMEOUT_S)

    def killed(self, instant: str, victim: str, *options: str) -> "subprocess.Popen[bytes]":
        """Started, and killed with -9 at this instant: everything, the command alone, or the program that is there."""
        self.armed(instant)
        process = self.start(*options)
        place = self.folder / "reached"
        pid = int(wait_for(lambda: place.exists() and place.read_text(), what=f"{instant}: {self.said}"))
        place.unlink()
        if victim == "everything":
            self.host.kill_everything()
            process.wait(TIMEOUT_S)
        else:
            is_command = (
                victim == "command" and "item" not in instant
            )  # which is there itself at the end of an item
            os.kill(self.command() if is_command else pid, signal.SIGKILL)
        return process

    def command(self) -> int:
        """The process that the supervisor started."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:2] == [os.fsencode(self.script)]:
                return int(path.parent.name)
        raise AssertionError(f"the command does not run: {self.said}")

    def posts_by(self, words: str) -> None:
        """From now on it posts with these words before its own."""
        text = self.script.read_text()
        assert f"said=$({self.post})" in text
        self.script.write_text(text.replace(f"$({self.post})", f"$({words} {self.post})"))

    @property
    def said(self) -> str:
        return self.host.said("t")

    # -- the world ---------------------------------------------------------------------------------------------------

    def posted(self) -> Counter[str]:
        return Counter(act.name for act in self.host.witness.performances())

    def pushed(self) -> Counter[str]:
        path = self.folder / "pushed"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def effects(self) -> list[dict[str, Any]]:
        found = self.host("effects", "t", "--json", cwd=self.work).json
        return list(found["effects"] if isinstance(found, dict) else found)

    def doubts(self) -> list[dict[str, Any]]:
        return [each for each in self.effects() if each["state"] in ("intended", "in_doubt")]

    def settled_by_a_person(self) -> None:
        """Somebody looks at the world and says what they found."""
        for doubt in self.doubts():
            happened = doubt["name"].rpartition("/")[2] in self.posted()
            word = "--happened" if happened else "--did-not"
            assert self.host("settle", "t", doubt["id"], word, cwd=self.work).code == 0
