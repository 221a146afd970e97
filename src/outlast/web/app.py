"""Where a request leads: past the guard, to a page or to the API; and what becomes of whatever goes wrong on the way."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from outlast.acts import approve
from outlast.core import text as core_text
from outlast.errors import OutlastError
from outlast.web import api, link, metrics, openapi, page_table, query
from outlast.web.html import assets, formats
from outlast.web.html.layout import View
from outlast.web.http import guard, peers, responses
from outlast.web.http.requests import Malformed, Request, form
from outlast.web.http.responses import Answer, Refused
from outlast.web.http.server import Connection
from outlast.web.pages import problem
from outlast.web.pages.outside import login
from outlast.web.site import Site

EVENTS = "text/event-stream; charset=utf-8"
_PLAIN = ("static", "metrics", "healthz", "favicon.ico")
_NO_ROOM = "too many pages listen already; close some"
_BUG = "this is a bug of ours; `outlast ui --debug` shows the trace"

Trace = Callable[[BaseException], None]


class App:
    """Answers requests. `trace` gets an unexpected error in full; the client gets one line."""

    def __init__(self, site: Site, trace: Trace = lambda error: None) -> None:
        self._site, self._trace = site, trace

    def handle(self, request: Request, connection: Connection) -> Answer:
        """Always an answer."""
        begun_s = time.perf_counter()
        answer = self._answered(request, connection)
        self._site.requests.count(answer.status, time.perf_counter() - begun_s)
        return answer

    def _answered(self, request: Request, connection: Connection) -> Answer:
        try:
            elsewhere = self._site.guard.check(request, connection)
        except Refused as refused:
            return self._outside(request, refused)
        try:
            return elsewhere or self._routed(request, connection)
        except Refused as refused:
            return self._problem(request, refused)
        except OutlastError as error:
            return self._problem(request, responses.refused(error))
        except Exception as error:
            self._trace(error)
            return self._problem(request, Refused(500, f"unexpected {type(error).__name__}", _BUG))

    # -- what went wrong -----------------------------------------------------------------------------------------

    def _outside(self, request: Request, refused: Refused) -> Answer:
        """The answer to those who may not look: nothing about the store."""
        if refused.status != 401 or request.wants_json or request.segments[:1] == ("metrics",):
            return _plain_problem(request, refused)
        view = self._outside_view(request, guard.without_token(request))
        offered = any(name == "token" for name, _ in request.fields)
        return responses.page(login.render(view, str(refused) if offered else ""), 401, refused.headers)

    def _outside_view(self, request: Request, there: str) -> View:
        """The view of the login page: where to go on afterwards, and nothing of the store."""
        view = page_table.view_of(self._site, request, 0, named=False, form=guard.LOGIN)
        return replace(view, path="/login", query={"next": _local(there)})

    def _problem(self, request: Request, refused: Refused) -> Answer:
        named = not self._site.guard.is_open(request)  # else whoever asks has shown nothing
        if named:
            refused = self._pasteable(refused)
        if request.wants_json or (request.segments[:1] and request.segments[0] in _PLAIN):
            return _plain_problem(request, refused)
        try:
            view = page_table.view_of(self._site, request, 0, named=named)
            if refused.status != 503:  # which passes by itself
                view = replace(view, refresh_s=None)
            page = problem.render(view, refused.status, str(refused), refused.hint)
            return responses.page(page, refused.status, refused.headers)
        except Exception as error:
            self._trace(error)
            return _plain_problem(request, refused)

    def _pasteable(self, refused: Refused) -> Refused:
        """The refusal with commands that lead to this store. Only for logged-in readers: the commands name the store's place."""
        words, hint = (core_text.pasteable(text, self._site.options) for text in (str(refused), refused.hint))
        return Refused(refused.status, words, hint, headers=refused.headers)

    # -- where to ------------------------------------------------------------------------------------------------

    def _routed(self, request: Request, connection: Connection) -> Answer:
        segments, method = request.segments, "GET" if request.method == "HEAD" else request.method
        if segments[:1] == ("api",):
            return self._api(request, method, connection)
        if segments[:1] == ("static",) or segments == ("favicon.ico",):
            _allow(method, "GET")
            return _static(request)
        if segments == ("healthz",):
            _allow(method, "GET")
            return responses.line("ok")
        if segments == ("metrics",):
            _allow(method, "GET")
            return self._metrics()
        if segments == ("login",):
            _allow(method, "GET", "POST")
            return self._login(request, connection)
        if segments[:1] == (guard.LINK,) and len(segments) == 2:
            _allow(method, "GET", "POST")
            if method == "POST":
                self._refuse_inside(connection, "")
            return link.answer(self._site, request, segments[1], self._by(connection))
        for page in page_table.PAGES:
            values = _matched(page.segments, segments)
            if values is not None:
                acts = "/do/" in page.path
                _allow(method, "GET", *(["POST"] if acts else []))
                session = self._site.guard.session(request, connection)
                if method == "POST":
                    self._refuse_inside(connection, values.get("act", ""))
                    return page_table.press(self._site, request, values, session, self._by(connection))
                return page_table.show(self._site, page, request, values, session)
        raise Refused(404, f"no such page: {request.path!r:.100}", "see / for all runs")

    def _by(self, connection: Connection) -> str:
        return self._site.guard.by(connection, self._site.by)

    def _refuse_inside(self, connection: Connection, act: str) -> None:
        """Refuse an act that a process inside of a run asks for: only a person outside of it decides. Stopping is free to all."""
        opened = self._site.opened()
        if act in ("pause", "cancel") or opened is None:
            return
        found = peers.holders(connection.peer, connection.here)
        for pid in found or ():
            if within := approve.run_around(opened.store, pid):
                raise Refused(
                    403, f"this comes from inside run {within}: only a person outside of every run acts here",
                    "open the page in a browser that no run has started",
                )  # fmt: skip
        gone = found is None or set(found) - set(peers.holders(connection.peer, connection.here) or ())
        if gone:  # of a process that ended while we looked at it nobody can say whence it came
            raise Refused(409, "nothing was done: the process that asked is gone", "ask again, and wait")

    def _api(self, request: Request, method: str, connection: Connection) -> Answer:
        if request.segments == ("api", "openapi.json"):
            _allow(method, "GET")
            query.read((), request.fields)
            return Answer(openapi.document(), responses.JSON)
        if request.segments == ("api", "events"):
            _allow(method, "GET")
            return self._listen(request)
        fits = [
            (operation, values)
            for operation in api.OPERATIONS
            if (values := _matched(operation.segments, request.segments)) is not None
        ]
        if not fits:
            raise Refused(404, f"no such address: {request.path!r:.100}", "see /api/openapi.json")
        _allow(method, *(operation.method for operation, _ in fits))
        operation, values = next(fit for fit in fits if fit[0].method == method)
        if method == "POST":
            self._refuse_inside(connection, values.get("act", ""))
        by = self._by(connection) if method == "POST" else ""
        return api.answer(self._site, operation, request, values, self._zone(request), by)

    def _zone(self, request: Request) -> str:
        name = dict(request.fields).get("zone")
        found = formats.called(name if name is not None else request.cookies.get("zone", ""))
        if name is not None and found is None:
            raise Refused(400, f"no such time zone: {name!r:.60}", "give an IANA name, like Europe/Berlin")
        return (found or formats.local())[0]

    def _listen(self, request: Request) -> Answer:
        after = query.read((query.AFTER,), request.fields).get("after")
        last = request.headers.get("last-event-id")
        if last is not None:
            after = query.read((query.AFTER,), [("after", last)])["after"]
        if request.method == "HEAD":
            return Answer(kind=EVENTS)
        live = self._site.live
        if not live.take_place():
            raise Refused(503, _NO_ROOM, "or look without live updates", headers=(("Retry-After", "10"),))
        return Answer(kind=EVENTS, stream=lambda connection, head: live.listen(connection, head, after))

    def _metrics(self) -> Answer:
        opened = self._site.opened()
        number = opened.index.refresh() if opened else 0
        rows = opened.index.rows() if opened else []
        text = metrics.render(rows, number, self._site.requests, self._site.live.listeners)
        return Answer(text, metrics.KIND)

    def _login(self, request: Request, connection: Connection) -> Answer:
        keeper = self._site.guard
        if not keeper.token:
            return responses.see("/")
        if request.method != "POST":
            there = dict(request.fields).get("next", "")
            return responses.page(login.render(self._outside_view(request, there), ""))
        try:
            given = dict(form(request.body.decode("ascii")))
        except (UnicodeDecodeError, Malformed):
            given = {}
        view = self._outside_view(request, given.get("next", ""))
        keeper.check_csrf(given.get("csrf", ""), guard.LOGIN)
        try:
            cookie = keeper.let_in(given.get("token", "").strip(), request, connection)
        except Refused as refused:
            return responses.page(
                login.render(view, f"{refused}; {refused.hint}"), refused.status, refused.headers
            )
        return responses.see(_local(given.get("next", "")), (cookie,))


def _matched(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    """The values at the places of a pattern; None if it does not match."""
    if len(pattern) != len(segments):
        return None
    values = {}
    for wanted, found in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            values[wanted[1:-1]] = found
        elif wanted != found:
            return None
    return values


def _allow(method: str, *methods: str) -> None:
    if method not in methods:
        allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        raise Refused(
            405, f"{method} is not for this address", f"use {allowed}", headers=(("Allow", allowed),)
        )


def _local(place: str) -> str:
    """A place on this very site, or the first page."""
    safe = place.startswith("/") and place[1:2] not in ("/", "\\") and place.isprintable() and place.isascii()
    return place if safe and "\\" not in place else "/"


def _static(request: Request) -> Answer:
    name = request.segments[-1] if request.segments[0] == "static" else "icon.svg"
    if name not in assets.TYPES or len(request.segments) > 2:
        raise Refused(404, f"no such file: {name!r:.60}")
    keep = dict(request.fields).get("v") == assets.version(name)
    return Answer(assets.read(name), assets.TYPES[name], keep=keep)


def _plain_problem(request: Request, refused: Refused) -> Answer:
    if request.wants_json:
        document = responses.Problem(error=str(refused), hint=refused.hint)
        return responses.document(document, refused.status, refused.headers)
    lines: Iterable[str] = filter(None, (f"error: {refused}", refused.hint and f"hint: {refused.hint}"))
    return responses.line("\n".join(lines), refused.status, refused.headers)
