"""`/press/TOKEN`: one act from a notice, on a page that asks for no login. GET shows it, a press of its button does it, once."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from outlast.dashboard.actions import perform
from outlast.dashboard.documents import Done, Wish
from outlast.errors import OutlastError, UsageError
from outlast.inspect.questions import waits_for
from outlast.notifications import links
from outlast.notifications.links import BadLink, Links, Pressable
from outlast.operations import requests
from outlast.store.protocol import Store
from outlast.web import api, page_table, query
from outlast.web.html.layout import View
from outlast.web.http import responses
from outlast.web.http.requests import Malformed, Request, form
from outlast.web.http.responses import Answer, Refused
from outlast.web.pages.outside import press
from outlast.web.pages.outside.press import Pressed
from outlast.web.site import Site

OTHERS_MAX = 2
_NOT_NOW = "what it was about is settled or has gone on since it was sent"
# What a person chooses when they press; all else is in the token.
_CHOSEN: dict[str, tuple[str, ...]] = {"settle": ("finding",), "answer": ("text",), "reject": ("text",)}
_OF_QUESTIONS = ("approve", "reject", "answer")


def answer(site: Site, request: Request, token: str, by: str) -> Answer:
    """Show the act of this link, or do it. Raises Refused. It lets nobody in anywhere else: there is no cookie."""
    found = _read(site, token)
    opened = site.opened()
    if opened is None:
        raise Refused(404, api.NO_STORE, api.NO_STORE_HINT)
    view = replace(page_table.view_of(site, request, 0, named=False, form=_form(token)), refresh_s=None)
    if request.method != "POST":
        return responses.page(_shown(site, opened.store, view, token, found, _others(site, request)))
    _press(site, opened.store, token, found, request, by)
    return responses.see(request.target if request.target.isascii() else request.path)


def _read(site: Site, token: str) -> Pressable:
    """What the token is good for. Raises Refused with the same words whatever is wrong with it, but its age."""
    try:
        return Links(site.place.local).read(token, datetime.now(UTC))
    except BadLink as bad:
        expired = "expired" in str(bad)
        raise Refused(410 if expired else 404, str(bad), "open the page itself, or type the command") from bad
    except (OSError, UsageError) as error:
        raise Refused(503, "links cannot be read right now", "see `outlast doctor`") from error


def _others(site: Site, request: Request) -> list[tuple[str, Pressable]]:
    """The acts that stand beside it, each with a token of its own; one that is not good any more is left out."""
    given = [value for name, value in request.fields if name == links.OTHER][:OTHERS_MAX]
    found = []
    for token in given:
        try:
            found.append((token, Links(site.place.local).read(token, datetime.now(UTC))))
        except (BadLink, OSError, UsageError):
            continue
    return found


def _form(token: str) -> str:
    """What the form is bound to: this token alone."""
    return f"link {hashlib.sha256(token.encode()).hexdigest()}"


def _nonce(found: Pressable) -> str:
    return f"link-{found.nonce}"


# -- showing -----------------------------------------------------------------------------------------------------------


def _shown(
    site: Site, store: Store, view: View, token: str, found: Pressable, others: list[tuple[str, Pressable]]
) -> str:
    """The page of the link: what became of it, or what it would do, and its buttons."""
    done = _outcome(site, store, found)
    if done is not None and (done.ok or done.changed):
        return press.done(view, done)
    buttons = [_pressed(site, store, view, token, found)]
    buttons += [
        _pressed(site, store, view, each, other)
        for each, other in others
        if (other.run, other.subject) == (found.run, found.subject)
    ]
    for each in (other for _, other in others):
        became = _outcome(site, store, each)
        if became is not None and (became.ok or became.changed):
            return press.done(view, became)  # the other one was pressed
    return press.ask(view, buttons, done)


def _outcome(site: Site, store: Store, found: Pressable) -> Done | None:
    return site.pressed.done(store.shelf, _nonce(found))


def _pressed(site: Site, store: Store, view: View, token: str, found: Pressable) -> Pressed:
    """One act as its page shows it. What a person chooses in its form is not asked for beforehand."""
    wish = _wish(found, {})
    foreseen = perform.foresee(store, wish)
    if stale := _stale(store, found):
        foreseen = msgspec.structs.replace(foreseen, says=(), refused=stale, lacks=())
    form_view = replace(view, csrf=site.guard.csrf(_form(token)))
    return Pressed(foreseen, f"/{links.PATH}/{token}", form_view, _choices(store, found))


def _choices(store: Store, found: Pressable) -> tuple[str, ...]:
    """The answers that its question offers."""
    try:
        root = requests.root_of(store, found.run)
    except OutlastError:
        return ()
    meant = [each for each in waits_for(root.state) if each.id == found.subject]
    return meant[0].choices if meant and found.act == "answer" else ()


def _stale(store: Store, found: Pressable) -> str:
    """Why the act is of no use any more; empty where it is. A resume is for the attempt that had ended when it was sent."""
    if found.act != "resume":
        return ""
    try:
        attempts = requests.summary_of(store, found.run).state.attempts
    except OutlastError as error:
        return str(error)
    return "" if str(attempts) == found.subject else f"the run has gone on: {_NOT_NOW}"


# -- doing -------------------------------------------------------------------------------------------------------------


def _press(site: Site, store: Store, token: str, found: Pressable, request: Request, by: str) -> None:
    """Do it, once. A second press does nothing; the page shows what became of the first. Raises Refused."""
    if request.header("content-type").partition(";")[0].strip().lower() != page_table.FORM:
        raise Refused(415, "this is for the button of the page", "open the link, and press it there")
    try:
        posted = form(request.body.decode("ascii"))
    except (UnicodeDecodeError, Malformed) as error:
        raise Refused(400, "the form cannot be read", "open the link again, and press again") from error
    given = dict(posted)
    site.guard.check_csrf(given.get("csrf", ""), _form(token))
    done = _outcome(site, store, found)
    if done is not None and (done.ok or done.changed):
        return
    if stale := _stale(store, found):
        raise Refused(409, stale, "open the page itself to see how the run stands")
    wanted = _CHOSEN.get(found.act, ())
    chosen = query.read([param for param in query.WISH if param.name in wanted], posted, strict=False)
    wish = _wish(found, chosen)
    site.pressed.once(store.shelf, _nonce(found), lambda: perform.do(store, wish, f"{by}, by a link"), wish)


def _wish(found: Pressable, chosen: dict[str, object]) -> Wish:
    """The wish of a token: act, run and subject are its own, whatever a form says."""
    wish = Wish(act=api.act(found.act), run=found.run)
    if found.act == "settle":
        wish = msgspec.structs.replace(wish, effect=found.subject)
    if found.act in _OF_QUESTIONS:
        wish = msgspec.structs.replace(wish, question=found.subject)
    return msgspec.structs.replace(wish, **chosen)
