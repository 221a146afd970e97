"""A server for one made-up page that changes at our word: so that what the script does with a change can be seen."""

import dataclasses
import json
import queue
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from outlast.web.html import assets, layout
from outlast.web.html.html import Safe
from tests.web.sample_documents import view

WAIT_S = 60.0


class Stage:
    """The page as it is now, who listens, and what was asked of us."""

    def __init__(self) -> None:
        self.parts: tuple[object, ...] = ()
        self.runs: tuple[str, ...] = ()
        self.number = 1
        self.is_live = True
        self.asked: Counter[str] = Counter()
        self.answers = threading.Event()  # a form that was sent waits for this
        self._listeners: list[queue.Queue[bytes]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.answers.set()
        for listener in self._listeners:
            listener.put(b"")
        self._server.shutdown()
        self._server.server_close()

    def show(self, *parts: object, run: str = "r1") -> None:
        """The page is this from now on, and all who listen are told that the run did something."""
        self.parts = parts
        self.tell(run)

    def tell(self, run: str) -> None:
        self.number += 1
        told = {"n": self.number, "run": run, "seq": 1, "tag": "beat_done", "at": "2026-11-16T03:20:00Z"}
        for listener in self._listeners:
            listener.put(b"id: %d\ndata: %s\n\n" % (self.number, json.dumps(told).encode()))

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def _page(self) -> Safe:
        of = dataclasses.replace(view("/"), number=self.number)
        return layout.page(of, "Stage", *self.parts, live=self.is_live, runs=self.runs)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stage = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                stage.asked[path] += 1
                if path.startswith("/static/"):
                    name = path.removeprefix("/static/")
                    self._answer(assets.TYPES[name], assets.read(name))
                elif path == "/api/events":
                    self._stream()
                else:
                    self._answer("text/html; charset=utf-8", stage._page().encode())

            def do_POST(self) -> None:
                stage.asked[f"POST {self.path}"] += 1
                stage.answers.wait(WAIT_S)
                self._answer("text/html; charset=utf-8", stage._page().encode())

            def _stream(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                self.wfile.write(b"event: hello\ndata: {}\n\n")
                waiting: queue.Queue[bytes] = queue.Queue()
                stage._listeners.append(waiting)
                try:
                    while data := waiting.get():
                        self.wfile.write(data)
                except OSError:
                    pass  # the page went away
                finally:
                    stage._listeners.remove(waiting)

            def _answer(self, kind: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name there)
                pass

        return Handler
