"""The browser that tests look through is real, and tells of everything that goes wrong in a page."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.browser_page import BrowserError, Page

PAGES = {
    "/plain": "<title>plain</title><h1>Plain</h1><a href=/other>on</a><input id=i><button id=b>press</button>",
    "/other": "<title>other</title><p id=zone></p><script src=/time.js></script>",
    "/covered": "<title>c</title><button id=b>press</button><link rel=stylesheet href=/cover.css><div id=d></div>",
    "/inline": "<title>i</title><script>alert(1)</script>",
    "/dialog": "<title>d</title><script src=/dialog.js></script>",
    "/missing": "<title>m</title><img src=/nothing.png alt=x>",
    "/throws": "<title>t</title><script src=/throws.js></script>",
}
FILES = {
    "/time.js": "document.getElementById('zone').textContent = new Date(0).getHours() + ' ' + matchMedia('(prefers-color-scheme: dark)').matches",
    "/cover.css": "#d { position: fixed; inset: 0; background: red }",
    "/dialog.js": "alert('hello')",
    "/throws.js": "console.error('bad'); null.x",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = PAGES.get(self.path) or FILES.get(self.path, "")
        kind = (
            "text/html"
            if self.path in PAGES
            else "text/css"
            if self.path.endswith("css")
            else "text/javascript"
        )
        self.send_response(200 if found or self.path == "/favicon.ico" else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", "default-src 'self'")
        self.end_headers()
        self.wfile.write(found.encode())

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with contextlib.closing(Browser()) as made:
        yield made


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_page_is_read_clicked_and_typed_into(browser: Browser, site: str, tmp_path: Path) -> None:
    with browser.page() as page:
        page.goto(f"{site}/plain")
        assert page.text("h1") == "Plain"
        page.type("some words", "#i")
        assert page.evaluate("document.getElementById('i').value") == "some words"
        page.follow("a")
        assert page.url == f"{site}/other"
        page.reload()
        page.screenshot(tmp_path / "shot.png", whole=True)
        assert (tmp_path / "shot.png").read_bytes().startswith(b"\x89PNG")
        assert [answer.status for answer in page.answers if answer.type == "Document"] == [200, 200, 200]


def test_zone_colours_and_scripts_are_as_told(browser: Browser, site: str) -> None:
    with browser.page() as page:
        page.emulate(dark=True, zone="Asia/Tokyo")
        page.goto(f"{site}/other")
        assert page.text("#zone") == "9 true"
        page.emulate(dark=False, zone="Asia/Kolkata")
        page.goto(f"{site}/other")
        assert page.text("#zone") == "5 false"
        page.javascript(on=False)
        page.goto(f"{site}/other")
        assert page.text("#zone") == ""


def test_what_is_covered_cannot_be_clicked(browser: Browser, site: str) -> None:
    with browser.page() as page:
        page.goto(f"{site}/covered")
        with pytest.raises(AssertionError, match="covered by"):
            page.click("#b")
        with pytest.raises(AssertionError, match="there is no"):
            page.click("#nobody")


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/inline", "violates"),
        ("/dialog", "dialog: hello"),
        ("/missing", "404"),
        ("/throws", "console.error: bad"),
    ],
)
def test_what_goes_wrong_in_a_page_fails_its_block(browser: Browser, site: str, path: str, word: str) -> None:
    def look() -> None:
        with browser.page() as page:
            page.goto(site + path)
            page.wait_until(lambda: page.evaluate("1") and page.problems, "the problem")

    with pytest.raises(AssertionError, match=word):
        look()


def test_without_network_nothing_loads(browser: Browser, site: str) -> None:
    with browser.page() as page:
        page.forgive("ERR_INTERNET_DISCONNECTED")  # the icon of the first page may be asked for last
        page.goto(f"{site}/plain")
        page.offline(on=True)
        with pytest.raises(BrowserError, match="ERR_INTERNET_DISCONNECTED"):
            page.goto(f"{site}/other")
        page.offline(on=False)
        page.goto(f"{site}/other")


def test_pages_share_no_cookies(browser: Browser, site: str) -> None:
    def cookie(page: Page) -> str:
        page.goto(f"{site}/plain")
        return str(page.evaluate("document.cookie"))

    with browser.page() as one, browser.page() as other:
        assert cookie(one) == ""
        one.evaluate("document.cookie = 'a=b'")
        assert cookie(one) == "a=b"
        assert cookie(other) == ""
