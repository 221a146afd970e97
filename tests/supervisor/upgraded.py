"""A run under an outlast that is changed while its agent holds."""

import os
import subprocess
from collections.abc import Sequence

from outlast.core import events as ev
from tests.supervisor.host import Host
from tests.supervisor.installed import Installed
from tests.supervisor.scripted_agent import Scripted
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

HOLD = "touch ready; until [ -e go ]; do sleep 0.02; done"


class Upgraded:
    """The stand-in for Claude Code under an outlast that is changed when its agent holds."""

    def __init__(self, host: Host) -> None:
        self.scripted, self.host = Scripted(host), host
        self.installed = Installed(host.folder / "installed")

    def start(self, *options: str, command: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        """Until the agent holds, or the command that is given instead."""
        command = command or [str(self.scripted.program), "-p", "do it"]
        return self.begin(*self._run(command, options))

    def run(self) -> int:
        """To its end."""
        return self._started(*self._run([str(self.scripted.program), "-p", "do it"])).wait(TIMEOUT_S)

    def _run(self, command: Sequence[str], options: Sequence[str] = ()) -> list[str]:
        return [*self._outlast, "run", "--task", "t", *options, "--", *command]

    def begin(self, *words: str) -> "subprocess.Popen[bytes]":
        """Until it holds."""
        process, ready = self._started(*words), self.scripted.work / "ready"
        wait_for(lambda: ready.exists() or process.poll() is not None, what="the agent")
        assert ready.exists(), self.host.said("t")
        return process

    def resume(self) -> int:
        """To its end, with what is installed now."""
        return self._started(*self._outlast, "resume", "t").wait(TIMEOUT_S)

    @property
    def _outlast(self) -> list[str]:
        return [str(self.installed.python), "-P", "-m", "outlast"]

    def _started(self, *words: str) -> "subprocess.Popen[bytes]":
        path = f"{self.installed.folder / 'bin'}:{os.environ['PATH']}"
        environ = self.host.environ(PATH=path, PYTHONPATH="")  # nothing but what is installed
        with open(self.host.folder / "t.said", "ab") as said:
            process = subprocess.Popen(
                words, cwd=self.scripted.work, env=environ, start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=said, stderr=said,
            )  # fmt: skip
        self.host.started.append(process)
        return process

    def go_on(self) -> None:
        (self.scripted.work / "go").touch()

    def loop(self, shell: str) -> str:
        """A command that runs a script with two posts in a loop, which only shims can see."""
        path = self.scripted.work / f"loop.{shell}"
        posts = self.scripted.posting(f"{shell}-$n")
        path.write_text(f"for n in 1 2; do {posts}; done\n")
        return f"{shell} ./{path.name}"

    def paying(self) -> list[str]:
        """A script that pays once, after it was held."""
        path = self.host.folder / "paying.sh"
        pay = "outlast effect pay -- sh -c 'echo paid >> ledger'"
        path.write_text(f"set -eu\noutlast step one -- true\n{HOLD}\n{pay}\n")
        return ["sh", str(path)]

    def paid(self) -> list[str]:
        path = self.scripted.work / "ledger"
        return path.read_text().split() if path.exists() else []

    def assert_all_recorded(self, names: list[str]) -> None:
        """The world has seen each of them once, and each is on record with its outcome."""
        assert self.scripted.performed() == names, self.host.said("t")
        events = self.host.events("t")
        intents = [
            event for event in events if isinstance(event, ev.EffectIntended) and event.policy == "tell"
        ]
        confirmed = {(event.beat, event.n) for event in events if isinstance(event, ev.EffectConfirmed)}
        assert len(intents) == len(names), intents
        assert {(intent.beat, intent.n) for intent in intents} <= confirmed
