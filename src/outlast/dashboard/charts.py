"""Spending and work of the last weeks, counted in the background and then kept up to date."""

import contextlib
import threading
import time
from collections import Counter as Sums
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from outlast.core import events as ev
from outlast.core.values import Usage
from outlast.dashboard import documents
from outlast.dashboard.documents import Row
from outlast.dashboard.overview.index import Index
from outlast.dashboard.saves import emergencies
from outlast.dashboard.timing import Timing
from outlast.errors import OutlastError, StoreTooNew, UnknownRun
from outlast.store.protocol import RecordedEvent, Store, decoded

DAYS_MAX = 31
HOURS = 48
NAMES_MAX = 8
OTHERS, NONE = "others", "(none)"
PIECE_S = 900  # the smallest step that every zone's hours and days are made of
PAGE_EVENTS = 1_000
CELLS_MAX = 300_000
REST_SHARE = 20  # charts are made for a twentieth of the time at most
ZONES_MAX = 8
_GRAINS: tuple[documents.Grain, ...] = ("agent", "model", "project")


class _Cell:
    """The work and cost of one run in one piece of time."""

    __slots__ = ("beats", "cost", "tokens")

    def __init__(self) -> None:
        self.tokens = self.cost = self.beats = 0

    def add(self, tokens: int, cost: int, beats: int) -> None:
        self.tokens += tokens
        self.cost += cost
        self.beats += beats


class Counter:
    """Counts while it is started. `charts` may be asked from any thread, also before all is counted.

    It reads a run's journal from its end until events are too old, in small pages with rests between them, because requests and
    writers come first. The sum of a parent's beat has a child's spending too, and it is taken off there: nothing counts twice.
    """

    def __init__(
        self,
        store: Store,
        index: Index,
        clock: Callable[[], datetime] | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._store, self._index = store, index
        self._clock = clock or _now
        self._lock = threading.Lock()  # of the sums
        self._following = threading.Lock()  # one who takes in news
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._cells: dict[int, dict[str, _Cell]] = {}
        self._count = 0
        self._owed: dict[tuple[str, int], tuple[int, int]] = {}
        self._number = -1
        self._done = self._total = 0
        self._is_counted = False
        self._one_at_a_time = threading.Lock()
        self._made: dict[tuple[str, int], tuple[documents.Charts, float]] = {}

    def start(self) -> None:
        """Begin to count in the background."""
        assert self._thread is None, "it is started once"
        self._thread = threading.Thread(target=self._work, name="outlast-counting", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; it is gone when this returns."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._timing.count_stop_s)

    # -- counting ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(
                OutlastError
            ):  # the store is busy; the past is begun anew, the rest goes on
                if self._is_counted:
                    self._catch_up()
                else:
                    self._count_past()
            self._stop.wait(self._timing.count_follow_s)

    def _count_past(self) -> None:
        with self._lock:
            self._cells, self._count, self._owed, self._done = {}, 0, {}, 0
        emergencies.book(self._store).rescues()  # first, so that whoever looks at them does not wait for it
        self._number = self._store.last_number()
        self._index.refresh()
        since = self._clock() - timedelta(days=DAYS_MAX + 1)
        young = (row for row in self._index.rows() if row.updated_at and row.updated_at >= since)
        runs = _children_first(young)
        self._total = len(runs)
        began_s = time.monotonic()
        for row in runs:
            for page in self._readable(row.run, since):
                self._take(item for item in page if item.n <= self._number)
                worked_s = time.monotonic() - began_s
                if worked_s >= self._timing.count_work_s:
                    if self._stop.wait(worked_s):
                        return
                    began_s = time.monotonic()
            self._done += 1
        self._is_counted = True

    def _readable(self, run: str, since: datetime) -> Iterator[list[RecordedEvent]]:
        """The same as far as it can be read: a run that a newer version wrote does not stop the count of the others."""
        with contextlib.suppress(StoreTooNew):
            yield from self._backwards(run, since)

    def _backwards(self, run: str, since: datetime) -> Iterator[list[RecordedEvent]]:
        """The events of a run from its end, as far as they are young enough."""
        before = 0
        while page := self._store.read(run, after=0, before=before, limit=PAGE_EVENTS, newest=True).events:
            yield page
            before = page[0].seq
            if before == 1 or page[0].event.at < since:
                return

    def _catch_up(self) -> None:
        """Take in what was committed since."""
        if not self._is_counted:
            return
        with self._following:
            if self._store.last_number() < self._number:  # it was put back to an earlier state
                self._is_counted = False
                return
            while found := self._store.glimpses(self._number, wait_s=0, limit=PAGE_EVENTS):
                self._index.refresh()
                self._take(decoded(found))
                self._number = found[-1].n
                if len(found) < PAGE_EVENTS or self._stop.is_set():
                    return

    def _take(self, events: Iterable[RecordedEvent]) -> None:
        oldest = int((self._clock() - timedelta(days=DAYS_MAX + 1)).timestamp()) // PIECE_S
        with self._lock:
            for item in events:
                self._take_one(item)
            for piece in [piece for piece in self._cells if piece < oldest]:
                self._count -= len(self._cells.pop(piece))
            if self._count > CELLS_MAX:
                self._merge_oldest()

    def _take_one(self, item: RecordedEvent) -> None:
        event = item.event
        usage, is_end = _spent(event), isinstance(event, ev.BeatDone)
        if usage is None and not is_end:
            return
        try:
            summary = self._index.summary(item.run)
        except UnknownRun:
            return  # forgotten meanwhile
        opened_at = summary.state.created_at
        if opened_at is not None and event.at < opened_at:
            return  # a fork's copy of what its source spent
        tokens, cost = (usage.tokens, usage.cost_microusd) if usage is not None else (0, 0)
        if summary.parent:
            place = summary.parent, summary.parent_beat
            before = self._owed.get(place, (0, 0))
            self._owed[place] = before[0] + tokens, before[1] + cost
        if isinstance(event, ev.BeatDone):
            below = self._owed.pop((item.run, event.beat), (0, 0))
            tokens, cost = max(0, tokens - below[0]), max(0, cost - below[1])
        pieces = self._cells.setdefault(int(event.at.timestamp()) // PIECE_S, {})
        if item.run not in pieces:
            pieces[item.run] = _Cell()
            self._count += 1
        pieces[item.run].add(tokens, cost, int(is_end))

    def _merge_oldest(self) -> None:
        """Too many runs to tell them all apart: the oldest become one that has no name."""
        for piece in sorted(self._cells):
            if self._count <= CELLS_MAX * 3 // 4:
                return
            whole = _Cell()
            for cell in self._cells[piece].values():
                whole.add(cell.tokens, cell.cost, cell.beats)
            self._count -= len(self._cells[piece]) - 1
            self._cells[piece] = {"": whole}

    # -- charts --------------------------------------------------------------------------------------------------

    def charts(self, zone: str, days: int = 14) -> documents.Charts:
        """The last days of a zone; one that is not known is UTC. As of now, or of a moment ago where that took long."""
        with self._one_at_a_time:
            made = self._made.get((zone, days))
            if made is None or time.monotonic() >= made[1]:
                began_s = time.monotonic()
                charts, now_s = self._charts(zone, days), time.monotonic()
                rest_s = max(self._timing.chart_rest_s, REST_SHARE * (now_s - began_s))
                made = charts, now_s + rest_s
                self._made = {(zone, days): made, **dict(list(self._made.items())[: ZONES_MAX - 1])}
            return made[0]

    def _charts(self, zone: str, days: int) -> documents.Charts:
        with contextlib.suppress(OutlastError):
            self._catch_up()
        self._index.refresh()
        named, now = _zone(zone), self._clock()
        last = now.astimezone(named).date()
        shown = [last - timedelta(days=back) for back in reversed(range(max(1, min(days, DAYS_MAX))))]
        hours = _last_hours(now, named)
        spent, beats = self._summed(named, set(shown))
        return documents.Charts(
            at=now,
            zone=getattr(named, "key", "UTC"),
            counted_pct=100 if self._is_counted else 99 * self._done // max(1, self._total),
            days=tuple(day.isoformat() for day in shown),
            spending=tuple(self._spending(grain, shown, spent) for grain in _GRAINS),
            saves_by_cause=self._saves(shown, named),
            hours=tuple(f"{hour.astimezone(named):%Y-%m-%dT%H:%M}" for hour in hours),
            beats_per_hour=tuple(
                sum(beats[int(hour.timestamp()) // PIECE_S + part] for part in range(3600 // PIECE_S)) for hour in hours
            ),
        )  # fmt: skip

    def _summed(
        self, zone: tzinfo, days: set[date]
    ) -> tuple[dict[str, dict[date, tuple[int, int]]], Sums[int]]:
        """Tokens and money by run and day; beats by piece of time."""
        spent: dict[str, dict[date, tuple[int, int]]] = {}
        beats: Sums[int] = Sums()
        with self._lock:
            for piece, cells in self._cells.items():
                day = datetime.fromtimestamp(piece * PIECE_S, zone).date()
                for run, cell in cells.items():
                    beats[piece] += cell.beats
                    if day in days:
                        by_day = spent.setdefault(run, {})
                        tokens, cost = by_day.get(day, (0, 0))
                        by_day[day] = tokens + cell.tokens, cost + cell.cost
        return spent, beats

    def _spending(
        self, grain: documents.Grain, days: list[date], spent: dict[str, dict[date, tuple[int, int]]]
    ) -> documents.Spending:
        rows = {row.run: row for row in self._index.rows()}
        tokens: dict[str, Sums[date]] = {}
        cost: dict[str, Sums[date]] = {}
        for run, by_day in spent.items():
            name = _name(rows, run, grain)
            for day, (its_tokens, its_cost) in by_day.items():
                tokens.setdefault(name, Sums())[day] += its_tokens
                cost.setdefault(name, Sums())[day] += its_cost
        return documents.Spending(by=grain, tokens=_series(tokens, days), cost_microusd=_series(cost, days))

    def _saves(self, days: list[date], zone: tzinfo) -> tuple[documents.Series, ...]:
        found: dict[str, Sums[date]] = {}
        every = list(emergencies.known(self._store, self._index))
        counted = [(rescue.made.at, rescue.cause) for rescue, _ in every]
        counted += [
            (each.at, each.cause) for each in emergencies.unrecorded_of(self._store, self._index, every)
        ]
        for at, cause in counted:
            day = at.astimezone(zone).date()
            if day in days:
                found.setdefault(cause or emergencies.NOT_KNOWN, Sums())[day] += 1
        return _series(found, days)


def _spent(event: ev.AnyEvent) -> Usage | None:
    """The spending in an event, as the head sums it up."""
    match event:
        case ev.BeatDone() | ev.AttemptEnded():
            return event.spent
        case ev.SpendSettled(source=ev.INSIDE):
            return None  # the run inside tells it too
        case ev.Decided() | ev.SpendSettled():
            return event.usage
        case _:
            return None


def _children_first(rows: Iterable[Row]) -> list[Row]:
    """Runs that were at work lately first, but each after those below it: its beats tell what they spent, too."""
    every = {row.run: row for row in rows}

    def depth(row: Row) -> int:
        above, count = row.parent, 0
        while above in every and count < len(every):
            above, count = every[above].parent, count + 1
        return count

    return sorted(every.values(), key=lambda row: (-depth(row), -(row.updated_at or _now()).timestamp()))


def _name(rows: dict[str, Row], run: str, grain: documents.Grain) -> str:
    """The name that a run counts under; a child without an agent of its own works for its root's."""
    row = rows.get(run)
    if row is None:
        return OTHERS
    root = rows.get(row.root, row)
    match grain:
        case "agent":
            return row.agent or root.agent or NONE
        case "model":
            return row.model or root.model or NONE
        case "project":
            return row.project_name or NONE


def _series(found: dict[str, Sums[date]], days: list[date]) -> tuple[documents.Series, ...]:
    """The largest by name and the rest together, without those that are 0."""
    totals = {name: sum(by_day.values()) for name, by_day in found.items()}
    named = sorted(
        (name for name in totals if totals[name] and name != OTHERS), key=lambda name: (-totals[name], name)
    )
    shown = named if len(named) <= NAMES_MAX else named[:NAMES_MAX]
    rest = [name for name in totals if totals[name] and name not in shown]
    series = [documents.Series(name=name, values=tuple(found[name][day] for day in days)) for name in shown]
    if rest:
        values = tuple(sum(found[name][day] for name in rest) for day in days)
        series.append(documents.Series(name=OTHERS, values=values))
    return tuple(series)


def _last_hours(now: datetime, zone: tzinfo) -> list[datetime]:
    """The hours of a zone up to this one, as they passed."""
    local = now.astimezone(zone)
    this = (
        local - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
    ).astimezone(UTC)
    return [this - timedelta(hours=back) for back in reversed(range(HOURS))]


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return UTC


def _now() -> datetime:
    return datetime.now(UTC)
