"""All runs of a store in memory: read once, then kept up to date by what was committed since."""

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from operator import attrgetter

import msgspec

from outlast.core import events as ev, verdict
from outlast.core.state import RunState
from outlast.dashboard.documents import Ask, DeadChannel, Overview, Row
from outlast.dashboard.overview import filters, log_times
from outlast.dashboard.overview.rows import Seen, is_over, make, may_wait, moves
from outlast.dashboard.run import request_words
from outlast.dashboard.timing import Timing
from outlast.errors import UnknownRun
from outlast.inspect.inbox import PendingRequest
from outlast.notifications import channel_health
from outlast.runs.inbox import STOPS
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor.control import service
from outlast.supervisor.guardian import lock

LOAD_PAGE = 1_000
_WARNINGS_MAX = 8  # in a row
_shown_parts = attrgetter(
    "what", "status", "cause", "why", "command", "quiet", "lives", "parked_until", "updated_at", "children", "stranded",
    "pending", "asks", "waits_for",
)  # fmt: skip


class _Known:
    """A run as it is known: its head, its row, and when something was last heard of it."""

    __slots__ = ("acted_at", "entry", "lives", "summary")

    def __init__(self, summary: Summary, acted_at: datetime | None) -> None:
        self.summary = summary
        self.acted_at = acted_at
        self.lives = False
        self.entry: filters.FilterRow | None = None


class Index:
    """The runs of a store. Safe to use from several threads; each answer is as of `number`, the newest event then.

    `version` grows with every change that a person would want to see, also a death or a silence, which no event tells;
    not with mere amounts that grow with the clock.

    A look at ten thousand runs costs the same few queries as one at ten: the number of the newest event and the runs that have new
    ones, what was asked of any run, the heads of those that changed, and the events behind a head that lags. Whether a holder
    lives is no query but a file lock: it is tried for runs under way only, once a second and when something of theirs changed.
    """

    def __init__(
        self, store: Store, clock: Callable[[], datetime] | None = None, timing: Timing | None = None
    ) -> None:
        self._timing = timing or Timing.current()
        self._look_s = self._timing.look_s
        self._has_service, self._service_looked_s = False, float("-inf")
        self._store = store
        self._clock = clock or _now
        self._lock = threading.RLock()
        self._known: dict[str, _Known] = {}
        self._below: dict[str, dict[str, None]] = {}  # a run's children, in the order of their beginning
        self._moving: set[str] = set()
        self._pending: dict[str, tuple[PendingRequest, ...]] = {}
        self._looked_s = float("-inf")
        self.version = 0
        self._trace = ""
        self.number = store.last_number()
        self._load()
        self._recompute(self._read_requests())
        self._look()

    # -- what is asked of it -----------------------------------------------------------------------------------------

    def overview(self, ask: Ask, within: str = "") -> Overview:
        """A page of the runs that fit, as of now; with `within`, as if there were no runs but those of this project."""
        with self._lock:
            self.refresh()
            entries = [known.entry for known in reversed(self._known.values()) if known.entry is not None]
            if within:
                entries = [entry for entry in entries if within in (entry.project, entry.row.project_name)]
            found = filters.overview(entries, ask, self._clock(), self.number)
            dead = tuple(
                DeadChannel(channel=each.channel, problem=each.problem, failed_at=each.failed_at)
                for each in channel_health.dead(self._store.local)
            )
            at_boot = self._at_boot(entries) if found.stranded else 0
            return msgspec.structs.replace(found, at_boot=at_boot, dead_channels=dead)

    def _at_boot(self, entries: Iterable[filters.FilterRow]) -> int:
        """How many of those that stopped the installed service restarts at the next boot."""
        if time.monotonic() - self._service_looked_s >= self._timing.service_s:
            self._has_service = service.restarts_at_boot(self._store.url)
            self._service_looked_s = time.monotonic()
        if not self._has_service:
            return 0
        stopped = [entry.row for entry in entries if entry.row.stranded]
        now, known = self._clock(), self._known
        return sum(
            verdict.of(known[row.run].summary.state, row.status, now, self._children).wakes for row in stopped
        )

    def row(self, run: str) -> Row:
        """A run at a glance, as of now. Raises UnknownRun."""
        with self._lock:
            self.refresh()
            return self._entry(run).row

    def rows(self) -> list[Row]:
        """All runs, newest first, as of the last refresh."""
        with self._lock:
            return [known.entry.row for known in self._known.values() if known.entry is not None][::-1]

    def summary(self, run: str) -> Summary:
        """A run's head as it is known, without results and memory. Raises UnknownRun."""
        with self._lock:
            self._entry(run)
            return self._known[run].summary

    def refresh(self) -> int:
        """Take in what was committed since; the number of the event that it is as of now."""
        with self._lock:
            found = self._store.changes(self.number, self._trace)
            if found.anew:
                self._load()
            elif found.runs:
                self._take(
                    self._store.list(RunFilter(runs=found.runs), limit=len(found.runs), unreadable=True)
                )
            self._recompute(self._read_requests())
            self.number, self._trace = found.number, found.trace
            if time.monotonic() - self._looked_s >= self._look_s:
                self._look()
            return self.number

    def _entry(self, run: str) -> filters.FilterRow:
        known = self._known.get(run)
        if known is None or known.entry is None:
            raise UnknownRun(run)
        return known.entry

    # -- taking in ---------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read all runs, page by page so that no more heads than that are in memory as a whole; forget those that are gone."""
        seen: list[str] = []
        news: list[Summary] = []
        after = 0
        while page := self._store.list(RunFilter(), after=after, limit=LOAD_PAGE, unreadable=True):
            seen += [summary.run for summary in page]
            news += [_slim(summary) for summary in page if self._is_news(summary)]
            after = page[-1].id
        gone = self._known.keys() - set(seen)
        above = {self._forget(run) for run in gone}
        self._take(news)
        self._recompute(above & self._known.keys())

    def _is_news(self, summary: Summary) -> bool:
        known = self._known.get(summary.run)
        return known is None or _place(known.summary) != _place(summary)

    def _forget(self, run: str) -> str:
        """Take out a run; the one above it."""
        known = self._known.pop(run)
        self._moving.discard(run)
        self._below.pop(run, None)
        self._below.get(known.summary.parent, {}).pop(run, None)
        self.version += 1
        return known.summary.parent

    def _take(self, summaries: Iterable[Summary]) -> None:
        """Put in heads, and compute what they change: their own rows, and those of the runs above and below them."""
        changed: dict[str, None] = {}
        looked: dict[str, bool] = {}
        for summary in sorted(summaries, key=lambda each: each.id):
            slim, run = _slim(summary), summary.run
            before = self._known.get(run)
            known = self._known[run] = _Known(slim, self._acted_at(before, slim.state))
            if before is not None:
                known.entry = before.entry
            if summary.parent:
                self._below.setdefault(summary.parent, {})[run] = None
            if slim.state.status == "running":
                root = summary.root
                known.lives = looked[root] = (
                    looked[root] if root in looked else self._store.holder_lives(root)
                )
            changed[run] = None
        for run in list(changed):
            changed.update(dict.fromkeys(self._around(run)))
        self._recompute(changed)

    def _around(self, run: str) -> Iterable[str]:
        """The runs whose rows depend on this one: those above it; and of a root, whether it rests, those below it."""
        above = self._known[run].summary.parent
        if not above:
            yield from self._all_below(run)
        while above in self._known:
            yield above
            above = self._known[above].summary.parent

    def _all_below(self, run: str) -> Iterable[str]:
        for child in self._below.get(run, ()):
            yield child
            yield from self._all_below(child)

    def _acted_at(self, before: _Known | None, state: RunState) -> datetime | None:
        """When the run did something. A warning alone, as that nothing was heard of it for long, is no sign of life."""
        idle = (f"idle {state.attempts}",)
        if before is not None:
            known = before.summary.state
            warned = state.warned[-1:] == idle and state.warned != known.warned
            if state.seq == known.seq or (state.seq == known.seq + 1 and warned):
                return before.acted_at
        elif state.status == "running" and state.warned[-1:] == idle:
            last = self._store.read(
                state.run, after=max(0, state.seq - _WARNINGS_MAX), before=state.seq + 1
            ).events
            acts = [item.event.at for item in last if not isinstance(item.event, ev.Warned)]
            return max(acts, default=state.updated_at)
        return state.updated_at

    def _look(self) -> None:
        """See what changes without an event: a death, output, the passing of time."""
        self._looked_s = time.monotonic()
        under_way = [run for run in self._moving if self._known[run].summary.state.status == "running"]
        roots = {self._known[run].summary.root for run in under_way}
        lives = {root: self._store.holder_lives(root) for root in roots}
        changed = dict.fromkeys(self._moving)
        for known in (self._known[run] for run in under_way):
            if known.lives != lives[known.summary.root]:
                known.lives = not known.lives
                changed.update(dict.fromkeys(self._around(known.summary.run)))
        self._recompute(changed)

    def _read_requests(self) -> Iterable[str]:
        """Read what waits for runs: no event tells of it. The runs for which something else waits now."""
        before, self._pending = self._pending, request_words.pending_by_run(self._store)
        for run in before.keys() | self._pending.keys():
            if before.get(run) != self._pending.get(run) and run in self._known:
                yield run
                yield from self._all_below(run)

    def _recompute(self, runs: Iterable[str]) -> None:
        now = self._clock()
        for run in runs:
            known = self._known[run]
            made = make(known.summary, self._seen(known, now), self._children, now)
            before = known.entry
            if before is None or before.row != made:
                known.entry = filters.FilterRow(known.summary, made)
                self.version += before is None or _shown_parts(before.row) != _shown_parts(made)
            if moves(known.summary, made, now):
                self._moving.add(run)
            else:
                self._moving.discard(run)

    def _seen(self, known: _Known, now: datetime) -> Seen:
        summary, state = known.summary, known.summary.state
        heard, waits = known.acted_at, False
        if not known.lives and may_wait(summary, now):
            watcher = lock.of(self._store.local, summary.run)
            waits = watcher is not None and watcher.supervisor != 0
        was_signalled = False
        if not known.lives and state.attempt is not None and state.supervised:
            was_signalled = lock.stop_was_wanted(self._store.local, summary.run, state.attempt.epoch)
        if known.lives and state.status == "running":
            times = [heard, *(self._known[run].acted_at for run in self._all_below(summary.run))]
            if not summary.parent:
                times.append(log_times.output_at(self._store.local, summary.run, state.attempts))
            heard = max(filter(None, times), default=None)
        root = self._known.get(summary.root, known)
        pending = self._pending.get(summary.root, ())
        if summary.parent:  # it stops with its root, and that is all that is asked of it
            pending = tuple(each for each in pending if each.what in STOPS)
        return Seen(
            lives=known.lives, waits=waits, heard_at=heard, children=len(self._below.get(summary.run, ())),
            root_rests=not root.lives and not is_over(root.summary.state.status),
            was_signalled=was_signalled, pending=pending,
        )  # fmt: skip

    def _children(self, state: RunState) -> Iterable[RunState]:
        """The runs of a run's open beat, newest first as a store lists them."""
        below = [self._known[run].summary for run in reversed(self._below.get(state.run, {}))]
        return [child.state for child in below if child.parent_beat == state.beats + 1]


def _place(summary: Summary) -> tuple[object, ...]:
    """The mark that tells a head from every other of the run, also from one of a journal that was put back and went on otherwise."""
    return summary.id, summary.state.seq, summary.state.updated_at, summary.problem


def _slim(summary: Summary) -> Summary:
    """Without what no row shows: it is most of a head."""
    state = summary.state
    if not (state.recent or state.memory or state.names):
        return summary
    slim = msgspec.structs.replace(state, recent=(), memory=(), names=())
    return msgspec.structs.replace(summary, state=slim)


def _now() -> datetime:
    return datetime.now(UTC)
