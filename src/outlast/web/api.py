"""The HTTP API: the same documents as on the pages, as JSON. OPERATIONS is what is served and described."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

from outlast import decoders
from outlast.core.text import did_you_mean
from outlast.dashboard import documents
from outlast.dashboard.actions import perform
from outlast.dashboard.run import pages
from outlast.dashboard.saves import saves
from outlast.inspect.ledger import Ledger
from outlast.inspect.show import Spent
from outlast.web import query
from outlast.web.http import responses
from outlast.web.http.requests import Request
from outlast.web.http.responses import Answer, Refused
from outlast.web.query import Param
from outlast.web.site import OpenSite, Site

ACTS: tuple[str, ...] = get_args(documents.ActName)
KEY = re.compile(r"[\x21-\x7e]{1,200}")
COMMIT = re.compile(r"[0-9a-f]{4,64}")
NO_STORE = "there is no store yet"
NO_STORE_HINT = "start a run with `outlast run`; it shows up here by itself"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to the API, read. `values` are those of the address and of the query."""

    site: Site
    opened: OpenSite
    values: dict[str, Any]
    body: Any
    zone: str
    key: str = ""
    by: str = ""

    @property
    def run(self) -> str:
        """The run in the address. Raises UnknownRun."""
        return self.opened.index.row(self.values["run"]).run


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be asked. `shared`: the same answer for all who ask at once."""

    name: str
    path: str
    about: str
    gives: Any
    make: Callable[[ApiRequest], Any]
    params: tuple[Param, ...] = ()
    method: Literal["GET", "POST"] = "GET"
    shared: bool = True
    tag: str = "runs"
    empty: Callable[[], Any] | None = None
    codes: tuple[int, ...] = field(default=())

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of its path; those in braces stand for any."""
        return tuple(self.path.strip("/").split("/"))


def _diff(request: ApiRequest) -> documents.Diff:
    return saves.diff(
        request.opened.store,
        request.run,
        commit(request.values["commit"]),
        request.values.get("against", "before"),
    )


def commit(text: str) -> str:
    """A commit's name, or the beginning of one. Raises Refused with 404."""
    if COMMIT.fullmatch(text) is None:
        raise Refused(404, f"no such save: {text!r:.70}", "see the saves of the run")
    return text


def _charts(request: ApiRequest) -> documents.Charts:
    days = {"days": request.values["days"]} if "days" in request.values else {}
    return request.opened.counter.charts(request.zone, **days)


def _emergencies(request: ApiRequest) -> documents.Emergencies:
    values = request.values
    return saves.emergencies(
        request.opened.store, request.opened.index, values.get("before"), values.get("cause", "")
    )


# -- acts ------------------------------------------------------------------------------------------------------------


def act(text: str) -> Any:
    """The name of an act. Raises Refused with 404."""
    if text not in ACTS:
        raise Refused(
            404, f"no such act: {text:.40}", did_you_mean(text, ACTS) or f"the acts are {', '.join(ACTS)}"
        )
    return text


def _foreseen(request: ApiRequest) -> documents.Foreseen:
    return perform.foresee(request.opened.store, _wish(request))


def _wish(request: ApiRequest) -> documents.Wish:
    fields = {name: request.values[name] for name in request.values if name not in ("act", "run")}
    return documents.Wish(act=act(request.values["act"]), run=request.run, **fields)


def _do(request: ApiRequest) -> documents.Done:
    wish = documents.Wish(
        act=act(request.values["act"]), run=request.run, **msgspec.structs.asdict(request.body)
    )
    site, store, by = request.site, request.opened.store, request.by
    if not request.key:
        done = perform.do(store, wish, by)
    else:
        nonce = hashlib.sha256(f"{wish.run} {wish.act} {request.key}".encode()).hexdigest()
        done = site.pressed.once(store.shelf, f"api-{nonce}", lambda: perform.do(store, wish, by), wish)
    if not done.ok:
        raise Refused(409, done.says, done.hint)
    return done


# -- without a store -------------------------------------------------------------------------------------------------


def nothing() -> documents.Overview:
    """The overview where there is no store yet."""
    none = Spent(0, 0, 0, 0, 0, 0, False, 0)
    return documents.Overview(
        at=datetime.now(UTC), number=0, total=0, found=0, page=1, pages=1, whats=(), statuses=(), projects=(), agents=(),
        spent=none, rows=(),
    )  # fmt: skip


def no_emergencies() -> documents.Emergencies:
    """Emergency saves where there is no store yet."""
    return documents.Emergencies(total=0, causes=(), saves=(), before=None)


# -- the table -------------------------------------------------------------------------------------------------------

_RUN = "/api/runs/{run}"
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listRuns", "/api/runs", "The overview: runs that fit, a page of them.", documents.Overview,
        lambda request: request.opened.index.overview(query.ask(request.values)), query.OVERVIEW, empty=nothing,
    ),
    Operation(
        "getRun", _RUN, "A run: contract, plan, newest beats, open effects, timeline.", documents.RunPage,
        lambda request: pages.page(request.opened.store, request.opened.index, request.run),
    ),
    Operation(
        "getTimeline", f"{_RUN}/timeline", "What happened when.", documents.Timeline,
        lambda request: pages.timeline(request.opened.store, request.run),
    ),
    Operation(
        "listBeats", f"{_RUN}/beats", "Completed beats, newest first.", documents.Beats,
        lambda request: pages.beats(request.opened.store, request.run, request.values.get("before")), (query.BEFORE,),
    ),
    Operation(
        "listEffects", f"{_RUN}/effects", "What was done to the outside world, newest first.", documents.Effects,
        lambda request: pages.effects(request.opened.store, request.run, request.values.get("before")), (query.BEFORE,),
    ),
    Operation(
        "listSaves", f"{_RUN}/saves", "Saves, newest first.", documents.Saves,
        lambda request: saves.saves(request.opened.store, request.run, request.values.get("page", 1)), (query.PAGE,),
    ),
    Operation(
        "getDiff", f"{_RUN}/saves/{{commit}}/diff", "A save against the one before, or against HEAD.", documents.Diff,
        _diff, (query.AGAINST,),
    ),
    Operation(
        "getBudget", f"{_RUN}/budget", "What was spent, on what, and what is left.", Ledger,
        lambda request: pages.budget(request.opened.store, request.run),
    ),
    Operation(
        "getContext", f"{_RUN}/context", "What the next attempt will read.", documents.Context,
        lambda request: pages.context(request.opened.store, request.run),
    ),
    Operation(
        "getOutput", f"{_RUN}/output", "The end of what the agent wrote.", documents.Output,
        lambda request: pages.output(request.opened.store, request.run, request.values.get("attempt")), (query.ATTEMPT,),
    ),
    Operation(
        "getJournal", f"{_RUN}/journal", "Events of a run, newest first.", documents.JournalPage,
        lambda request: pages.journal(request.opened.store, request.run, request.values.get("before")), (query.BEFORE,),
    ),
    Operation(
        "listEmergencySaves", "/api/saves", "Emergency saves of all runs, newest first.", documents.Emergencies,
        _emergencies, (query.BEFORE, query.CAUSE), tag="all", empty=no_emergencies,
    ),
    Operation(
        "getCharts", "/api/charts", "Spending, saves and beats over the last days.", documents.Charts, _charts,
        (query.ZONE, query.DAYS), tag="all",
    ),
    Operation(
        "foreseeAct", f"{_RUN}/acts/{{act}}", "What an act would do. Changes nothing.", documents.Foreseen, _foreseen,
        query.WISH, shared=False, tag="acts",
    ),
    Operation(
        "doAct", f"{_RUN}/acts/{{act}}", "Do it. The same Idempotency-Key again gets the same answer.", documents.Done, _do,
        method="POST", shared=False, tag="acts", codes=(409, 411, 413, 415),
    ),
)  # fmt: skip


def answer(
    site: Site, operation: Operation, request: Request, values: dict[str, str], zone: str, by: str
) -> Answer:
    """Answer a request to the API; `by` is who acts. Raises Refused and OutlastError."""
    parameters = query.read(operation.params, request.fields)
    body = _body(request) if operation.method == "POST" else None
    key = request.headers.get("idempotency-key", "")
    if "idempotency-key" in request.headers and KEY.fullmatch(key) is None:
        raise Refused(400, "the Idempotency-Key is not valid", "give 1 to 200 visible characters of ASCII")
    opened = site.opened()
    if opened is None:
        if operation.empty is None:
            raise Refused(404, NO_STORE, NO_STORE_HINT)
        return responses.document(operation.empty())
    api_request = ApiRequest(
        site, opened, {**parameters, **values}, body, parameters.get("zone", zone), key, by
    )
    if not operation.shared:
        return responses.document(operation.make(api_request))
    number = opened.index.refresh()
    return site.shared.get(
        ("api", request.target, zone), lambda: responses.document(operation.make(api_request)), number=number, wanted=number
    )  # fmt: skip


def _body(request: Request) -> Any:
    kind = request.header("content-type").partition(";")[0].strip().lower()
    if kind != responses.JSON:
        raise Refused(
            415, "the Content-Type must be application/json", "post a document; {} asks for nothing special"
        )
    try:
        return decoders.convert(_whole_numbers(msgspec.json.decode(request.body)), query.WishBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = query.document_hint(str(error))
        raise Refused(400, f"the document is not valid: {error}"[:300], hint) from error


def _whole_numbers(document: Any) -> Any:
    """To JSON, 3.0 is the same whole number as 3."""
    if not isinstance(document, dict):
        return document
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in document.items()
    }
