"""A real browser: Chromium without a window, spoken to over two pipes in its DevTools protocol.

One process serves many pages; each page has cookies and storage of its own. What a page can do is in browser_page.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.browser_page import LIMIT_S, BrowserError, Page
from tests.support.environment import skip_or_fail

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FAR_FD = 100  # above those that Chromium wants the pipes at
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--mute-audio", "--hide-scrollbars", "--force-color-profile=srgb",
    "--font-render-hinting=none", "--lang=en-GB", "--disable-features=Translate,MediaRouter,OptimizationHints",
)  # fmt: skip


def find() -> str:
    """The program, or a skip that says so."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        skip_or_fail("needs chromium (type: sudo apt-get install -y chromium)")
    return found


class Browser:
    """A process of Chromium. Commands are sent and answered one at a time; what happens meanwhile is given to its page."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="outlast-browser-"))
        theirs_in, self._out = (_far(fd) for fd in os.pipe())
        self._in, theirs_out = (_far(fd) for fd in os.pipe())
        os.set_blocking(self._in, False)
        flags = [*FLAGS, f"--user-data-dir={self._home}"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
        log = str(self._home / "log")
        self.pid = os.posix_spawn(
            find(), ["chromium", *flags, "about:blank"], os.environ | {"HOME": str(self._home)}, setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4),
            ],
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest, self._number = b"", 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.pages: dict[str, Page] = {}

    def send(self, method: str, session: str = "", **params: Any) -> Any:
        """One command and its result. Raises BrowserError."""
        number = self.tell(method, session, **params)
        deadline = time.monotonic() + LIMIT_S
        while number not in self._answers:
            self.pump(deadline - time.monotonic(), f"an answer to {method}")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def tell(self, method: str, session: str = "", **params: Any) -> int:
        """The same without its result; the number of the command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | (
            {"sessionId": session} if session else {}
        )
        _write_all(self._out, json.dumps(message).encode() + b"\0")
        return self._number

    def pump(self, limit_s: float, what: str) -> None:
        """Take in at least one message. Raises BrowserError when none comes."""
        if limit_s <= 0 or not select.select([self._in], [], [], limit_s)[0]:
            raise BrowserError(f"waited for {what}; {self._last_words()}")
        self._take()

    def drain(self) -> None:
        """Take in what is there."""
        while select.select([self._in], [], [], 0)[0]:
            self._take()

    def _take(self) -> None:
        data = os.read(self._in, 1 << 20)
        if not data:
            raise BrowserError(f"the browser is gone; {self._last_words()}")
        *messages, self._rest = (self._rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif (page := self.pages.get(message.get("sessionId", ""))) is not None:
                page.told(message["method"], message["params"])

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return f"its last words: {(self._home / 'log').read_text(errors='replace')[-400:]!r}"
        return "it said nothing"

    @contextlib.contextmanager
    def page(self, *, width: int = 1280, height: int = 800) -> Iterator[Page]:
        """A new page with cookies of its own. What went wrong in it fails the block that used it."""
        context = self.send("Target.createBrowserContext", disposeOnDetach=True)["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        try:
            page.begin(width, height)
            yield page
            self.drain()
            assert not page.problems, f"the page had problems: {page.problems}"
        finally:
            del self.pages[session]
            self.send("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._in)
        os.close(self._out)
        _remove(self._home)


def _far(fd: int) -> int:
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FAR_FD)
    os.close(fd)
    return moved


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _remove(folder: Path) -> None:
    """Chromium's children may still write there while they die."""
    deadline = time.monotonic() + LIMIT_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
