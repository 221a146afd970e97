"""Every act, pressed for real: it asks once, says what it will do, is on record with who did it, and twice is once."""

from pathlib import Path
from typing import Any

import pytest

from outlast.core import events as ev
from outlast.store import open_store
from tests.support.browser import Browser
from tests.support.browser_page import Page
from tests.support.environment import Isolated
from tests.support.journals.night import make_night
from tests.support.processes import wait_for
from tests.web.browser.live_ui import Desk, served, violations

# Of these a sample does some; `--all` does every one.
pytestmark = pytest.mark.sampled(0.4, of="file")

PRESS = "#press button"
LOOK = "form.form button"


def journal(store: Path, run: str, *tags: str) -> list[Any]:
    opened = open_store(store)
    try:
        return [item.event for item in opened.read(run, after=0, tags=tags).events]
    finally:
        opened.close()


def wishes(store: Path, run: str, what: str) -> list[ev.Requested]:
    return [event for event in journal(store, run, "requested") if event.what == what]


def press(page: Page, title: str = "Done") -> str:
    """Press the one button; what the page says of it afterwards."""
    assert page.count(PRESS) == 1, page.text("main")
    page.follow(PRESS)
    assert page.text("h1") == title, page.text("main")
    assert "/did/" in page.url
    return page.text("main")


def say(page: Page, name: str, text: str) -> None:
    """Fill in a field of the act, and see what it would do then."""
    if page.count("#otherwise:not([open])"):
        page.click("#otherwise summary")
        page.wait_for("document.getElementById('otherwise').open")
    page.click(f"#w-{name}")
    page.evaluate(f"document.getElementById('w-{name}').select()")
    page.type(text)
    page.follow(LOOK)


def test_a_run_is_paused_resumed_given_more_forked_restored_and_cancelled(
    browser: Browser, desk: Desk, axe: str
) -> None:
    desk.start("t", "--goal", "write lines", "--budget", "1000k")
    run = desk.head("t").run
    with served(desk.root, desk.isolated, PATH=desk.environ()["PATH"]) as ui, browser.page() as page:
        page.goto(f"{ui.url}/")
        page.follow(f"#r-{run} a.task")
        _pause_and_resume(page, desk, run)
        _more(page, desk, run)
        _restore(page, desk, run, axe)
        _fork(page, desk, run)
        page.goto(f"{ui.url}/runs/{run}")
        page.follow("main a[href$='/do/cancel']")
        press(page)
        desk.comes_to("t", "cancelled")
        assert len(wishes(desk.root, run, "cancel")) == 1


def _pause_and_resume(page: Page, desk: Desk, run: str) -> None:
    page.follow("main a[href$='/do/pause']")
    assert "outlast pause" in page.text(".same")
    assert wishes(desk.root, run, "pause") == [], "asking does nothing"
    asked = page.url
    form = page.evaluate("Object.fromEntries(new FormData(document.getElementById('press')))")
    said = press(page)
    desk.comes_to("t", "paused")
    (wish,) = wishes(desk.root, run, "pause")
    assert wish.by
    assert wish.by in said
    page.reload()
    assert page.text("h1") == "Done", "loading the outcome again does nothing"
    page.goto(asked)  # pressed again with the same form: as a double click, or back and once more
    page.evaluate(f"document.querySelector('#press [name=nonce]').value = {form['nonce']!r}")
    press(page)
    assert len(wishes(desk.root, run, "pause")) == 1
    beats = desk.head("t").beats
    page.follow("main .actions a.primary")  # what comes next, after a pause
    assert page.url.endswith(f"/runs/{run}/do/resume")
    assert "paused" in page.text(".state-line")
    press(page)
    wait_for(lambda: desk.head("t").beats > beats or None, what="it to go on")
    assert desk.status("t") == "running"


def _more(page: Page, desk: Desk, run: str) -> None:
    page.goto(page.url.partition("/runs/")[0] + f"/runs/{run}/budget")
    page.follow("main a[href*='/do/budget']")
    say(page, "amounts", "+250k")
    assert "1,250,000" in page.text("main") or "1250k" in page.text("main") or "1.25M" in page.text("main")
    press(page)
    wait_for(lambda: _tokens(desk) == 1_250_000 or None, what="the greater budget")


def _tokens(desk: Desk) -> int | None:
    budget = desk.head("t").budget
    return budget.tokens if budget else None


def _restore(page: Page, desk: Desk, run: str, axe: str) -> None:
    page.goto(page.url.partition("/runs/")[0] + f"/runs/{run}/saves")
    assert violations(page, axe) == []
    page.follow("main a[href*='/saves/'][href*='against']")  # what is different in it
    assert "work.txt" in page.text("main")
    assert "line" in page.text("main")
    assert violations(page, axe) == []
    page.follow("main a[href*='/do/restore']")
    folder = desk.folder / "brought back"
    say(page, "folder", str(folder))
    press(page)
    assert (folder / "work.txt").read_text().startswith("line 1\n")
    assert (folder / "a.txt").read_text() == "one\n"


def _fork(page: Page, desk: Desk, run: str) -> None:
    page.goto(page.url.partition("/runs/")[0] + f"/runs/{run}/do/fork?beat=1&task=another")
    say(page, "amounts", "tokens=50k")
    say(page, "folder", str(desk.folder / "forked"))
    press(page)
    fork = desk.head("another")
    assert fork.fork is not None
    assert fork.fork.run == run
    assert fork.beats == 1
    page.follow("main .actions a.primary")
    assert page.text("h1") == "another"


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_doubts_are_settled_each_way(
    browser: Browser, tmp_path: Path, state: Isolated, scripts: bool
) -> None:
    root = make_night(tmp_path / "store")
    with served(root, state) as ui, browser.page() as page:
        page.javascript(on=scripts)
        for q, finding in (("payout-07", "happened"), ("release-2.5", "did_not")):
            page.goto(f"{ui.url}/?q={q}")
            page.follow("main table a.task")
            run = page.url.rpartition("/")[2]
            page.follow("main a[href*='/effects']")
            page.follow(f"main a[href*='/do/settle'][href*='finding={finding}']")
            if finding == "happened":
                say(page, "result", '{"id": "po_3"}')
            press(page)
            (settled,) = [e for e in journal(root, run, "effect_settled") if e.finding == finding]
            assert settled.by
            assert bytes(settled.result.v) == (b'{"id":"po_3"}' if finding == "happened" else b"null")
        _give_up(page, ui.url, root)


def _give_up(page: Page, url: str, root: Path) -> None:
    """Of the hostile run, whose words stand in the form."""
    page.goto(f"{url}/?q=%3Ci%3Etask")
    page.follow("main table a.task")
    run = page.url.rpartition("/")[2]
    page.goto(f"{url}/runs/{run}/do/settle?effect=2.1&finding=give_up")
    press(page)
    assert [e.finding for e in journal(root, run, "effect_settled")] == ["give_up"]


def test_an_act_that_cannot_be_done_says_why_and_has_no_button(
    browser: Browser, tmp_path: Path, state: Isolated
) -> None:
    root = make_night(tmp_path / "store")
    with served(root, state) as ui, browser.page() as page:
        page.goto(f"{ui.url}/?q=Round+prices&status=done")
        page.follow("main table a.task")
        assert page.count("main a[href*='/do/pause']") == 0
        page.goto(f"{page.url}/do/pause")
        assert page.count(PRESS) == 0
        assert "done" in page.text("main .notice")
