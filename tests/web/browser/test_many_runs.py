"""Ten thousand runs: found by heading, status, project and words, page after page, and never slow or long."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import environment
from tests.support.browser import Browser
from tests.support.journals.large_stores import many_runs
from tests.web.browser.live_ui import UiProcess, served

# Of these a sample does some; `--all` does every one.
pytestmark = pytest.mark.sampled(0.5, of="file")

ROWS_MAX = 100
BYTES_MAX = 300_000


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiProcess]:
    folder = tmp_path_factory.mktemp("crowd")
    many_runs(Path(folder, "store"))
    with served(Path(folder, "store"), environment.isolate(folder)) as made:
        yield made


@pytest.mark.sampled(0)
def test_ten_thousand_runs_are_found_and_paged(browser: Browser, crowd: UiProcess) -> None:
    with browser.page() as page:
        page.goto(f"{crowd.url}/")
        assert "10,000" in page.text("#filters")
        assert 0 < page.count("#runs tr[id]") <= ROWS_MAX
        assert page.evaluate("document.documentElement.outerHTML.length") < BYTES_MAX
        first = page.texts("#runs a.task")
        page.follow("main a[href*='page=2']")
        assert set(page.texts("#runs a.task")).isdisjoint(first)
        page.goto(f"{crowd.url}/?flat=1&page=2")
        page.follow("#filters a[href*='status=failed']")
        assert set(page.texts("#runs tr[id] .badge")) == {"failed"}
        page.back()
        page.wait_for("location.search.includes('page=2')")


def test_search_finds_while_one_types(browser: Browser, crowd: UiProcess) -> None:
    with browser.page() as page:
        page.goto(f"{crowd.url}/?flat=1")
        page.evaluate("window.kept = 1")
        page.type("report of project-03", "#q")
        page.wait_for("location.search.includes('q=report')")
        page.wait_for(
            "[...document.querySelectorAll('#runs tr[id]')].every(e => e.innerText.includes('report') && e.innerText.includes('project-03'))"
        )
        assert page.count("#runs tr[id]") > 0
        assert page.evaluate("document.activeElement.id") == "q"
        assert page.evaluate("window.kept === 1")
        page.reload()  # the URL says it all
        assert page.evaluate("document.getElementById('q').value") == "report of project-03"
        assert all("report" in text and "project-03" in text for text in page.texts("#runs tr[id]"))


def test_without_scripts_the_same_is_found_by_the_form(browser: Browser, crowd: UiProcess) -> None:
    with browser.page() as page:
        page.javascript(on=False)
        page.goto(f"{crowd.url}/?flat=1")
        page.type("login", "#q")
        page.enter()
        assert "q=login" in page.url
        assert all("login" in text for text in page.texts("#runs tr[id]"))
        page.follow("#filters a[href*='needs']")
        assert "q=login" in page.url
        page.evaluate("document.getElementById('f-agent').value = 'codex'")
        page.follow("#search-form button")
        assert "agent=codex" in page.url
        assert page.count("#runs tr[id]") > 0
        assert all("codex" in text for text in page.texts("#runs tr[id]"))
