"""Documents of a run made up for its pages, and what every page must be, whatever it shows."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec

from outlast.core import budget as budgets
from outlast.dashboard import documents
from outlast.inspect import ledger, ledger_sums, show
from outlast.web.html.layout import View

NOW = datetime(2026, 11, 16, 3, 20, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
SPENT = show.Spent(1_200, 1_000, 200, 0, 0, 40_000, False, 3, 60_000)
NULL = msgspec.Raw(b"null")
VOID = {"meta", "link", "input", "br", "hr", "img", "col"}


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def view(path: str = "/runs/r1", *, read_only: bool = False, **query: str) -> View:
    return View(
        path=path, query=query, now=NOW, zone=BERLIN, zone_name="Europe/Berlin", csrf="c", read_only=read_only,
        number=7, store_name="store", version="0",
    )  # fmt: skip


def row(**changes: Any) -> documents.Row:
    base = documents.Row(
        run="r1", task="1411", project="/srv/code/shop/.git", project_name="shop", generation=1, parent="", root="r1",
        what="stopped", status="interrupted", cause="signal", why="signal: SIGTERM from ada", command="outlast resume r1",
        act="resume", goal="Trap exit signals", agent="claude", model="opus", stage="", step="", beats=3, plan_total=8,
        attempts=1, in_doubt=0, spent=SPENT, meters=(), last_save="9c1e4d2aa", lives=False, active_at=ago(5), quiet="",
        quiet_s=0, parked_until=None, created_at=ago(60), updated_at=ago(5), children=0,
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def shown(**changes: Any) -> show.Shown:
    base = show.Shown(
        run="r1", task="1411", project="/srv/code/shop/.git", generation=1, status="interrupted", cause="signal",
        evidence="SIGTERM from ada", goal="Trap exit signals", checks=("pytest -q",), invariants=(), plan=None,
        plan_total=None, cursor=(), beats=3, completed=(), effects=(), memory=(),
        budget=show.Budget(spent=SPENT, left=budgets.Left()), saves=(), session=None, attempts=(), children=(),
        parent=None, fork=None, workspace="/srv/code/shop", holder=None, stage="", parked_until=None,
        created_at=ago(60), updated_at=ago(5),
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def attempt(
    start: float, end: float | None, cause: str | None = None, evidence: str = "", **more: Any
) -> show.AttemptShown:
    ended = None if end is None else ago(end)
    return show.AttemptShown(epoch=1, host="owl", pid=7, started_at=ago(start), ended_at=ended, cause=cause, evidence=evidence, **more)  # fmt: skip


def moment(minutes: float, kind: Any, text: str = "", seq: int = 1, **more: Any) -> documents.Moment:
    return documents.Moment(at=ago(minutes), seq=seq, kind=kind, text=text, **more)


def timeline(**changes: Any) -> documents.Timeline:
    base = documents.Timeline(
        since=ago(60), until=ago(5), beats=tuple(documents.Progress(at=ago(55 - 10 * n), beat=n) for n in (1, 2, 3)),
        attempts=(attempt(60, 5, "signal", "SIGTERM from ada"),), attempts_total=1, moments=(), moments_total=0,
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def page(**changes: Any) -> documents.RunPage:
    base = documents.RunPage(row=row(), shown=shown(), timeline=timeline(), waits="", agent_line="")
    return msgspec.structs.replace(base, **changes)


def effect(**changes: Any) -> show.Effect:
    base = show.Effect(
        id="4.1", key="payout-3", name="pay", state="in_doubt", policy="ask", args=raw([[3], {"eur": 480}]), result=NULL,
        evidence="TimeoutError: no answer", intended_at=ago(20), settled_by="", attempts=1, beat=4,
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def books(**changes: Any) -> ledger.Ledger:
    points = tuple(ledger.Point(ago(60 - n), 1_000 * n, 100_000) for n in range(1, 56))
    unit = ledger.Unit(
        unit="tokens", limit=100_000, spent=55_000, left=45_000, reserved=500, ending_reserve=10_000, used_pct=55.0, wraps_up=False,
        per_hour=60_000, per_hour_now=55_000, forecast=140_000, lasts_s=2_700,
    )  # fmt: skip
    base = ledger.Ledger(
        run="r1", task="1411", project="p", status="interrupted", cause="signal", evidence="", goal="", beats=3,
        plan_total=8, attempts=1, budget=None, units=(unit,), spent=SPENT, reserved=None, window=None, expected=None,
        warnings=(ledger_sums.Notice(ago(20), 2, "budget 50", "half of it is spent"), ledger_sums.Notice(ago(10), 3, "wrap-up tokens", "come to an end")),
        changes=(ledger_sums.Notice(ago(60), 0, "limit", "50k tokens"), ledger_sums.Notice(ago(30), 1, "limit", "100k tokens by ada")),
        saves=(ledger_sums.Saved(ago(5), 3, "emergency", "9c1e4d2aa", "signal: SIGTERM"),), saves_total=1,
        by_attempt=(ledger_sums.AttemptCost(attempt=1, started_at=ago(60), ended_at=ago(5), cause="signal", evidence="SIGTERM from ada", beats=3, spent=SPENT),),
        by_tool=(ledger_sums.ToolRow("Bash", "call", 4, 900, 30_000, True),),
        by_beat=(ledger_sums.BeatRow(3, "write tests", ago(25), 2, SPENT),),
        chart=ledger.Chart(unit="tokens", warn_at=(50, 90), points=points), more="",
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


class Read(HTMLParser):
    """A page as a strict reader takes it in: every element is closed, and what is asked of it is kept."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.headings: list[int] = []
        self.problems: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        self.problems += [f"<{name}> is not closed" for name in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        if identity := given.get("id"):
            self.ids[identity] += 1
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        self.problems += [f"<{tag} {name}>" for name in given if name == "style" or name.startswith("on")]
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag == "th" and given.get("scope") not in ("row", "col", "rowgroup"):
            self.problems.append("<th> without a scope")
        if tag == "svg" and "svg" not in self.open[:-1]:
            seen = given.get("role") == "img" or given.get("aria-hidden") == "true"
            self.problems += [] if seen else ["<svg> that is neither named nor hidden"]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


def checked(page: str) -> Read:
    """The page, which keeps all rules: closed, ids once each, headings in order, no script or style of its own, no way out."""
    read = Read(page)
    assert read.problems == []
    assert [name for name, count in read.ids.items() if count > 1] == []
    assert read.headings[0] == 1
    assert read.headings.count(1) == 1
    steps = list(zip(read.headings, read.headings[1:], strict=False))
    assert all(after <= before + 1 for before, after in steps), read.headings
    assert read.tags["script"] == 2
    assert not read.tags.keys() & {"style", "iframe", "object", "img"}
    for link in read.links:
        parts = urlsplit(link)
        assert (parts.scheme, parts.netloc) == ("", ""), link
        assert link[:1] in ("/", "?", "#"), link
    return read
