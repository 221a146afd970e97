"""On a phone: from the notice to done in two taps, with a run behind it that waits and goes on; without scripts, at 390 px."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator

import pytest

from outlast.core import events as ev
from tests.notifications import far_side
from tests.notifications.far_side import ChannelServer
from tests.notifications.notices import own_settings
from tests.support import commands
from tests.support.browser import Browser
from tests.support.browser_page import Page
from tests.support.processes import wait_for
from tests.web.browser.live_ui import Desk, UiProcess, served, sideways, small_targets, violations

WIDTH = 390
DEPLOYS = """
outlast step build -- echo built
outlast effect deploy --approve -- sh -c 'echo deployed >> ../deployed' || exit $?
"""
ASKS = """
api=$(outlast ask 'Which API?' --choice v1 --choice v2) || exit $?
echo "$api" >> ../answers
"""


@pytest.fixture
def ntfy() -> Iterator[ChannelServer]:
    with far_side.far_side(far_side.ntfy) as made:
        yield made


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def reachable(desk: Desk) -> Iterator[UiProcess]:
    """The page with an address of its own, as behind a proxy: notices lead there, and it asks for a token."""
    port = free_port()
    desk.root.mkdir(parents=True, exist_ok=True)
    words = ("--port", str(port), "--url", f"http://127.0.0.1:{port}")
    with served(desk.root, desk.isolated, *words, PATH=desk.environ()["PATH"]) as ui:
        yield ui


def begin(desk: Desk, task: str, script: str) -> None:
    """A run whose script waits for a person; nothing of it is alive when this returns."""
    (desk.folder / f"{task}.sh").write_text(script)
    argv = [*commands.ARGV, "run", "--task", task, "--goal", "Ship it", "--", "bash", f"../{task}.sh"]
    process = desk.begin(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.wait() == 3


def is_fit(page: Page, axe: str) -> None:
    """Nothing to scroll sideways, nothing too small for a thumb, nothing that hinders anybody."""
    assert sideways(page) == []
    assert small_targets(page) == []
    assert violations(page, axe) == []


@pytest.mark.parametrize("scripts", [True, False])
def test_from_the_notice_to_done_in_two_taps(
    browser: Browser, desk: Desk, axe: str, ntfy: ChannelServer, scripts: bool
) -> None:
    own_settings(desk.isolated, ntfy=f"{ntfy.url}/phone")
    with reachable(desk) as ui, browser.page(width=WIDTH) as page:
        begin(desk, "1411", DEPLOYS)
        wait_for(lambda: len(ntfy.came) == 1 or None, what="the notice")
        (came,) = ntfy.came
        assert came.body.decode() == "1411 waits for your approval of deploy"
        link = came.headers["click"]
        assert link.startswith(f"{ui.url}/press/")
        page.goto(link)  # the first tap
        assert "deploy" in page.text("main")
        is_fit(page, axe)
        assert page.count(".press form button") == 2, "approve, and reject beside it"
        assert not (desk.folder / "deployed").exists(), "looking does nothing"

        page.javascript(on=scripts)
        page.goto(link)
        page.follow(".press button.primary")  # the second tap
        assert page.text("h1") == "Done"
        desk.comes_to("1411", "done")
        assert (desk.folder / "deployed").read_text() == "deployed\n"
        answered = [event for event in desk.events("1411") if isinstance(event, ev.QuestionAnswered)]
        assert [(event.id, event.answer) for event in answered] == [("a1", "approved")]
        assert "by a link" in answered[0].by

        page.goto(link)
        assert page.text("h1") == "Done"
        assert page.count(".press form button") == 0, "it works once"
        page.forgive("401")
        page.goto(f"{ui.url}/")
        assert page.text("h1") == "This page needs a token", "it is no login"


def test_what_waits_is_on_top_with_a_button_for_each_answer(browser: Browser, desk: Desk, axe: str) -> None:
    begin(desk, "1411", ASKS)
    with (
        served(desk.root, desk.isolated, PATH=desk.environ()["PATH"]) as ui,
        browser.page(width=WIDTH) as page,
    ):
        page.goto(f"{ui.url}/")
        is_fit(page, axe)
        card = "#needs .card:first-child"
        assert "Which API?" in page.text(card)
        found = [" ".join(text.split()) for text in page.texts(f"{card} .actions a.button")]
        assert found == ["v1 : q1 of 1411", "v2 : q1 of 1411", "Reject : q1 of 1411"]
        page.javascript(on=False)
        page.goto(f"{ui.url}/")
        page.follow(f"{card} .actions a.button:nth-child(2)")
        assert "The answer is: v2" in page.text("main")
        page.follow("#press button")
        assert page.text("h1") == "Done"
        desk.comes_to("1411", "done")
        assert (desk.folder / "answers").read_text() == "v2\n"


def test_a_call_is_rejected_with_a_reason_from_the_page_of_its_run(
    browser: Browser, desk: Desk, axe: str
) -> None:
    begin(desk, "1411", DEPLOYS)
    run = desk.head("1411").run
    with (
        served(desk.root, desk.isolated, PATH=desk.environ()["PATH"]) as ui,
        browser.page(width=WIDTH) as page,
    ):
        page.goto(f"{ui.url}/runs/{run}")
        is_fit(page, axe)
        page.follow("#questions a[href*='/do/reject']")
        is_fit(page, axe)
        page.follow("#press button")
        assert page.text("h1") == "Done"
        wait_for(
            lambda: any(isinstance(event, ev.QuestionAnswered) for event in desk.events("1411")) or None,
            what="the answer",
        )
        assert not (desk.folder / "deployed").exists()
