"""Which of its agent's sessions an attempt goes on with: the last one that did something and that its CLI still takes."""

import re
from itertools import takewhile

from outlast.core import events as ev
from outlast.core.values import SessionMark
from outlast.runs import reader
from outlast.runs.journal import Journal

_FRESH_CAUSES = ("context",)  # a session that has grown too long is not gone on with
_ANSI = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\\x1b\[[0-9;:?]*[A-Za-z]")
# what the CLIs say of a session that they do not know; it would be the same at every further try
_NO_SESSION = re.compile(
    r"\bno (?:previous )?(?:conversation|session|rollout)s?\b.{0,40}\bfound\b"
    r"|\bsession\b.{0,80}\bnot (?:be )?found\b|\bdoes not start with session metadata\b",
    re.IGNORECASE,
)
_TAGS = ("attempt_started", "session_known", "beat_begun", "effect_intended", "attempt_ended")
IN_DOUBT = "in_doubt"  # what stands for the cause where the agent had finished, and a call of it was in doubt
SIGNALLED = 128  # exit codes from here on tell of a signal


def to_go_on_with(journal: Journal) -> SessionMark | None:
    """The session to go on with, by the journal; None for a fresh one.

    A session that the CLI does not know, or that has grown too long, is not tried again. If resuming a session ended in an
    error before the model answered, the next attempt takes a fresh one. If the fresh one fails as well, the session was not
    to blame.
    """
    found, after = _Sessions(journal), 0
    while page := journal.store.read(journal.run, after=after, tags=_TAGS).events:
        for item in page:
            found.take(item.event, item.seq)
        after = page[-1].seq
    best, now = found.best(), journal.state.session
    if best is None or now is None:
        return None
    return now if best == (now.agent, now.session) else _mark_of(journal, best)


def is_new_here(journal: Journal) -> bool:
    """Whether the run was imported and its session not resumed since: the CLI here may not know it."""
    is_new = False
    for event in journal.events("requested", "session_known"):
        is_new = isinstance(event, ev.Requested) and (is_new or event.what == "import")
    return is_new


def _mark_of(journal: Journal, known: tuple[str, str]) -> SessionMark:
    """How far an earlier session had come at its last save point."""
    mark = SessionMark(*known)
    for _, beat in reader.beats_done(journal.store, journal.run):
        if beat.session is not None and (beat.session.agent, beat.session.session) == known:
            mark = beat.session
    return mark


class _Sessions:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: list[
            tuple[str, str]
        ] = []  # agent and session; the one that was taken up last is the last
        self._lived: set[tuple[str, str]] = set()
        self._dead: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()  # a resume of it came to nothing
        self._now: tuple[str, str] | None = None
        self._is_fresh = self._did = False  # of the attempt at hand
        self._began = 0

    def take(self, event: ev.AnyEvent, seq: int) -> None:
        match event:
            case ev.AttemptStarted():
                self._is_fresh, self._did, self._began = False, False, seq
            case ev.SessionKnown(session=mark):
                self._know(mark)
                self._did, self._began = False, seq  # what a rebuilt transcript told of was done before
            case ev.BeatBegun() | ev.EffectIntended():
                self._act()
            case ev.AttemptEnded():
                self._end(event)
            case _:
                pass

    def _know(self, mark: SessionMark) -> None:
        known = (mark.agent, mark.session)
        if known in self._known:
            self._known.remove(known)
        else:
            self._is_fresh = True
        self._known.append(known)
        self._now = known

    def _act(self) -> None:
        self._did = True
        if self._now is not None:
            self._lived.add(self._now)
            self._refused.discard(self._now)

    def _end(self, event: ev.AttemptEnded) -> None:
        if self._now is None:
            return
        if event.cause in _FRESH_CAUSES or _NO_SESSION.search(_ANSI.sub("", event.evidence)):
            self._dead.add(self._now)
        elif not self._did and _came_to_nothing(event) and not self._spoke():
            if self._is_fresh:
                self._refused.clear()
            else:
                self._refused.add(self._now)

    def _spoke(self) -> bool:
        """Whether a beat without a call was done in the attempt, of which no tag tells."""
        events = self._journal.store.read(self._journal.run, after=self._began).events
        attempt = takewhile(lambda item: not isinstance(item.event, ev.AttemptEnded), events)
        return any(isinstance(item.event, ev.BeatDone) for item in attempt)

    def best(self) -> tuple[str, str] | None:
        agent = self._now[0] if self._now is not None else ""
        usable = [
            known for known in self._known if known[0] == agent and known not in self._dead | self._refused
        ]
        lived = [known for known in usable if known in self._lived]
        return (lived or usable)[-1] if usable else None


def _came_to_nothing(event: ev.AttemptEnded) -> bool:
    """Whether it ended by itself, spent nothing, and its error is not one of its model's provider."""
    tokens = event.spent.tokens if event.spent is not None else 0
    failed = event.exit_code is not None and 0 < event.exit_code < SIGNALLED
    return event.cause == "crash" and failed and not tokens and not event.wanted


def last_ending(journal: Journal) -> tuple[str, str]:
    """How the last attempt ended: cause and evidence, empty at the first."""
    page = journal.store.read(journal.run, after=0, limit=1, tags=("attempt_ended",), newest=True).events
    event = page[0].event if page else None
    if not isinstance(event, ev.AttemptEnded):
        return "", ""
    return (IN_DOUBT if event.ended_well else event.cause), event.evidence
