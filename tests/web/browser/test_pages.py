"""Every page of a morning after a hard night: for everybody, on every screen, in both schemes, with and without scripts."""

import re
from random import Random

import pytest

from tests.support.browser import Browser
from tests.support.browser_page import Page
from tests.web.browser.live_ui import SEEN, Morning, sideways, small_targets, violations

# Of these a sample does some; `--all` does every one.
pytestmark = pytest.mark.sampled(0.7, of="file")

HOSTILE = "<i>task</i>&\"'"
PHONES = (390, 320)
SAMPLED = 6
UNITS = ("ms", "s", "min", "h", "d")
# A name for each page, whose run it is of, and its path.
PAGES: dict[str, tuple[str, str]] = {
    "overview": ("", "/"),
    "overview, chosen": ("", "/?what=needs%20you&what=stopped&flat=1&sort=spent&up=1"),
    "overview, nothing fits": ("", "/?q=there-is-no-such-run"),
    "emergency saves": ("", "/saves"),
    "emergency saves, chosen": ("", "/saves?cause=signal"),
    "charts": ("", "/charts"),
    "run at work": ("236", ""),
    "run with children": ("sprint-41", ""),
    "run in doubt": ("payout-07", ""),
    "run out of budget": ("218", ""),
    "beats": ("236", "/beats"),
    "effects": ("payout-07", "/effects"),
    "saves": ("218", "/saves"),
    "budget": ("218", "/budget"),
    "context": ("236", "/context"),
    "output": ("236", "/output"),
    "journal": ("236", "/journal"),
    "ask: pause": ("236", "/do/pause"),
    "ask: budget": ("218", "/do/budget"),
    "ask: settle": ("payout-07", "/do/settle?effect=4.1"),
    "ask: fork": ("236", "/do/fork"),
    "ask: cancel": ("218", "/do/cancel"),
    "ask: refused": ("100", "/do/pause"),
}
OF_A_RUN = (
    "",
    "/beats",
    "/effects",
    "/saves",
    "/budget",
    "/context",
    "/output",
    "/journal",
    "/do/settle?effect=2.1",
)


def address(morning: Morning, name: str) -> str:
    task, path = PAGES[name]
    return morning.run_url(task, path) if task else morning.url + path


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody_on_every_screen_in_light_and_dark(
    browser: Browser, morning: Morning, axe: str, name: str
) -> None:
    with browser.page() as page:
        page.goto(address(morning, name))
        assert page.answers[0].status == 200
        assert page.text("h1")
        assert sideways(page) == []
        assert violations(page, axe) == []
        page.emulate(dark=True)
        assert violations(page, axe, SEEN) == []
        for width in PHONES:
            page.emulate(width=width, height=800, mobile=True)
            assert sideways(page) == []
            assert small_targets(page) == []
        assert violations(page, axe, SEEN) == []


def test_every_page_reads_the_same_without_scripts(
    browser: Browser, morning: Morning, rng: Random, whole: bool
) -> None:
    with browser.page() as page, browser.page() as plain:
        plain.javascript(on=False)
        for name in PAGES if whole else rng.sample(list(PAGES), SAMPLED):
            page.goto(address(morning, name))
            plain.goto(address(morning, name))
            assert _words(plain) >= _words(page), name
            assert plain.text("h1") == page.text("h1"), name


def _words(page: Page) -> set[str]:
    """The words of the content, but for those that tell an age, a time of day or a zone, which the script sees to."""
    text = str(
        page.evaluate(
            "(() => { const copy = document.getElementById('main').cloneNode(true);"
            " copy.querySelectorAll('time, .only-js, .no-js, svg').forEach(e => e.remove());"
            " const texts = document.createTreeWalker(copy, NodeFilter.SHOW_TEXT); const words = [];"
            " while (texts.nextNode()) words.push(texts.currentNode.data); return words.join(' '); })()"
        )
    )
    return {word for word in text.split() if not re.search(r"\d|UTC", word)} - set(UNITS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("path", OF_A_RUN)
def test_what_a_hostile_agent_wrote_is_text_and_nothing_else(
    browser: Browser, morning: Morning, axe: str, path: str
) -> None:
    with browser.page(width=390) as page:
        page.goto(morning.run_url(HOSTILE, path))
        assert "<script>alert(" in page.text() or "<i>task</i>" in page.text()
        for made in (
            "script:not([src])",
            "iframe",
            "img",
            "b",
            "u",
            "i",
            "[onerror], [onload]",
            "a[href^='javascript:' i]",
        ):
            assert page.count(f"main {made}") == 0, made
        assert page.count("svg[onload]") == 0
        assert sideways(page) == []
        assert violations(page, axe) == []


def test_hostile_words_on_the_overview_move_nobody_else(browser: Browser, morning: Morning) -> None:
    with browser.page() as page:
        page.goto(f"{morning.url}/?q=script")
        assert "<script>alert(1)</script>" in page.text("main")
        assert page.count("main script, main img, main i") == 0
        page.goto(
            f"{morning.url}/?q=%3Cscript%3Ealert(1)%3C/script%3E%22%3E%3Cimg%20src=x%20onerror=alert(2)%3E"
        )
        assert page.count("img") == 0


def test_what_is_not_there_says_so_and_leads_on(browser: Browser, morning: Morning, axe: str) -> None:
    with browser.page() as page:
        page.forgive("404", "400")
        for path, status in (
            ("/runs/nobody", 404),
            ("/nothing", 404),
            ("/?sort=colour", 400),
            ("/runs/nobody/do/pause", 404),
        ):
            page.goto(morning.url + path)
            assert page.answers[-1].status == status or any(got.status == status for got in page.answers[-6:])
            assert page.text("h1")
            assert page.count("main a[href]") >= 1
            assert violations(page, axe) == []


def test_times_are_in_the_readers_zone(browser: Browser, morning: Morning) -> None:
    def clock(zone: str, *, scripts: bool) -> list[str]:
        with browser.page() as page:
            page.emulate(zone=zone)
            page.goto(morning.run_url("218"))  # the script tells the server the zone
            page.javascript(on=scripts)
            page.goto(morning.run_url("218", "/journal"))
            return page.texts("main time")[:5]

    tokyo, lima = clock("Asia/Tokyo", scripts=True), clock("America/Lima", scripts=True)
    assert tokyo
    assert tokyo != lima
    assert clock("Asia/Tokyo", scripts=False) == tokyo, "the server writes what the script would"
