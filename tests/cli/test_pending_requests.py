"""What was asked of a run and not taken in yet is shown wherever the run is: `show`, `ls`, `report`, `top`, the page, the API."""

import contextlib
from typing import Any

import msgspec
import pytest

import outlast
from outlast.core import events as ev
from outlast.dashboard.documents import Ask
from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import pages
from outlast.operations import requests
from outlast.store import open_store
from outlast.web.pages import overview, run as run_page
from tests.cli.command_line import Cli
from tests.web.sample_documents import view

KEY = "sk-ant-" + "api03-" + "Zq7" * 12
ASKED: dict[str, tuple[tuple[str, ...], str]] = {
    "pause": (("pause", "t"), "asked to pause by "),
    "cancel": (("cancel", "t"), "asked to cancel by "),
    "kill": (("kill", "t"), "asked to kill by "),
    "handoff": (("handoff", "t"), "asked to handoff by "),
    "more": (("budget", "t", "--add", "100k"), "more budget, 100,000 tokens on top"),
    "settle": (("settle", "t", "1.1", "--happened", "--result", f'"{KEY}"'), "effect 1.1 happened"),
}


def json_of(cli: Cli) -> dict[str, Any]:
    """The run as each command has it as JSON."""
    return {
        "ls": cli.forked("ls", "--json").json[0],
        "show": cli.forked("show", "t", "--json").json,
        "report": cli.forked("report", "--json").json["runs"][0],
        "top": cli.forked("top", "--once", "--json").json["rows"][0],
    }


def texts_of(cli: Cli) -> dict[str, str]:
    """The run as each command prints it, and as the page has it."""
    store = open_store(cli.root)
    try:
        index = Index(store)
        [row] = index.rows()
        page = run_page.render(view(), pages.page(store, index, row.run))
        told = {"page": str(page), "overview": str(overview.render(view("/"), Ask(), index.overview(Ask())))}
    finally:
        store.close()
    printed = {"ls": ("ls",), "show": ("show", "t"), "report": ("report",), "top": ("top", "--once")}
    told |= {name: cli.forked(*words).out for name, words in printed.items()}
    return {name: " ".join(text.split()) for name, text in told.items()}


@pytest.mark.parametrize("what", ASKED)
def test_what_was_asked_of_a_run_at_work_is_shown_everywhere_until_it_is_taken_in(
    cli: Cli, what: str
) -> None:
    words, says = ASKED[what]
    before, asked, texts, rows = None, None, {}, {}
    with contextlib.suppress(outlast.OutlastError), outlast.run("t", budget="9k") as run:
        for beat in run.beats():
            if beat.number > 1:
                break
            if what == "settle":
                with contextlib.suppress(outlast.EffectInDoubt):
                    beat.act("push", _lost)
            before = cli.forked("show", "t", "--json").json["pending"]
            asked = cli.forked(*words)
            texts, rows = texts_of(cli), json_of(cli)
            beat.done()
    assert before == []
    assert asked is not None
    assert asked.code == (1 if what == "kill" else 0), asked.err
    for name, text in texts.items():
        assert says.casefold() in text.casefold(), name
        assert KEY not in text, name
    for name, row in rows.items():
        [pending] = row["pending"]
        assert pending["what"] == what, name
        assert KEY not in pending["says"], name
    with contextlib.suppress(outlast.OutlastError), outlast.run("t", budget="9k") as run:
        next(iter(run.beats()))  # of those that could not end their beat, the next start takes it in
    for name, row in json_of(cli).items():
        assert row["pending"] == [], f"{name}: it was taken in"


def _lost() -> None:
    raise TimeoutError("no answer")


def test_what_was_asked_of_a_run_that_died_waits_for_its_next_start(cli: Cli) -> None:
    with pytest.raises(KeyError), outlast.run("t") as run:
        raise KeyError("it died")
    store = open_store(cli.root)
    store.inbox.put(run.id, by="anna", what="pause")
    store.close()
    for name, text in texts_of(cli).items():
        assert "asked to pause by anna" in text.casefold(), name
    assert "its next start takes it in" in cli.forked("show", "t").out


def test_a_budget_that_an_agent_asks_a_person_for_is_shown_everywhere(cli: Cli) -> None:
    with outlast.run("t", budget="9k") as run:
        pass
    store = open_store(cli.root)
    requests.note(store, run.id, ev.ASKS, msgspec.json.encode("--add 100k"), by="the run itself")
    store.close()
    for name, text in texts_of(cli).items():
        assert "more budget" in text or "asks for budget" in text, name
    for name, row in json_of(cli).items():
        assert row["asks"] == "--add 100k", name


def test_a_request_that_cannot_be_read_hides_no_other(cli: Cli) -> None:
    with pytest.raises(KeyError), outlast.run("t") as run:
        raise KeyError("it died")
    store = open_store(cli.root)
    for what, args in (("settle", b"[1]"), ("telepathy", b'{"to": "anna"}'), ("pause", b"null")):
        store.inbox.put(run.id, by="anna", what=what, args=args)
    store._db.write(lambda connection: connection.execute("UPDATE requests SET at = 'soon' WHERE id = 1"))  # type: ignore[attr-defined]
    store.close()
    top = cli.forked("top", "--once", "--json").json["rows"][0]
    assert [each["what"] for each in top["pending"]] == ["telepathy", "pause"]
    assert "telepathy" in cli.forked("ls").out
