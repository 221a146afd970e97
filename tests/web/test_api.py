"""The page and the API as a whole, on a real store: every address, every act, and what is said when something is wrong."""

import html
import json
import re
import shutil
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest

from outlast.store import open_store
from outlast.web import api, openapi
from outlast.web.html import assets
from outlast.web.http import cache, responses
from outlast.web.http.cache import AnswerCache
from outlast.web.http.responses import Answer
from outlast.web.page_table import PAGES
from outlast.web.timing import Timing
from tests.support.journals.night import make_night
from tests.support.processes import wait_for
from tests.web.busy_store import Writer
from tests.web.server import Heard, Served, ui

TABS = ("", "/beats", "/effects", "/saves", "/budget", "/context", "/output", "/journal")
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_night(tmp_path_factory.mktemp("night") / "store")


@pytest.fixture(scope="module")
def web(root: Path) -> Iterator[Served]:
    with ui(root) as running:
        yield running


@pytest.fixture
def own(root: Path, tmp_path: Path) -> Iterator[Served]:
    """A store of the test's own, to act on."""
    shutil.copytree(root, tmp_path / "store")
    with ui(tmp_path / "store") as running:
        yield running


def rows(web: Served, **asked: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = web.ask(
        f"/api/runs?{urlencode({'flat': '1', 'size': '500', **asked})}"
    ).json["rows"]
    return found  # fmt: skip


def one(web: Served, **asked: str) -> str:
    return str(rows(web, **asked)[0]["run"])


def problem(heard: Heard, status: int) -> str:
    """What a refusal says; it is one line and a hint, as JSON."""
    assert (heard.status, heard.headers["content-type"]) == (status, "application/json")
    assert set(heard.json) == {"error", "hint"}
    assert "Traceback" not in heard.text
    return str(heard.json["error"])


# -- looking -----------------------------------------------------------------------------------------------------------


def test_every_page_of_a_run_is_there_and_is_html(web: Served) -> None:
    for row in rows(web)[::4]:
        for tab in TABS:
            heard = web.ask(f"/runs/{row['run']}{tab}")
            assert heard.status == 200, (row["run"], tab)
            assert heard.headers["content-type"] == "text/html; charset=utf-8"
            assert heard.text.startswith("<!doctype html>")


def test_the_api_has_the_same_and_every_document_is_of_its_type(web: Served) -> None:
    for path in ("/api/runs", "/api/saves", "/api/charts"):
        assert web.ask(path).status == 200
    run = one(web, status="in_doubt")
    for tab in (*TABS, "/timeline"):
        assert web.ask(f"/api/runs/{run}{tab}").status == 200
    assert web.ask(f"/api/runs/{run}").json["row"]["run"] == run


class Elements(HTMLParser):
    """Every element of a page as a browser sees it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_nothing_an_agent_wrote_becomes_part_of_a_page(web: Served) -> None:
    run = one(web, q="yad doog")
    acts = (f"/runs/{run}/do/{act}" for act in api.ACTS)
    for path in ("/", "/saves", "/charts", *(f"/runs/{run}{tab}" for tab in TABS), *acts):
        text = web.ask(path).text
        for tag, attributes in Elements(text).found:
            assert tag not in ("iframe", "img", "object", "embed", "base", "style"), path
            assert tag != "script" or str(attributes.get("src")).startswith("/static/"), path
            assert not [name for name in attributes if name.startswith("on") or name == "style"], path
            for name in ("href", "src", "action", "formaction"):
                assert str(attributes.get(name) or "/").startswith(("/", "#")), (path, attributes)
                assert not str(attributes.get(name)).startswith("//"), (path, attributes)
        assert "\x1b" not in text, path
        assert "\u202e" not in text, path


def test_what_is_asked_is_what_is_listed(web: Served) -> None:
    found = rows(web, status="in_doubt")
    assert {row["status"] for row in found} == {"in_doubt"}
    several = web.ask("/api/runs?status=in_doubt&status=failed&what=needs+you&size=500&flat=1").json["rows"]
    assert {row["status"] for row in several} == {"in_doubt", "failed"}
    assert web.ask("/api/runs?size=3&flat=1").json["pages"] > 5


@pytest.mark.parametrize(
    "query", ["nonsense=1", "page=0", "page=x", "page=1&page=2", "size=501", "page=1e0", "page=1.0", "page=+1", "page=%201", "sort=up", "status=asleep", "up=yes", "q=" + "a" * 1001, "q=%00", "page=99999999999999999999999"]
)  # fmt: skip
def test_a_query_that_cannot_be_meant_is_refused_by_name(web: Served, query: str) -> None:
    said = problem(web.ask(f"/api/runs?{query}"), 400)
    assert query.partition("=")[0] in said


def test_who_gives_another_word_is_told_which_there_are(web: Served) -> None:
    heard = web.ask("/api/runs?sort=bogus")
    assert "sort='bogus'" in problem(heard, 400)
    assert heard.json["hint"].startswith("the order of the runs; one of: needs, activity, created")
    heard = web.ask("/api/runs?status=done&status=lost")
    assert "one of: running, paused" in heard.json["hint"]
    heard = web.post(f"/api/runs/{one(web)}/acts/settle", {"effect": "1.1", "finding": "perhaps"})
    assert problem(heard, 400)
    assert heard.json["hint"].startswith("finding: of settle")
    assert "one of: happened, did_not" in heard.json["hint"]


def test_what_a_refusal_tells_to_type_leads_to_the_store(web: Served, root: Path) -> None:
    leads = f"`outlast --store sqlite://{root}/outlast.db "
    heard = web.ask("/api/runs/nosuchrun")
    assert leads in heard.json["error"] + heard.json["hint"]
    assert leads in html.unescape(web.ask("/runs/nosuchrun").text)
    done = next(row["run"] for row in rows(web, status="done") if not row["parent"])
    assert leads in web.post(f"/api/runs/{done}/acts/pause", {}).json["hint"]
    assert leads in web.ask(f"/api/runs/{done}/acts/pause").json["hint"]
    assert leads in html.unescape(web.ask(f"/runs/{done}/do/pause").text)


def test_a_page_takes_the_empty_fields_of_a_form_and_refuses_nonsense_on_a_page(web: Served) -> None:
    assert web.ask("/?q=&what=&status=&project=&agent=&sort=&utm=1").status == 200
    heard = web.ask("/?sort=nonsense")
    assert (heard.status, heard.headers["content-type"]) == (400, "text/html; charset=utf-8")


@pytest.mark.parametrize("path", ["/runs/nothing", "/runs/nothing/journal", "/nothing", "/runs", "/runs/a/b/c/d/e", "/static/nothing.js", "/static/../routes.py".replace("..", "x"), "/api/nothing", "/api/runs/nothing", "/api/runs/nothing/diff"])  # fmt: skip
def test_what_is_not_there_is_404(web: Served, path: str) -> None:
    heard = web.ask(path)
    assert heard.status == 404
    if path.startswith("/api"):
        problem(heard, 404)


def test_a_save_that_is_not_there_is_refused_without_a_trace(web: Served) -> None:
    run = one(web)
    for commit in ("nothing", "abcd", "0" * 40, "HEAD", "--output=x", "a" * 80):
        heard = web.ask(f"/api/runs/{run}/saves/{commit}/diff")
        assert heard.status in (400, 404) or heard.json["problem"], commit
        assert web.ask(f"/runs/{run}/saves/{commit}").status in (200, 400, 404), commit


@pytest.mark.parametrize(("method", "path", "allowed"), [("POST", "/", "GET, HEAD"), ("DELETE", "/api/runs", "GET, HEAD"), ("PUT", "/api/runs/x/acts/pause", "GET, POST, HEAD"), ("OPTIONS", "/api/runs", "GET, HEAD")])  # fmt: skip
def test_another_method_is_told_which_are_allowed(web: Served, method: str, path: str, allowed: str) -> None:
    heard = web.ask(path, method=method, Content_Length="0")
    assert (heard.status, heard.headers["allow"]) == (405, allowed)


def test_head_has_the_headers_of_get(web: Served) -> None:
    for path in ("/healthz", "/static/style.css", "/api/openapi.json"):
        got, asked = web.ask(path), web.ask(path, method="HEAD")
        assert (asked.status, asked.body) == (200, b"")
        assert asked.headers["content-length"] == got.headers["content-length"]
    assert web.ask("/api/events", method="HEAD").headers["content-type"].startswith("text/event-stream")


def test_files_may_be_kept_only_under_their_own_sum(web: Served) -> None:
    for name in assets.TYPES:
        heard = web.ask(assets.link(name))
        assert (heard.body, heard.headers["content-type"]) == (assets.read(name), assets.TYPES[name])
        assert "immutable" in heard.headers["cache-control"]
        assert web.ask(f"/static/{name}?v=0").headers["cache-control"] == "no-store"


def test_times_are_in_the_zone_of_the_reader(web: Served) -> None:
    assert "times in Asia/Tokyo" in web.ask("/", Cookie="zone=Asia/Tokyo").text
    for odd in ("../../etc/passwd", "/etc/passwd", "Europe", "Nowhere/Land", "%2e%2e", "", "posix/../UTC"):
        assert web.ask("/", Cookie=f"zone={odd}").status == 200
    assert web.ask("/api/charts?zone=Asia/Tokyo").json["zone"] == "Asia/Tokyo"
    problem(web.ask("/api/charts?zone=Nowhere/Land"), 400)


# -- the description -----------------------------------------------------------------------------------------------------


def test_the_description_has_every_operation_and_every_answer(web: Served) -> None:
    described = web.ask("/api/openapi.json").json
    assert described["openapi"] == "3.1.0"
    listed = {(path, method) for path, methods in described["paths"].items() for method in methods}
    served = {(operation.path, operation.method.lower()) for operation in api.OPERATIONS}
    assert listed == served | {("/api/events", "get"), ("/api/openapi.json", "get")}
    text = openapi.document().decode()
    for ref in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert ref in described["components"]["schemas"], ref


def test_every_page_has_its_documents_in_the_api() -> None:
    """But for what is only of a page: the question before an act and its outcome."""
    served = {operation.path for operation in api.OPERATIONS}
    for page in PAGES:
        path = page.path.replace("/do/", "/acts/").replace("/saves/{commit}", "/saves/{commit}/diff")
        if page.path != "/" and "/did/" not in page.path:
            assert f"/api{path}" in served


# -- acting --------------------------------------------------------------------------------------------------------------


def fields_of(page: str) -> dict[str, str]:
    """What the form that acts would send."""
    form = page[page.index('id="press"') - 400 :]
    form = form[form.index("<form") : form.index("</form>")]
    found = {}
    for field in re.findall(r"<input[^>]*>", form):
        name, value = re.search(r' name="([^"]*)"', field), re.search(r' value="([^"]*)"', field)
        assert name is not None
        assert value is not None
        found[html.unescape(name[1])] = html.unescape(value[1])
    return found


def press(web: Served, run: str, act: str, fields: dict[str, str], **headers: str) -> Heard:
    headers.setdefault("Content_Type", FORM)
    return web.ask(f"/runs/{run}/do/{act}", method="POST", body=urlencode(fields), **headers)


def test_an_act_asks_once_is_done_once_and_shows_its_outcome_again_and_again(own: Served) -> None:
    run = one(own, status="interrupted")
    fields = fields_of(own.ask(f"/runs/{run}/do/pause").text)
    first, second = press(own, run, "pause", fields), press(own, run, "pause", fields)
    assert (first.status, second.status) == (303, 303)
    assert first.headers["location"] == second.headers["location"] == f"/runs/{run}/did/{fields['nonce']}"
    for _ in range(2):
        shown = own.ask(first.headers["location"])
        assert shown.status == 200
        assert "tester via ui" in shown.text
    events = own.ask(f"/api/runs/{run}/journal").json["events"]
    assert [event["tag"] for event in events].count(events[0]["tag"]) == 1
    assert json.dumps(events[0]).count("tester via ui") >= 1
    assert rows(own, q=run)[0]["status"] == "paused"


def test_each_look_at_an_act_is_another_form(own: Served) -> None:
    run = one(own, status="interrupted")
    first, second = (fields_of(own.ask(f"/runs/{run}/do/cancel").text) for _ in range(2))
    assert first["nonce"] != second["nonce"]


def test_a_form_without_our_token_does_nothing(own: Served) -> None:
    run = one(own, status="interrupted")
    fields = fields_of(own.ask(f"/runs/{run}/do/cancel").text)
    for wrong in ({**fields, "csrf": ""}, {**fields, "csrf": "00" * 64}, {"nonce": fields["nonce"]}):
        assert press(own, run, "cancel", wrong).status == 403
    assert press(own, run, "cancel", {**fields, "nonce": "x"}).status == 400
    assert press(own, run, "cancel", fields, Content_Type="text/plain").status == 415
    assert press(own, run, "cancel", fields, Origin="http://evil.invalid").status == 403
    assert press(own, run, "cancel", fields, Sec_Fetch_Site="cross-site").status == 403
    assert press(own, run, "nonsense", fields).status == 404
    assert press(own, "nothing", "cancel", fields).status == 404
    assert rows(own, q=run)[0]["status"] == "interrupted"
    assert press(own, run, "cancel", fields).status == 303
    assert rows(own, q=run)[0]["status"] == "cancelled"


def test_an_outcome_is_shown_only_with_its_own_run(own: Served) -> None:
    run, other = (str(row["run"]) for row in rows(own, status="interrupted")[:2])
    fields = fields_of(own.ask(f"/runs/{run}/do/pause").text)
    press(own, run, "pause", fields)
    assert own.ask(f"/runs/{other}/did/{fields['nonce']}").status == 404
    assert own.ask(f"/runs/{run}/did/another-nonce-nobody-made").status == 404


def test_the_api_does_the_same_and_the_same_key_again_gets_the_same_answer(own: Served) -> None:
    run = one(own, status="interrupted")
    path = f"/api/runs/{run}/acts/pause"
    assert own.ask(path).json["refused"] == ""
    first = own.post(path, {}, Idempotency_Key="7")
    second = own.post(path, {}, Idempotency_Key="7")
    assert (first.status, first.json["changed"], first.json["by"]) == (200, True, "tester via ui")
    assert second.json == first.json
    assert own.post(path, {}, Idempotency_Key="8").json["changed"] is False
    assert own.post(path, {}).json["changed"] is False


def limited(web: Served) -> str:
    """A run to whose tokens some can be added."""
    asked = "acts/budget?amounts=tokens%3D%2B3k"
    found = (str(row["run"]) for row in rows(web, status="interrupted"))
    return next(run for run in found if not web.ask(f"/api/runs/{run}/{asked}").json["refused"])


def test_a_key_is_known_after_a_restart_and_on_another_page_of_the_same_store(own: Served) -> None:
    path, asked = f"/api/runs/{limited(own)}/acts/budget", {"amounts": "tokens=+3k"}
    first = own.post(path, asked, Idempotency_Key="once")
    assert (first.status, first.json["changed"]) == (200, True)
    with ui(own.site.place.local.folder) as another:
        assert another.post(path, asked, Idempotency_Key="once").json == first.json
        said = problem(another.post(path, {"amounts": "tokens=+4k"}, Idempotency_Key="once"), 409)
        assert "another request" in said


def test_the_same_form_with_something_else_in_it_is_told_so(own: Served) -> None:
    run = limited(own)
    fields = fields_of(own.ask(f"/runs/{run}/do/budget?amounts=tokens%3D%2B3k").text)
    assert press(own, run, "budget", fields).status == 303
    heard = press(own, run, "budget", {**fields, "amounts": "tokens=+99k"})
    assert heard.status == 409
    assert "for another request" in heard.text


def test_where_the_act_cannot_be_put_on_record_nothing_is_done(own: Served) -> None:
    run = one(own, status="interrupted")
    (own.site.place.local.folder / "pressed").touch()
    said = problem(own.post(f"/api/runs/{run}/acts/cancel", {}, Idempotency_Key="1"), 503)
    assert "nothing was done" in said
    assert press(own, run, "cancel", fields_of(own.ask(f"/runs/{run}/do/cancel").text)).status == 503
    assert rows(own, q=run)[0]["status"] == "interrupted"


def test_looking_leaves_nothing_in_the_store_and_a_refusal_neither(own: Served) -> None:
    run = next(row["run"] for row in rows(own, status="done") if not row["parent"])
    own.ask(f"/runs/{run}/do/pause")
    assert not (own.site.place.local.folder / "pressed").exists()
    problem(own.post(f"/api/runs/{run}/acts/pause", {}, Idempotency_Key="1"), 409)
    assert list((own.site.place.local.folder / "pressed").iterdir()) == []


def test_what_cannot_be_done_is_409_with_a_hint(own: Served) -> None:
    run = next(row["run"] for row in rows(own, status="done") if not row["parent"])
    heard = own.post(f"/api/runs/{run}/acts/pause", {})
    problem(heard, 409)
    assert heard.json["hint"]


@pytest.mark.parametrize("body", ["", "[]", "null", "{", '{"nonsense":1}', '{"beat":"1"}', '{"beat":1.5}', '{"finding":"perhaps"}', '{"amounts":"\\ud800"}', "[" * 60_000, '{"a":' * 10_000])  # fmt: skip
def test_a_document_that_is_none_is_refused(web: Served, body: str) -> None:
    path = f"/api/runs/{one(web, status='interrupted')}/acts/pause"
    problem(web.ask(path, method="POST", body=body, Content_Type="application/json"), 400)


def test_a_document_is_said_to_be_one(web: Served) -> None:
    path = f"/api/runs/{one(web, status='interrupted')}/acts/pause"
    for kind in ("text/plain", FORM, "multipart/form-data", ""):
        problem(web.ask(path, method="POST", body="{}", Content_Type=kind), 415)


def test_read_only_shows_all_and_does_nothing(root: Path) -> None:
    with ui(root, read_only=True) as web:
        run = one(web, status="interrupted")
        assert web.ask(f"/runs/{run}").status == 200
        assert 'method="post"' not in web.ask(f"/runs/{run}").text
        assert 'method="post"' not in web.ask(f"/runs/{run}/do/pause").text
        problem(web.post(f"/api/runs/{run}/acts/pause", {}), 403)
        assert rows(web, q=run)[0]["status"] == "interrupted"


# -- with a token --------------------------------------------------------------------------------------------------------

TOKEN = "a-token-that-nobody-guesses"


def test_somebody_without_the_token_is_asked_for_it_and_led_on(root: Path) -> None:
    with ui(root, token=TOKEN) as web:
        asked = web.ask("/saves?cause=signal")
        assert asked.status == 401
        assert str(root) not in asked.text
        fields = {
            name: html.unescape(value)
            for name, value in re.findall(r'name="(csrf|next)" value="([^"]*)"', asked.text)
        }
        assert fields["next"] == "/saves?cause=signal"
        assert login(web, fields, "wrong").status == 401
        heard = login(web, fields, TOKEN)
        assert (heard.status, heard.headers["location"]) == (303, "/saves?cause=signal")
        cookie = heard.cookies[0].partition(";")[0]
        assert web.ask("/saves?cause=signal", Cookie=cookie).status == 200
        assert login(web, {"next": "/"}, TOKEN).status == 403
        for elsewhere in (
            "//evil.invalid",
            "https://evil.invalid",
            "/\\evil.invalid",
            "javascript:alert(1)",
            "/\t/evil",
        ):
            assert login(web, {**fields, "next": elsewhere}, TOKEN).headers["location"] == "/"


def test_nothing_that_is_open_without_the_token_tells_where_the_store_is(root: Path) -> None:
    with ui(root, token=TOKEN) as web:
        told = [
            web.ask("/login/x"),
            web.ask("/login", method="PUT", Content_Length="0"),
            login(web, {"csrf": "wrong"}, TOKEN),
            web.ask("/static/nothing"),
            web.ask("/login"),
            web.ask("/favicon.ico/x"),
        ]
        assert [heard.status for heard in told] == [401, 405, 403, 404, 200, 401]
        assert not [heard.text for heard in told if str(root) in heard.text]


def test_the_login_form_tells_nothing_that_other_forms_need_nor_does_another_session(
    own: Served, tmp_path: Path
) -> None:
    with ui(tmp_path / "store", token=TOKEN) as web:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        run = web.ask("/api/runs?status=interrupted&flat=1", **bearer).json["rows"][0]["run"]
        mine, other = ({"Cookie": web.ask(f"/?token={TOKEN}").cookies[0].partition(";")[0]} for _ in range(2))
        fields = fields_of(web.ask(f"/runs/{run}/do/cancel", **mine).text)
        before = re.search(r'name="csrf" value="([^"]*)"', web.ask("/login").text)
        assert before is not None
        assert press(web, run, "cancel", {**fields, "csrf": before[1]}, **mine).status == 403
        assert press(web, run, "cancel", fields, **other).status == 403
        assert login(web, {"csrf": fields["csrf"]}, TOKEN).status == 403
        assert press(web, run, "cancel", fields, **mine).status == 303


def test_who_acts_with_a_token_is_on_record(own: Served, tmp_path: Path) -> None:
    with ui(tmp_path / "store", token=TOKEN) as web:
        assert web.guard is not None
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        run = web.ask("/api/runs?status=interrupted&flat=1", **bearer).json["rows"][0]["run"]
        web.guard._uid = lambda connection: None  # type: ignore[method-assign]  # as from another machine
        done = web.post(f"/api/runs/{run}/acts/pause", {}, **bearer).json
        assert done["by"] == "tester via ui from 127.0.0.1"
        events = web.ask(f"/api/runs/{run}/journal", **bearer).json["events"]
        assert "tester via ui from 127.0.0.1" in json.dumps(events[0])


def login(web: Served, fields: dict[str, str], token: str) -> Heard:
    body = urlencode({**fields, "token": token})
    return web.ask("/login", method="POST", body=body, Content_Type=FORM)


def test_the_api_without_the_token_says_so_as_json(root: Path) -> None:
    with ui(root, token=TOKEN) as web:
        problem(web.ask("/api/runs"), 401)
        assert web.ask("/api/runs", Authorization=f"Bearer {TOKEN}").status == 200
        assert web.ask("/metrics", Authorization=f"Bearer {TOKEN}").status == 200


# -- without a store, and with a broken one --------------------------------------------------------------------------------


def test_before_the_first_run_it_says_so_and_then_shows_it(tmp_path: Path) -> None:
    with ui(tmp_path / "store") as web:
        for path in ("/", "/saves", "/api/runs", "/api/saves", "/metrics"):
            assert web.ask(path).status == 200
        assert "no store yet" in problem(web.ask("/api/runs/x"), 404)
        leads = f"outlast --store sqlite://{tmp_path}/store/outlast.db run"
        assert leads in web.ask("/api/runs/x").json["hint"]
        assert leads in re.sub(r"<[^>]*>", "", web.ask("/").text)
        assert web.ask("/charts").status == 404
        assert not (tmp_path / "store").exists()
        with Writer(tmp_path / "store") as writer:
            assert rows(web)[0]["run"] == writer.run
            assert web.ask(f"/runs/{writer.run}").status == 200


def test_a_store_that_is_removed_is_named_and_a_new_one_is_taken(tmp_path: Path) -> None:
    make_night(tmp_path / "store")
    with ui(tmp_path / "store") as web:
        assert len(rows(web)) > 30
        shutil.move(tmp_path / "store", tmp_path / "elsewhere")
        heard = web.ask("/")
        assert heard.status == 503
        assert "deleted or replaced" in heard.text
        assert "deleted or replaced" in problem(web.ask("/api/runs"), 503)
        with Writer(tmp_path / "store") as writer:
            assert [row["run"] for row in rows(web)] == [writer.run]


def test_a_store_that_is_damaged_is_named_with_what_helps(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    (tmp_path / "store" / "outlast.db").write_bytes(b"no database at all" * 1000)
    with ui(tmp_path / "store") as web:
        heard = web.ask("/")
        assert heard.status == 503
        assert "is not an SQLite file" in heard.text
        heard = web.ask("/api/runs")
        assert "is not an SQLite file" in problem(heard, 503)
        assert heard.json["hint"] in web.ask("/").text


def test_what_is_unexpected_is_one_line_for_the_client_and_a_trace_for_us(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret of ours")

    heard: list[Heard] = []
    with pytest.raises(ZeroDivisionError), ui(root) as web:
        run = one(web)
        monkeypatch.setattr(api.pages, "budget", broken)
        heard += [web.ask(f"/runs/{run}/budget"), web.ask(f"/api/runs/{run}/budget")]
    assert [each.status for each in heard] == [500, 500]
    for each in heard:
        assert "a secret of ours" not in each.text
        assert "Traceback" not in each.text


# -- sharing -------------------------------------------------------------------------------------------------------------


def test_what_many_ask_for_at_once_is_made_once() -> None:
    shared, made, go = AnswerCache(), [], threading.Event()

    def make() -> Answer:
        made.append(1)
        go.wait(60)
        return responses.line("made")

    found: list[Answer] = []
    threads = [threading.Thread(target=lambda: found.append(shared.get("key", make))) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_for(lambda: made)
    go.set()
    for thread in threads:
        thread.join(60)
    assert len(made) == 1
    assert len(found) == 20


def test_little_is_kept_and_nothing_old() -> None:
    shared = AnswerCache()
    for n in range(40):
        shared.get(n, lambda: Answer(b"x" * (1 << 20)))
    held = [making.answer.body for making in shared._answers.values() if making.answer is not None]
    assert 0 < sum(map(len, held)) <= cache.ANSWERS_BYTES_MAX
    assert len(shared.get("huge", lambda: Answer(b"x" * (100 << 20))).body) == 100 << 20
    assert "huge" not in shared._answers
    for making in shared._answers.values():
        making.begun_s -= Timing().fresh_s + 1
    shared.get("new", lambda: responses.line("new"))
    assert list(shared._answers) == ["new"]


def test_what_went_wrong_is_not_kept() -> None:
    shared = AnswerCache()
    with pytest.raises(ZeroDivisionError):
        shared.get("key", lambda: responses.line(str(1 // 0)))
    assert shared.get("key", lambda: responses.line("made")).body == b"made\n"


def test_who_knows_of_an_event_shares_what_was_made_after_it() -> None:
    shared = AnswerCache()

    def get(text: str, number: int, wanted: int) -> bytes:
        return shared.get("key", lambda: responses.line(text), number=number, wanted=wanted).body

    assert get("as of 5", 5, 5) == b"as of 5\n"
    assert get("as of 9", 9, 4) == b"as of 5\n", "the event that it was woken by is in it"
    assert get("as of 9", 9, 6) == b"as of 9\n"
    assert get("as of 9 again", 9, 70) == b"as of 9\n", "more than there is cannot be asked for"
    assert get("as of 10", 10, 10) == b"as of 10\n"


def test_a_page_is_never_older_than_the_newest_event(tmp_path: Path) -> None:
    with Writer(tmp_path / "store") as writer, ui(tmp_path / "store") as web:
        for _ in range(20):
            writer.write(1)
            events = web.ask(f"/api/runs/{writer.run}/journal").json["events"]
            assert len(events) == web.ask(f"/api/runs/{writer.run}/journal").json["total"]
            newest = events[0]["seq"]
            assert newest == writer.seq
