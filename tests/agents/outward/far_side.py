"""A far side on loopback: a forge with the API that GitHub and Gitea share, package indexes, and a plain store of files.

It can hold a request at a point, so that the caller is killed there; what it holds afterwards is the truth.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

HOLD_S = 60.0
TOKEN = "for-the-far-side-only"


class FarSide:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.comments: list[dict[str, Any]] = []
        self.issues: list[dict[str, Any]] = []
        self.pulls: list[dict[str, Any]] = []
        self.releases: dict[str, dict[str, Any]] = {}
        self.npm: dict[str, list[str]] = {}
        self.pypi: dict[str, list[str]] = {}
        self.private = False
        self.tokens: list[str] = []
        self.redirect = ""
        self.point = ""  # "dropped": held and then not done; "done": held after it was done
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.finished = threading.Event()
        self.ids = iter(range(1000, 100_000))
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator["FarSide"]:
        far = self

        class Handler(_Handler):
            side = far

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            self.go_on.set()
            server.shutdown()
            thread.join()
            server.server_close()

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def hold(self, point: str) -> None:
        self.point = point
        for event in (self.reached, self.go_on, self.finished):
            event.clear()

    def digest(self) -> str:
        """Everything that the far side holds, in one word."""
        held = [
            self.comments,
            self.issues,
            self.pulls,
            self.releases,
            self.npm,
            self.pypi,
            sorted(self.files.items()),
        ]
        return hashlib.sha256(repr(held).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    side: FarSide
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: object, kind: str = "application/json", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _acting(self) -> None:
        """Do what is asked, holding where it was told to."""
        side = self.side
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if side.point == "dropped":
            side.reached.set()
            side.go_on.wait(HOLD_S)
            self.close_connection = True
            side.finished.set()
            return
        answer = self._act(body)
        if side.point == "done":
            side.reached.set()
            side.go_on.wait(HOLD_S)
        side.finished.set()
        try:
            self._answer(*answer)
        except OSError:
            self.close_connection = True  # the caller is dead

    do_POST = do_PUT = do_PATCH = do_DELETE = _acting  # noqa: N815

    def _act(self, body: bytes) -> tuple[int, object]:
        side, path = self.side, urlsplit(self.path).path
        match = re.fullmatch(r"(?:/api/v[13])?/repos/o/r/(.+)", path)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if not match:
            if self.command == "DELETE":
                side.files.pop(path, None)
            elif path == "/legacy/":
                name = re.search(rb'filename="([^"]+)"', body)
                assert name
                side.pypi.setdefault("pkg-py", []).append(name[1].decode())
            elif path.startswith("/npm/"):
                side.npm.setdefault(unquote(path[5:]), []).extend(json.loads(body)["versions"])
            else:
                side.files[path] = body
            return 201, {}
        data = json.loads(body or b"{}")
        item = {
            "id": next(side.ids),
            "created_at": now,
            "state": "open",
            "number": next(side.ids),
            "html_url": "u",
            **data,
        }
        match match[1].split("/"):
            case ["issues", _, "comments"]:
                side.comments.append(item)
            case ["issues"]:
                side.issues.append(item)
            case ["pulls"]:
                side.pulls.append(item | {"head": {"ref": data["head"].rpartition(":")[2]}, "merged": False})
            case ["pulls", number, "merge"]:
                for pull in side.pulls:
                    pull |= {"merged": True, "state": "closed"} if str(pull["number"]) == number else {}
            case ["issues", number]:
                for issue in side.issues:
                    issue |= data if str(issue["number"]) == number else {}
            case ["releases"]:
                side.releases[data["tag_name"]] = item
        return 201, item

    def do_GET(self) -> None:
        side, parts = self.side, urlsplit(self.path)
        side.tokens.append(self.headers.get("Authorization", ""))
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if side.redirect:
            self._answer(302, b"", Location=side.redirect)
        elif match := re.fullmatch(r"(/api/v[13])?/repos/o/r(/.*)?", parts.path):
            if side.private and self.headers.get("Authorization") != f"token {TOKEN}":
                self._answer(404, {"message": "Not Found"})
            else:
                self._forge(match[1] == "/api/v1", match[2] or "", query)
        elif parts.path.startswith("/npm/"):
            versions = side.npm.get(unquote(parts.path[5:]))
            self._answer(200 if versions else 404, {"versions": {name: {} for name in versions or []}})
        elif match := re.fullmatch(r"/simple/([^/]+)/", parts.path):
            self._simple(side.pypi.get(match[1]))
        elif parts.path in side.files:
            self._answer(200, side.files[parts.path], "application/octet-stream")
        else:
            self._answer(404, b"")

    def _simple(self, files: list[str] | None) -> None:
        if files is None:
            self._answer(404, b"")
        elif len(files) % 2:  # both forms are met
            self._answer(
                200, {"files": [{"filename": name} for name in files]}, "application/vnd.pypi.simple.v1+json"
            )
        else:
            links = "".join(f'<a href="/f/{name}#sha256=0">{name}</a>' for name in files)
            self._answer(200, links.encode(), "text/html")

    def _forge(self, gitea: bool, path: str, query: dict[str, str]) -> None:
        side = self.side
        match path.strip("/").split("/"):
            case ["issues", _, "comments"]:
                self._list(
                    [c for c in side.comments if c["created_at"] >= query.get("since", "")], gitea, query
                )
            case ["issues"]:
                mixed = [] if gitea else [pull | {"pull_request": {}} for pull in side.pulls]
                listed = [i for i in [*side.issues, *mixed] if i["created_at"] >= query.get("since", "")]
                self._list(listed, gitea, query)
            case ["pulls"]:
                head = "" if gitea else query.get("head", "").rpartition(":")[2]  # Gitea has no such filter
                self._list([p for p in side.pulls if not head or p["head"]["ref"] == head], gitea, query)
            case ["pulls" | "issues" as kind, number]:
                found = [i for i in getattr(side, kind) if str(i["number"]) == number]
                self._answer(200 if found else 404, found[0] if found else {})
            case ["releases", "tags", tag]:
                found = side.releases.get(unquote(tag))
                self._answer(200 if found else 404, found or {})
            case [""]:
                self._answer(200, {"full_name": "o/r"})
            case _:
                self._answer(404, {})

    def _list(self, items: list[dict[str, Any]], gitea: bool, query: dict[str, str]) -> None:
        size, page = int(query["limit" if gitea else "per_page"]), int(query["page"])
        more = {"Link": '<x>; rel="next"'} if len(items) > page * size else {}
        self._answer(200, items[(page - 1) * size : page * size], **more)
