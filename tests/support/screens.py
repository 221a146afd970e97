"""A shell in a terminal of its own, in tmux: what is typed there, and what stands on its screen."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.environment import need_tool
from tests.support.processes import wait_for

SEE_LIMIT_S = 90.0


class Screen:
    """A shell in a terminal of its own. Its socket and notes lie in `folder`."""

    def __init__(self, folder: Path, cwd: Path, environ: Mapping[str, str]) -> None:
        self._tmux = [need_tool("tmux"), "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self._folder = folder
        env = {**environ, "PS1": "ready> ", "TERM": "xterm-256color", "HISTFILE": "/dev/null"}
        self._run(
            "new-session", "-d", "-x", "120", "-y", "40", "-c", str(cwd), "bash", "--norc", "--noprofile", env=env,
        )  # fmt: skip
        self.see("ready>")

    def _run(self, *words: str, env: dict[str, str] | None = None) -> str:
        return subprocess.run(
            [*self._tmux, *words], env=env, capture_output=True, text=True, check=True
        ).stdout

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def type(self, line: str) -> None:
        self._run("send-keys", "-l", line)
        self.keys("Enter")

    def text(self) -> str:
        return self._run("capture-pane", "-p", "-J")

    def see(self, text: str, times: int = 1, limit_s: float = SEE_LIMIT_S) -> None:
        try:
            wait_for(lambda: self.text().count(text) >= times, limit_s, what=f"{text!r} on the screen")
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self.text()}") from None

    def modes(self) -> str:
        """What the terminal is set to, as its shell sees it."""
        path = self._folder / "modes"
        path.unlink(missing_ok=True)
        self.type(f"stty -g > {path}.new; mv {path}.new {path}")
        return wait_for(lambda: path.read_text() if path.exists() else None, what="the modes")

    def resize(self, columns: int, rows: int = 40) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)
