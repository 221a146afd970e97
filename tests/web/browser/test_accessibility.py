"""Without a mouse, in one's own colours, read only, and behind a token."""

from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.browser_page import Page
from tests.support.environment import Isolated
from tests.support.journals.night import make_night
from tests.web.browser.live_ui import Morning, served, violations

# Of these a sample does some; `--all` does every one.
pytestmark = pytest.mark.sampled(0.5, of="file")

TABS_MAX = 80


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is there, as somebody without a mouse does."""
    for _ in range(TABS_MAX):
        page.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"{selector} is not reached by Tab at {page.url}")


def test_everything_goes_with_keys_alone(browser: Browser, tmp_path: Path, state: Isolated) -> None:
    root = make_night(tmp_path / "store")
    with served(root, state) as ui, browser.page() as page:
        page.goto(f"{ui.url}/")
        page.press("Tab")
        assert "Skip" in page.evaluate("document.activeElement.innerText")
        page.press("/")
        assert page.evaluate("document.activeElement.id") == "q"
        page.type("payout")
        page.wait_for("document.querySelectorAll('#runs tr[id]').length === 1")
        page.press("Escape")
        page.press("j")
        assert page.evaluate("document.activeElement.innerText") == "payout-07"
        page.enter()
        assert page.text("h1") == "payout-07"
        tab_to(page, "main a[href*='/do/settle'], main a[href*='/effects']")
        page.enter()
        tab_to(page, "a[href*='finding=did_not']")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", (
            "one sees where one is"
        )
        page.enter()
        tab_to(page, "#press button")
        page.enter()
        assert page.text("h1") == "Done"
        page.press("g")
        page.press("s")
        page.wait_for("location.pathname === '/saves'")
        page.wait_for("document.readyState === 'complete'")
        page.press("?")
        page.wait_for("document.getElementById('keys').open")
        page.press("Escape")
        page.wait_for("!document.getElementById('keys').open")


def test_colours_are_the_systems_until_somebody_chooses(browser: Browser, morning: Morning, axe: str) -> None:
    def ground(page: Page) -> int:
        told = str(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        return sum(int(part) for part in told.strip("rgba()").split(",")[:3])

    with browser.page() as page:
        page.emulate(dark=True)
        page.goto(f"{morning.url}/")
        dark = ground(page)
        page.emulate(dark=False)
        light = ground(page)
        assert dark < 200 < 600 < light
        page.click("#tool-theme")  # light
        page.click("#tool-theme")  # dark
        assert ground(page) == dark
        assert violations(page, axe) == []
        page.goto(f"{morning.url}/charts")
        assert ground(page) == dark, "it is remembered"


def test_read_only_shows_everything_and_does_nothing(
    browser: Browser, tmp_path: Path, state: Isolated
) -> None:
    root = make_night(tmp_path / "store")
    with served(root, state, "--read-only") as ui, browser.page() as page:
        page.goto(f"{ui.url}/")
        assert "read only" in page.text("header")
        page.follow("#runs a.task")
        assert page.count("a[href*='/do/'], form[method=post]") == 0
        page.forgive("403")
        run = page.url.rpartition("/")[2]
        page.goto(f"{page.url}/do/cancel")
        assert page.count("form[method=post]") == 0
        told = "{method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'}"
        assert page.evaluate(f"fetch('/api/runs/{run}/acts/cancel', {told}).then(got => got.status)") == 403
        page.goto(f"{ui.url}/runs/{run}/journal")
        assert "cancel" not in page.text("main")


def test_with_a_token_only_who_has_it_comes_in(
    browser: Browser, tmp_path: Path, state: Isolated, axe: str
) -> None:
    root = make_night(tmp_path / "store")
    with served(root, state, "--with-token") as ui, browser.page() as page, browser.page() as other:
        token = ui.told.partition("token=")[2]
        assert len(token) >= 20
        page.forgive("401", "403")
        page.goto(f"{ui.url}/charts")
        assert page.count("input[type=password]") == 1
        assert "claude" not in page.text()
        assert violations(page, axe) == []
        page.type("wrong", "input[type=password]")
        page.enter()
        assert page.count("input[type=password]") == 1
        page.type(token, "input[type=password]")
        page.enter()
        assert page.text("h1") == "Charts"
        assert token not in page.url
        assert token not in page.evaluate("document.cookie"), "no script can read it"
        other.goto(ui.told)
        assert token not in other.url
        assert other.count("#runs") == 1
