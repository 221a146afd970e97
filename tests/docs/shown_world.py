"""Where a shell block of the documents runs: a repository, scripted stand-ins for what it starts, and a run 1411 to look at.

The stand-ins only do what a block needs: no model is asked, and nothing leaves the machine."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.supervisor import scripted_claude
from tests.support.environment import TIMEOUT_S, Isolated

# 40 beats, each with a save; in the next one somebody kills it.
BEGUN = """
import os, pathlib, signal, outlast

with outlast.run("1411", goal="trap exit signals", budget="500k", workspace=".") as run:
    for beat in run.beats():
        if beat.number == 41:
            os.kill(os.getpid(), signal.SIGKILL)
        pathlib.Path("notes").write_text(f"{beat.number}")
        beat.done()
"""
# A stand-in for whatever a block starts and does not show.
PROGRAMS = {
    "make": "#!/bin/sh\nexit 0\n",
    "gh": '#!/bin/sh\necho "$*" >> "$HOME/commented"\n',
}
FILES = {
    "has-comment.sh": "#!/bin/sh\nexit 1\n",
    "agent.sh": "#!/bin/sh\noutlast step fix -- touch fixed\n",
    "loop.sh": "#!/bin/sh\necho one round\n",
}


class ShownWorld:
    """A world for one block."""

    def __init__(self, folder: Path, state: Isolated) -> None:
        self._bin, self.work = folder / "bin", folder / "app"
        self._environ = state.environ()
        self._environ["PATH"] = f"{self._bin}:{Path(sys.executable).parent}:{self._environ['PATH']}"
        for place, programs in ((self._bin, PROGRAMS), (self.work, FILES)):
            place.mkdir()
            for name, text in programs.items():
                (place / name).write_text(text)
                (place / name).chmod(0o755)
        claude = self._bin / "claude"
        claude.write_text(f"#!{sys.executable}\n{Path(scripted_claude.__file__).read_text()}")
        claude.chmod(0o755)
        (self._bin / "script").write_text(json.dumps(["touch fixed"]))
        for words in (
            ["init", "-q"],
            ["add", "-A"],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"],
        ):
            subprocess.run(["git", *words], cwd=self.work, env=self._environ, check=True)

    def begin_1411(self) -> None:
        """A killed run of a program, with saves."""
        subprocess.run(
            [sys.executable, "-c", BEGUN], cwd=self.work, env=self._environ, check=False, timeout=TIMEOUT_S
        )

    def run(self, body: str) -> subprocess.CompletedProcess[str]:
        """A block as a person pastes it; one with a `#!` line as the script that it is."""
        argv = [shutil.which("sh") or "/bin/sh", "-euc", body]
        if body.startswith("#!"):
            script = self.work / "shown.sh"
            script.write_text(body)
            script.chmod(0o755)
            argv = [str(script)]
        return subprocess.run(
            argv, cwd=self.work, env=self._environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
