"""One page of the browser: go, look, type and click as a person does; what goes wrong by itself is collected.

That is an error on the console, a script that the content policy refused, a request that failed, a dialog."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.processes import wait_for

if TYPE_CHECKING:
    from tests.support.browser import Browser

LIMIT_S = 60.0
# What a key is called, its code, its number, and the text that it types.
KEYS: dict[str, tuple[str, int, str]] = {
    "Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Escape": ("Escape", 27, ""), " ": ("Space", 32, " "),
    "ArrowDown": ("ArrowDown", 40, ""), "ArrowUp": ("ArrowUp", 38, ""), "Home": ("Home", 36, ""),
    "End": ("End", 35, ""), "Backspace": ("Backspace", 8, ""), "/": ("Slash", 191, "/"), "?": ("Slash", 191, "?"),
}  # fmt: skip
SHIFT = 8
QUIET = ("log", "debug", "info", "dir", "table", "timeEnd", "startGroup", "endGroup", "clear", "count")
# Where to click: the middle of what is seen of it, if it is on top there.
_SPOT = """
(selector => {
    const found = document.querySelector(selector);
    if (!found) return {why: 'there is no ' + selector};
    found.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'});
    const box = [...found.getClientRects()].find(box => box.width && box.height);
    if (!box) return {why: selector + ' is not seen'};
    const x = box.left + box.width / 2, y = box.top + box.height / 2, top = document.elementFromPoint(x, y);
    if (top !== found && !found.contains(top) && !(top && top.contains(found) && top.matches('label, summary, a')))
        return {why: selector + ' is covered by ' + (top && top.outerHTML.slice(0, 200))};
    return {x, y};
})
"""


class BrowserError(Exception):
    """The browser refused a command, or did not answer."""


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What the server said to a request of the page."""

    url: str
    status: int
    type: str


class Page:
    """One page. Its methods wait for what they ask for, with a limit, and never for a guessed time."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.problems: list[str] = []
        self.answers: list[PageAnswer] = []
        self._loaded: set[str] = set()
        self._urls: dict[str, str] = {}
        self._forgiven: tuple[str, ...] = ()

    def send(self, method: str, **params: Any) -> Any:
        return self._browser.send(method, self._session, **params)

    def begin(self, width: int, height: int) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)
        self.emulate(width=width, height=height)

    # -- what happens by itself ------------------------------------------------------------------------------------

    def forgive(self, *words: str) -> None:
        """From now on a problem that holds one of these words is none; those before count."""
        self._forgiven = words

    def _problem(self, text: str) -> None:
        if not any(word in text for word in self._forgiven):
            self.problems.append(text)

    def told(self, method: str, params: dict[str, Any]) -> None:
        """An event of this page."""
        match method:
            case "Page.lifecycleEvent" if params["name"] == "load":
                self._loaded.add(params["loaderId"])
            case "Page.javascriptDialogOpening":
                self._problem(f"dialog: {params['message']}")
                self._browser.tell("Page.handleJavaScriptDialog", self._session, accept=False)
            case "Runtime.consoleAPICalled" if params["type"] not in QUIET:
                words = [str(item.get("value", item.get("description", ""))) for item in params["args"]]
                self._problem(f"console.{params['type']}: {' '.join(words)[:400]}")
            case "Runtime.exceptionThrown":
                told = params["exceptionDetails"]
                self._problem(
                    f"exception: {told.get('exception', {}).get('description', told['text'])[:400]}"
                )
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                entry = params["entry"]
                self._problem(f"{entry['source']}: {entry['text'][:400]} {entry.get('url', '')}")
            case "Network.requestWillBeSent":
                self._urls[params["requestId"]] = params["request"]["url"]
            case "Network.responseReceived":
                got = params["response"]
                self.answers.append(PageAnswer(got["url"], got["status"], params["type"]))
            case "Network.loadingFailed" if not params.get("canceled"):
                url = self._urls.get(params["requestId"], "")
                self._problem(f"request failed: {params['errorText']} {url}")
            case _:
                pass

    # -- going places ----------------------------------------------------------------------------------------------

    def goto(self, url: str) -> None:
        """Open an address and wait until it is loaded."""
        answer = self.send("Page.navigate", url=url)
        if answer.get("errorText"):
            raise BrowserError(f"{url}: {answer['errorText']}")
        if "loaderId" in answer:  # none: only the part after # is another
            self._wait_loaded()

    def reload(self) -> None:
        self._follow(lambda: self.send("Page.reload"))

    def back(self) -> None:
        history = self.send("Page.getNavigationHistory")
        entry = history["entries"][history["currentIndex"] - 1]["id"]
        self.send("Page.navigateToHistoryEntry", entryId=entry)

    def _wait_loaded(self) -> None:
        """A page may send the browser on to another one, or load itself again, before it is loaded."""
        self.wait_until(lambda: self._loader() in self._loaded, "the page to load")

    def _follow(self, act: Callable[[], object]) -> None:
        before = self._loader()
        act()
        self.wait_until(lambda: self._loader() not in ("", before), "another page")
        self._wait_loaded()

    def _loader(self) -> str:
        try:
            return str(self.send("Page.getFrameTree")["frameTree"]["frame"]["loaderId"])
        except BrowserError:
            return ""

    @property
    def url(self) -> str:
        return str(self.evaluate("location.href"))

    # -- looking ---------------------------------------------------------------------------------------------------

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            told = answer["exceptionDetails"]
            raise BrowserError(told.get("exception", {}).get("description") or told["text"])
        return answer["result"].get("value")

    def wait_for(self, condition: str, limit_s: float = LIMIT_S) -> Any:
        """Poll an expression in the page until it is true; its value."""
        return self.wait_until(lambda: self._try(condition), condition, limit_s)

    def wait_until(self, condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        """Poll a condition out here until it is true; its value."""
        try:
            return wait_for(condition, limit_s, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error} at {self._try('location.href')}") from None

    def _try(self, expression: str) -> Any:
        with contextlib.suppress(BrowserError):  # the page goes away under it
            return self.evaluate(expression)
        return None

    def wait_text(self, text: str, selector: str = "body", limit_s: float = LIMIT_S) -> None:
        """Until a text is seen in an element."""
        self.wait_for(f"document.querySelector({_js(selector)})?.innerText.includes({_js(text)})", limit_s)

    def text(self, selector: str = "body") -> str:
        """What a person reads there; empty where there is no such element."""
        return str(self.evaluate(f"document.querySelector({_js(selector)})?.innerText ?? ''"))

    def texts(self, selector: str) -> list[str]:
        return list(self.evaluate(f"[...document.querySelectorAll({_js(selector)})].map(e => e.innerText)"))

    def count(self, selector: str) -> int:
        return int(self.evaluate(f"document.querySelectorAll({_js(selector)}).length"))

    def screenshot(self, path: Path, *, whole: bool = False, height_max: int = 4_000) -> None:
        """What is seen, or the whole page down to a limit, as PNG."""
        more: dict[str, Any] = {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            box = {
                "x": 0,
                "y": 0,
                "width": size["width"],
                "height": min(size["height"], height_max),
                "scale": 1,
            }
            more = {"clip": box, "captureBeyondViewport": True}
        shot = self.send("Page.captureScreenshot", format="png", optimizeForSpeed=False, **more)
        path.write_bytes(base64.b64decode(shot["data"]))

    # -- doing -----------------------------------------------------------------------------------------------------

    def click(self, selector: str) -> None:
        """The mouse, in the middle of the element; refused where something else is on top."""
        spot = self.evaluate(f"{_SPOT}({_js(selector)})")
        if "why" in spot:
            raise AssertionError(f"cannot be clicked: {spot['why']} at {self.url}")
        at = {"x": spot["x"], "y": spot["y"]}
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **at)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def follow(self, selector: str) -> None:
        """Click what leads to another page, and wait until that is loaded."""
        self._follow(lambda: self.click(selector))

    def enter(self) -> None:
        """Press Enter where that leads to another page, and wait until that is loaded."""
        self._follow(lambda: self.press("Enter"))

    def type(self, text: str, selector: str = "") -> None:
        """Type into the element, or where the focus is."""
        if selector:
            self.click(selector)
        self.send("Input.insertText", text=text)

    def press(self, key: str, modifiers: int = 0) -> None:
        """One key, down and up."""
        code, number, text = KEYS.get(key) or (f"Key{key.upper()}", ord(key.upper()), key)
        told = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        down = {"type": "keyDown", "text": text} if text and not modifiers else {"type": "rawKeyDown"}
        self.send("Input.dispatchKeyEvent", **told, **down)
        self.send("Input.dispatchKeyEvent", type="keyUp", **told)

    # -- circumstances ---------------------------------------------------------------------------------------------

    def emulate(
        self, *, width: int = 1280, height: int = 800, mobile: bool = False, dark: bool = False, still: bool = False,
        zone: str = "",
    ) -> None:  # fmt: skip
        """The screen, the reader's colours, whether things may move, and their time zone."""
        scale = 2 if mobile else 1
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=mobile,
        )
        self.send("Emulation.setTouchEmulationEnabled", enabled=mobile)
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        moves = {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}
        self.send("Emulation.setEmulatedMedia", media="", features=[colours, moves])
        if zone:
            self.send("Emulation.setTimezoneOverride", timezoneId=zone)

    def javascript(self, on: bool) -> None:
        """Whether pages from now on may run scripts; `evaluate` can always."""
        self.send("Emulation.setScriptExecutionDisabled", value=not on)

    def offline(self, on: bool) -> None:
        """Whether there is no network."""
        self.send(
            "Network.emulateNetworkConditions",
            offline=on,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )


def _js(text: str) -> str:
    return json.dumps(text)
