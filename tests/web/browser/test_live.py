"""Pages follow the store by themselves: an agent at work, killed and resumed, and a server that went away for a while."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from outlast.processes import reap
from tests.support.browser import Browser
from tests.support.browser_page import Page
from tests.support.environment import TIMEOUT_S
from tests.web.browser.live_ui import Desk, Morning, UiProcess, served

# Of these a sample does some; `--all` does every one.
pytestmark = pytest.mark.sampled(0.5, of="file")

NOTICED_S = (
    40.0  # nobody writes an event of a death that nobody survived: the page looks again from time to time
)
# Counts what the page's own kind of stream tells, from an event on.
LISTEN = "window.got = []; window.ear = new EventSource('/api/events?after=%d'); ear.onmessage = e => got.push(+e.lastEventId)"


def keep(page: Page) -> None:
    """Mark the page: a mark that is still there later shows that it was not loaded again."""
    page.evaluate("window.kept = 1")


def is_kept(page: Page) -> bool:
    return bool(page.evaluate("window.kept === 1"))


def test_a_beat_shows_by_itself_and_leaves_everything_else_as_it_is(
    browser: Browser, morning: Morning
) -> None:
    run = morning.runs["236"]
    with browser.page() as page, browser.page(height=600) as overview:
        page.goto(morning.run_url("236"))
        overview.goto(f"{morning.url}/")
        for each in (page, overview):
            keep(each)
        page.click("main details summary")  # what a person opened stays open
        page.wait_for("document.querySelector('main details').open")
        overview.click("#q")
        overview.evaluate("document.querySelector('table').scrollIntoView({block: 'end'})")
        place = overview.evaluate("scrollY")
        before = overview.text(f"#r-{run}")
        morning.living.beat(run, said="something that nobody said before")
        page.wait_text("something that nobody said before")
        overview.wait_for(f"document.getElementById('r-{run}').innerText !== {before!r}")
        assert is_kept(page)
        assert is_kept(overview)
        assert page.evaluate("document.querySelector('main details').open")
        assert overview.evaluate("document.activeElement.id") == "q"
        assert overview.evaluate("scrollY") == place


def test_a_held_page_stands_still_until_it_is_let_go(browser: Browser, morning: Morning) -> None:
    with browser.page() as page:
        page.goto(morning.run_url("236"))
        page.click("#live")
        page.wait_text("paused", "#live")
        morning.living.beat(morning.runs["236"], said="while it was held")
        page.wait_text("1 change", "#live")
        assert "while it was held" not in page.text("main")
        page.click("#live")
        page.wait_text("while it was held", "main")
        assert page.text("#live") == "live"


def test_an_agent_that_is_killed_and_resumed_is_followed(browser: Browser, desk: Desk) -> None:
    desk.start("t", "--goal", "write lines")
    run = desk.head("t").run
    with served(desk.root, desk.isolated) as ui, browser.page() as page, browser.page() as overview:
        page.goto(f"{ui.url}/runs/{run}")
        overview.goto(f"{ui.url}/")
        for each in (page, overview):
            keep(each)
        page.wait_text("running", "main")
        _kill_agent(run)
        page.wait_text("SIGKILL", "main")  # its supervisor saw it, and begins the next attempt
        page.wait_text("2 attempts", "main")
        desk.kill_all("t")
        page.wait_text("killed", "main", NOTICED_S)
        overview.wait_text("killed", f"#r-{run}", NOTICED_S)
        _resume(desk)
        page.wait_text("running", "main")
        page.wait_text("3 attempts", "main")
        overview.wait_text("running", f"#r-{run}")
        assert is_kept(page)
        assert is_kept(overview)
        desk.let_go()
        page.wait_text("done", "main")
        assert is_kept(page)


def _kill_agent(run: str) -> None:
    """-9 to everything below the supervisor."""
    for found in reap.find(run):
        with contextlib.suppress(ProcessLookupError):  # a step that has ended meanwhile
            os.kill(found.pid, signal.SIGKILL)


def _resume(desk: Desk) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "outlast", "resume", "t"], cwd=desk.work, env=desk.environ(),
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    desk.started.append(process)


def test_after_the_server_was_away_the_page_catches_up_exactly(browser: Browser, morning: Morning) -> None:
    run = morning.runs["219"]
    with browser.page() as page:
        page.goto(morning.run_url("219"))
        keep(page)
        begin = int(page.evaluate("document.documentElement.dataset.number"))
        page.evaluate(LISTEN % begin)
        morning.living.beat(run, said="before")
        page.wait_text("before", "main")
        page.forgive(
            "ERR_CONNECTION_REFUSED",
            "ERR_INCOMPLETE_CHUNKED_ENCODING",
            "ERR_CONNECTION_RESET",
            "ERR_EMPTY_RESPONSE",
        )
        _away(morning.served, page)
        for number in range(7):
            morning.living.beat(run, said=f"while it was away {number}")
        morning.served.start()
        page.wait_text("while it was away 6", "main", TIMEOUT_S)
        page.wait_text("live", "#live", TIMEOUT_S)
        morning.living.beat(run, said="afterwards")
        page.wait_text("afterwards", "main")
        page.wait_for("got.length >= 9", TIMEOUT_S)
        got = page.evaluate("got")
        assert got == list(range(begin + 1, begin + 1 + len(got))), "each event once, in order, without a gap"
        assert page.evaluate("document.getElementById('gone').hidden")
        assert is_kept(page)


def _away(ui: UiProcess, page: Page) -> None:
    assert ui.stop() in (0, 130, -signal.SIGTERM, 128 + signal.SIGTERM)
    page.wait_text("reconnecting", "#live")
