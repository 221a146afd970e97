"""The pages by their addresses: which document each shows, and how an act is asked for, done, and looked at."""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from outlast._version import __version__
from outlast.dashboard import documents
from outlast.dashboard.actions import perform
from outlast.dashboard.run import pages
from outlast.dashboard.saves import saves as dashboard_saves
from outlast.web import api, query
from outlast.web.html import formats
from outlast.web.html.layout import View
from outlast.web.http import responses
from outlast.web.http.requests import Malformed, Request, form
from outlast.web.http.responses import Answer, Refused
from outlast.web.pages import (
    acts,
    budget,
    charts,
    context,
    diff,
    effects,
    emergency,
    journal,
    output,
    overview,
    run,
    saves,
)
from outlast.web.query import Param
from outlast.web.site import OpenSite, Site
from outlast.web.timing import Timing

KNOWS = "outlast-number"  # the header of a page that is fetched anew
FORM = "application/x-www-form-urlencoded"
NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a page: what its address and its query say, and the store."""

    site: Site
    opened: OpenSite
    request: Request
    values: dict[str, Any]
    view: View

    @property
    def row(self) -> documents.Row:
        """The run in the address. Raises UnknownRun."""
        return self.opened.index.row(self.values["run"])


@dataclass(frozen=True, slots=True)
class Page:
    """An address and what is shown there. `shared`: the same for all who ask at once."""

    path: str
    make: Callable[[Call], str]
    params: tuple[Param, ...] = ()
    shared: bool = True

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of its path; those in braces stand for any."""
        return tuple(self.path.strip("/").split("/")) if self.path != "/" else ()


def view_of(site: Site, request: Request, number: int, *, named: bool = True, form: str = "") -> View:
    """One request, as a page sees it. Without `named` it does not say where the store is; `form`: what its forms are bound to."""
    name, zone = formats.called(request.cookies.get("zone", "")) or formats.local()
    return View(
        path=request.path, query=dict(request.fields), now=datetime.now(UTC), zone=zone, zone_name=name,
        csrf=site.guard.csrf(form) if form else "", read_only=site.guard.read_only, number=number,
        store_name=str(site.place.local.folder) if named else "", version=__version__, refresh_s=Timing.current().refresh_s if named else None,
        outlast=site.outlast if named else "outlast",
    )  # fmt: skip


def show(site: Site, page: Page, request: Request, values: dict[str, str], session: str) -> Answer:
    """Answer a request for a page. Raises Refused and OutlastError. What is shared has no forms that do something."""
    parameters = query.read(page.params, request.fields, strict=False)
    opened = site.opened()
    if opened is None:
        return _without_store(site, page, request, parameters)
    number = opened.index.refresh()
    view = view_of(site, request, number, form="" if page.shared else session)
    call = Call(site, opened, request, {**parameters, **values}, view)
    if not page.shared:
        return responses.page(page.make(call))
    key = ("page", request.target, view.zone_name)
    return site.shared.get(
        key, lambda: responses.page(page.make(call)), number=number, wanted=_wanted(request, number)
    )


def _wanted(request: Request, number: int) -> int:
    """The event that a page fetched again must know; without one, the newest."""
    newest = request.headers.get(KNOWS, "")
    return int(newest) if newest.isascii() and newest.isdigit() and len(newest) < 20 else number


def _without_store(site: Site, page: Page, request: Request, parameters: dict[str, Any]) -> Answer:
    view = view_of(site, request, 0)
    if page.path == "/":
        return responses.page(overview.render(view, query.ask(parameters), api.nothing()))
    if page.path == "/saves":
        return responses.page(emergency.render(view, api.no_emergencies()))
    raise Refused(404, api.NO_STORE, api.NO_STORE_HINT)


# -- looking ---------------------------------------------------------------------------------------------------------


def _overview(call: Call) -> str:
    ask = query.ask(call.values)
    return overview.render(call.view, ask, call.opened.index.overview(ask))


def _run(call: Call) -> str:
    return run.render(call.view, pages.page(call.opened.store, call.opened.index, call.row.run))


def _beats(call: Call) -> str:
    row = call.row
    return run.beats(call.view, row, pages.beats(call.opened.store, row.run, call.values.get("before")))


def _effects(call: Call) -> str:
    row = call.row
    return effects.render(
        call.view, row, pages.effects(call.opened.store, row.run, call.values.get("before"))
    )


def _saves(call: Call) -> str:
    row = call.row
    return saves.render(
        call.view, row, dashboard_saves.saves(call.opened.store, row.run, call.values.get("page", 1))
    )


def _diff(call: Call) -> str:
    row, against = call.row, call.values.get("against", "before")
    found = dashboard_saves.diff(call.opened.store, row.run, api.commit(call.values["commit"]), against)
    return diff.render(call.view, row, found)


def _budget(call: Call) -> str:
    row = call.row
    return budget.render(call.view, row, pages.budget(call.opened.store, row.run))


def _context(call: Call) -> str:
    row = call.row
    return context.render(call.view, row, pages.context(call.opened.store, row.run))


def _output(call: Call) -> str:
    row = call.row
    return output.render(call.view, row, pages.output(call.opened.store, row.run, call.values.get("attempt")))


def _journal(call: Call) -> str:
    row = call.row
    return journal.render(
        call.view, row, pages.journal(call.opened.store, row.run, call.values.get("before"))
    )


def _emergencies(call: Call) -> str:
    before, cause = call.values.get("before"), call.values.get("cause", "")
    return emergency.render(
        call.view, dashboard_saves.emergencies(call.opened.store, call.opened.index, before, cause)
    )


def _charts(call: Call) -> str:
    return charts.render(call.view, call.opened.counter.charts(call.view.zone_name))


# -- acting ----------------------------------------------------------------------------------------------------------


def _ask(call: Call) -> str:
    """The preview of an act, and its button. Each preview has a name of its own, under which the act is done once."""
    act = api.act(call.values["act"])
    row = call.row
    fields = {name: call.values[name] for name in call.values if name not in ("act", "run")}
    foreseen = perform.foresee(call.opened.store, documents.Wish(act=act, run=row.run, **fields))
    view = replace(call.view, refresh_s=None)
    return acts.ask(view, row, foreseen, secrets.token_urlsafe(24))


def _did(call: Call) -> str:
    done = call.site.pressed.done(call.opened.store.shelf, call.values["nonce"])
    row = call.row
    if done is None or done.wish.run != row.run:
        raise Refused(
            404,
            "the outcome of this act is no longer on record",
            "look at the run: its journal says what was done",
        )
    return acts.done(replace(call.view, refresh_s=None), row, done)


def press(site: Site, request: Request, values: dict[str, str], session: str, by: str) -> Answer:
    """Do what a form asks for, once for each form, and lead to where its outcome is shown."""
    if request.header("content-type").partition(";")[0].strip().lower() != FORM:
        raise Refused(415, "this is for the forms of the page", f"programs post to /api{request.path}")
    try:
        posted = form(request.body.decode("ascii"))
    except (UnicodeDecodeError, Malformed) as error:
        raise Refused(400, "the form cannot be read", "go back, reload, and press again") from error
    given = dict(posted)
    site.guard.check_csrf(given.get("csrf", ""), session)
    nonce, act = given.get("nonce", ""), api.act(values["act"])
    if NONCE.fullmatch(nonce) is None:
        raise Refused(400, "the form has no key", "go back, reload, and press again")
    fields = query.read(query.WISH, posted, strict=False)
    opened = site.opened()
    if opened is None:
        raise Refused(404, api.NO_STORE, api.NO_STORE_HINT)
    store, wish = opened.store, documents.Wish(act=act, run=opened.index.row(values["run"]).run, **fields)
    site.pressed.once(store.shelf, nonce, lambda: perform.do(store, wish, by), wish)
    return responses.see(f"/runs/{quote(wish.run, safe='')}/did/{nonce}")


PAGES: tuple[Page, ...] = (
    Page("/", _overview, query.OVERVIEW),
    Page("/runs/{run}", _run),
    Page("/runs/{run}/beats", _beats, (query.BEFORE,)),
    Page("/runs/{run}/effects", _effects, (query.BEFORE,)),
    Page("/runs/{run}/saves", _saves, (query.PAGE,)),
    Page("/runs/{run}/saves/{commit}", _diff, (query.AGAINST,)),
    Page("/runs/{run}/budget", _budget),
    Page("/runs/{run}/context", _context),
    Page("/runs/{run}/output", _output, (query.ATTEMPT,)),
    Page("/runs/{run}/journal", _journal, (query.BEFORE,)),
    Page("/runs/{run}/do/{act}", _ask, query.WISH, shared=False),
    Page("/runs/{run}/did/{nonce}", _did, shared=False),
    Page("/saves", _emergencies, (query.BEFORE, query.CAUSE)),
    Page("/charts", _charts),
)
