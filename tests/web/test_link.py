"""A link of a notice: GET shows, a press acts, once, for this one act, until it expires; it lets nobody in anywhere else."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

from outlast.core import events as ev
from outlast.notifications import channel_health
from outlast.notifications.links import Links
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.web.http import peers
from tests.dashboard.pen import Pen, ended, intended, started
from tests.support.processes import wait_for
from tests.web.server import Heard, Served, ui

TOKEN = "a-token-that-nobody-guesses"
FORM = "application/x-www-form-urlencoded"


class LinkedPage:
    """A page that asks for a token, a run in doubt, and links about it."""

    def __init__(self, served: Served, store: Store, run: str) -> None:
        self.served, self.store, self.run = served, store, run

    def link(self, act: str, subject: str, lasts: timedelta = timedelta(hours=1)) -> str:
        now = datetime.now(UTC)
        return f"/press/{Links(self.store.local).token(act, self.run, subject, now, now + lasts)}"

    def press(self, link: str, seen: Heard | None = None, **fields: str) -> Heard:
        """Press a button of the page as a browser does."""
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', (seen or self.served.ask(link)).text)
        body = urlencode({"csrf": found[1] if found else "", **fields})
        return self.served.ask(link.partition("?")[0], method="POST", body=body, Content_Type=FORM)

    def settled(self) -> list[str]:
        events = [item.event for item in self.store.read(self.run, after=0).events]
        return [
            f"{event.beat}.{event.n} {event.finding}"
            for event in events
            if isinstance(event, ev.EffectSettled)
        ]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[LinkedPage]:
    root = tmp_path / "store"
    store = open_store(root)
    doubt = [intended(n=1), ev.EffectInDoubt(at=intended().at, beat=1, n=1, evidence="killed"), intended(n=2)]
    doubt += [ev.EffectInDoubt(at=intended().at, beat=1, n=2, evidence="killed")]
    run = Pen(store).open(
        "1411", started(), ev.BeatBegun(at=intended().at, beat=1), *doubt, ended("in_doubt", "crash")
    )
    try:
        with ui(root, token=TOKEN) as served:
            yield LinkedPage(served, store, run)
    finally:
        store.close()


def test_looking_does_nothing_however_often(page: LinkedPage) -> None:
    link = page.link("settle", "1.1")
    for method in ("GET", "HEAD", "GET"):
        assert page.served.ask(link, method=method).status == 200
    assert page.served.ask(f"{link}?finding=happened&csrf=x").status == 200
    assert page.settled() == []
    assert list(page.store.inbox.pending(page.run)) == []


def test_a_press_acts_and_the_second_one_does_not(page: LinkedPage) -> None:
    link = page.link("settle", "1.1")
    seen = page.served.ask(link)
    assert "It did not happen" in seen.text
    first = page.press(link, seen, finding="happened")
    assert (first.status, first.headers["location"]) == (303, link)
    assert page.settled() == ["1.1 happened"]
    assert "<h1>" in page.served.ask(link).text
    assert "Done" in page.served.ask(link).text
    page.press(link, seen, finding="did_not")
    assert page.settled() == ["1.1 happened"]
    assert 'name="csrf"' not in page.served.ask(link).text


def test_of_many_presses_at_once_one_counts(page: LinkedPage) -> None:
    """The same link from several phones, and a second link about the same effect beside it."""
    links = [page.link("settle", "1.1"), page.link("settle", "1.1")]
    seen = [page.served.ask(link) for link in links]
    start = threading.Barrier(8)

    def press(number: int) -> int:
        start.wait()
        which, finding = number % 2, ("happened", "did_not")[number // 2 % 2]
        return page.press(links[which], seen[which], finding=finding).status

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(press, range(8)))
    assert set(statuses) <= {303, 409}, statuses
    assert len(page.settled()) == 1


def test_a_token_is_good_for_its_own_effect_alone(page: LinkedPage) -> None:
    link = page.link("settle", "1.2")
    seen = page.served.ask(link)
    page.press(link, seen, finding="happened", effect="1.1", run="other", act="cancel")
    assert page.settled() == ["1.2 happened"]


def test_the_form_of_one_link_presses_no_other(page: LinkedPage) -> None:
    seen = page.served.ask(page.link("settle", "1.1"))
    assert page.press(page.link("settle", "1.2"), seen, finding="happened").status == 403
    assert page.press(page.link("settle", "1.2"), Heard(200, {}, b""), finding="happened").status == 403
    assert page.settled() == []


def test_an_expired_link_does_nothing_and_says_so(page: LinkedPage) -> None:
    link = page.link("settle", "1.1", lasts=timedelta(seconds=-1))
    assert page.served.ask(link).status == 410
    assert "expired" in page.served.ask(link).text
    assert page.press(link, finding="happened").status == 410
    assert page.settled() == []


def test_a_link_that_is_none_learns_nothing(page: LinkedPage) -> None:
    link = page.link("settle", "1.1")
    for wrong in ("/press/x", link[:-3] + "AAA", "/press/" + "A" * 700):
        heard = page.served.ask(wrong)
        assert heard.status == 404
        assert page.run not in heard.text
        assert "1411" not in heard.text


def test_a_link_is_no_login(page: LinkedPage) -> None:
    heard = page.served.ask(page.link("settle", "1.1"))
    assert heard.cookies == []
    token = page.link("settle", "1.1").rpartition("/")[2]
    assert page.served.ask("/").status == 401
    assert page.served.ask(f"/?token={token}").status == 401
    assert page.served.ask("/api/runs", Authorization=f"Bearer {token}").status == 401
    assert page.served.ask(f"/press/{token}/more").status == 401
    assert page.served.ask("/press").status == 401


def test_another_site_cannot_press(page: LinkedPage) -> None:
    link = page.link("settle", "1.1")
    csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', page.served.ask(link).text)
    assert csrf is not None
    body = urlencode({"csrf": csrf[1], "finding": "happened"})
    heard = page.served.ask(link, method="POST", body=body, Content_Type=FORM, Origin="https://evil.example")
    assert heard.status == 403
    assert page.settled() == []


def test_a_resume_is_for_the_attempt_that_had_ended(page: LinkedPage) -> None:
    """The run has had one attempt since another notice was sent: its link would start what nobody meant."""
    stale = page.link("resume", "0")
    assert "has gone on" in page.served.ask(stale).text
    assert 'name="csrf"' not in page.served.ask(stale).text
    current = page.link("resume", "1")
    assert "has gone on" not in page.served.ask(current).text


def test_the_outcome_stays_after_a_restart_of_the_page(page: LinkedPage) -> None:
    link = page.link("settle", "1.1")
    page.press(link, finding="happened")
    with ui(page.store.local.folder, token=TOKEN) as other:
        again = LinkedPage(other, page.store, page.run)
        assert "Done" in other.ask(link).text
        assert again.press(link, finding="did_not").status == 403
    assert page.settled() == ["1.1 happened"]


def test_a_dead_channel_is_said_on_the_page_until_it_works_again(page: LinkedPage) -> None:
    now = datetime.now(UTC)
    channel_health.failed(page.store.local, "ntfy", "ntfy.example refused it: HTTP 403", now)
    (dead,) = page.served.ask("/api/runs", Authorization=f"Bearer {TOKEN}").json["dead_channels"]
    assert (dead["channel"], dead["problem"]) == ("ntfy", "ntfy.example refused it: HTTP 403")
    shown = page.served.ask("/", Authorization=f"Bearer {TOKEN}").text
    assert "notify --test ntfy" in shown
    channel_health.sent(page.store.local, "ntfy", now)
    ask = lambda: page.served.ask("/api/runs", Authorization=f"Bearer {TOKEN}").json["dead_channels"]  # noqa: E731
    wait_for(lambda: not ask() or None, what="the next look")


# -- what waits for an answer ------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[LinkedPage]:
    """A run that waits for an approval and for an answer; nothing of ours would start it."""
    root = tmp_path / "asking"
    store = open_store(root)
    at = intended().at
    questions = [
        ev.QuestionAsked(
            at=at, id="a1", kind="approval", text="push: git push origin main", digest="d1", beat=1
        ),
        ev.QuestionAsked(
            at=at, id="q2", kind="question", text="Which API?", choices=("v1", "v2"), digest="d2", beat=1
        ),
    ]
    parked = ev.Parked(at=at, until=None, waits=("a1", "q2"))
    run = Pen(store).open(
        "1411", started(), ev.BeatBegun(at=at, beat=1), *questions, ended("interrupted", "person"), parked
    )
    try:
        with ui(root, token=TOKEN) as served:
            yield LinkedPage(served, store, run)
    finally:
        store.close()


def answers(page: LinkedPage) -> list[tuple[str, str, str]]:
    events = [item.event for item in page.store.read(page.run, after=0).events]
    return [
        (each.id, str(each.answer), each.text) for each in events if isinstance(each, ev.QuestionAnswered)
    ]


def test_approve_and_reject_stand_beside_each_other_and_one_of_them_counts(waiting: LinkedPage) -> None:
    approve, reject = waiting.link("approve", "a1"), waiting.link("reject", "a1")
    both = waiting.served.ask(f"{approve}?or={reject.rpartition('/')[2]}")
    assert both.text.count('name="csrf"') == 2
    assert "git push origin main" in both.text
    assert answers(waiting) == []
    waiting.press(reject, text="not on a Friday")
    assert answers(waiting) == [("a1", "rejected", "not on a Friday")]
    after = waiting.served.ask(f"{approve}?or={reject.rpartition('/')[2]}")
    assert "Done" in after.text
    waiting.press(approve, both)
    assert answers(waiting) == [("a1", "rejected", "not on a Friday")]


def test_an_answer_is_one_of_the_choices_and_of_its_own_question(waiting: LinkedPage) -> None:
    link = waiting.link("answer", "q2")
    seen = waiting.served.ask(link)
    assert seen.text.count('name="text"') == 2
    waiting.press(link, seen, text="v3")
    assert answers(waiting) == []
    waiting.press(link, seen, text="v2", question="a1", run="other")
    assert answers(waiting) == [("q2", "answered", "v2")]
    waiting.press(link, seen, text="v1")
    assert answers(waiting) == [("q2", "answered", "v2")]


def test_the_link_of_one_question_answers_no_other(waiting: LinkedPage) -> None:
    assert "is a question" in waiting.served.ask(waiting.link("approve", "q2")).text
    waiting.press(waiting.link("approve", "a9"))
    assert answers(waiting) == []


def test_the_api_approves_rejects_and_answers_too(waiting: LinkedPage) -> None:
    there, key = f"/api/runs/{waiting.run}/acts/", {"Authorization": f"Bearer {TOKEN}"}
    foreseen = waiting.served.ask(f"{there}answer?question=q2", **key).json
    assert (foreseen["takes"], foreseen["lacks"]) == (["text"], ["text"])
    assert "It takes one of: v1, v2." in foreseen["says"]
    done = waiting.served.post(f"{there}answer", {"question": "q2", "text": "v1"}, **key)
    assert done.json["ok"]
    assert answers(waiting) == [("q2", "answered", "v1")]


ASKS_FOR_IT = """
import sys, urllib.request
url, key, kind, body = sys.argv[1:]
request = urllib.request.Request(url, data=body.encode(), headers={"Authorization": "Bearer " + key, "Content-Type": kind})
try:
    urllib.request.urlopen(request).read()
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def from_inside(page: LinkedPage, path: str, body: str, kind: str) -> str:
    """What a process hears that carries the mark of a run."""
    url = f"http://127.0.0.1:{page.served.port}{path}"
    done = subprocess.run(
        [sys.executable, "-c", ASKS_FOR_IT, url, TOKEN, kind, body], env={**os.environ, "OUTLAST_ATTEMPT": "rinside.1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_what_runs_inside_of_a_run_reaches_no_act_but_stopping(waiting: LinkedPage) -> None:
    there = f"/api/runs/{waiting.run}/acts"
    for act in ("approve", "reject", "answer", "resume", "settle"):
        assert "403" in from_inside(waiting, f"{there}/{act}", "{}", "application/json")
    link = waiting.link("approve", "a1")
    csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', waiting.served.ask(link).text)
    assert csrf is not None
    heard = from_inside(waiting, link, urlencode({"csrf": csrf[1]}), FORM)
    assert "inside run rinside" in heard
    assert answers(waiting) == []
    assert "403" not in from_inside(waiting, f"{there}/pause", "{}", "application/json")


def test_who_ends_while_the_page_looks_at_it_is_refused(
    waiting: LinkedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was seen, and could not be looked at any more."""
    looks = iter([[1], []])
    monkeypatch.setattr(peers, "holders", lambda *_: next(looks))
    key = {"Authorization": f"Bearer {TOKEN}"}
    heard = waiting.served.post(f"/api/runs/{waiting.run}/acts/approve", {"question": "a1"}, **key)
    assert heard.status == 409
    assert answers(waiting) == []
