"""Emergency saves of all runs: when, why, how much work, and which attempt went on from them."""

import bisect
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_args

from outlast.core import events as ev
from outlast.dashboard import documents
from outlast.dashboard.overview.index import Index
from outlast.dashboard.saves import cache
from outlast.dashboard.timing import Timing
from outlast.errors import OutlastError
from outlast.store.protocol import RecordedEvent, Store, decoded
from outlast.supervisor.guardian import lock
from outlast.workspace import saves

RESCUES_MAX = 20_000
LOAD_EVENTS_MAX = 300_000
LOAD_PAGE = 10_000
NEWS_EVENTS = 5_000
SIZE_MAX = 200
NOTES_MAX = 100
NOT_KNOWN = "unknown"
_TAGS = ("save_made", "attempt_started", "attempt_ended")
_CAUSES = frozenset(get_args(ev.Cause))
_AT_ONCE = 2  # events between the record of a death and of the files found after it: they come in one commit


@dataclass(slots=True)
class Rescue:
    """One such save, as far as the events so far tell."""

    n: int
    seq: int
    run: str
    made: ev.SaveMade
    cause: ev.Cause | None
    evidence: str
    hidden: bool = False
    picked_up: int | None = None
    picked_up_at: datetime | None = None


class _Track:
    """A run while its events are taken in."""

    __slots__ = ("attempts", "began_at", "ended", "ended_seq", "has_saved", "waiting")

    def __init__(self) -> None:
        self.attempts = 0
        self.began_at: datetime | None = None  # the last of them
        self.ended: ev.AttemptEnded | None = None
        self.ended_seq = 0
        self.has_saved = False  # whether the attempt made an emergency save itself
        self.waiting: list[Rescue] = []  # for the attempt that goes on from them


class Book:
    """The emergency saves of a store. For several threads.

    It is read once from the journals and then kept up to date. The cause follows from the save's own reason and from the end of the
    attempt next to it:

      emergency   made when an attempt ended; its reason begins with the cause. One that a guardian made after its supervisor
                  was killed comes on record with the next attempt, and says what the guardian saw.
      found       made on resume, where the attempt before was killed without warning and saved nothing itself.
      final       made at the end; counted only where the run was not done then.
    """

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._lock = threading.Lock()
        self._number = -1
        self._tracks: dict[str, _Track] = {}
        self._rescues: deque[Rescue] = deque(maxlen=RESCUES_MAX)

    def rescues(self) -> list[Rescue]:
        """All that are known as of now, oldest first."""
        with self._lock:
            store = self._store()
            assert store is not None, "who asks has the store"
            if store.last_number() < self._number:  # it was put back to an earlier state
                self._number, self._tracks = -1, {}
                self._rescues.clear()
            for item in self._load(store) if self._number < 0 else self._news(store):
                self._take(item)
            return [each for each in self._rescues if not each.hidden]

    def _load(self, store: Store) -> list[RecordedEvent]:
        return self._back_to(store, 0)

    def _news(self, store: Store) -> list[RecordedEvent]:
        """The events since, in order. After a long time they are found by their kind, not among all events."""
        found = store.glimpses(self._number, wait_s=0, limit=NEWS_EVENTS)
        if len(found) == NEWS_EVENTS:
            return self._back_to(store, self._number)
        self._number = found[-1].n if found else self._number
        return decoded(found)

    def _back_to(self, store: Store, number: int) -> list[RecordedEvent]:
        last = store.last_number()
        found: list[RecordedEvent] = []
        before = last + 1
        while len(found) < LOAD_EVENTS_MAX:
            page = store.events_of_kinds(_TAGS, before=before, limit=LOAD_PAGE)
            fresh = [item for item in page if item.n > number]
            found += fresh
            if len(fresh) < LOAD_PAGE:
                break
            before = page[-1].n
        self._number = last
        return found[::-1]

    # -- taking in -----------------------------------------------------------------------------------------------

    def _take(self, item: RecordedEvent) -> None:
        event = item.event
        if isinstance(event, ev.AttemptStarted):
            self._started(self._track(item.run), event)
        elif isinstance(event, ev.AttemptEnded):
            self._ended(self._track(item.run), item.seq, event)
        elif isinstance(event, ev.SaveMade):
            rescue = self._judged(self._track(item.run), item, event)
            if rescue is not None:
                self._rescues.append(rescue)

    def _track(self, run: str) -> _Track:
        return self._tracks.setdefault(run, _Track())

    @staticmethod
    def _started(track: _Track, event: ev.AttemptStarted) -> None:
        fresh = [rescue for rescue in track.waiting if rescue.picked_up is None]
        for rescue in fresh:
            rescue.picked_up, rescue.picked_up_at = track.attempts + 1, event.at
        track.attempts, track.began_at, track.has_saved = track.attempts + 1, event.at, False
        # The guardian's own save, if it made one, comes on record next and stands for what was found.
        track.waiting = [rescue for rescue in fresh if rescue.made.kind == "found"]

    @staticmethod
    def _ended(track: _Track, seq: int, event: ev.AttemptEnded) -> None:
        for rescue in track.waiting:
            if rescue.picked_up is None and rescue.cause in (None, event.cause):
                rescue.cause, rescue.evidence = event.cause, event.evidence or rescue.evidence
            if rescue.made.kind == "final":
                rescue.hidden = event.status == "done"
        track.ended, track.ended_seq = event, seq

    def _judged(self, track: _Track, item: RecordedEvent, made: ev.SaveMade) -> Rescue | None:
        """The kind of an emergency save; None for other saves."""
        rescue = Rescue(item.n, item.seq, item.run, made, None, made.reason)
        if made.kind == "emergency":
            word, _, rest = made.reason.partition(": ")
            if word in _CAUSES:
                rescue.cause, rescue.evidence = _cause(word), rest
                track.has_saved = True
                track.waiting = [each for each in track.waiting if each.picked_up is None]
                track.waiting.append(rescue)
            else:
                self._by_guardian(track, rescue)
            return rescue
        if made.kind == "found":
            lost = track.ended
            if lost is None or track.has_saved or item.seq - track.ended_seq > _AT_ONCE:
                return None
            rescue.cause, rescue.evidence = lost.cause, lost.evidence
            track.waiting.append(rescue)
            return rescue
        if made.kind == "final":
            rescue.hidden = True
            track.waiting.append(rescue)
            return rescue
        return None

    @staticmethod
    def _by_guardian(track: _Track, rescue: Rescue) -> None:
        """Complete a rescue that a guardian made: its cause, and the attempt that recorded it."""
        if track.ended is not None:
            rescue.cause = track.ended.cause
        if track.began_at is not None:
            rescue.picked_up, rescue.picked_up_at = track.attempts, track.began_at
        for found in track.waiting:
            found.hidden = found.hidden or found.picked_up == rescue.picked_up
        track.waiting = []


def _cause(word: str) -> ev.Cause:
    return next(cause for cause in get_args(ev.Cause) if cause == word)


_books: "weakref.WeakKeyDictionary[Store, Book]" = weakref.WeakKeyDictionary()
_books_lock = threading.Lock()


def book(store: Store) -> Book:
    """The one book of a store."""
    with _books_lock:
        if store not in _books:
            _books[store] = Book(store)
        return _books[store]


# -- the page ------------------------------------------------------------------------------------------------------


def known(store: Store, index: Index) -> Iterator[tuple[Rescue, documents.Row]]:
    """The emergency saves of runs that there are, newest first. What a fork took over happened to its source."""
    rows = {row.run: row for row in index.rows()}
    for rescue in reversed(book(store).rescues()):
        row = rows.get(rescue.run)
        if row is not None and not is_of_another(row, rescue.made.at):
            yield rescue, row


def is_of_another(row: documents.Row, at: datetime) -> bool:
    """Whether something happened before the run was opened: then it is a copy of its source's past."""
    return row.created_at is not None and at < row.created_at


def emergencies(
    store: Store, index: Index, before: int | None = None, cause: str = "", size: int = 50
) -> documents.Emergencies:
    """Emergency saves of all runs, newest first, from below the event number `before`."""
    index.refresh()
    size = max(1, min(size, SIZE_MAX))
    every = list(known(store, index))
    unrecorded = unrecorded_of(store, index, every) if not before else []
    counted = Counter(rescue.cause or NOT_KNOWN for rescue, _ in every)
    counted.update(each.cause or NOT_KNOWN for each in unrecorded)
    fitting = [pair for pair in every if not cause or (pair[0].cause or NOT_KNOWN) == cause]
    start = bisect.bisect_right([-rescue.n for rescue, _ in fitting], -before) if before else 0
    page = fitting[start : start + size]
    files = _files(store, index, [rescue for rescue, _ in page])
    top = [each for each in unrecorded if not cause or (each.cause or NOT_KNOWN) == cause]
    listed = [_document(rescue, row, files.get(rescue.made.commit)) for rescue, row in page]
    for each in top:  # a note has no number: it goes by its time
        place = next((at for at, save in enumerate(listed) if save.at <= each.at), len(listed))
        listed.insert(place, each)
    return documents.Emergencies(
        total=len(fitting) + len(top),
        causes=tuple(documents.Count(name=name, runs=count) for name, count in counted.most_common()),
        saves=tuple(listed),
        before=page[-1][0].n if start + size < len(fitting) else None,
    )


def _document(rescue: Rescue, row: documents.Row, files: int | None) -> documents.Emergency:
    made = rescue.made
    return documents.Emergency(
        n=rescue.n, at=made.at, run=row.run, task=row.task, project=row.project, project_name=row.project_name,
        kind=made.kind, cause=rescue.cause, reason=made.reason, evidence=rescue.evidence, beat=made.beat,
        commit=made.commit, files=files, left_out=len(made.left_out), picked_up=rescue.picked_up,
        picked_up_at=rescue.picked_up_at, status=row.status, act=row.act, command=row.command,
    )  # fmt: skip


def unrecorded_of(
    store: Store, index: Index, every: Iterable[tuple[Rescue, documents.Row]]
) -> list[documents.Emergency]:
    """Guardians' saves of runs that nobody resumed since: only their notes have them. `every`: the saves on record."""
    recorded = {rescue.made.commit for rescue, _ in every}
    down = [row for row in index.rows() if not row.lives and row.status in ("interrupted", "in_doubt")]
    down.sort(key=lambda row: row.updated_at or datetime.fromtimestamp(0, UTC), reverse=True)
    found = []
    for row in down[:NOTES_MAX]:
        note = lock.noted(store.local, row.run)
        if note is None or not note.save or note.save in recorded:
            continue
        try:
            left_s = os.stat(store.local.guardian_note(row.run)).st_mtime
        except OSError:
            continue  # taken up just now
        found.append(
            documents.Emergency(
                n=0, at=datetime.fromtimestamp(left_s, UTC), run=row.run, task=row.task, project=row.project,
                project_name=row.project_name, kind="emergency", cause="signal" if note.wanted else "crash",
                reason=note.why, evidence=note.why, beat=row.beats, commit=note.save,
                files=cache.changed_before(note.save), left_out=0, picked_up=None, picked_up_at=None,
                status=row.status, act=row.act, command=row.command,
            )
        )  # fmt: skip
    return found


# -- how much work -------------------------------------------------------------------------------------------------

_tried: cache.RecentValues[str, float] = cache.RecentValues(cache.COUNTS_MAX)


def _files(store: Store, index: Index, page: Iterable[Rescue]) -> dict[str, int]:
    """How many files changed in these saves, as far as it is known or can be found out in a moment; the rest next time."""
    timing = Timing.current()
    until_s = time.monotonic() + timing.count_files_s
    found: dict[str, int] = {}
    open_questions: dict[str, list[str]] = {}
    for rescue in page:
        commit = rescue.made.commit
        count = cache.changed_before(commit)
        if count is not None:
            found[commit] = count
        elif time.monotonic() - (_tried.get(commit) or float("-inf")) >= timing.count_retry_s:
            open_questions.setdefault(rescue.run, []).append(commit)
    for run, commits in open_questions.items():
        if time.monotonic() >= until_s:
            break
        found |= _looked_up(store, index, run, commits, until_s)
    return found


def _looked_up(store: Store, index: Index, run: str, commits: list[str], until_s: float) -> dict[str, int]:
    found: dict[str, int] = {}
    done = 0
    try:
        with cache.opened(store, index.summary(run), Timing.current().read_on_s) as saver:
            for commit in commits:
                if time.monotonic() >= until_s:
                    break
                done += 1
                count = cache.changed(saver, saves.read(saver.reader(), commit, saver.repo().algo))
                if count is not None:
                    found[commit] = count
    except (OutlastError, OSError):
        done = done or len(commits)  # none of them can be read
    for commit in commits[:done]:
        _tried.put(commit, time.monotonic())
    return found
