"""What the script does with a change: only what differs changes, and nothing is taken from the person who reads."""

import time
from collections.abc import Iterator

import pytest

from outlast.web.html.html import Safe, tag
from tests.support.browser import Browser
from tests.support.browser_page import Page
from tests.support.processes import wait_for
from tests.web.browser.stage import Stage

# Of these a sample does some; `--all` does every one.
pytestmark = pytest.mark.sampled(0.5, of="file")

HIGH = tag("pre", "\n" * 200)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def row(name: str, said: str = "") -> Safe:
    link = tag("a", name, href=f"/runs/{name}", data_row=True)
    return tag("li", link, tag("span", said), id=f"r-{name}")


def rows(*made: Safe) -> Safe:
    return tag("ul", made, id="rows")


def opened(page: Page, stage: Stage) -> None:
    page.emulate(zone="Europe/Berlin")  # the one that the page was made in
    page.goto(stage.url)
    page.wait_until(lambda: stage.listeners, "the page to listen")


def test_a_row_that_moves_or_changes_stays_the_same_one_and_keeps_the_focus(
    browser: Browser, stage: Stage
) -> None:
    stage.parts = (rows(row("a"), row("b"), row("c")),)
    with browser.page() as page:
        opened(page, stage)
        page.press("j")
        page.press("j")
        page.evaluate("for (const li of document.querySelectorAll('li')) li.known = li.id")
        stage.show(rows(row("new"), row("b", "changed"), row("a")))
        page.wait_text("changed", "#r-b")
        found = page.evaluate("[...document.querySelectorAll('li')].map(li => [li.id, li.known ?? ''])")
        assert found == [["r-new", ""], ["r-b", "r-b"], ["r-a", "r-a"]]
        assert page.evaluate("document.activeElement.textContent") == "b"


def test_what_a_person_opened_marked_typed_or_scrolled_to_stays(browser: Browser, stage: Stage) -> None:
    def parts(said: str) -> tuple[object, ...]:
        more = tag("details", tag("summary", "more"), tag("p", said, id="inside"), id="more")
        field = tag("input", type="text", name="field", id="field", value="", aria_label="field")
        options = [tag("option", name, selected=name == said) for name in ("before", "mine", "after")]
        return (
            tag("h1", "Stage", data_said=True),
            more,
            field,
            tag("select", options, id="choice", aria_label="choice"),
            tag("p", "to be marked", id="marked"),
            tag("p", said, id="said-here"),
            HIGH,
        )

    stage.parts = parts("before")
    with browser.page() as page:
        opened(page, stage)
        page.click("summary")
        page.type("typed", "#field")
        page.evaluate("document.querySelector('#choice').value = 'mine'")
        page.evaluate("getSelection().selectAllChildren(document.querySelector('#marked'))")
        page.evaluate("scrollTo(0, 300)")
        stage.show(*parts("after"))
        page.wait_text("after", "#said-here")
        assert page.text("#inside") == "after"
        assert page.evaluate("document.querySelector('#more').open") is True
        assert page.evaluate("document.querySelector('#field').value") == "typed"
        assert page.evaluate("document.querySelector('#choice').value") == "mine"
        assert page.evaluate("getSelection().toString()") == "to be marked"
        assert page.evaluate("scrollY") == 300


@pytest.mark.parametrize("width", [1280, 390])
def test_what_is_read_stays_where_it_is_when_something_comes_above_it(
    browser: Browser, stage: Stage, width: int
) -> None:
    def parts(*names: int, why: str) -> tuple[object, ...]:
        beats = [
            tag("li", tag("p", f"beat {name}"), tag("p", "x " * (40 * name % 90)), id=f"beat-{name}")
            for name in names
        ]
        return (
            tag("div", tag("p", why), id="needs"),
            tag("section", tag("ol", beats, class_="beats"), id="beats"),
            HIGH,
        )

    stage.parts = parts(*range(30, 10, -1), why="It runs.")
    with browser.page() as page:
        page.emulate(width=width, zone="Europe/Berlin")
        page.goto(stage.url)
        page.wait_until(lambda: stage.listeners, "the page to listen")
        where = "document.querySelector('#beat-17').getBoundingClientRect().top"
        page.evaluate("document.querySelector('#beat-18').scrollIntoView()")
        page.evaluate("scrollBy(0, 10)")  # it begins above, and the next one is the first that begins in view
        before = page.evaluate(where)
        stage.show(*parts(*range(33, 13, -1), why="It stopped, and needs a person. " * 60))
        page.wait_text("beat 33", "#beat-33")
        page.wait_text("needs a person", "#needs")
        assert abs(page.evaluate(where) - before) <= 1
        page.evaluate("scrollTo(0, 0)")
        stage.show(*parts(*range(34, 14, -1), why="It runs. " * 90))
        page.wait_text("beat 34", "#beat-34")
        assert page.evaluate("scrollY") == 0, "at the top one sees what comes"


def test_events_that_do_not_concern_the_page_do_not_fetch_it(browser: Browser, stage: Stage) -> None:
    stage.parts, stage.runs = (tag("p", "before", id="p"),), ("r1",)
    with browser.page() as page:
        opened(page, stage)
        page.evaluate(
            "{const also = new EventSource('/api/events'); also.onmessage = m => window.heard = m.lastEventId;}"
        )
        page.wait_until(lambda: stage.listeners == 2, "a second listener")
        for _ in range(200):
            stage.tell("another")
        page.wait_for(f"window.heard === '{stage.number}'")
        assert stage.asked["/"] == 1
        stage.show(tag("p", "after", id="p"))
        page.wait_text("after", "#p")
        assert stage.asked["/"] == 2


def test_however_many_events_come_the_page_is_fetched_once_a_second(browser: Browser, stage: Stage) -> None:
    with browser.page() as page:
        opened(page, stage)
        begun, at_s = stage.asked["/"], time.monotonic()
        wait_for(lambda: stage.tell("r1") or stage.asked["/"] - begun >= 3, what="three more fetches")
        assert time.monotonic() - at_s > 1.8, "the first at once, the others a second apart"


def test_the_verdict_is_said_aloud_when_it_changes_and_only_then(browser: Browser, stage: Stage) -> None:
    stage.parts = (tag("h1", "All is well", data_said=True), tag("p", "1", id="p"))
    with browser.page() as page:
        opened(page, stage)
        stage.show(tag("h1", "All is well", data_said=True), tag("p", "2", id="p"))
        page.wait_text("2", "#p")
        assert page.evaluate("document.querySelector('#said').textContent") == ""
        stage.show(tag("h1", "1 run needs you", data_said=True), tag("p", "3", id="p"))
        page.wait_for("document.querySelector('#said').textContent === '1 run needs you'")


def test_a_form_is_sent_once_however_often_it_is_pressed_and_a_slow_answer_is_told(
    browser: Browser, stage: Stage
) -> None:
    form = tag("form", tag("button", "Do it", id="do"), method="post", action="/do")
    stage.parts, stage.is_live = (form,), False
    with browser.page() as page:
        page.emulate(zone="Europe/Berlin")
        page.goto(stage.url)
        # From within the page: it cannot be asked anything while the answer to its form is awaited.
        page.evaluate("""{
            for (const ms of [0, 100, 200]) setTimeout(() => document.querySelector('#do').click(), ms);
            setTimeout(() => fetch('/loading-' + !document.querySelector('#loading').hidden), 500);
        }""")
        wait_for(lambda: stage.asked["/loading-true"] + stage.asked["/loading-false"], what="what was shown")
        stage.answers.set()
        page.wait_for("document.readyState === 'complete' && location.pathname === '/do'")
        assert (stage.asked["POST /do"], stage.asked["/loading-true"]) == (1, 1)


def test_keys_are_off_while_typing_and_can_be_turned_off(browser: Browser, stage: Stage) -> None:
    field = tag("input", type="search", id="q", name="q", aria_label="search")
    stage.parts = (field, rows(row("a"), row("b")))
    with browser.page() as page:
        opened(page, stage)
        page.press("/")
        page.type("j")
        assert page.evaluate("document.activeElement.id + document.activeElement.value") == "qj"
        page.press("Escape")
        page.press("j")
        assert page.evaluate("document.activeElement.textContent") == "a"
        page.press("?")
        page.wait_for("document.querySelector('#keys').open")
        page.click("#keys-on")
        page.press("Escape")
        page.press("j")
        assert page.evaluate("document.activeElement.textContent") != "b"
